"""Random events against a small model of the slots, for every combination of the three steps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from core_driver import CHUNK_BYTES, WHOLE, composition
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import _native
from backend._native import Core, Layout, Phase, Shape

N_LAYER, N_EXPERT = 2, 5
SWITCH_NAMES = ("chunks", "early_preemption", "reorder")
SWITCHES = list(itertools.product([True, False], repeat=3))


@dataclass
class Slot:
    """What really is in a slot's memory: the expert of each chunk, None where nothing is whole."""

    content: list[int | None] = field(default_factory=lambda: [None] * len(CHUNK_BYTES))
    flying: dict[int, list[int]] = field(default_factory=dict)  # ticket -> chunks under way
    failed: bool = False  # a copy of what is under way
    computing: bool = False


class Memory:
    """The model: a copy writes to its slot until it ends, a computation reads the whole slot."""

    def __init__(self, n_slot: int) -> None:
        self.layers = [[Slot() for _ in range(n_slot)] for _ in range(N_LAYER)]
        self.slot_of: dict[int, Slot] = {}  # by ticket

    def copy(self, copy: Any) -> None:
        chunks = range(len(CHUNK_BYTES)) if copy.chunk == WHOLE else [copy.chunk]
        slot = self.slot_of[copy.ticket] = self.layers[copy.layer][copy.slot]
        assert not slot.computing
        slot.failed = slot.failed and bool(slot.flying)
        for other in slot.flying.values():
            assert not set(other) & set(chunks), "two copies write to the same place"
        slot.flying[copy.ticket] = list(chunks)
        for c in chunks:
            slot.content[c] = None

    def end(self, copy: Any, *, whole: bool, failed: bool = False) -> None:
        slot = self.slot_of.pop(copy.ticket)
        slot.failed |= failed
        for c in slot.flying.pop(copy.ticket):
            slot.content[c] = copy.expert if whole else None

    def compute(self, layer: int, slot: int, expert: int) -> None:
        s = self.layers[layer][slot]
        assert not s.flying and not s.computing and set(s.content) == {expert}
        s.computing = True


