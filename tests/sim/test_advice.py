"""Advice after an answer: the simulator replays a made-up trace with other settings."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from backend.simulation.advice import WORTH, Question, advise, answer, machine
from backend.traces.trace import DECODE, PREFILL, Trace

N_LAYER, N_EXPERT, N_USED, N_TOKEN = 4, 32, 2, 200
EXPERT_BYTES = 3_000_000
LINK_BYTES_PER_S = 1e9
COMPUTE_S = 0.01  # of a token


def made_up(n_request: int = 2) -> Trace:
    """Return requests of a prompt and tokens that use 12 experts of each layer in turn."""
    chance = np.random.default_rng(1)
    n_pass = n_request * (N_TOKEN + 1)
    phases = np.full(n_pass, DECODE, np.uint8)
    phases[:: N_TOKEN + 1] = PREFILL
    ids = chance.integers(0, 6, (n_pass, N_LAYER, N_USED)) * 2 + np.arange(N_USED)
    return Trace(
        architecture="made-up",
        layers=tuple(range(N_LAYER)),
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        chunk_bytes=((EXPERT_BYTES // 3,) * 3,) * N_LAYER,
        phases=phases,
        requests=np.repeat(np.arange(n_request), N_TOKEN + 1),
        n_token=np.ones(n_pass, np.int64),
        n_routed=np.ones((n_pass, N_LAYER), np.int64),
        tokens=np.full(n_pass, -1),
        ids=ids.astype(np.uint8),
        about={"layer_dense_bytes": 6_000_000, "output_bytes": 1_000_000},
    )


def question(stall_s: float, n_slot: int = 6, spare_bytes: int = 1 << 40) -> Question:
    return Question(
        method="lru-overlapped", n_slot=n_slot, n_token=N_TOKEN, compute_s=COMPUTE_S * N_TOKEN,
        stall_s=stall_s, link_busy_s=10.0, bytes_read=int(10.0 * LINK_BYTES_PER_S),
        spare_bytes=spare_bytes, accuracy=0.9,
    )  # fmt: skip


def measured(trace: Trace, n_slot: int) -> float:
    """Return the stall of the last answer in seconds, on a machine that is as simulated."""
    from backend.methods.catalogue import METHODS
    from backend.simulation.run import Setting, run

    setting = Setting(trace, machine=machine(question(1.0), trace), accuracy=0.9)
    rate = (n_slot + 0.5) / N_EXPERT
    result = next(iter(run(setting, [METHODS["lru-overlapped"]], [rate])))
    assert result.pass_stall_us is not None
    last = (trace.phases == DECODE) & (trace.requests == trace.requests[-1])
    return float(result.pass_stall_us[last].sum()) / 1e6


def test_the_machine_is_the_one_that_was_measured() -> None:
    found = machine(question(1.0), made_up())
    assert found.link_bytes_per_us == pytest.approx(LINK_BYTES_PER_S / 1e6)
    layer_us = found.dense_us + N_USED * found.expert_us
    assert N_LAYER * layer_us + found.pass_us == pytest.approx(1e6 * COMPUTE_S)


def test_the_smallest_cache_that_ends_the_waiting_is_recommended() -> None:
    trace = made_up()
    stall_s = measured(trace, 6)
    advice = advise(question(stall_s), trace)
    assert advice.reason == "" and advice.scale == pytest.approx(1.0)
    assert advice.cache is not None and 10 <= advice.cache.n_slot < 20  # 12 are used in all
    assert advice.cache.cache_bytes == advice.cache.n_slot * N_LAYER * EXPERT_BYTES
    # The forecast is the simulated speed with that cache.
    expected = (2.0 + stall_s) / (2.0 + measured(trace, advice.cache.n_slot))
    assert advice.cache.times == pytest.approx(expected, rel=0.02)
    assert advice.stall_share == pytest.approx(stall_s / (2.0 + stall_s))


def test_a_cache_that_memory_does_not_permit_is_not_recommended() -> None:
    trace = made_up()
    stall_s = measured(trace, 6)
    slot_bytes = N_LAYER * EXPERT_BYTES
    advice = advise(question(stall_s, spare_bytes=2 * slot_bytes), trace)
    assert advice.cache is None or advice.cache.n_slot <= 8
    assert advise(question(stall_s, spare_bytes=0), trace).cache is None


def test_nothing_is_recommended_where_nothing_waits() -> None:
    trace = made_up()
    advice = advise(replace(question(0.0, n_slot=20), bytes_read=1), trace)
    assert (advice.cache, advice.method, advice.reason) == (None, None, "")


def test_nothing_is_forecast_from_what_is_not_understood() -> None:
    trace = made_up()
    stall_s = measured(trace, 6)
    far = advise(question(20 * stall_s), trace)
    assert far.reason and far.cache is None and far.method is None
    short = advise(replace(question(stall_s), n_token=5), trace)
    assert "too short" in short.reason
    late = advise(question(stall_s), trace, time_s=0.0)
    assert (late.cache, late.method) == (None, None)


def test_what_is_recommended_is_worth_it() -> None:
    trace = made_up()
    for n_slot in (3, 6, 9, 11):
        advice = advise(question(measured(trace, n_slot), n_slot), trace)
        for option in (advice.cache, advice.method):
            assert option is None or option.times >= WORTH


def test_the_trace_of_a_conversation_does_not_stay_behind(tmp_path: Path) -> None:
    folder = tmp_path / "asked"
    folder.mkdir()
    made_up().write(folder / "answer.trace")
    request = {"trace": str(folder / "answer.trace"), "model": str(tmp_path / "none.gguf")}
    with pytest.raises(ValueError):
        answer({"question": asdict(question(1.0)), **request})
    assert not folder.exists()
