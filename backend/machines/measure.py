"""Measures this machine, in about two seconds, for the simulator."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from backend import _native
from backend.machines import Hardware, MachineError
from backend.system.memory import physical_cores
from backend.system.paths import cache_folder

N_READER = 4
"""Reads in flight at the same time, about as many as in the live engine."""
_CHUNK_BYTES = 1 << 20  # about one matrix of an expert
_BLOCK_BYTES = 4096
_OWN_FILE_BYTES = 192 << 20
_READ_S, _LATENCY_S = 0.5, 0.1
_COMPUTE_S = 0.9


def measure(file: Path | None = None) -> Hardware:
    """Measure this machine. Raises MachineError.

    file: a large file on the drive of the experts, such as the model. None writes a temporary file.
    """
    try:
        with _file_to_read(file) as path:
            reading = _reading(path)
    except OSError as error:
        raise MachineError(f"Reading could not be measured: {error.strerror or error}.") from None
    n_thread = physical_cores()
    try:
        speed = _native.measure_compute(n_thread, _COMPUTE_S)
    except RuntimeError as error:
        raise MachineError(f"{error}.") from None
    how = "past the page cache" if reading.direct else "through the page cache"
    what = "the given file" if file else "a temporary file"
    return Hardware(
        name="here",
        sentence="This machine, as measured just now; the experts are on its drive.",
        link_gb_per_s=reading.gb_per_s,
        link_latency_us=reading.latency_us,
        n_link=N_READER,
        memory_gb_per_s=speed.memory_bytes_per_us / 1e3,
        tflop_per_s=speed.flop_per_us / 1e6,
        step_us=speed.step_us,
        sources={
            "link_gb_per_s": f"measured: {N_READER} reads of 1 MiB at a time from {what}, {how}",
            "link_latency_us": f"measured: the mean of single 4 KiB reads from {what}, {how}",
            "n_link": "reads that the live engine has under way",
            "memory_gb_per_s": f"measured: ggml multiplies Q4_0 with a vector, {n_thread} threads",
            "tflop_per_s": f"measured: ggml multiplies Q4_0 with 64 vectors, {n_thread} threads",
            "step_us": f"measured: ggml adds 32 values, {n_thread} threads",
        },
    )


@dataclass(frozen=True)
class _Reading:
    gb_per_s: float
    latency_us: float
    direct: bool


@contextlib.contextmanager
def _file_to_read(file: Path | None) -> Iterator[Path]:
    if file is not None:
        yield file
        return
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with own_file(folder) as own:
        yield own


@contextlib.contextmanager
def own_file(folder: Path) -> Iterator[Path]:
    """Yield a temporary file in this folder, large enough to measure its drive. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="measure-") as own:
        block = random.Random(0).randbytes(8 << 20)
        for _ in range(_OWN_FILE_BYTES // len(block)):
            own.write(block)
        own.flush()
        os.fsync(own.fileno())
        yield Path(own.name)


def _reading(path: Path) -> _Reading:
    """Measure reading as the engine reads a pack. Raises MachineError, OSError."""
    if path.stat().st_size < 4 * _CHUNK_BYTES:
        raise MachineError(f"{path.name} is too small to measure the drive with.")
    try:
        many = _native.measure_reads(str(path), _CHUNK_BYTES, N_READER, _READ_S)
        single = _native.measure_reads(str(path), _BLOCK_BYTES, 1, _LATENCY_S)
    except RuntimeError as error:
        raise MachineError(f"Reading could not be measured: {error}.") from None
    return _Reading(many.bytes_per_s / 1e9, _BLOCK_BYTES / single.bytes_per_s * 1e6, many.direct)


def read_s(path: Path, ranges: Sequence[tuple[int, int]]) -> float:
    """Return the seconds to read these (offset, size) ranges, past the page cache where possible.

    Raises OSError.
    """
    blocks = [
        at
        for offset, size in ranges
        for at in range(offset // _BLOCK_BYTES * _BLOCK_BYTES, offset + size, _CHUNK_BYTES)
    ]

    def read(i: int) -> None:
        with _opened(path) as handle, _aligned(_CHUNK_BYTES) as buffer:
            for at in blocks[i::N_READER]:
                _read_at(handle, buffer, at)

    began_s = time.perf_counter()
    with ThreadPoolExecutor(N_READER) as pool:
        list(pool.map(read, range(N_READER)))
    return time.perf_counter() - began_s


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file, past the page cache if the system can, and yield the handle."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    handle, direct = -1, False
    if hasattr(os, "O_DIRECT") and hasattr(os, "preadv"):
        with contextlib.suppress(OSError):
            handle, direct = os.open(path, flags | os.O_DIRECT), True
    if not direct:
        handle = os.open(path, flags)
    if not direct and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _aligned(n_bytes: int) -> Iterator[mmap.mmap]:
    """Yield memory aligned to a page, which reading past the page cache requires."""
    buffer = mmap.mmap(-1, n_bytes)
    try:
        yield buffer
    finally:
        buffer.close()


def _read_at(handle: int, buffer: mmap.mmap, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [buffer], offset)
    os.lseek(handle, offset, os.SEEK_SET)  # each thread has a handle, and so a position, of its own
    return len(os.read(handle, len(buffer)))
