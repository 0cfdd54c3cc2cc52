"""Simulate how many requests a method needs after a change of task (MoE-Infinity, Table 3).

    python tests/benchmarks/task_change.py sums.trace wiki.trace --rates 0.17,0.33

Each trace has the requests of one task. A cache serves --before requests of one task and then
--after of the other. Its twin serves --before other requests of the second task and then the same
--after requests. The difference between the two is the price of the change, request by request. The
cache has recovered at the first request from which --window requests take at most --tolerance
longer than the twin's. Draws differ in the choice of requests and in their order.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend import _native  # noqa: E402
from backend.machines import load  # noqa: E402
from backend.methods.catalogue import METHODS  # noqa: E402
from backend.methods.compose import composition, layout  # noqa: E402
from backend.methods.slots import slots_of  # noqa: E402
from backend.simulation.model import with_model  # noqa: E402
from backend.simulation.run import machine_for  # noqa: E402
from backend.traces.reading import read_trace  # noqa: E402
from backend.traces.trace import DECODE, Trace, join  # noqa: E402


@dataclass(frozen=True)
class Requests:
    """For each request: milliseconds per decoded token, and the share of hits."""

    token_ms: Any
    hit_rate: Any


def answer(method: str, rate: float, machine: Any, requests: list[Trace], n_last: int) -> Requests:
    """Simulate the requests one after the other, from a cold cache. The last ones count."""
    trace = join(requests)
    shape, future = trace.shape(), trace.future()
    chosen = METHODS[method]
    core = _native.Core(
        shape,
        layout(chosen, shape, slots_of(rate, shape.n_expert)),
        composition(chosen, shape),
        future=future,
    )
    done = _native.simulate(core, future, machine, weights=trace.weights)
    us, hits = np.array(done.pass_us), np.array(done.pass_hits, float)
    asked = np.array(done.pass_requests, float)
    numbers = np.cumsum(np.r_[0, np.diff(trace.requests) != 0])
    token_ms, hit_rate = [], []
    for number in range(numbers[-1] + 1 - n_last, numbers[-1] + 1):
        mine = (numbers == number) & (trace.phases == DECODE)
        token_ms.append(us[mine].mean() / 1e3)
        hit_rate.append(hits[mine].sum() / asked[mine].sum())
    return Requests(np.array(token_ms), np.array(hit_rate))


def recovery(changed: Any, twin: Any, window: int, tolerance: float) -> int | None:
    """Return the requests until a window of them is as fast as the twin's, or None."""
    for n in range(len(changed) - window + 1):
        span = slice(n, n + window)
        if changed[span].mean() <= (1 + tolerance) * twin[span].mean():
            return n
    return None


def row(method: str, rate: float, first: Path, second: Path, args: argparse.Namespace) -> str:
    """Return the line of one method at one rate, from the first task to the second."""
    old = [r for r in read_trace(first).each_request() if (r.phases == DECODE).any()]
    new = [r for r in read_trace(second).each_request() if (r.phases == DECODE).any()]
    sized = with_model(first, old[0], args.file) if args.file else old[0]
    machine = machine_for(sized, load(args.machine))
    counts: list[int | None] = []
    changed_ms, twin_ms, changed_hits, twin_hits = [], [], [], []
    for seed in range(args.draws):
        rng = np.random.default_rng(seed)
        before = [old[i] for i in rng.permutation(len(old))[: args.before]]
        mixed = [new[i] for i in rng.permutation(len(new))]
        after, others = mixed[: args.after], mixed[args.after :][: args.before]
        changed = answer(method, rate, machine, before + after, args.after)
        twin = answer(method, rate, machine, others + after, args.after)
        counts.append(recovery(changed.token_ms, twin.token_ms, args.window, args.tolerance))
        changed_ms.append(changed.token_ms)
        twin_ms.append(twin.token_ms)
        changed_hits.append(changed.hit_rate)
        twin_hits.append(twin.hit_rate)
    known = [n for n in counts if n is not None]
    slower = np.mean(changed_ms, axis=0) / np.mean(twin_ms, axis=0) - 1
    lost = np.mean(twin_hits, axis=0) - np.mean(changed_hits, axis=0)
    found = f"{min(known)}-{np.mean(known):.1f}-{max(known)}" if known else "none"
    if len(known) < len(counts):
        found += f" ({len(counts) - len(known)} did not)"
    cells = [
        method, f"{rate:.0%}", f"{first.stem} to {second.stem}", found,
        f"{np.mean(twin_ms):.2f}", f"{slower[0]:+.1%}", f"{slower[1:6].mean():+.1%}",
        f"{slower[-10:].mean():+.1%}", f"{100 * lost[0]:.1f}", f"{100 * lost[1:6].mean():.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--model", type=Path, help="for its sizes")
    parser.add_argument("--methods", default="moe-infinity,lru")
    parser.add_argument("--rates", default="0.17,0.33")
    parser.add_argument("--machine", default="laptop-ssd", help="preset or file")
    parser.add_argument("--before", type=int, default=100)
    parser.add_argument("--after", type=int, default=50)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--tolerance", type=float, default=0.02)
    args = parser.parse_args()
    if args.model:
        from backend.gguf.model_file import read_model

        args.file = read_model(args.model)
    else:
        args.file = None
    print(
        "| method | rate | change | requests to recover, min-mean-max | ms a token | first request "
        "| next five | last ten | hits lost, first | next five |"
    )
    print("|---" * 10 + "|")
    for method in args.methods.split(","):
        for rate in (float(x) for x in args.rates.split(",")):
            for first, second in ((args.first, args.second), (args.second, args.first)):
                print(row(method, rate, first, second, args), flush=True)


if __name__ == "__main__":
    main()
