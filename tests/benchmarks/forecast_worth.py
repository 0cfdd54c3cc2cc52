"""Show what forecasts are worth at each cache rate: a table for docs/log/bench.md.

    PYTHONPATH=. python tests/benchmarks/forecast_worth.py ROUTES.csv [--lookahead 2] [--packed]

ROUTES.csv is a recorded routing (docs/simulator.md names one). Every fourth layer of it is a model
of the size that `factory large` makes, on a machine like the one of docs/benchmarks.md: two cores,
which compute and copy. The predictor is a stand-in that is right with a set probability. From a
pack an expert's needed matrices are one read; from the model each begins and ends within a block.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from backend import _native
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout, predictor_of, with_accuracy
from backend.methods.slots import slots_of
from backend.methods.tuner import Tuner
from backend.simulation.run import cost_of
from backend.traces.csv_reader import read_csv
from backend.traces.trace import Trace

LINK_BYTES_PER_US = 2200.0
JOINED_BYTES, BLOCK_BYTES = 4e6, 4096
DENSE_US, EXPERT_US = 800.0, 90.0
"""Microseconds of a layer without its experts, and of an expert, both measured live."""


@dataclass(frozen=True)
class Figures:
    """A run's decoded tokens."""

    tokens_per_s: float
    of_bound: float
    """max(compute alone, useful bytes / bandwidth) of each token, over its time."""
    idle: float
    """Share of the time in which no copy was in flight although an expert was missing."""
    wasted: float
    """Share of the bytes."""


def every(trace: Trace, step: int, first: int = 0) -> Trace:
    """Return the trace of a model that has every `step`-th layer only, from `first` on."""
    of = slice(first, None, step)
    return replace(
        trace,
        layers=trace.layers[of],
        chunk_bytes=trace.chunk_bytes[of],
        n_routed=np.ascontiguousarray(trace.n_routed[:, of]),
        ids=np.ascontiguousarray(trace.ids[:, of]),
        weights=None if trace.weights is None else np.ascontiguousarray(trace.weights[:, of]),
    )


def measure(
    trace: Trace,
    name: str,
    rate: float,
    accuracy: float,
    *,
    lookahead: int = 1,
    slows: float = 0.0,
    seed: int = 1,
    link: float = LINK_BYTES_PER_US,
    packed: bool = False,
) -> Figures:
    """Decode the trace with a method, from a cold cache."""
    method = METHODS[name]
    if method.predictor is not None:
        method = with_accuracy(method, accuracy, seed, lookahead)
    shape, future = trace.shape(), trace.future()
    n_slot = slots_of(rate, shape.n_expert)
    core = _native.Core(
        shape, layout(method, shape, n_slot), composition(method, shape), future=future
    )
    mean_bytes = float(np.mean([n for chunks in shape.chunk_bytes for n in chunks]))
    machine = _native.Machine(
        link_bytes_per_us=link if packed else link * mean_bytes / (mean_bytes + BLOCK_BYTES),
        link_latency_us=100.0,
        n_link=4,
        dense_us=DENSE_US,
        dense_token_us=DENSE_US / 4,
        expert_us=EXPERT_US,
        expert_token_us=EXPERT_US / 4,
        wave_us=20.0,
        copy_slows=slows,
        joined_bytes=JOINED_BYTES if packed else 0.0,
    )
    alone_us = shape.n_layer * (DENSE_US + trace.n_expert_used * EXPERT_US + machine.wave_us)
    tuner = Tuner(method, shape, predicts=predictor_of(method) is not None)
    tuner.attach(core, n_slot)
    least_us: list[float] = []
    sums = np.zeros(5)

    def after_pass(done: _native.SimulatedPass) -> None:
        times, counts = done.times, done.counts
        if done.phase != _native.Phase.decode:
            return
        least_us.append(max(alone_us, counts.bytes_useful / link))
        sums[:] += (
            times.time_us, times.link_idle_us, counts.bytes_read, counts.bytes_wasted, 1
        )  # fmt: skip
        if tuner.observes:
            tuner.observe(cost_of(done), times.wave_us / 1e6)

    _native.simulate(core, future, machine, weights=trace.weights, after_pass=after_pass)
    time_us, idle_us, n_read, n_wasted, n_token = sums
    return Figures(
        1e6 * n_token / time_us, sum(least_us) / time_us, idle_us / time_us, n_wasted / n_read
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("routes", type=Path)
    parser.add_argument("--methods", default="outrider,auto")
    parser.add_argument("--rates", default="0.125,0.21,0.25,0.5,0.75")
    parser.add_argument("--accuracies", default="0.5,0.7,0.8,0.886,1")
    parser.add_argument("--lookahead", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4, help="take every N-th layer")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="of these layers")
    parser.add_argument("--slows", type=float, default=0.0, help="Machine.copy_slows")
    args = parser.parse_args()
    trace = every(read_csv(args.routes), args.layers, args.first)
    methods = args.methods.split(",")
    print(f"| rate | right | lru | {' | '.join(methods)} |")
    print("|---" * (3 + len(methods)) + "|")
    for rate in map(float, args.rates.split(",")):
        given = {"lookahead": args.lookahead, "slows": args.slows, "packed": args.packed}
        lru = measure(trace, "lru", rate, 1.0, **given)
        for accuracy in map(float, args.accuracies.split(",")):
            cells = [f"{lru.tokens_per_s:.1f} {lru.of_bound:.2f} {lru.idle:.0%}"]
            for name in methods:
                f = measure(trace, name, rate, accuracy, **given)
                cells.append(
                    f"{f.tokens_per_s / lru.tokens_per_s:.2f}, {f.of_bound:.2f}, "
                    f"{f.idle:.0%}, {f.wasted:.0%}"
                )
            print(f"| {rate:g} | {accuracy:.1%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
