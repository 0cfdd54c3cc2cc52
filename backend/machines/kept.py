"""What was measured of this machine, kept in the application's data folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from backend.system.kept_file import read_object, write_json
from backend.system.paths import data_folder


def read(name: str) -> dict[str, object]:
    """What was kept in the file of this name; nothing where it is missing or damaged."""
    return read_object(data_folder() / name)


def write(name: str, values: Mapping[str, object]) -> None:
    """Keep it; where that cannot be, it is measured again."""
    with contextlib.suppress(OSError):
        write_json(data_folder() / name, values)
