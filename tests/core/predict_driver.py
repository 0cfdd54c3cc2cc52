"""Plays traces to a predictor and to its Python reference, and compares the forecasts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from reference import predictors as plain
from reference.predictors import Pass, Scores, Sizes

from backend._native import Future, Layout, Phase, PredictorProbe, Shape, Spec

Forecast = tuple[int, list[int], list[float]]


def probe_of(
    name: str,
    sizes: Sizes,
    numbers: dict[str, float] | None = None,
    arrays: dict[str, Any] | None = None,
    n_predict: int = 0,
) -> PredictorProbe:
    """Return a predictor for a model of these sizes."""
    future = None
    if sizes.future:
        future = Future()
        for p in sizes.future:
            n_token = max(len(ids) for ids in p.ids)
            ids = np.zeros((sizes.n_layer, n_token, sizes.n_expert_used), np.int32)
            for layer, rows in enumerate(p.ids):
                if rows:
                    ids[layer, n_token - len(rows) :] = rows
            n_routed = [len(rows) for rows in p.ids]
            future.append(Phase[p.phase], p.tokens, p.begins_request, ids, n_routed)
    return PredictorProbe(
        Spec(
            name,
            numbers or {},
            {k: np.ascontiguousarray(v, np.float32) for k, v in (arrays or {}).items()},
        ),
        Shape(sizes.n_expert, sizes.n_expert_used, [[100, 100, 100]] * sizes.n_layer),
        Layout.per_layer([sizes.n_expert] * sizes.n_layer),
        n_embd=sizes.n_embd,
        routers=[np.ascontiguousarray(r, np.float32) for r in sizes.routers],
        future=future,
        n_predict=n_predict,
    )


def random_trace(
    seed: int,
    sizes: Sizes,
    n_request: int = 4,
    n_decode: int = 12,
    longest_prompt: int = 40,
    n_vocabulary: int = 30,
) -> list[Pass]:
    """Return a trace like a model's: experts depend on token, topic and each other."""
    rng = np.random.default_rng(seed)
    by_token = rng.standard_normal((n_vocabulary, sizes.n_layer, sizes.n_expert))
    topics = 2 * rng.standard_normal((3, sizes.n_layer, sizes.n_expert))
    passes = []
    for request in range(n_request):
        topic = topics[rng.integers(len(topics))]
        for i in range(n_decode + 1):
            n_token = 1 if i else int(rng.integers(1, longest_prompt))
            tokens = rng.integers(n_vocabulary, size=n_token)
            noise = rng.standard_normal((n_token, sizes.n_layer, sizes.n_expert))
            logits = by_token[tokens] + topic + noise
            ids, weights, inputs = [], [], []
            for layer in range(sizes.n_layer):
                # As in llama.cpp, the last layer computes only the last token of a prompt.
                rows = logits[-1:, layer] if layer == sizes.n_layer - 1 else logits[:, layer]
                best = np.argsort(-rows, 1)[:, : sizes.n_expert_used]
                chosen = np.exp(np.take_along_axis(rows, best, 1))
                ids.append(best.tolist())
                weights.append((chosen / chosen.sum(1, keepdims=True)).astype(np.float32).tolist())
                x = rng.standard_normal((len(rows), sizes.n_embd)) / math.sqrt(sizes.n_embd or 1)
                inputs.append(x.astype(np.float32).astype(np.float64))
            phase = "decode" if i else "prefill"
            passes.append(Pass(phase, tokens.tolist(), ids, weights, inputs, i == 0))
        assert request < n_request
    return passes


def agree(
    forecasts: list[Forecast], wanted: list[Scores], n_predict: int, tolerance: float
) -> None:
    """Require the same layers in the same order, and experts in an order that the scores allow."""
    assert [t[0] for t in forecasts] == [s.layer for s in wanted]
    for (_, experts, scores), reference in zip(forecasts, wanted, strict=True):
        values = reference.values
        if reference.voters:
            agree_on_named(set(experts), reference, n_predict, tolerance)
            values = np.where(np.isin(np.arange(len(values)), experts), values, -math.inf)
        best = np.sort(values[values > -math.inf])[::-1]
        best = best[: len(values) if reference.voters else n_predict * reference.n_token]
        assert len(experts) == len(set(experts)) == len(best)
        slack = tolerance * max(1.0, float(np.abs(best).max(initial=0)))
        np.testing.assert_allclose(values[experts], best, rtol=0, atol=slack)
        np.testing.assert_allclose(scores, values[experts], rtol=0, atol=slack)
        if tolerance == 0:  # equals in the order of their index
            assert experts == sorted(experts, key=lambda e: (-values[e], e))


def agree_on_named(forecasts: set[int], wanted: Scores, n_predict: int, tolerance: float) -> None:
    """Require exactly the experts that are among the n_predict best of a token."""
    surely, maybe = set[int](), set[int]()
    for scores in wanted.voters:
        worst = np.sort(scores)[::-1][:n_predict][-1]
        slack = tolerance * max(1.0, float(np.abs(scores).max()))
        surely |= set(np.flatnonzero(scores > worst + slack).tolist())
        maybe |= set(np.flatnonzero(scores >= worst - slack).tolist())
    assert surely <= forecasts <= maybe


def play(
    probe: PredictorProbe,
    reference: plain.Predictor,
    passes: list[Pass],
    n_predict: int,
    tolerance: float = 1e-5,
) -> int:
    """Compare all forecasts with the reference. Return their number."""
    n = 0
    for p in passes:
        if p.begins_request:
            probe.request_began()
            reference.request_began()
        forecasts, wanted = probe.pass_began(Phase[p.phase], p.tokens), reference.pass_began(p)
        agree(forecasts, wanted, n_predict, tolerance)
        n += len(forecasts)
        for layer, ids in enumerate(p.ids):
            flat = [e for token in ids for e in token]
            weights = [w for token in p.weights[layer] for w in token]
            forecasts = probe.routed(layer, flat, weights)
            agree(forecasts, reference.routed(layer), n_predict, tolerance)
            n += len(forecasts)
            if probe.wants_input:
                forecasts = probe.gate_seen(layer, p.inputs[layer].astype(np.float32))
                agree(forecasts, reference.gate_seen(layer), n_predict, tolerance)
                n += len(forecasts)
    return n
