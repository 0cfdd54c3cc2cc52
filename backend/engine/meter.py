"""What an answer cost: per token and per layer, in seconds, bytes and requests."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

from backend.methods.auto_trial import Window
from backend.system.memory import peak_rss_bytes

N_TOKEN_KEPT = 64
"""How many of the last tokens Statistics.tokens holds."""


@dataclass(frozen=True)
class TokenCost:
    """One pass: compute_s + stall_s + other_s is the wall time since the token before."""

    compute_s: float
    stall_s: float
    other_s: float
    hits: int
    late: int
    misses: int


@dataclass(frozen=True)
class LayerCost:
    """One MoE layer, by the model's own number. hits + late + misses = requests.

    A layer all of whose experts are there to stay is not asked for its choice: it counts as many
    hits as its tokens use experts at most.

    on_host: of the late and missed ones, computed by the processor beside a device; host_rows: how
    many tokens' rows these had.
    """

    layer: int
    hits: int
    late: int
    misses: int
    bytes_read: int
    stall_s: float
    on_host: int = 0
    host_rows: int = 0


@dataclass
class Statistics:
    """The present or last answer. bytes_read = bytes_useful + bytes_wasted + not yet decided.

    bytes_read is what came into slots. Where RAM keeps experts for a device, bytes_from_host of
    it were there already, and bytes_from_file were read, into RAM or slots; otherwise all were.

    tokens_per_s is of decoding, without the prompt; ttft_s from the request to the first token.
    A prefetch is useful when the expert was needed before it left, wasted when it left unneeded.
    on_host: of the late and missed experts, computed by the processor beside a device; host_rows:
    how many tokens' rows these had.
    """

    n_prompt: int = 0
    n_reused: int = 0
    n_token: int = 0
    ttft_s: float = 0.0
    tokens_per_s: float = 0.0
    hits: int = 0
    late: int = 0
    misses: int = 0
    on_host: int = 0
    host_rows: int = 0
    bytes_read: int = 0
    bytes_useful: int = 0
    bytes_wasted: int = 0
    bytes_from_file: int = 0
    bytes_from_host: int = 0
    prefetches_useful: int = 0
    prefetches_wasted: int = 0
    stall_s: float = 0.0
    compute_s: float = 0.0
    other_s: float = 0.0
    peak_rss_bytes: int = 0
    decisions: list[str] = field(default_factory=list)
    """What an adaptive method decided in this answer, each in a sentence."""
    layers: list[LayerCost] = field(default_factory=list)
    tokens: collections.deque[TokenCost] = field(
        default_factory=lambda: collections.deque(maxlen=N_TOKEN_KEPT)
    )

    def to_json(self) -> dict[str, Any]:
        """As plain dicts and lists."""
        plain = {k: v for k, v in self.__dict__.items() if k not in ("layers", "tokens")}
        plain["layers"] = [dict(vars(layer)) for layer in list(self.layers)]
        plain["tokens"] = [dict(vars(token)) for token in list(self.tokens)]
        return plain


@dataclass
class Decoded:
    """What an answer's tokens cost together, without the prompt."""

    n_token: int = 0
    compute_s: float = 0.0
    stall_s: float = 0.0
    other_s: float = 0.0
    link_busy_s: float = 0.0
    bytes_read: int = 0

    def add(self, cost: Window) -> None:
        """One token more."""
        self.n_token += 1
        self.compute_s += cost.compute_s
        self.stall_s += cost.stall_s
        self.other_s += max(0.0, cost.wall_s - cost.compute_s - cost.stall_s)
        self.link_busy_s += cost.link_busy_s
        self.bytes_read += cost.bytes_read


