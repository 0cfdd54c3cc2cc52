"""Whether the user allowed that answers' routing is recorded, to learn from it. Off by default."""

from __future__ import annotations

from pathlib import Path

from backend.system.kept_file import read_object, write_json
from backend.system.paths import data_folder

_CONSENT = "consent.json"


def recordings_folder() -> Path:
    """Where all models' recordings lie, and the user's answer."""
    return data_folder() / "recordings"


def allowed(root: Path) -> bool:
    """Whether the user said yes; False where nobody asked, or the answer cannot be read."""
    return read_object(root / _CONSENT).get("record") is True


def allow(root: Path, yes: bool) -> None:
    """Remember the user's answer, for all models. What was recorded stays. Raises OSError."""
    write_json(root / _CONSENT, {"record": yes})
