"""Properties that hold for every trace, machine and method."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_tools import core_of, future_of, random_routings, simulate

from backend import _native
from backend._native import Composition, Core, LayerLayout, Layout, PoolLayout, Shape, Spec

ARRAYS = (
    "hits late misses bytes_read bytes_useful bytes_wasted prefetches prefetches_useful "
    "prefetches_wasted predicted predicted_used predicted_ready stall_us pass_us pass_stall_us "
    "pass_hits pass_requests"
).split()

times = st.floats(0, 50)
machines = st.fixed_dictionaries(
    {
        "link_bytes_per_us": st.one_of(st.just(0.0), st.floats(0.5, 500)),
        "link_latency_us": times,
        "n_link": st.integers(1, 5),
        "dense_us": times,
        "dense_token_us": times,
        "expert_us": times,
        "expert_token_us": times,
        "wave_us": times,
        "pass_us": times,
        "joined_bytes": st.sampled_from([0.0, 60.0, 1e6]),
    }
)


@st.composite
def cases(draw: Any, *, cut_or_pooled: bool = True) -> dict[str, Any]:
    n_layer, n_expert = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    k = draw(st.integers(1, min(3, n_expert)))
    routings = random_routings(
        np.random.default_rng(draw(st.integers(0, 1 << 30))),
        draw(st.integers(1, 12)),
        n_layer,
        n_expert,
        k,
        n_token=draw(st.integers(1, 6)),
    )
    if draw(st.booleans()):
        routings[0][-1] = routings[0][-1][-1:]  # like llama.cpp's last layer
    switches = {s: draw(st.integers(0, 1)) for s in ("chunks", "early_preemption", "reorder")}
    predictor = draw(
        st.sampled_from([None, Spec("oracle"), Spec("accuracy", {"accuracy": 0.6}), Spec("eam")])
    )
    kind = draw(st.sampled_from(["layers", "pool", "cut"])) if cut_or_pooled else "layers"
    chunks = [[80, 40] if kind == "pool" else [80, 40 + 20 * i] for i in range(n_layer)]
    shape = Shape(n_expert, k, chunks, n_cut=[4] * n_layer)
    n_slot = [draw(st.integers(k, n_expert)) for _ in range(n_layer)]
    layout: Any = n_slot
    if kind == "pool":
        layout = Layout([PoolLayout(sum(n_slot))], [LayerLayout(1.0, [0, -1])] * n_layer)
    elif kind == "cut":
        pools = [PoolLayout(n) for n in n_slot for _ in range(2)]
        shares = [draw(st.sampled_from([0.25, 0.5, 0.75])) for _ in range(n_layer)]
        layout = Layout(pools, [LayerLayout(s, [2 * i, 2 * i + 1]) for i, s in enumerate(shares)])
    return {
        "routings": routings,
        "shape": shape,
        "n_slot": layout,
        "n_part": 2 if kind == "cut" else 1,
        "numbers": {name: float(value) for name, value in switches.items()},
        "predictor": predictor,
        "depth": draw(st.integers(0, 3)),
    }


def run(case: dict[str, Any], machine: dict[str, float], log: Any = None) -> tuple[Any, Any]:
    future = future_of(case["routings"], prefill=[0])
    options = {key: case[key] for key in ("numbers", "predictor", "depth")}
    core = core_of(case["shape"], case["n_slot"], future, **options)
    return core, _native.simulate(core, future, _native.Machine(**machine), log=log)


@settings(max_examples=150)
@given(cases(), machines)
def test_books_balance(case: dict[str, Any], machine: dict[str, float]) -> None:
    core, s = run(case, machine)
    core.check()
    assert core.idle()
    routings = case["routings"]
    needed = [
        sum(len({e for ids in layers[layer] for e in ids}) for layers in routings) * case["n_part"]
        for layer in range(len(routings[0]))
    ]
    assert (s.hits + s.late + s.misses).tolist() == needed
    assert s.pass_hits.sum() == s.hits.sum() and s.pass_requests.sum() == sum(needed)
    assert (s.bytes_useful + s.bytes_wasted <= s.bytes_read).all()
    assert (s.prefetches_useful + s.prefetches_wasted <= s.prefetches).all()
    assert (s.predicted_used <= s.predicted).all() and (s.predicted_ready <= s.predicted).all()
    phases = (s.prefill, s.decode)
    assert [p.n_pass for p in phases] == [1, len(routings) - 1]
    assert sum(p.n_token for p in phases) == sum(len(layers[0]) for layers in routings)
    for p in phases:
        assert p.time_us == pytest.approx(p.compute_us + p.stall_us, abs=1e-6)
        assert p.link_busy_us <= p.time_us + 1e-6
    assert s.stall_us.sum() == pytest.approx(sum(p.stall_us for p in phases), abs=1e-6)
    assert s.pass_us.sum() == pytest.approx(sum(p.time_us for p in phases), abs=1e-6)
    assert s.pass_stall_us.sum() == pytest.approx(s.stall_us.sum(), abs=1e-6)


@settings(max_examples=150)
@given(cases(), machines)
def test_time_is_never_below_its_bounds(case: dict[str, Any], machine: dict[str, float]) -> None:
    _, s = run(case, machine)
    time_us = s.prefill.time_us + s.decode.time_us
    routings = case["routings"]
    least_us = 0.0  # compute time without waves: each expert once, for all of its tokens
    mean_bytes = np.mean([sum(sizes) for sizes in case["shape"].chunk_bytes])
    for layers in routings:
        n_token = max(len(tokens) for tokens in layers)
        least_us += machine["pass_us"]
        for layer, tokens in enumerate(layers):
            _ids, n = np.unique(np.array(tokens).ravel(), return_counts=True)
            share = sum(case["shape"].chunk_bytes[layer]) / mean_bytes
            each_us = machine["expert_us"] + machine["expert_token_us"] * (n - 1)
            least_us += machine["dense_us"] + machine["dense_token_us"] * (n_token - 1)
            least_us += machine["wave_us"] + share * float(each_us.sum())
    assert time_us >= least_us * (1 - 1e-9)
    if machine["link_bytes_per_us"] > 0:
        busy_us = s.prefill.link_busy_us + s.decode.link_busy_us
        read_us = s.bytes_read.sum() / machine["link_bytes_per_us"]
        assert time_us >= busy_us - 1e-6 and busy_us >= read_us - 1e-6
    else:
        assert s.late.sum() == 0 and s.stall_us.sum() == 0


@settings(max_examples=60)
@given(cases(), machines)
def test_the_same_again_and_replayed(case: dict[str, Any], machine: dict[str, float]) -> None:
    log = _native.EventLog()
    _, first = run(case, machine, log)
    _, second = run(case, machine)
    for name in ARRAYS:
        assert getattr(first, name).tolist() == getattr(second, name).tolist()
    future = future_of(case["routings"], prefill=[0])
    options = {key: case[key] for key in ("numbers", "predictor", "depth")}
    assert _native.replay(log, core_of(case["shape"], case["n_slot"], future, **options)) == -1


@settings(max_examples=80)
@given(cases(cut_or_pooled=False), st.sampled_from(["ordered", "reactive"]))
def test_instant_copies_count_as_a_plain_lru(case: dict[str, Any], schedule: str) -> None:
    routings = [[tokens[:1] for tokens in layers] for layers in case["routings"]]
    future = future_of(routings)
    s = simulate(core_of(case["shape"], case["n_slot"], schedule=schedule), future)
    for layer, n_slot in enumerate(case["n_slot"]):
        cache: OrderedDict[int, None] = OrderedDict()
        hits = 0
        for layers in routings:
            needed = layers[layer][0]
            hits += sum(e in cache for e in needed)
            for e in needed:
                cache[e] = None
                cache.move_to_end(e)
            while len(cache) > n_slot:
                cache.popitem(last=False)
        assert s.hits[layer] == hits


@settings(max_examples=40)
@given(cases())
def test_a_cache_for_everything_misses_each_expert_once(case: dict[str, Any]) -> None:
    shape, routings = case["shape"], case["routings"]
    future = future_of(routings, prefill=[0])
    core = core_of(shape, [shape.n_expert] * shape.n_layer, future)
    s = simulate(core, future, link_bytes_per_us=1.0)
    for layer in range(shape.n_layer):
        seen = {e for layers in routings for ids in layers[layer] for e in ids}
        assert s.misses[layer] == len(seen)
        assert s.bytes_read[layer] == len(seen) * shape.expert_bytes(layer)
        assert s.bytes_wasted[layer] == 0


def test_perfect_prediction_and_time_enough_never_waits() -> None:
    routings = random_routings(np.random.default_rng(1), 30, 3, 8, 2)
    future = future_of(routings)
    shape = Shape(8, 2, [[100, 100]] * 3)
    core = core_of(shape, [6] * 3, future, predictor=Spec("oracle"), depth=2)
    s = simulate(core, future, link_bytes_per_us=100.0, dense_us=50.0, expert_us=1.0)
    assert s.stall_us.sum() == 0
    assert s.hits.sum() == s.pass_requests.sum()
    assert (s.predicted_used == s.predicted).all() and (s.predicted_ready == s.predicted).all()


@pytest.mark.parametrize("eviction", ["decayed", "recall"])
def test_our_evictions_do_not_lose_to_lru_where_the_past_misleads(eviction: str) -> None:
    """A working set of 12 experts moves by one every four tokens, so what was hot is useless."""
    chance = np.random.default_rng(3)
    routings = [
        [[chance.permutation((np.arange(12) + t // 4) % 32)[:4].tolist()] for _ in range(2)]
        for t in range(300)
    ]
    shape, future = Shape(32, 4, [[100]] * 2), future_of(routings)

    def hits(name: str, **numbers: float) -> int:
        parts = Composition(
            evictions=[Spec(name, numbers)], prefill=Spec("ordered"), decode=Spec("ordered")
        )
        core = Core(shape, Layout.per_layer([16] * 2), parts)
        return int(sum(simulate(core, future).hits))

    assert hits(eviction, duel=0) < 0.99 * hits("lru")  # without the duel it would lose
    assert hits(eviction) >= 0.99 * hits("lru")
