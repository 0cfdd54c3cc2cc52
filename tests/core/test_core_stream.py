"""A layer of a prompt that needs more experts than it has slots."""

from __future__ import annotations

import pytest
from core_driver import CHUNK_BYTES, Driver, Response

from backend._native import Layout, Part, Phase, Shape

PROMPT = (5, 0, 6, 1, 7, 2, 4, 3)
"""The experts that the tokens use, so that with lru 3 is worth most, then 4, 2, 7, ..."""
WARM = (4, 5, 6, 7, 0, 1, 2, 3)
"""What is worth most is what tests have brought before."""


def run(driver: Driver, *experts: int) -> tuple[list[int], list[int], int]:
    """Run a layer of a prompt. Return the experts read and computed, and the largest wave."""
    driver.begin(Phase.prefill)
    response = driver.routed(0, *experts)
    waiting, read = list(response.compute), [e for e, _ in response.high]
    computed: list[int] = []
    most = 0
    while not driver.core.idle():
        most = max(most, len({c.expert for c in driver.flying.values()}))
        if waiting:
            computed.append(waiting.pop(0))
            response = driver.computed(computed[-1])
        else:
            response = driver.perform(
                driver.core.copied(driver.flying.pop(next(iter(driver.flying))).ticket)
            )
        waiting += response.compute
        read += [e for e, _ in response.high]
    assert sorted(computed) == sorted(set(experts))
    return read, computed, most


@pytest.mark.parametrize("n_stream", [1, 2, 3, 8])
def test_each_needed_expert_is_read_at_most_once(n_stream: int) -> None:
    driver = Driver(4, chunks=False, n_stream=n_stream)
    driver.make_resident(0, 0, 1)
    driver.make_resident(0, 6, 7)
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
    driver.make_resident(0, 2, 3)
    driver.make_resident(0, 4, 0)
    read, computed, _ = run(driver, *PROMPT)
    assert computed[0] == 0, "whose slot the others pass through"
    assert read == [1, 5, 6, 7]
    assert driver.held(0) == {2, 3, 4, 7}


def test_little_is_computed_at_a_time_so_that_reads_go_on() -> None:
    driver = Driver(4, chunks=False, n_stream=4)
    driver.make_resident(0, 0, 1)
    driver.make_resident(0, 6, 7)
    driver.begin(Phase.prefill)
    response = driver.routed(0, *PROMPT)
    assert len(response.compute) == 1 and response.high == []
    response = driver.computed(response.compute[0])
    assert len(response.high) == 1 and len(response.compute) == 1


def test_what_finds_room_is_not_streamed() -> None:
    driver = Driver(6, chunks=False, n_stream=1)
    driver.make_resident(0, 0, 1)
    driver.begin(Phase.prefill)
    response = driver.routed(0, 3, 2, 1, 4)
    assert [e for e, _ in response.high] == [2, 3, 4] and response.compute == [1]


def test_decoding_does_not_stream() -> None:
    driver = Driver(2, n_expert_used=3, chunks=False, n_stream=1)
    driver.begin()
    assert [e for e, _ in driver.routed(0, 5, 4, 3).high] == [5, 4]


def staged(n_slot: int, n_stage: int) -> Driver:
    """Return a driver with three layers of eight experts and a common stage."""
    layout = Layout.per_layer([n_slot] * 3)
    layout = layout.staged(Shape(8, 2, [CHUNK_BYTES] * 3), n_stage)
    return Driver(n_slot, n_layer=3, chunks=False, n_stream=8, n_wave=4, layout=layout)


def in_stage(driver: Driver) -> set[tuple[int, int]]:
    """Return the (layer, expert) that the stage holds or awaits."""
    pool = driver.layout.layers[0].stage
    slots = driver.core.slots(pool) if pool >= 0 else []
    return {(layer, expert) for _, layer, _, expert, _ in slots if expert >= 0}


def part(driver: Driver, expert: int) -> Part:
    return Part.staged if (driver.layer, expert) in in_stage(driver) else Part.top


def finish(driver: Driver, response: Response) -> int:
    """Let all needed experts arrive and be computed. Return the number of waves."""
    n_wave, waiting = 0, list(response.compute)
    while not driver.core.idle():
        if waiting:
            n_wave += 1
            for expert in waiting:
                response = driver.computed(expert, part(driver, expert))
                waiting = waiting[1:] + response.compute
        else:
            ticket = next(t for t, c in driver.flying.items() if c.layer == driver.layer)
            waiting += driver.perform(driver.core.copied(driver.flying.pop(ticket).ticket)).compute
    return n_wave


