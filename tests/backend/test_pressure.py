"""When a cache shrinks and grows again, from made-up readings of free memory."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.memory.pressure import CALM_S, Cache, MemoryWatch, Reading
from backend.system.memory import stalled_share

MB = 1_000_000
HEADROOM = 400 * MB


class Machine:
    """A cache, and memory that others take and release. Each look takes a second."""

    def __init__(self, n_slot: int = 24, free: int = HEADROOM) -> None:
        self.n_slot, self.others = n_slot, 0
        self.total = free + n_slot * 50 * MB
        self.stalled, self.now_s = 0.0, 0.0
        self.watch = MemoryWatch(HEADROOM, self.read, lambda: self.now_s)
        self.n_change = 0

    def read(self) -> Reading:
        return Reading(self.available, self.stalled)

    @property
    def available(self) -> int:
        return max(0, self.total - self.n_slot * 50 * MB - self.others)

    def run(self, n_second: int) -> int:
        for _ in range(n_second):
            self.now_s += 1.0
            n_slot = self.watch.look(lambda: Cache(self.n_slot, 4, 24, 50 * MB))
            if n_slot is not None:
                self.n_slot = n_slot
                self.n_change += 1
        return self.n_slot


def test_nothing_happens_while_the_headroom_is_there() -> None:
    machine = Machine()
    assert machine.run(100) == 24
    machine.others = 190 * MB  # less than half of it
    assert machine.run(100) == 24 and machine.n_change == 0


def test_memory_that_others_take_is_given_back_by_the_second_reading() -> None:
    machine = Machine()
    machine.others = 330 * MB
    assert machine.run(1) == 24
    assert machine.run(1) == 24 - math.ceil(330 / 50)
    assert machine.available >= HEADROOM
    assert machine.run(20) == 17 and machine.n_change == 1


def test_slots_that_are_not_filled_yet_are_taken_all_the_same() -> None:
    now_s = [0.0]
    readings = [Reading(150 * MB + 600 * MB)]  # 600 MB of the slots still look free
    watch = MemoryWatch(HEADROOM, lambda: readings[0], lambda: now_s[0])
    answers = []
    for untouched in (600 * MB, 600 * MB):
        now_s[0] += 1.0
        answers.append(watch.look(functools.partial(Cache, 24, 4, 24, 50 * MB, untouched)))
    assert answers == [None, 19]  # 250 MB are missing
    now_s[0] += 1.0
    assert watch.look(lambda: Cache(24, 4, 24, 50 * MB, 0)) is None


def test_where_hardly_anything_is_left_one_reading_is_enough() -> None:
    machine = Machine()
    machine.others = 380 * MB
    assert machine.run(1) == 16


def test_never_less_than_a_token_needs() -> None:
    machine = Machine()
    machine.others = 100_000 * MB
    assert machine.run(50) == 4 and machine.n_change == 3  # it is not known how much is missing


def test_pressure_counts_before_half_of_the_headroom_is_gone() -> None:
    machine = Machine()
    machine.others = 100 * MB
    machine.stalled = 0.3
    assert machine.run(5) == 22


def test_it_grows_back_after_a_while_and_not_at_once() -> None:
    machine = Machine(free=700 * MB)
    machine.others = 900 * MB
    assert machine.run(5) < 24
    machine.others = 0
    assert machine.run(int(CALM_S) - 1) < 24
    assert machine.run(5) == 24 and machine.n_change == 2


def test_a_break_in_the_calm_begins_it_again() -> None:
    machine = Machine(free=700 * MB)
    machine.others = 900 * MB
    machine.run(5)
    for _ in range(4):
        machine.others = 0
        machine.run(int(CALM_S) - 5)
        machine.others = 500 * MB  # enough for what is there, not for growing
        machine.run(2)
    assert machine.n_change == 1


def test_it_is_asked_once_a_second() -> None:
    readings: list[float] = []
    now_s = 0.0

    def read() -> Reading:
        readings.append(now_s)
        return Reading(0)

    watch = MemoryWatch(HEADROOM, read, lambda: now_s)
    for step in range(1000):
        now_s = step / 100
        watch.look(lambda: Cache(4, 4, 24, 50 * MB))
    assert len(readings) == 9


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 90)), max_size=12))
def test_slots_stay_within_bounds_and_changes_are_few(steps: list[tuple[int, int]]) -> None:
    machine = Machine(free=900 * MB)
    for others_mb, n_second in steps:
        machine.others = others_mb * MB
        before = machine.n_change
        assert 4 <= machine.run(n_second) <= 24
        # Some steps down, as nothing says how much is missing below nothing; or up.
        assert machine.n_change - before <= 4


def test_the_share_of_time_lost_to_waiting_is_read(tmp_path: Path) -> None:
    assert stalled_share(tmp_path) == 0.0
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text(
        "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\n"
        "full avg10=2.00 avg60=0.00 avg300=0.00 total=1\n"
    )
    assert stalled_share(tmp_path) == pytest.approx(0.125)
    (tmp_path / "pressure" / "memory").write_text("some avg10=x")
    assert stalled_share(tmp_path) == 0.0