class Machine:
    """A core, the model beside it, and a pass through the layers."""

    def __init__(self, switches: tuple[bool, bool, bool], n_slot: int) -> None:
        self.core = Core(
            Shape(N_EXPERT, 1, [CHUNK_BYTES] * N_LAYER),
            Layout.per_layer([n_slot] * N_LAYER),
            composition(**dict(zip(SWITCH_NAMES, switches, strict=True))),
        )
        self.n_slot = n_slot
        self.memory = Memory(n_slot)
        self.flights: dict[int, Any] = {}
        self.begun: set[int] = set()
        self.layer = -1
        self.todo: set[int] = set()  # needed, not computed
        self.ready: list[int] = []  # Compute was said
        self.slot_of: dict[int, int] = {}  # of what is in `ready`
        self.pinned: set[tuple[int, int]] = set()  # (expert, slot) of this layer, before the event
        self.failed: set[int] = set()  # slots of this layer in which a copy has failed
        self.n_request = [0] * N_LAYER
        self.log: list[tuple[Any, ...]] = []
        self.core.pass_began(Phase.prefill)

    def event(self, kind: str, number: int) -> None:
        """Something of this kind happens, if it can; `number` chooses which."""
        options = {
            "route": [self.layer + 1] if not self.todo and self.layer + 1 < N_LAYER else [],
            "predict": range(N_LAYER),
            "arrive": sorted(self.flights),
            "fail": sorted(self.flights),
            "start": sorted(set(self.flights) - self.begun),
            "compute": sorted(self.ready),
            "serve": [None] if self.todo else [],
            "abort": [None],
            "pass": [None] if not self.todo else [],
        }[kind]
        if options:
            getattr(self, f"on_{kind}")(options[number % len(options)], number // len(options))
            self.check()

    def on_route(self, layer: int, number: int) -> None:
        experts = some_experts(number) or [number % N_EXPERT]
        self.layer, self.todo = layer, set(experts)
        slots = self.memory.layers[layer]
        self.pinned, self.failed = set(), {i for i, s in enumerate(slots) if s.failed and s.flying}
        self.n_request[layer] += len(experts)
        self.obey(self.core.routed(layer, experts + experts[:1]))

    def on_predict(self, layer: int, number: int) -> None:
        self.obey(self.core.predicted(layer, some_experts(number)))

    def on_arrive(self, ticket: int, _number: int) -> None:
        self.memory.end(self.flights.pop(ticket), whole=True)
        self.obey(self.core.copied(ticket))

    def on_fail(self, ticket: int, _number: int) -> None:
        copy = self.flights.pop(ticket)
        self.memory.end(copy, whole=False, failed=True)
        if copy.layer == self.layer:
            self.failed.add(copy.slot)
        self.obey(self.core.failed(ticket))

    def on_start(self, ticket: int, _number: int) -> None:
        self.begun.add(ticket)

    def on_compute(self, expert: int, _number: int) -> None:
        self.ready.remove(expert)
        self.todo.remove(expert)
        self.memory.layers[self.layer][self.slot_of.pop(expert)].computing = False
        self.obey(self.core.computed(self.layer, expert))

    def on_serve(self, _option: None, number: int) -> None:
        """The layer is finished, with no more copies than that takes; the last or first first."""
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
        return copy.layer == self.layer and copy.expert in self.todo

    def on_abort(self, _option: None, _number: int) -> None:
        for slot in itertools.chain(*self.memory.layers):
            slot.computing = False
        self.todo, self.ready, self.slot_of, self.pinned = set(), [], {}, set()
        self.obey(self.core.aborted())
        self.on_pass(None, 0)

    def on_pass(self, _option: None, number: int) -> None:
        self.layer = -1
        self.core.pass_began(Phase.decode if number % 2 else Phase.prefill)

    def obey(self, commands: list[Any]) -> None:
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            self.log.append(as_tuple(command))
            if isinstance(command, _native.Copy):
                self.flights[command.ticket] = command
                self.memory.copy(command)
            elif isinstance(command, _native.Cancel):
                if command.ticket not in self.begun:
                    copy = self.flights.pop(command.ticket)
                    self.memory.end(copy, whole=False)
                    queue += self.core.cancelled(command.ticket)
            elif isinstance(command, _native.Order):
                assert command.layer == self.layer and set(command.experts) == self.todo
                assert len(command.experts) == len(self.todo)
            elif isinstance(command, _native.Compute):
                assert command.layer == self.layer
                assert command.expert in self.todo and command.expert not in self.ready
                self.ready.append(command.expert)
                self.slot_of[command.expert] = command.slot
                self.memory.compute(self.layer, command.slot, command.expert)
            else:
                assert isinstance(command, _native.GiveUp)
                assert command.expert in self.todo and not queue
                self.on_abort(None, 0)

    def check(self) -> None:
        self.core.check()
        assert self.core.idle() == (not self.todo)
        for layer in range(N_LAYER):
            slots = self.core.slots(layer)
            assert len(slots) == self.n_slot
            held = [e for state, _, _, e, _ in slots if state in ("pending", "ready")]
            assert len(held) == len(set(held))
            for (state, _, _, expert, pinned), real in zip(slots, self.memory.layers[layer], strict=True):
                assert state in ("free", "pending", "ready", "quarantined")
                assert (expert < 0) == (state in ("free", "quarantined"))
                assert state == "pending" or not real.flying
                assert state != "ready" or set(real.content) == {expert}
                assert not real.computing or (state == "ready" and pinned)
                assert not pinned or (layer == self.layer and expert in self.todo)
            c = self.core.counts(layer)
            assert c.hits + c.late + c.misses == self.n_request[layer]
            assert c.bytes_useful + c.bytes_wasted <= c.bytes_read
        if self.layer >= 0:
            slots = enumerate(self.core.slots(self.layer))
            pinned = {(e, i) for i, (_, _, _, e, pin) in slots if pin}
            for expert, slot in self.pinned - pinned:
                assert expert not in self.todo or slot in self.failed, "a pinned slot has left"
            self.pinned = pinned
        assert not self.todo or self.ready or self.flights, "nothing can happen any more"

    def finish(self) -> None:
        """What is needed is computed, and what flies arrives."""
        self.event("serve", 0)
        for ticket in list(self.flights):
            self.on_arrive(ticket, 0)
            self.check()
        assert self.core.idle() and not self.flights


def some_experts(number: int) -> list[int]:
    """A choice of experts in an order, both told by the number."""
    chosen = [e for e in range(N_EXPERT) if number >> e & 1]
    turn = (number >> N_EXPERT) % max(len(chosen), 1)
    return chosen[turn:] + chosen[:turn]


def as_tuple(command: Any) -> tuple[Any, ...]:
    names = ("ticket", "layer", "expert", "experts", "chunk", "slot", "urgency")
    found = (str(getattr(command, n)) for n in names if hasattr(command, n))
    return (type(command).__name__, *found)


def events() -> Any:
    """Mostly what a pass consists of; faults and aborts now and then."""
    weights = {"route": 6, "predict": 4, "start": 5, "serve": 4, "arrive": 3, "compute": 2}
    weights |= {"pass": 4, "fail": 1, "abort": 1}
    kinds = st.sampled_from([kind for kind, n in weights.items() for _ in range(n)])
    return st.lists(st.tuples(kinds, st.integers(0, 2**12 - 1)), min_size=10, max_size=60)


@pytest.mark.parametrize("switches", SWITCHES)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(n_slot=st.integers(1, N_EXPERT), happens=events())
def test_slots_obey_the_model(
    switches: tuple[bool, bool, bool], n_slot: int, happens: list[tuple[str, int]]
) -> None:
    machine = Machine(switches, n_slot)
    for kind, number in happens:
        machine.event(kind, number)
    machine.finish()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sampled_from(SWITCHES), st.integers(1, N_EXPERT), events())
def test_the_same_events_give_the_same_commands(
    switches: tuple[bool, bool, bool], n_slot: int, happens: list[tuple[str, int]]
) -> None:
    logs = []
    for _ in range(2):
        machine = Machine(switches, n_slot)
        for kind, number in happens:
            machine.event(kind, number)
        logs.append(machine.log)
    assert logs[0] == logs[1]
