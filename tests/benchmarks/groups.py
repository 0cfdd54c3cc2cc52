"""Throughput of joint decoding against the number of sequences, for several methods.

    python tests/benchmarks/groups.py MODEL --rate 0.15 --methods klotski,lru --sequences 1,4,16,32

Each engine decodes the same tokens with each number of sequences, in turn; methods take turns, and
rounds repeat. A row is the median over the rounds: tokens per second, the milliseconds of a pass,
its waiting, and the share of the needed experts that was in memory.

    python tests/benchmarks/groups.py MODEL --streams --rate 1 --sequences 2,4,8,16 --prompt 128

compares an attention cache that all sequences share with one that gives each a stream, for prompts
of equal length, ragged ones (1/2 to 3/2 of it) and ones that share three quarters. Both engines are
open and decode in turn (A B B A). A row: the processor's milliseconds for the prompts and for a
decoding pass with the shared cache, and the streams' times divided by these (quartiles of pairs).
With one thread, the processor's time does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.engine.engine import Engine
from backend.engine.group_plan import plan_group
from backend.engine.scheduler import PassPlan
from backend.llama.row import Row
from backend.protocol.settings import EngineConfig


def decode(engine: Engine, n: int, n_prompt: int, n_step: int) -> tuple[float, float, float, float]:
    """Return tokens per second, seconds of a pass, its waiting, and the share of hits."""
    passes, context = engine.passes, engine.loaded.context
    passes.begin()
    engine.loaded.scheduler.clear()
    draw = np.random.default_rng(n)
    tokens = draw.integers(0, engine.loaded.llama.n_vocab, (n, n_prompt + n_step + 1))
    numbers = [engine.loaded.scheduler.next_number() for _ in range(n)]
    places = [(s, i) for i in range(n_prompt) for s in range(n)]
    for begin in range(0, len(places), context.n_ubatch):
        part = places[begin : begin + context.n_ubatch]
        rows = [Row(int(tokens[s, i]), i, s, i == n_prompt - 1) for s, i in part]
        rows[-1] = replace(rows[-1], has_logits=True)
        plan = PassPlan[Any](rows, numbers=[numbers[s] for s, _ in part], n_of_prompt=len(rows))
        passes.compute(plan, time.perf_counter())
    stall_s, hits, wanted = 0.0, 0, 0
    began_s = time.perf_counter()
    for step in range(n_prompt, n_prompt + n_step + 1):
        if step == n_prompt + 1:  # the first pass finds the cache as the prompts left it
            stall_s, hits, wanted, began_s = 0.0, 0, 0, time.perf_counter()
        rows = [Row(int(tokens[s, step]), step, s, True) for s in range(n)]
        passes.compute(PassPlan[Any](rows, numbers=numbers), time.perf_counter())
        cost = passes.meter.token
        stall_s += cost.stall_s
        hits += cost.hits
        wanted += cost.hits + cost.late + cost.misses
    took_s = time.perf_counter() - began_s
    return n * n_step / took_s, took_s / n_step, stall_s / n_step, hits / max(wanted, 1)


def compare_caches(path: Path, config: EngineConfig, sizes: list[int], args: Any) -> None:
    """Compare the two kinds of attention cache and print a table."""
    print("shape      n  prompts ms  streams  decode ms  streams (quartiles)")
    for n in sizes:
        n_cell = 256 * -(-(args.prompt * 3 // 2 + args.steps * args.rounds) // 256)
        sized = config.changed(n_sequence=n, context_length=n * n_cell)
        engines = [Engine.open(path, sized.changed(streams=s)) for s in (False, True)]
        for shape in ("equal", "ragged", "shared"):
            lengths = [args.prompt] * n
            if shape == "ragged":
                lengths = [args.prompt // 2 + args.prompt * s // (n - 1) for s in range(n)]
            n_shared = args.prompt * 3 // 4 if shape == "shared" else 0
            fill_s: list[list[float]] = [[], []]
            step_s: list[list[float]] = [[], []]
            for i in (0, 0, 1, 1, 0):  # the first one warms up
                fill_s[i].append(fill(engines[i], lengths, n_shared))
            for i in (0, 1, 1, 0) * args.rounds:
                step_s[i].append(step(engines[i], lengths, args.steps // 2, len(step_s[i])))
            fills = [min(times) for times in fill_s]
            ratios = [b / a for a, b in zip(*step_s, strict=True)][1:]
            low, middle, high = statistics.quantiles(ratios, n=4)
            step_ms = 1e3 * statistics.median(step_s[0])
            print(
                f"{shape:<8} {n:>3} {1e3 * fills[0]:>11.1f} {fills[1] / fills[0]:>8.2f} "
                f"{step_ms:>10.2f} {middle:>8.3f} ({low:.3f} {high:.3f})",
                flush=True,
            )
        for engine in engines:
            engine.close()


def fill(engine: Engine, lengths: list[int], n_shared: int) -> float:
    """Compute random prompts and return the processor's seconds."""
    passes, context, n = engine.passes, engine.loaded.context, len(lengths)
    passes.begin()
    engine.loaded.scheduler.clear()
    tokens = np.random.default_rng(n).integers(0, engine.loaded.llama.n_vocab, max(lengths) + n)
    began_s, n_done, is_shared = time.process_time(), 0, context.shares
    if n_shared and is_shared:
        _pieces(engine, [(0, range(n_shared))], tokens)
        for s in range(1, n):
            context.copy_sequence(0, s, n_shared)
        n_done = n_shared
    work = [(s, range(n_done, lengths[s])) for s in range(n)]
    if is_shared:
        _pieces(engine, work, tokens)
    elif len(set(lengths)) > 1:  # a pass of streams has equally many tokens of each
        for one in work:
            _pieces(engine, [one], tokens)
    else:
        n_each = max(context.n_ubatch // n, 1)
        for begin in range(0, lengths[0], n_each):
            part = range(begin, min(begin + n_each, lengths[0]))
            _pieces(engine, [(s, part) for s in range(n)], tokens)
    return time.process_time() - began_s


def _pieces(engine: Engine, work: list[tuple[int, range]], tokens: Any) -> None:
    """Compute positions of sequences, in as few passes as they need."""
    places = [(s, i) for s, part in work for i in part]
    n_step = engine.loaded.context.n_ubatch
    for begin in range(0, len(places), n_step):
        part = places[begin : begin + n_step]
        rows = [Row(int(tokens[i]), i, s, k == len(part) - 1) for k, (s, i) in enumerate(part)]
        numbers = [s for s, _ in part]
        plan = PassPlan[Any](rows, numbers=numbers, n_of_prompt=len(rows))
        engine.passes.compute(plan, time.perf_counter())


def step(engine: Engine, lengths: list[int], n_step: int, number: int) -> float:
    """Decode some tokens of every sequence. Return the seconds of a pass, of the processor."""
    n, n_vocab = len(lengths), engine.loaded.llama.n_vocab
    first = number * n_step
    tokens = np.random.default_rng(number).integers(0, n_vocab, (n_step, n))
    began_s = time.process_time()
    for i in range(n_step):
        rows = [Row(int(tokens[i, s]), lengths[s] + first + i, s, True) for s in range(n)]
        engine.passes.compute(PassPlan[Any](rows, numbers=range(n)), time.perf_counter())
    return (time.process_time() - began_s) / n_step


def planned_group(args: Any, n_cell: int, n_most: int) -> tuple[str, int]:
    """Return the method and number of sequences that the planner chooses, of at most n_most."""
    config = EngineConfig(
        cache_rate=args.rate,
        method=args.methods.split(",")[0],
        device="cpu",
        n_thread=args.threads,
    )
    engine = Engine.open(args.model, config)
    try:
        plan = plan_group(engine, 0, n_cell, n_most)
    finally:
        engine.close()
    print(plan.sentence)
    if plan.times is not None:
        speeds = ", ".join(f"{n}: {plan.times.speed(n):.1f}" for n in (1, 4, 16, n_most))
        print(f"Predicted token/s of the MoE layers: {speeds}")
    return plan.config.method, plan.n


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
    parser.add_argument("--streams", action="store_true", help="compare kinds of attention cache")
    parser.add_argument("--plan", action="store_true", help="also with the planner's number")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    sizes = [int(n) for n in args.sequences.split(",")]
    if args.streams:
        method = args.methods.split(",")[0]
        config = EngineConfig(
            cache_rate=args.rate, method=method, device="cpu", n_thread=args.threads
        )
        compare_caches(args.model, config, sizes, args)
        return 0
    n_cell = args.prompt + args.steps + 2
    methods = args.methods.split(",")
    if args.plan:
        planned = planned_group(args, n_cell, max(sizes))
        methods = [*dict.fromkeys([*methods, planned[0]])]
        sizes = sorted({*sizes, planned[1]})
    found: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for _ in range(args.rounds):
        for method in methods:
            config = EngineConfig.of(
                cache_rate=args.rate,
                method=method,
                device="cpu",
                n_thread=args.threads,
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
    if args.plan:
        speeds = {(method, n): speed for method, n, speed, *_ in table}
        best = max(speeds, key=lambda one: speeds[one])
        share = speeds[planned] / speeds[best]
        print(f"planned {planned}, best {best}; the planned one has {share:.3f} of its speed")
    print(json.dumps({"model": args.model.name, "rate": args.rate, "rows": table}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
