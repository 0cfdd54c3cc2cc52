"""What goes where when a device computes: layers, context and slots in its memory.

As many layers as fit are the device's, the last ones first, since llama.cpp computes the output
with them; what is left of its memory becomes slots. Each choice comes with a sentence.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend import plan
from backend.devices import Device

if TYPE_CHECKING:
    from backend.gguf_file import ModelFile

HEADROOM_BYTES = 256 << 20
HEADROOM_SHARE = 1 / 32
"""Of a device's memory is left alone, at least HEADROOM_BYTES: what a desktop's programs hold is
not free, but they may want more, and llama.cpp's kernels take some while they run."""
_WAVE_PAIRS = 1024
"""(token, expert) pairs that are computed at once (WaveRunner::max_pair)."""
_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class Share:
    """What one device holds, in bytes. headroom_bytes stays free."""

    pointer: int
    name: str
    layers: range
    dense_bytes: int
    kv_bytes: int
    compute_bytes: int
    slot_bytes: int
    headroom_bytes: int
    free_bytes: int

    @property
    def planned_bytes(self) -> int:
        """All that the model takes of the device's memory."""
        return self.dense_bytes + self.kv_bytes + self.compute_bytes + self.slot_bytes


@dataclass(frozen=True)
class DevicePlan:
    """Where layers are computed and how much of the experts is kept there.

    pointers, n_gpu_layers and shares: as in backend.loading.Placement. rate: the slots' share of
    all experts, of each layer alike. sentences: why.
    """

    pointers: tuple[int, ...]
    n_gpu_layers: int
    shares: tuple[float, ...]
    rate: float
    n_slot: int
    devices: tuple[Share, ...]
    sentences: tuple[str, ...]


