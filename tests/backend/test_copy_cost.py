"""What a copy costs computing is measured from the tokens."""

from __future__ import annotations

import random

import pytest

from backend.methods.copy_cost import FIRST, FIRST_SAVED, CopyCost
from backend.methods.cost import PassCost

EXPERT_BYTES = 3_000_000
READ_S = 0.001
"""To read an expert."""


def tokens(
    n: int, *, lost: float, saved: float = 0.5, noise: float = 0.0, wave_s: float = 0.0
) -> list[PassCost]:
    """Return tokens in which computing loses this share of the time of copies beside it.

    saved: the stall of a missing expert, as a share of its read. wave_s: what it costs besides.
    """
    dice = random.Random(1)
    costs = []
    for _ in range(n):
        missing, ahead = dice.randint(2, 8), dice.randint(0, 8)
        stall_s = missing * READ_S * saved
        busy_s = (missing + ahead) * READ_S
        compute_s = 0.02 + lost * (busy_s - stall_s) + wave_s * missing + dice.gauss(0, noise)
        costs.append(
            PassCost(
                n_token=1,
                wall_s=compute_s + stall_s,
                compute_s=compute_s,
                stall_s=stall_s,
                link_busy_s=busy_s,
                bytes_read=(missing + ahead) * EXPERT_BYTES,
                misses=missing,
            )
        )
    return costs


def value(costs: list[PassCost]) -> float:
    cost = CopyCost(EXPERT_BYTES)
    for token in costs:
        cost.observe(token)
    return cost.value


@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("saved", [0.4, 0.8])
def test_the_cost_is_what_computing_loses_over_what_a_read_saves(lost: float, saved: float) -> None:
    assert value(tokens(256, lost=lost, saved=saved)) == pytest.approx(lost / saved, abs=0.06)


def test_what_a_missing_expert_costs_besides_is_not_the_copys() -> None:
    assert value(tokens(256, lost=0.2, wave_s=0.002)) == pytest.approx(0.4, abs=0.06)


def test_little_and_noisy_evidence_changes_little() -> None:
    first = FIRST / FIRST_SAVED
    assert value(tokens(31, lost=0.0)) == first
    assert value(tokens(256, lost=0.0, saved=FIRST_SAVED, noise=0.02)) == pytest.approx(first, 0.4)


def test_a_change_is_told_once() -> None:
    cost = CopyCost(EXPERT_BYTES)
    told = [cost.observe(token) for token in tokens(512, lost=0.0)]
    assert 1 <= sum(told) <= 2
    assert not any(cost.observe(PassCost()) for _ in range(64)), "no token"


def test_without_copies_it_stays() -> None:
    quiet = PassCost(n_token=1, wall_s=0.02, compute_s=0.02)
    assert value([quiet] * 300) == FIRST / FIRST_SAVED
