"""Random events and a small model of the slots, for every scheduler and kind of layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from core_driver import CHUNK_BYTES, WHOLE, composition
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import _native
from backend._native import Core, LayerLayout, Layout, Part, Phase, PoolLayout, Shape

N_LAYER, N_EXPERT = 2, 5
SWITCH_NAMES = ("chunks", "early_preemption", "reorder")
SCHEDULERS: dict[str, tuple[str, dict[str, float]]] = {
    **{
        "ordered-" + "".join("01"[s] for s in switches): (
            "ordered",
            dict(zip(SWITCH_NAMES, map(float, switches), strict=True)),
        )
        for switches in itertools.product([True, False], repeat=3)
    },
    "reactive": ("reactive", {}),
    "stream": ("stream", {"k_slots": 2.0}),
    "expert-major": ("expert_major", {}),
    "ordered-few": ("ordered", {"n_stream": 1.0}),
    "ordered-fill": ("ordered", {"fill": 1.0}),
    "after-first": ("ordered", {"prefetch_after_first": 1.0}),
}


def one_pool(n_slot: int, *, buffer: bool) -> Layout:
    """Return a layout with one pool for all layers."""
    return Layout([PoolLayout(n_slot, buffer)], [LayerLayout(1.0, [0, -1])] * N_LAYER)


def cut(n_slot: int) -> Layout:
    """Return a layout with tops in slots of each layer and bottoms in a common buffer."""
    pools = [PoolLayout(n_slot) for _ in range(N_LAYER)] + [PoolLayout(n_slot, True)]
    return Layout(pools, [LayerLayout(0.5, [layer, N_LAYER]) for layer in range(N_LAYER)])


def uncached(n_slot: int) -> Layout:
    """Return a layout of bottoms only, which keeps nothing (MoEpic with theta 0)."""
    return Layout([PoolLayout(n_slot, True)], [LayerLayout(0.0, [-1, 0])] * N_LAYER)


def staged(n_slot: int) -> Layout:
    """Return a layout with slots of each layer and a common stage for prompts."""
    shape = Shape(N_EXPERT, 1, [CHUNK_BYTES] * N_LAYER)
    return Layout.per_layer([n_slot] * N_LAYER).staged(shape, max(1, 4 - n_slot))


LAYOUTS: dict[str, Callable[[int], Layout]] = {
    "per-layer": lambda n_slot: Layout.per_layer([n_slot] * N_LAYER),
    "one-pool": lambda n_slot: one_pool(n_slot, buffer=False),
    "one-buffer": lambda n_slot: one_pool(n_slot, buffer=True),
    "cut": cut,
    "uncached": uncached,
    "staged": staged,
}
Unit = tuple[int, Part]  # a part of an expert


def own(part: Part) -> Part:
    """Return the part that a slot holds. A stage holds tops: whole experts, as none is cut."""
    return Part.top if part == Part.staged else part


@dataclass
class Slot:
    """The contents of a slot's memory: the owner of each chunk, None if it is incomplete."""

    content: list[tuple[int, Unit] | None] = field(
        default_factory=lambda: [None] * len(CHUNK_BYTES)
    )
    flying: dict[int, list[int]] = field(default_factory=dict)  # ticket -> chunks in flight
    failed: bool = False  # one of the copies in flight
    computing: bool = False


