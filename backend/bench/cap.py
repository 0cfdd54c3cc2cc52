"""Limits the memory of child processes, page cache included, with a memory control group."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from backend.system.memory import control_groups

_V1, _V2 = "memory.limit_in_bytes", "memory.max"


class CapRefused(Exception):
    """The system does not permit limiting memory. str() is one plain sentence."""


class MemoryCap:
    """A new control group with a limit. A process joins it by writing to `join_path`."""

    def __init__(self, limit_bytes: int, name: str) -> None:
        """Create the group. Raises CapRefused."""
        self._folder = _make(f"outrider-bench-{os.getpid()}-{name}", limit_bytes)

    @property
    def join_path(self) -> Path:
        """The file to which a process writes "0" to join the group."""
        return self._folder / "cgroup.procs"

    def memory(self) -> dict[str, int]:
        """Return the bytes that the group holds now, its peak, and its page cache."""
        v1 = (self._folder / _V1).exists()
        cache = ("total_cache",) if v1 else ("file",)
        names = ("memory.usage_in_bytes", "memory.max_usage_in_bytes")
        used, peak = names if v1 else ("memory.current", "memory.peak")
        return {
            "used_bytes": _number(self._folder / used),
            "peak_bytes": _number(self._folder / peak),
            "page_cache_bytes": _stat(self._folder / "memory.stat", cache),
        }

    def close(self) -> None:
        """Remove the group, which must be empty. A second call does nothing."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _make(name: str, limit_bytes: int) -> Path:
    if sys.platform != "linux":
        raise CapRefused("Only Linux can limit the memory of single programs.")
    reason = "no control group for memory is mounted"
    for parent in control_groups("memory"):  # this process's own group, then its ancestors
        folder = parent / name
        try:
            if (parent / "cgroup.controllers").exists():  # version 2
                with contextlib.suppress(OSError):
                    (parent / "cgroup.subtree_control").write_text("+memory")
            folder.mkdir()
        except OSError as error:
            reason = error.strerror or "the system did not say why"
            continue
        limit = next((folder / n for n in (_V1, _V2) if (folder / n).exists()), None)
        try:
            if limit is not None:
                limit.write_text(str(limit_bytes))
                with contextlib.suppress(OSError):  # no swap: swapped memory is not limited
                    (folder / "memory.swap.max").write_text("0")
                return folder
            reason = "the memory of groups is not accounted for"
        except OSError as error:
            reason = error.strerror or "the system did not say why"
        folder.rmdir()
    raise CapRefused(f"This system does not let a program limit memory ({reason}).")


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _stat(path: Path, names: tuple[str, ...]) -> int:
    with contextlib.suppress(OSError, ValueError):
        pairs = (line.split() for line in path.read_text().splitlines())
        return sum(int(value) for name, value in pairs if name in names)
    return 0
