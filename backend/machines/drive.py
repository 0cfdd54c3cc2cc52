"""Measures how many reads of a drive to keep in flight, and of what size, once per file system.

A drive is far below its bandwidth with one small read at a time. It needs larger reads, or several
in flight. The result is kept in the application's data folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.machines import kept
from backend.system.kept_file import an_object
from backend.system.memory import is_busy

READ_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
N_READ = (1, 2, 4, 8)
LEAST_FILE_BYTES = 256 << 20
"""A smaller file is not worth a measurement."""
_READ_S = 0.06
_ROUNDS = 2  # the best of two, so that a short disturbance spoils no combination
_BLOCK_BYTES = 4096
_FILE = "drives.json"
_VERSION = 2

Speeds = Mapping[tuple[int, int], float]
"""Bytes per second by (read_bytes, n_read)."""


@dataclass(frozen=True)
class Drive:
    """The best way to read from a drive."""

    n_read: int = 4
    """Reads in flight at the same time."""
    read_bytes: int = 1 << 20
    """Size up to which reads of neighbouring ranges are joined."""
    bytes_per_s: float = 0.0
    """Bandwidth with such reads; 0 if not measured."""
    version: int = _VERSION


def in_whole_blocks(matrix_bytes: Iterable[int]) -> bool:
    """Whether the kernel's own queue can read matrices of these sizes directly into slots.

    They may begin anywhere: all matrices of a tensor begin at the same place in a block
    (native/live/memory/slab.cc).
    """
    return all(n % _BLOCK_BYTES == 0 and n >= 64 * _BLOCK_BYTES for n in matrix_bytes)


def drive_of(path: Path, *, ring: bool) -> Drive:
    """Return the best way to read from the drive of this file. Measure for two seconds if unknown.

    ring: read through the kernel's own queue, not with threads. Return the defaults for a small or
    unreadable file, and on a busy machine.
    """
    try:
        key = _key(path) + ("-queue" if ring else "-threads")
        known = kept.read(_FILE)
        if (found := _drive(known.get(key))) is not None:
            return found
        if path.stat().st_size < LEAST_FILE_BYTES or is_busy():
            return Drive()
        found = choose(measure(path, ring=ring))
        kept.write(_FILE, {**known, key: asdict(found)})
    except (OSError, RuntimeError):
        return Drive()
    return found


def measure(
    path: Path,
    read_bytes: Sequence[int] = READ_BYTES,
    n_read: Sequence[int] = N_READ,
    *,
    ring: bool,
) -> Speeds:
    """Read random places of a file in every way, in two rounds. Return the best speeds.

    Raises RuntimeError.
    """
    from backend import _native  # loads llama.cpp; a kept result is read without it

    speeds: dict[tuple[int, int], float] = {}
    for _ in range(_ROUNDS):
        for size in read_bytes:
            for n in n_read:
                speed = _native.measure_reads(str(path), size, n, _READ_S, ring=ring).bytes_per_s
                speeds[size, n] = max(speed, speeds.get((size, n), 0.0))
    return speeds


def choose(speeds: Speeds) -> Drive:
    """Return the fewest reads in flight, and the smallest size, that are nearly the fastest.

    Fewer, because an urgent read waits for the reads in flight. Smaller, because an expert can be
    computed only after its read has ended. A drive's speed fluctuates, so a number is scored over
    all sizes, and a size over all numbers.
    """

    def fewest(axis: int, share: float) -> int:
        values = sorted({key[axis] for key in speeds})
        others = {key[1 - axis] for key in speeds}
        best = {o: max(v for k, v in speeds.items() if k[1 - axis] == o) for o in others}
        scores = {
            value: sum(v / best[k[1 - axis]] for k, v in speeds.items() if k[axis] == value)
            for value in values
        }
        return next(v for v in values if scores[v] >= share * max(scores.values()))

    read_bytes, n_read = fewest(0, 0.85), fewest(1, 0.95)
    return Drive(n_read, read_bytes, speeds[read_bytes, n_read])


def joint_speed(speeds: Sequence[float], shares: Sequence[float]) -> float:
    """Return the bandwidth of drives that are read at once, each its share of the bytes."""
    return sum(shares) * min(speed / share for speed, share in zip(speeds, shares, strict=True))


def jointly(drives: Sequence[Drive], shares: Sequence[float]) -> Drive:
    """Return the best way to read from drives at once, each its share of the bytes.

    Each drive has its own queue, so n_read is of one drive.
    """
    return Drive(
        max(drive.n_read for drive in drives),
        max(drive.read_bytes for drive in drives),
        joint_speed([drive.bytes_per_s for drive in drives], shares),
    )


def on_one_drive(paths: Iterable[Path]) -> bool:
    """Whether all files are in one file system, or one cannot be asked for its own."""
    try:
        return len({_key(path) for path in paths}) == 1
    except OSError:
        return True


def _key(path: Path) -> str:
    """Return an identifier of the file system that does not depend on where it is mounted."""
    if hasattr(os, "statvfs"):
        system = os.statvfs(path)
        if system.f_fsid:
            return f"{system.f_fsid:x}-{system.f_blocks}"
    return f"device-{path.stat().st_dev:x}"


def _drive(value: object) -> Drive | None:
    """Return a kept measurement, or None if it is not valid."""
    try:
        drive = Drive(**an_object(value))
    except TypeError:
        return None
    has_integers = all(type(n) is int for n in (drive.n_read, drive.read_bytes, drive.version))
    is_valid = (
        has_integers
        and drive.version == _VERSION
        and 1 <= drive.n_read <= 64
        and 4096 <= drive.read_bytes <= 1 << 26
        and type(drive.bytes_per_s) is float
    )
    return drive if is_valid else None
