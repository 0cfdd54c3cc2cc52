"""Replays a trace through the very core of the live engine, in virtual time on a machine model.

A method is simulated as it would run: the same composition, the same allocation. What the
simulator adds is the machine (backend.machines): when a copy ends and how long computing takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from backend import _native
from backend.compose import NOTHING_LEARNED, Learned, composition, layout, predictor_of
from backend.machines import Hardware
from backend.methods import METHODS, REACTIVE, Method
from backend.parts import part
from backend.trace import DECODE, Trace

REFERENCES = ("random", "lru", "lfu", "static", "belady", "oracle")
"""Shown beside every method: a result without its ceiling says little."""
SIMULATED = tuple(name for name, method in METHODS.items() if method.kind != "stock")
"""Methods that can be simulated; how stock llama.cpp reads a file is for the system to decide."""

DENSE_SHARE = 0.65
"""Bytes of a layer without its experts to those of the experts that a token uses, where a trace
does not say: Qwen3-30B-A3B has 11.9 MB to 6 x 3.06 MB."""
BITS_PER_WEIGHT = 4.5
"""Where a trace does not say: of Q4_0 and Q4_K."""


@dataclass(frozen=True)
class Phase:
    """Prefill or decode. time_s = compute_s + stall_s."""

    n_pass: int
    n_token: int
    time_s: float
    compute_s: float
    stall_s: float
    link_busy_s: float
    """At least one copy was under way."""
    hits: int
    requests: int

    @property
    def tokens_per_s(self) -> float | None:
        """None where there was no token, or where computing takes no time."""
        return self.n_token / self.time_s if self.n_token and self.time_s > 0 else None

    @property
    def hit_rate(self) -> float | None:
        """Share of requests that were resident; None without requests."""
        return self.hits / self.requests if self.requests else None


@dataclass(frozen=True)
class Counts:
    """Of one layer or of all. Parts of cut experts count each; hits + late + misses = requests."""

    hits: int
    late: int
    misses: int
    bytes_read: int
    bytes_useful: int
    bytes_wasted: int
    """bytes_read - bytes_useful - bytes_wasted are resident and have not been used."""
    prefetches: int
    prefetches_useful: int
    prefetches_wasted: int
    predicted: int
    predicted_used: int
    predicted_ready: int
    stall_s: float

    @property
    def requests(self) -> int:
        """Needed parts of experts."""
        return self.hits + self.late + self.misses

    @property
    def hit_rate(self) -> float | None:
        """Share of requests that were resident; None without requests."""
        return self.hits / self.requests if self.requests else None

    @property
    def accuracy(self) -> float | None:
        """Share of predicted experts that were then used (ProMoE, section 4.1)."""
        return self.predicted_used / self.predicted if self.predicted else None

    @property
    def fetch_rate(self) -> float | None:
        """Share of predicted experts that were resident when their layer was routed."""
        return self.predicted_ready / self.predicted if self.predicted else None

    @property
    def good_pred(self) -> float | None:
        """Accuracy times fetch rate."""
        if self.accuracy is None or self.fetch_rate is None:
            return None
        return self.accuracy * self.fetch_rate

    def to_json(self) -> dict[str, Any]:
        """Return all figures."""
        derived = ("requests", "hit_rate", "accuracy", "fetch_rate", "good_pred")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


@dataclass(frozen=True)
class Result:
    """One method at one cache rate; `reason` says why it was not simulated, and is else empty."""

    method: str
    asked_rate: float
    reason: str = ""
    predictor: str = ""
    """What was predicted with; empty without prediction."""
    kind: str = "cached"
    rate: float = 0.0
    """Of all experts' bytes, what the slots can hold."""
    cache_bytes: int = 0
    total: Counts | None = None
    layers: tuple[Counts, ...] = ()
    prefill: Phase | None = None
    decode: Phase | None = None

    def to_json(self, *, layers: bool = False) -> dict[str, Any]:
        """Return all figures, those of the layers on request."""
        report: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("method", "kind", "predictor", "asked_rate", "rate", "cache_bytes")
        }
        if self.reason:
            return {**report, "reason": self.reason}
        assert self.total is not None
        report["total"] = self.total.to_json()
        for name in ("prefill", "decode"):
            phase: Phase = getattr(self, name)
            speeds = {"tokens_per_s": phase.tokens_per_s, "hit_rate": phase.hit_rate}
            report[name] = {**asdict(phase), **speeds}
        if layers:
            report["layers"] = [layer.to_json() for layer in self.layers]
        return report