def plan_devices(
    model: ModelFile,
    devices: Sequence[Device],
    rate: float,
    context_length: int,
    n_ubatch: int = plan.N_UBATCH,
    limit_bytes: int = 0,
    *,
    kv_type: str = "f16",
    whole: bool = False,
) -> DevicePlan:
    """Place a model on devices, at a cache rate of at most `rate`.

    limit_bytes: of each device at most so much is used; 0: what is free. whole: a device's layers
    have all their experts there. Where not a single layer fits, n_gpu_layers is 0.
    """
    usable = [_usable(device, limit_bytes) for device in devices]
    sizes = _Sizes(model, context_length, n_ubatch, kv_type)
    n_least = model.n_expert if whole else plan.slots(model, 0.0)
    n_wanted = max(n_least, plan.slots(model, rate))
    for n_gpu_layers in range(model.n_layer + 1, 1, -1):
        parts = _divide(model.n_layer, n_gpu_layers, usable)
        fixed = [sizes.fixed(layers, model.n_layer) for layers in parts]
        slot = [sizes.slots(layers) for layers in parts]
        room = [u - sum(f) for u, f in zip(usable, fixed, strict=True)]
        fits = min(
            (r // s if s else (model.n_expert if r >= 0 else -1))
            for r, s in zip(room, slot, strict=True)
        )
        if fits >= n_least:
            break
    else:
        names = " and ".join(d.name for d in devices)
        why = f"The memory of {names} holds not even one layer: the CPU computes."
        return DevicePlan((), 0, (), rate, n_wanted, (), (why,))
    n_slot = min(n_wanted, fits)
    shares = tuple(
        Share(
            pointer=device.pointer,
            name=device.name,
            layers=layers,
            dense_bytes=f[0],
            kv_bytes=f[1],
            compute_bytes=f[2],
            slot_bytes=s * n_slot,
            headroom_bytes=_headroom(device),
            free_bytes=device.free_bytes,
        )
        for device, layers, f, s in zip(devices, parts, fixed, slot, strict=True)
    )
    return DevicePlan(
        pointers=tuple(d.pointer for d in devices),
        n_gpu_layers=n_gpu_layers,
        shares=tuple(float(u) for u in usable) if len(devices) > 1 else (),
        rate=rate if n_slot == n_wanted else n_slot / max(model.n_expert, 1),
        n_slot=n_slot,
        devices=shares,
        sentences=_sentences(model, shares, n_gpu_layers, n_slot, n_wanted, context_length),
    )


def _headroom(device: Device) -> int:
    return max(HEADROOM_BYTES, int(device.total_bytes * HEADROOM_SHARE))


def _usable(device: Device, limit_bytes: int) -> int:
    free_bytes = max(0, device.free_bytes - _headroom(device))
    return min(free_bytes, limit_bytes) if limit_bytes else free_bytes


def _divide(n_layer: int, n_gpu_layers: int, usable: Sequence[int]) -> list[range]:
    """Return each device's layers as llama.cpp divides them; the output counts as layer n_layer."""
    total = sum(usable) or 1
    bounds = [sum(usable[: i + 1]) / total for i in range(len(usable))]
    first = n_layer + 1 - n_gpu_layers
    owners = [
        min(bisect.bisect_right(bounds, i / n_gpu_layers), len(usable) - 1)
        for i in range(n_gpu_layers)
    ]
    parts = []
    for device in range(len(usable)):
        begin = first + bisect.bisect_left(owners, device)
        parts.append(range(begin, first + bisect.bisect_right(owners, device)))
    return parts


class _Sizes:
    """Bytes by layer."""

    def __init__(self, model: ModelFile, context_length: int, n_ubatch: int, kv_type: str) -> None:
        experts = {t.name for tensors in model.expert_tensors.values() for t in tensors}
        self._dense = [0] * (model.n_layer + 1)  # the last one: the output
        embedding = 0
        has_output = False
        for tensor in model.tensors:
            if tensor.name in experts:
                continue
            if match := _BLOCK.match(tensor.name):
                if int(match[1]) < model.n_layer:
                    self._dense[int(match[1])] += tensor.n_bytes
            elif tensor.name == "token_embd.weight":
                embedding = tensor.n_bytes  # stays with the CPU
            elif not tensor.name.startswith("token_embd"):
                self._dense[model.n_layer] += tensor.n_bytes
                has_output = has_output or tensor.name == "output.weight"
        if not has_output:
            self._dense[model.n_layer] += embedding  # the output's copy of it
        self._slots = [model.expert_bytes_per_layer().get(i, 0) for i in range(model.n_layer)]
        self._kv = plan.kv_bytes_by_layer(model, context_length, kv_type)
        self._compute = plan.compute_bytes(model, context_length, n_ubatch)
        self._wave = plan.wave_bytes(
            model, min(_WAVE_PAIRS, n_ubatch * model.n_expert_used), n_ubatch
        )

    def fixed(self, layers: range, n_layer: int) -> tuple[int, int, int]:
        """Dense weights, context and computing of a device with these layers."""
        if not layers:
            return (0, 0, 0)
        own = [i for i in layers if i < n_layer]
        dense = sum(self._dense[i] for i in layers)
        waves = self._wave if any(self._slots[i] for i in own) else 0
        return dense, sum(self._kv[i] for i in own), self._compute + waves

    def slots(self, layers: range) -> int:
        """One slot of each of these layers."""
        return sum(self._slots[i] for i in layers if i < len(self._slots))


def _sentences(
    model: ModelFile,
    shares: Sequence[Share],
    n_gpu_layers: int,
    n_slot: int,
    n_wanted: int,
    context_length: int,
) -> tuple[str, ...]:
    names = " and ".join(s.name for s in shares)
    said = []
    if n_gpu_layers > model.n_layer:
        said.append(f"All {model.n_layer} layers are computed by {names}.")
    else:
        n_own = n_gpu_layers - 1
        said.append(
            f"The last {n_own} of {model.n_layer} layers are computed by {names}, "
            "whose memory holds no more; the CPU computes the others."
        )
    kv_bytes = sum(s.kv_bytes for s in shares)
    said.append(f"A context of {context_length} tokens takes {_size(kv_bytes)} there.")
    if model.is_moe:
        kept = f"{n_slot} of {model.n_expert} experts of each layer are kept there"
        size = _size(sum(s.slot_bytes for s in shares))
        left = _size(sum(s.headroom_bytes for s in shares))
        if n_slot == n_wanted:
            said.append(f"{kept} as asked, in {size}.")
        else:
            said.append(f"{kept} instead of {n_wanted}, in {size}; {left} are left to others.")
    return tuple(said)


def _size(n_bytes: int) -> str:
    return (
        f"{n_bytes / (1 << 30):.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / (1 << 20):.0f} MiB"
    )
