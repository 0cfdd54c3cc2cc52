"""Finds the model folders of other programs, so that no model is downloaded twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from backend.system.paths import is_folder


def known_folders(
    home: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[tuple[str, Path]]:
    """Return (program, folder) for each folder of LM Studio, Jan and Hugging Face that exists."""
    environment = os.environ if environment is None else environment
    home = home or Path.home()
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    hub = Path(environment.get("HF_HOME") or cache / "huggingface") / "hub"
    jan = [config / "Jan" / "data", data / "Jan" / "data", home / "jan"]
    if sys.platform == "darwin":
        jan.insert(0, home / "Library" / "Application Support" / "Jan" / "data")
    elif sys.platform == "win32":
        jan.insert(0, Path(environment.get("APPDATA") or home) / "Jan" / "data")
    candidates = [
        ("LM Studio", home / ".lmstudio" / "models"),
        ("LM Studio", home / ".cache" / "lm-studio" / "models"),
        *(("Jan", root / "llamacpp" / "models") for root in jan),
        *(("Jan", root / "models") for root in jan),
        ("Hugging Face", Path(environment.get("HF_HUB_CACHE") or hub)),
    ]
    found: dict[Path, str] = {}
    for program, folder in candidates:
        if is_folder(folder):
            found.setdefault(folder, program)
    return [(program, folder) for folder, program in found.items()]
