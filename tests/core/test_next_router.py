"""The next-router predictor, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from predict_driver import probe_of
from reference.predictors import Sizes

from backend._native import Layout, Phase, PredictorProbe, RouterBias, Shape, Spec

N_EMBD, N_EXPERT = 96, 24
MAX_ASKED = 32  # tokens of a pass that vote

Matrix = NDArray[np.float32]


def routers(seed: int, n_layer: int = 3) -> list[Matrix]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((N_EXPERT, N_EMBD)).astype(np.float32) for _ in range(n_layer)]


def inputs(seed: int, n_token: int) -> Matrix:
    """Return inputs whose scores have a standard deviation of about 1, as real ones."""
    rows = np.random.default_rng(seed).standard_normal((n_token, N_EMBD))
    return (rows / N_EMBD**0.5).astype(np.float32)


def probe(matrices: list[Matrix], n_predict: int = 4, **numbers: float) -> PredictorProbe:
    n_embd = matrices[-1].shape[1]
    sizes = Sizes(len(matrices), N_EXPERT, 4, n_embd, matrices)  # type: ignore[arg-type]
    return probe_of("next_router", sizes, numbers, n_predict=n_predict)


def predicted(p: PredictorProbe, layer: int, rows: Matrix) -> tuple[int, list[int]]:
    """Return the forecast layer and its experts, the best first."""
    p.pass_began(Phase.decode)
    ((target, experts, scores),) = p.gate_seen(layer, rows)
    assert scores == sorted(scores, reverse=True) and len(scores) == len(experts)
    return target, experts


def best(matrix: Matrix, rows: Matrix, n: int) -> list[int]:
    """Return the best experts. Each asked token votes for its n best: exp(score - its best)."""
    n_asked = min(len(rows), MAX_ASKED)
    asked = [len(rows) - 1 - i * len(rows) // n_asked for i in range(n_asked)]
    scores = rows[asked].astype(np.float64) @ matrix.astype(np.float64).T
    votes = scores[0] if n_asked == 1 else np.exp(scores - scores.max(1, keepdims=True)).sum(0)
    order = np.argsort(-votes, kind="stable")
    named = set(np.argsort(-scores, axis=1)[:, :n].ravel().tolist())
    found = [int(e) for e in order if e in named]
    assert np.diff(-votes[found]).min() > 1e-5, "too close to call in single precision"
    return found


@pytest.mark.parametrize("seed", range(8))
def test_one_token_predicts_the_next_layers_best(seed: int) -> None:
    matrices, rows = routers(seed), inputs(seed + 100, 1)
    for layer in (0, 1):
        assert predicted(probe(matrices), layer, rows) == (
            layer + 1,
            best(matrices[layer + 1], rows, 4),
        )


def test_two_layers_ahead() -> None:
    matrices, rows = routers(3, 4), inputs(8, 1)
    for layer, target in ((0, 2), (1, 3), (2, 0), (3, 1)):
        assert predicted(probe(matrices, stride=2), layer, rows) == (
            target,
            best(matrices[target], rows, 4),
        )


@pytest.mark.parametrize("n_token", [2, 3, 31, 32, 33, 65, 300])
def test_several_tokens_vote(n_token: int) -> None:
    matrices, rows = routers(1), inputs(7, n_token)
    assert predicted(probe(matrices, 8), 0, rows) == (1, best(matrices[1], rows, 8))


def test_as_many_as_a_token_uses_are_predicted_by_default() -> None:
    assert len(predicted(probe(routers(0), n_predict=0), 0, inputs(1, 1))[1]) == 4


@pytest.mark.parametrize("n_predict", [1, N_EXPERT, N_EXPERT + 5])
def test_any_number_can_be_asked_for(n_predict: int) -> None:
    _, found = predicted(probe(routers(0), n_predict), 0, inputs(1, 1))
    assert len(found) == len(set(found)) == min(n_predict, N_EXPERT)


@pytest.mark.parametrize("n_token", [1, 5, 40])
def test_the_last_layer_predicts_the_first_one_of_the_next_token(n_token: int) -> None:
    matrices, rows = routers(0), inputs(1, n_token)
    assert predicted(probe(matrices), 2, rows) == (0, best(matrices[0], rows[-1:], 4))


def test_a_layer_without_a_router_is_not_predicted() -> None:
    matrices = routers(0)
    matrices[1] = np.zeros((0, N_EMBD), np.float32)
    p = probe(matrices)
    assert p.gate_seen(0, inputs(1, 1)) == []
    assert len(predicted(p, 1, inputs(1, 1))[1]) == 4


def test_no_token_predicts_nothing() -> None:
    assert probe(routers(0)).gate_seen(0, np.zeros((0, N_EMBD), np.float32)) == []


@pytest.mark.parametrize("n_token", [1, 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_garbage_inputs_still_name_experts(bad: float, n_token: int) -> None:
    rows = inputs(1, n_token)
    rows[:, ::3] = bad
    _, found = predicted(probe(routers(0)), 0, rows)
    assert len(found) == len(set(found)) >= 4 and (n_token > 1 or len(found) == 4)
    assert all(0 <= e < N_EXPERT for e in found)


def test_one_token_of_garbage_does_not_drown_the_others() -> None:
    matrices, rows = routers(0), inputs(1, 5)
    clean = best(matrices[1], np.delete(rows, 2, axis=0), 4)
    rows[2] = np.nan
    assert predicted(probe(matrices), 0, rows)[1] == clean


def test_garbage_routers_still_name_experts() -> None:
    matrices = routers(0)
    matrices[1][3] = np.nan
    matrices[1][5] = np.inf
    _, found = predicted(probe(matrices), 0, inputs(1, 1))
    assert len(set(found)) == 4 and not {3, 5} & set(found)


@pytest.mark.parametrize("n_embd", [1, 31, 32, 33, 70])
def test_any_width(n_embd: int) -> None:
    rng = np.random.default_rng(n_embd)
    matrices = [rng.standard_normal((N_EXPERT, n_embd)).astype(np.float32) for _ in range(2)]
    rows = rng.standard_normal((1, n_embd)).astype(np.float32)
    assert predicted(probe(matrices), 0, rows)[1] == best(matrices[1], rows, 4)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_a_bias_of_the_selection_takes_part_in_the_ranking(sigmoid: bool) -> None:
    """DeepSeek-V3's technical report, section 2.1.2; gpt-oss adds a bias to the products."""
    matrices, rows = routers(4), inputs(9, 1)
    rng = np.random.default_rng(2)
    added, selected = rng.normal(size=(2, N_EXPERT)).astype(np.float32)
    products = rows[0].astype(np.float64) @ matrices[1].astype(np.float64).T + added
    exps = np.exp(products - products.max())
    gates = 1 / (1 + np.exp(-products)) if sigmoid else exps / exps.sum()
    shape = Shape(N_EXPERT, 4, [[100]] * len(matrices))
    p = PredictorProbe(
        Spec("next_router"),
        shape,
        Layout.per_layer([N_EXPERT] * len(matrices)),
        routers=matrices,
        n_predict=4,
        biases=[RouterBias(added.tolist(), selected.tolist(), sigmoid)] * len(matrices),
    )
    wanted = np.argsort(-(gates + selected), kind="stable")[:4].tolist()
    assert predicted(p, 0, rows) == (1, wanted)
    assert predicted(probe(matrices), 0, rows)[1] != wanted
