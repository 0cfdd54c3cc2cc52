"""Measures GoodPred = accuracy x fetch rate (ProMoE, section 4.1) in the live engine.

A text is computed token by token over a link too slow for full overlap, so early forecasts gain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend import _native
from backend.engine.loading import CachedModel
from backend.evaluation.predictors import Candidate
from backend.gguf.model_file import ModelFile
from backend.llama.api import Context, LlamaError
from backend.machines.drive import Drive
from backend.methods.catalogue import METHODS, Method
from backend.methods.compose import Learned, composition, layout
from backend.methods.slots import slots_of

WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class GoodPred:
    """The figures of a predictor. link_bytes_per_s: the limit of all copies together; 0: none."""

    label: str
    stride: int
    accuracy: float
    fetch_rate: float
    tokens_per_s: float
    link_bytes_per_s: float
    bytes_read: int
    compute_s: float

    @property
    def value(self) -> float:
        """Accuracy x fetch rate."""
        return self.accuracy * self.fetch_rate


def method_of(candidate: Candidate, base: str = "promoe") -> Method:
    """Return a method with this predictor that fetches every forecast at once."""
    return replace(
        METHODS[base],
        predictor=candidate.part,
        fallback=None,
        depth=candidate.stride,
    )


def measure(
    file: ModelFile,
    text: str,
    candidates: Sequence[Candidate],
    learned: Learned,
    *,
    cache_rate: float,
    n_token: int,
    n_thread: int = 1,
    link_share: float = 0.5,
    base: str = "promoe",
) -> Iterator[GoodPred]:
    """Measure candidates. The first result is a reactive cache without a link limit.

    link_share: the link's limit, as a share of the speed that would fetch that cache's misses
    within its computing time. base: the method that gives eviction and schedule. Raises LlamaError,
    ValueError.
    """
    cached = CachedModel(file, n_thread=n_thread, repack=True)
    try:
        tokens = cached.model.tokenize(text)[: n_token + WARM_UP_TOKENS]
        free = _run(cached, tokens, METHODS["lru-overlapped"], "lru", 0, learned, cache_rate, 0.0)
        yield free
        link = link_share * free.bytes_read / max(free.compute_s, 1e-9)
        for c in candidates:
            yield _run(
                cached, tokens, method_of(c, base), c.label, c.stride, learned, cache_rate, link
            )
    finally:
        cached.close()


def _run(
    cached: CachedModel,
    tokens: list[int],
    method: Method,
    label: str,
    stride: int,
    learned: Learned,
    cache_rate: float,
    link: float,
) -> GoodPred:
    patch = cached.patch
    shape = patch.shape
    options = _native.PatchOptions(
        n_thread=1, n_transfer_thread=Drive().n_read, max_token=8, link_bytes_per_s=link
    )
    patch.configure(
        layout(method, shape, slots_of(cache_rate, shape.n_expert)),
        composition(method, shape, learned),
        options,
    )
    context = Context(
        cached.model,
        n_context=len(tokens) + 8,
        n_ubatch=8,
        n_thread=1,
        callback=patch.callback,
        user_data=patch.user_data,
    )
    try:
        patch.request_began()
        before, before_us, began_s = _counts(patch), patch.times().stall_us, time.perf_counter()
        for position, token in enumerate(tokens):
            if position == WARM_UP_TOKENS:
                before, before_us = _counts(patch), patch.times().stall_us
                began_s = time.perf_counter()
            patch.begin_pass(_native.Phase.decode, [token])
            status = context.decode([token], position)
            if not patch.end_pass() or status != 0:
                raise LlamaError("A token could not be computed.")
        wall_s = time.perf_counter() - began_s
        stall_s = (patch.times().stall_us - before_us) / 1e6
        after = _counts(patch)
    finally:
        context.close()
    predicted, used, ready, read = (b - a for a, b in zip(before, after, strict=True))
    return GoodPred(
        label,
        stride,
        used / predicted if predicted else 0.0,
        ready / predicted if predicted else 0.0,
        max(len(tokens) - WARM_UP_TOKENS, 0) / wall_s,
        link,
        read,
        max(wall_s - stall_s, 0.0),
    )


def _counts(patch: Any) -> tuple[int, int, int, int]:
    counts = patch.counts()
    return (
        sum(c.predicted for c in counts),
        sum(c.predicted_used for c in counts),
        sum(c.predicted_ready for c in counts),
        sum(c.bytes_read for c in counts),
    )
