"""Reads ahead of need: only those are made that should save more than they cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from core_driver import WHOLE, Driver, chunks_of

from backend._native import Tuning, Urgency, Worth

N_EXPERT = 16
NOBODY = -1
"""The rank of an expert that no forecast names."""


def judged(w: Worth, n: int, rank: int, *, used: float, n_before: int = 0, ahead: int = 1) -> float:
    """Let a candidate of this class be used every 1 / `used` times. Return its probability now."""
    for i in range(n):
        w.expect(0, 3, rank, n_before, ahead)
        is_used = used > 0 and i % round(1 / used) == 0
        w.judge(0, [int(is_used and e == 3) for e in range(N_EXPERT)])
    found = w.expect(0, 3, rank, n_before, ahead)
    w.forget(0)
    return found


@pytest.mark.parametrize("used", [1.0, 0.5, 0.25, 0.0])
@pytest.mark.parametrize("rank", [NOBODY, 0, 7, 100])
def test_the_probability_is_the_share_that_was_used(rank: int, used: float) -> None:
    assert judged(Worth(1), 600, rank, used=used) == pytest.approx(used, abs=0.03)


def test_a_class_that_was_never_seen_resembles_the_others_of_its_rank() -> None:
    w = Worth(1)
    first = w.expect(0, 3, 1, 100)
    w.forget(0)
    judged(w, 300, 1, used=1.0, n_before=0)
    others = w.expect(0, 3, 1, 100)
    another_rank = w.expect(0, 3, 2, 100)
    another_distance = w.expect(0, 3, 1, 100, 2)
    assert others > 0.95 > first == another_rank == another_distance


def test_each_class_keeps_its_own_share() -> None:
    w = Worth(1)
    good = {"rank": 0, "n_before": 0}
    for i in range(300):
        w.expect(0, 1, 0, 0)
        w.expect(0, 2, 0, 40)
        w.judge(0, [int(e == 1 or (e == 2 and i % 4 == 0)) for e in range(N_EXPERT)])
    assert w.expect(0, 1, **good) > 0.95
    assert w.expect(0, 1, 0, 40) == pytest.approx(0.25, abs=0.04)


def test_what_keeping_says_holds_for_ranks_that_were_seen_rarely() -> None:
    w = Worth(1)
    for _ in range(300):
        for rank in range(4):
            w.expect(0, rank, rank, 0)
            w.expect(0, 8 + rank, rank, 40)
        w.judge(0, [int(e < 4) for e in range(N_EXPERT)])
    assert w.expect(0, 1, 100, 0) > 0.9
    assert w.expect(0, 1, 100, 40) < 0.1


def test_what_was_forgotten_is_not_judged() -> None:
    w = Worth(2)
    before = w.expect(1, 3, 0)
    w.forget(1)
    for layer in (0, 1):
        w.judge(layer, [0] * N_EXPERT)
    assert w.expect(1, 3, 0) == before


def test_old_observations_count_less_than_new_ones() -> None:
    w = Worth(1)
    judged(w, 1000, 0, used=1.0)
    assert judged(w, 1000, 0, used=0.0) < 0.05


def test_the_gain_falls_with_every_cost() -> None:
    w = Worth(1)
    assert w.gain(0.5) == 0.5
    w.set_copy_cost(0.2)
    assert w.gain(0.5) == pytest.approx(0.3)
    w.set_victim(0.1)
    assert w.gain(0.5) == pytest.approx(0.2)
    for _ in range(1000):
        w.gate_passed(True)
    assert w.gain(0.5) == pytest.approx(-0.05, abs=1e-3), "half of a wrong read delays others"
    assert w.gain(1.0) == pytest.approx(0.7, abs=1e-3), "a right one does not"


def test_a_later_layer_can_wait_while_the_link_has_time() -> None:
    w = Worth(1)
    assert (w.urgency(1), w.urgency(2)) == (1, 0)
    for _ in range(1000):
        w.gate_passed(True)
    assert w.urgency(3) == pytest.approx(1, abs=1e-3)


# In the core.


def driver(n_slot: int = 4, *, n_layer: int = 2, depth: int = 1) -> Driver:
    d = Driver(n_slot, n_layer=n_layer, n_expert=N_EXPERT, weighs=True, depth=depth)
    d.core.tune(Tuning(depth=depth, copy_cost=0.3))
    return d


def token(d: Driver, needs: Sequence[int], forecast: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Compute a token whose layers need these experts. Return the reads ahead of layer 0."""
    d.begin()
    ordered = d.predicted(0, *forecast).low if forecast else []
    d.settle()
    for layer in range(len(d.layout.layers)):
        waiting = list(d.routed(layer, *needs).compute)
        while not d.core.idle():
            waiting += d.computed(waiting.pop(0)).compute if waiting else d.end_next()
    return ordered


