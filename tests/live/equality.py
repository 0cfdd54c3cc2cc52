"""Compares cached models with stock llama.cpp bit by bit; a program for all combinations.

If a method cuts experts, the outputs of their two parts are added, and the sum rounds differently
from stock llama.cpp. The result must not depend on the contents of the cache, so it is compared bit
by bit with the same cuts when everything is resident. test_parts.py compares it with stock, layer
by layer.

From the repository's root (it takes long; --help lists options to run less):

    PYTHONPATH=tests:tests/live python -m live.equality
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from factory import CACHEABLE, QUANTS, make_tiny, tiny_vocabulary
from layouts import all_resident
from numpy.typing import NDArray

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import ModelFile, read_model
from backend.llama import api as llama
from backend.methods.catalogue import CACHED, METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of
from backend.packs.file import Pack

Logits = NDArray[np.float32]

N_DECODE = 4
"""Tokens computed one by one after each prompt."""
N_UBATCH = 128
"""Prompts of 300 tokens take three passes."""
MAX_CUT_ERROR = 1e-5
"""Of a row of the output of a layer whose experts are cut, relative to its length."""
PROMPTS = (1, 2, 33, 300)
RATES = (0.0, 0.125, 0.25, 0.5, 1.0)


def random_tokens(n: int, seed: int = 1) -> list[int]:
    """Return random ids of ordinary tokens, without control tokens."""
    n_normal = len(tiny_vocabulary().tokens) - 3
    return [int(t) for t in np.random.default_rng(seed).integers(0, n_normal, n)]


class Runner:
    """A model in a context, with or without a patch, that gives logits of every position."""

    def __init__(
        self, model: Any, n_thread: int, patch: Any = None, *, n_sequence: int = 1
    ) -> None:
        self._patch = patch
        self._context = llama.Context(
            model,
            n_context=512,
            n_sequence=n_sequence,
            n_ubatch=N_UBATCH,
            n_thread=n_thread,
            callback=patch.callback if patch else None,
            user_data=patch.user_data if patch else None,
        )
        if patch is not None:
            patch.use_scheduler(loading.scheduler_of(self._context))

    def logits(self, n_prompt: int, n_decode: int = N_DECODE) -> Logits:
        """Return the logits of random tokens, (n_prompt + n_decode, n_vocab)."""
        tokens = random_tokens(n_prompt + n_decode, seed=n_prompt)
        self._context.forget_from(0)
        if self._patch is not None:
            self._patch.request_began()
        steps = [range(i, min(i + N_UBATCH, n_prompt)) for i in range(0, n_prompt, N_UBATCH)]
        steps += [range(i, i + 1) for i in range(n_prompt, n_prompt + n_decode)]
        return np.concatenate([self._pass([tokens[i] for i in step], step[0]) for step in steps])

    def _pass(self, tokens: list[int], position: int) -> Logits:
        if self._patch is not None:
            phase = _native.Phase.prefill if len(tokens) > 1 else _native.Phase.decode
            self._patch.begin_pass(phase, tokens)
        assert self._context.decode(tokens, position, all_logits=True) == 0
        assert self._patch is None or self._patch.end_pass(), self._patch.error
        return self._context.logits(len(tokens))

    def of_rows(self, rows: Sequence[llama.Row]) -> Logits:
        """Return the logits that a batch of several sequences asks for, (n, n_vocab)."""
        for sequence in {row.sequence for row in rows}:
            self._context.forget_from(0, sequence)
        if self._patch is not None:
            self._patch.request_began()
            numbers = [1 + row.sequence for row in rows]
            self._patch.begin_pass(_native.Phase.prefill, [row.token for row in rows], numbers)
        assert self._context.decode_rows(rows) == 0
        assert self._patch is None or self._patch.end_pass(), self._patch.error
        return self._context.logits(sum(row.has_logits for row in rows))

    def close(self) -> None:
        if self._patch is not None:
            self._patch.use_scheduler(0)
        self._context.close()


def stock_logits(
    file: ModelFile, prompts: Sequence[int], n_thread: int, n_decode: int = N_DECODE
) -> dict[int, Logits]:
    """Return, by prompt length, stock llama.cpp's logits in the file's layout."""
    model = loading.load_native(file)
    runner = Runner(model, n_thread)
    found = {n: runner.logits(n, n_decode) for n in prompts}
    runner.close()
    model.close()
    return found


@dataclass(frozen=True)
class Outcome:
    """One combination: the number of logits that differ, and counters of the cache."""

    rate: float
    method: str
    n_prompt: int
    n_slot: int
    """In all pools together."""
    is_cut: bool
    n_different: int
    hits: int
    late: int
    misses: int


class Cached:
    """A model with its experts in the file, whose logits can be compared with stock's."""

    def __init__(self, file: ModelFile, n_thread: int, pack: Pack | None = None) -> None:
        self.file, self._n_thread = file, n_thread
        self.cached = loading.CachedModel(file, n_thread=n_thread, pack=pack)
        self.patch = self.cached.patch
        self.shape = self.patch.shape
        self.n_expert = self.shape.n_expert
        self._runner: Runner | None = None
        self._expected: dict[tuple[float, ...], dict[int, Logits]] = {}

    def setup(
        self,
        layout: _native.Layout,
        composition: _native.Composition | None = None,
        *,
        keeps: bool = False,
        **options: float,
    ) -> None:
        """Rebuild the cache, empty or with the experts that it `keeps`. The context stays."""
        known = {"n_thread": self._n_thread, "n_transfer_thread": 2, "max_token": N_UBATCH}
        self.patch.configure(
            layout,
            composition or _native.Composition(),
            _native.PatchOptions(**(known | options)),
            keeps,
        )
        if self._runner is None:
            self._runner = Runner(self.cached.model, self._n_thread, self.patch)

    def configure(self, rate: float, method: str, **options: float) -> None:
        """Rebuild the cache for a method at a cache rate."""
        chosen = METHODS[method]
        slots = layout(chosen, self.shape, slots_of(rate, self.shape.n_expert))
        self.setup(slots, composition(chosen, self.shape), **options)

    def logits(self, n_prompt: int, n_decode: int = N_DECODE) -> Logits:
        assert self._runner is not None
        return self._runner.logits(n_prompt, n_decode)

    def counts(self) -> tuple[int, int, int]:
        """Return hits, late and misses of all layers since the cache was rebuilt."""
        all_layers = self.patch.counts()
        hits, late, misses = (
            sum(getattr(c, name) for c in all_layers) for name in ("hits", "late", "misses")
        )
        return hits, late, misses

    def compare(
        self, rate: float, method: str, expected: dict[int, Logits], **options: float
    ) -> list[Outcome]:
        """Return an outcome for every prompt. The cache starts empty and stays warm."""
        self.configure(rate, method, **options)
        lies = self.patch.layout
        if lies.any_cut():
            expected = self.expected_when_cut([la.top_share for la in lies.layers], expected)
            self.configure(rate, method, **options)
        n_slot = sum(pool.n_slot for pool in lies.pools)
        outcomes, before = [], (0, 0, 0)
        for n_prompt, stock in expected.items():
            logits = self.logits(n_prompt, len(stock) - n_prompt)
            assert logits.shape == stock.shape
            now = self.counts()
            found = [b - a for a, b in zip(before, now, strict=True)]
            n = n_different(logits, stock)
            outcomes.append(Outcome(rate, method, n_prompt, n_slot, lies.any_cut(), n, *found))
            before = now
        return outcomes

    def expected_when_cut(
        self, shares: Sequence[float], stock: dict[int, Logits]
    ) -> dict[int, Logits]:
        """Return the logits with these cuts if every part is resident, for the same prompts."""
        known = self._expected.setdefault(tuple(shares), {})
        self.setup(all_resident(self.shape, dict(enumerate(shares))))
        for n_prompt, logits in stock.items():
            if n_prompt not in known:
                known[n_prompt] = self.logits(n_prompt, len(logits) - n_prompt)
        return {n_prompt: known[n_prompt] for n_prompt in stock}

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self.patch = None
        self.cached.close()


