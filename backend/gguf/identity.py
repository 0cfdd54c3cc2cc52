"""What tells a file that was checked from one that was put or written in its place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backend.text import text


class FileChangedError(RuntimeError):
    """A file is not the one that was checked; the text is one sentence for the user."""

    def __init__(self, path: Path) -> None:
        name = path.name.encode("utf-8", "replace").decode("utf-8")
        super().__init__(text("engine.changed_file", file=name))


@dataclass(frozen=True)
class FileIdentity:
    """Which file it is, and in which state. A write changes mtime_ns, a replacement the inode."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path | int) -> FileIdentity:
        """Of the file at a path, or of an open descriptor. Raises OSError."""
        status = os.stat(file)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class OpenFiles:
    """Files that were checked, held open: while they are, no other file takes their inodes.

    `checked`: their paths and what they were when they were checked; None is not compared. Raises
    OSError where one cannot be opened, FileChangedError where it is another one.
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
        """Of the files, in their order."""
        return [descriptor for _, _, descriptor in self._files]

    def require_unwritten(self) -> None:
        """Raise FileChangedError where an open file was written to or cut: some microseconds."""
        for path, identity, descriptor in self._files:
            if FileIdentity.of(descriptor) != identity:
                raise FileChangedError(path)

    def require_unchanged(self) -> None:
        """As require_unwritten(), and where a path leads to another file.

        One that leads nowhere does not matter: the open file is still there.
        """
        self.require_unwritten()
        for path, identity, _ in self._files:
            with contextlib.suppress(OSError):
                if FileIdentity.of(path) != identity:
                    raise FileChangedError(path)

    def close(self) -> None:
        """Close the files. Twice is fine."""
        for _, _, descriptor in self._files:
            os.close(descriptor)
        self._files.clear()
