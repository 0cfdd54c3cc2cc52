"""Timelines computed by hand. The simulator must give exactly these."""

from __future__ import annotations

import pytest
from sim_tools import core_of, future_of, simulate

from backend import _native
from backend._native import LayerLayout, Layout, PoolLayout, Shape, Spec

ONE = Shape(2, 1, [[100]])
"""One layer of two experts of one matrix, of which a token uses one."""


def test_a_miss_waits_for_latency_and_bytes() -> None:
    future = future_of([[[[0]]], [[[1]]], [[[0]]], [[[0]]]])
    s = simulate(
        core_of(ONE, [1]), future, link_bytes_per_us=10, link_latency_us=2, dense_us=5, expert_us=3
    )
    # Dense 5, latency 2, bytes 100 / 10, compute 3. The last pass is a hit.
    assert s.pass_us.tolist() == [20, 20, 20, 8]
    assert s.pass_stall_us.tolist() == [12, 12, 12, 0]
    assert (s.hits.tolist(), s.late.tolist(), s.misses.tolist()) == ([1], [0], [3])
    assert s.bytes_read.tolist() == [300]
    assert s.pass_hits.tolist() == [0, 0, 0, 1]
    assert s.pass_requests.tolist() == [1, 1, 1, 1]
    phase = s.decode
    assert (phase.time_us, phase.compute_us, phase.stall_us) == (68, 32, 36)
    assert phase.link_busy_us == 36
    assert (phase.n_pass, phase.n_token, s.prefill.n_pass) == (4, 4, 0)


def test_the_link_is_idle_until_the_choice_is_known() -> None:
    future = future_of([[[[0]], [[0]]], [[[1]], [[0]]]])
    shape = Shape(2, 1, [[100]] * 2)
    s = simulate(core_of(shape, [1, 1]), future, link_bytes_per_us=10, dense_us=5, expert_us=3)
    # First pass: idle for 5, copies for 10, idle for 3 + 5. Second: only the first layer lacks one.
    assert s.decode.link_idle_us == 5 + 8 + 5
    assert s.decode.link_busy_us == 30


def test_a_copy_slows_computing() -> None:
    shape = Shape(4, 2, [[100]])
    future = future_of([[[[0, 1]]], [[[0, 1]]]])
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 4}
    s = simulate(core_of(shape, [2]), future, copy_slows=0.5, **machine)
    # The first expert arrives at 15. Beside the copy of the second it takes 6. That arrives at 25.
    assert s.pass_us.tolist() == [pytest.approx(29, abs=0.01), 13]
    assert s.decode.compute_us == pytest.approx(2 * 13 + 2, abs=0.01)


def test_copies_one_after_the_other_overlap_with_computing() -> None:
    shape = Shape(4, 2, [[100]])
    future = future_of([[[[0, 1]]]])
    s = simulate(core_of(shape, [2]), future, link_bytes_per_us=10, dense_us=5, expert_us=3)
    # The first arrives at 15 and is computed until 18; the second arrives at 25.
    assert s.pass_us.tolist() == [28]
    assert s.stall_us.tolist() == [10 + 7]


def test_a_device_stops_and_then_computes_all_at_once() -> None:
    shape = Shape(4, 2, [[100]])
    future = future_of([[[[0, 1]]], [[[0, 1]]]])
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 3, "stop_us": 7}
    s = simulate(core_of(shape, [2]), future, **machine)
    # It stops until 12; the experts arrive at 22 and 32. The second pass lacks none, but stops.
    assert s.pass_us.tolist() == [38, 18]
    assert s.stall_us.tolist() == [20]


def test_each_graph_of_a_wave_costs_a_stop() -> None:
    shape = Shape(4, 2, [[100]])
    future = future_of([[[[0, 1]]], [[[0, 2], [0, 2]]]])
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 3, "stop_us": 7}
    s = simulate(core_of(shape, [3]), future, **machine)
    # The second pass stops until 12. Expert 0 is computed until 22, when expert 2 arrives.
    assert s.pass_us.tolist() == [38, 32]
    assert s.pass_stall_us.tolist() == [20, 0]


