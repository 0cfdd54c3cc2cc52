"""The host store: a second residency between the file and the slots."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from core_driver import CHUNK_BYTES, EXPERT_BYTES, WHOLE, composition

from backend._native import (
    Cancel,
    Compute,
    Copy,
    Core,
    GiveUp,
    Layout,
    Phase,
    Route,
    Shape,
    Urgency,
)

ALL_CHUNKS = (1 << len(CHUNK_BYTES)) - 1


class Levels:
    """Performs a core's commands as the live side does. Tests end the copies."""

    def __init__(
        self, n_slot: int, n_host: int, *, n_layer: int = 2, n_expert: int = 8, **parts: Any
    ) -> None:
        self.n_layer, self.n_expert = n_layer, n_expert
        self.core = Core(
            Shape(n_expert, 2, [CHUNK_BYTES] * n_layer),
            Layout.per_layer([n_slot] * n_layer),
            composition(**parts),
            host_slots=[n_host] * n_layer,
        )
        self.flying: dict[int, Copy] = {}
        self.here: dict[tuple[int, int], int] = {}  # (layer, slot of the store): chunks
        self.ready: list[Compute] = []
        self.log: list[Copy] = []
        self.gave_up = False

    def routed(self, layer: int, *experts: int) -> None:
        self.perform(self.core.reached(layer))
        self.perform(self.core.routed(layer, list(experts)))

    def perform(self, commands: list[Any]) -> None:
        todo = list(commands)
        while todo:
            command = todo.pop(0)
            if isinstance(command, Copy):
                self.flying[command.ticket] = command
                self.log.append(command)
                if command.route == Route.file_to_host:
                    self.here.setdefault((command.layer, command.slot), 0)
                    self.here[command.layer, command.slot] &= ~mask(command)
            elif isinstance(command, Cancel):
                if self.flying.pop(command.ticket, None):
                    todo += self.core.cancelled(command.ticket)
            elif isinstance(command, Compute):
                self.ready.append(command)
            elif isinstance(command, GiveUp):
                self.gave_up = True
        self.core.check()

    def can_end(self, copy: Copy) -> bool:
        if copy.route != Route.host_to_slot:
            return True
        return mask(copy) & ~self.here.get((copy.layer, copy.from_slot), 0) == 0

    def end(self, copy: Copy) -> None:
        del self.flying[copy.ticket]
        if copy.route == Route.file_to_host:
            self.here[copy.layer, copy.slot] |= mask(copy)
        self.perform(self.core.copied(copy.ticket))

    def fail(self, copy: Copy) -> None:
        """A failed read into the store fails the copies that wait for it."""
        waiting = [
            c
            for c in self.flying.values()
            if c.route == Route.host_to_slot
            and copy.route == Route.file_to_host
            and (c.layer, c.from_slot) == (copy.layer, copy.slot)
            and mask(c) & mask(copy)
        ]
        for c in [copy, *waiting]:
            self.flying.pop(c.ticket)
            self.perform(self.core.failed(c.ticket))

    def settle(self) -> None:
        """End all copies in flight, in a possible order."""
        while ended := [c for c in self.flying.values() if self.can_end(c)]:
            self.end(ended[0])
        assert not self.flying

    def compute_all(self) -> None:
        while self.ready:
            c = self.ready.pop(0)
            self.perform(self.core.computed(c.layer, c.expert, c.part))

    def layer(self, layer: int, *experts: int) -> None:
        """Run a layer that needs these experts. All arrive and are computed."""
        self.routed(layer, *experts)
        while self.flying or self.ready:
            self.settle()
            self.compute_all()
        assert self.core.idle()

    def routes(self, expert: int) -> list[Route]:
        """Return the sources of the expert's copies so far, without repetition."""
        return list(dict.fromkeys(c.route for c in self.log if c.expert == expert))

    def forget(self) -> None:
        self.log.clear()

    def in_host(self, layer: int = 0) -> set[int]:
        return {e for e in range(self.n_expert) if self.core.in_host(layer, e)}


def mask(copy: Copy) -> int:
    return ALL_CHUNKS if copy.chunk == WHOLE else 1 << copy.chunk


def test_the_file_is_read_once_where_the_store_holds_everything() -> None:
    levels = Levels(n_slot=2, n_host=8)
    levels.core.pass_began(Phase.decode)
    for _ in range(3):
        for first in range(0, 8, 2):
            levels.layer(0, first, first + 1)
    counts = levels.core.host_counts(0)
    assert counts.bytes_read == counts.bytes_awaited == 8 * EXPERT_BYTES
    assert counts.bytes_found == levels.core.counts(0).bytes_read - 8 * EXPERT_BYTES > 0
    assert levels.in_host() == set(range(8))


