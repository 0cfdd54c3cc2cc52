"""Measure what a moved cache-rate slider costs the next token, with the residents and without.

    PYTHONPATH=tests python -m factory large large.gguf
    python tests/benchmarks/moved_slider.py large.gguf --rounds 9

A conversation goes on after each change of the rate. Changes that keep the resident experts and
changes to an empty cache take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend.engine.engine import Engine  # noqa: E402  (the folder is known only now)
from backend.engine.expert_cache import ExpertCache  # noqa: E402
from backend.protocol.settings import EngineConfig, Sampling  # noqa: E402

N_TOKEN = 16
GREEDY = Sampling(temperature=0)
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
    text = "word " * args.words
    text += "".join(p.text for p in engine.generate_text(text, GREEDY, N_TOKEN))
    found = defaultdict(list)
    for number in range(args.rounds):
        for empty in (number % 2 == 0, number % 2 == 1):
            for rate in rates:
                figures, said = change(engine, rate, text, empty=empty)
                text += said
                found[rate, empty].append(figures)
    print("rate   cache  change ms  next token ms  16 tokens s  residents kept  MB read")
    for (rate, empty), rows in sorted(found.items()):
        medians = [statistics.median(row[i] for row in rows) for i in range(5)]
        change_s, next_s, all_s, kept, n_byte = medians
        name = "empty" if empty else "kept"
        print(
            f"{rate:<6} {name:<6} {change_s * 1e3:9.0f} {next_s * 1e3:14.0f}"
            f" {all_s:12.2f} {kept:15.2f} {n_byte / 1e6:8.0f}"
        )
    engine.close()


def change(engine: Engine, rate: float, text: str, *, empty: bool) -> tuple[tuple[float, ...], str]:
    """Change the rate and go on. Return the figures, and what was said."""
    before = residents(engine)
    setattr(ExpertCache, "build", lambda self, plan: BUILD(self, plan, empty=empty))
    began_s = time.perf_counter()
    engine.set_cache_rate(rate)
    changed_s = time.perf_counter()
    n_slot = engine.cache.n_slot * len(engine.residency()) // engine.model.n_expert
    kept = len(before & residents(engine)) / max(min(len(before), n_slot), 1)
    said, times_s = "", []
    for piece in engine.generate_text(text, GREEDY, N_TOKEN):
        said += piece.text
        times_s.append(time.perf_counter() - began_s)
    stats = engine.statistics()
    assert stats.n_prompt - stats.n_reused == 1, "the prompt was computed again"
    n_byte = float(stats.bytes_read)
    return (changed_s - began_s, times_s[0], times_s[-1], kept, n_byte), said


def residents(engine: Engine) -> set[int]:
    """Return the resident experts, as indexes into the map."""
    return {i for i, cell in enumerate(engine.residency()) if cell & 3 == 1}


if __name__ == "__main__":
    main()
