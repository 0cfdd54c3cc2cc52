"""Measure the gain of MoEpic's cache configurator over uniform layouts, in simulated time.

    python tests/benchmarks/moepic_gain.py TRACE [--model MODEL.gguf] --rates 0.06,0.17,0.33

The first half of the decoded tokens runs uniform with theta = 0.5 and fills the statistics. The
plan of Algorithm 1 is then compared with uniform layouts on the second half. The first half warms
up every layout. TRACE is a trace file or a CSV of routings. If it has no inputs, or no model is
given, the predictor is right with a set probability. TRACE may also be "even": 400 tokens of a
model of the sizes of Qwen1.5-MoE (as in the paper) whose routers choose all experts equally often.
With --layer-us and --expert-us the machine has the compute times of MoEpic's.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend import _native  # noqa: E402
from backend.gguf.model_file import ModelFile, read_model  # noqa: E402
from backend.machines import load  # noqa: E402
from backend.methods.compose import spec  # noqa: E402
from backend.methods.part import part  # noqa: E402
from backend.methods.slots import slots_of  # noqa: E402
from backend.simulation.model import routers, with_model  # noqa: E402
from backend.simulation.run import machine_for  # noqa: E402
from backend.traces.reading import read_trace  # noqa: E402
from backend.traces.trace import DECODE, Trace  # noqa: E402


@dataclass(frozen=True)
class Run:
    """One layout on the trace: means over the second half of the decoded tokens."""

    token_ms: float
    stall_ms: float
    hit_rate: float


class Bench:
    def __init__(self, trace: Trace, model: ModelFile | None, args: argparse.Namespace) -> None:
        self.trace, self.shape, self.future = trace, trace.shape(), trace.future()
        decoded = np.flatnonzero(trace.phases == DECODE)
        self.half = int(decoded[len(decoded) // 2])
        self.second = decoded[len(decoded) // 2 :]
        self.routers = routers(model, trace.layers) if model and trace.inputs is not None else []
        by_router = self.routers and trace.inputs is not None
        self.predictor = (
            part("next_router") if by_router else part("accuracy", accuracy=args.accuracy, seed=1)
        )
        self.eviction = args.eviction
        self.all_bytes = self.shape.n_expert * sum(
            self.shape.expert_bytes(i) for i in range(self.shape.n_layer)
        )

    def run(self, layout: Any, machine: Any, statistics: Any = None) -> Run:
        """Simulate from a cold cache. To fill statistics, simulate the first half only."""
        trace = self.trace if statistics is None else self.trace.passes(0, self.half)
        future = self.future if statistics is None else trace.future()
        composition = _native.Composition(
            predictor=spec(self.predictor),
            evictions=[_native.Spec(self.eviction)],
            prefill=_native.Spec("split_pipeline"),
            decode=_native.Spec("split_pipeline"),
        )
        core = _native.Core(
            self.shape, layout, composition, n_embd=trace.n_embd, routers=self.routers,
            future=future, statistics=statistics,
        )  # fmt: skip
        done = _native.simulate(
            core, future, machine,
            inputs=trace.inputs if core.wants_gate_input() else None,
            has_inputs=[] if trace.has_inputs is None else [bool(x) for x in trace.has_inputs],
        )  # fmt: skip
        if statistics is not None:
            return Run(0, 0, 0)
        hits, requests = np.array(done.pass_hits), np.array(done.pass_requests)
        return Run(
            float(np.array(done.pass_us)[self.second].mean() / 1e3),
            float(np.array(done.pass_stall_us)[self.second].mean() / 1e3),
            float(hits[self.second].sum() / max(1, requests[self.second].sum())),
        )

    def row(self, machine: Any, link_gb_per_s: float, rate: float) -> str:
        def uniform(theta: float) -> Any:
            n_slot = slots_of(rate, self.shape.n_expert)
            return _native.allocate(
                _native.Spec("uniform", {"top_share": theta}), self.shape, n_slot
            )

        times = _native.MoepicTimes(
            expert_us=machine.expert_us,
            layer_us=machine.dense_us,
            head_us=machine.pass_us,
            chunk_us=machine.link_latency_us / max(1, machine.n_link),
            byte_us=1 / machine.link_bytes_per_us,
            cut_us=machine.wave_us,
        )
        statistics = _native.MoepicStatistics(self.shape.n_layer, self.shape.n_expert)
        self.run(uniform(0.5), machine, statistics)
        began = time.perf_counter()
        found = _native.moepic_configure(statistics, self.shape, times, int(rate * self.all_bytes))
        took_ms = (time.perf_counter() - began) * 1e3
        half, whole = self.run(uniform(0.5), machine), self.run(uniform(1), machine)
        fitted = self.run(found.layout, machine)
        shares = sorted(set(found.top_share))
        cuts = ", ".join(f"{found.top_share.count(s)} x {s:.2f}" for s in shares)
        cells = [
            f"{link_gb_per_s:g}", f"{rate:.0%}",
            *(f"{r.token_ms:.2f} ({r.stall_ms:.2f})" for r in (half, whole, fitted)),
            f"{half.token_ms / fitted.token_ms:.2f}", f"{whole.token_ms / fitted.token_ms:.2f}",
            cuts, f"{min(found.n_slot)} to {max(found.n_slot)}", str(found.n_step),
            f"{took_ms:.0f}",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def even_trace() -> Trace:
    """Return a trace: 24 layers of 60 experts (8.65 M weights, 16 bits), any 4 per token."""
    n_token, n_layer, n_expert, n_used = 400, 24, 60, 4
    rng = np.random.default_rng(0)
    order = rng.random((n_token, n_layer, n_expert)).argsort(axis=2)
    return Trace(
        architecture="even",
        layers=tuple(range(n_layer)),
        n_expert=n_expert,
        n_expert_used=n_used,
        chunk_bytes=((5_767_168,) * 3,) * n_layer,
        phases=np.full(n_token, DECODE, np.uint8),
        requests=np.zeros(n_token, np.int32),
        n_token=np.ones(n_token, np.int32),
        n_routed=np.ones((n_token, n_layer), np.int32),
        tokens=np.full(n_token, -1, np.int32),
        ids=order[:, :, :n_used].astype(np.uint8),
    )


def with_times(machine: Any, layer_us: float | None, expert_us: float | None) -> Any:
    """Return the machine with other times to compute a layer and an expert."""
    if layer_us is None or expert_us is None:
        return machine
    return _native.Machine(
        link_bytes_per_us=machine.link_bytes_per_us,
        link_latency_us=machine.link_latency_us,
        n_link=machine.n_link,
        dense_us=layer_us,
        expert_us=expert_us,
        wave_us=machine.wave_us,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--model", type=Path, help="for its routers and sizes")
    parser.add_argument("--machine", default="rtx4090-pcie4x16", help="preset or file")
    parser.add_argument("--links", default="", help="GB/s in place of the machine's own")
    parser.add_argument("--rates", default="0.06,0.17,0.33")
    parser.add_argument("--n-cut", type=int, help="where the trace does not say")
    parser.add_argument("--accuracy", type=float, default=0.8)
    parser.add_argument("--eviction", default="lcp")
    parser.add_argument("--no-waves", action="store_true", help="launching kernels costs nothing")
    parser.add_argument("--layer-us", type=float, help="a layer without its experts")
    parser.add_argument("--expert-us", type=float)
    args = parser.parse_args()

    trace = even_trace() if str(args.trace) == "even" else read_trace(args.trace)
    if args.n_cut:
        trace = replace(trace, n_cut=(args.n_cut,) * trace.n_layer)
    model = read_model(args.model) if args.model else None
    if model:
        trace = with_model(args.trace, trace, model)
    bench = Bench(trace, model, args)
    hardware = load(args.machine)
    links = [float(x) for x in args.links.split(",") if x] or [hardware.link_gb_per_s]
    print(f"{args.trace.name}; {args.machine}; {bench.predictor}; {args.eviction}")
    print(
        "| link GB/s | rate | theta 0.5 | theta 1 | configured | gain over 0.5 "
        "| over 1 | theta | slots | steps | ms |"
    )
    print("|---" * 11 + "|")
    for link in links:
        changed = replace(hardware, link_gb_per_s=link)
        if args.no_waves:
            changed = replace(changed, step_us=0)
        machine = with_times(machine_for(trace, changed), args.layer_us, args.expert_us)
        for rate in (float(x) for x in args.rates.split(",")):
            print(bench.row(machine, link, rate), flush=True)


if __name__ == "__main__":
    main()
