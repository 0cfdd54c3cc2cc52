"""Measure what a slider moved within an answer costs, with the residents and without.

    PYTHONPATH=tests python -m factory large large.gguf
    python tests/benchmarks/moved_slider.py large.gguf --words 860 --rounds 9

One answer goes on after each change of the cache rate. Changes that keep the resident experts and
changes to an empty cache take turns. "before" is the time of a token before a change.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend.engine.engine import Engine, Piece  # noqa: E402  (the folder is known only now)
from backend.engine.expert_cache import ExpertCache  # noqa: E402
from backend.protocol.request import Request  # noqa: E402
from backend.protocol.settings import EngineConfig, Sampling  # noqa: E402

N_TOKEN = 16
GREEDY = Sampling(temperature=0, ignore_eos=True)
BUILD = ExpertCache.build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--method", default="outrider")
    parser.add_argument("--rates", default="0.3,0.386")
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    rates = [float(rate) for rate in args.rates.split(",")]
    config = EngineConfig(cache_rate=rates[-1], method=args.method, context_length=4096, n_thread=2)
    engine = Engine.open(args.model, config)
    turns = [(number % 2 == 0, number % 2 == 1) for number in range(args.rounds)]
    changes = [(rate, empty) for turn in turns for empty in turn for rate in rates]
    n_token = N_TOKEN * (len(changes) + 1)
    answer = engine.answer(Request(None, GREEDY, n_token, prompt="word " * args.words))
    after(answer)
    found = defaultdict(list)
    for rate, empty in changes:
        found[rate, empty].append(change(engine, rate, answer, empty=empty))
    stats = engine.statistics()
    print(f"{stats.n_prompt} tokens of the prompt, {stats.n_token} of one answer")
    print("rate   cache  change ms  next token ms  before ms  16 tokens s  residents kept  MB read")
    for (rate, empty), rows in sorted(found.items()):
        medians = [statistics.median(row[i] for row in rows) for i in range(6)]
        change_s, next_s, before_s, all_s, kept, n_byte = medians
        name = "empty" if empty else "kept"
        print(
            f"{rate:<6} {name:<6} {change_s * 1e3:9.0f} {next_s * 1e3:14.0f} {before_s * 1e3:10.0f}"
            f" {all_s:12.2f} {kept:15.2f} {n_byte / 1e6:8.0f}"
        )
    engine.close()


def after(answer: Iterator[Piece]) -> list[float]:
    """Return the seconds until each of the next tokens."""
    began_s = time.perf_counter()
    return [time.perf_counter() - began_s for _ in itertools.islice(answer, N_TOKEN)]


def change(
    engine: Engine, rate: float, answer: Iterator[Piece], *, empty: bool
) -> tuple[float, ...]:
    """Change the rate within the answer and go on. Return the figures."""
    before, read_bytes = residents(engine), engine.statistics().bytes_read
    before_s = engine.passes.meter.token.wall_s
    setattr(ExpertCache, "build", lambda self, plan: BUILD(self, plan, empty=empty))
    began_s = time.perf_counter()
    is_changed = engine.change_now(engine.loaded.config.decided(cache_rate=rate))
    change_s = time.perf_counter() - began_s
    assert is_changed, "the rate does not change the cache only"
    n_slot = engine.cache.n_slot * len(engine.residency()) // engine.model.n_expert
    kept = len(before & residents(engine)) / max(min(len(before), n_slot), 1)
    times_s = after(answer)
    n_byte = float(engine.statistics().bytes_read - read_bytes)
    return change_s, change_s + times_s[0], before_s, change_s + times_s[-1], kept, n_byte


def residents(engine: Engine) -> set[int]:
    """Return the resident experts, as indexes into the map."""
    return {i for i, cell in enumerate(engine.residency()) if cell & 3 == 1}


if __name__ == "__main__":
    main()