class Memory:
    """The model: a copy writes to its slot from its start on; computing reads the whole slot."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.pools = [[Slot() for _ in range(pool.n_slot)] for pool in layout.pools]
        self.slot_of: dict[int, Slot] = {}  # by ticket

    def at(self, command: Any) -> Slot:
        """Return the slot of a Copy or Compute."""
        layer = self.layout.layers[command.layer]
        pools = {Part.top: layer.pool[0], Part.bottom: layer.pool[1], Part.staged: layer.stage}
        return self.pools[pools[command.part]][command.slot]

    def copy(self, copy: Any) -> None:
        chunks = range(len(CHUNK_BYTES)) if copy.chunk == WHOLE else [copy.chunk]
        slot = self.slot_of[copy.ticket] = self.at(copy)
        assert not slot.computing
        slot.failed = slot.failed and bool(slot.flying)
        for other in slot.flying.values():
            assert not set(other) & set(chunks), "two copies write to the same place"
        slot.flying[copy.ticket] = list(chunks)

    def start(self, copy: Any) -> None:
        slot = self.slot_of[copy.ticket]
        for c in slot.flying[copy.ticket]:
            slot.content[c] = None

    def cancel(self, copy: Any) -> None:
        del self.slot_of.pop(copy.ticket).flying[copy.ticket]

    def end(self, copy: Any, *, whole: bool, failed: bool = False) -> None:
        slot = self.slot_of.pop(copy.ticket)
        slot.failed |= failed
        for c in slot.flying.pop(copy.ticket):
            slot.content[c] = (copy.layer, (copy.expert, copy.part)) if whole else None

    def compute(self, command: Any) -> Slot:
        s = self.at(command)
        assert not s.flying and not s.computing
        assert set(s.content) == {(command.layer, (command.expert, command.part))}
        s.computing = True
        return s


class Machine:
    """A core, the model beside it, and a pass through the layers."""

    def __init__(self, scheduler: str, layout: str, n_slot: int) -> None:
        name, numbers = SCHEDULERS[scheduler]
        self.layout = LAYOUTS[layout](n_slot)
        self.parts = [
            [p for p, pool in zip((Part.top, Part.bottom), of.pool, strict=True) if pool >= 0]
            for of in self.layout.layers
        ]
        self.core = Core(
            Shape(N_EXPERT, 1, [CHUNK_BYTES] * N_LAYER, n_cut=[2] * N_LAYER),
            self.layout,
            composition(scheduler=name, **numbers),
        )
        self.memory = Memory(self.layout)
        self.flights: dict[int, Any] = {}
        self.begun: set[int] = set()
        self.layer = -1
        self.todo: set[Unit] = set()  # needed, not computed
        self.ready: list[Unit] = []  # ordered by Compute
        self.slot_of: dict[Unit, Slot] = {}  # of the units in `ready`
        self.part_of: dict[Unit, Part] = {}  # as in their Compute
        self.n_request = [0] * N_LAYER
        self.log: list[tuple[Any, ...]] = []
        self.events = _native.EventLog()
        self.core.record(self.events)
        self.core.pass_began(Phase.prefill)

    def event(self, kind: str, number: int) -> None:
        """Let an event of this kind happen, if one can. `number` chooses it."""
        options = {
            "route": [self.layer + 1] if not self.todo and self.layer + 1 < N_LAYER else [],
            "predict": range(N_LAYER),
            "arrive": sorted(self.flights),
            "fail": sorted(self.flights),
            "start": sorted(set(self.flights) - self.begun),
            "compute": self.ready,
            "serve": [None] if self.todo else [],
            "abort": [None],
            "pass": [None] if not self.todo else [],
        }[kind]
        if options:
            getattr(self, f"on_{kind}")(options[number % len(options)], number // len(options))
            self.check()

    def on_route(self, layer: int, number: int) -> None:
        experts = some_experts(number) or [number % N_EXPERT]
        self.layer = layer
        self.todo = {(e, p) for e in experts for p in self.parts[layer]}
        self.n_request[layer] += len(self.todo)
        self.perform(self.core.reached(layer))
        self.perform(self.core.routed(layer, experts + experts[:1]))

    def on_predict(self, layer: int, number: int) -> None:
        self.perform(self.core.predicted(layer, some_experts(number)))

    def on_arrive(self, ticket: int, _number: int) -> None:
        self.memory.end(self.flights.pop(ticket), whole=True)
        self.perform(self.core.copied(ticket))

    def on_fail(self, ticket: int, _number: int) -> None:
        self.memory.end(self.flights.pop(ticket), whole=False, failed=True)
        self.perform(self.core.failed(ticket))

    def on_start(self, ticket: int, _number: int) -> None:
        self.begun.add(ticket)
        self.memory.start(self.flights[ticket])

    def on_compute(self, unit: Unit, _number: int) -> None:
        self.ready.remove(unit)
        self.todo.remove(unit)
        self.slot_of.pop(unit).computing = False
        self.perform(self.core.computed(self.layer, unit[0], self.part_of.pop(unit)))

    def on_serve(self, _option: None, number: int) -> None:
        """Finish the layer with as few copies as possible. `number` chooses their order."""
        for _ in range(1000):
            if not self.todo:
                return
            if self.ready:
                self.on_compute(self.ready[number % len(self.ready)], 0)
            else:
                needed = [t for t, c in self.flights.items() if self.is_needed(c)]
                tickets = needed or sorted(self.flights)
                assert tickets, "nothing can happen any more"
                self.on_arrive(tickets[number % len(tickets)], 0)
            self.check()
        raise AssertionError("copies come and go without end")

    def is_needed(self, copy: Any) -> bool:
        return copy.layer == self.layer and (copy.expert, own(copy.part)) in self.todo

    def on_abort(self, _option: None, _number: int) -> None:
        for slot in itertools.chain(*self.memory.pools):
            slot.computing = False
        self.todo, self.ready, self.slot_of, self.part_of = set(), [], {}, {}
        self.perform(self.core.aborted())
        self.on_pass(None, 0)

    def on_pass(self, _option: None, number: int) -> None:
        self.layer = -1
        self.core.pass_began(Phase.decode if number % 2 else Phase.prefill)

    def perform(self, commands: list[Any]) -> None:
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            self.log.append(as_tuple(command))
            if isinstance(command, _native.Copy):
                self.flights[command.ticket] = command
                self.memory.copy(command)
            elif isinstance(command, _native.Cancel):
                if command.ticket not in self.begun:
                    self.memory.cancel(self.flights.pop(command.ticket))
                    queue += self.core.cancelled(command.ticket)
            elif isinstance(command, _native.Order):
                assert command.layer == self.layer
                assert sorted(command.experts) == sorted({e for e, _ in self.todo})
            elif isinstance(command, _native.Compute):
                unit = (command.expert, own(command.part))
                assert command.layer == self.layer
                assert unit in self.todo and unit not in self.ready
                if command.part == Part.bottom:
                    assert (command.expert, Part.top) not in self.todo, "a bottom before its top"
                self.ready.append(unit)
                self.slot_of[unit] = self.memory.compute(command)
                self.part_of[unit] = command.part
            else:
                assert isinstance(command, _native.GiveUp)
                assert command.expert in {e for e, _ in self.todo} and not queue
                self.on_abort(None, 0)

    def check(self) -> None:
        self.core.check()
        assert self.core.idle() == (not self.todo)
        held = set()
        for pool, memory in enumerate(self.memory.pools):
            slots = self.core.slots(pool)
            for (state, layer, part, expert, pinned), real in zip(slots, memory, strict=True):
                assert state in ("free", "pending", "ready", "quarantined")
                assert (expert < 0) == (state in ("free", "quarantined"))
                assert expert < 0 or (layer, own(part), expert) not in held
                held.add((layer, own(part), expert))
                assert state == "pending" or not real.flying
                assert state != "ready" or set(real.content) == {(layer, (expert, part))}
                assert not real.computing or (state == "ready" and pinned)
                assert not pinned or (layer == self.layer and (expert, own(part)) in self.todo)
        for layer in range(N_LAYER):
            c = self.core.counts(layer)
            assert c.hits + c.late + c.misses == self.n_request[layer]
            assert c.bytes_useful + c.bytes_wasted <= c.bytes_read
        assert not self.todo or self.ready or self.flights, "nothing can happen any more"

    def finish(self) -> None:
        """Compute all that is needed, then end all copies in flight."""
        self.event("serve", 0)
        for ticket in list(self.flights):
            self.on_arrive(ticket, 0)
            self.check()
        assert self.core.idle() and not self.flights


def some_experts(number: int) -> list[int]:
    """Return experts in an order. The number determines both."""
    chosen = [e for e in range(N_EXPERT) if number >> e & 1]
    turn = (number >> N_EXPERT) % max(len(chosen), 1)
    return chosen[turn:] + chosen[:turn]


def as_tuple(command: Any) -> tuple[Any, ...]:
    names = ("ticket", "layer", "expert", "experts", "chunk", "slot", "urgency")
    found = (str(getattr(command, n)) for n in names if hasattr(command, n))
    return (type(command).__name__, *found)


def events() -> Any:
    """Return events: mostly those of a normal pass, with a few faults and aborts."""
    weights = {"route": 6, "predict": 4, "start": 5, "serve": 4, "arrive": 3, "compute": 2}
    weights |= {"pass": 4, "fail": 1, "abort": 1}
    kinds = st.sampled_from([kind for kind, n in weights.items() for _ in range(n)])
    return st.lists(st.tuples(kinds, st.integers(0, 2**12 - 1)), min_size=10, max_size=60)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=60)
@given(n_slot=st.integers(1, N_EXPERT), happens=events())
def test_slots_obey_the_model(
    scheduler: str, layout: str, n_slot: int, happens: list[tuple[str, int]]
) -> None:
    machine = Machine(scheduler, layout, n_slot)
    for kind, number in happens:
        machine.event(kind, number)
    machine.finish()


@settings(max_examples=50)
@given(
    st.sampled_from(sorted(SCHEDULERS)),
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, N_EXPERT),
    events(),
)
def test_the_same_events_give_the_same_commands(
    scheduler: str, layout: str, n_slot: int, happens: list[tuple[str, int]]
) -> None:
    machine = Machine(scheduler, layout, n_slot)
    for kind, number in happens:
        machine.event(kind, number)
    assert len(machine.events) > 0
    name, numbers = SCHEDULERS[scheduler]
    fresh = Core(
        Shape(N_EXPERT, 1, [CHUNK_BYTES] * N_LAYER, n_cut=[2] * N_LAYER),
        LAYOUTS[layout](n_slot),
        composition(scheduler=name, **numbers),
    )
    assert _native.replay(machine.events, fresh) == -1


def test_replay_says_where_another_core_answers_otherwise() -> None:
    machine = Machine("ordered-111", "per-layer", 2)
    machine.on_route(0, 3)
    machine.finish()
    other = Core(
        Shape(N_EXPERT, 1, [CHUNK_BYTES] * N_LAYER),
        Layout.per_layer([2] * N_LAYER),
        composition(chunks=0),
    )
    assert _native.replay(machine.events, other) == 2
    assert machine.events.describe(2)[0].startswith("routed layer 0")
