"""Computes figures from the measurements of a bench: speeds with spread, counters, and bounds.

The bound of a pass is max(compute, bytes / bandwidth).

- compute: the time with all experts resident, in the same layout. For decoding, it is that of a
  token right before and after the turn, because a machine's speed varies. For a prompt, it is that
  of the same pass in the same round.
- bandwidth: that of copies alone, by the same reader in the same sizes, before and after the turn.
  It is the fastest of whole experts, matrices, and the turn's own reads while a copy was in flight.
- bytes: those read during the pass, less the run's share of wasted bytes, and at most those of the
  experts that the pass needed. An expert cut in two (MoEpic) counts twice there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Turn = dict[str, Any]
Cost = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """The median, smallest and largest value of the warm rounds, and the value of the first."""

    median: float
    low: float
    high: float
    cold: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise one value for each round. A single round is both cold and warm."""
        warm = values[1:] or values
        return cls(statistics.median(warm), min(warm), max(warm), values[0])


@dataclass(frozen=True)
class Lost:
    """Shares of the measured time that lie beyond the bound; with the bound's share they are 1."""

    computing: float | None
    """Computing took longer than with all experts resident. Negative: it took less time.

    None if that was not measured; the way's own computing then belongs to its bound.
    """
    waiting: float
    """Waiting for copies took longer than the bound's own wait, for bytes / bandwidth - compute."""
    other: float
    """Neither computing nor waiting: callbacks, and the engine's own work between two passes."""


@dataclass(frozen=True)
class PhaseFigures:
    """Figures of the prompts of one length, or of decoding. Counts and times are per token."""

    tokens_per_s: Spread
    bound_share: float | None
    """The bound's time over the measured time; None without a bound."""
    bound_tokens_per_s: float | None
    hits: float
    late: float
    misses: float
    stall_s: float
    bytes_read: float
    read_to_needed: float
    """Bytes read over the bytes of the experts that the passes needed."""
    wasted_share: float
    """Share of the bytes read that were not used."""
    idle_share: float
    """Share of the time without a copy in flight, although the pass needed a missing expert."""
    lost: Lost | None = None
    """Where the time beyond the bound went; None without a bound."""


@dataclass(frozen=True)
class WayFigures:
    """The figures of one way, a row of the tables."""

    name: str
    kind: str
    rate: float
    n_slot: int
    error: str
    decode: PhaseFigures | None = None
    prefill: dict[int, PhaseFigures] = field(default_factory=dict)
    """By the number of tokens of the prompt."""
    peak_rss_bytes: int = 0
    plan_bytes: int = 0
    page_cache_bytes: int = 0
    load_s: float = 0.0
    first_token_s: float = 0.0
    compute_alone: bool = False
    """Whether computing alone was measured. If not, the way's own computing time replaces it."""


@dataclass(frozen=True)
class Figures:
    """The figures of a whole result."""

    rows: tuple[WayFigures, ...]
    bandwidth_bytes_per_s: Spread | None
    dense_read_s: float | None
    has_compute: bool
    """Whether computing alone was measured for all rows."""

    def row(self, kind: str) -> WayFigures | None:
        """Return the first measured row of a kind."""
        return next((r for r in self.rows if r.kind == kind and not r.error), None)


def figures(result: dict[str, Any]) -> Figures:
    """Compute the figures of a result of turns.run."""
    turns = {way["kind"]: way["turns"] for way in result["ways"] if not way["error"]}
    alone = {"file": turns.get("resident", []), "repacked": turns.get("fastest", [])}
    dense = turns.get("link", [])
    speeds = [_bandwidths(way["turns"]) for way in result["ways"] if way["kind"] == "outrider"]
    by_round = [statistics.median(of) for of in zip(*filter(None, speeds), strict=False)]
    expert_bytes = result["model"]["expert_bytes"]
    rows = tuple(_row(way, alone, expert_bytes) for way in result["ways"] if way["kind"] != "link")
    return Figures(
        rows,
        Spread.of(by_round) if by_round else None,
        statistics.median(t["dense_read_s"] for t in dense) if dense else None,
        all(row.compute_alone for row in rows if row.decode and row.decode.bound_share),
    )


def _bandwidths(turns: Sequence[Turn]) -> list[float]:
    """Return bytes per second of copies alone, [round], the mean of before and after the turn."""
    found = [
        [
            max(one["whole_bytes_per_s"], one["chunk_bytes_per_s"])
            for one in t.get("bounds", ())
            if "whole_bytes_per_s" in one
        ]
        for t in turns
    ]
    return [statistics.mean(speeds) for speeds in found if speeds]


def _while_busy(turn: Turn) -> float:
    """Return bytes per second of a turn's own copies while at least one was in flight."""
    costs = [cost for request in turn["requests"] for cost in request["passes"]]
    busy_s = _total(costs, "link_busy_s")
    return _total(costs, "bytes_read") / busy_s if busy_s > 0 else 0.0


def _tokens_alone_s(turns: Sequence[Turn]) -> list[float]:
    """Return seconds to compute a token with all experts resident, [round], or [] if not measured.

    Each is the mean of before and after the turn.
    """
    found = [[one["token_s"] for one in t["bounds"] if "token_s" in one] for t in turns]
    return [statistics.mean(times) for times in found] if all(found) else []


