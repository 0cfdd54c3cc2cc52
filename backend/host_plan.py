"""What RAM keeps of the experts that devices compute: all of them where it can.

It lies between the file and the devices' slots. What is kept there need not be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend import plan
from backend.placement import DevicePlan, size_text

if TYPE_CHECKING:
    from backend.gguf_file import ModelFile


@dataclass(frozen=True)
class HostPlan:
    """The RAM that keeps experts for devices, in bytes; headroom_bytes are left to others."""

    bytes: int = 0
    n_slot: int = 0
    """Experts of each layer that a device computes; 0 where not even one of each fits."""
    headroom_bytes: int = 0
    sentence: str = ""


def plan_host(
    model: ModelFile,
    planned: DevicePlan,
    available_bytes: int,
    asked_bytes: int | None,
    kv_type: str = "f16",
) -> HostPlan:
    """Plan what RAM keeps of the experts that devices compute.

    available_bytes: RAM that may be taken for all that the model needs there. asked_bytes: what
    the user wants at most; None: all that is there but for the headroom.
    """
    layers = {layer for share in planned.devices for layer in share.layers}
    on_cpu = [layer for layer in range(model.n_layer) if layer not in layers]
    expert_bytes = model.expert_bytes_per_layer()
    wanted = [n for layer, n in expert_bytes.items() if layer in layers and n > 0]
    if not wanted:
        return HostPlan()
    needed = plan.PROCESS_BYTES + _dense_bytes(model, on_cpu)
    kv = plan.kv_bytes_by_layer(model, planned.n_context, kv_type)
    needed += sum(kv[i] + planned.n_slot * expert_bytes.get(i, 0) for i in on_cpu)
    if on_cpu:
        needed += plan.compute_bytes(model, planned.n_context, planned.n_ubatch)
    headroom_bytes = plan.headroom_bytes(available_bytes)
    room_bytes = max(0, available_bytes - headroom_bytes - needed)
    n_bytes = min(room_bytes, sum(wanted) * model.n_expert)
    if asked_bytes is not None:
        n_bytes = min(n_bytes, asked_bytes)
    n_slot = n_bytes // sum(wanted)
    said = _sentence(model.n_expert, n_bytes, n_slot, asked_bytes, room_bytes)
    return HostPlan(n_bytes if n_bytes >= min(wanted) else 0, n_slot, headroom_bytes, said)


def _dense_bytes(model: ModelFile, layers: Sequence[int]) -> int:
    """Of the embedding, which stays with the CPU, and of these layers."""
    return sum(
        t.n_bytes
        for t in model.dense_tensors
        if t.layer in layers or t.name.startswith("token_embd")
    )


def _sentence(
    n_expert: int, n_bytes: int, n_slot: int, asked_bytes: int | None, room_bytes: int
) -> str:
    if asked_bytes == 0:
        return "RAM keeps no experts, as asked."
    if n_slot == n_expert:
        return f"RAM keeps all of them, in {size_text(n_bytes)}: the file is read once."
    less = asked_bytes is not None and asked_bytes > n_bytes == room_bytes
    asked = f" instead of {size_text(asked_bytes or 0)}" if less else ""
    if n_slot > 0:
        return (
            f"RAM keeps {n_slot} of {n_expert} experts of each layer, in {size_text(n_bytes)}"
            f"{asked}; the others are read from the file."
        )
    return (
        f"The {size_text(n_bytes)} of RAM that may keep experts hold not one of each layer: "
        "nearly all are read from the file."
    )
