"""The costs of passes are the differences of counters that only grow."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from backend.engine.meter import Meter
from backend.methods.cost import COUNTERS

TIMES = {"stall_us": 2e6, "wave_us": 1e6, "callback_us": 4e6, "link_busy_us": 3e6,
         "link_idle_us": 5e6}  # fmt: skip
HOST = {"host_found": 30, "host_awaited": 20, "host_read": 60}


class Patch:
    """Counts the same for each pass. It has computed some before the meter begins."""

    n_pass = 7
    layers = (3, 4)

    def costs(self) -> tuple[dict[str, int], list[tuple[int, ...]]]:
        steps = {**TIMES, **HOST, **{name: n for n, name in enumerate(COUNTERS, 1)}}
        layers = [(1, 2, 3, 4, 500_000 * (layer + 1), 6, 7) for layer in range(2)]
        return (
            {name: round(step * self.n_pass) for name, step in steps.items()},
            [tuple(self.n_pass * value for value in layer) for layer in layers],
        )


def test_each_pass_has_its_own_costs() -> None:
    patch: Any = Patch()
    meter = Meter(patch)
    for n in (1, 2, 3):
        patch.n_pass += 1
        meter.add_pass(decode_s=10.0, wall_s=12.0, is_token=n > 1)
        token, sums = meter.token, meter.statistics
        # Outside: of the callback what is neither stall nor wave.
        assert (token.compute_s, token.stall_s) == (pytest.approx(7.0), pytest.approx(2.0))
        assert (token.link_busy_s, token.link_idle_s) == (pytest.approx(3.0), pytest.approx(5.0))
        assert [getattr(token, name) for name in COUNTERS] == [*range(1, len(COUNTERS) + 1)]
        assert meter.token_wave_s == pytest.approx(1.0)
        assert list(meter.layer_stall_us) == [500_000, 1_000_000]
        assert sums.stall_s == pytest.approx(2.0 * n) and len(sums.tokens) == n - 1
        n_read = token.bytes_read + 60 - (30 + 20)
        assert (sums.bytes_from_host, sums.bytes_from_file) == (30 * n, n_read * n)
        assert [(x.layer, x.stall_s) for x in sums.layers] == [(3, 0.5 * n), (4, 1.0 * n)]


def test_the_first_token_is_waited_for_and_the_others_have_a_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one comes from the prompt's pass, so that the speed is of those behind it."""
    times = iter((100.0, 103.0, 103.5, 105.0))
    clock = SimpleNamespace(perf_counter=lambda: next(times), monotonic=time.monotonic)
    monkeypatch.setattr("backend.engine.meter.time", clock)
    meter = Meter(None)
    for n_token, speed in ((0, 0.0), (1, 2.0), (4, 2.0)):
        meter.statistics.n_token = n_token
        meter.note_choice()
        assert meter.statistics.ttft_s == pytest.approx(3.0)
        assert meter.statistics.tokens_per_s == pytest.approx(speed)
