"""Ranks of a forecast that are mostly wrong are no longer prefetched."""

from __future__ import annotations

import pytest
from core_driver import Driver, chunks_of

from backend._native import Confidence, Tuning

N_EXPERT = 16


def one_pass(c: Confidence, forecast: list[int], needed: list[int]) -> list[int]:
    """Return the experts of the forecast that are worth a prefetch."""
    experts, scores = c.worthwhile(0, forecast, [1.0 / (1 + e) for e in forecast])
    assert scores == pytest.approx([1.0 / (1 + e) for e in experts])  # in the same order
    c.judge(0, [int(e in needed) for e in range(N_EXPERT)])
    return list(experts)


def passes(c: Confidence, n: int, *, second_is_right: bool) -> list[list[int]]:
    """Return the prefetches of n passes. The first of two predicted experts is always right."""
    found = []
    for i in range(n):
        first, second, other = (i * 3) % N_EXPERT, (i * 3 + 1) % N_EXPERT, (i * 3 + 2) % N_EXPERT
        needed = [first, second if second_is_right else other]
        found.append(one_pass(c, [first, second], needed))
    return found


def test_a_rank_that_is_always_wrong_is_dropped_after_a_while() -> None:
    c = Confidence(1, N_EXPERT, min_precision=0.5)
    fetched = passes(c, 300, second_is_right=False)
    assert len(fetched[0]) == 2  # trusted to begin with
    assert all(len(f) == 1 for f in fetched[250:])
    assert fetched[299] == [(299 * 3) % N_EXPERT]
    assert c.precision(0) == 1.0 and c.precision(1) < 0.5


def test_a_dropped_rank_comes_back_when_it_is_right_again() -> None:
    c = Confidence(1, N_EXPERT, min_precision=0.5)
    assert len(passes(c, 300, second_is_right=False)[-1]) == 1
    assert len(passes(c, 300, second_is_right=True)[-1]) == 2


def test_without_a_limit_every_rank_is_fetched() -> None:
    c = Confidence(1, N_EXPERT, min_precision=0.0)
    assert all(len(f) == 2 for f in passes(c, 300, second_is_right=False)[10:])


def test_only_the_last_forecast_of_a_layer_is_judged() -> None:
    c = Confidence(2, N_EXPERT, min_precision=0.5)
    c.worthwhile(1, [3])
    c.worthwhile(1, [4])
    c.judge(0, [0] * N_EXPERT)  # another layer
    c.judge(1, [int(e == 4) for e in range(N_EXPERT)])
    assert c.precision(0) == 1.0
    c.judge(1, [0] * N_EXPERT)  # no forecast since
    assert c.precision(0) == 1.0


def test_a_forecast_without_scores_stays_without() -> None:
    assert Confidence(1, N_EXPERT, 0.5).worthwhile(0, [3, 1]) == ([3, 1], [])


def test_absent_experts_are_judged_by_how_long_ago_they_were_used() -> None:
    """Experts that the layer used recently are right; experts never used are wrong."""
    c = Confidence(1, N_EXPERT, min_precision=0.5)
    kept: list[int] = []
    for i in range(400):
        c.gate_passed(waited=True)
        lately, never = i % 4, 8 + i % 8
        kept, _ = c.worthwhile(0, [lately, never], absent=[lately, never])
        c.judge(0, [int(e == lately) for e in range(N_EXPERT)])
    assert kept == [399 % 4]
    assert c.precision_of_absent(4) > 0.99 and c.precision_of_absent(0) < 0.01
    assert c.precision(1) < 0.5
    both, _ = c.worthwhile(0, [8, 0], absent=[])
    assert both == [8], "its rank is trusted, and it need not be fetched"


def test_absent_experts_may_be_wrong_more_often_while_the_link_has_time() -> None:
    """One that is right a quarter of the time is fetched then, one that never is right is not."""
    c = Confidence(1, N_EXPERT, min_precision=0.5)
    both = [int(e < 2) for e in range(N_EXPERT)]
    for i in range(600):
        for _ in range(3):  # the rank stays trusted
            c.worthwhile(0, [1], absent=[])
            c.judge(0, both)
        c.worthwhile(0, [0, 8], absent=[0, 8])
        c.judge(0, both if i % 4 == 3 else [0] * N_EXPERT)
    c.judge(0, both)
    assert 0.23 < c.precision_of_absent(1) < 0.27
    least = c.worthwhile(0, [0, 8], absent=[0, 8])[0]
    for _ in range(1000):
        c.gate_passed(waited=True)
    full = c.worthwhile(0, [0, 8], absent=[0, 8])[0]
    assert (least, full) == ([0], [])


def test_each_age_of_an_absent_expert_is_judged_with_those_of_its_class() -> None:
    """Ages 2 and 3 are one class, 4 to 7 the next; 128 or more is as never."""
    ages = [(1, 1, 2), (2, 3, 4), (3, 2, 1), (4, 7, 8), (127, 64, 128), (128, 0, 127)]
    for age, same, other in ages:
        c = Confidence(1, N_EXPERT, min_precision=0.5)
        c.judge(0, [int(e == 3) for e in range(N_EXPERT)])
        for _ in range(age - 1):
            c.judge(0, [0] * N_EXPERT)
        c.worthwhile(0, [3], absent=[3])
        c.judge(0, [0] * N_EXPERT)
        assert c.precision_of_absent(same) == pytest.approx(63 / 64)
        assert c.precision_of_absent(other) == 1.0
        assert c.precision(0) == pytest.approx(255 / 256)


@pytest.mark.parametrize("waits", [False, True])
def test_the_core_counts_a_cancelled_copy_for_the_next_gate_only(waits: bool) -> None:
    """While copies wait at every gate, absent experts have to be right more often."""
    d = Driver(n_slot=4, n_layer=1, n_expert=N_EXPERT)

    def one_token(depth: int) -> list[tuple[int, int]]:
        d.core.tune(Tuning(depth=depth, min_precision=0.5))
        d.begin()
        ordered = d.predicted(0, 9).low
        cancelled = d.routed(0, 0).cancelled
        assert cancelled == ordered, "no copy has begun"
        if d.flying:
            d.arrive(0)
        d.computed(0)
        return ordered

    assert one_token(depth=1) == chunks_of(9)
    for _ in range(85):  # never right: the precision falls to about a quarter
        one_token(depth=int(waits))
    assert one_token(depth=1) == ([] if waits else chunks_of(9))
