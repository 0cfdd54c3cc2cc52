"""The predictors, compared with simple references written from the papers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predict_driver import play, probe_of, random_trace
from reference import predictors as plain
from reference.predictors import Pass, Sizes

from backend._native import Layout, Phase, PredictorProbe, Shape, Spec, predictor_names

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("OUTRIDER_DATA", ROOT.parent / "shared" / "data"))
ROUTES = DATA / "route-traces" / "qwen.route.csv"

SIZES = [
    Sizes(n_layer=5, n_expert=12, n_expert_used=3, n_embd=24),
    Sizes(n_layer=2, n_expert=40, n_expert_used=8, n_embd=33),
    Sizes(n_layer=1, n_expert=6, n_expert_used=2, n_embd=8),
    Sizes(n_layer=3, n_expert=7, n_expert_used=1, n_embd=64),
]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def with_routers(sizes: Sizes, seed: int) -> Sizes:
    routers = rng_of(seed).standard_normal((sizes.n_layer, sizes.n_expert, sizes.n_embd))
    return Sizes(**{**vars(sizes), "routers": list(routers.astype(np.float32))})


def compare(
    name: str,
    reference: type[plain.Predictor],
    sizes: Sizes,
    seed: int,
    *,
    arrays: dict[str, Any] | None = None,
    n_predict: int = 0,
    tolerance: float = 1e-5,
    passes: list[Pass] | None = None,
    **numbers: float,
) -> int:
    if passes is None:
        passes = random_trace(seed, sizes, n_request=3, n_decode=6)
    reference_settings: dict[str, Any] = dict(numbers)
    if name in ("learned", "expert_mlp"):
        reference_settings["arrays"] = arrays
    else:
        reference_settings |= arrays or {}
    return play(
        probe_of(name, sizes, numbers, arrays, n_predict),
        reference(sizes, **reference_settings),
        passes,
        min(n_predict or sizes.n_expert_used, sizes.n_expert),
        tolerance,
    )


every_size = pytest.mark.parametrize("sizes", SIZES, ids=lambda s: f"{s.n_layer}x{s.n_expert}")


@every_size
@pytest.mark.parametrize("n_predict", [0, 1, 64])
def test_previous_token(sizes: Sizes, n_predict: int) -> None:
    assert compare("previous_token", plain.PreviousToken, sizes, 1, n_predict=n_predict)


def test_previous_token_without_weights_keeps_the_routers_order() -> None:
    probe = probe_of("previous_token", SIZES[0])
    probe.pass_began(Phase.decode)
    assert probe.routed(2, [9, 4, 7, 5, 3, 8]) == [(2, [5, 3, 8], [])]


@every_size
@pytest.mark.parametrize("online", [0, 1])
def test_popularity(sizes: Sizes, online: int) -> None:
    counts = rng_of(3).integers(0, 4, (sizes.n_layer, sizes.n_expert))
    for arrays in ({}, {"counts": counts}):
        n = compare(
            "popularity", plain.Popularity, sizes, 2, arrays=arrays, tolerance=0, online=online
        )
        assert (n > 0) == bool(online or arrays)


@every_size
@pytest.mark.parametrize(
    "numbers", [{}, {"capacity": 7}, {"smoothing": 0.25}, {"online": 0}], ids=str
)
def test_token_table(sizes: Sizes, numbers: dict[str, float]) -> None:
    given = {
        "tokens": np.array([2, 29, 11]),
        "counts": rng_of(4).integers(0, 3, (3, sizes.n_layer, sizes.n_expert)),
    }
    for arrays in ({}, given):
        n = compare("token_table", plain.TokenTable, sizes, 5, arrays=arrays, **numbers)
        assert (n > 0) == bool(numbers.get("online", 1) or arrays)


def test_token_table_with_less_room_than_a_prompt_needs() -> None:
    passes = random_trace(8, SIZES[0], longest_prompt=60)
    assert compare("token_table", plain.TokenTable, SIZES[0], 0, passes=passes, capacity=3)


@every_size
@pytest.mark.parametrize("path_length", [1, 2])
@pytest.mark.parametrize("online", [0, 1])
def test_correlation(sizes: Sizes, path_length: int, online: int) -> None:
    counts = rng_of(6).integers(0, 2, (sizes.n_layer, sizes.n_expert, sizes.n_expert))
    for arrays in ({}, {"counts": counts}):
        n = compare(
            "correlation",
            plain.Correlation,
            sizes,
            7,
            arrays=arrays,
            path_length=path_length,
            online=online,
        )
        assert (n > 0) == bool(online or arrays)


@every_size
@pytest.mark.parametrize(
    "numbers",
    [{}, {"capacity": 2}, {"matches": 3}, {"matches": 2, "own": 1, "capacity": 3}],
    ids=str,
)
@pytest.mark.parametrize("n_predict", [0, 64])
def test_eam(sizes: Sizes, numbers: dict[str, float], n_predict: int) -> None:
    given = {
        "prefill": rng_of(8).integers(0, 3, (2, sizes.n_layer, sizes.n_expert)),
        "decode": rng_of(9).integers(0, 3, (5, sizes.n_layer, sizes.n_expert)),
    }
    passes = random_trace(10, sizes, n_request=7, n_decode=5)
    for arrays in ({}, given):
        n = compare(
            "eam", plain.Eam, sizes, 0, arrays=arrays, passes=passes, n_predict=n_predict, **numbers
        )
        assert (n > 0) == (sizes.n_layer > 1)


@every_size
@pytest.mark.parametrize("stride", [1, 2])
def test_next_router(sizes: Sizes, stride: int) -> None:
    n = compare("next_router", plain.NextRouter, with_routers(sizes, 11), 12, stride=stride)
    assert (n > 0) == (stride <= sizes.n_layer)


def learned_arrays(sizes: Sizes, seed: int, names: set[str]) -> dict[str, Any]:
    """Return random networks with these terms: at stride 1 for all but one layer, some at 2."""
    e, d, h, r = sizes.n_expert, sizes.n_embd, 17, 3
    shapes = {"w1": (h, d), "b1": (h,), "w2": (e, h), "b2": (e,), "router": (e,), "skip": (e, d)}
    shapes |= {"skip_down": (r, d), "skip_up": (e, r), "chosen": (e, e), "before": (e, e)}
    shapes |= {"hidden_chosen": (e, h), "hidden_before": (e, h)}
    cells = [(layer, 1) for layer in range(sizes.n_layer) if layer != 1]
    cells += [(layer, 2) for layer in range(sizes.n_layer) if layer != 2 and sizes.n_layer > 1]
    rng = rng_of(seed)
    return {
        f"l{layer}.s{stride}.{name}": rng.standard_normal(shapes[name]).astype(np.float32)
        for layer, stride in cells
        for name in sorted(names)
    }


MLP = {"w1", "w2"}
TERMS = [
    MLP,
    MLP | {"b1", "b2"},
    {"router"},
    {"skip", "b2"},
    {"skip_down", "skip_up"},
    {"chosen", "before"},
    MLP | {"hidden_chosen", "hidden_before"},
    MLP | {"b1", "b2", "router", "skip", "skip_down", "skip_up", "chosen", "before"},
]


@every_size
@pytest.mark.parametrize("terms", TERMS, ids=lambda t: "+".join(sorted(t)))
@pytest.mark.parametrize("stride", [0, 1, 2])
def test_learned(sizes: Sizes, terms: set[str], stride: int) -> None:
    stride = min(stride, sizes.n_layer)  # there is nothing further ahead
    sizes = with_routers(sizes, 13)
    arrays = learned_arrays(sizes, 14, terms)
    assert compare("learned", plain.Learned, sizes, 15, arrays=arrays, stride=stride)


@pytest.mark.parametrize("activation", [0, 1, 2])
def test_learned_with_other_activations(activation: int) -> None:
    arrays = learned_arrays(SIZES[0], 16, MLP | {"b1"})
    assert compare("learned", plain.Learned, SIZES[0], 17, arrays=arrays, activation=activation)


@every_size
@pytest.mark.parametrize(
    "terms", [MLP | {"b2", "hidden_before"}, {"skip", "before"}], ids=lambda t: "+".join(sorted(t))
)
@pytest.mark.parametrize("stride", [0, 1, 2])
def test_learned_from_token_ids(sizes: Sizes, terms: set[str], stride: int) -> None:
    """The first layers are forecast again when the token is known. Some tokens have no row."""
    of_token = Sizes(**{**vars(sizes), "n_embd": 5})
    arrays = {
        "t" + key.removeprefix("l").replace(".s1.", "."): value
        for key, value in learned_arrays(of_token, 29, terms).items()
        if ".s1." in key
    }
    arrays["token.rows"] = rng_of(30).standard_normal((25, 5)).astype(np.float32)
    arrays |= learned_arrays(sizes, 31, {"b2", "skip"})
    stride = min(stride, sizes.n_layer)
    assert compare("learned", plain.Learned, sizes, 32, arrays=arrays, stride=stride)


def rounded(matrix: Any) -> Any:
    """Round an array to what int8 with a factor per row can hold."""
    scale = np.abs(matrix).max(-1, keepdims=True) / np.float32(127)
    return np.rint(matrix / scale) * scale


@pytest.mark.parametrize("sizes", [*SIZES, Sizes(2, 10, 2, 2001)], ids=lambda s: f"{s.n_embd}")
def test_learned_with_bytes(sizes: Sizes) -> None:
    terms = MLP | {"b1", "skip", "skip_down", "skip_up"}
    arrays = learned_arrays(sizes, 25, terms)
    arrays = {k: rounded(v) if v.ndim == 2 else v for k, v in arrays.items()}
    tolerance = 5e-4 if sizes.n_embd < 512 else 3e-3  # a wider layer rounds more inputs
    assert compare("learned", plain.Learned, sizes, 26, arrays=arrays, tolerance=tolerance, bytes=1)


def test_learned_with_bytes_bears_anything() -> None:
    sizes = SIZES[0]
    arrays = {"l0.s1.skip": rng_of(27).standard_normal((12, 24)).astype(np.float32)}
    arrays["l0.s1.skip"][3:] = 0  # rows without a largest value
    arrays["l0.s1.skip"][4] = 1e-44
    probe = probe_of("learned", sizes, {"bytes": 1}, arrays)
    clean = rng_of(28).standard_normal((1, 24)).astype(np.float32)
    best = int(np.argmax(arrays["l0.s1.skip"] @ clean[0]))
    assert probe.gate_seen(0, clean)[0][1][0] == best
    for bad in (np.nan, np.inf, -3e38, 1e-45, 0.0):
        rows = clean.copy()
        rows[0, 5:] = bad
        ((_, experts, scores),) = probe.gate_seen(0, rows)
        assert len(set(experts)) == 3 and np.isfinite(scores).all()


@pytest.mark.parametrize("stride", [1, 2])
def test_learned_contains_the_next_router(stride: int) -> None:
    sizes = with_routers(SIZES[0], 18)
    arrays = {f"l{i}.s{stride}.router": np.ones(sizes.n_expert) for i in range(sizes.n_layer)}
    learned = probe_of("learned", sizes, arrays=arrays)
    router = probe_of("next_router", sizes, {"stride": stride})
    for p in random_trace(19, sizes):
        for probe in (learned, router):
            probe.pass_began(Phase[p.phase], p.tokens)
        for layer, x in enumerate(p.inputs):
            rows = x.astype(np.float32)
            assert learned.gate_seen(layer, rows) == router.gate_seen(layer, rows)


def expert_mlp_arrays(sizes: Sizes, seed: int, widths: tuple[int, ...]) -> dict[str, Any]:
    rng = rng_of(seed)
    e, n_layer = sizes.n_expert, sizes.n_layer
    popularity, affinity = rng.random((n_layer, e)), rng.random((n_layer, e, e))
    arrays = {
        "popularity": popularity / popularity.sum(-1, keepdims=True),
        "affinity": affinity / affinity.sum(-1, keepdims=True),
    }
    n_in = (n_layer - 1) * sizes.n_expert_used + 2 * e
    for i, n_out in enumerate((*widths, e)):
        arrays[f"w{i}"] = rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)
        arrays[f"b{i}"] = rng.standard_normal(n_out) / 4
        n_in = n_out
    return {key: value.astype(np.float32) for key, value in arrays.items()}


@every_size
@pytest.mark.parametrize("widths", [(), (64, 48, 40, 32, 24, 16)], ids=str)
def test_expert_mlp(sizes: Sizes, widths: tuple[int, ...]) -> None:
    arrays = expert_mlp_arrays(sizes, 20, widths)
    n = compare("expert_mlp", plain.ExpertMlp, sizes, 21, arrays=arrays)
    assert (n > 0) == (sizes.n_layer > 1)


def test_expert_mlp_with_bytes() -> None:
    arrays = expert_mlp_arrays(SIZES[0], 20, (64, 32))
    arrays = {k: rounded(v) if k.startswith("w") else v for k, v in arrays.items()}
    assert compare(
        "expert_mlp", plain.ExpertMlp, SIZES[0], 21, arrays=arrays, tolerance=2e-3, bytes=1
    )


@every_size
@pytest.mark.parametrize("n_predict", [0, 64])
def test_oracle(sizes: Sizes, n_predict: int) -> None:
    passes = random_trace(22, sizes)
    for lookahead in range(1, sizes.n_layer + 1):
        known = Sizes(**{**vars(sizes), "future": passes})
        n = compare(
            "oracle",
            plain.Oracle,
            known,
            0,
            passes=passes,
            n_predict=n_predict,
            tolerance=1e-3,  # as the reference breaks ties
            lookahead=lookahead,
        )
        assert n == len(passes) * sizes.n_layer


def test_oracle_says_nothing_after_the_end_of_its_trace() -> None:
    passes = random_trace(23, SIZES[0], n_request=1, n_decode=2)
    probe = probe_of("oracle", Sizes(**{**vars(SIZES[0]), "future": passes[:2]}))
    told = [len(probe.pass_began(Phase.decode)) for _ in range(4)]
    assert told == [5, 5, 0, 0]


@pytest.mark.parametrize("accuracy", [0.0, 0.3, 0.85, 1.0])
def test_set_accuracy_is_what_was_set(accuracy: float) -> None:
    sizes = Sizes(n_layer=4, n_expert=32, n_expert_used=4)
    passes = random_trace(24, sizes, n_request=1, n_decode=500)
    known = Sizes(**{**vars(sizes), "future": passes})
    n_right = n = 0
    for seed in (1, 2):
        said = []
        for _ in range(2):
            probe, told = probe_of("accuracy", known, {"accuracy": accuracy, "seed": seed}), []
            for p in passes:
                told += probe.pass_began(Phase[p.phase])
                for layer in range(sizes.n_layer):
                    told += probe.routed(layer, [])
            said.append(told)
        assert said[0] == said[1]
        for (layer, experts, _), at in zip(said[0], range(len(passes) * 4), strict=True):
            p = passes[at // 4]
            assert layer == at % 4 and len(set(experts)) == len(experts) >= 4
            if p.phase == "decode":
                assert len(experts) == 4
                n_right += len(set(experts) & set(p.ids[layer][0]))
                n += 4
    spread = 4 * (accuracy * (1 - accuracy) / n) ** 0.5
    assert abs(n_right / n - accuracy) <= spread


def test_set_accuracy_of_a_prompt_names_what_its_tokens_use() -> None:
    """Each asked token names its experts. Experts named most often come first."""
    sizes = Sizes(n_layer=3, n_expert=32, n_expert_used=4)
    passes = random_trace(25, sizes, n_request=1, n_decode=1)
    known = Sizes(**{**vars(sizes), "future": passes})
    assert 1 < len(passes[0].ids[0]) <= plain.MAX_ASKED
    probe = probe_of("accuracy", known, {"accuracy": 1.0, "lookahead": 3})
    for layer, experts, votes in probe.pass_began(Phase.prefill):
        ids = passes[0].ids[layer]
        if len(ids) > 1:
            count = Counter(e for token in ids for e in token)
            assert dict(zip(experts, votes, strict=True)) == count
            assert votes == sorted(votes, reverse=True)


@pytest.mark.skipif(not ROUTES.is_file(), reason="no recorded routings")
@pytest.mark.parametrize(
    ("name", "reference", "numbers"),
    [
        ("previous_token", plain.PreviousToken, {}),
        ("popularity", plain.Popularity, {}),
        ("correlation", plain.Correlation, {"path_length": 1}),
        ("eam", plain.Eam, {"own": 1}),
    ],
)
def test_recorded_routings(
    name: str, reference: type[plain.Predictor], numbers: dict[str, float]
) -> None:
    passes = recorded(n_pass=24, n_layer=12)
    sizes = Sizes(12, 128, 6)
    assert compare(name, reference, sizes, 0, passes=passes, **numbers) > 100


def recorded(n_pass: int, n_layer: int) -> list[Pass]:
    """Return the first passes and first layers of a recorded model with many experts."""
    from backend.traces.reading import read_trace
    from backend.traces.trace import PREFILL

    trace = read_trace(ROUTES)
    assert trace.weights is not None
    passes = []
    for i in range(n_pass):
        rows = [trace.rows(i, layer) for layer in range(n_layer)]
        ids = [trace.ids[r, layer].astype(int).tolist() for layer, r in enumerate(rows)]
        weights = [trace.weights[r, layer].astype(float).tolist() for layer, r in enumerate(rows)]
        phase = "prefill" if trace.phases[i] == PREFILL else "decode"
        passes.append(Pass(phase, [], ids, weights, [], i == 0))
    return passes


def test_all_are_tested_here() -> None:
    assert predictor_names() == [
        "accuracy",
        "correlation",
        "eam",
        "expert_mlp",
        "learned",
        "next_router",
        "oracle",
        "popularity",
        "previous_token",
        "token_table",
    ]


def test_unknown_names_are_refused() -> None:
    shape, layout = Shape(4, 2, [[1]]), Layout.per_layer([4])
    with pytest.raises(ValueError, match="There is no predictor called tea_leaves"):
        PredictorProbe(Spec("tea_leaves"), shape, layout)
