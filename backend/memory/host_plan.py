"""What RAM keeps of the experts where devices compute: all of them where it can.

Of layers that a device computes they lie between the file and the device's slots, so that they need
not be read again; of layers that the CPU computes they are its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.memory import plan
from backend.memory.placement import DevicePlan
from backend.memory.sentences import in_ram, of_the_cpus_layers
from backend.text import joined

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile


PROCESS_BYTES = 60 << 20
"""Measured with a remote device: interpreter, libraries, vocabulary. A driver of a graphics card
takes more; how much was not measured."""
N_COPY = 4
"""Matrices that are on their way at once, each in memory of its own: from the file to a device; and
once more from the store to a device."""


@dataclass(frozen=True)
class HostPlan:
    """The RAM that keeps experts, in bytes; headroom_bytes are left to others.

    bytes, n_slot: for devices, and how many of each layer that one computes; 0 where not even one
    of each fits. cpu_bytes, n_cpu_slot: of the layers that the CPU computes. dense_bytes: of the
    other weights, what is not on devices. total_bytes: all that this process takes.
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
        """The same with fewer of each."""
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
    kv_type: str = "f16",
    compute_bytes: int = 0,
) -> HostPlan:
    """Plan what RAM keeps of the experts.

    available_bytes: RAM that may be taken for all that the model needs there. asked_bytes: what
    the user wants at most; None: all that is there but for the headroom. compute_bytes: what
    llama.cpp computes in here. The CPU's layers keep as many as a device's where there is room for
    so many, also where the user wants less.
    """
    layers = planned.layers
    on_cpu = [layer for layer in range(model.n_layer) if layer not in layers]
    expert_bytes = model.expert_bytes_per_layer()
    wanted = [n for layer, n in expert_bytes.items() if layer in layers and n > 0]
    own = [n for layer, n in expert_bytes.items() if layer not in layers and n > 0]
    if not wanted:
        return HostPlan()
    dense_bytes = _dense_bytes(model, on_cpu)
    kv = plan.kv_bytes_by_layer(model, planned.n_context, kv_type)
    matrix_bytes = max(t.matrix_bytes for ts in model.expert_tensors.values() for t in ts)
    needed = PROCESS_BYTES + dense_bytes + sum(kv[i] for i in on_cpu) + compute_bytes
    needed += N_COPY * matrix_bytes * (1 if asked_bytes == 0 else 2)
    if planned.n_stage and own:
        needed += planned.n_stage * sum(set(own))
    headroom_bytes = plan.headroom_bytes(available_bytes)
    room_bytes = max(0, available_bytes - headroom_bytes - needed)
    cpu_bytes, device_bytes = sum(own), sum(wanted)  # of one expert of each layer
    may_bytes = room_bytes if asked_bytes is None else min(room_bytes, asked_bytes)
    n_cpu, n_bytes = _divide(model.n_expert, planned.n_slot, cpu_bytes, device_bytes, may_bytes)
    if own:
        as_there = min(planned.n_slot, room_bytes // cpu_bytes)
        n_cpu = max(n_cpu, as_there, plan.slots(model, 0.0))
    left_bytes = max(room_bytes - n_cpu * cpu_bytes, 0)
    n_bytes = min(n_bytes, left_bytes)
    n_slot = n_bytes // device_bytes
    if n_cpu == model.n_expert:  # first in waves, then as llama.cpp computes by itself
        needed += plan.wave_bytes(model, planned.n_ubatch)
    kept_bytes = n_bytes if n_bytes >= min(wanted) else 0
    said: str = in_ram(model.n_expert, n_bytes, n_slot, asked_bytes, left_bytes)
    if own:
        said = joined(said, of_the_cpus_layers(n_cpu, model.n_expert, n_cpu * cpu_bytes))
    return HostPlan(
        bytes=kept_bytes,
        n_slot=n_slot,
        cpu_bytes=n_cpu * cpu_bytes,
        n_cpu_slot=n_cpu,
        dense_bytes=dense_bytes,
        total_bytes=needed + kept_bytes + n_cpu * cpu_bytes,
        headroom_bytes=headroom_bytes,
        sentence=said,
    )


def _divide(
    n_expert: int, n_device_slot: int, cpu_bytes: int, device_bytes: int, room_bytes: int
) -> tuple[int, int]:
    """Return the experts of each of the CPU's layers, and the bytes that RAM keeps for devices.

    cpu_bytes, device_bytes: of one expert of each of their layers. Every layer keeps equally many,
    unless those are on the device anyway: then RAM is for the CPU's layers.
    """
    n_each = min(room_bytes // (cpu_bytes + device_bytes), n_expert)
    if n_each <= n_device_slot and cpu_bytes:
        n_each = min(room_bytes // cpu_bytes, n_expert)
    n_cpu = n_each if cpu_bytes else 0
    left_bytes = room_bytes - n_cpu * cpu_bytes
    return n_cpu, min(left_bytes, n_expert * device_bytes)


def _dense_bytes(model: ModelFile, layers: Sequence[int]) -> int:
    """Of the embedding, which stays with the CPU, and of these layers."""
    return sum(
        t.n_bytes
        for t in model.dense_tensors
        if t.layer in layers or t.name.startswith("token_embd")
    )
