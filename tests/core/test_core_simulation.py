"""The real methods' cores, simulated deterministically; `make attack` runs 10,000 other seeds."""

from __future__ import annotations

from collections import Counter

from simulation import simulate


def test_no_command_is_illegal_and_every_layer_ends() -> None:
    ends = Counter(simulate(seed, n_pass=3) for seed in range(200))
    assert ends["all passes whole"] > 20 and ends["passes given up"] > 5
    assert any("hybrid" in end for end in ends) and any("with a store" in end for end in ends)


def test_a_slot_that_the_host_no_longer_needs_is_given_to_a_waiting_expert() -> None:
    """The attack found that a layer of one slot waited for ever (core:180072)."""
    assert simulate(180072).startswith("hybrid")  # and ends