def n_different(a: Logits, b: Logits) -> int:
    """Return the number of values that differ in a bit."""
    return int((a.view(np.uint32) != b.view(np.uint32)).sum())


def differences(
    path: Path,
    combinations: Sequence[tuple[float, str]],
    prompts: Sequence[int],
    n_thread: int,
    n_decode: int = N_DECODE,
) -> list[Outcome]:
    """Compare one model at several (rate, method). Return every outcome, equal or not."""
    file = read_model(path)
    expected = stock_logits(file, prompts, n_thread, n_decode)
    cached = Cached(file, n_thread)
    try:
        return [o for rate, method in combinations for o in cached.compare(rate, method, expected)]
    finally:
        cached.close()


@dataclass
class Tally:
    """Counts of many comparisons."""

    n_equal: int = 0
    n_requests: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, outcomes: Sequence[Outcome]) -> None:
        for o in outcomes:
            self.n_requests += o.hits + o.late + o.misses
            if o.n_different == 0:
                self.n_equal += 1
            else:
                self.failures.append(f"{name}: {o}")


def variants(architectures: Sequence[str]) -> list[tuple[str, dict[str, bool]]]:
    """Yield each architecture, and the variants of it that llama.cpp supports."""
    found: list[tuple[str, dict[str, bool]]] = []
    for arch in architectures:
        found.append((arch, {}))
        if arch in ("deepseek2", "qwen3next"):
            found.append((arch, {"fused": True}))
        if arch in ("gemma4", "cohere2moe"):
            found.append((arch, {"fused": False}))
        if arch in ("qwen3moe", "gpt-oss", "llama4"):
            found.append((arch, {"expert_scales": True}))
    return found


def main() -> int:
    """Compare every combination. Print a line for each model, and every difference."""
    from layer_outputs import errors_of_cuts  # it uses this module

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--architectures", nargs="+", default=CACHEABLE)
    parser.add_argument("--types", nargs="+", default=QUANTS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--prompts", nargs="+", type=int, default=PROMPTS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--methods", nargs="+", default=CACHED)
    arguments = parser.parse_args()
    combinations = [(r, m) for r in arguments.rates for m in arguments.methods]
    total, largest, began_s = Tally(), 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for n_thread in arguments.threads:
            for arch, sizes in variants(arguments.architectures):
                for quant in arguments.types:
                    width = {"n_ff_exp": 512 if quant == "Q4_K" else 128}  # wide enough to be cut
                    path = make_tiny(arch, quant, Path(folder) / "m.gguf", **sizes | width)
                    name = " ".join([arch, *sizes, quant, f"{n_thread} threads"])
                    before = total.n_equal
                    total.add(name, differences(path, combinations, arguments.prompts, n_thread))
                    n = len(combinations) * len(arguments.prompts)
                    print(f"{name}: {total.n_equal - before} of {n} equal", flush=True)
                    for share, error in errors_of_cuts(path).items():
                        largest = max(largest, error)
                        if error > MAX_CUT_ERROR:
                            total.failures.append(f"{name}: cut at {share}: {error}")
    print(f"largest relative error of a layer whose experts are cut: {largest:.2g}")
    for failure in total.failures:
        print("DIFFERENT", failure)
    n = total.n_equal + len(total.failures)
    minutes = (time.monotonic() - began_s) / 60
    print(f"{total.n_equal} of {n} equal, {total.n_requests} requests, {minutes:.0f} minutes")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
