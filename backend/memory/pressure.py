"""Watches the free memory while a model is in use, and returns a smaller or larger plan.

A plan leaves a headroom to other programs. When they take more than half of it, the cache shrinks
until the headroom is restored. When enough memory stays free for a while, the cache grows to the
size asked for. A resized cache begins empty, so small changes are ignored and growth comes in
large steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.system.memory import available_bytes, stalled_share
from backend.text import text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.engine_plan import EnginePlan
    from backend.memory.placement import DevicePlan

PERIOD_S = 1.0
N_LOW = 2
"""Consecutive low readings before the cache shrinks; one where almost no memory is left."""
CALM_S = 30.0
"""Seconds of enough memory before the cache grows."""
STALLED = 0.10
"""The share of time in which tasks waited for memory (PSI) that counts as pressure."""
_GROWTH_MIN = 1 / 8  # of the size asked for; a smaller step is not worth an empty cache
_ROOMY = 1.5  # headrooms that must stay free after growing


@dataclass(frozen=True)
class Reading:
    """The system's memory: available bytes, and the share of time that tasks waited for memory."""

    available_bytes: int
    stalled: float = 0.0


@dataclass(frozen=True)
class Cache:
    """The size of a cache in slots per layer. slot_bytes: one slot of every layer.

    untouched_bytes: slots that were not written yet. The system still counts them as free.
    """

    n_slot: int
    n_slot_min: int
    n_slot_asked: int
    slot_bytes: int
    untouched_bytes: int = 0


def read() -> Reading:
    """Read the system's memory."""
    return Reading(available_bytes(), stalled_share())


class MemoryWatch:
    """Watches RAM for one cache. Looks at most once per PERIOD_S.

    headroom_bytes: memory that the plan left to others. reader, clock: for tests.
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
        """Return the number of slots that the cache should have; None: no change.

        `cache_now` is called only when it is time to look.
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


class Pressure:
    """Adapts an engine's plan to the free memory, until other settings are applied.

    planned: the plan that memory granted for the settings.
    """

    def __init__(self, file: ModelFile, planned: EnginePlan) -> None:
        self._file = file
        self._watch: MemoryWatch | None = None
        if planned.headroom_bytes is not None:
            self._watch = MemoryWatch(planned.headroom_bytes)

    def look(
        self,
        now: EnginePlan,
        n_slot_now: int,
        untouched_bytes: Callable[[], int],
        free_on_devices: Callable[[DevicePlan], list[int]],
    ) -> EnginePlan | None:
        """Return the plan that must replace `now`; None: no change.

        n_slot_now: experts per layer in the cache. untouched_bytes: as in Cache. free_on_devices:
        returns the free bytes of each device.
        """
        if now.devices is not None:
            n_slot = slots_left(now.devices, free_on_devices(now.devices), now.n_slot_min)
            if n_slot is None:
                return self._look_at_ram(now)
            devices, n_most = now.devices.with_slots(n_slot), n_slot_now
        else:
            devices, n_most = None, max(now.n_slot_most, n_slot_now)

            def cache_now() -> Cache:
                slot_bytes = sum(self._file.expert_bytes_per_layer().values())
                return Cache(n_slot_now, now.n_slot_min, n_most, slot_bytes, untouched_bytes())

            n_slot = None if self._watch is None else self._watch.look(cache_now)
            if n_slot is None:
                return None
        reason, n_expert = "", self._file.n_expert
        if n_slot < n_most and devices is None:
            reason = text("memory.others_need", n=n_slot, all=n_expert, wanted=n_most)
        elif n_slot < n_most:
            reason = text("memory.others_need_device", n=n_slot, all=n_expert, wanted=n_most)
        return replace(now, n_slot=n_slot, devices=devices, reason=reason)

    def stop(self) -> None:
        """Stop watching RAM, for a method whose cache has a fixed size."""
        self._watch = None

    def _look_at_ram(self, now: EnginePlan) -> EnginePlan | None:
        """Shrink the memory that RAM keeps beside devices.

        The host store shrinks first: the CPU's layers have no other copy than their slots.
        """
        host, devices = now.host, now.devices
        before = host.n_slot or host.n_cpu_slot
        if self._watch is None or devices is None or not before:
            return None
        n_bytes, least = (host.bytes, 0) if host.n_slot else (host.cpu_bytes, devices.n_slot)
        cache = Cache(before, min(least, before), before, n_bytes // before)
        left = self._watch.look(lambda: cache)
        if left is None:
            return None
        if host.n_slot:
            reason = text("memory.others_need_store", n=left, before=before)
            return replace(now, host=host.less(left, host.n_cpu_slot), reason=reason)
        reason = text("memory.others_need_cpu", n=left, before=before)
        return replace(now, host=host.less(0, left), reason=reason)


def slots_left(devices: DevicePlan, free_bytes: Sequence[int], n_least: int) -> int | None:
    """Return how many experts per layer fit after others took device memory; None: no change.

    free_bytes: of each device. Others may take half the headroom before a device evicts experts.
    """
    n_slot = devices.n_slot
    if n_slot <= n_least:
        return None
    for share, free in zip(devices.devices, free_bytes, strict=True):
        lacking = share.headroom_bytes - free
        if lacking > share.headroom_bytes // 2 and share.slot_bytes > 0:
            kept = (share.slot_bytes - lacking) * devices.n_slot // share.slot_bytes
            n_slot = min(n_slot, kept)
    n_slot = max(n_slot, n_least)
    return n_slot if n_slot < devices.n_slot else None
