"""Keeps the user's consent to record the routing of answers for training. Off by default."""

from __future__ import annotations

from pathlib import Path

from backend.system.kept_file import read_object, write_json
from backend.system.paths import data_folder

_CONSENT = "consent.json"


def recordings_folder() -> Path:
    """Return the folder of all recordings and of the user's choice."""
    return data_folder() / "recordings"


def allowed(root: Path) -> bool:
    """Whether the user consented. False if there is no choice, or it cannot be read."""
    return read_object(root / _CONSENT).get("record") is True


def allow(root: Path, yes: bool) -> None:
    """Keep the user's choice, for all models. It deletes no recording. Raises OSError."""
    write_json(root / _CONSENT, {"record": yes})
