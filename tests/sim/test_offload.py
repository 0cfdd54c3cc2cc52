"""Stock llama.cpp with some layers' experts in RAM, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sim_tools import trace_of

from backend import _native
from backend.cli import main
from backend.simulation.offload import n_cpu_moe
from backend.traces.trace import DECODE, PREFILL, Trace

MACHINE = _native.Machine(
    link_bytes_per_us=10, link_latency_us=2, dense_us=5, dense_token_us=1, expert_us=3,
    expert_token_us=0.5, wave_us=4, host_us=20, host_expert_us=30, host_expert_token_us=6,
    stop_us=7, pass_us=11,
)  # fmt: skip


def one_pass(n_token: int) -> Trace:
    """Return one pass of two layers with three matrices of 1,000 bytes; all tokens use 0 and 1."""
    return trace_of(
        n_token=np.array([n_token], np.int32),
        phases=np.array([PREFILL if n_token > 1 else DECODE], np.uint8),
        requests=np.zeros(1, np.int32),
        n_routed=np.full((1, 2), n_token, np.int32),
        tokens=np.full(n_token, -1, np.int32),
        ids=np.tile(np.array([0, 1], np.uint8), (n_token, 2, 1)),
    )


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_the_processor_computes_a_token_of_a_layer_in_ram(rate: float) -> None:
    found = n_cpu_moe(one_pass(1), MACHINE, rate)
    there, in_ram = 4 + 2 * 3, 7 + 20 + 2 * 30
    assert found.decode is not None and found.total is not None
    assert found.decode.time_s == pytest.approx((11 + 2 * 5 + there + in_ram) / 1e6)
    assert (found.total.hits, found.total.misses, found.total.bytes_read) == (2, 2, 0)
    assert found.rate == 0.5


@pytest.mark.parametrize(("n_token", "is_copied"), [(31, False), (32, True)])
def test_the_experts_of_a_longer_prompt_are_copied(n_token: int, is_copied: bool) -> None:
    found = n_cpu_moe(one_pass(n_token), MACHINE, 0.5)
    further = 2 * (n_token - 1)
    there = 4 + 2 * 3 + further * 0.5
    copied_us = 3 * 2 + 2 * 3000 / 10 if is_copied else 0
    in_ram = 7 + (there if is_copied else 20 + 2 * 30 + further * 6)
    compute_us = 11 + 2 * (5 + n_token - 1) + there + in_ram
    assert found.prefill is not None and found.total is not None
    assert found.prefill.time_s == pytest.approx((compute_us + copied_us) / 1e6)
    assert found.prefill.stall_s == pytest.approx(copied_us / 1e6)
    assert found.total.bytes_read == (6000 if is_copied else 0)


def test_nothing_in_ram_costs_what_a_resident_model_costs() -> None:
    found = n_cpu_moe(one_pass(1), MACHINE, 1.0)
    assert found.decode is not None
    assert found.decode.time_s == pytest.approx((11 + 2 * (5 + 4 + 2 * 3)) / 1e6)


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.trace"
    trace_of().write(path)
    options = [str(path), "--methods", "lru", "--no-references", "--n-cpu-moe"]
    assert main(["simulate", *options, "--rates", "0.5", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["method"] for r in results] == ["n-cpu-moe", "lru"]
    assert main(["simulate", *options, "--machine", "instant"]) == 2
    assert "copies take time" in capsys.readouterr().err
