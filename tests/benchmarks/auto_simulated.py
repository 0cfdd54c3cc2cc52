"""Compare the adaptive method with fixed ones on a trace, in simulated time.

    python tests/benchmarks/auto_simulated.py TRACE --machines laptop-ssd --rates 0.17,0.33

TRACE is a trace file or a CSV of routings. Passes are simulated one by one, so that settings can
change between two passes; fixed settings go through the same steps. For a trace without inputs, the
predictor is right with a set probability. The first pass of each request is the prompt.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend import _native  # noqa: E402
from backend.machines import load  # noqa: E402
from backend.methods.auto import Auto, Setting  # noqa: E402
from backend.methods.auto_work import WorkMeter  # noqa: E402
from backend.methods.catalogue import METHODS  # noqa: E402
from backend.methods.compose import composition, layout  # noqa: E402
from backend.methods.cost import PassCost  # noqa: E402
from backend.methods.part import part  # noqa: E402
from backend.methods.slots import slots_of  # noqa: E402
from backend.simulation.run import machine_for  # noqa: E402
from backend.traces.trace import DECODE, Trace  # noqa: E402

COUNTERS = (
    "bytes_read", "bytes_useful", "bytes_wasted", "prefetches_useful", "prefetches_wasted",
    "hits", "late", "misses",
)  # fmt: skip


def read(path: Path) -> Trace:
    """Read a trace file or a CSV of routings."""
    if path.suffix == ".csv":
        from backend.traces.csv_reader import read_csv

        return read_csv(path)
    return Trace.read(path)


def add_pass(trace: Trace, i: int, future: Any) -> None:
    """Append a pass of the trace."""
    rows = slice(int(trace.begins[i]), int(trace.begins[i + 1]))
    future.append(
        phase=_native.Phase.decode if trace.phases[i] == DECODE else _native.Phase.prefill,
        tokens=[],
        begins_request=i == 0 or bool(trace.requests[i] != trace.requests[i - 1]),
        ids=np.ascontiguousarray(trace.ids[rows].transpose(1, 0, 2), np.int32),
        n_routed=trace.n_routed[i].tolist(),
    )


class World:
    """A trace on a machine at a cache rate, with a predictor of a set accuracy."""

    def __init__(
        self,
        trace: Trace,
        machine: Any,
        rate: float,
        accuracy: float,
        evictions: list[str],
        repeat: int,
    ) -> None:
        self.trace, self.machine, self.rate, self.accuracy = trace, machine, rate, accuracy
        self.evictions = evictions
        self.future = _native.Future()
        self.passes: list[tuple[bool, Any]] = []  # (decodes, the pass by itself)
        for i in [*range(trace.n_pass)] * repeat:
            one = _native.Future()
            for future in (self.future, one):
                add_pass(trace, i, future)
            self.passes.append((bool(trace.phases[i] == DECODE), one))

    def core(self) -> Any:
        """Return a cold core of the adaptive method's parts."""
        method = replace(
            METHODS["lru-overlapped"],
            weighs=True,
            predictor=part("accuracy", accuracy=self.accuracy, seed=1),
            evictions=tuple(part(e) for e in self.evictions),
        )
        shape = self.trace.shape()
        return _native.Core(
            shape,
            layout(method, shape, slots_of(self.rate, shape.n_expert)),
            composition(method, shape),
            future=self.future,
        )

    def run(self, fixed: Setting | None) -> tuple[np.ndarray, Auto]:
        """Return the microseconds of every decoded token, with one setting or with `auto`."""
        auto = Auto(self.evictions, max_depth=1)
        core = self.core()
        shape = self.trace.shape()
        n_slot = layout(METHODS["lru"], shape, slots_of(self.rate, shape.n_expert)).pools[0].n_slot
        work = WorkMeter(shape.n_layer, shape.n_expert, n_slot)
        times: list[float] = []

        def tune(setting: Setting) -> None:
            core.tune(
                _native.Tuning(
                    setting.prefetch,
                    setting.depth,
                    _native.Tuning().copy_cost,
                    self.evictions.index(setting.eviction),
                )
            )

        tune(fixed or auto.setting)
        for decodes, one in self.passes:
            done = _native.simulate(core, one, self.machine)
            missed = work.count(core.snapshot())
            if not decodes:
                continue
            cost = done.decode
            times.append(cost.time_us)
            counts = {name: int(getattr(done, name).sum()) for name in COUNTERS}
            window = PassCost(
                cost.n_token,
                cost.time_us / 1e6,
                cost.compute_us / 1e6,
                cost.stall_us / 1e6,
                cost.link_busy_us / 1e6,
                work=missed,
                **counts,
            )
            if fixed is None and (decision := auto.observe(window)):
                tune(decision.setting)
        return np.array(times), auto


def main() -> None:
    """Print the speed of each setting and of auto, relative to the best fixed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--machines", default="laptop-ssd")
    parser.add_argument("--rates", default="0.17,0.33,0.5")
    parser.add_argument("--accuracies", default="0.3,0.6,0.9")
    parser.add_argument("--evictions", default="lru")
    parser.add_argument("--repeat", type=int, default=1, help="times that the trace is played")
    parser.add_argument("--lines", action="store_true", help="print the decisions too")
    args = parser.parse_args()
    trace = read(args.trace)
    evictions = args.evictions.split(",")
    settings = [
        Setting(prefetch, 1, eviction) for prefetch in (False, True) for eviction in evictions
    ]
    for name in args.machines.split(","):
        machine = machine_for(trace, load(name))
        for rate in map(float, args.rates.split(",")):
            for accuracy in map(float, args.accuracies.split(",")):
                world = World(trace, machine, rate, accuracy, evictions, args.repeat)
                times = {s: world.run(s)[0] for s in settings}
                auto, decided = world.run(None)
                half = len(auto) // 2
                best = min(times, key=lambda s: times[s].sum())
                late = min(times, key=lambda s: times[s][half:].sum())
                print(
                    f"{name} rate {rate} accuracy {accuracy}: {len(auto)} tokens, "
                    f"best {describe(best)} {times[settings[0]].sum() / times[best].sum():.3f} x "
                    f"reactive; auto to the best {times[best].sum() / auto.sum():.3f}, "
                    f"second half {times[late][half:].sum() / auto[half:].sum():.3f}, "
                    f"to reactive {times[settings[0]].sum() / auto.sum():.3f}; "
                    f"ends with {describe(decided.kept)}",
                    flush=True,
                )
                if args.lines:
                    print(*(f"    {line}" for line in decided.lines), sep="\n")


def describe(setting: Setting) -> str:
    """Return a setting in a few words."""
    ahead = "prefetch" if setting.prefetch else "reactive"
    return f"{ahead} {setting.eviction}"


if __name__ == "__main__":
    main()
