"""Allocations by name: within the budget, at least what computes, and as asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend._native import Layout, Shape, Spec, allocate, allocation_names

SHAPES = st.builds(
    lambda n_expert, k, layers, joined: Shape(
        n_expert,
        min(k, n_expert),
        [[24, 24, 36] if large else [12, 12, 12] for large, _ in layers],
        [n_cut for _, n_cut in layers],
        [0] * len(layers) if joined else [],
    ),
    n_expert=st.integers(1, 40),
    k=st.integers(1, 8),
    layers=st.lists(
        st.tuples(st.booleans(), st.sampled_from([1, 2, 3, 4, 12])), min_size=1, max_size=6
    ),
    joined=st.booleans(),
)
RATES = st.one_of(st.floats(0, 1.2), st.sampled_from([0.0, 0.06, 0.17, 1 / 3, 0.5, 1.0]))


def all_bytes(shape: Shape) -> int:
    return sum(shape.n_expert * shape.expert_bytes(i) for i in range(shape.n_layer))


def n_slots(layout: Layout) -> list[int]:
    """Return the slots for tops of each layer; 0 where it keeps nothing."""
    pools = [layer.pool[0] for layer in layout.layers]
    return [layout.pools[p].n_slot if p >= 0 else 0 for p in pools]


def slot_bytes(shape: Shape, layout: Layout, pool: int) -> int:
    """Return the bytes of a slot: the sum over chunks of the largest that it may hold."""
    largest = [0, 0, 0]
    for i, layer in enumerate(layout.layers):
        for part in (0, 1):
            if layer.pool[part] != pool:
                continue
            for c, whole in enumerate(shape.chunk_bytes[i]):
                top = round(whole * layer.top_share)
                largest[c] = max(largest[c], whole - top if part else top)
    return sum(largest)


def check(shape: Shape, layout: Layout, rate: float) -> None:
    """Check the properties of every allocation."""
    layout.validate(shape)
    k = shape.n_expert_used
    for layer, n_top in zip(layout.layers, n_slots(layout), strict=True):
        needs = [k, 1] if layer.top_share > 0 else [0, k]
        for part in (0, 1):
            if layer.pool[part] >= 0:
                assert layout.pools[layer.pool[part]].n_slot >= needs[part]
        assert n_top <= shape.n_expert * shape.n_layer
        if layer.is_cut:
            assert layout.pools[layer.pool[1]].buffer
    used = sum(pool.n_slot * slot_bytes(shape, layout, p) for p, pool in enumerate(layout.pools))
    assert used == layout.bytes(shape)
    least = 0
    for p in range(len(layout.pools)):
        tops = any(layer.pool[0] == p for layer in layout.layers)
        nothing_kept = any(layer.pool[1] == p and layer.top_share == 0 for layer in layout.layers)
        least += slot_bytes(shape, layout, p) * (k if tops or nothing_kept else 1)
    assert used <= max(min(rate, 1.0) * all_bytes(shape) * (1 + 1e-9), least)


@settings(max_examples=150)
@given(SHAPES, RATES, st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])))
@example(Shape(1, 1, [[1]]), 0.0, 1.0)
def test_uniform(shape: Shape, rate: float, theta: float) -> None:
    layout = allocate(Spec("uniform", {"top_share": theta}), shape, rate)
    check(shape, layout, rate)
    tops = n_slots(layout)
    if theta == 0:
        assert tops == [0] * shape.n_layer
        assert all(pool.buffer for pool in layout.pools)
        return
    assert len(set(tops)) == 1
    for i, layer in enumerate(layout.layers):
        asked = max(1, math.floor(theta * shape.cuts(i) + 0.5)) / shape.cuts(i)
        if tops[0] < shape.n_expert:
            assert layer.top_share == pytest.approx(asked)
        else:  # all tops fit, so they may be larger
            assert layer.top_share >= asked - 1e-9


@settings(max_examples=60)
@given(SHAPES, RATES)
def test_uniform_of_whole_experts_is_the_rate_s_share(shape: Shape, rate: float) -> None:
    layout = allocate(Spec("uniform"), shape, rate)
    n = min(max(math.floor(rate * shape.n_expert + 1e-9), shape.n_expert_used), shape.n_expert)
    assert n_slots(layout) == [n] * shape.n_layer
    assert not layout.any_cut()
    assert len(layout.pools) == shape.n_layer


def test_tops_grow_where_all_of_them_fit() -> None:
    """At most N experts can be kept, so that theta is at least V / N."""
    shape = Shape(16, 2, [[64]] * 4, [8] * 4)
    layout = allocate(Spec("uniform", {"top_share": 0.25}), shape, 0.8)
    assert n_slots(layout) == [16] * 4
    assert {layer.top_share for layer in layout.layers} == {0.75}
    whole = allocate(Spec("uniform", {"top_share": 0.25}), shape, 1.0)
    assert not whole.any_cut()


def test_bottoms_pass_through_one_buffer_of_their_kind() -> None:
    shape = Shape(16, 2, [[64], [128], [64]], [4, 4, 1])
    layout = allocate(Spec("uniform", {"top_share": 0.5}), shape, 0.6)
    first, second, third = layout.layers
    assert third.pool[1] == -1  # it cannot be cut
    assert first.pool[1] != second.pool[1]  # of different kinds
    assert [pool.n_slot for pool in layout.pools if pool.buffer] == [4, 4]


@settings(max_examples=60)
@given(SHAPES, RATES, st.booleans())
def test_one_pool(shape: Shape, rate: float, buffer: bool) -> None:
    layout = allocate(Spec("one_pool", {"buffer": float(buffer)}), shape, rate)
    check(shape, layout, rate)
    assert not layout.any_cut()
    for a, first in enumerate(layout.layers):
        for b, second in enumerate(layout.layers):
            same = (
                shape.kind[a] == shape.kind[b]
                if shape.kind
                else (shape.chunk_bytes[a] == shape.chunk_bytes[b])
            )
            assert (first.pool == second.pool) == same
    assert {pool.buffer for pool in layout.pools} == {buffer}


def test_one_pool_has_what_uniform_has_in_all() -> None:
    shape = Shape(32, 4, [[100]] * 8)
    layout = allocate(Spec("one_pool"), shape, 0.17)
    assert [pool.n_slot for pool in layout.pools] == [math.floor(0.17 * 32 * 8)]


@settings(max_examples=60)
@given(SHAPES, RATES)
def test_stream(shape: Shape, rate: float) -> None:
    layout = allocate(Spec("stream"), shape, rate)
    check(shape, layout, rate)
    assert all(pool.buffer for pool in layout.pools)
    assert all(pool.n_slot <= max(2 * shape.n_expert_used, 1) for pool in layout.pools)


def test_stream_takes_no_more_at_a_higher_rate() -> None:
    shape = Shape(32, 4, [[100]] * 8)
    for rate, k_slots, n_slot in ((0.5, None, 8), (0.5, 5, 5), (0.0, None, 4), (0.02, None, 5)):
        numbers = {} if k_slots is None else {"k_slots": float(k_slots)}
        layout = allocate(Spec("stream", numbers), shape, rate)
        assert [pool.n_slot for pool in layout.pools] == [n_slot]


@settings(max_examples=60)
@given(SHAPES, RATES, st.integers(0, 10**6))
def test_planned_by_shares(shape: Shape, rate: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {
        "share": rng.random(shape.n_layer, dtype=np.float32),
        "top_share": rng.choice(np.array([0, 0.3, 0.5, 1], np.float32), shape.n_layer),
    }
    layout = allocate(Spec("planned", {}, arrays), shape, rate)
    check(shape, layout, rate)
    for i, layer in enumerate(layout.layers):
        assert (layer.top_share == 0) == (arrays["top_share"][i] == 0)


def test_shares_divide_the_slots() -> None:
    shape = Shape(64, 2, [[10]] * 3)
    share = np.array([1, 2, 5], np.float32)
    layout = allocate(Spec("planned", {}, {"share": share}), shape, 0.25)
    assert n_slots(layout) == [6, 12, 30]


def test_planned_by_slots() -> None:
    shape = Shape(8, 2, [[12]] * 3, [2] * 3)
    arrays = {
        "n_slot": np.array([1, 5, 99], np.float32),
        "top_share": np.array([1, 0.5, 1], np.float32),
    }
    layout = allocate(Spec("planned", {}, arrays), shape, 1.0)
    assert n_slots(layout) == [2, 5, 8]
    assert [layer.is_cut for layer in layout.layers] == [False, True, False]
    with pytest.raises(ValueError, match="more memory than the cache rate"):
        allocate(Spec("planned", {}, arrays), shape, 0.4)


def test_moepic_starts_uniform_with_half_of_each_expert() -> None:
    shape = Shape(32, 4, [[48]] * 4, [4] * 4)
    start = allocate(Spec("moepic"), shape, 0.25)
    assert {layer.top_share for layer in start.layers} == {0.5}
    assert len(set(n_slots(start))) == 1
    plan = {"n_slot": np.array([4, 5, 6, 7], np.float32)}
    assert n_slots(allocate(Spec("moepic", {}, plan), shape, 0.25)) == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Spec("nothing"), "no allocation called nothing"),
        (Spec("uniform", {"top_share": 1.5}), "top_share is not a share"),
        (Spec("uniform", {"top_share": math.nan}), "top_share is not a share"),
        (Spec("stream", {"k_slots": 0.0}), "k_slots"),
        (Spec("stream", {"k_slots": math.nan}), "k_slots"),
        (Spec("planned"), "array called share"),
        (Spec("planned", {}, {"share": np.ones(3, np.float32)}), "does not fit the model"),
        (Spec("planned", {}, {"n_slot": np.array([-1, 2], np.float32)}), "no amounts"),
        (Spec("planned", {}, {"share": np.array([np.nan, 2], np.float32)}), "no amounts"),
        (Spec("planned", {"n_bottom": -1.0}, {"share": np.ones(2, np.float32)}), "n_bottom"),
    ],
)
def test_bad_specs_are_refused(spec: Spec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allocate(spec, Shape(8, 2, [[12]] * 2), 0.5)


@pytest.mark.parametrize("name", allocation_names())
def test_rates_that_are_none_are_refused(name: str) -> None:
    arrays = {"share": np.ones(2, np.float32)}
    for rate in (math.nan, -0.1):
        with pytest.raises(ValueError, match="cache rate"):
            allocate(Spec(name, {}, arrays), Shape(8, 2, [[12]] * 2), rate)
