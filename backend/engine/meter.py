"""Reads the patch's counters after each pass and adds up an answer's costs."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass

from backend import _native
from backend.methods.cost import COUNTERS, PassCost, total
from backend.protocol.statistics import LayerCost, Statistics, TokenCost
from backend.system.memory import peak_rss_bytes

_TIMES = ("stall_us", "wave_us", "callback_us", "link_busy_us", "link_idle_us")
_RSS_PERIOD_S = 0.2  # between two looks at the process's memory, which take 0.1 ms each


@dataclass(frozen=True)
class _Counters:
    """The patch's counters at one moment.

    layers: for each MoE layer (hits, late, misses, bytes_read, stall_us, on_host, host_rows).
    """

    values: dict[str, int]
    layers: Sequence[tuple[int, ...]]

    @classmethod
    def of(cls, patch: _native.Patch) -> _Counters:
        """Read a backend._native.Patch."""
        return cls(*patch.costs())

    def __sub__(self, other: _Counters) -> _Counters:
        """Return the difference from other counters of the same model."""
        return _Counters(
            {name: value - other.values[name] for name, value in self.values.items()},
            [
                tuple(map(operator.sub, mine, its))
                for mine, its in zip(self.layers, other.layers, strict=True)
            ],
        )


class Meter:
    """Adds up an answer's costs. Without a patch, all time except waiting counts as compute.

    began_s: when the requests began. token: the cost of the last pass, as one token. token_wave_s:
    its time in waves. layer_stall_us: its stall by MoE layer.
    """

    def __init__(self, patch: _native.Patch | None) -> None:
        self.statistics = Statistics()
        self.began_s = time.perf_counter()
        self._first_s = 0.0  # when the first token was chosen
        self._patch = patch
        self._start = None if patch is None else _Counters.of(patch)
        self._last = self._start
        self.token = PassCost()
        self.token_wave_s = 0.0
        self.layer_stall_us: tuple[int, ...] = ()
        self.n_pass = 0
        self._rss_s = -math.inf
        self._decoded: list[PassCost] = []

    @property
    def decoded(self) -> PassCost:
        """The sum over the answer's tokens, without the prompt."""
        return total(self._decoded) if self._decoded else PassCost()

    def close(self) -> None:
        """Let go of the patch, which keeps the model's file open. The sums stay."""
        self._patch = None

    def cache_rebuilt(self) -> None:
        """Follow the patch, whose counters begin at zero again, and keep the sums so far."""
        if self._patch is None or self._start is None or self._last is None:
            return
        fresh = _Counters.of(self._patch)
        self._start, self._last = fresh - (self._last - self._start), fresh

    def add_pass(self, decode_s: float, wall_s: float, *, is_token: bool) -> None:
        """Add a pass. decode_s: time in llama_decode. wall_s: time since the last pass ended."""
        counted: dict[str, int] = {}
        times = dict.fromkeys(_TIMES, 0)
        if self._patch is not None:
            last, start = self._last, self._start
            assert last is not None and start is not None
            now = self._last = _Counters.of(self._patch)
            times = {name: now.values[name] - last.values[name] for name in _TIMES}
            counted = {name: now.values[name] - last.values[name] for name in COUNTERS}
            self.layer_stall_us = tuple(
                a[4] - b[4] for a, b in zip(now.layers, last.layers, strict=True)
            )
            self._add_to_statistics(now - start)
        stall_s, self.token_wave_s = times["stall_us"] / 1e6, times["wave_us"] / 1e6
        outside_s = max(0.0, times["callback_us"] / 1e6 - stall_s - self.token_wave_s)
        compute_s = max(0.0, decode_s - stall_s - outside_s)
        busy_s, idle_s = times["link_busy_us"] / 1e6, times["link_idle_us"] / 1e6
        cost = PassCost(
            1, wall_s, compute_s, stall_s, link_busy_s=busy_s, link_idle_s=idle_s, **counted
        )
        self.token = cost
        self.n_pass += 1
        stats = self.statistics
        stats.compute_s += compute_s
        stats.stall_s += stall_s
        stats.other_s += cost.other_s
        if is_token:
            self._decoded.append(cost)
            stats.add_token(
                TokenCost(compute_s, stall_s, cost.other_s, cost.hits, cost.late, cost.misses)
            )
        if (now_s := time.monotonic()) - self._rss_s > _RSS_PERIOD_S:
            self._rss_s = now_s
            stats.peak_rss_bytes = peak_rss_bytes()

    def note_choice(self) -> None:
        """Note that a token is chosen, which statistics.n_token does not count yet."""
        stats, now_s = self.statistics, time.perf_counter()
        if stats.n_token:
            stats.tokens_per_s = stats.n_token / (now_s - self._first_s)
        else:
            stats.ttft_s, self._first_s = now_s - self.began_s, now_s

    def add_accepted(self) -> None:
        """Add a token that the last pass has computed as a draft. The pass has its cost."""
        self._decoded.append(PassCost(n_token=1))
        self.statistics.n_accepted += 1

    def _add_to_statistics(self, answer: _Counters) -> None:
        assert self._patch is not None
        values, stats = answer.values, self.statistics
        for name in COUNTERS:
            setattr(stats, name, values[name])
        found = stats.bytes_from_host = values["host_found"]
        through_host = found + values["host_awaited"]
        stats.bytes_from_file = values["bytes_read"] + values["host_read"] - through_host
        stats.layers = [
            LayerCost(layer, hits, late, misses, n_bytes, stall_us / 1e6, on_host, host_rows)
            for layer, (hits, late, misses, n_bytes, stall_us, on_host, host_rows) in zip(
                self._patch.layers, answer.layers, strict=True
            )
        ]
