"""Compare prompts with stock llama.cpp's at equal memory of a device of this machine.

From the repository's root:

    PYTHONPATH=.:tests:tests/live python tests/benchmarks/device_prompts.py --device Vulkan0

Half of a random model's experts are on the device. Stock llama.cpp keeps whole layers there
(--n-cpu-moe) and copies the other layers' experts for prompts of 32 tokens and more (op_offload).
We keep slots and a stage. Both have the other experts in RAM. The two take turns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from factory import make_tiny
from fake_device_run import prompts

from backend.gguf.model_file import read_model
from backend.memory import devices
from backend.memory.placement import Placement

N_LAYER, N_EXPERT, N_USED = 4, 32, 4
N_EMBD, N_FF = 128, 128
N_STAGE = 8
"""An eighth of the slots."""


def main() -> None:
    """Print a table: the shortest time of each prompt, and its ratio to stock's."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--method", default="promoe")
    parser.add_argument("--lengths", type=int, nargs="+", default=[28, 512, 2048])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quant", default="Q8_0")
    options = parser.parse_args()
    at = Placement(tuple(d.pointer for d in devices.resolve(options.device)), N_LAYER + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny(
            "qwen3moe", options.quant, Path(folder) / "m.gguf", n_layer=N_LAYER,
            n_expert=N_EXPERT, n_expert_used=N_USED, n_embd=N_EMBD, n_ff_exp=N_FF,
            n_ctx=2 * max(options.lengths),
        )  # fmt: skip
        stock, ours = prompts(
            None, read_model(path), at, options.method, options.lengths, N_STAGE,
            n_round=options.rounds, n_thread=options.threads,
        )  # fmt: skip
    print("| tokens | stock, ms | ours, ms | ours to stock's | graphs a layer | error |")
    print("|---|---|---|---|---|---|")
    for n_token, a, b in zip(options.lengths, stock, ours, strict=True):
        true, found = np.array(a["logits"]), np.array(b["logits"])
        error = float(np.sum((true - found) ** 2) / np.sum(true**2))
        print(
            f"| {n_token} | {a['ms']:.0f} | {b['ms']:.0f} | {b['ms'] / a['ms']:.2f} "
            f"| {b['n_graph'] / N_LAYER:.1f} | {error:.1e} |"
        )


if __name__ == "__main__":
    main()