def test_a_layer_that_keeps_all_experts_needs_no_stop() -> None:
    shape = Shape(2, 1, [[100]])
    future = future_of([[[[0]]]] * 4)
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 3, "stop_us": 7}
    s = simulate(core_of(shape, [2], numbers={"fill": 1.0}), future, **machine)
    assert s.pass_us.tolist()[-1] == 8


def test_copies_at_the_same_time_share_the_link() -> None:
    shape = Shape(4, 2, [[100]])
    future = future_of([[[[0, 1]]]])
    machine = {"link_bytes_per_us": 10, "link_latency_us": 4, "dense_us": 5, "expert_us": 3}
    s = simulate(core_of(shape, [2]), future, n_link=2, **machine)
    # Both are copied from 9 on, at 5 bytes per microsecond each, arrive at 29 and are one wave.
    assert s.pass_us.tolist() == [35]
    assert s.stall_us.tolist() == [24]
    assert s.decode.link_busy_us == 24


def test_a_copy_alone_has_the_whole_link_again() -> None:
    shape = Shape(4, 2, [[100, 40]])
    future = future_of([[[[0, 1]]]])
    s = simulate(core_of(shape, [2]), future, link_bytes_per_us=10, n_link=3, expert_us=3)
    # 100, 40 and 100 begin. The 40 ends at 12; the other 40 begins then and ends at 24. The
    # two large ones have 80 bytes each by then, share the link and arrive at 28.
    assert s.pass_us.tolist() == [28 + 6]


@pytest.mark.parametrize(("joined_bytes", "token_us"), [(0.0, 31), (1e3, 27)])
def test_what_lies_together_is_one_read(joined_bytes: float, token_us: float) -> None:
    """A pack has the matrices of an expert in one range: one latency of 4, then 20."""
    machine = {"link_bytes_per_us": 10, "link_latency_us": 4, "expert_us": 3}
    future = future_of([[[[0]]]])
    core = core_of(Shape(4, 1, [[100, 100]]), [2])
    s = simulate(core, future, joined_bytes=joined_bytes, **machine)
    assert s.pass_us.tolist() == [token_us]
    assert s.bytes_read.tolist() == [200]


@pytest.mark.parametrize(("joined_bytes", "token_us"), [(0.0, 43), (150.0, 53), (1e3, 63)])
def test_a_forecast_is_read_together_up_to_the_limit(joined_bytes: float, token_us: float) -> None:
    """At the gate, at 5, a read of 10, 20 or 30 microseconds is in flight. Then 30, and 3."""
    wrong = Spec("accuracy", {"accuracy": 0})
    future = future_of([[[[0]]]])
    core = core_of(Shape(4, 1, [[100, 100, 100]]), [2], future, predictor=wrong)
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 3}
    s = simulate(core, future, joined_bytes=joined_bytes, **machine)
    assert s.pass_us.tolist() == [token_us]


def test_a_needed_copy_overtakes_but_does_not_interrupt() -> None:
    shape = Shape(4, 1, [[100, 100, 100]])
    future = future_of([[[[0]]]])
    machine = {"link_bytes_per_us": 10, "dense_us": 5, "expert_us": 3}
    wrong = Spec("accuracy", {"accuracy": 0})
    # At 0 three matrices of a wrong expert are queued. At the gate, at 5, the first is in
    # flight until 10; the others are cancelled. The needed matrices are copied from 10 to 40.
    s = simulate(core_of(shape, [2], future, predictor=wrong), future, **machine)
    assert s.pass_us.tolist() == [43]
    assert s.bytes_read.tolist() == [400]
    # As one copy, the wrong expert is in flight until 30.
    s = simulate(
        core_of(shape, [2], future, predictor=wrong, numbers={"chunks": 0}), future, **machine
    )
    assert s.pass_us.tolist() == [63]
    assert s.bytes_wasted.tolist() == [0]  # it is still resident, unused


