"""Forecasts are fetched only as far as their ranks have proved right; vain ones leave next."""

from __future__ import annotations

from backend._native import Copy, Core, OrderedOptions, Phase, Shape


def a_core(min_precision: float, n_slot: int = 8) -> Core:
    shape = Shape(8, 1, [[10], [10]])
    return Core(shape, [n_slot] * 2, OrderedOptions(), min_precision=min_precision)


def judge(core: Core, forecast: list[int], needed: int, times: int) -> None:
    """Passes in which layer 1 is forecast and then needs one expert."""
    for _ in range(times):
        core.pass_began(Phase.decode)
        obey(core, core.predicted(1, forecast))
        obey(core, core.routed(1, [needed]))


def obey(core: Core, commands: list) -> None:
    """Every copy arrives at once, everything ready is computed."""
    todo = list(commands)
    while todo:
        command = todo.pop(0)
        name = type(command).__name__
        if name == "Copy":
            todo += core.copied(command.ticket)
        elif name == "Compute":
            todo += core.computed(command.layer, command.expert)


def fetched(core: Core, forecast: list[int]) -> list[int]:
    return [c.expert for c in core.predicted(1, forecast) if isinstance(c, Copy)]


def test_ranks_start_trusted() -> None:
    assert fetched(a_core(0.9), [3, 4]) == [3, 4]


def test_a_rank_that_is_wrong_too_often_is_dropped_and_the_others_are_not() -> None:
    core = a_core(0.5)
    judge(core, [0, 1], needed=0, times=300)
    assert fetched(core, [2, 3]) == [2]


def test_without_a_limit_nothing_is_dropped() -> None:
    core = a_core(0.0)
    judge(core, [0, 1], needed=0, times=300)
    assert fetched(core, [2, 3]) == [2, 3]


def test_a_rank_that_is_right_again_comes_back() -> None:
    core = a_core(0.5)
    judge(core, [0, 1], needed=0, times=300)
    judge(core, [0, 1], needed=1, times=300)
    assert fetched(core, [2, 3]) == [3]


def test_what_was_fetched_in_vain_leaves_before_what_was_needed() -> None:
    core = a_core(0.0, n_slot=2)
    core.pass_began(Phase.decode)
    obey(core, core.routed(1, [0]))
    obey(core, core.predicted(1, [5]))  # newer than 0, but
    obey(core, core.routed(1, [0]))  # not needed
    obey(core, core.routed(1, [7]))
    assert {expert for _, expert, _ in core.slots(1)} == {0, 7}