@dataclass(frozen=True)
class Setting:
    """What is simulated, besides methods and rates.

    hardware: None for instant copies and no time at all, so that only counts mean anything.
    routers: of each layer, float32 [n_expert, n_embd], for predictors that apply them. accuracy:
    where a method's predictor lacks what it needs, one that is right with this probability takes
    its place; None: such a method is not simulated.
    """

    trace: Trace
    hardware: Hardware | None = None
    routers: Sequence[Any] = ()
    learned: Learned = NOTHING_LEARNED
    accuracy: float | None = None
    seed: int = 0


def with_references(names: Sequence[str]) -> list[str]:
    """The methods named, then the references that are not among them."""
    named = list(dict.fromkeys(names))
    return named + [name for name in REFERENCES if name not in named]


def eviction_names() -> list[str]:
    """The evictions that there are."""
    return sorted(_native.eviction_names())


def eviction_method(name: str) -> Method:
    """A reactive cache with this eviction, to compare evictions with nothing else in between.

    Raises ValueError, a sentence, for an unknown name.
    """
    if name not in eviction_names():
        known = ", ".join(eviction_names())
        raise ValueError(f"There is no eviction called {name}; known are {known}.")
    return Method(
        name, f"{name}, without prediction", "", evictions=(part(name),), prefill=REACTIVE,
        decode=REACTIVE,
    )  # fmt: skip


def run(setting: Setting, methods: Sequence[Method], rates: Sequence[float]) -> Iterator[Result]:
    """Simulate every method at every cache rate, from a cold cache; results as they come.

    The same setting gives the same results. What cannot be simulated gives a result with a reason.
    """
    future = setting.trace.future()
    machine = machine_for(setting.trace, setting.hardware)
    for method in methods:
        for rate in rates:
            try:
                yield _simulate(setting, future, machine, method, rate)
            except ValueError as error:
                yield Result(method.name, rate, reason=_sentence(str(error)), kind=method.kind)


def machine_for(trace: Trace, hardware: Hardware | None) -> _native.Machine:
    """How fast this hardware makes the trace's model."""
    if hardware is None:
        return _native.Machine()
    sizes = [sum(chunks) for chunks in trace.chunk_bytes]
    expert_bytes = sum(sizes) / len(sizes)
    return hardware.machine(
        expert_bytes=expert_bytes,
        dense_bytes=_about(
            trace, "layer_dense_bytes", DENSE_SHARE * trace.n_expert_used * expert_bytes
        ),
        output_bytes=_about(trace, "output_bytes", 0.0),
        bits_per_weight=_about(trace, "bits_per_weight", BITS_PER_WEIGHT) or BITS_PER_WEIGHT,
    )


def _about(trace: Trace, name: str, otherwise: float) -> float:
    """A figure that a trace may say of its model, if it makes sense."""
    about: Mapping[str, Any] = trace.about
    value = about.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    return otherwise


def _simulate(
    setting: Setting,
    future: _native.Future,
    machine: _native.Machine,
    method: Method,
    rate: float,
) -> Result:
    if method.kind == "stock":
        raise ValueError("stock llama.cpp is not simulated")
    trace = setting.trace
    shape = trace.shape()
    method = _seeded(method, setting.seed)
    place = layout(method, shape, rate)
    core, used = _core(setting, method, shape, place, future)
    predictor = predictor_of(used, setting.learned)
    simulation = _native.simulate(
        core,
        future,
        machine,
        inputs=trace.inputs if core.wants_gate_input() else None,
        weights=trace.weights,
        has_inputs=[] if trace.has_inputs is None else [bool(x) for x in trace.has_inputs],
    )
    cache_bytes = place.bytes(shape)
    all_bytes = sum(sum(sizes) for sizes in trace.chunk_bytes) * trace.n_expert
    layers = _layers(simulation)
    return Result(
        method=method.name,
        asked_rate=rate,
        predictor=str(predictor or ""),
        kind=method.kind,
        rate=cache_bytes / all_bytes,
        cache_bytes=cache_bytes,
        total=_sum(layers),
        layers=layers,
        prefill=_phase(simulation, simulation.prefill, trace.phases != DECODE),
        decode=_phase(simulation, simulation.decode, trace.phases == DECODE),
    )