def test_a_prefetch_hides_a_copy_behind_computing() -> None:
    shape = Shape(2, 1, [[100], [100]])
    future = future_of([[[[0]], [[1]]]])
    core = core_of(shape, [1, 1], future, predictor=Spec("oracle"))
    s = simulate(core, future, link_bytes_per_us=10, dense_us=6, expert_us=3)
    # Layer 0's expert is requested at 0 and arrives at 10: late at 6. Layer 1's is requested at 6,
    # begins at 10 and arrives at 20. Layer 1's gate is at 10 + 3 + 6 = 19: late again.
    assert s.stall_us.tolist() == [4, 1]
    assert (s.late.tolist(), s.misses.tolist()) == ([1, 1], [0, 0])
    assert s.pass_us.tolist() == [23]
    # Both predictions were right; neither expert arrived in time.
    assert s.predicted.tolist() == s.predicted_used.tolist() == [1, 1]
    assert s.predicted_ready.tolist() == [0, 0]


def test_the_top_of_a_cut_expert_computes_while_the_bottom_is_on_its_way() -> None:
    shape = Shape(2, 1, [[100]], n_cut=[2])
    layout = Layout([PoolLayout(2), PoolLayout(1)], [LayerLayout(0.5, [0, 1])])
    future = future_of([[[[0]]], [[[1]]], [[[0]]]])
    s = simulate(core_of(shape, layout), future, link_bytes_per_us=10, dense_us=5, expert_us=4)
    # Top: copied from 5 to 10, computed until 12. Bottom: from 10 to 15, until 17. Third pass: the
    # top is resident; its 2 of computing hide a part of the bottom's 5.
    assert s.pass_us.tolist() == [17, 17, 5 + 5 + 2]
    assert s.pass_stall_us.tolist() == [8, 8, 3]
    assert (s.hits.tolist(), s.misses.tolist()) == ([1], [5])
    assert s.bytes_read.tolist() == [250]


def test_tokens_of_a_prompt_cost_their_operations() -> None:
    shape = Shape(4, 1, [[100], [100]])
    # Three tokens. The last layer computes only the last one.
    future = future_of([[[[0], [0], [1]], [[2]]]], prefill=[0])
    s = simulate(
        core_of(shape, [4, 4]),
        future,
        dense_us=10,
        dense_token_us=1,
        expert_us=3,
        expert_token_us=0.5,
        wave_us=7,
        pass_us=100,
    )
    # Instant copies: each layer is one wave. Twice 12 dense; 7 + 3.5 + 3, then 7 + 3; 100.
    assert s.pass_us.tolist() == [24 + 13.5 + 10 + 100]
    assert (s.prefill.n_token, s.prefill.stall_us, s.decode.n_pass) == (3, 0, 0)
    assert s.misses.tolist() == [2, 1]


def test_experts_of_another_size_take_another_time() -> None:
    shape = Shape(2, 1, [[100], [300]])
    s = simulate(core_of(shape, [1, 1]), future_of([[[[0]], [[0]]]]), expert_us=4)
    assert s.pass_us.tolist() == [4 * 100 / 200 + 4 * 300 / 200]


def test_a_warm_core_goes_on_where_it_was() -> None:
    future = future_of([[[[0]]]])
    core = core_of(ONE, [1])
    assert simulate(core, future, link_bytes_per_us=10).misses.tolist() == [1]
    again = simulate(core, future, link_bytes_per_us=10)
    assert (again.hits.tolist(), again.misses.tolist()) == ([1], [0])
    assert again.bytes_read.tolist() == [0]


@pytest.mark.parametrize(
    "figure",
    ["link_bytes_per_us", "link_latency_us", "dense_us", "expert_us", "wave_us", "pass_us"],
)
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_machine_has_sound_figures(figure: str, value: float) -> None:
    with pytest.raises(ValueError, match=figure):
        _native.Machine(**{figure: value})
    with pytest.raises(ValueError, match="n_link"):
        _native.Machine(n_link=0)


def test_a_trace_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="2 layers, and the model has 1"):
        simulate(core_of(ONE, [1]), future_of([[[[0]], [[0]]]]))
    with pytest.raises(ValueError, match="uses expert 7, which the model does not have"):
        simulate(core_of(ONE, [1]), future_of([[[[7]]]]))
