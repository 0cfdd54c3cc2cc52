"""MoEpic's statistics and configurator: compared with the reference, and their properties."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import allocations as plain

from backend._native import (
    MoepicStatistics,
    MoepicTimes,
    Shape,
    Spec,
    allocate,
    moepic_configure,
    moepic_cut,
    moepic_judge,
    moepic_stall_us,
)


def run(
    seed: int, n_layer: int, n_expert: int, k: int, n_pass: int, bias: float = 1.0
) -> tuple[MoepicStatistics, plain.Statistics]:
    """Play the same random passes to both, with forecasts that are right half the time."""
    rng = random.Random(seed)
    shipped, slow = MoepicStatistics(n_layer, n_expert), plain.Statistics(n_layer, n_expert)
    hot = [rng.sample(range(n_expert), n_expert) for _ in range(n_layer)]
    for _ in range(n_pass):
        n_token = rng.choice([1, 1, 1, 1, 3])
        for layer in range(n_layer):
            ids: list[int] = []
            for _ in range(n_token):
                weights = [1.0 / (1 + hot[layer].index(e)) ** bias for e in range(n_expert)]
                token: list[int] = []
                while len(token) < k:
                    e = rng.choices(range(n_expert), weights)[0]
                    if e not in token:
                        token.append(e)
                ids += token
            if rng.random() < 0.8:
                forecast = rng.sample(range(n_expert), min(n_expert, k + 1))
                forecast[0] = (
                    ids[0] if rng.random() < 0.5 and ids[0] not in forecast else forecast[0]
                )
                shipped.forecast(layer, forecast)
                slow.forecast(layer, forecast)
            shipped.routed(layer, ids, n_token)
            slow.routed(layer, ids, n_token)
    return shipped, slow


def problem(
    slow: plain.Statistics,
    k: int,
    chunk_bytes: list[list[int]],
    n_cut: list[int],
    times: MoepicTimes,
) -> plain.Problem:
    return plain.Problem(
        slow,
        k,
        [sum(chunks) for chunks in chunk_bytes],
        n_cut,
        [len(chunks) * times.chunk_us for chunks in chunk_bytes],
        [sum(chunks) * times.byte_us for chunks in chunk_bytes],
        times.expert_us,
        times.layer_us,
        times.head_us,
        times.cut_us,
    )


@pytest.mark.parametrize("seed", range(6))
def test_statistics_equal_the_plain_ones(seed: int) -> None:
    n_layer, n_expert, k = 2, 5 + seed, 1 + seed % 3
    shipped, slow = run(seed, n_layer, n_expert, k, n_pass=70)
    assert shipped.n_token == slow.now[0]
    for layer in range(n_layer):
        for c in range(n_expert + 1):
            assert shipped.hit_rate(layer, c) == pytest.approx(slow.H(layer, c), abs=1e-12)
            for y in range(shipped.n_rank):
                expected = slow.PH(layer, y, c)
                assert shipped.predicted_hit_rate(layer, y, c) == pytest.approx(expected, abs=1e-12)
        for y in range(shipped.n_rank):
            assert shipped.accuracy(layer, y) == pytest.approx(slow.P(layer, y), abs=1e-12)


def test_priority_is_count_and_recency() -> None:
    """An expert used twice outranks one used once for as long as Eq. 4 says: 64 tokens."""
    for gap, rank in ((63, 1), (64, 1), (65, 0)):
        statistics = MoepicStatistics(1, 3)
        for e in [0, 0] + [2] * (gap - 1) + [1]:
            statistics.routed(0, [e])
        # Expert 2 was used far more often, so it is first; then 0 or 1.
        statistics.routed(0, [1])
        found = [int(x) for x in statistics.reuse()]
        before = MoepicStatistics(1, 3)
        for e in [0, 0] + [2] * (gap - 1) + [1]:
            before.routed(0, [e])
        delta = [a - int(b) for a, b in zip(found, before.reuse(), strict=True)]
        # Equal at 64: the lower index is first.
        assert delta == ([0, 0, 1] if rank == 1 else [0, 1, 0])


def test_a_cache_of_all_experts_always_hits() -> None:
    shipped, _ = run(1, 2, 6, 2, n_pass=30)
    for layer in range(2):
        assert shipped.hit_rate(layer, 0) == 0
        assert shipped.hit_rate(layer, 6) == 1
        rates = [shipped.hit_rate(layer, c) for c in range(7)]
        assert rates == sorted(rates)


def test_statistics_survive_being_saved() -> None:
    first, _ = run(3, 2, 6, 2, n_pass=30)
    second = MoepicStatistics(2, 6)
    second.restore(first.state())
    for s in (first, second):
        s.forecast(1, [1, 2])
        s.routed(1, [0, 1])
    assert {k: list(v) for k, v in first.state().items()} == {
        k: list(v) for k, v in second.state().items()
    }


def test_statistics_of_another_model_are_refused() -> None:
    with pytest.raises(ValueError, match="another shape"):
        MoepicStatistics(2, 6).restore(MoepicStatistics(2, 7).state())
    with pytest.raises(ValueError, match="no used"):
        MoepicStatistics(2, 6).restore({})
    shape = Shape(6, 2, [[60]] * 3)
    with pytest.raises(ValueError, match="another shape"):
        moepic_configure(MoepicStatistics(2, 6), shape, MoepicTimes(1, 1), 100)


def test_nonsense_is_ignored() -> None:
    statistics = MoepicStatistics(1, 4)
    statistics.forecast(7, [1])
    statistics.forecast(0, [-1, 9, 2])
    statistics.routed(-1, [0])
    statistics.routed(0, [-5, 2, 99])
    statistics.routed(0, [], 0)
    assert statistics.n_token == 1
    assert statistics.accuracy(0, 2) == 1
    assert statistics.hit_rate(9, 1) == statistics.accuracy(0, 99) == 0


TIMES = st.builds(
    MoepicTimes,
    expert_us=st.sampled_from([0.0, 3.0, 40.0]),
    layer_us=st.sampled_from([0.0, 5.0, 200.0]),
    head_us=st.sampled_from([0.0, 100.0]),
    chunk_us=st.sampled_from([0.0, 2.0]),
    byte_us=st.sampled_from([0.0, 0.3, 2.0]),
    cut_us=st.sampled_from([0.0, 0.0, 7.0]),
)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n_layer=st.integers(1, 4),
    n_expert=st.integers(1, 7),
    k=st.integers(1, 3),
    cuts=st.lists(st.sampled_from([1, 2, 3, 4, 12]), min_size=4, max_size=4),
    large=st.lists(st.booleans(), min_size=4, max_size=4),
    rate=st.floats(0, 1.1),
    times=TIMES,
    n_pass=st.sampled_from([0, 1, 40]),
)
@example(0, 1, 1, 1, [1] * 4, [False] * 4, 0.0, MoepicTimes(1, 1, 1, 1, 1), 0)
@example(1, 3, 4, 4, [4] * 4, [False] * 4, 0.0, MoepicTimes(1, 1, 1, 1, 1), 40)
def test_configurator_equals_the_plain_one(
    seed: int,
    n_layer: int,
    n_expert: int,
    k: int,
    cuts: list[int],
    large: list[bool],
    rate: float,
    times: MoepicTimes,
    n_pass: int,
) -> None:
    k = min(k, n_expert)
    shipped, slow = run(seed, n_layer, n_expert, k, n_pass)
    chunk_bytes = [[24, 24, 36] if large[i] else [12, 12, 12] for i in range(n_layer)]
    n_cut = cuts[:n_layer]
    kinds = [int(large[i]) for i in range(n_layer)]
    shape = Shape(n_expert, k, chunk_bytes, n_cut)
    p = problem(slow, k, chunk_bytes, n_cut, times)
    budget = int(rate * n_expert * sum(p.expert_bytes))

    result = moepic_configure(shipped, shape, times, budget, 0.05)
    expected = plain.configure(p, budget, kinds, 0.05)
    assert result.n_step == expected.n_step
    assert result.budget_bytes == pytest.approx(expected.V)
    assert result.top_share == pytest.approx(expected.theta)
    assert result.n_slot == expected.n_slot
    assert result.stall_us == pytest.approx(expected.stall_us, abs=1e-9)
    layout = result.layout
    layout.validate(shape)
    assert layout.bytes(shape) == expected.bytes
    assert moepic_stall_us(shipped, shape, times, layout) == result.stall_us
    for i in range(n_layer):
        assert layout.pools[layout.layers[i].pool[0]].n_slot == expected.n_slot[i]
        assert k <= expected.n_slot[i] <= n_expert

    # Never more than the budget, except for the minimum: K tops of the smallest cut in
    # each layer, and a bottom of each kind.
    least = sum(p.least(i) for i in range(n_layer))
    least += sum(
        max(
            p.expert_bytes[i] - p.expert_bytes[i] // n_cut[i]
            for i in range(n_layer)
            if kinds[i] == kind
        )
        for kind in set(kinds)
    )
    assert layout.bytes(shape) <= max(budget, least)


WINDOW = MoepicTimes(expert_us=1, layer_us=1, byte_us=1)
ONE_LAYER = Shape(8, 2, [[12]], [3])


def test_nothing_prefetched_and_everything_whole_is_cache_only() -> None:
    shipped, slow = run(5, 1, 8, 2, n_pass=60)
    for c in range(9):
        ready = moepic_judge(shipped, ONE_LAYER, WINDOW, 0, c, 1.0, 0.0).ready
        assert ready == pytest.approx(2 * slow.H(0, c))


def test_nothing_cached_is_prefetch_only() -> None:
    """With theta = 0 it does not matter what would be cached; whole experts are prefetched."""
    shipped, slow = run(6, 1, 8, 2, n_pass=60)
    for c in range(9):
        for n_prefetch in range(4):
            ready = moepic_judge(shipped, ONE_LAYER, WINDOW, 0, c, 0.0, n_prefetch * 12.0).ready
            assert ready == pytest.approx(sum(slow.P(0, y) for y in range(n_prefetch)))


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), window_us=st.floats(0, 100))
def test_more_budget_never_makes_a_layer_stall_more(seed: int, window_us: float) -> None:
    shipped, _ = run(seed, 1, 8, 2, n_pass=40)
    before = float("inf")
    for budget in range(0, 110, 3):
        cut = moepic_cut(shipped, ONE_LAYER, WINDOW, 0, budget, window_us)
        assert 0 <= cut.stall_us <= before
        before = cut.stall_us
        assert cut.n_cached * cut.top_share * 12 <= max(budget, 2 * 12 / 3) + 1e-9
        assert (cut.top_share * 3) % 1 == pytest.approx(0)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), n_layer=st.integers(1, 4), byte_us=st.floats(0.01, 2))
def test_more_budget_never_predicts_more_stall_where_nothing_is_prefetched(
    seed: int, n_layer: int, byte_us: float
) -> None:
    """With forecasts a layer that stalls less leaves the next one a shorter window (Eq. 7)."""
    rng = random.Random(seed)
    statistics = MoepicStatistics(n_layer, 8)
    for _ in range(60):
        for layer in range(n_layer):
            statistics.routed(layer, rng.sample(range(1 + rng.randrange(1, 8)), 2))
    shape = Shape(8, 2, [[12]] * n_layer, [1] * n_layer)
    times = MoepicTimes(expert_us=1, layer_us=5, byte_us=byte_us)
    before = float("inf")
    for budget in range(0, 100 * n_layer, 12 * n_layer):
        stall_us = moepic_configure(statistics, shape, times, budget).stall_us
        assert stall_us <= before + 1e-9
        before = stall_us


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), n_slot=st.integers(3, 8), byte_us=st.floats(0.01, 2))
def test_the_plan_is_hardly_predicted_worse_than_uniform(
    seed: int, n_slot: int, byte_us: float
) -> None:
    """Its own accounts of slots and buffers, at the edge of an expert, are the only difference."""
    n_layer, n_expert, k = 4, 8, 2
    shipped, _ = run(seed, n_layer, n_expert, k, n_pass=40)
    shape = Shape(n_expert, k, [[20, 20, 20]] * n_layer, [4] * n_layer)
    times = MoepicTimes(expert_us=4, layer_us=10, head_us=20, byte_us=byte_us)
    budget = n_slot * n_layer * 60
    planned_us = moepic_configure(shipped, shape, times, budget).stall_us
    for theta in (0.5, 1.0):
        uniform = allocate(Spec("uniform", {"top_share": theta}), shape, n_slot)
        uniform_us = moepic_stall_us(shipped, shape, times, uniform)
        assert planned_us <= uniform_us + 60 * byte_us


def test_cutting_costs_what_it_costs() -> None:
    """Where a second part takes longer than it saves, nothing is cut."""
    turns = MoepicStatistics(1, 16)
    for i in range(320):
        turns.routed(0, [2 * i % 16, (2 * i + 1) % 16])
    shape = Shape(16, 2, [[60]], [4])
    for cut_us, is_cut in ((0.0, True), (50.0, True), (80.0, False)):
        times = MoepicTimes(1, 1, byte_us=1, cut_us=cut_us)
        assert moepic_configure(turns, shape, times, 10 * 60).layout.any_cut() == is_cut


def test_places_that_do_not_exist_are_refused() -> None:
    statistics = MoepicStatistics(1, 8)
    for layer, n_cached in ((1, 0), (-1, 0), (0, 9), (0, -1)):
        with pytest.raises(ValueError, match="no such layer"):
            moepic_judge(statistics, ONE_LAYER, WINDOW, layer, n_cached, 0.5, 1.0)


def test_a_layer_that_misses_more_gets_more() -> None:
    """Layer 0 always uses the same two experts, layer 1 any: the budget moves to layer 1."""
    rng = random.Random(7)
    statistics = MoepicStatistics(2, 16)
    for _ in range(300):
        statistics.routed(0, [3, 4])
        statistics.routed(1, rng.sample(range(16), 2))
    shape = Shape(16, 2, [[60]] * 2, [1, 1])
    result = moepic_configure(statistics, shape, MoepicTimes(1, 1, byte_us=1), 16 * 60)
    assert result.n_slot == [2, 14]


def test_without_statistics_it_stays_where_it_starts() -> None:
    shape = Shape(16, 2, [[60]] * 3, [4] * 3)
    result = moepic_configure(
        MoepicStatistics(3, 16), shape, MoepicTimes(1, 1, byte_us=1), 5 * 3 * 60
    )
    uniform = allocate(Spec("moepic"), shape, 5)
    assert result.top_share == [0.5] * 3
    assert result.n_step == 0
    assert result.layout.bytes(shape) <= 5 * 3 * 60
    slots = [pool.n_slot for pool in uniform.pools if not pool.buffer]
    assert [abs(a - b) <= 1 for a, b in zip(result.n_slot, slots, strict=True)] == [True] * 3


def test_it_cuts_where_more_experts_hit_and_only_there() -> None:
    """Experts in turn never hit, unless the tops of all are kept; some hot ones hit when whole."""
    turns, hot = MoepicStatistics(1, 16), MoepicStatistics(1, 16)
    for i in range(320):
        turns.routed(0, [2 * i % 16, (2 * i + 1) % 16])
        hot.routed(0, [0, 1 + i % 3])
    shape = Shape(16, 2, [[60]], [4])
    times = MoepicTimes(1, 1, byte_us=1)
    cut = moepic_configure(turns, shape, times, 10 * 60)
    assert (cut.top_share, cut.n_slot) == ([0.5], [16])
    assert moepic_configure(hot, shape, times, 10 * 60).top_share == [1]


@pytest.mark.parametrize("bad", [{"expert_us": -1.0}, {"byte_us": float("nan")}])
def test_impossible_times_are_refused(bad: dict[str, float]) -> None:
    times = MoepicTimes(**{"expert_us": 1.0, "layer_us": 1.0, **bad})
    shape = Shape(4, 2, [[60]])
    with pytest.raises(ValueError, match="time"):
        moepic_configure(MoepicStatistics(1, 4), shape, times, 100)
    with pytest.raises(ValueError, match="time"):
        moepic_stall_us(MoepicStatistics(1, 4), shape, times, allocate(Spec("uniform"), shape, 2))
    with pytest.raises(ValueError, match="granularity"):
        moepic_configure(MoepicStatistics(1, 4), shape, MoepicTimes(1, 1), 100, 0.0)
