"""Store checkpoints atomically, and append lines to the training log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

CHECKPOINT = "checkpoint.pt"
LOG = "train_log.jsonl"


def save(folder: Path, values: dict[str, Any]) -> None:
    """Replace the checkpoint atomically; a killed process leaves the old one or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (CHECKPOINT + ".partial")
    with partial.open("wb") as file:
        torch.save(values, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / CHECKPOINT)


def load(folder: Path) -> dict[str, Any] | None:
    """Return the stored values, or None if no run has begun."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def log(folder: Path, **values: Any) -> None:
    """Append one line to the log of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
