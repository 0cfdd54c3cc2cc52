"""Whether the user allowed that answers' routing is recorded, to learn from it. Off by default."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from backend.system.paths import data_folder

_CONSENT = "consent.json"


def recordings_folder() -> Path:
    """Where all models' recordings lie, and the user's answer."""
    return data_folder() / "recordings"


def allowed(root: Path) -> bool:
    """Whether the user said yes; False where nobody asked, or the answer cannot be read."""
    try:
        said = json.loads((root / _CONSENT).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("record") is True


def allow(root: Path, yes: bool) -> None:
    """Remember the user's answer, for all models. What was recorded stays. Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    partial = root / f"{_CONSENT}.{secrets.token_hex(4)}"
    partial.write_text(json.dumps({"record": yes}), "utf-8")
    partial.replace(root / _CONSENT)
