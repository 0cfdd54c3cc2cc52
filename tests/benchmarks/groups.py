"""Throughput of joint decoding against the number of sequences, for several methods.

    python tests/benchmarks/groups.py MODEL --rate 0.15 --methods klotski,lru --sequences 1,4,16,32

Each engine decodes the same tokens with each number of sequences, in turn; methods take turns, and
rounds repeat. A row is the median over the rounds: tokens per second, the milliseconds of a pass,
its waiting, and the share of the needed experts that was in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from backend.engine.engine import Engine
from backend.llama.api import Row
from backend.protocol.settings import EngineConfig


def decode(engine: Engine, n: int, n_prompt: int, n_step: int) -> tuple[float, float, float, float]:
    """Return tokens per second, seconds of a pass, its waiting, and the share of hits."""
    passes, context = engine.passes, engine.loaded.context
    passes.begin()
    passes.forget_all()
    draw = np.random.default_rng(n)
    tokens = draw.integers(0, engine.loaded.llama.n_vocab, (n, n_prompt + n_step + 1))
    numbers = [passes.next_sequence() for _ in range(n)]
    places = [(s, i) for i in range(n_prompt) for s in range(n)]
    for begin in range(0, len(places), context.n_ubatch):
        part = places[begin : begin + context.n_ubatch]
        rows = [Row(int(tokens[s, i]), i, s, i == n_prompt - 1) for s, i in part]
        rows[-1] = replace(rows[-1], has_logits=True)
        passes.compute_rows(
            rows, [numbers[s] for s, _ in part], time.perf_counter(), is_token=False
        )
    stall_s, hits, wanted = 0.0, 0, 0
    began_s = time.perf_counter()
    for step in range(n_prompt, n_prompt + n_step + 1):
        if step == n_prompt + 1:  # the first pass finds the cache as the prompts left it
            stall_s, hits, wanted, began_s = 0.0, 0, 0, time.perf_counter()
        rows = [Row(int(tokens[s, step]), step, s, True) for s in range(n)]
        passes.compute_rows(rows, numbers, time.perf_counter(), is_token=True)
        cost = passes.meter.token
        stall_s += cost.stall_s
        hits += cost.hits
        wanted += cost.hits + cost.late + cost.misses
    took_s = time.perf_counter() - began_s
    return n * n_step / took_s, took_s / n_step, stall_s / n_step, hits / max(wanted, 1)


def main() -> int:
    """Measure and print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=float, default=0.15)
    parser.add_argument("--methods", default="klotski,lru,lru-overlapped,promoe,outrider")
    parser.add_argument("--sequences", default="1,2,4,8,16,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompt", type=int, default=8)
    args = parser.parse_args()
    sizes = [int(n) for n in args.sequences.split(",")]
    n_cell = args.prompt + args.steps + 2
    found: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for _ in range(args.rounds):
        for method in args.methods.split(","):
            config = EngineConfig(
                cache_rate=args.rate,
                method=method,
                device="cpu",
                n_sequence=max(sizes),
                context_length=max(sizes) * n_cell,
            )
            engine = Engine.open(args.model, config)
            for n in sizes:
                result = decode(engine, n, args.prompt, args.steps)
                found.setdefault((method, n), []).append(result)
            engine.close()
    print(f"{'method':<16} {'n':>4} {'token/s':>8} {'ms/pass':>8} {'stall':>8} {'hits':>6}")
    table = []
    for (method, n), results in found.items():
        speed, pass_s, stall_s, hits = (statistics.median(column) for column in zip(*results))
        table.append([method, n, speed, pass_s, stall_s, hits])
        print(
            f"{method:<16} {n:>4} {speed:>8.1f} {1e3 * pass_s:>8.1f} {1e3 * stall_s:>8.1f} "
            f"{hits:>6.2f}"
        )
    print(json.dumps({"model": args.model.name, "rate": args.rate, "rows": table}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
