"""Replays a trace through the core of the live engine, in virtual time on a machine model.

A method has the same composition and allocation here as in a live run. The simulator adds only the
machine (backend.machines), which says when a copy ends and how long computing takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.machines import Hardware
from backend.methods.catalogue import METHODS, REACTIVE, Method
from backend.methods.compose import (
    NOTHING_LEARNED,
    Learned,
    composition,
    layout,
    predictor_of,
    share_of,
    slots_in,
    with_accuracy,
)
from backend.methods.cost import PassCost
from backend.methods.moepic import INTERVAL_TOKENS
from backend.methods.part import part
from backend.methods.slots import slots_of
from backend.methods.tuner import Tuner
from backend.simulation import offload
from backend.simulation.results import Counts, Phase, Result, summed
from backend.traces.trace import DECODE, Trace

REFERENCES = ("random", "lru", "lfu", "static", "belady", "oracle")
"""Shown beside every method, because a result means little without its upper bound."""
SIMULATED = tuple(name for name, method in METHODS.items() if method.kind != "stock")
"""Methods that can be simulated. Stock llama.cpp cannot: the system decides how it reads a file."""

DENSE_SHARE = 0.65
"""Default ratio of a layer's dense bytes to the bytes of the experts that a token uses, for a trace
that does not give it. Qwen3-30B-A3B has 11.9 MB to 6 x 3.06 MB."""
BITS_PER_WEIGHT = 4.5
"""Default for a trace that does not give it: the value of Q4_0 and Q4_K."""


@dataclass(frozen=True)
class Setting:
    """The input of a simulation, apart from methods and rates.

    hardware: None makes copies and computing instant, so only counts mean anything.
    routers: one for each layer, float32 [n_expert, n_embd], for predictors that apply them.
    biases: of the routers, one for each layer or none.
    token_experts: of each layer, int32 [token id, experts of a token], without rows where its
    router is no table; or none.
    accuracy: if a method's predictor lacks its inputs or weights, a predictor that is right with
    this probability replaces it. None: such a method is not simulated.
    configure_tokens: tokens between two runs of MoEpic's configurator, which also waits for the end
    of a request.
    host_rate: share of the experts in RAM, between a drive and the hardware's link. None: all.
    drive: the hardware whose link is the drive's.
    stop_us: cost of a device's stop for a router's choice. A device that stops computes a decoded
    token's experts together, once all are there. 0: no device.
    """

    trace: Trace
    hardware: Hardware | None = None
    routers: Sequence[Any] = ()
    biases: Sequence[_native.RouterBias] = ()
    token_experts: Sequence[Any] = ()
    learned: Learned = NOTHING_LEARNED
    accuracy: float | None = None
    seed: int = 0
    configure_tokens: int = INTERVAL_TOKENS
    machine: _native.Machine | None = None
    host_rate: float | None = None
    drive: Hardware | None = None
    stop_us: float = 0.0

    @property
    def host_slots(self) -> list[int]:
        """Experts of each layer in RAM. Empty: RAM holds all."""
        if self.host_rate is None:
            return []
        return [slots_of(self.host_rate, self.trace.n_expert)] * self.trace.n_layer


def with_references(names: Sequence[str]) -> list[str]:
    """Return the named methods, then the references that are not among them."""
    named = list(dict.fromkeys(names))
    return named + [name for name in REFERENCES if name not in named]


def eviction_names() -> list[str]:
    """Return the names of all evictions, sorted."""
    return sorted(_native.eviction_names())


def eviction_method(name: str) -> Method:
    """Return a method that is a reactive cache with this eviction, to compare evictions alone.

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
    """Simulate every method at every cache rate, each from a cold cache. Yield results in order.

    The same setting gives the same results. A method that cannot be simulated yields a result with
    a reason.
    """
    future = setting.trace.future()
    machine = _machine(setting)
    for method in methods:
        for rate in rates:
            try:
                yield _simulate(setting, future, machine, method, rate)
            except ValueError as error:
                yield Result(method.name, rate, reason=_sentence(str(error)), kind=method.kind)


def machine_for(
    trace: Trace,
    hardware: Hardware | None,
    drive: Hardware | None = None,
    stop_us: float = 0.0,
) -> _native.Machine:
    """Return the simulator's machine for the trace's model on this hardware."""
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
        drive=drive,
        stop_us=stop_us,
    )


def stock_results(setting: Setting, rates: Sequence[float]) -> Iterator[Result]:
    """Yield stock llama.cpp's results with whole layers' experts on the device (--n-cpu-moe).

    Raises ValueError, a sentence, without hardware.
    """
    if setting.hardware is None and setting.machine is None:
        raise ValueError("--n-cpu-moe needs a machine whose copies take time.")
    trace = setting.trace
    sizes = [sum(chunks) for chunks in trace.chunk_bytes]
    bits = _about(trace, "bits_per_weight", BITS_PER_WEIGHT) or BITS_PER_WEIGHT
    machine = offload.with_host(_machine(setting), sum(sizes) / len(sizes), bits)
    for rate in rates:
        yield offload.n_cpu_moe(trace, machine, rate)


def _machine(setting: Setting) -> _native.Machine:
    return setting.machine or machine_for(
        setting.trace, setting.hardware, setting.drive, setting.stop_us
    )


