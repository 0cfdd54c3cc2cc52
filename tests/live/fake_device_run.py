"""What a model does on the fake device; prints one JSON object.

    python fake_device_run.py LIBRARY MODEL METHOD [OPTION...]

In a process of its own, since ggml never forgets a device.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path
from typing import Any

from equality import Runner

from backend import _native
from backend.engine.loading import CachedModel
from backend.evaluation.verify import compare
from backend.gguf.model_file import ModelFile, read_model
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout

RATES = (0.1, 0.5, 1.0)
NO_LIMIT = 1 << 40
COUNTS = ("n_backend", "n_async", "n_shared", "pinned_bytes", "n_few", "n_many", "n_cut")


def counts(library: Any) -> dict[str, int]:
    """What was asked of the device so far, see fake_counts()."""
    into = (ctypes.c_long * len(COUNTS))()
    library.fake_counts(into)
    return dict(zip(COUNTS, into, strict=True))


def since(library: Any, before: dict[str, int]) -> dict[str, Any]:
    """What was asked of the device since then."""
    return {name: n - before[name] for name, n in counts(library).items()}


def compared(
    library: Any, file: ModelFile, at: Placement, method: str, host_bytes: int
) -> dict[str, Any]:
    """What comparing the model with stock llama.cpp asked of the device, and found."""
    before = counts(library)
    results = list(
        compare(file, RATES, [method], n_token=48, n_thread=1, placement=at, host_bytes=host_bytes)
    )
    found = since(library, before)
    found["n_different"] = [r.n_different for r in results]
    found["misses"] = [r.misses for r in results]
    found["bytes_from_host"] = [r.bytes_from_host for r in results]
    return found


def ran(library: Any, file: ModelFile, at: Placement, options: argparse.Namespace) -> Any:
    """One prompt and some tokens; the store's slots, and the core's events in words."""
    cached = CachedModel(file, n_thread=1, placement=at)
    patch, chosen = cached.patch, METHODS[options.method]
    library.fake_limits(options.max_buffer, options.max_tensor)
    try:
        patch.record_events(True)
        patch.configure(
            layout(chosen, patch.shape, 0.25),
            composition(chosen, patch.shape, hybrid=options.hybrid),
            _native.PatchOptions(max_token=128, host_bytes=options.host_bytes),
        )
        runner = Runner(cached.model, 1, patch)
        before = counts(library)
        runner.logits(*options.tokens)
        asked = since(library, before)
        runner.close()
        log = patch.take_events()
        events = [log.describe(i)[0] for i in range(len(log))]
        return asked | {"host_slots": patch.host_slots, "events": events}
    except RuntimeError as error:
        return {"error": str(error)}
    finally:
        cached.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("model", type=Path)
    parser.add_argument("method")
    parser.add_argument("--compare", type=int, nargs="+", metavar="HOST_BYTES")
    parser.add_argument("--n-gpu-layers", type=int, default=999)
    parser.add_argument("--tokens", type=int, nargs=2, default=(33, 8), metavar="N")
    parser.add_argument("--host-bytes", type=int, default=0)
    parser.add_argument("--hybrid", default="off")
    parser.add_argument("--max-buffer", type=int, default=NO_LIMIT)
    parser.add_argument("--max-tensor", type=int, default=NO_LIMIT)
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    library.fake_device.restype = ctypes.c_void_p
    library.fake_limits.argtypes = [ctypes.c_size_t] * 2
    at = Placement((library.fake_device(),), options.n_gpu_layers)
    file = read_model(options.model)
    if options.compare:
        found = [compared(library, file, at, options.method, n) for n in options.compare]
    else:
        found = ran(library, file, at, options)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
