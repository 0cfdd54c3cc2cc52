"""What the library remembers for the user: folders, when a model was used, how fast it was."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FORMAT = 1
_N_KEPT_MAX = 1000
_FILE_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Measured:
    """The last answer of a model that was long enough to say something.

    n_slot: experts of each layer in memory, all of them in a model without a cache. at_s: seconds
    since 1970.
    """

    n_slot: int
    tokens_per_s: float
    at_s: float


class History:
    """Kept in one JSON file, written whole or not at all.

    A file that cannot be read is set aside under another name and an empty history is used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folders: list[Path] = []
        self._used_s: dict[str, float] = {}  # by path
        self._measured: dict[str, Measured] = {}  # by fingerprint
        self.trouble = self._load()
        """One sentence where the file was damaged or could not be read."""

    def used_s(self, path: Path) -> float:
        """When a model was last loaded, in seconds since 1970; 0 where it never was."""
        return self._used_s.get(str(path), 0.0)

    def measured(self, fingerprint: str) -> Measured | None:
        """Return how fast a model was the last time."""
        return self._measured.get(fingerprint)

    def remember_use(self, path: Path, at_s: float | None = None) -> None:
        """Note that a model was loaded."""
        self._used_s.pop(str(path), None)
        self._used_s[str(path)] = time.time() if at_s is None else at_s
        self._save()

    def remember_speed(self, fingerprint: str, n_slot: int, tokens_per_s: float) -> None:
        """Note how fast an answer was."""
        if math.isfinite(tokens_per_s) and tokens_per_s > 0:
            self._measured.pop(fingerprint, None)
            self._measured[fingerprint] = Measured(n_slot, tokens_per_s, time.time())
            self._save()

    def add_folder(self, folder: Path) -> bool:
        """Watch a folder; False where it is watched already."""
        if folder in self.folders:
            return False
        self.folders.append(folder)
        self._save()
        return True

    def remove_folder(self, folder: Path) -> None:
        """Watch a folder no longer. Nothing on disk is touched."""
        if folder in self.folders:
            self.folders.remove(folder)
            self._save()

    def _save(self) -> None:
        data = {
            "format": _FORMAT,
            "folders": [str(folder) for folder in self.folders],
            "used": dict(list(self._used_s.items())[-_N_KEPT_MAX:]),
            "measured": {
                key: asdict(item) for key, item in list(self._measured.items())[-_N_KEPT_MAX:]
            },
        }
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            os.replace(temporary, self._path)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"The list of folders could not be saved: {error.strerror or error}."

    def _load(self) -> str:
        try:
            if self._path.stat().st_size > _FILE_BYTES_MAX:
                raise ValueError("too large")
            self._parse(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"The list of folders could not be read: {error.strerror or error}."
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.folders, self._used_s, self._measured = [], {}, {}
            kept = self._path.with_name(self._path.name + ".broken")
            try:
                os.replace(self._path, kept)
            except OSError:
                return "The list of folders was damaged; an empty one is used."
            return f"The list of folders was damaged; the old file is {kept.name}."
        return ""

    def _parse(self, data: Any) -> None:
        if data["format"] != _FORMAT:
            raise ValueError("another format")
        self.folders = [Path(_kind(item, str)) for item in data["folders"]]
        self._used_s = {str(key): _number(value) for key, value in data["used"].items()}
        self._measured = {
            str(key): Measured(
                _kind(item["n_slot"], int), _number(item["tokens_per_s"]), _number(item["at_s"])
            )
            for key, item in data["measured"].items()
        }
        if any(item.tokens_per_s <= 0 for item in self._measured.values()):
            raise ValueError("a speed is not positive")


def _kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError("a value is of the wrong kind")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("a value is not a number")
    return float(value)
