"""The automatic settings: choose the cache rate, method and context length by the free memory.

Automatic mode asks for a cache rate of 1.0; the plan then grants all the memory that is left. The
context is as long as possible without taking much of that memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backend.memory.plan import kv_bytes
from backend.methods.slots import rate_of
from backend.protocol.settings import EngineConfig
from backend.text import text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

CONTEXTS = (32768, 16384, 8192)
"""Tokens. The longest context that costs little is chosen, or else EngineConfig's default."""
KV_SHARE = 0.08
"""Share of the available memory that the keys and values of a longer context may take."""
STOCK_RATE = 0.9
"""From this cache rate on, a cache saves too little memory for its cost."""


def automatic(file: ModelFile, config: EngineConfig, available_bytes: int) -> EngineConfig:
    """Return the automatic settings for a model. The others, and those by hand, stay.

    available_bytes: memory that may be taken; of the devices, where there are any.
    """
    chosen = {
        "cache_rate": 1.0,
        "method": "auto",
        "context_length": context_length(file, available_bytes),
    }
    return replace(config, **{n: v for n, v in chosen.items() if n not in config.by_hand})  # type: ignore[arg-type]


def context_length(file: ModelFile, available_bytes: int) -> int:
    """Return the context length in tokens: at most the length that the model was trained for."""
    shortest = EngineConfig().context_length
    trained = file.context_length or shortest
    for n_token in CONTEXTS:
        fits = kv_bytes(file, min(n_token, trained)) <= KV_SHARE * available_bytes
        if fits and trained > shortest:
            return min(n_token, trained)
    return min(shortest, trained)


WORTH_BYTES = 16 << 20
"""A smaller saving of memory is not mentioned."""


def prefers_stock(file: ModelFile, n_slot: int, free_bytes: int) -> str:
    """Return why stock llama.cpp is better than a cache of n_slot experts per layer, or "".

    Stock is faster where the whole file fits with room to spare and a cache would save little.
    """
    n_bytes = file.expert_bytes_total
    if n_bytes <= 0:
        return text("memory.dense")
    fits = file.file_size_bytes + file.file_size_bytes // 16 <= free_bytes
    rate = rate_of(n_slot, file.n_expert)
    if not fits or rate < STOCK_RATE:
        return ""
    saved_bytes = (1 - rate) * n_bytes
    if saved_bytes < WORTH_BYTES:
        return text("memory.stock_faster_all")
    return text("memory.stock_faster", saved=saved_bytes)
