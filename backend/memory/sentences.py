"""The sentences that a plan tells: what is where, and why it is not what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.placement import DevicePlan

DENSE = "A dense model has no experts to cache."
SHORT = "Other programs need memory"


def memory_is_short(free_bytes: int, n_slot: int, n_expert: int, n_asked: int) -> str:
    """Say why fewer experts are kept than were asked for."""
    return (
        f"{free_bytes / (1 << 30):.1f} GiB of memory are free: {n_slot} of {n_expert} experts of "
        f"each layer are kept instead of {n_asked}."
    )


def stock_is_faster(saved_bytes: float) -> str:
    """Say why llama.cpp runs unpatched where a cache would save so little."""
    return (
        f"The whole model fits into memory and a cache would save only {saved_bytes / 1e6:.0f} MB, "
        "so llama.cpp runs unpatched, which is faster."
    )


# Under pressure.


def others_need_memory(n_slot: int, n_expert: int, n_asked: int) -> str:
    """Say why the cache is smaller."""
    return f"{SHORT}: {n_slot} of {n_expert} experts of each layer are kept instead of {n_asked}."


def others_need_the_device(n_slot: int, n_expert: int, n_asked: int) -> str:
    """Say why a device holds fewer experts."""
    return (
        f"Other programs need the device's memory: {n_slot} of {n_expert} experts of each layer "
        f"are kept there instead of {n_asked}."
    )


def others_need_the_store(n_slot: int, n_before: int) -> str:
    """Say why RAM keeps fewer experts for devices."""
    return (
        f"{SHORT}: RAM keeps {n_slot} experts of each layer for the device instead of {n_before}."
    )


def others_need_the_cpus(n_slot: int, n_before: int) -> str:
    """Say why the CPU's layers beside a device have fewer slots."""
    return f"{SHORT}: RAM keeps {n_slot} experts of each layer of the CPU's instead of {n_before}."


# On devices.


def no_layer(names: Sequence[str]) -> str:
    """Say why devices that were asked for compute nothing."""
    return f"The memory of {' and '.join(names)} holds not even one layer: the CPU computes."


def on_devices(
    model: ModelFile, made: DevicePlan, n_context_asked: int, n_asked: int
) -> tuple[str, ...]:
    """Say which layers devices compute, and what else they hold."""
    names = " and ".join(s.name for s in made.devices)
    said = []
    if made.n_gpu_layers > model.n_layer:
        said.append(f"All {model.n_layer} layers are computed by {names}.")
    else:
        n_own = made.n_gpu_layers - 1
        said.append(
            f"The last {n_own} of {model.n_layer} layers are computed by {names}, "
            "whose memory holds no more; the CPU computes the others."
        )
    kv_size = size_text(sum(s.kv_bytes for s in made.devices))
    if made.n_context < n_context_asked:
        said.append(
            f"The context is {made.n_context} tokens instead of {n_context_asked}, so that more "
            f"layers fit; it takes {kv_size} there."
        )
    else:
        said.append(f"A context of {made.n_context} tokens takes {kv_size} there.")
    if not model.is_moe:
        return tuple(said)
    kept = f"Kept there are {made.n_slot} of {model.n_expert} experts of each layer"
    size = size_text(sum(s.slot_bytes for s in made.devices))
    left = size_text(sum(s.headroom_bytes for s in made.devices))
    if made.n_slot == n_asked:
        said.append(f"{kept}, as asked, in {size}.")
    else:
        said.append(f"{kept} instead of {n_asked}, in {size}; {left} are left to others.")
    if made.n_slot < model.n_expert:
        said.append(_prompts_copy(made))
    return tuple(said)


def _prompts_copy(made: DevicePlan) -> str:
    if not made.n_stage:
        return f"Prompts copy the experts once for every {made.n_ubatch} tokens."
    size = size_text(sum(s.stage_bytes for s in made.devices))
    return (
        f"Prompts copy the experts once for every {made.n_ubatch} tokens, through {size} beside "
        "the slots, ahead of the layers that need them."
    )


def in_ram(
    n_expert: int, n_bytes: int, n_slot: int, asked_bytes: int | None, room_bytes: int
) -> str:
    """Say what RAM keeps of the experts of a device's layers, of room_bytes that it may take."""
    if asked_bytes == 0:
        return "RAM keeps no experts for devices, as asked."
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


def of_the_cpus_layers(n_slot: int, n_expert: int, n_bytes: int) -> str:
    """Say what RAM keeps of the layers that the CPU computes beside a device."""
    size = size_text(n_bytes)
    return f"Of the CPU's layers it keeps {n_slot} of {n_expert} experts, in {size}."


def size_text(n_bytes: int) -> str:
    """Return a size for a sentence: "17.3 GiB"."""
    if n_bytes >= 1 << 30:
        return f"{n_bytes / (1 << 30):.1f} GiB"
    return f"{n_bytes / (1 << 20):.0f} MiB"