def test_a_stage_leaves_the_layers_own_slots_to_what_they_hold() -> None:
    driver = staged(4, 8)
    for layer in range(3):
        driver.make_resident(layer, 0, 1, 2, 3)
    driver.begin(Phase.prefill)
    response = driver.routed(0, *WARM)
    assert sorted(e for e, _ in response.high) == [4, 5, 6, 7]
    assert in_stage(driver) >= {(0, e) for e in (4, 5, 6, 7)}
    finish(driver, response)
    assert driver.held(0) == {0, 1, 2, 3}
    assert not {layer for layer, _ in in_stage(driver)} & {0}, "what was computed leaves at once"


def test_the_next_layers_are_ordered_before_they_are_routed() -> None:
    driver = staged(4, 8)
    for layer in range(3):
        driver.make_resident(layer, 0, 1, 2, 3)
    driver.begin(Phase.prefill)
    response = driver.routed(0, *WARM)
    assert [e for e, _ in response.low] == [4, 5, 6, 7], (
        "of the next layer, in the order of the file"
    )
    finish(driver, response)
    assert in_stage(driver) == {(layer, e) for layer in (1, 2) for e in (4, 5, 6, 7)}
    driver.settle()
    response = driver.routed(1, *WARM)
    assert response.high == [] and sorted(response.compute) == list(range(8))
    assert driver.counts(1).hits == 8 and driver.counts(1).misses == 4, "those that were brought"


def test_what_was_staged_in_vain_gives_way() -> None:
    driver = staged(4, 4)
    for layer in range(3):
        driver.make_resident(layer, 0, 1, 2, 3)
    driver.begin(Phase.prefill)
    finish(driver, driver.routed(0, *WARM))
    driver.settle()
    assert in_stage(driver) == {(1, e) for e in (4, 5, 6, 7)}
    finish(driver, driver.routed(1, 4, 5, 0, 1, 2, 3))
    driver.settle()
    assert in_stage(driver) == {(2, e) for e in (4, 5, 6, 7)}


def test_few_needed_experts_are_no_reason_to_order_ahead() -> None:
    driver = staged(2, 8)
    for layer in range(3):
        driver.make_resident(layer, 0, 1)
    driver.begin(Phase.prefill)
    response = driver.routed(0, 3, 2, 4, 0, 1)
    assert len(response.high) == 3 and response.low == []


def test_a_layer_that_needed_few_is_not_ordered_ahead_again() -> None:
    """llama.cpp computes a prompt's last layer for its last token only."""
    driver = staged(2, 12)
    for layer in range(3):
        driver.make_resident(layer, 0, 1)
    for _ in range(2):
        driver.begin(Phase.prefill)
        for layer in range(2):
            finish(driver, driver.routed(layer, *WARM))
            driver.settle()
        before = {expert for layer, expert in in_stage(driver) if layer == 2}
        finish(driver, driver.routed(2, 0, 1))
        driver.settle()
    assert before == set()


def test_an_expert_passes_through_the_stage_in_one_copy() -> None:
    """With its matrices one by one, a prompt would have three times as many copies and events."""
    layout = Layout.per_layer([4] * 3).staged(Shape(8, 2, [CHUNK_BYTES] * 3), 8)
    driver = Driver(4, n_layer=3, chunks=True, n_stream=8, layout=layout)
    for layer in range(3):
        driver.make_resident(layer, 0, 1, 2, 3)
    driver.begin(Phase.prefill)
    assert driver.routed(0, *WARM).high == [(expert, -1) for expert in (4, 5, 6, 7)]
    assert {c.part for c in driver.flying.values()} == {Part.staged}


def test_a_staged_layer_is_computed_in_a_few_waves() -> None:
    driver = staged(4, 8)
    for layer in range(3):
        driver.make_resident(layer, 0, 1, 2, 3)
    driver.begin(Phase.prefill)
    assert finish(driver, driver.routed(0, *WARM)) <= 3