def _row(way: dict[str, Any], alone: dict[str, Sequence[Turn]], expert_bytes: float) -> WayFigures:
    facts, turns = way["facts"], way["turns"]
    resident = alone[facts.get("layout", "file")]
    bandwidths = [
        max(idle, _while_busy(t)) for idle, t in zip(_bandwidths(turns), turns, strict=False)
    ]
    start = {"name": way["name"], "kind": way["kind"], "error": way["error"]}
    rate, n_slot = facts.get("rate", way["asked_rate"]), facts.get("n_slot", 0)
    if not turns:
        return WayFigures(rate=rate, n_slot=n_slot, **start)
    bounded = way["kind"] == "outrider" and facts.get("mode") == "cached"
    bound = None
    if bounded and bandwidths:
        bound = _Bound(bandwidths, _tokens_alone_s(turns), resident, expert_bytes)
    prefill: dict[int, PhaseFigures] = {}
    decode = None
    for i in range(len(turns[0]["requests"])):
        prompt = _phase(turns, i, False, bound, expert_bytes)
        if prompt is not None:
            prefill[turns[0]["requests"][i]["n_prompt"]] = prompt
        decode = decode or _phase(turns, i, True, bound, expert_bytes)
    return WayFigures(
        rate=rate,
        n_slot=n_slot,
        decode=decode,
        prefill=prefill,
        peak_rss_bytes=max(t["peak_rss_bytes"] for t in turns),
        plan_bytes=facts.get("plan_bytes", 0),
        page_cache_bytes=max(t["group"].get("page_cache_bytes", 0) for t in turns),
        load_s=facts.get("load_s", 0.0),
        first_token_s=turns[0]["first_token_s"] or 0.0,
        compute_alone=len(resident) >= len(turns),
        **start,
    )


@dataclass(frozen=True)
class _Bound:
    bandwidths: Sequence[float]  # [round]
    tokens_alone_s: Sequence[float]  # [round], or empty
    resident: Sequence[Turn]  # [round], or empty
    expert_bytes: float

    def seconds(self, round_: int, request: int, costs: Sequence[Cost]) -> tuple[float, float]:
        """Return the least time for these passes, and that of computing them.

        The passes are one phase of a request.
        """
        useful = sum(c["bytes_useful"] for c in costs)
        wasted = sum(c["bytes_wasted"] for c in costs)
        share = useful / (useful + wasted) if useful else 1.0
        compute = self._compute(round_, request, costs[0]["is_decode"])
        total_s = compute_s = 0.0
        for cost in costs:
            n_byte = min(cost["bytes_read"] * share, _needed(cost) * self.expert_bytes)
            alone_s = compute(cost)
            compute_s += alone_s
            total_s += max(alone_s, n_byte / self.bandwidths[round_])
        return total_s, compute_s

    def is_measured(self, is_decode: bool) -> bool:
        """Whether computing alone was measured in all rounds."""
        return bool(self.tokens_alone_s if is_decode else self.resident)

    def _compute(self, round_: int, request: int, is_decode: bool) -> Callable[[Cost], float]:
        """Return a function that gives the computing time of a pass."""
        if is_decode and self.tokens_alone_s:
            return lambda _: self.tokens_alone_s[round_]
        if is_decode or round_ >= len(self.resident):
            return lambda cost: float(cost["compute_s"])
        costs = _costs(self.resident[round_], request, is_decode)
        by_position = {c["position"]: float(c["wall_s"]) for c in costs}
        return lambda cost: by_position.get(cost["position"], float(cost["compute_s"]))


def _phase(
    turns: Sequence[Turn], request: int, is_decode: bool, bound: _Bound | None, expert_bytes: float
) -> PhaseFigures | None:
    rounds = [_costs(turn, request, is_decode) for turn in turns]
    if not all(rounds):
        return None
    speeds = [_total(costs, "n_token") / _total(costs, "wall_s") for costs in rounds]
    warm = list(range(1, len(rounds))) or [0]
    costs = [cost for i in warm for cost in rounds[i]]
    n_token = _total(costs, "n_token")
    read = _total(costs, "bytes_read")
    needed = sum(map(_needed, costs)) * expert_bytes
    wall_s = _total(costs, "wall_s")
    share = bound_speed = lost = None
    if bound is not None:
        times = [bound.seconds(i, request, rounds[i]) for i in warm]
        least_s, alone_s = sum(t for t, _ in times), sum(t for _, t in times)
        share, bound_speed = least_s / wall_s, n_token / least_s
        compute_s, stall_s = _total(costs, "compute_s"), _total(costs, "stall_s")
        lost = Lost(
            computing=(compute_s - alone_s) / wall_s if bound.is_measured(is_decode) else None,
            waiting=(stall_s - (least_s - alone_s)) / wall_s,
            other=(wall_s - compute_s - stall_s) / wall_s,
        )
    return PhaseFigures(
        tokens_per_s=Spread.of(speeds),
        bound_share=share,
        bound_tokens_per_s=bound_speed,
        **{name: _total(costs, name) / n_token for name in ("hits", "late", "misses", "stall_s")},
        bytes_read=read / n_token,
        read_to_needed=read / needed if needed else 0.0,
        wasted_share=_total(costs, "bytes_wasted") / read if read else 0.0,
        idle_share=_total(costs, "link_idle_s") / wall_s,
        lost=lost,
    )


def _costs(turn: Turn, request: int, is_decode: bool) -> list[Cost]:
    return [c for c in turn["requests"][request]["passes"] if c["is_decode"] == is_decode]


def _needed(cost: Cost) -> int:
    return int(cost["hits"] + cost["late"] + cost["misses"])


def _total(costs: Iterable[Cost], name: str) -> float:
    return float(sum(cost.get(name, 0.0) for cost in costs))  # an older result lacks some
