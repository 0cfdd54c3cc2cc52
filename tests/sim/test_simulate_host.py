"""The simulator with a host that computes beside the device: timelines computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sim_tools import future_of, random_routings, simulate

from backend._native import Composition, Core, Hybrid, Layout, Shape, Spec

SHAPE = Shape(8, 4, [[1000]])
ROUTING = [[[[0, 1, 2, 3]]]]  # one pass, one layer, one token


def core_of(hybrid: Hybrid) -> Core:
    ordered = Spec("ordered")
    return Core(
        SHAPE,
        Layout.per_layer([4]),
        Composition(prefill=ordered, decode=ordered, hybrid=hybrid),
    )


def time_us(hybrid: Hybrid, routing: object = ROUTING, **machine: float) -> float:
    given = {"link_bytes_per_us": 10.0, "host_expert_us": 100.0, **machine}
    future = future_of(routing)  # type: ignore[arg-type]
    return float(simulate(core_of(hybrid), future, **given).decode.time_us)


def test_equal_speeds_halve_the_time() -> None:
    """Four experts are missing. Link and host take 100 us for each."""
    assert time_us(Hybrid.off) == time_us(Hybrid.host_only) == 400
    assert time_us(Hybrid.by_speed) == 200


@pytest.mark.parametrize(("slower", "expected"), [(1, 200), (3, 300), (4, 400), (16, 400)])
def test_never_slower_than_the_better_one(slower: int, expected: float) -> None:
    assert time_us(Hybrid.by_speed, link_bytes_per_us=10.0 / slower) == expected


def test_the_device_computes_meanwhile_what_arrives() -> None:
    """Two are copied by 200 us. The device computes the second in 30, and handing over takes 20."""
    us = time_us(Hybrid.by_speed, expert_us=30.0, host_us=20.0)
    assert us == 230


def test_waiting_for_the_host_is_no_stall() -> None:
    future = future_of(ROUTING)
    result = simulate(
        core_of(Hybrid.host_only), future, link_bytes_per_us=10.0, host_expert_us=100.0
    )
    assert (result.decode.stall_us, result.decode.compute_us) == (0, 400)
    assert list(result.on_host) == [4] and list(result.host_rows) == [4]


def test_without_a_host_nothing_changes() -> None:
    assert time_us(Hybrid.by_speed, host_expert_us=0.0) == 400


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0, 16.0])
def test_beside_the_better_of_both_on_a_trace(ratio: float) -> None:
    """With a quarter cached, it is 1.3 times as fast as the better one if both are about equal.

    Experts are not split: if a layer lacks one expert, there is nothing to share.
    """
    chance = np.random.default_rng(3)
    future = future_of(random_routings(chance, 60, 3, 32, 8, n_token=6), prefill=(0,))
    shape, ordered = Shape(32, 8, [[1000]] * 3), Spec("ordered")
    machine = {"expert_us": 5.0, "dense_us": 10.0, "host_us": 5.0, "host_expert_us": 100.0}

    def time_us(hybrid: Hybrid) -> float:
        core = Core(
            shape,
            Layout.per_layer([8] * 3),
            Composition(prefill=ordered, decode=ordered, hybrid=hybrid),
        )
        link = 10.0 / ratio
        return float(simulate(core, future, link_bytes_per_us=link, **machine).decode.time_us)

    copying, computing, both = map(time_us, (Hybrid.off, Hybrid.host_only, Hybrid.by_speed))
    assert both <= 1.03 * min(copying, computing)
    if ratio == 1:
        assert both <= min(copying, computing) / 1.3


def test_a_link_slower_than_was_told() -> None:
    """Each copy begins late, unmeasured. The host computes what does not arrive in time."""
    slow = {"link_bytes_per_us": 5.0, "link_latency_us": 1800.0}
    assert time_us(Hybrid.off, **slow) == 8000
    assert time_us(Hybrid.by_speed, **slow) == 400


def test_a_host_slower_than_was_told() -> None:
    """A host that begins late computes fewer experts while the link copies its share."""
    told = {"host_us": 1000.0, "expert_us": 1.0}
    assert time_us(Hybrid.host_only, **told) == 1400
    assert time_us(Hybrid.by_speed, **told) < 1.03 * time_us(Hybrid.off, **told)
