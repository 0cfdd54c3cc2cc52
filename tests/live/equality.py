"""Compares a cached model with stock llama.cpp, bit by bit; also a program for the full product.

From the repository's root (it takes long; --help tells how to choose less):

    PYTHONPATH=tests python -m live.equality
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
from factory import ARCHITECTURES, QUANTS, make_tiny, tiny_vocabulary
from numpy.typing import NDArray

from backend import _native, llama, loading
from backend.engine import patch_options
from backend.gguf_file import ModelFile, read_model
from backend.methods import METHODS

Logits = NDArray[np.float32]

N_DECODE = 4
"""Tokens computed one by one after each prompt."""
N_UBATCH = 128
"""Prompts of 300 tokens take three passes."""
PROMPTS = (1, 2, 33, 300)
RATES = (0.0, 0.125, 0.25, 0.5, 1.0)


def random_tokens(n: int, seed: int = 1) -> list[int]:
    """Ids of ordinary tokens, no control tokens."""
    n_normal = len(tiny_vocabulary().tokens) - 3
    return [int(t) for t in np.random.default_rng(seed).integers(0, n_normal, n)]


class Runner:
    """A model in a context, with or without a patch, that gives logits of every position."""

    def __init__(self, model: Any, n_thread: int, patch: Any = None) -> None:
        self._patch = patch
        self._context = llama.Context(
            model,
            n_context=512,
            n_ubatch=N_UBATCH,
            n_thread=n_thread,
            callback=patch.callback if patch else None,
            user_data=patch.user_data if patch else None,
        )

    def logits(self, n_prompt: int, n_decode: int = N_DECODE) -> Logits:
        """Of a prompt of random tokens and some more, (n_prompt + n_decode, n_vocab)."""
        tokens = random_tokens(n_prompt + n_decode, seed=n_prompt)
        self._context.forget_from(0)
        steps = [range(i, min(i + N_UBATCH, n_prompt)) for i in range(0, n_prompt, N_UBATCH)]
        steps += [range(i, i + 1) for i in range(n_prompt, n_prompt + n_decode)]
        return np.concatenate([self._pass([tokens[i] for i in step], step[0]) for step in steps])

    def _pass(self, tokens: list[int], position: int) -> Logits:
        if self._patch is not None:
            phase = _native.Phase.prefill if len(tokens) > 1 else _native.Phase.decode
            self._patch.begin_pass(phase)
        assert self._context.decode(tokens, position, all_logits=True) == 0
        assert self._patch is None or self._patch.end_pass(), self._patch.error
        return self._context.logits(len(tokens))

    def close(self) -> None:
        self._context.close()


def stock_logits(
    file: ModelFile, prompts: Sequence[int], n_thread: int, n_decode: int = N_DECODE
) -> dict[int, Logits]:
    """By prompt length: what stock llama.cpp computes on the experts as they lie in the file."""
    model = loading.load_native(file)
    runner = Runner(model, n_thread)
    found = {n: runner.logits(n, n_decode) for n in prompts}
    runner.close()
    model.close()
    return found


@dataclass(frozen=True)
class Outcome:
    """One combination: the number of logits that differ, and what the cache had to do."""

    rate: float
    method: str
    n_prompt: int
    n_slot: int
    n_different: int
    hits: int
    late: int
    misses: int


class Cached:
    """A model with its experts in the file, whose logits can be compared with stock's."""

    def __init__(self, file: ModelFile, n_thread: int) -> None:
        self._n_thread = n_thread
        self.cached = loading.CachedModel(file, n_thread=n_thread)
        self.patch = self.cached.patch
        self.n_expert = self.patch.shape.n_expert
        self._runner: Runner | None = None

    def configure(self, rate: float, method: str) -> int:
        """Returns the slots of a layer. The context lives on, as in the engine."""
        n_slot: list[int] = _native.allocate_uniform(self.patch.shape, rate)
        options = patch_options(METHODS[method], n_thread=self._n_thread, max_token=N_UBATCH)
        self.patch.configure(n_slot, options)
        if self._runner is None:
            self._runner = Runner(self.cached.model, self._n_thread, self.patch)
        return n_slot[0]

    def compare(self, rate: float, method: str, expected: dict[int, Logits]) -> list[Outcome]:
        """One outcome for every prompt; the cache starts empty and stays warm between them."""
        n_slot = self.configure(rate, method)
        assert self._runner is not None
        outcomes, before = [], (0, 0, 0)
        for n_prompt, stock in expected.items():
            logits = self._runner.logits(n_prompt, len(stock) - n_prompt)
            assert logits.shape == stock.shape
            n_different = int((logits.view(np.uint32) != stock.view(np.uint32)).sum())
            counts = self.patch.counts()
            now = tuple(sum(getattr(c, n) for c in counts) for n in ("hits", "late", "misses"))
            found = [b - a for a, b in zip(before, now, strict=True)]
            outcomes.append(Outcome(rate, method, n_prompt, n_slot, n_different, *found))
            before = now
        return outcomes

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self.patch = None
        self.cached.close()


def differences(
    path: Path,
    combinations: Sequence[tuple[float, str]],
    prompts: Sequence[int],
    n_thread: int,
    n_decode: int = N_DECODE,
) -> list[Outcome]:
    """Compare one model at several (rate, method); every outcome, equal or not."""
    file = read_model(path)
    expected = stock_logits(file, prompts, n_thread, n_decode)
    cached = Cached(file, n_thread)
    try:
        return [o for rate, method in combinations for o in cached.compare(rate, method, expected)]
    finally:
        cached.close()


@dataclass
class Tally:
    """Of many comparisons."""

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
    """Each architecture as it is, and with what else llama.cpp knows of it."""
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
    """Compare every combination; print a line for each model, and every difference."""
    cacheable = [a for a in ARCHITECTURES if a not in ("dense", "grovemoe")]
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--architectures", nargs="+", default=cacheable)
    parser.add_argument("--types", nargs="+", default=QUANTS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--prompts", nargs="+", type=int, default=PROMPTS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    arguments = parser.parse_args()
    combinations = [(r, m) for r in arguments.rates for m in arguments.methods]
    total, began_s = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for n_thread in arguments.threads:
            for arch, sizes in variants(arguments.architectures):
                for quant in arguments.types:
                    path = make_tiny(arch, quant, Path(folder) / "m.gguf", **sizes)
                    name = " ".join([arch, *sizes, quant, f"{n_thread} threads"])
                    before = total.n_equal
                    total.add(name, differences(path, combinations, arguments.prompts, n_thread))
                    n = len(combinations) * len(arguments.prompts)
                    print(f"{name}: {total.n_equal - before} of {n} equal", flush=True)
    for failure in total.failures:
        print("DIFFERENT", failure)
    n = total.n_equal + len(total.failures)
    minutes = (time.monotonic() - began_s) / 60
    print(f"{total.n_equal} of {n} equal, {total.n_requests} requests, {minutes:.0f} minutes")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