def test_what_is_not_here_is_read_and_then_copied_on() -> None:
    levels = Levels(n_slot=2, n_host=4)
    levels.core.pass_began(Phase.decode)
    levels.routed(0, 5, 6)
    assert levels.routes(5) == [Route.file_to_host, Route.host_to_slot]
    reads = [c for c in levels.log if c.route == Route.file_to_host]
    sends = [c for c in levels.log if c.route == Route.host_to_slot]
    assert [c.chunk for c in reads] == [0, 1, 2, 0, 1, 2]
    assert all(c.urgency == Urgency.high for c in levels.log)
    assert not any(levels.can_end(c) for c in sends)
    levels.end(reads[1])
    assert [c.chunk for c in sends if levels.can_end(c)] == [1]


def test_a_layer_uses_what_is_here_before_it_gives_way() -> None:
    """Four of six needed experts are resident. The others bypass the store; the newest stay."""
    levels = Levels(n_slot=2, n_host=4)
    levels.core.pass_began(Phase.prefill)
    levels.layer(0, 0, 1, 2, 3)
    assert levels.in_host() == {0, 1, 2, 3}
    levels.forget()
    levels.layer(0, 4, 5, 0, 1, 2, 3)
    assert Route.file_to_host not in levels.routes(0)
    read = {c.expert for c in levels.log if c.route != Route.host_to_slot}
    assert read == {4, 5}
    assert levels.in_host() == {0, 1, 2, 3}  # more recent, because routed after 4 and 5


@pytest.mark.parametrize("n_host", [3, 4])
def test_a_store_no_larger_than_the_slots_holds_something_else(n_host: int) -> None:
    """Experts are used in turn. If both levels kept the same four, there would be no hit."""
    levels = Levels(n_slot=4, n_host=n_host)
    levels.core.pass_began(Phase.decode)
    for _ in range(6):
        for first in range(0, 8, 2):
            levels.layer(0, first, first + 1)
    counts = levels.core.host_counts(0)
    assert counts.bytes_found >= 2 * EXPERT_BYTES
    assert counts.bytes_found + counts.bytes_awaited <= levels.core.counts(0).bytes_read


def test_what_is_worth_less_goes_past_the_store() -> None:
    levels = Levels(n_slot=2, n_host=2, eviction="lfu")
    levels.core.pass_began(Phase.decode)
    for _ in range(3):
        levels.layer(0, 0, 1)
    levels.forget()
    levels.layer(0, 2, 3)
    assert levels.routes(2) == [Route.file_to_slot]
    assert levels.in_host() == {0, 1}


def test_what_the_slots_hold_longest_leaves_the_store_first() -> None:
    levels = Levels(n_slot=4, n_host=3, eviction="lfu")
    levels.core.pass_began(Phase.decode)
    for experts in ((0, 1), (1, 2), (1, 2)):
        levels.layer(0, *experts)
    assert levels.in_host() == {0, 1, 2}
    levels.layer(0, 3)
    assert levels.in_host() == {0, 2, 3}


def test_a_forecast_that_is_called_back_leaves_no_half_expert() -> None:
    levels = Levels(n_slot=2, n_host=4, early_preemption=True)
    levels.core.pass_began(Phase.decode)
    levels.routed(0, 0, 1)
    levels.settle()
    levels.perform(levels.core.predicted(1, [4]))
    first = next(c for c in levels.flying.values() if c.expert == 4)
    assert first.urgency == Urgency.low and first.route == Route.file_to_host
    levels.end(first)
    levels.compute_all()
    levels.routed(1, 2, 3)
    assert not any(c.expert == 4 for c in levels.flying.values())
    levels.settle()
    assert 4 not in levels.in_host(1)


def test_a_needed_forecast_is_queued_high_on_both_ways() -> None:
    levels = Levels(n_slot=2, n_host=4)
    levels.core.pass_began(Phase.decode)
    levels.routed(0, 0, 1)
    levels.settle()
    levels.perform(levels.core.predicted(1, [4]))
    levels.compute_all()
    levels.routed(1, 4, 5)
    of_four = [c for c in levels.flying.values() if c.expert == 4]
    assert {c.route for c in of_four} == {Route.file_to_host, Route.host_to_slot}
    assert all(c.urgency == Urgency.high for c in of_four)
    levels.settle()
    assert {c.expert for c in levels.ready} == {4, 5}


