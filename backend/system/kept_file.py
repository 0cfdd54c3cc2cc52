"""Small files that are kept between runs: written whole or not at all, set aside where damaged."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

_BYTES_MAX = 16 << 20


def write_whole(
    path: Path,
    data: bytes,
    *,
    makes_folder: bool = True,
    private: bool = False,
    durable: bool = False,
) -> None:
    """Write a file, so that nobody ever reads half of it. Raises OSError, and leaves nothing then.

    private: nobody else may read it. durable: it is on the drive when this returns.
    """
    if makes_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb", opener=_private if private else None) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_json(path: Path, value: object, *, private: bool = False) -> None:
    """Write a value as write_whole does. Raises OSError."""
    text = json.dumps(value, indent=1) + "\n"
    write_whole(path, text.encode("utf-8"), private=private)


def set_aside(path: Path) -> Path | None:
    """Keep a damaged file under the first free name; None where it cannot be moved."""
    for number in range(1, 1000):
        kept = path.with_name(f"{path.stem}.broken-{number}{path.suffix}")
        if not kept.exists():
            break
    try:
        os.replace(path, kept)
    except OSError:
        return None
    return kept


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class KeptList:
    """A list of the user's in a file of JSON. what: its name, as a sentence begins with it."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

    def save(self, value: object) -> str:
        """Write it; returns "", or one sentence about why it could not be."""
        try:
            write_json(self._path, value)
        except OSError as error:
            return f"{self._what} could not be saved: {error.strerror or error}."
        return ""

    def load(self, take: Callable[[Any], None]) -> str:
        """Read the file and have `take` use what it says; returns "", or one sentence.

        Where `take` raises ValueError, TypeError, KeyError or AttributeError it must have changed
        nothing; the file is then set aside.
        """
        try:
            if self._path.stat().st_size > _BYTES_MAX:
                raise ValueError("too large")
            take(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self._what} could not be read: {error.strerror or error}."
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if (kept := set_aside(self._path)) is None:
                return f"{self._what} was damaged; an empty one is used."
            return f"{self._what} was damaged; the old file is {kept.name}."
        return ""
