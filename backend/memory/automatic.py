"""The automatic settings: what memory decides, so that nobody has to.

The cache gets all the memory that the plan leaves to it, which the engine grants when everything is
asked for. The context is as long as it can be without taking much of that memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backend.memory.plan import kv_bytes
from backend.memory.sentences import DENSE, stock_is_faster
from backend.methods.slots import rate_of
from backend.protocol.settings import EngineConfig

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

CONTEXTS = (32768, 16384, 8192)
"""Tokens; the longest that costs little is taken, or else EngineConfig's own."""
KV_SHARE = 0.08
"""Of the memory that is available, what a longer context may take for its keys and values."""
STOCK_RATE = 0.9
"""From here on a cache saves too little memory for what it costs."""


def automatic(file: ModelFile, config: EngineConfig, available_bytes: int) -> EngineConfig:
    """Return the settings for a model where `available_bytes` may be taken, of its devices if any.

    The threads and the device stay those of `config`.
    """
    return replace(
        config,
        cache_rate=1.0,
        method="auto",
        context_length=context_length(file, available_bytes),
    )


def context_length(file: ModelFile, available_bytes: int) -> int:
    """Return the tokens of context for a model: at most those that it was trained for."""
    shortest = EngineConfig().context_length
    trained = file.context_length or shortest
    for n_token in CONTEXTS:
        fits = kv_bytes(file, min(n_token, trained)) <= KV_SHARE * available_bytes
        if fits and trained > shortest:
            return min(n_token, trained)
    return min(shortest, trained)


def prefers_stock(file: ModelFile, n_slot: int, free_bytes: int) -> str:
    """Why stock llama.cpp is better than a cache of n_slot experts of each layer, or "".

    It is faster where the whole file finds room with some to spare and a cache would save little.
    """
    n_bytes = file.expert_bytes_total
    if n_bytes <= 0:
        return DENSE
    fits = file.file_size_bytes + file.file_size_bytes // 16 <= free_bytes
    rate = rate_of(n_slot, file.n_expert)
    return stock_is_faster((1 - rate) * n_bytes) if fits and rate >= STOCK_RATE else ""
