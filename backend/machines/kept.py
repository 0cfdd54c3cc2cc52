"""Keeps the measurements of this machine in the application's data folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from backend.system.kept_file import read_object, write_json
from backend.system.paths import data_folder


def read(name: str) -> dict[str, object]:
    """Return the values of the file of this name, or {} if it is missing or damaged."""
    return read_object(data_folder() / name)


def write(name: str, values: Mapping[str, object]) -> None:
    """Write the values. Ignore a failure: they are then measured again."""
    with contextlib.suppress(OSError):
        write_json(data_folder() / name, values)