def test_a_small_stage_fills_again_and_again() -> None:
    driver = staged(2, 2)
    for layer in range(3):
        driver.make_resident(layer, 2, 3)
    driver.begin(Phase.prefill)
    finish(driver, driver.routed(0, *WARM))
    assert driver.held(0) == {2, 3} and driver.counts(0).bytes_read == 8 * sum(CHUNK_BYTES)


def test_without_slots_of_its_own_free_a_cold_layer_fills_those_first() -> None:
    driver = staged(4, 8)
    driver.begin(Phase.prefill)
    finish(driver, driver.routed(0, *WARM))
    assert len(driver.held(0)) == 4


def test_a_layer_with_a_slot_for_every_expert_gets_all_of_them() -> None:
    driver = Driver([8, 4], chunks=False, fill=1)
    driver.begin()
    response = driver.routed(0, 5, 2)
    assert [e for e, _ in response.low] == [0, 1, 3, 4, 6, 7]
    assert all(copy.slot == copy.expert for copy in driver.flying.values())
    finish(driver, response)
    driver.settle()
    assert driver.core.may_skip(0) and not driver.core.may_skip(1)
    driver.begin()
    assert driver.perform(driver.core.unasked(0, 3)).kinds == []
    assert driver.counts(0).hits == 3 * 2 and driver.counts(0).misses == 2
    driver.core.unasked(0, 5)
    assert driver.counts(0).hits == 3 * 2 + 8, "no more than all experts"


def test_after_a_layer_that_is_not_asked_the_next_ones_forecast_is_due() -> None:
    driver = Driver([8, 4], chunks=False, fill=1, depth=1)
    driver.make_resident(0, 5, 2)
    driver.begin()
    assert driver.predicted(1, 3, 0).low == [] == driver.predicted(0, 5).low
    assert [e for e, _ in driver.perform(driver.core.unasked(0, 1)).low] == [3, 0]
    driver.settle()
    driver.begin()
    driver.routed(0, 5, 2)
    assert driver.counts(0).predicted == 0, "the pass before needed nothing of the layer's forecast"


def prompt(n_slot: int, n_stage: int = 0, **options: int) -> Driver:
    """Return a driver in a prompt: three layers of 40 experts. The slots hold the first ones."""
    shape = Shape(40, 2, [CHUNK_BYTES] * 3)
    layout = Layout.per_layer([n_slot] * 3).staged(shape, n_stage)
    driver = Driver(n_slot, n_layer=3, n_expert=40, layout=layout, n_stream=8, **options)
    for layer in range(3):
        driver.make_resident(layer, *range(n_slot))
    driver.begin(Phase.prefill)
    return driver


def test_what_is_expected_of_the_next_layer_is_read_when_all_that_is_needed_was_ordered() -> None:
    driver = prompt(4, chunks=False)
    response = driver.routed(0, *range(10))
    assert driver.predicted(1, 9, 0, 8, 1).low == [] and len(response.high) < 6
    finish(driver, response)
    assert driver.held(1) | {c.expert for c in driver.flying.values()} == {0, 1, 8, 9}


def test_reading_ahead_is_in_the_order_of_the_file_and_spares_what_is_expected() -> None:
    driver = prompt(4, chunks=False)
    finish(driver, driver.routed(0, 0, 1, 2, 3))
    assert [e for e, _ in driver.predicted(1, 9, 7, 3, 8).low] == [7, 8, 9]
    assert driver.held(1) >= {3}


def test_no_more_than_the_layer_needed_is_expected_of_the_next() -> None:
    driver = prompt(8, chunks=False)
    finish(driver, driver.routed(0, 0, 1, 2))
    assert [e for e, _ in driver.predicted(1, 19, 18, 17, 16, 15).low] == [17, 18, 19]


def test_a_layer_that_computed_fewer_tokens_is_not_expected_to_need_more() -> None:
    """llama.cpp computes the last layer for the last token only."""
    driver = prompt(8, chunks=False)
    for _ in range(2):
        driver.begin(Phase.prefill)
        for layer, experts in enumerate([(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), (0, 1)]):
            finish(driver, driver.routed(layer, *experts))
            if layer == 1:
                response = driver.predicted(2, 10, 11, 12, 13)
        driver.settle()
    assert [e for e, _ in response.low] == [10, 11]


