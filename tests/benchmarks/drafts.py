"""Speed of decoding with drafts against without, on text that repeats itself and on other text.

    python tests/benchmarks/drafts.py MODEL --rate 0.25 --rounds 5 --tokens 96

Two engines take turns with the same prompts. The repeating text is a greedy answer to a prompt of
one sentence again and again: models with random weights fall into loops by themselves. The other
text is sampled at temperature 1 from all tokens. A row is the median over the rounds: tokens per
second of decoding without and with drafts, the median of the rounds' ratios (with the second and
the last but one), the same of tokens per second of processor time, the right ones of the guessed
tokens, and the answers whose tokens are those without drafts.

The model's own layer for multi-token prediction guesses, too, if it has one. Random weights cannot
guess, so --accept 0.8 replaces these guesses: each is right with this chance. What is computed for
them stays the same. A chained model (--chain of the factory) writes a "greedy" text that repeats
nothing and does not depend on rounding.

    python tests/benchmarks/drafts.py MODEL --back 200 --sequences 4

writes an answer of 200 forced tokens, goes back and writes it again: at once, after another chat,
and after a restart. Prints how many of the layer's guesses are equal to those before, and the bytes
of its part of the kept states.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.engine import prediction_layer
from backend.engine.drafts import Width
from backend.engine.engine import Engine
from backend.engine.open_answer import OpenAnswer
from backend.engine.prediction_layer import PredictionLayer
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling

SENTENCE = "The cat saw the dog by the tree, and the dog saw the bird on the wall. "


class Forced:
    """Computes what a drafter computes, and guesses right with a given chance.

    right: the tokens of the text that is to come.
    """

    def __init__(self, drafter: PredictionLayer, accept: float) -> None:
        self.right: list[int] = []
        self._drafter, self._accept, self._chance = drafter, accept, random.Random(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def guess(self, tokens: Sequence[int], n_most: int, _least: float, *rest: Any) -> list[int]:
        """Return as many guesses as the drafter makes, at most n_most."""
        n = len(self._drafter.guess(tokens, n_most, 0.0, *rest))
        following = self.right[len(tokens) : len(tokens) + n]
        return [t if self._chance.random() < self._accept else t + 1 for t in following]


def go_back(path: Path, config: EngineConfig, n: int) -> None:
    """Print how many of the layer's guesses are equal after each way of going back."""
    found: dict[int, list[int]] = {}
    n_bytes: list[int] = []
    guess, state = PredictionLayer.guess, PredictionLayer.state
    prediction_layer._N_WRONG = 1 << 30  # random weights guess wrong each time

    def watched(layer: PredictionLayer, tokens: list[int], *_: Any) -> list[int]:
        guessed = guess(layer, tokens, 1, 0.0, lambda: False)
        found.setdefault(len(tokens), guessed)
        return guessed

    def measured(*args: Any) -> bytearray:
        n_bytes.append(len(of_layer := state(*args)))
        return of_layer

    PredictionLayer.guess, PredictionLayer.state = watched, measured  # type: ignore[method-assign]
    Width.choose = lambda width, _: width.n_most  # type: ignore[method-assign]
    Width.cost = lambda *_: 0.0  # type: ignore[method-assign]

    def said(engine: Engine, seed: int, prompt: str, owner: str) -> dict[int, list[int]]:
        chosen = random.Random(seed)
        tokens = [chosen.randrange(3, 200) for _ in range(2 * n)]
        sample = iter(tokens)
        OpenAnswer.sample = lambda *_: next(sample)  # type: ignore[method-assign]
        found.clear()
        messages = [{"role": "user", "content": prompt}]
        asked = Request(None, Sampling(temperature=0), n, messages, owner=owner)
        list(engine.answer(asked))
        while engine.keep():
            pass
        return dict(found)

    with tempfile.TemporaryDirectory() as folder:

        def opened() -> Engine:
            engine = Engine.open(path, config)
            engine.keep_in(Path(folder))
            while engine.keep():
                pass
            return engine

        def compare(way: str) -> None:
            again = said(engine, 1, SENTENCE * 8, "a")
            n_equal = sum(first[place] == again.get(place) for place in first)
            stats = engine.statistics()
            print(f"{way:14} {n_equal} of {len(first)}, {stats.n_prompt - stats.n_reused} read")

        engine = opened()
        first = said(engine, 1, SENTENCE * 8, "a")
        said(engine, 2, SENTENCE * 8, "a")
        compare("going back")
        said(engine, 3, "Another chat. " * 20, "b")
        compare("another chat")
        n_token = len(engine.passes.tokens)
        engine.close()
        engine = opened()
        compare("restart")
        engine.close()
    print(f"layer's part: {max(n_bytes)} bytes in a piece, the chat has {n_token} tokens")


