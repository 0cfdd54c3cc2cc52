"""Watches the memory that is left while a model is in use, and says which plan it needs instead.

A plan leaves a headroom to other programs. When these take more than half of it, the cache gives
back what restores it; when there is plenty again for a while, it grows to what was asked for. A
cache of another size begins empty, so it ignores small changes and grows only in large steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.memory import sentences as plan_sentences
from backend.system.memory import available_bytes, stalled_share

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.engine_plan import EnginePlan
    from backend.memory.placement import DevicePlan

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


class Pressure:
    """Relieves memory under the plans of one engine, until other settings are asked for.

    planned: the plan that memory granted when the settings were asked for.
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
        """Return the plan that is needed instead of `now`; None: it stays.

        n_slot_now: experts of each layer that the cache holds. untouched_bytes: as in Cache.
        free_on_devices: bytes of each.
        """
        if now.devices is not None:
            n_slot = slots_left(now.devices, free_on_devices(now.devices), now.n_slot_min)
            if n_slot is None:
                return self._look_at_ram(now)
            devices, n_most = now.devices.with_slots(n_slot), n_slot_now
            why = plan_sentences.others_need_the_device
        else:
            devices, n_most = None, max(now.n_slot_most, n_slot_now)
            why = plan_sentences.others_need_memory

            def cache_now() -> Cache:
                slot_bytes = sum(self._file.expert_bytes_per_layer().values())
                return Cache(n_slot_now, now.n_slot_min, n_most, slot_bytes, untouched_bytes())

            n_slot = None if self._watch is None else self._watch.look(cache_now)
            if n_slot is None:
                return None
        reason = why(n_slot, self._file.n_expert, n_most) if n_slot < n_most else ""
        return replace(now, n_slot=n_slot, devices=devices, reason=reason)

    def stop(self) -> None:
        """Watch RAM no more: a method's cache has one size."""
        self._watch = None

    def _look_at_ram(self, now: EnginePlan) -> EnginePlan | None:
        """Shrink what RAM keeps beside devices.

        First what it keeps for them: the slots of the CPU's layers are all that those have.
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
            reason = plan_sentences.others_need_the_store(left, before)
            return replace(now, host=host.less(left, host.n_cpu_slot), reason=reason)
        reason = plan_sentences.others_need_the_cpus(left, before)
        return replace(now, host=host.less(0, left), reason=reason)


def slots_left(devices: DevicePlan, free_bytes: Sequence[int], n_least: int) -> int | None:
    """Return how many experts of each layer devices can keep where others took their memory.

    free_bytes: of each device. None: as many as there are. Half the headroom may be taken before
    anything is given back.
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
