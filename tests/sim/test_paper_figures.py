"""The figures of the papers: how a trace is prepared for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sim_tools import trace_of

from backend.evaluation.paper_figures import (
    QWEN2_57B,
    Inputs,
    hot_accuracy,
    joined,
    moepic_table3,
    sized,
)
from backend.methods.compose import Learned
from backend.traces.trace import DECODE, PREFILL


def test_requests_are_decoded_together_until_the_shortest_ends() -> None:
    trace = trace_of(n_pass=10)
    begins = np.zeros(10, np.int32)
    begins[6:] = 1  # the second request has 4 passes
    phases = trace.phases.copy()
    phases[6] = PREFILL
    together = joined(replace(trace, requests=begins, phases=phases), 2)
    assert together.phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE, DECODE]
    assert together.n_token.tolist() == [5, 1, 2, 2, 2]
    first, second = int(trace.begins[1]), int(trace.begins[7])
    assert (together.ids[6:8] == trace.ids[[first, second]]).all()


def test_a_layer_gets_the_papers_bytes() -> None:
    trace = sized(trace_of(), QWEN2_57B)
    layer_bytes = sum(trace.chunk_bytes[0]) * trace.n_expert
    wanted = 3 * 3584 * 2560 * 64 * 4.5 / 8
    assert abs(layer_bytes / wanted - 1) < 1e-3


def test_a_table_has_a_row_for_each_part_that_is_left_out() -> None:
    rng = np.random.default_rng(1)
    trace = trace_of(n_pass=8, n_expert=16)
    n, n_layer, n_embd = len(trace.tokens), trace.n_layer, 8
    trace = replace(
        trace,
        inputs=rng.normal(size=(n, n_layer, n_embd)).astype(np.float16),
        has_inputs=np.ones(n_layer, np.uint8),
        n_embd=n_embd,
    )
    routers = [rng.normal(size=(16, n_embd)).astype(np.float32) for _ in range(n_layer)]
    figure = moepic_table3(Inputs(trace, routers, [], Learned()))
    assert [row[0] for row in figure.rows][:2] == ["MoEpic", "without prediction"]
    assert all(float(cell) > 0 for row in figure.rows for cell in row[1:])


def test_forecasts_of_hot_experts_are_judged_by_all_tokens_of_a_pass() -> None:
    """If two requests keep to experts of their own, those of both are used and none is hotter."""
    trace = trace_of(n_pass=20, n_expert=16)
    k = trace.n_expert_used
    ids, phases = trace.ids.copy(), trace.phases.copy()
    begins = np.repeat(np.array([0, 1], np.int32), 10)
    phases[10] = PREFILL
    owner = np.repeat(begins, trace.n_token)
    ids[owner == 0] = np.arange(k)
    ids[owner == 1] = np.arange(k, 2 * k)
    two = joined(replace(trace, requests=begins, phases=phases, ids=ids), 2, keeps_sequences=True)
    used, hot = hot_accuracy(two)
    assert (used[1:] == 1).all() and (hot[1:] == 1).all()
    changed = two.ids.copy()
    changed[-2:, 1:] = 15 - np.arange(k)  # in the last pass both use others, from layer 1 on
    worse, _ = hot_accuracy(replace(two, ids=changed))
    assert (worse[1:] < 1).all()
