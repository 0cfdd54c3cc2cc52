"""Reads what llama.cpp is about to load into the page cache, while llama.cpp does something else.

llama.cpp reads one tensor, rearranges it, reads the next; before, it reads the vocabulary. The
drive would wait meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from backend.gguf_file import ModelFile
from backend.system.memory import available_bytes

CAN_READ_AHEAD = hasattr(os, "posix_fadvise")
_STEP_BYTES = 8 << 20
_PAGE_BYTES = 4096
_SHARE_OF_MEMORY = 0.25
"""Of the memory that is free, what may be filled at most: llama.cpp needs as much again."""


@contextlib.contextmanager
def reading_ahead(file: ModelFile) -> Iterator[bool]:
    """Read the weights that are no routed experts; whether that is done. They stay in the cache."""
    if not CAN_READ_AHEAD or file.dense_bytes > _SHARE_OF_MEMORY * available_bytes():
        yield False
        return
    stop = threading.Event()
    thread = threading.Thread(target=_read, args=(file, stop), daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop.set()
        thread.join()


def dense_ranges(file: ModelFile) -> dict[Path, list[tuple[int, int]]]:
    """Where they lie, by file: (offset, size) in bytes, in order, neighbours joined."""
    found: dict[Path, list[tuple[int, int]]] = {path: [] for path in file.paths}
    for tensor in sorted(file.dense_tensors, key=lambda t: (t.part, t.offset)):
        if not tensor.n_bytes:
            continue
        ranges = found[file.paths[tensor.part]]
        if ranges and tensor.offset - sum(ranges[-1]) < _PAGE_BYTES:
            first, _ = ranges.pop()
        else:
            first = tensor.offset
        ranges.append((first, tensor.offset + tensor.n_bytes - first))
    return found


def _read(file: ModelFile, stop: threading.Event) -> None:
    with contextlib.suppress(OSError):  # then llama.cpp waits for the drive, or says what is wrong
        for path, ranges in dense_ranges(file).items():
            with open(path, "rb") as source:
                for offset, size in ranges:
                    for at in range(offset, offset + size, _STEP_BYTES):
                        if stop.is_set():
                            return
                        n_bytes = min(_STEP_BYTES, offset + size - at)
                        os.posix_fadvise(source.fileno(), at, n_bytes, os.POSIX_FADV_WILLNEED)
