"""A layer of a prompt that needs more experts than it has slots."""

from __future__ import annotations

import pytest
from core_driver import Driver

from backend._native import Phase

PROMPT = (5, 0, 6, 1, 7, 2, 4, 3)
"""What the tokens use, so that with lru 3 is worth most, then 4, 2, 7, ..."""


def run(driver: Driver, *experts: int) -> tuple[list[int], list[int], int]:
    """A layer of a prompt; returns the experts read and computed, in order, and most at once."""
    driver.begin(Phase.prefill)
    said = driver.routed(0, *experts)
    waiting, read = list(said.compute), [e for e, _ in said.high]
    computed: list[int] = []
    most = 0
    while not driver.core.idle():
        most = max(most, len({c.expert for c in driver.flying.values()}))
        if waiting:
            computed.append(waiting.pop(0))
            said = driver.computed(computed[-1])
        else:
            said = driver.obey(
                driver.core.copied(driver.flying.pop(next(iter(driver.flying))).ticket)
            )
        waiting += said.compute
        read += [e for e, _ in said.high]
    assert sorted(computed) == sorted(set(experts))
    return read, computed, most


@pytest.mark.parametrize("n_stream", [1, 2, 3, 8])
def test_each_needed_expert_is_read_at_most_once(n_stream: int) -> None:
    driver = Driver(4, chunks=False, n_stream=n_stream)
    driver.bring(0, 0, 1)
    driver.bring(0, 6, 7)
    read, _, most = run(driver, *PROMPT)
    assert sorted(read) == [2, 3, 4, 5]
    assert most <= n_stream


def test_what_is_most_worth_keeping_stays_not_what_was_read_last() -> None:
    driver = Driver(4, chunks=False, n_stream=1)
    read, _, _ = run(driver, *PROMPT)
    assert driver.held(0) == {2, 3, 4, 7}
    assert read == [0, 1, 5, 6, 2, 3, 4, 7], "in the order of the file, the worthy ones at the end"


def test_worthy_ones_that_are_here_are_not_read_again() -> None:
    driver = Driver(4, chunks=False, n_stream=1)
    driver.bring(0, 2, 3)
    driver.bring(0, 4, 0)
    read, computed, _ = run(driver, *PROMPT)
    assert computed[0] == 0, "whose slot the others pass through"
    assert read == [1, 5, 6, 7]
    assert driver.held(0) == {2, 3, 4, 7}


def test_little_is_computed_at_a_time_so_that_reads_go_on() -> None:
    driver = Driver(4, chunks=False, n_stream=4)
    driver.bring(0, 0, 1)
    driver.bring(0, 6, 7)
    driver.begin(Phase.prefill)
    said = driver.routed(0, *PROMPT)
    assert len(said.compute) == 1 and said.high == []
    said = driver.computed(said.compute[0])
    assert len(said.high) == 1 and len(said.compute) == 1


def test_what_finds_room_is_not_streamed() -> None:
    driver = Driver(6, chunks=False, n_stream=1)
    driver.bring(0, 0, 1)
    driver.begin(Phase.prefill)
    said = driver.routed(0, 3, 2, 1, 4)
    assert [e for e, _ in said.high] == [2, 3, 4] and said.compute == [1]


def test_decoding_does_not_stream() -> None:
    driver = Driver(2, n_expert_used=3, chunks=False, n_stream=1)
    driver.begin()
    assert [e for e, _ in driver.routed(0, 5, 4, 3).high] == [5, 4]
