"""Settings that predictors refuse with a sentence, and extreme ones that they accept."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from predict_driver import probe_of
from reference.predictors import Pass, Sizes

from backend._native import Phase, Spec, predictor_names

SIZES = Sizes(n_layer=3, n_expert=8, n_expert_used=2, n_embd=4)
ROUTERS = [np.ones((8, 4), np.float32)] * 3
FUTURE = [Pass("decode", [], [[[1, 2]]] * 3, [], [])]

Arrays = dict[str, Any]


def learned(**arrays: Any) -> Arrays:
    return {f"l0.s1.{name}": values for name, values in arrays.items()}


def token_rows(**arrays: Any) -> Arrays:
    return {"token.rows": np.ones((9, 2))} | {f"t0.{name}": a for name, a in arrays.items()}


def expert_mlp(**changes: Any) -> Arrays:
    arrays = {"popularity": np.ones((3, 8)), "affinity": np.ones((3, 8, 8))}
    arrays |= {"w0": np.ones((5, 20)), "b0": np.ones(5), "w1": np.ones((8, 5)), "b1": np.ones(8)}
    return {k: v for k, v in (arrays | changes).items() if v is not None}


def eams(n: int = 2) -> Any:
    return np.ones((n, 3, 8))


REFUSED: list[tuple[str, dict[str, float], Arrays, str]] = [
    ("accuracy", {"accuracy": 1.5}, {}, "needs a number accuracy between 0 and 1"),
    ("accuracy", {"accuracy": np.nan}, {}, "between 0 and 1"),
    ("accuracy", {"seed": 0.5}, {}, "needs a whole number as seed"),
    ("oracle", {"lookahead": 0}, {}, "between 1 and 3"),
    ("oracle", {"lookahead": 4}, {}, "between 1 and 3"),
    ("next_router", {"stride": 3}, {}, "between 1 and 2"),
    ("next_router", {"strides": 1}, {}, "has no use for a number called strides"),
    ("next_router", {}, {"w1": np.ones(3)}, "has no use for an array called w1"),
    ("popularity", {}, {"counts": np.ones((3, 7))}, "an array counts of 3 x 8, and has .* 3 x 7"),
    ("popularity", {}, {"counts": np.ones((8, 3))}, "of 3 x 8"),
    ("popularity", {}, {"counts": np.ones(24)}, "of 3 x 8"),
    ("popularity", {}, {"counts": np.full((3, 8), np.nan)}, "not finite numbers"),
    ("popularity", {}, {"counts": np.full((3, 8), -1.0)}, "negative counts"),
    ("correlation", {"path_length": 3}, {}, "between 1 and 2"),
    ("correlation", {}, {"counts": np.ones((3, 8))}, "of 3 x 8 x 8"),
    ("eam", {"capacity": 0}, {}, "capacity between 1"),
    ("eam", {"matches": 1.5}, {}, "whole number as matches"),
    ("eam", {}, {"decode": np.ones((0, 3, 8))}, "of any x 3 x 8, and has one of 0 x 3 x 8"),
    ("eam", {}, {"prefill": np.ones((2, 4, 8))}, "of any x 3 x 8"),
    ("eam", {}, {"decode": -eams()}, "negative counts"),
    ("token_table", {}, {"tokens": np.ones(1)}, "both arrays tokens and counts"),
    ("token_table", {}, {"counts": eams()}, "both arrays tokens and counts"),
    ("token_table", {}, {"tokens": [1, 2, 3], "counts": eams()}, "array counts of 3 x 3 x 8"),
    ("token_table", {}, {"tokens": [7, 7], "counts": eams()}, "distinct token ids"),
    ("token_table", {}, {"tokens": [7, -2], "counts": eams()}, "distinct token ids"),
    ("token_table", {}, {"tokens": [7, 1.5], "counts": eams()}, "distinct token ids"),
    ("token_table", {"capacity": 1}, {"tokens": [7, 8], "counts": eams()}, "between 2 and"),
    ("token_table", {"smoothing": 0}, {}, "smoothing between"),
    ("learned", {}, {}, "needs the arrays of at least one layer"),
    ("learned", {"stride": 2}, learned(b2=np.ones(8)), "has no arrays for stride 2"),
    ("learned", {"activation": 7}, learned(b2=np.ones(8)), "activation between 0 and 2"),
    ("learned", {}, learned(w1=np.ones((6, 4))), "both arrays l0.s1.w1 and l0.s1.w2"),
    ("learned", {}, learned(w2=np.ones((8, 6))), "both arrays l0.s1.w1 and l0.s1.w2"),
    ("learned", {}, learned(b1=np.ones(6), b2=np.ones(8)), "both arrays l0.s1.w1 and"),
    ("learned", {}, learned(w1=np.ones((6, 5)), w2=np.ones((8, 6))), "l0.s1.w1 of any x 4"),
    ("learned", {}, learned(w1=np.ones((6, 4)), w2=np.ones((8, 7))), "l0.s1.w2 of 8 x 6"),
    ("learned", {}, learned(skip_down=np.ones((2, 4))), "skip_down and l0.s1.skip_up"),
    ("learned", {}, learned(skip_down=np.ones((2, 4)), skip_up=np.ones((8, 3))), "of 8 x 2"),
    ("learned", {}, learned(skip=np.full((8, 4), np.inf)), "not finite numbers"),
    ("learned", {}, learned(chosen=np.ones((4, 8))), "l0.s1.chosen of 8 x 8"),
    ("learned", {}, {"l3.s1.b2": np.ones(8)}, "no use for an array called l3.s1.b2"),
    ("learned", {}, {"l0.s3.b2": np.ones(8)}, "no use for an array called l0.s3.b2"),
    ("learned", {}, {"t0.b2": np.ones(8)}, "needs the arrays of|no use for an array called t0.b2"),
    ("learned", {}, {"token.rows": np.ones((9, 2))}, "needs the arrays of at least one layer"),
    ("learned", {}, token_rows(skip=np.ones((8, 4))), "t0.skip of 8 x 2"),
    ("learned", {}, token_rows(b2=np.ones(8), router=np.ones(8)), "called t0.router"),
    ("expert_mlp", {}, {}, "needs an array called popularity"),
    ("expert_mlp", {}, expert_mlp(w0=None), "needs an array called w0"),
    ("expert_mlp", {}, expert_mlp(b1=None), "needs an array called b1"),
    ("expert_mlp", {}, expert_mlp(w0=np.ones((5, 19))), "array w0 of any x 20"),
    ("expert_mlp", {}, expert_mlp(w1=np.ones((7, 5)), b1=np.ones(7)), "one output for each"),
    ("expert_mlp", {}, expert_mlp(affinity=np.ones((2, 8, 8))), "affinity of 3 x 8 x 8"),
]


@pytest.mark.parametrize(("name", "numbers", "arrays", "why"), REFUSED)
def test_settings_that_make_no_sense_are_refused(
    name: str, numbers: dict[str, float], arrays: Arrays, why: str
) -> None:
    sizes = Sizes(**{**vars(SIZES), "routers": ROUTERS, "future": FUTURE})
    with pytest.raises(ValueError, match=f"^The predictor {name} .*{why}"):
        probe_of(name, sizes, numbers, arrays)


@pytest.mark.parametrize("name", ["oracle", "accuracy"])
def test_who_knows_the_future_needs_one_of_this_model(name: str) -> None:
    with pytest.raises(ValueError, match="needs a trace of what is to come"):
        probe_of(name, SIZES)
    for bad in (
        Pass("decode", [], [[[1, 8]]] * 3, [], []),
        Pass("decode", [], [[[1, -1]]] * 3, [], []),
    ):
        with pytest.raises(ValueError, match="was given a trace of another model"):
            probe_of(name, Sizes(**{**vars(SIZES), "future": [*FUTURE, bad]}))


@pytest.mark.parametrize(
    ("routers", "why"),
    [
        ([], "needs the model's routers"),
        ([np.ones((0, 4), np.float32)] * 3, "needs the model's routers"),
        (ROUTERS[:2], "needs the model's routers"),
        ([np.ones((8, 5), np.float32)] * 3, "of another size"),
    ],
)
def test_who_looks_ahead_needs_routers(routers: Any, why: str) -> None:
    sizes = Sizes(**{**vars(SIZES), "routers": routers})
    for name, arrays in (("next_router", {}), ("learned", learned(router=np.ones(8)))):
        with pytest.raises(ValueError, match=why):
            probe_of(name, sizes, {}, arrays)


def everything() -> list[tuple[str, Arrays]]:
    """Return one of each predictor, with the arrays that it needs."""
    given = {"learned": learned(w1=np.ones((6, 4)), w2=np.ones((8, 6)), chosen=np.ones((8, 8)))}
    given["expert_mlp"] = expert_mlp()
    return [(name, given.get(name, {})) for name in predictor_names()]


@pytest.mark.parametrize(("name", "arrays"), everything())
def test_odd_events_are_borne(name: str, arrays: Arrays) -> None:
    sizes = Sizes(**{**vars(SIZES), "routers": ROUTERS, "future": FUTURE * 20})
    probe = probe_of(name, sizes, {}, arrays, n_predict=5)
    forecasts: list[Any] = []
    bad = np.full((1, 4), np.nan, np.float32)

    forecasts.extend(probe.gate_seen(1, bad))  # before any pass
    forecasts.extend(probe.routed(1, [1, 2], [np.nan, np.inf]))
    for phase in (Phase.prefill, Phase.decode, Phase.decode):
        for tokens in ([], [5], [-1], [3] * 300, [2**31 - 1]):
            forecasts.extend(probe.pass_began(phase, tokens))
            probe.request_began()
            n = len(tokens)
            for layer in (0, 2, 1, 1):  # out of order, and twice
                forecasts.extend(probe.routed(layer, [7, 7] * n, [np.nan] * 2 * n))
                forecasts.extend(probe.routed(layer, [], []))
                forecasts.extend(probe.gate_seen(layer, np.full((n, 4), np.inf, np.float32)))
                forecasts.extend(probe.gate_seen(layer, np.full((n + 3, 4), -1, np.float32)))
                forecasts.extend(probe.gate_seen(layer, np.ones((n, 2), np.float32)))  # too narrow
    n_odd = len(forecasts)
    for _ in range(3):  # and it still works
        forecasts.extend(probe.pass_began(Phase.decode, [5]))
        for layer in range(3):
            forecasts.extend(probe.routed(layer, [1, 2], [0.5, 0.5]))
            forecasts.extend(probe.gate_seen(layer, np.ones((1, 4), np.float32)))
        if name == "eam":  # eam learns from past requests
            probe.request_began()
    assert len(forecasts) > n_odd
    for layer, experts, scores in forecasts:
        assert 0 <= layer < 3 and 0 < len(experts) <= 5
        assert all(0 <= e < 8 for e in experts)
        assert len(scores) in (0, len(experts))
        assert all(a >= b for a, b in itertools.pairwise(scores))
        assert np.isfinite(scores).all()


def test_an_aborted_pass_leaves_no_trace_in_paths() -> None:
    """A layer's choice predicts only the next layer."""
    probe = probe_of("correlation", SIZES)
    probe.pass_began(Phase.decode)
    probe.routed(0, [1, 2])
    probe.pass_began(Phase.decode)  # layers 1 and 2 never came
    assert probe.routed(0, [3, 4]) == []
    assert probe.routed(1, [5, 6]) == []
    probe.pass_began(Phase.decode)
    ((layer, experts, _),) = probe.routed(0, [3, 4])
    assert (layer, experts) == (1, [5, 6])


def test_a_spec_holds_its_own_copy() -> None:
    values = np.ones((3, 8), np.float32)
    spec = Spec("popularity", arrays={"counts": values})
    values[:] = np.nan
    assert spec.name == "popularity"
    probe_of("popularity", SIZES, {}, {"counts": np.ones((3, 8))})