def test_what_is_expected_beyond_the_slots_is_fetched_into_the_store() -> None:
    """The slots hold the experts needed now; the store has room."""
    levels = Levels(n_slot=2, n_host=6, depth=1)
    levels.core.pass_began(Phase.decode)
    levels.routed(0, 0, 1)
    levels.settle()
    levels.perform(levels.core.predicted(1, [4, 5, 6]))
    levels.settle()
    assert levels.in_host(1) == {4, 5, 6}
    assert {e for _, _, _, e, _ in levels.core.slots(1)} == {4, 5}


def test_a_store_of_one_slot_takes_what_is_expected() -> None:
    levels = Levels(n_slot=2, n_host=1, depth=1)
    levels.core.pass_began(Phase.decode)
    levels.layer(1, 4, 5)
    levels.core.pass_began(Phase.decode)
    levels.layer(0, 0, 1)
    levels.perform(levels.core.predicted(1, [4, 5, 6]))
    levels.settle()
    assert levels.in_host(1) == {6}
    assert {e for _, _, _, e, _ in levels.core.slots(1)} == {4, 5}


@pytest.mark.parametrize("needed", [False, True])
def test_at_the_gate_the_store_reads_on_only_for_what_is_needed(needed: bool) -> None:
    """A needed expert that waits for a slot has no copy from the store yet."""
    levels = Levels(n_slot=2, n_host=6, depth=1)
    levels.core.pass_began(Phase.decode)
    levels.layer(0, 0, 1)
    levels.perform(levels.core.predicted(1, [4, 5, 6]))
    before = [c.ticket for c in levels.flying.values() if c.expert == 6]
    assert len(before) == len(CHUNK_BYTES)
    levels.routed(1, 4, 5, *([6, 4] if needed else []))
    after = [c.ticket for c in levels.flying.values() if c.expert == 6]
    assert after == (before if needed else [])


def test_a_read_that_fails_is_tried_again_and_then_given_up() -> None:
    levels = Levels(n_slot=2, n_host=4)
    levels.core.pass_began(Phase.decode)
    levels.routed(0, 0, 1)
    while mine := [c for c in levels.flying.values() if c.expert == 0]:
        from_file = [c for c in mine if c.route != Route.host_to_slot and c.chunk == 0]
        if from_file:
            levels.fail(from_file[0])
        else:
            levels.end(next(c for c in mine if levels.can_end(c)))
    assert levels.gave_up
    assert not any(c.expert == 0 for c in levels.flying.values())
    levels.perform(levels.core.aborted())
    levels.settle()
    assert 0 not in levels.in_host()
    levels.core.pass_began(Phase.decode)
    levels.ready.clear()
    levels.layer(0, 0, 1)
    assert levels.in_host() >= {0, 1}


@pytest.mark.parametrize("n_host", [1, 3, 8])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_no_invariant_breaks(n_host: int, seed: int) -> None:
    """Forecasts, failures, stops and late ends come in any order. Each layer is finished."""
    random = Random(1000 * n_host + seed)
    levels = Levels(n_slot=random.choice([2, 3, 5]), n_host=n_host, n_layer=3)
    for _ in range(30):
        levels.core.pass_began(random.choice([Phase.prefill, Phase.decode]))
        for layer in range(3):
            levels.routed(layer, *random.sample(range(8), random.choice([2, 2, 4, 6])))
            if random.random() < 0.6:
                forecast = random.sample(range(8), 3)
                levels.perform(levels.core.predicted(random.randrange(3), forecast))
            stopped = random.random() < 0.05
            while not levels.core.idle() and not stopped:
                ending = [c for c in levels.flying.values() if levels.can_end(c)]
                if levels.ready and (not ending or random.random() < 0.5):
                    c = levels.ready.pop(random.randrange(len(levels.ready)))
                    levels.perform(levels.core.computed(c.layer, c.expert, c.part))
                elif random.random() < 0.02:
                    levels.fail(random.choice(ending))
                else:
                    assert ending, "the layer waits for what never comes"
                    levels.end(random.choice(ending))
                stopped = levels.gave_up or random.random() < 0.005
            if stopped:
                levels.gave_up = False
                levels.ready.clear()
                levels.perform(levels.core.aborted())
                break
    levels.settle()
    for layer in range(3):
        host, slots = levels.core.host_counts(layer), levels.core.counts(layer)
        assert host.bytes_found + host.bytes_awaited <= slots.bytes_read
        assert host.bytes_awaited <= host.bytes_read * 2  # one or more copies wait for each read
