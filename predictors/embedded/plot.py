"""Draw the curves of the training log. Only this module needs matplotlib."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from predictors.embedded import checkpoint
from predictors.embedded.prepare import read_rows

SMOOTHED_STEPS = 20
COLOURS = {"short": "C0", "long": "C2", "pretrain": "C0", "instruct": "C1"}


def _losses(axes: Any, steps: list[dict[str, Any]]) -> None:
    """Draw a smoothed line for each stretch of one phase."""
    labelled = set()
    for phase, rows in groupby(steps, key=lambda row: row["phase"]):
        part = list(rows)
        width = min(SMOOTHED_STEPS, len(part))
        smooth = np.convolve([row["loss"] for row in part], np.ones(width) / width, "valid")
        label = None if phase in labelled else phase
        labelled.add(phase)
        tokens = [row["n_token"] / 1e6 for row in part[width - 1 :]]
        axes.plot(tokens, smooth, label=label, color=COLOURS.get(phase))
    axes.set(xlabel="tokens, millions", ylabel="training loss, nats per token")
    axes.legend()


def _heldout(axes: Any, folder: Path, name: str, style: str) -> None:
    """Draw held-out bits per byte over tokens."""
    rows: list[dict[str, Any]] = list(read_rows(folder / checkpoint.LOG))
    held = [row for row in rows if "heldout_wikipedia_bpb" in row]
    for source, colour in (("wikipedia", "C0"), ("books", "C1")):
        values = [row[f"heldout_{source}_bpb"] for row in held]
        tokens = [row["n_token"] / 1e6 for row in held]
        axes.plot(tokens, values, style, color=colour, label=f"{source}{name}")


def _experts(axes: Any, held: list[dict[str, Any]]) -> None:
    """Draw the least and the greatest share of an expert in any layer, on held-out text."""
    tokens = [row["n_token"] / 1e6 for row in held]
    axes.plot(tokens, [max(row["expert_share_max"]) for row in held], label="most used")
    axes.plot(tokens, [min(row["expert_share_min"]) for row in held], label="least used")
    axes.axhline(0.3, color="grey", linewidth=0.8)
    axes.axhline(4.0, color="grey", linewidth=0.8)
    axes.set(xlabel="tokens, millions", ylabel="share, 1 is even", yscale="log")
    axes.legend()


def plot(work: Path, figure: Path) -> None:
    """Write a PNG: training loss, held-out bits per byte and expert use, over tokens."""
    rows: list[dict[str, Any]] = list(read_rows(work / checkpoint.LOG))
    steps = [row for row in rows if "loss" in row]
    if len(steps) < SMOOTHED_STEPS:
        raise ValueError(f"{work / checkpoint.LOG} has fewer than {SMOOTHED_STEPS} steps")
    page = Figure(figsize=(10, 3.2), dpi=80, layout="constrained")
    FigureCanvasAgg(page)
    loss, held, use = page.subplots(1, 3)
    _losses(loss, steps)
    _heldout(held, work, "", "-")
    if (work / "reference-dense" / checkpoint.LOG).is_file():
        _heldout(held, work / "reference-dense", ", dense", ":")
    held.set(xlabel="tokens, millions", ylabel="held-out bits per byte")
    held.legend()
    _experts(use, [row for row in rows if "expert_share_min" in row])
    for axes in (loss, held, use):
        axes.grid(alpha=0.3)
    figure.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(figure)
    print(figure)