def _seeded(method: Method, seed: int) -> Method:
    """The method with its chances drawn from this seed."""
    evictions = tuple(
        part(e.name, **{**e.numbers, "seed": seed}) if e.name == "random" else e
        for e in method.evictions
    )
    return replace(method, evictions=evictions)


def _core(
    setting: Setting,
    method: Method,
    shape: _native.Shape,
    place: _native.Layout,
    future: _native.Future,
) -> tuple[_native.Core, Method]:
    """A core, and the method that it is of: for want of inputs, one with another predictor."""

    def make(method: Method) -> _native.Core:
        core = _native.Core(
            shape,
            place,
            composition(method, shape, setting.learned),
            n_embd=setting.trace.n_embd,
            routers=list(setting.routers),
            future=future,
        )
        if core.wants_gate_input() and setting.trace.inputs is None:
            raise ValueError(
                f"The predictor {predictor_of(method, setting.learned)} needs the layers' inputs, "
                "which the trace does not hold"
            )
        return core

    try:
        return make(method), method
    except ValueError:
        if setting.accuracy is None or method.predictor is None:
            raise
        numbers = {"accuracy": setting.accuracy, "seed": setting.seed}
        substitute = part(SUBSTITUTE, **numbers)
        used = replace(method, predictor=substitute, fallback=None)
        return make(used), used


SUBSTITUTE = "accuracy"


def _layers(simulation: _native.Simulation) -> tuple[Counts, ...]:
    names = [name for name in Counts.__dataclass_fields__ if name != "stall_s"]
    columns = {name: getattr(simulation, name).tolist() for name in names}
    stalls_s = (simulation.stall_us / 1e6).tolist()
    return tuple(
        Counts(**{name: column[i] for name, column in columns.items()}, stall_s=stall_s)
        for i, stall_s in enumerate(stalls_s)
    )


def _sum(layers: Sequence[Counts]) -> Counts:
    return Counts(
        **{name: sum(getattr(c, name) for c in layers) for name in Counts.__dataclass_fields__}
    )


def _phase(simulation: _native.Simulation, phase: _native.SimulatedPhase, which: Any) -> Phase:
    return Phase(
        n_pass=phase.n_pass,
        n_token=phase.n_token,
        time_s=phase.time_us / 1e6,
        compute_s=phase.compute_us / 1e6,
        stall_s=phase.stall_us / 1e6,
        link_busy_s=phase.link_busy_us / 1e6,
        hits=int(np.sum(simulation.pass_hits[which])),
        requests=int(np.sum(simulation.pass_requests[which])),
    )


def _sentence(text: str) -> str:
    return text.rstrip(".") + "."


def curves(results: Sequence[Result]) -> str:
    """Draw hit rate and speed over the cache rate, a line for each method, as SVG.

    Raises ValueError, a sentence, when there is nothing to draw.
    """
    from backend.charts import Line, Panel, line_charts

    done = [r for r in results if not r.reason and r.total and r.decode and r.prefill]
    names = list(dict.fromkeys(r.method for r in done))

    def lines(value: Callable[[Result], float | None]) -> list[Line]:
        drawn = []
        for name in names:
            of_method = [r for r in done if r.method == name]
            points = [(r.rate, y) for r in of_method if (y := value(r)) is not None]
            drawn.append(Line(name, points, bound=any(r.kind == "bound" for r in of_method)))
        return drawn

    def panel(title: str, y_label: str, values: list[Line], *, percent: bool) -> Panel:
        return Panel(title, "cache rate", y_label, values, x_percent=True, y_percent=percent)

    found = lines(lambda r: r.total.hit_rate if r.total else None)
    panels = [panel("Experts found in memory", "hit rate", found, percent=True)]
    for title, speeds in (
        ("Prefill", lines(lambda r: r.prefill.tokens_per_s if r.prefill else None)),
        ("Decode", lines(lambda r: r.decode.tokens_per_s if r.decode else None)),
    ):
        if any(line.points for line in speeds):
            panels.append(panel(title, "tokens per second", speeds, percent=False))
    return line_charts(panels)
