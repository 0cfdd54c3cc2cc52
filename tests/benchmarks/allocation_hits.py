"""Hit rates of allocations without prediction, on the second half of a trace's decoded tokens.

    python tests/benchmarks/allocation_hits.py TRACE --rates 0.06,0.17,0.33,0.5

by_reuse takes its statistics from the first half, by which all caches are warmed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend import _native  # noqa: E402
from backend.trace import DECODE, Trace, read_trace  # noqa: E402


def hit_rate(trace: Trace, future: Any, layout: Any, eviction: str, counted: Any) -> float:
    """Share of hits in the passes `counted`, of a reactive cache from a cold start."""
    reactive = _native.Spec("reactive")
    parts = _native.Composition(
        evictions=[_native.Spec(eviction)], prefill=reactive, decode=reactive
    )
    core = _native.Core(trace.shape(), layout, parts, future=future)
    done = _native.simulate(core, future, _native.Machine(), weights=trace.weights)
    hits, requests = np.array(done.pass_hits), np.array(done.pass_requests)
    return float(hits[counted].sum() / requests[counted].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rates", default="0.06,0.17,0.33,0.5")
    parser.add_argument("--evictions", default="lru,lcp,belady")
    args = parser.parse_args()
    trace = read_trace(args.trace)
    shape, future = trace.shape(), trace.future()
    decoded = np.flatnonzero(trace.phases == DECODE)
    half = int(decoded[len(decoded) // 2])
    statistics = _native.MoepicStatistics(shape.n_layer, shape.n_expert)
    for i in range(half):
        for layer in range(shape.n_layer):
            ids = trace.ids[trace.rows(i, layer), layer]
            statistics.routed(layer, ids.ravel().tolist(), len(ids))
    print("| eviction | rate | uniform | by reuse | one pool |\n|---|---|---|---|---|")
    for eviction in args.evictions.split(","):
        for rate in (float(x) for x in args.rates.split(",")):
            cells = []
            for name in ("uniform", "by_reuse", "one_pool"):
                arrays = {"reuse": statistics.reuse()} if name == "by_reuse" else {}
                layout = _native.allocate(_native.Spec(name, {}, arrays), shape, rate)
                share = hit_rate(trace, future, layout, eviction, decoded[len(decoded) // 2 :])
                cells.append(f"{share:.1%}")
            print(f"| {eviction} | {rate:.0%} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
