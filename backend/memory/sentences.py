"""The sentences of a plan: the contents of memory, and why they differ from the settings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.text import Text, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.placement import DevicePlan


def no_layer(names: Sequence[str]) -> Text:
    """Say why devices that were asked for compute nothing."""
    return text("memory.layers_none", devices=_all(names))


def on_devices(
    model: ModelFile, made: DevicePlan, n_context_asked: int, n_asked: int
) -> tuple[Text, ...]:
    """Say which layers devices compute, and what else they hold."""
    devices, n_layer = _all([s.name for s in made.devices]), model.n_layer
    if made.n_gpu_layers > n_layer:
        said = [text("memory.layers_all", n=n_layer, devices=devices)]
    else:
        n_own = made.n_gpu_layers - 1
        said = [text("memory.layers_last", n=n_own, all=n_layer, devices=devices)]
    n, kv_bytes = made.n_context, sum(s.kv_bytes for s in made.devices)
    if n < n_context_asked:
        said.append(text("memory.context_shortened", n=n, wanted=n_context_asked, bytes=kv_bytes))
    else:
        said.append(text("memory.context", n=n, bytes=kv_bytes))
    if not model.is_moe:
        return tuple(said)
    said.append(_kept_there(model.n_expert, made, n_asked))
    if made.n_slot < model.n_expert:
        said.append(_prompts_copy(made))
    return tuple(said)


def _kept_there(n_expert: int, made: DevicePlan, n_asked: int) -> Text:
    n, n_bytes = made.n_slot, sum(s.slot_bytes for s in made.devices)
    if n == n_asked:
        return text("memory.kept_there", n=n, all=n_expert, bytes=n_bytes)
    left = sum(s.headroom_bytes for s in made.devices)
    return text(
        "memory.kept_there_fewer", n=n, all=n_expert, wanted=n_asked, bytes=n_bytes, left=left
    )


def _prompts_copy(made: DevicePlan) -> Text:
    if not made.n_stage:
        return text("memory.prompts", n=made.n_ubatch)
    stage_bytes = sum(s.stage_bytes for s in made.devices)
    return text("memory.prompts_staged", n=made.n_ubatch, bytes=stage_bytes)


def in_ram(
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


def _all(names: Sequence[str]) -> str:
    """Return names as a list in words: "A and B"."""
    return functools.reduce(lambda a, b: text("words.and", first=a, last=b), names)
