"""The evictions, compared with simple references: the same victims, one by one."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evict_driver import Pass, Sizes, future_of, markov_trace, pair_of, play
from reference import evictions as plain

from backend._native import Evictor, Layout, Part, Phase, Shape, Spec, eviction_names

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("OUTRIDER_DATA", ROOT.parent / "shared" / "data"))
ROUTES = DATA / "route-traces" / "qwen.route.csv"

SIZES = [
    Sizes(n_layer=4, n_expert=12, n_expert_used=3),
    Sizes(n_layer=2, n_expert=32, n_expert_used=4),
    Sizes(n_layer=3, n_expert=7, n_expert_used=1),
]

POLICIES: list[tuple[str, type[plain.Eviction], dict[str, float]]] = [
    ("lru", plain.Lru, {}),
    ("lfu", plain.Lfu, {}),
    ("lfu", plain.Lfu, {"half_life": 6}),
    ("lcp", plain.Lcp, {}),
    ("lcp", plain.Lcp, {"omega": 16, "rho": 0.5}),
    ("eam", plain.Eam, {}),
    ("static", plain.Static, {"warmup": 20}),
    ("random", plain.Random, {"seed": 5}),
    ("belady", plain.Belady, {}),
    ("decayed", plain.Decayed, {"duel": 0}),
    ("recall", plain.Recall, {"duel": 0}),
    ("recall", plain.Recall, {"duel": 0, "window": 9, "reach": 0.8, "alike": 0.5, "sharpness": 4}),
]
NAMES = [f"{name}{i}" for i, (name, _, _) in enumerate(POLICIES)]


def shape_of(sizes: Sizes) -> Shape:
    return Shape(sizes.n_expert, sizes.n_expert_used, [[100, 100]] * sizes.n_layer)


def evictor(name: str, sizes: Sizes, numbers: dict[str, float] | None = None, **rest: Any) -> Any:
    layout = Layout.per_layer([sizes.n_expert] * sizes.n_layer)
    return Evictor(
        Spec(name, numbers or {}, rest.pop("arrays", {})), shape_of(sizes), layout, **rest
    )


def test_every_eviction_has_a_reference() -> None:
    assert {name for name, _, _ in POLICIES} == set(eviction_names())


@pytest.mark.parametrize(("name", "reference", "numbers"), POLICIES, ids=NAMES)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: f"{s.n_layer}x{s.n_expert}")
def test_same_victims(
    name: str, reference: type[plain.Eviction], numbers: dict[str, float], sizes: Sizes
) -> None:
    passes = markov_trace(1, sizes)
    pair = pair_of(name, reference, sizes, passes, **numbers)
    _, n_victim = play(pair, passes, sizes.n_expert_used + 2)
    assert n_victim > 20


@pytest.mark.parametrize(("name", "reference", "numbers"), POLICIES, ids=NAMES)
def test_same_victims_with_one_pool_and_forecasts(
    name: str, reference: type[plain.Eviction], numbers: dict[str, float]
) -> None:
    sizes = SIZES[0]
    passes = markov_trace(2, sizes, n_request=2, n_decode=15)
    pair = pair_of(name, reference, sizes, passes, **numbers)
    rng = np.random.default_rng(3)
    assert play(pair, passes, 5, one_pool=True, forecasts=rng)[1] > 20


@pytest.mark.parametrize(("name", "reference", "numbers"), POLICIES, ids=NAMES)
def test_same_victims_where_weights_are_unknown(
    name: str, reference: type[plain.Eviction], numbers: dict[str, float]
) -> None:
    sizes = SIZES[0]
    passes = markov_trace(4, sizes, n_request=2, n_decode=15)
    pair = pair_of(name, reference, sizes, passes, **numbers)
    assert play(pair, passes, 5, weighted=False)[1] > 20


def test_a_given_popularity() -> None:
    sizes = SIZES[0]
    passes = markov_trace(5, sizes, n_request=2, n_decode=15)
    popularity = np.random.default_rng(0).random((sizes.n_layer, sizes.n_expert))
    arrays = {"popularity": np.float32(popularity).tolist()}
    pair = pair_of("static", plain.Static, sizes, passes, arrays)
    assert play(pair, passes, 5)[1] > 20


@pytest.fixture(scope="module")
def recorded() -> tuple[Sizes, list[Pass]]:
    """Return three layers of the recorded trace: the prompt and 28 tokens."""
    if not ROUTES.exists():
        pytest.skip("the shared traces are not there")
    layers = [0, 20, 47]
    rows: dict[tuple[int, int], list[tuple[int, float]]] = {}
    with ROUTES.open(encoding="utf-8") as file:
        for line in csv.DictReader(line for line in file if not line.startswith("#")):
            step, layer = int(line["step"]), int(line["layer"])
            if layer in layers and step < 56:
                found = rows.setdefault((step, layer), [])
                found.append((int(line["expert"]), float(np.float32(line["weight"]))))
    prompt = 28
    passes = []
    for steps in [range(prompt), *([step] for step in range(prompt, 56))]:
        kept = [[rows[s, layer] for s in steps if (s, layer) in rows] for layer in layers]
        ids = [[[e for e, _ in row] for row in layer] for layer in kept]
        weights = [[[w for _, w in row] for row in layer] for layer in kept]
        passes.append(Pass(len(steps) > 1, len(steps) > 1, ids, weights))
    return Sizes(3, 128, 6), passes


@pytest.mark.parametrize(("name", "reference", "numbers"), POLICIES, ids=NAMES)
def test_same_victims_on_a_recorded_trace(
    name: str,
    reference: type[plain.Eviction],
    numbers: dict[str, float],
    recorded: tuple[Sizes, list[Pass]],
) -> None:
    sizes, passes = recorded
    assert play(pair_of(name, reference, sizes, passes, **numbers), passes, 21)[1] > 100


def hits(name: str, sizes: Sizes, passes: list[Pass], n_slot: int) -> int:
    reference = {n: r for n, r, _ in POLICIES}[name]
    return play(pair_of(name, reference, sizes, passes), passes, n_slot)[0]


def test_belady_is_the_ceiling_and_recall_knows_what_repeats() -> None:
    sizes = Sizes(n_layer=2, n_expert=24, n_expert_used=2)
    passes = markov_trace(7, sizes, n_request=1, n_decode=120, longest_prompt=2)
    found = {name: hits(name, sizes, passes, 6) for name in ("lru", "random", "recall", "belady")}
    assert found["belady"] > found["recall"] > found["lru"] > found["random"]


def test_belady_where_layers_share_a_pool() -> None:
    # Layer 0 needs 0 in every pass; layer 1 needs 1 in the next pass, and 2 only in the last.
    sizes = Sizes(n_layer=2, n_expert=4, n_expert_used=1)
    needs = [(0, 2), (0, 1), (3, 1), (0, 2)]
    passes = [Pass(False, i == 0, [[[a]], [[b]]], []) for i, (a, b) in enumerate(needs)]
    belady = evictor("belady", sizes, future=future_of(passes, sizes))
    belady.pass_began(Phase.decode)
    belady.routed(0, [0])
    belady.routed(1, [2])
    worth = [belady.keep(layer, Part.top, e) for layer, e in ((0, 0), (1, 1), (0, 3), (1, 2))]
    assert worth == sorted(worth, reverse=True)
    assert belady.keep(0, Part.top, 1) == -np.inf


def test_what_was_fetched_in_vain_leaves_first() -> None:
    lru = evictor("lru", SIZES[0])
    lru.pass_began(Phase.decode)
    lru.routed(0, [1, 2, 3])
    lru.forecast(0, [5, 1])
    assert lru.keep(0, Part.top, 2) < lru.keep(0, Part.top, 5) < lru.keep(0, Part.top, 1)
    lru.disappointed(0, 5)
    assert lru.keep(0, Part.top, 5) < lru.keep(0, Part.top, 2)


@pytest.mark.parametrize("name", ["decayed", "recall"])
def test_what_is_expected_stays_until_its_layer_was_routed(name: str) -> None:
    eviction = evictor(name, SIZES[0])
    eviction.pass_began(Phase.decode)
    for layer in range(4):
        eviction.routed(layer, [1, 2, 3])
    eviction.forecast(0, [9, 8])
    assert eviction.keep(0, Part.top, 9) > eviction.keep(0, Part.top, 1)
    eviction.pass_began(Phase.decode)
    eviction.routed(0, [1, 2, 3])
    assert eviction.keep(0, Part.top, 9) < eviction.keep(0, Part.top, 1)


@pytest.mark.parametrize("name", [n for n in eviction_names() if n != "belady"])
def test_bad_numbers_from_outside_make_no_bad_worth(name: str) -> None:
    sizes = Sizes(n_layer=2, n_expert=6, n_expert_used=2)
    eviction = evictor(name, sizes, {"window": 5} if name == "recall" else {})
    nan, inf = float("nan"), float("inf")
    for weights in ([nan, 1.0], [inf, 1.0], [-1.0, 2.0], [0.0, 0.0], []):
        eviction.pass_began(Phase.decode)
        eviction.routed(0, [0, 1], weights)
        eviction.routed(1, [], [])
        eviction.forecast(1, [3, 4], [nan, inf])
        eviction.pass_began(Phase.prefill)
        eviction.routed(0, [4, 5] * 300, [nan] * 600)
        eviction.routed(1, [2, 3], weights)
        for layer in range(2):
            for e in range(6):
                assert not np.isnan(eviction.keep(layer, Part.top, e))


def test_long_runs_neither_overflow_nor_forget() -> None:
    sizes = Sizes(n_layer=1, n_expert=4, n_expert_used=1)
    for name, numbers in (("lfu", {"half_life": 1.0}), ("decayed", {}), ("recall", {"window": 8})):
        eviction = evictor(name, sizes, numbers)
        for i in range(3000):
            eviction.pass_began(Phase.decode)
            eviction.routed(0, [i % 2])
        eviction.pass_began(Phase.decode)
        eviction.routed(0, [2])
        worth = [eviction.keep(0, Part.top, e) for e in range(4)]
        assert np.isfinite(worth).all()
        assert min(worth[:3]) > worth[3] == 0, name


@pytest.mark.parametrize(
    ("name", "numbers", "sentence"),
    [
        ("fifo", {}, "There is no eviction called fifo"),
        ("belady", {}, "The eviction belady needs a trace of what is to come"),
        ("lru", {"omega": 3}, "The eviction lru has no use for a number called omega"),
        ("lcp", {"rho": 0}, "The eviction lcp needs a number rho between 1e-09 and 1"),
        ("lcp", {"omega": float("nan")}, "The eviction lcp needs a number omega between"),
        ("random", {"seed": 0.5}, "The eviction random needs a whole number as seed"),
        ("recall", {"window": 1}, "The eviction recall needs a number window between"),
        ("static", {"warmup": -1}, "The eviction static needs a number warmup between"),
    ],
)
def test_refusals(name: str, numbers: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        evictor(name, SIZES[0], numbers)


def test_a_popularity_or_a_trace_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an array popularity of 4 x 12"):
        evictor("static", SIZES[0], arrays={"popularity": np.zeros((4, 5), np.float32)})
    with pytest.raises(ValueError, match="no use for an array called weights"):
        evictor("static", SIZES[0], arrays={"weights": np.zeros((4, 12), np.float32)})
    other = future_of(markov_trace(0, SIZES[1], n_request=1), SIZES[1])
    with pytest.raises(ValueError, match="a trace of another model"):
        evictor("belady", SIZES[0], future=other)
