"""What was measured of this machine, kept in the application's data folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from backend.system.kept_file import write_json
from backend.system.paths import data_folder


def read(name: str) -> dict[str, object]:
    """What was kept in the file of this name; nothing where it is missing or damaged."""
    try:
        found = json.loads((data_folder() / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write(name: str, values: Mapping[str, object]) -> None:
    """Keep it; where that cannot be, it is measured again."""
    with contextlib.suppress(OSError):
        write_json(data_folder() / name, values)
