"""How many reads of a drive are to be under way, and how large: measured once for each file system.

A drive brings small reads one by one far below its speed: their number makes up for it, or their
size. What was measured is kept in the application's data folder.
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
"""Of what is worth measuring for."""
_READ_S = 0.06
_ROUNDS = 2  # so that a moment's disturbance hits no combination twice
_BLOCK_BYTES = 4096
_FILE = "drives.json"
_VERSION = 2

Speeds = Mapping[tuple[int, int], float]
"""Bytes per second by (read_bytes, n_read)."""


@dataclass(frozen=True)
class Drive:
    """How to read from a drive."""

    n_read: int = 4
    """Reads that are under way at the same time."""
    read_bytes: int = 1 << 20
    """Reads of neighbouring ranges are made as large as this."""
    bytes_per_s: float = 0.0
    """What it brings that way; 0: it was not measured."""
    version: int = _VERSION


def in_whole_blocks(matrix_bytes: Iterable[int]) -> bool:
    """Whether the kernel's own queue can read matrices of these sizes straight into slots.

    They may begin anywhere, all of a tensor at the same place in a block
    (native/live/memory/slab.cc).
    """
    return all(n % _BLOCK_BYTES == 0 and n >= 64 * _BLOCK_BYTES for n in matrix_bytes)


def drive_of(path: Path, *, ring: bool) -> Drive:
    """How to read from the drive with this file: as measured before, or now, in two seconds.

    ring: by the kernel's own queue, not by threads. A file that is small, or
    cannot be read, tells nothing, nor does a busy machine: then as most drives want it.
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
    """Read from all over a file in every way; the best of two rounds. Raises RuntimeError."""
    from backend import _native  # loads llama.cpp; what was kept is read without

    speeds: dict[tuple[int, int], float] = {}
    for _ in range(_ROUNDS):
        for size in read_bytes:
            for n in n_read:
                speed = _native.measure_reads(str(path), size, n, _READ_S, ring=ring).bytes_per_s
                speeds[size, n] = max(speed, speeds.get((size, n), 0.0))
    return speeds


def choose(speeds: Speeds) -> Drive:
    """The fewest reads at once, and the smallest, that are nearly as good as any number and size.

    Fewer at once, because what is needed now waits for those that have begun; smaller ones, because
    an expert can be computed on only when its read has ended. A drive's speed wanders, so a number
    is judged by all sizes, and a size by all numbers.
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


def _key(path: Path) -> str:
    """Tells the file system, wherever it is mounted."""
    if hasattr(os, "statvfs"):
        facts = os.statvfs(path)
        if facts.f_fsid:
            return f"{facts.f_fsid:x}-{facts.f_blocks}"
    return f"device-{path.stat().st_dev:x}"


def _drive(said: object) -> Drive | None:
    """What was kept, if it makes sense."""
    try:
        drive = Drive(**an_object(said))
    except TypeError:
        return None
    whole = all(type(n) is int for n in (drive.n_read, drive.read_bytes, drive.version))
    ok = (
        whole
        and drive.version == _VERSION
        and 1 <= drive.n_read <= 64
        and 4096 <= drive.read_bytes <= 1 << 26
        and type(drive.bytes_per_s) is float
    )
    return drive if ok else None