def _about(trace: Trace, name: str, otherwise: float) -> float:
    """Return a figure of the trace's model from its notes, or the default if it is not valid."""
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
    place = layout(method, shape, slots_of(rate, shape.n_expert))
    cache_bytes = place.bytes(shape)
    actual_rate, n_slot = share_of(place, shape), round(slots_in(place, shape))
    predicts = predictor_of(method, setting.learned) is not None
    tuner = Tuner(method, shape, predicts=predicts, configure_tokens=setting.configure_tokens)
    layers: list[tuple[Counts, ...]] = []
    phases: list[tuple[Phase, Phase]] = []
    stalls_us: list[NDArray[np.float64]] = []
    core, from_file = None, 0
    for piece in _pieces(setting, method):
        new_place: _native.Layout | None = None if core is None else tuner.new_layout(cache_bytes)
        if core is None or new_place is not None:
            from_file += _file_bytes(core, trace.n_layer)
            place = new_place or place
            core, used = _core(setting, method, shape, place, future, tuner)
            stock: list[list[int]] = [] if new_place is None else tuner.stock()
            for layer, experts in enumerate(stock):
                for command in core.stocked(layer, experts):
                    assert isinstance(command, _native.Copy)
                    core.copied(command.ticket)  # while nobody waits
            tuner.attach(core, n_slot)
        simulation = _native.simulate(
            core,
            future if piece is trace else piece.future(),
            machine,
            inputs=piece.inputs if core.wants_gate_input() or method.adaptive else None,
            weights=piece.weights,
            has_inputs=[] if piece.has_inputs is None else [bool(x) for x in piece.has_inputs],
            after_pass=partial(_observe, tuner) if tuner.observes else None,
        )
        layers.append(_layers(simulation))
        stalls_us.append(simulation.pass_stall_us)
        decoded = piece.phases == DECODE
        prefill = _phase(simulation, simulation.prefill, ~decoded)
        phases.append((prefill, _phase(simulation, simulation.decode, decoded)))
    from_file += _file_bytes(core, trace.n_layer)
    by_layer = tuple(summed(counts) for counts in zip(*layers, strict=True))
    prefills, decodes = zip(*phases, strict=True)
    return Result(
        method=method.name,
        asked_rate=rate,
        predictor=str(predictor_of(used, setting.learned) or ""),
        kind=method.kind,
        rate=actual_rate,
        cache_bytes=cache_bytes,
        total=summed(by_layer),
        layers=by_layer,
        prefill=summed(prefills),
        decode=summed(decodes),
        pass_stall_us=np.concatenate(stalls_us),
        lines=tuner.lines,
        bytes_from_file=None if setting.host_rate is None else from_file,
    )


def _file_bytes(core: _native.Core | None, n_layer: int) -> int:
    """Return the bytes read from the drive, into RAM or directly into slots."""
    if core is None:
        return 0
    host = [core.host_counts(layer) for layer in range(n_layer)]
    served_by_ram = sum(h.bytes_found + h.bytes_awaited - h.bytes_read for h in host)
    return int(sum(core.counts(layer).bytes_read for layer in range(n_layer)) - served_by_ram)


def _observe(tuner: Tuner, done: _native.SimulatedPass) -> None:
    """Report the cost of a decoded token to the tuner, or of a pass of several answers.

    The first pass of another number of answers was computed with the settings of the one before.
    """
    times = done.times
    if done.phase == _native.Phase.decode:
        if times.n_token == tuner.n_answer:
            tuner.observe(cost_of(done), times.wave_us / 1e6)
        else:
            tuner.begin_pass(times.n_token)


def cost_of(done: _native.SimulatedPass) -> PassCost:
    """Return the cost of a simulated pass, as a tuner observes it."""
    times, counts = done.times, done.counts
    return PassCost(
        n_token=1,
        wall_s=times.time_us / 1e6,
        compute_s=times.compute_us / 1e6,
        stall_s=times.stall_us / 1e6,
        link_busy_s=times.link_busy_us / 1e6,
        bytes_read=counts.bytes_read,
        bytes_useful=counts.bytes_useful,
        bytes_wasted=counts.bytes_wasted,
        prefetches_useful=counts.prefetches_useful,
        prefetches_wasted=counts.prefetches_wasted,
        hits=counts.hits,
        late=counts.late,
        misses=counts.misses,
    )


def _pieces(setting: Setting, method: Method) -> list[Trace]:
    """Cut the trace before the requests where the configurator may run."""
    trace = setting.trace
    if not method.configured or len(trace.tokens) < setting.configure_tokens:
        return [trace]
    cuts = [0]
    for at in np.flatnonzero(np.diff(trace.requests)) + 1:
        if trace.begins[at] - trace.begins[cuts[-1]] >= setting.configure_tokens:
            cuts.append(int(at))
    return [trace.passes(a, b) for a, b in zip(cuts, [*cuts[1:], trace.n_pass], strict=True)]


def _seeded(method: Method, seed: int) -> Method:
    """Return the method with this seed in its random evictions."""
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
    tuner: Tuner,
) -> tuple[_native.Core, Method]:
    """Return a core and its method, with another predictor if the method's own lacks inputs."""

    def make(method: Method) -> _native.Core:
        core = _native.Core(
            shape,
            place,
            composition(method, shape, setting.learned, on_device=setting.stop_us > 0),
            n_embd=setting.trace.n_embd,
            routers=list(setting.routers),
            biases=list(setting.biases),
            token_experts=list(setting.token_experts),
            future=future,
            statistics=tuner.statistics,
            host_slots=setting.host_slots,
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
        used = with_accuracy(method, setting.accuracy, setting.seed)
        return make(used), used


def _layers(simulation: _native.Simulation) -> tuple[Counts, ...]:
    names = [name for name in Counts.__dataclass_fields__ if name != "stall_s"]
    columns = {name: getattr(simulation, name).tolist() for name in names}
    stalls_s = (simulation.stall_us / 1e6).tolist()
    return tuple(
        Counts(**{name: column[i] for name, column in columns.items()}, stall_s=stall_s)
        for i, stall_s in enumerate(stalls_s)
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
