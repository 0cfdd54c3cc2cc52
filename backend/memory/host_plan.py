"""Plan the experts that RAM keeps where devices compute: all of them if they fit.

For a layer on a device, RAM keeps experts between the file and the device's slots (the host store),
so that they are not read again. For a layer on the CPU, they are its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.memory import plan
from backend.memory.placement import DevicePlan
from backend.text import Text, joined, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile


PROCESS_BYTES = 66 << 20
"""Measured with a remote device (65 to 68 MiB): interpreter, libraries, vocabulary. A driver of a
graphics card takes more; how much was not measured."""
N_COPY = 4
"""Staging buffers of one matrix each: as many for copies from the file to a device, and as many for
copies from the host store to a device."""


@dataclass(frozen=True)
class HostPlan:
    """The RAM that keeps experts, in bytes. headroom_bytes stay free for other programs.

    bytes, n_slot: size of the host store, and its experts per layer on a device; n_slot is 0 where
    not one of each fits. cpu_bytes, n_cpu_slot: the same for the slots of the CPU's layers.
    dense_bytes: dense weights that are not on devices. total_bytes: all that this process takes.
    """

    bytes: int = 0
    n_slot: int = 0
    cpu_bytes: int = 0
    n_cpu_slot: int = 0
    dense_bytes: int = 0
    total_bytes: int = 0
    headroom_bytes: int = 0
    sentence: str = ""

    def less(self, n_slot: int, n_cpu_slot: int) -> HostPlan:
        """Return the plan with fewer experts per layer."""
        return replace(
            self,
            bytes=self.bytes // max(self.n_slot, 1) * n_slot,
            n_slot=n_slot,
            cpu_bytes=self.cpu_bytes // max(self.n_cpu_slot, 1) * n_cpu_slot,
            n_cpu_slot=n_cpu_slot,
        )


def plan_host(
    model: ModelFile,
    planned: DevicePlan,
    available_bytes: int,
    asked_bytes: int | None,
    cache: plan.KvCache = plan.KV_CACHE,
    compute_bytes: int = 0,
) -> HostPlan:
    """Plan the experts that RAM keeps.

    available_bytes: RAM that may be taken in all. asked_bytes: the user's limit; None: all
    available memory except the headroom. cache: with any n_ubatch. compute_bytes: llama.cpp's
    compute buffers in RAM. The CPU's layers keep as many experts as a device's layers if RAM has
    room for them, even beyond the user's limit.
    """
    layers = planned.layers
    on_cpu = [layer for layer in range(model.n_layer) if layer not in layers]
    expert_bytes = model.expert_bytes_per_layer()
    wanted = [n for layer, n in expert_bytes.items() if layer in layers and n > 0]
    own = [n for layer, n in expert_bytes.items() if layer not in layers and n > 0]
    if not wanted:
        return HostPlan()
    dense_bytes = _dense_bytes(model, on_cpu)
    cache = replace(cache, n_ubatch=planned.n_ubatch)
    kv = plan.kv_bytes_by_layer(model, planned.n_context, cache)
    matrix_bytes = max(t.matrix_bytes for ts in model.expert_tensors.values() for t in ts)
    needed = PROCESS_BYTES + dense_bytes + sum(kv[i] for i in on_cpu) + compute_bytes
    needed += N_COPY * matrix_bytes * (1 if asked_bytes == 0 else 2)
    if planned.n_stage and own:
        needed += planned.n_stage * sum(set(own))
    headroom_bytes = plan.headroom_bytes(available_bytes)
    room_bytes = max(0, available_bytes - headroom_bytes - needed)
    cpu_bytes, device_bytes = sum(own), sum(wanted)  # one expert of each layer
    may_bytes = room_bytes if asked_bytes is None else min(room_bytes, asked_bytes)
    n_cpu, n_bytes = _divide(model.n_expert, planned.n_slot, cpu_bytes, device_bytes, may_bytes)
    if own:
        as_there = min(planned.n_slot, room_bytes // cpu_bytes)
        n_cpu = max(n_cpu, as_there, plan.slots(model, 0.0))
    left_bytes = max(room_bytes - n_cpu * cpu_bytes, 0)
    n_bytes = min(n_bytes, left_bytes)
    n_slot = n_bytes // device_bytes
    if n_cpu == model.n_expert:  # first in waves, then as unpatched llama.cpp computes
        needed += plan.wave_bytes(model, planned.n_ubatch)
    kept_bytes = n_bytes if n_bytes >= min(wanted) else 0
    sentence: str = _in_ram(model.n_expert, n_bytes, n_slot, asked_bytes, left_bytes)
    if own:
        for_cpu = text("memory.cpu_slots", n=n_cpu, all=model.n_expert, bytes=n_cpu * cpu_bytes)
        sentence = joined(sentence, for_cpu)
    return HostPlan(
        bytes=kept_bytes,
        n_slot=n_slot,
        cpu_bytes=n_cpu * cpu_bytes,
        n_cpu_slot=n_cpu,
        dense_bytes=dense_bytes,
        total_bytes=needed + kept_bytes + n_cpu * cpu_bytes,
        headroom_bytes=headroom_bytes,
        sentence=sentence,
    )


def _divide(
    n_expert: int, n_device_slot: int, cpu_bytes: int, device_bytes: int, room_bytes: int
) -> tuple[int, int]:
    """Return the experts per layer of the CPU's layers, and the bytes of the host store.

    cpu_bytes, device_bytes: size of one expert of each of their layers. All layers keep the same
    number, unless the device's slots hold that many anyway: then RAM goes to the CPU's layers.
    """
    n_each = min(room_bytes // (cpu_bytes + device_bytes), n_expert)
    if n_each <= n_device_slot and cpu_bytes:
        n_each = min(room_bytes // cpu_bytes, n_expert)
    n_cpu = n_each if cpu_bytes else 0
    left_bytes = room_bytes - n_cpu * cpu_bytes
    return n_cpu, min(left_bytes, n_expert * device_bytes)


def _dense_bytes(model: ModelFile, layers: Sequence[int]) -> int:
    """Return the bytes of the dense weights of these layers and of the embedding."""
    return sum(
        t.n_bytes
        for t in model.loaded_tensors
        if t.layer in layers or t.name.startswith(("token_embd", "per_layer_token_embd"))
    )


def _in_ram(
    n_expert: int, n_bytes: int, n_slot: int, asked_bytes: int | None, room_bytes: int
) -> Text:
    """Say which experts of a device's layers RAM keeps. room_bytes: the RAM that they may take."""
    if asked_bytes == 0:
        return text("memory.ram_none_asked")
    if n_slot == n_expert:
        return text("memory.ram_all", bytes=n_bytes)
    if n_slot == 0:
        return text("memory.ram_none_fits", bytes=n_bytes)
    if asked_bytes is not None and asked_bytes > n_bytes == room_bytes:
        return text("memory.ram_less", n=n_slot, all=n_expert, bytes=n_bytes, asked=asked_bytes)
    return text("memory.ram_some", n=n_slot, all=n_expert, bytes=n_bytes)