@dataclass(frozen=True)
class Reading:
    """The patch's counters at one moment; two of them make a cost."""

    hits: int
    late: int
    misses: int
    on_host: int
    host_rows: int
    bytes_read: int
    bytes_useful: int
    bytes_wasted: int
    prefetches_useful: int
    prefetches_wasted: int
    bytes_from_file: int
    bytes_from_host: int
    stall_us: int
    wave_us: int
    callback_us: int
    link_busy_us: int
    layers: tuple[LayerCost, ...]

    @classmethod
    def of(cls, patch: Any) -> Reading:
        """Read a backend._native.Patch."""
        counts, times = patch.counts(), patch.times()
        host = patch.host_counts()
        found = sum(h.bytes_found for h in host)
        by_way_of_host = found + sum(h.bytes_awaited for h in host)
        read = sum(c.bytes_read for c in counts) + sum(h.bytes_read for h in host)
        stalls = patch.stall_us_by_layer()
        return cls(
            **{name: sum(getattr(c, name) for c in counts) for name in _COUNTERS},
            bytes_from_file=read - by_way_of_host,
            bytes_from_host=found,
            stall_us=times.stall_us,
            wave_us=times.wave_us,
            callback_us=times.callback_us,
            link_busy_us=times.link_busy_us,
            layers=tuple(
                LayerCost(
                    number,
                    c.hits,
                    c.late,
                    c.misses,
                    c.bytes_read,
                    stall_us / 1e6,
                    c.on_host,
                    c.host_rows,
                )
                for number, c, stall_us in zip(patch.layers, counts, stalls, strict=True)
            ),
        )

    def less(self, other: Reading) -> Reading:
        """Return what this counts beyond another of the same model."""
        values = {
            name: getattr(self, name) - getattr(other, name)
            for name in vars(self)
            if name != "layers"
        }
        layers = tuple(
            LayerCost(
                mine.layer,
                mine.hits - its.hits,
                mine.late - its.late,
                mine.misses - its.misses,
                mine.bytes_read - its.bytes_read,
                mine.stall_s - its.stall_s,
                mine.on_host - its.on_host,
                mine.host_rows - its.host_rows,
            )
            for mine, its in zip(self.layers, other.layers, strict=True)
        )
        return Reading(**values, layers=layers)


_COUNTERS = (
    "hits",
    "late",
    "misses",
    "on_host",
    "host_rows",
    "bytes_read",
    "bytes_useful",
    "bytes_wasted",
    "prefetches_useful",
    "prefetches_wasted",
)


class Meter:
    """Adds up an answer's costs. With no patch everything but waiting counts as compute."""

    def __init__(self, patch: Any | None) -> None:
        self.statistics = Statistics()
        self._patch = patch
        self._start = Reading.of(patch) if patch is not None else None
        self._last = self._start
        self.token = Window()
        """What the last pass cost, as one token."""
        self.token_wave_s = 0.0
        """Of its time, what was spent on computing experts in waves."""
        self.layer_stall_us: tuple[int, ...] = ()
        """Of its time, what each MoE layer waited."""
        self.n_pass = 0
        self.decoded = Decoded()

    def cache_made_anew(self) -> None:
        """The patch counts from nothing again; what it has counted so far stays."""
        if self._patch is None or self._start is None or self._last is None:
            return
        fresh = Reading.of(self._patch)
        self._start, self._last = fresh.less(self._last.less(self._start)), fresh

    def add_pass(self, decode_s: float, wall_s: float, *, is_token: bool) -> None:
        """One pass took `decode_s` in llama_decode, and `wall_s` since the last pass ended."""
        stats = self.statistics
        stall_s, outside_s, wave_s, now = 0.0, 0.0, 0.0, None
        before = self._last
        if self._patch is not None:
            assert self._last is not None
            now = Reading.of(self._patch)
            stall_s = (now.stall_us - self._last.stall_us) / 1e6
            callback_s = (now.callback_us - self._last.callback_us) / 1e6
            wave_s = (now.wave_us - self._last.wave_us) / 1e6
            outside_s = max(0.0, callback_s - stall_s - wave_s)
        compute_s = max(0.0, decode_s - stall_s - outside_s)
        other_s = max(0.0, wall_s - compute_s - stall_s)
        stats.compute_s += compute_s
        stats.stall_s += stall_s
        stats.other_s += other_s
        cost = Window(1, wall_s, compute_s, stall_s)
        if now is not None and before is not None:
            gone = {n: getattr(now, n) - getattr(before, n) for n in _COUNTERS}
            busy_s = (now.link_busy_us - before.link_busy_us) / 1e6
            cost = Window(1, wall_s, compute_s, stall_s, busy_s, **gone)
            self.layer_stall_us = tuple(
                round(1e6 * (n.stall_s - b.stall_s))
                for n, b in zip(now.layers, before.layers, strict=True)
            )
        self.token, self.token_wave_s = cost, wave_s
        self.n_pass += 1
        if is_token:
            self.decoded.add(cost)
            stats.tokens.append(
                TokenCost(compute_s, stall_s, other_s, cost.hits, cost.late, cost.misses)
            )
        if now is not None:
            self._last = now
            self._add_reading(now)
        stats.peak_rss_bytes = peak_rss_bytes()

    def _add_reading(self, now: Reading) -> None:
        assert self._start is not None
        answer = now.less(self._start)
        for name in (*_COUNTERS, "bytes_from_file", "bytes_from_host"):
            setattr(self.statistics, name, getattr(answer, name))
        self.statistics.layers = list(answer.layers)
