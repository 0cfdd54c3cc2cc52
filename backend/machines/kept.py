"""What was measured of this machine, kept in the application's data folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping

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
    path = data_folder() / name
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        temporary.write_text(json.dumps(values, indent=1), encoding="utf-8")
        os.replace(temporary, path)


def is_busy() -> bool:
    """Whether others keep the processor busy, where the system says so: measure another time."""
    try:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return False
