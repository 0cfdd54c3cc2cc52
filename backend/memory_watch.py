"""Watches the memory that is left while a model is in use, and says what its cache should do.

The plan leaves a headroom to other programs. When these take more than half of it, the cache gives
back what restores it; when there is plenty again for a while, it grows to what was asked for. A
cache of another size begins empty, so it neither follows every breath nor grows by little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from backend.system.memory import available_bytes, stalled_share

PERIOD_S = 1.0
N_LOW = 2
"""Readings in a row that must be low; one where hardly anything is left."""
CALM_S = 30.0
"""How long there must be enough before the cache grows."""
STALLED = 0.10
"""The share of time in which tasks waited for memory (PSI) that counts as pressure."""
_GROWTH_MIN = 1 / 8  # of what was asked for; less is not worth an empty cache
_ROOMY = 1.5  # headrooms that must be left after growing


@dataclass(frozen=True)
class Reading:
    """What the system says: bytes that can be taken, and the share of time lost to waiting."""

    available_bytes: int
    stalled: float = 0.0


@dataclass(frozen=True)
class Cache:
    """A cache in slots, experts of each layer; slot_bytes is one of them over all layers.

    untouched_bytes: of its slots, those in which nothing was written yet. The system counts them as
    free, and they will not be.
    """

    n_slot: int
    n_slot_min: int
    n_slot_asked: int
    slot_bytes: int
    untouched_bytes: int = 0


def read() -> Reading:
    """Ask the system."""
    return Reading(available_bytes(), stalled_share())


class MemoryWatch:
    """Looks at most once per PERIOD_S; one for each cache that is in force.

    `headroom_bytes` is what the plan left to others, `reader` and `clock` are for tests.
    """

    def __init__(
        self,
        headroom_bytes: int,
        reader: Callable[[], Reading] = read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.headroom_bytes = headroom_bytes
        self._reader, self._clock = reader, clock
        self._looked_s = clock()
        self._n_low = 0
        self._calm_since_s: float | None = None

    def look(self, cache_now: Callable[[], Cache]) -> int | None:
        """Return how many slots the cache should have from now on; None: it stays as it is.

        `cache_now` is asked only where it is time to look.
        """
        now_s = self._clock()
        if now_s - self._looked_s < PERIOD_S:
            return None
        self._looked_s = now_s
        reading, cache = self._reader(), cache_now()
        left_bytes = max(reading.available_bytes - cache.untouched_bytes, 0)
        reading = replace(reading, available_bytes=left_bytes)
        if self._is_low(reading):
            self._calm_since_s = None
            return self._shrink(cache, reading)
        self._n_low = 0
        return self._grow(cache, reading, now_s)

    def _is_low(self, reading: Reading) -> bool:
        left, headroom = reading.available_bytes, self.headroom_bytes
        return left < headroom / 2 or (left < headroom and reading.stalled > STALLED)

    def _shrink(self, cache: Cache, reading: Reading) -> int | None:
        self._n_low += 1
        if self._n_low < N_LOW and reading.available_bytes > self.headroom_bytes / 8:
            return None
        missing_bytes = max(self.headroom_bytes - reading.available_bytes, 1)
        n_slot = cache.n_slot - -(-missing_bytes // max(cache.slot_bytes, 1))
        n_slot = max(n_slot, cache.n_slot_min)
        return n_slot if n_slot < cache.n_slot else None

    def _grow(self, cache: Cache, reading: Reading, now_s: float) -> int | None:
        spare_bytes = reading.available_bytes - _ROOMY * self.headroom_bytes
        n_more = min(
            int(spare_bytes // max(cache.slot_bytes, 1)), cache.n_slot_asked - cache.n_slot
        )
        whole = cache.n_slot + n_more == cache.n_slot_asked
        if n_more < 1 or not (whole or n_more >= _GROWTH_MIN * cache.n_slot_asked):
            self._calm_since_s = None
            return None
        if self._calm_since_s is None:
            self._calm_since_s = now_s
        if now_s - self._calm_since_s < CALM_S:
            return None
        return cache.n_slot + n_more
