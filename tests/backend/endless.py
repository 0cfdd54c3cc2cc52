"""A tiny model that never ends its answer by itself, so that tests can stop it."""

from __future__ import annotations

from pathlib import Path

from factory import make_tiny, tiny_vocabulary
from gguf import GGUFReader

N_LAYER, N_EXPERT, N_EXPERT_USED = 3, 8, 2


def make_endless(path: Path, n_context: int = 1024) -> Path:
    """Write a tiny qwen3moe model whose control tokens always score zero.

    At temperature 0 another token always wins. n_context: tokens that it was trained for.
    """
    make_tiny(
        "qwen3moe",
        "Q8_0",
        path,
        n_layer=N_LAYER,
        n_expert=N_EXPERT,
        n_expert_used=N_EXPERT_USED,
        n_ctx=n_context,
    )
    reader = GGUFReader(path, "r+")
    output = next(tensor for tensor in reader.tensors if tensor.name == "output.weight")
    assert output.data.shape[0] == len(tiny_vocabulary().tokens)
    output.data[-3:] = 0  # a block of Q8_0 with the scale 0 is 0
    output.data.flush()
    return path
