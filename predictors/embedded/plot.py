"""Draws the loss curve of the training log; needs matplotlib, which nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from predictors.embedded import checkpoint
from predictors.embedded.prepare import read_rows

SMOOTHED_STEPS = 20


def plot(work: Path, figure: Path) -> None:
    """Write a PNG: training loss over tokens, and held-out bits per byte at the checkpoints."""
    try:
        from matplotlib.backends.backend_agg import (  # type: ignore[import-not-found]
            FigureCanvasAgg,
        )
        from matplotlib.figure import Figure  # type: ignore[import-not-found]
    except ImportError as error:
        raise ValueError("the step plot needs matplotlib: pip install matplotlib") from error
    rows: list[dict[str, Any]] = list(read_rows(work / checkpoint.LOG))
    steps = [row for row in rows if "loss" in row]
    held = [row for row in rows if "heldout_wikipedia_bpb" in row]
    if len(steps) < SMOOTHED_STEPS:
        raise ValueError(f"{work / checkpoint.LOG} has fewer than {SMOOTHED_STEPS} steps")
    page = Figure(figsize=(7, 3.2), dpi=80, layout="constrained")
    FigureCanvasAgg(page)
    left, right = page.subplots(1, 2)
    for phase in dict.fromkeys(row["phase"] for row in steps):
        part = [row for row in steps if row["phase"] == phase]
        width = min(SMOOTHED_STEPS, len(part))
        smooth = np.convolve([row["loss"] for row in part], np.ones(width) / width, "valid")
        left.plot([row["n_token"] / 1e6 for row in part[width - 1 :]], smooth, label=phase)
    left.set(xlabel="tokens, millions", ylabel="training loss, nats per token")
    left.legend()
    for source in ("wikipedia", "books"):
        values = [row[f"heldout_{source}_bpb"] for row in held]
        right.plot([row["n_token"] / 1e6 for row in held], values, label=source)
    right.set(xlabel="tokens, millions", ylabel="held-out bits per byte")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(figure)
    print(figure)