def test_a_forecast_that_is_never_right_is_soon_not_fetched() -> None:
    d = driver()
    fetched = [token(d, (0, 1), (9 + i % 4,)) for i in range(60)]
    assert fetched[0] == chunks_of(9), "trusted to begin with"
    assert fetched[-20:] == [[]] * 20


def test_a_forecast_that_is_right_is_fetched_again() -> None:
    d = driver()
    for i in range(60):
        token(d, (0, 1), (9 + i % 4,))
    for i in range(60):
        ordered = token(d, (2 * i % N_EXPERT, (2 * i + 1) % N_EXPERT), ((2 * i + 1) % N_EXPERT,))
    assert ordered


def test_a_resident_expert_of_a_doubtful_forecast_is_kept_for_its_layer() -> None:
    d = driver(n_slot=2, n_layer=1)
    for i in range(60):
        token(d, (0, 1), (0, 9 + i % 4))
    d.begin()
    assert d.predicted(0, 0, 9).low == []
    d.routed(0, 5)
    assert {expert for _, expert, _ in d.slots()} == {0, 5}, "1 gave way"


def test_reads_that_have_not_begun_are_weighed_again_at_the_next_gate() -> None:
    """A better forecast of a nearer layer goes first then."""
    d = driver(n_slot=4, n_layer=3, depth=2)
    d.begin()
    assert d.predicted(1, 5).low == chunks_of(5)
    response = d.routed(0, 0)
    assert [e for e, _ in response.cancelled] == [5] * 3
    assert response.low == chunks_of(5), "ordered again"
    assert d.predicted(2, 6).low == chunks_of(6)


def test_what_is_worth_it_is_read_while_the_link_would_be_idle() -> None:
    """Matrix by matrix, which a need interrupts, or at once where it will surely be used."""
    d = driver()
    d.begin()
    assert d.predicted(0, 9).low == chunks_of(9)
    assert {copy.urgency for copy in d.flying.values()} == {Urgency.spare}
    d.settle()
    for i in range(60):
        ordered = token(d, (2 * i % N_EXPERT, (2 * i + 1) % N_EXPERT), ((2 * i + 1) % N_EXPERT,))
    assert ordered == [((2 * 59 + 1) % N_EXPERT, WHOLE)]


def test_the_nearest_of_equal_forecasts_goes_first() -> None:
    d = driver(n_slot=4, n_layer=3, depth=2)
    d.begin()
    assert d.predicted(2, 6).low == [], "three layers ahead"
    assert d.predicted(1, 5).low == chunks_of(5)
    assert d.routed(0, 0).low == chunks_of(5, 6)


def test_experts_that_come_back_are_fetched_without_a_forecast() -> None:
    """Two pairs take turns, and one more than a pair fits."""
    d = Driver(3, n_layer=1, n_expert=N_EXPERT, weighs=True, depth=1)
    d.core.tune(Tuning(depth=1, copy_cost=0.1))
    read = 0
    for i in range(200):
        d.begin()
        d.settle()
        needs = ((0, 1), (2, 3))[i % 2]
        waiting = list(d.routed(0, *needs).compute)
        while not d.core.idle():
            waiting += d.computed(waiting.pop(0)).compute if waiting else d.end_next()
        read = d.counts().prefetches_useful
    assert read > 50
