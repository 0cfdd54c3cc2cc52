"""Keeps the user's folders, and the last use, measured speed and checksum of each model."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backend.library.checksum import SHA256, Checksum, PartSum
from backend.system.kept_file import KeptFile
from backend.text import text

_FORMAT = 1
_N_KEPT_MAX = 1000


@dataclass(frozen=True)
class Measured:
    """The speed of a model's last answer that was long enough to measure.

    n_slot: experts of each layer in memory; without a cache, all of them. at_s: seconds since 1970.
    """

    n_slot: int
    tokens_per_s: float
    at_s: float


class History:
    """The history, in one JSON file that is written atomically.

    A file that cannot be read is renamed, and the history starts empty.
    """

    def __init__(self, path: Path) -> None:
        self._file = KeptFile(path, text("library.folders"), text("kept.empty_used"))
        kept, self.trouble = self._file.load(_checked, _Kept())
        """One sentence if the file was damaged or could not be read; otherwise empty."""
        self.folders = kept.folders
        self._used_s = kept.used_s
        self._measured = kept.measured
        self._checksums = kept.checksums

    def used_s(self, path: Path) -> float:
        """Return when a model was last loaded, in seconds since 1970; 0 if never."""
        return self._used_s.get(str(path), 0.0)

    def measured(self, fingerprint: str) -> Measured | None:
        """Return the last measured speed of a model, or None."""
        return self._measured.get(fingerprint)

    def checksum(self, path: Path, stamp: tuple[tuple[int, ...], ...]) -> Checksum | None:
        """Return the checksum of a model, or None if its parts have another stamp now."""
        kept = self._checksums.get(str(path))
        return kept if kept is not None and kept.stamp == stamp else None

    def remember_checksum(self, path: Path, checksum: Checksum) -> None:
        """Keep a checksum until the file changes."""
        self._checksums.pop(str(path), None)
        self._checksums[str(path)] = checksum
        self._save()

    def remember_use(self, path: Path, at_s: float | None = None) -> None:
        """Keep the time of a model's loading; None: now."""
        self._used_s.pop(str(path), None)
        self._used_s[str(path)] = time.time() if at_s is None else at_s
        self._save()

    def remember_speed(self, fingerprint: str, n_slot: int, tokens_per_s: float) -> None:
        """Keep the speed of an answer."""
        if math.isfinite(tokens_per_s) and tokens_per_s > 0:
            self._measured.pop(fingerprint, None)
            self._measured[fingerprint] = Measured(n_slot, tokens_per_s, time.time())
            self._save()

    def add_folder(self, folder: Path) -> bool:
        """Add a folder. Return False if it is in the list already."""
        if folder in self.folders:
            return False
        self.folders.append(folder)
        self._save()
        return True

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder from the list. Nothing on the drive changes."""
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
            "checksums": {
                key: {
                    "at_s": item.at_s,
                    "stamp": item.stamp,
                    "parts": [vars(part) for part in item.parts],
                }
                for key, item in list(self._checksums.items())[-_N_KEPT_MAX:]
            },
        }
        self.trouble = self._file.save(data)


@dataclass
class _Kept:
    folders: list[Path] = field(default_factory=list)
    used_s: dict[str, float] = field(default_factory=dict)  # by path
    measured: dict[str, Measured] = field(default_factory=dict)  # by fingerprint
    checksums: dict[str, Checksum] = field(default_factory=dict)  # by path


def _checked(data: Any) -> _Kept:
    if data["format"] != _FORMAT:
        raise ValueError("another format")
    folders = [Path(_kind(item, str)) for item in data["folders"]]
    used_s = {key: _number(value) for key, value in data["used"].items()}
    measured = {
        key: Measured(
            _kind(item["n_slot"], int), _number(item["tokens_per_s"]), _number(item["at_s"])
        )
        for key, item in data["measured"].items()
    }
    if any(item.tokens_per_s <= 0 for item in measured.values()):
        raise ValueError("a speed is not positive")
    checksums = {key: _checksum(item) for key, item in data.get("checksums", {}).items()}
    return _Kept(folders, used_s, measured, checksums)


def _checksum(data: Any) -> Checksum:
    parts = tuple(PartSum(**part) for part in data["parts"])
    for part in parts:
        if not (isinstance(part.file, str) and isinstance(part.source, str)):
            raise TypeError("a name is not a text")
        if not SHA256.fullmatch(part.sha256) or not SHA256.fullmatch(part.stated or part.sha256):
            raise ValueError("a checksum is not one")
    stamp = tuple(tuple(_kind(value, int) for value in part) for part in data["stamp"])
    if not parts or len(parts) != len(stamp):
        raise ValueError("a checksum has no parts")
    return Checksum(parts, stamp, _number(data["at_s"]))


def _kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError("a value is of the wrong kind")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a value is not a number")
    return float(value)
