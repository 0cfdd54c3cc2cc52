"""The cost of passes, in seconds, bytes and requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import SupportsFloat


@dataclass(frozen=True)
class PassCost:
    """The cost of one pass, or of several under one setting.

    n_token: decoded tokens; 0 for a partial batch of a prompt. link_busy_s: time with at least one
    copy in flight. link_idle_s: time without one, although the pass still needed an expert that was
    missing. The counts are those of backend.protocol.statistics.Statistics.
    """

    n_token: int = 0
    wall_s: float = 0.0
    compute_s: float = 0.0
    stall_s: float = 0.0
    link_busy_s: float = 0.0
    link_idle_s: float = 0.0
    bytes_read: int = 0
    bytes_useful: int = 0
    bytes_wasted: int = 0
    prefetches_useful: int = 0
    prefetches_wasted: int = 0
    hits: int = 0
    late: int = 0
    misses: int = 0
    on_host: int = 0
    host_rows: int = 0
    work: SupportsFloat = 0.0
    """The misses of an LRU cache (auto_work.py), which depend on the tokens alone."""

    def __add__(self, other: PassCost) -> PassCost:
        """Return the sum of both."""
        return replace(total((self, other)), work=float(self.work) + float(other.work))

    @property
    def other_s(self) -> float:
        """The time that is neither computation nor waiting."""
        return max(0.0, self.wall_s - self.compute_s - self.stall_s)

    @property
    def is_sound(self) -> bool:
        """Whether it has tokens and a finite time."""
        return self.n_token > 0 and math.isfinite(self.wall_s) and self.wall_s > 0

    @property
    def idle(self) -> float:
        """The share of the time without a copy in flight."""
        return _share(self.wall_s - self.link_busy_s, self.wall_s)

    @property
    def stall(self) -> float:
        """The share of the time spent waiting for copies."""
        return _share(self.stall_s, self.wall_s)

    @property
    def hit_rate(self) -> float:
        """The share of needed experts that were in memory; 1 if none was needed."""
        requests = self.hits + self.late + self.misses
        return _share(self.hits, requests) if requests > 0 else 1.0

    @property
    def used(self) -> float | None:
        """The share of decided prefetches that were useful; None if none is decided."""
        decided = self.prefetches_useful + self.prefetches_wasted
        return _share(self.prefetches_useful, decided) if decided > 0 else None


COUNTERS = (
    "bytes_read",
    "bytes_useful",
    "bytes_wasted",
    "prefetches_useful",
    "prefetches_wasted",
    "hits",
    "late",
    "misses",
    "on_host",
    "host_rows",
)
"""The fields of PassCost that the native part counts under the same names."""

_SUMMED = tuple(f.name for f in fields(PassCost) if f.name != "work")
_values = attrgetter(*_SUMMED)


def total(costs: Sequence[PassCost]) -> PassCost:
    """Return the sum, without `work`, which takes time to compute."""
    return PassCost(*map(sum, zip(*map(_values, costs), strict=True)))


def _share(part: float, whole: float) -> float:
    share = part / whole if whole > 0 else 0.0
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
