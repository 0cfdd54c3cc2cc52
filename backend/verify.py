"""Is the answer llama.cpp's, bit for bit? Compares logits with stock llama.cpp.

Stock is the same library without a callback and without a cache, on the same tensor layout: the
experts as they are in the file, since other layouts add up in another order. The reference is
computed first and freed, so that only one copy of the model is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.engine import patch_options
from backend.gguf_file import ModelFile
from backend.llama import Context, LlamaError, Model
from backend.loading import CachedModel, load_native, load_plain
from backend.methods import METHODS
from backend.system.memory import available_bytes

_N_UBATCH = 512


@dataclass(frozen=True)
class Comparison:
    """One way of running a model against stock. n_different counts values of logits, of n_value."""

    method: str
    asked_rate: float
    rate: float
    n_slot: int
    n_position: int
    n_value: int
    n_different: int
    first_position: int | None
    """The first position with a difference."""
    largest_difference: float
    hits: int
    late: int
    misses: int

    @property
    def identical(self) -> bool:
        """Whether every bit of every logit is the same."""
        return self.n_different == 0


def compare(
    file: ModelFile,
    rates: Sequence[float],
    methods: Sequence[str],
    *,
    n_token: int,
    n_thread: int,
) -> Iterator[Comparison]:
    """Run `n_token` tokens, three quarters as a prompt and the rest one by one, in every way.

    Yields a Comparison per method and rate. Raises LlamaError when the model cannot be loaded
    or computed, NotCacheable when there is no cached way to run it.
    """
    in_memory = file.file_size_bytes * 1.1 < available_bytes()
    cached = CachedModel(file, n_thread=n_thread, repack=in_memory)
    cached.close()  # says whether there is anything to compare, before the slow part
    stock = load_native(file) if in_memory else load_plain(file, repack=False)
    tokens = _tokens(stock, n_token)
    try:
        reference = _logits(stock, tokens, n_thread, None)
    finally:
        stock.close()

    cached = CachedModel(file, n_thread=n_thread, repack=in_memory)
    try:
        shape = cached.patch.shape
        for method in methods:
            for rate in rates:
                n_slot = _native.allocate_uniform(shape, rate)
                options = patch_options(METHODS[method], n_thread=n_thread, max_token=_N_UBATCH)
                cached.patch.configure(n_slot, options)
                logits = _logits(cached.model, tokens, n_thread, cached.patch)
                counts = cached.patch.counts()
                different = reference.view(np.uint32) != logits.view(np.uint32)
                rows = np.flatnonzero(different.any(axis=1))
                yield Comparison(
                    method=method,
                    asked_rate=rate,
                    rate=n_slot[0] / shape.n_expert,
                    n_slot=n_slot[0],
                    n_position=len(tokens),
                    n_value=reference.size,
                    n_different=int(different.sum()),
                    first_position=int(rows[0]) if rows.size else None,
                    largest_difference=_largest_difference(reference, logits),
                    hits=sum(c.hits for c in counts),
                    late=sum(c.late for c in counts),
                    misses=sum(c.misses for c in counts),
                )
    finally:
        cached.close()


def _tokens(model: Model, n_token: int) -> list[int]:
    """The same tokens every time, from all over the vocabulary: they reach many experts."""
    random = Random(1)
    return [random.randrange(model.n_vocab) for _ in range(n_token)]


def _logits(
    model: Model, tokens: list[int], n_thread: int, patch: _native.Patch | None
) -> NDArray[np.float32]:
    """Logits of every position, (n_token, n_vocab): a prefill, then a decode per token."""
    context = Context(
        model,
        n_context=len(tokens) + 8,
        n_ubatch=_N_UBATCH,
        n_thread=n_thread,
        callback=patch.callback if patch else None,
        user_data=patch.user_data if patch else None,
    )
    n_prompt = max(1, len(tokens) * 3 // 4)
    steps = list(range(0, n_prompt, context.n_ubatch)) + list(range(n_prompt, len(tokens) + 1))
    if steps[-1] != len(tokens):
        steps.append(len(tokens))
    rows = []
    try:
        for begin, end in zip(steps, steps[1:], strict=False):
            one = end - begin == 1 and begin >= n_prompt
            if patch is not None:
                patch.begin_pass(_native.Phase.decode if one else _native.Phase.prefill)
            status = context.decode(tokens[begin:end], begin, all_logits=True)
            if patch is not None and not patch.end_pass():
                raise LlamaError(f"{patch.error}.")
            if status != 0:
                raise LlamaError(f"llama.cpp could not compute a token (status {status}).")
            rows.append(context.logits(end - begin))
    finally:
        context.close()
    return np.concatenate(rows)


def _largest_difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()) if not _same(a, b) else 0.0


def _same(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))