def test_only_as_much_is_read_ahead_as_the_link_brought_before() -> None:
    """A useless prefetch has evicted another expert."""
    driver = prompt(20)
    finish(driver, driver.routed(0, *range(20)))
    expected = list(range(20, 38))
    first = driver.predicted(1, *expected)
    assert {e for e, _ in first.low} == set(range(20, 36))
    response = driver.routed(1, *range(20))  # no copy had begun
    assert len(response.cancelled) == 48
    finish(driver, response)
    second = driver.predicted(2, *expected)
    assert {e for e, _ in second.low} < {e for e, _ in first.low}


def test_more_is_read_ahead_where_the_link_brought_all() -> None:
    driver = prompt(20)
    finish(driver, driver.routed(0, *range(20)))
    driver.predicted(1, *range(20, 40))
    assert len(driver.flying) == 48
    driver.settle()
    finish(driver, driver.routed(1, *range(20)))
    driver.predicted(2, *range(20, 40))
    assert len(driver.flying) > 48


def test_reading_ahead_grows_by_half_while_the_link_brings_all() -> None:
    driver = prompt(20)
    n_read = []
    for n_expected in (20, 20, 20, 20, 1, 20, 20, 20):
        driver.begin(Phase.prefill)
        finish(driver, driver.routed(0, *range(20)))
        absent = [e for e in range(40) if e not in driver.held(1)]
        n_read.append(len(driver.predicted(1, *absent[:n_expected]).low))
        if len(n_read) > 1:  # of the first ones, no copy begins
            driver.settle()
        here = sorted(e for s, e, _ in driver.slots(1) if s == "ready")
        finish(driver, driver.routed(1, *(here * 20)[:20]))
        driver.settle()
    assert n_read == [48, 6, 12, 18, 3, 27, 39, 60], "whole experts in 48, 8, 12, 18, 27, 40, 60"


@pytest.mark.parametrize(("n_waiting", "n_next"), [(8, 48), (9, 45), (20, 36)])
def test_reading_ahead_shrinks_by_what_waits_at_the_gate(n_waiting: int, n_next: int) -> None:
    """A few may wait: they are about to begin."""
    driver = prompt(20)
    finish(driver, driver.routed(0, *range(20)))
    assert len(driver.predicted(1, *range(20, 36)).low) == 48
    for _ in range(48 - n_waiting):
        driver.end_next()
    here = sorted(e for s, e, _ in driver.slots(1) if s == "ready")
    finish(driver, driver.routed(1, *(here * 20)[:20]))
    assert len(driver.predicted(2, *range(20, 40)).low) == n_next


def test_reading_ahead_passes_through_the_stage_where_there_is_one() -> None:
    driver = prompt(4, n_stage=3, chunks=False)
    finish(driver, driver.routed(0, 0, 1, 2, 3))
    driver.predicted(1, 9, 7, 3, 8)
    driver.settle()
    assert driver.held(1) == {0, 1, 2, 3} and in_stage(driver) == {(1, 7), (1, 8), (1, 9)}


def test_a_full_stage_goes_on_when_something_in_it_was_computed() -> None:
    driver = prompt(4, n_stage=2, chunks=False)
    finish(driver, driver.routed(0, 0, 1, 2, 3))
    driver.predicted(1, 7, 8)
    driver.settle()
    assert driver.predicted(2, 9, 10).low == []
    finish(driver, driver.routed(1, 7, 8, 0, 1))
    driver.settle()
    assert in_stage(driver) == {(2, 9), (2, 10)}


def test_where_those_that_give_way_are_needed_nothing_gives_way_but_to_try_again() -> None:
    driver = prompt(4, chunks=False)
    read = []
    for _ in range(12):
        driver.begin(Phase.prefill)
        finish(driver, driver.routed(0, 0, 1, 2, 3, 4, 5))
        here = sorted(driver.held(1))
        absent = [e for e in range(8) if e not in here][:3]
        read.append(len(driver.predicted(1, *absent).low))
        driver.settle()
        finish(driver, driver.routed(1, *here, *absent))
        driver.settle()
    assert read[:6] == [3] * 6 and read[6:11] == [0] * 5


def test_what_decoding_expects_is_fetched_as_ever() -> None:
    driver = prompt(4, chunks=False)
    driver.begin(Phase.decode)
    finish(driver, driver.routed(0, 0, 1))
    assert [e for e, _ in driver.predicted(1, 9, 7, 8).low] == [9, 7, 8]
