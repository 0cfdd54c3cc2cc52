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
N_SLOTS = st.integers(0, 45)


def granted(shape: Shape, n_slot: int) -> int:
    """Return the slots of each layer whose memory an allocation may take."""
    return min(max(n_slot, shape.n_expert_used), shape.n_expert)


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


def check(shape: Shape, layout: Layout, n_slot: int) -> None:
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
    row_bytes = sum(shape.expert_bytes(i) for i in range(shape.n_layer))
    assert used <= granted(shape, n_slot) * row_bytes


@settings(max_examples=150)
@given(SHAPES, N_SLOTS, st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])))
@example(Shape(1, 1, [[1]]), 0, 1.0)
def test_uniform(shape: Shape, n_slot: int, theta: float) -> None:
    layout = allocate(Spec("uniform", {"top_share": theta}), shape, n_slot)
    check(shape, layout, n_slot)
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
@given(SHAPES, N_SLOTS)
def test_uniform_of_whole_experts_has_the_slots_asked_for(shape: Shape, n_slot: int) -> None:
    layout = allocate(Spec("uniform"), shape, n_slot)
    assert n_slots(layout) == [granted(shape, n_slot)] * shape.n_layer
    assert not layout.any_cut()
    assert len(layout.pools) == shape.n_layer


def test_tops_grow_where_all_of_them_fit() -> None:
    """At most N experts can be kept, so that theta is at least V / N."""
    shape = Shape(16, 2, [[64]] * 4, [8] * 4)
    layout = allocate(Spec("uniform", {"top_share": 0.25}), shape, 13)
    assert n_slots(layout) == [16] * 4
    assert {layer.top_share for layer in layout.layers} == {0.75}
    whole = allocate(Spec("uniform", {"top_share": 0.25}), shape, 16)
    assert not whole.any_cut()


def test_bottoms_pass_through_one_buffer_of_their_kind() -> None:
    shape = Shape(16, 2, [[64], [128], [64]], [4, 4, 1])
    layout = allocate(Spec("uniform", {"top_share": 0.5}), shape, 10)
    first, second, third = layout.layers
    assert third.pool[1] == -1  # it cannot be cut
    assert first.pool[1] != second.pool[1]  # of different kinds
    assert [pool.n_slot for pool in layout.pools if pool.buffer] == [4, 4]


@settings(max_examples=60)
@given(SHAPES, N_SLOTS, st.booleans())
def test_one_pool(shape: Shape, n_slot: int, buffer: bool) -> None:
    layout = allocate(Spec("one_pool", {"buffer": float(buffer)}), shape, n_slot)
    check(shape, layout, n_slot)
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
    layout = allocate(Spec("one_pool"), shape, 5)
    assert [pool.n_slot for pool in layout.pools] == [5 * 8]


@settings(max_examples=60)
@given(SHAPES, N_SLOTS)
def test_stream(shape: Shape, n_slot: int) -> None:
    layout = allocate(Spec("stream"), shape, n_slot)
    check(shape, layout, n_slot)
    assert all(pool.buffer for pool in layout.pools)
    assert all(pool.n_slot <= max(2 * shape.n_expert_used, 1) for pool in layout.pools)


def test_stream_takes_no_more_where_there_is_more() -> None:
    for n_layer, n_granted, k_slots, expected in (
        (8, 16, None, 8),
        (8, 16, 5, 5),
        (8, 0, None, 8),
        (1, 0, None, 4),
        (1, 5, None, 5),
        (1, 5, 2, 4),
    ):
        numbers = {} if k_slots is None else {"k_slots": float(k_slots)}
        layout = allocate(Spec("stream", numbers), Shape(32, 4, [[100]] * n_layer), n_granted)
        assert [pool.n_slot for pool in layout.pools] == [expected]


@settings(max_examples=60)
@given(SHAPES, N_SLOTS, st.integers(0, 10**6))
def test_planned_by_shares(shape: Shape, n_slot: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {
        "share": rng.random(shape.n_layer, dtype=np.float32),
        "top_share": rng.choice(np.array([0, 0.3, 0.5, 1], np.float32), shape.n_layer),
    }
    layout = allocate(Spec("planned", {}, arrays), shape, n_slot)
    check(shape, layout, n_slot)
    for i, layer in enumerate(layout.layers):
        assert (layer.top_share == 0) == (arrays["top_share"][i] == 0)


def test_shares_divide_the_slots() -> None:
    shape = Shape(64, 2, [[10]] * 3)
    share = np.array([1, 2, 5], np.float32)
    layout = allocate(Spec("planned", {}, {"share": share}), shape, 16)
    assert n_slots(layout) == [6, 12, 30]


def test_planned_by_slots() -> None:
    shape = Shape(8, 2, [[12]] * 3, [2] * 3)
    arrays = {
        "n_slot": np.array([1, 5, 99], np.float32),
        "top_share": np.array([1, 0.5, 1], np.float32),
    }
    layout = allocate(Spec("planned", {}, arrays), shape, 8)
    assert n_slots(layout) == [2, 5, 8]
    assert [layer.is_cut for layer in layout.layers] == [False, True, False]
    with pytest.raises(ValueError, match="more memory than the cache has"):
        allocate(Spec("planned", {}, arrays), shape, 3)


def test_moepic_starts_uniform_with_half_of_each_expert() -> None:
    shape = Shape(32, 4, [[48]] * 4, [4] * 4)
    start = allocate(Spec("moepic"), shape, 8)
    assert {layer.top_share for layer in start.layers} == {0.5}
    assert len(set(n_slots(start))) == 1
    plan = {"n_slot": np.array([4, 5, 6, 7], np.float32)}
    assert n_slots(allocate(Spec("moepic", {}, plan), shape, 8)) == [4, 5, 6, 7]


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
        allocate(spec, Shape(8, 2, [[12]] * 2), 4)


@pytest.mark.parametrize("name", allocation_names())
def test_slots_and_experts_that_are_none_are_refused(name: str) -> None:
    arrays = {"share": np.ones(2, np.float32)}
    with pytest.raises(ValueError, match="number of slots"):
        allocate(Spec(name, {}, arrays), Shape(8, 2, [[12]] * 2), -1)
    with pytest.raises(ValueError, match="without bytes"):
        allocate(Spec(name, {}, arrays), Shape(8, 2, [[12], [0]]), 4)
