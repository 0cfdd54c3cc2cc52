"""Ranks of a forecast that prove wrong are not fetched any more."""

from __future__ import annotations

from core_driver import Driver

from backend._native import Core, OrderedOptions, Shape

N_EXPERT = 16


def driver(min_precision: float) -> Driver:
    d = Driver(n_slot=N_EXPERT, n_layer=1, n_expert=N_EXPERT)
    d.core = Core(Shape(N_EXPERT, 2, [[10]]), [4], OrderedOptions(), min_precision=min_precision)
    return d


def one_pass(d: Driver, forecast: list[int], needed: list[int]) -> list[int]:
    """Returns what was fetched by the forecast."""
    d.begin()
    fetched = [e for e, _ in d.predicted(0, *forecast).low]
    d.settle()
    waiting = d.routed(0, *needed).compute
    while not d.core.idle():
        waiting = d.computed(waiting[0]).compute + waiting[1:] if waiting else d.end_next()
    return fetched


def passes(d: Driver, n: int, *, second_is_right: bool) -> list[list[int]]:
    """Forecasts of two experts, of which the first is always right; other ones every time."""
    found = []
    for i in range(n):
        first, second, other = (i * 3) % N_EXPERT, (i * 3 + 1) % N_EXPERT, (i * 3 + 2) % N_EXPERT
        needed = [first, second if second_is_right else other]
        found.append(one_pass(d, [first, second], needed))
    return found


def test_a_rank_that_is_always_wrong_is_dropped_after_a_while() -> None:
    d = driver(min_precision=0.5)
    fetched = passes(d, 300, second_is_right=False)
    assert len(fetched[0]) == 2  # trusted to begin with
    assert all(len(f) == 1 for f in fetched[250:])
    assert fetched[299] == [(299 * 3) % N_EXPERT]


def test_a_dropped_rank_comes_back_when_it_is_right_again() -> None:
    d = driver(min_precision=0.5)
    assert len(passes(d, 300, second_is_right=False)[-1]) == 1
    assert len(passes(d, 300, second_is_right=True)[-1]) == 2


def test_without_a_limit_every_rank_is_fetched() -> None:
    d = driver(min_precision=0.0)
    assert all(len(f) == 2 for f in passes(d, 300, second_is_right=False)[10:])
