"""The meter: reads the patch's counters after each pass and adds up an answer's costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.methods.cost import COUNTERS, PassCost
from backend.protocol.statistics import LayerCost, Statistics, TokenCost
from backend.system.memory import peak_rss_bytes

_BY_LAYER = ("hits", "late", "misses", "bytes_read", "on_host", "host_rows")


@dataclass(frozen=True)
class _Counters:
    """The patch's counters at one moment, or the difference of two moments."""

    values: dict[str, int]
    layers: tuple[LayerCost, ...]

    @classmethod
    def of(cls, patch: Any) -> _Counters:
        """Read a backend._native.Patch."""
        counts, times, host = patch.counts(), patch.times(), patch.host_counts()
        values = {name: sum(getattr(c, name) for c in counts) for name in COUNTERS}
        found = sum(h.bytes_found for h in host)
        through_host = found + sum(h.bytes_awaited for h in host)
        values["bytes_from_host"] = found
        values["bytes_from_file"] = (
            values["bytes_read"] + sum(h.bytes_read for h in host) - through_host
        )
        for name in ("stall_us", "wave_us", "callback_us", "link_busy_us"):
            values[name] = getattr(times, name)
        stalls = patch.stall_us_by_layer()
        layers = (
            LayerCost(number, stall_s=us / 1e6, **{name: getattr(c, name) for name in _BY_LAYER})
            for number, c, us in zip(patch.layers, counts, stalls, strict=True)
        )
        return cls(values, tuple(layers))

    def __sub__(self, other: _Counters) -> _Counters:
        """Return what this counts beyond another of the same model."""
        return _Counters(
            {name: value - other.values[name] for name, value in self.values.items()},
            tuple(
                LayerCost(
                    mine.layer,
                    stall_s=mine.stall_s - its.stall_s,
                    **{name: getattr(mine, name) - getattr(its, name) for name in _BY_LAYER},
                )
                for mine, its in zip(self.layers, other.layers, strict=True)
            ),
        )


class Meter:
    """Adds up an answer's costs. Without a patch everything except waiting counts as compute.

    token: the cost of the last pass, as one token. token_wave_s: its time in waves. layer_stall_us:
    its waiting, by MoE layer. decoded: the sum over the answer's tokens, without the prompt.
    """

    def __init__(self, patch: Any | None) -> None:
        self.statistics = Statistics()
        self._patch = patch
        self._start = None if patch is None else _Counters.of(patch)
        self._last = self._start
        self.token = PassCost()
        self.token_wave_s = 0.0
        self.layer_stall_us: tuple[int, ...] = ()
        self.n_pass = 0
        self.decoded = PassCost()

    def cache_rebuilt(self) -> None:
        """Start from zero counters as the patch does, and keep what was counted so far."""
        if self._patch is None or self._start is None or self._last is None:
            return
        fresh = _Counters.of(self._patch)
        self._start, self._last = fresh - (self._last - self._start), fresh

    def add_pass(self, decode_s: float, wall_s: float, *, is_token: bool) -> None:
        """Add a pass: `decode_s` in llama_decode, `wall_s` since the end of the last pass."""
        counted: dict[str, int] = {}
        times = dict.fromkeys(("stall_us", "wave_us", "callback_us", "link_busy_us"), 0)
        if self._patch is not None:
            assert self._last is not None and self._start is not None
            now = _Counters.of(self._patch)
            gone = now - self._last
            times = {name: gone.values[name] for name in times}
            counted = {name: gone.values[name] for name in COUNTERS}
            self.layer_stall_us = tuple(round(1e6 * layer.stall_s) for layer in gone.layers)
            self._last = now
            self._add_to_statistics(now - self._start)
        stall_s, self.token_wave_s = times["stall_us"] / 1e6, times["wave_us"] / 1e6
        outside_s = max(0.0, times["callback_us"] / 1e6 - stall_s - self.token_wave_s)
        compute_s = max(0.0, decode_s - stall_s - outside_s)
        cost = PassCost(
            1, wall_s, compute_s, stall_s, link_busy_s=times["link_busy_us"] / 1e6, **counted
        )
        self.token = cost
        self.n_pass += 1
        stats = self.statistics
        stats.compute_s += compute_s
        stats.stall_s += stall_s
        stats.other_s += cost.other_s
        if is_token:
            self.decoded += cost
            stats.add_token(
                TokenCost(compute_s, stall_s, cost.other_s, cost.hits, cost.late, cost.misses)
            )
        stats.peak_rss_bytes = peak_rss_bytes()

    def _add_to_statistics(self, answer: _Counters) -> None:
        for name in (*COUNTERS, "bytes_from_file", "bytes_from_host"):
            setattr(self.statistics, name, answer.values[name])
        self.statistics.layers = list(answer.layers)