def main() -> int:
    """Measure and print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--method", default="promoe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--texts", default="repeating,other")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="1: processor time has no waiting of threads for each other",
    )
    parser.add_argument("--sequences", type=int, default=1, help="answers that may run at once")
    parser.add_argument("--accept", type=float, help="force this share of right guesses")
    parser.add_argument("--back", type=int, default=0, help="tokens of an answer to go back from")
    args = parser.parse_args()
    if args.back:
        of_layer = EngineConfig.of(
            cache_rate=args.rate,
            device="cpu",
            context_length=2048,
            drafts="auto",
            n_thread=args.threads,
            n_sequence=args.sequences,
        )
        go_back(args.model, of_layer, args.back)
        return 0
    engines = {}
    for drafts in ("off", "auto"):
        config = EngineConfig.of(
            cache_rate=args.rate,
            method=args.method,
            device="cpu",
            context_length=1024,
            drafts=drafts,
            n_thread=args.threads,
            n_sequence=args.sequences,
        )
        engines[drafts] = Engine.open(args.model, config)
    weights, forced = engines["auto"].loaded.weights, None
    if args.accept is not None and weights.draft is not None:
        weights.draft = forced = Forced(weights.draft, args.accept)  # type: ignore[assignment]
    table = []
    for text in args.texts.split(","):
        speeds: dict[str, list[float]] = {"off": [], "auto": []}
        works: dict[str, list[float]] = {"off": [], "auto": []}
        n_drafted = n_accepted = n_equal = 0
        for i in range(-1, args.rounds):  # round -1 warms up
            tokens = {}
            # Forced guesses need the answer without drafts first.
            for drafts in ("off", "auto") if i % 2 or forced else ("auto", "off"):
                engine = engines[drafts]
                engine.forget()
                if text == "repeating":
                    prompt, sampling = SENTENCE * (4 + i), Sampling(temperature=0)
                elif text == "greedy":
                    prompt, sampling = f"One day {i}", Sampling(temperature=0)
                else:
                    prompt = f"Story {i}. One day"
                    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=100 + i)
                began_s = time.process_time()
                answer = engine.answer(Request(None, sampling, args.tokens, prompt=prompt))
                tokens[drafts] = [piece.token_id for piece in answer]
                work_s = time.process_time() - began_s
                if forced is not None and drafts == "off":
                    n_prompt = engine.statistics().n_prompt
                    forced.right = engine.passes.tokens[:n_prompt] + tokens[drafts]
                stats = engine.statistics()
                if i >= 0:
                    speeds[drafts].append(stats.tokens_per_s)
                    works[drafts].append(stats.n_token / work_s)
                    n_drafted += stats.n_drafted
                    n_accepted += stats.n_accepted
            n_equal += i >= 0 and tokens["off"] == tokens["auto"]
        wall, work = (
            sorted(b / a for a, b in zip(*of.values(), strict=True)) for of in (speeds, works)
        )
        ratio, ratio_of_work = statistics.median(wall), statistics.median(work)
        off, auto = map(statistics.median, speeds.values())
        print(
            f"{text:<10} off {off:7.2f} auto {auto:7.2f} token/s, ratio {ratio:.3f} "
            f"({wall[min(1, len(wall) - 1)]:.2f} to {wall[max(-2, -len(wall))]:.2f}), by processor "
            f"time {ratio_of_work:.3f} ({work[min(1, len(work) - 1)]:.2f} to "
            f"{work[max(-2, -len(work))]:.2f}), right {n_accepted} of {n_drafted}, equal answers "
            f"{n_equal} of {args.rounds}",
            flush=True,
        )
        table.append([text, off, auto, ratio, ratio_of_work, n_accepted, n_drafted, n_equal])
    for engine in engines.values():
        engine.close()
    print(json.dumps({"model": args.model.name, "rate": args.rate, "rows": table}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
