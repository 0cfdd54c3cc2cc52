"""Compares a model with stock llama.cpp on the fake device; prints one JSON object.

    python fake_device_run.py LIBRARY MODEL METHOD HOST_BYTES...

In a process of its own, since ggml never forgets a device.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from backend.gguf_file import read_model
from backend.placement import Placement
from backend.verify import compare

RATES = (0.1, 0.5, 1.0)


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.fake_device.restype = ctypes.c_void_p
    placement = Placement((library.fake_device(),), 999)
    found = []
    for host_bytes in map(int, sys.argv[4:]):
        before, after = (ctypes.c_long * 4)(), (ctypes.c_long * 4)()
        library.fake_counts(before)
        results = list(
            compare(
                read_model(Path(sys.argv[2])),
                RATES,
                [sys.argv[3]],
                n_token=48,
                n_thread=1,
                placement=placement,
                host_bytes=host_bytes,
            )
        )
        library.fake_counts(after)
        names = ("n_backend", "n_async", "n_event", "pinned_bytes")
        counts = {n: b - a for n, a, b in zip(names, before, after, strict=True)}
        counts["n_different"] = [r.n_different for r in results]
        counts["misses"] = [r.misses for r in results]
        counts["bytes_from_host"] = [r.bytes_from_host for r in results]
        found.append(counts)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
