"""Compare cached models with stock llama.cpp on a device of this machine, bit by bit.

From the repository's root, for one run of every combination:

    PYTHONPATH=.:tests:tests/live python tests/benchmarks/device_equality.py --device Vulkan0

Each architecture of tests/factory is computed with a third, two thirds and all of its layers on the
device, with and without a store in RAM. Each runs in a process of its own, so that a crash ends one
row of the table. Set GGML_VK_DISABLE_FUSION=1 (or GGML_CUDA_DISABLE_FUSION=1) to compare with the
kernels of an unfused graph.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from equality import Runner, n_different
from factory import CACHEABLE, make_tiny

from backend import _native
from backend.engine.loading import CachedModel, Placement, load_native
from backend.gguf.model_file import read_model
from backend.memory import devices
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of

ARCHITECTURES = ("gpt-oss", "llama4", "gemma4", "qwen3moe", "deepseek2")
QUANTS = {"gpt-oss": "MXFP4", "llama4": "Q4_0", "gemma4": "F16"}
N_LAYER = 6
N_DECODE = 8
PROCESS_S = 900
"""A first run compiles the device's shaders."""


def compare(arguments: argparse.Namespace, arch: str) -> Iterator[dict[str, Any]]:
    """Yield a result for each number of layers, store, method and rate."""
    pointers = tuple(d.pointer for d in devices.resolve(arguments.device))
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny(
            arch, QUANTS.get(arch, "Q8_0"), Path(folder) / "m.gguf", n_layer=N_LAYER, n_expert=16
        )
        file = read_model(path)
        for thirds in arguments.thirds:
            # llama.cpp puts the output layer on a device first.
            at = Placement(pointers, N_LAYER * thirds // 3 + 1)
            model = load_native(file, at)
            runner = Runner(model, 1)
            expected = {n: runner.logits(n, N_DECODE) for n in arguments.prompts}
            runner.close()
            model.close()
            cached = CachedModel(file, n_thread=1, placement=at)
            patched: Runner | None = None
            try:
                for store in (0.0, 0.5):
                    for method in arguments.methods:
                        for rate in arguments.rates:
                            shape = cached.patch.shape
                            options = _native.PatchOptions(
                                max_token=128, host_bytes=int(store * file.expert_bytes_total)
                            )
                            parts = composition(METHODS[method], shape)
                            slots = layout(METHODS[method], shape, slots_of(rate, shape.n_expert))
                            cached.patch.configure(slots, parts, options)
                            patched = patched or Runner(cached.model, 1, cached.patch)
                            different = {
                                n: n_different(patched.logits(n, N_DECODE), stock)
                                for n, stock in expected.items()
                            }
                            yield {
                                "layers": f"{thirds}/3",
                                "store": store,
                                "method": method,
                                "rate": rate,
                                "different": different,
                                "misses": sum(c.misses for c in cached.patch.counts()),
                                "found_in_store": sum(
                                    h.bytes_found for h in cached.patch.host_counts()
                                ),
                            }
            finally:
                if patched is not None:
                    patched.close()
                cached.close()


def run_apart(arch: str) -> tuple[list[dict[str, Any]], str]:
    """Return the results of one architecture, and how its process failed, or ""."""
    command = [sys.executable, __file__, "--only", arch, *sys.argv[1:]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_S)
    except subprocess.TimeoutExpired:
        return [], f"no end within {PROCESS_S} s"
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    last = done.stderr.strip().splitlines()[-1:]
    return results, "" if done.returncode == 0 else f"status {done.returncode}: {''.join(last)}"


def main() -> int:
    """Print a line for each architecture and number of layers. Return 1 if a logit differs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES, choices=CACHEABLE)
    parser.add_argument("--thirds", nargs="+", type=int, default=(1, 2, 3))
    parser.add_argument("--methods", nargs="+", default=("promoe",))
    parser.add_argument("--rates", nargs="+", type=float, default=(0.1, 0.5, 1.0))
    parser.add_argument("--prompts", nargs="+", type=int, default=(1, 2, 33))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        for result in compare(arguments, arguments.only):
            print(json.dumps(result), flush=True)
        return 0
    bad = 0
    for number in range(1, arguments.repeat + 1):
        for arch in arguments.architectures:
            results, failure = run_apart(arch)
            unequal = [r for r in results if any(r["different"].values())]
            n_found = sum(r["found_in_store"] > 0 for r in results)
            print(
                f"run {number}: {arch}: {len(results) - len(unequal)} of {len(results)} equal, "
                f"{sum(r['misses'] for r in results)} misses, {n_found} used the store {failure}",
                flush=True,
            )
            for r in unequal:
                print("  DIFFERENT", json.dumps(r), flush=True)
            bad += len(unequal) + bool(failure)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
