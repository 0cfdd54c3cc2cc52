"""Detects that a checked file was changed or replaced."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from backend.text import text

_N_PIECE, _PIECE_BYTES = 64, 1 << 16
"""Pieces of a file that are compared where only its time of change differs. A smaller file is
compared whole."""


class FileChangedError(RuntimeError):
    """A file has changed since it was checked; the text is one sentence for the user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        name = path.name.encode("utf-8", "replace").decode("utf-8")
        super().__init__(text("engine.changed_file", file=name))


class FileIdentity(NamedTuple):
    """Identifies a file and its state.

    A replacement changes the inode. A write changes mtime_ns, which a program may set back, and
    changed_ns, which none can. Another name, a hard link or other rights change changed_ns only.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    changed_ns: int = 0

    @classmethod
    def of(cls, file: Path | int) -> FileIdentity:
        """Return the identity of a path or an open descriptor. Raises OSError."""
        status = os.stat(file)
        changed_ns = _changed_ns(file, status)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns)

    @property
    def stamp(self) -> tuple[int, int, int]:
        """The size and both times, which tell the states of one path apart."""
        return self.size_bytes, self.mtime_ns, self.changed_ns

    def resembles(self, other: FileIdentity) -> bool:
        """Return whether both are equal but for the time of change."""
        return self[:-1] == other[:-1]


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    class _BasicInfo(ctypes.Structure):
        """FILE_BASIC_INFO. Times are in units of 100 ns."""

        _fields_ = [
            ("CreationTime", ctypes.c_int64),
            ("LastAccessTime", ctypes.c_int64),
            ("LastWriteTime", ctypes.c_int64),
            ("ChangeTime", ctypes.c_int64),
            ("FileAttributes", wintypes.DWORD),
        ]

    _BASIC_INFO = 0  # of FILE_INFO_BY_HANDLE_CLASS
    _YEAR_1970 = 116_444_736_000_000_000  # its first moment, in those units since 1601
    _get_info = ctypes.WinDLL("kernel32").GetFileInformationByHandleEx
    _get_info.argtypes = [wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD]
    _get_info.restype = wintypes.BOOL

    def _changed_ns(file: Path | int, _status: os.stat_result) -> int:
        """Return the time of change, which os.stat() lacks; 0 where the drive does not tell."""
        if not isinstance(file, int):
            descriptor = os.open(file, os.O_RDONLY | os.O_BINARY)
            try:
                return _changed_ns(descriptor, _status)
            finally:
                os.close(descriptor)
        info = _BasicInfo()
        handle = msvcrt.get_osfhandle(file)
        if not _get_info(handle, _BASIC_INFO, ctypes.byref(info), ctypes.sizeof(info)):
            return 0
        since_1970 = int(info.ChangeTime) - _YEAR_1970  # in ns, more would not fit in 64 bits
        return since_1970 * 100 if info.ChangeTime else 0
else:

    def _changed_ns(_file: Path | int, status: os.stat_result) -> int:
        return status.st_ctime_ns


@dataclass
class _Held:
    """An open file. first: its identity when it was opened. now: the last one seen."""

    path: Path
    descriptor: int
    first: FileIdentity
    now: FileIdentity
    sample: bytes = b""
    is_written: bool = False


class OpenFiles:
    """Checked files, held open so that no other file can get their inodes.

    checked: paths and their identities; None is not compared. Raises OSError where a file cannot be
    opened, FileChangedError where its identity differs in more than the time of change.

    Where later only the time of change differs, pieces of the content are compared: a file that was
    linked, renamed or made read-only is still the same.
    """

    def __init__(self, checked: Iterable[tuple[Path, FileIdentity | None]]) -> None:
        self._files: list[_Held] = []
        try:
            for path, identity in checked:
                flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
                descriptor = os.open(path, flags)
                found = FileIdentity.of(descriptor)
                held = _Held(path, descriptor, found, found)
                self._files.append(held)
                if not found.resembles(identity or found):
                    raise FileChangedError(path)
                held.sample = _sample(held)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the files, in order."""
        return [held.descriptor for held in self._files]

    @property
    def states(self) -> list[tuple[Path, FileIdentity, FileIdentity]]:
        """The files in order: the path, the identity when it was opened, and the last one seen."""
        return [(held.path, held.first, held.now) for held in self._files]

    def condemn(self, number: int) -> None:
        """Let require_unwritten() raise from now on: the content of this file has changed."""
        self._files[number].is_written = True

    def require_unwritten(self) -> None:
        """Raise FileChangedError where an open file was written or cut. Takes some microseconds."""
        for held in self._files:
            found = FileIdentity.of(held.descriptor)
            if held.is_written or not (found == held.now or self._is_unwritten(held, found)):
                raise FileChangedError(held.path)
            held.now = found

    def require_unchanged(self) -> None:
        """Raise FileChangedError as require_unwritten(), or where a path leads to another file.

        A path that no longer exists is fine, because the open file still exists.
        """
        self.require_unwritten()
        for held in self._files:
            with contextlib.suppress(OSError):
                if not FileIdentity.of(held.path).resembles(held.now):
                    raise FileChangedError(held.path)

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for held in self._files:
            os.close(held.descriptor)
        self._files.clear()

    def _is_unwritten(self, held: _Held, found: FileIdentity) -> bool:
        """Return whether pieces of a file with another time of change are as before."""
        try:
            return found.resembles(held.now) and _sample(held) == held.sample
        except OSError:
            return False


def _sample(held: _Held) -> bytes:
    """Return a hash of pieces that are spread over a file. Raises OSError."""
    n_bytes = held.first.size_bytes
    step = max((n_bytes - _PIECE_BYTES) // (_N_PIECE - 1), _PIECE_BYTES)
    whole = hashlib.sha256()
    for offset in range(0, n_bytes, step):
        whole.update(_read_at(held.descriptor, offset))
    return whole.digest()


def _read_at(descriptor: int, offset: int) -> bytes:
    """Return a piece of a file, which somebody may be reading. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, _PIECE_BYTES, offset)
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, _PIECE_BYTES)
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
