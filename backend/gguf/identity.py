"""Detects that a checked file was changed or replaced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

from backend.text import text


class FileChangedError(RuntimeError):
    """A file has changed since it was checked; the text is one sentence for the user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        name = path.name.encode("utf-8", "replace").decode("utf-8")
        super().__init__(text("engine.changed_file", file=name))


class FileIdentity(NamedTuple):
    """Identifies a file and its state. A write changes mtime_ns, a replacement the inode."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path | int) -> FileIdentity:
        """Return the identity of a path or an open descriptor. Raises OSError."""
        status = os.stat(file)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class OpenFiles:
    """Checked files, held open so that no other file can get their inodes.

    checked: paths and their identities; None is not compared. Raises OSError where a file cannot be
    opened, FileChangedError where its identity differs.
    """

    def __init__(self, checked: Iterable[tuple[Path, FileIdentity | None]]) -> None:
        self._files: list[tuple[Path, FileIdentity, int]] = []
        try:
            for path, identity in checked:
                flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
                descriptor = os.open(path, flags)
                found = FileIdentity.of(descriptor)
                self._files.append((path, identity or found, descriptor))
                if found != (identity or found):
                    raise FileChangedError(path)
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
        return [descriptor for _, _, descriptor in self._files]

    def require_unwritten(self) -> None:
        """Raise FileChangedError where an open file was written or cut. Takes some microseconds."""
        for path, identity, descriptor in self._files:
            if FileIdentity.of(descriptor) != identity:
                raise FileChangedError(path)

    def require_unchanged(self) -> None:
        """Raise FileChangedError as require_unwritten(), or where a path leads to another file.

        A path that no longer exists is fine, because the open file still exists.
        """
        self.require_unwritten()
        for path, identity, _ in self._files:
            with contextlib.suppress(OSError):
                if FileIdentity.of(path) != identity:
                    raise FileChangedError(path)

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for _, _, descriptor in self._files:
            os.close(descriptor)
        self._files.clear()
