"""What goes where when a device computes: layers, context and slots in its memory.

As many layers as fit are the device's, the last ones first, since llama.cpp computes the output
with them; what is left of its memory becomes slots. Of those a share is the stage, through which
prompts pass what they do not keep. Each choice comes with a sentence.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from backend import plan
from backend.devices import Device

if TYPE_CHECKING:
    from backend.gguf_file import ModelFile

HEADROOM_BYTES = 256 << 20
HEADROOM_SHARE = 1 / 32
"""Of a device's memory is left alone, at least HEADROOM_BYTES: what a desktop's programs hold is
not free, but they may want more, and llama.cpp's kernels take some while they run. More where more
was seen to be taken (backend.headroom)."""
STAGE_SHARE = 1 / 16
"""Of the bytes of the slots, the stage may take as much. In the simulator 16 slots keep the link as
busy as 128 do; more of them mean larger waves."""
STAGE_LEAST = 4
"""Slots; fewer gain nothing over passing through a layer's own."""
UBATCH_SHARE = 1 / 8
"""Of the bytes of the slots, what longer pieces of a prompt need may take as much: each piece
copies nearly all experts, so that twice as long ones copy half."""
SHORTEST_CONTEXT = 2048
"""Tokens; so far a context that nobody chose by hand is shortened where layers find no room."""


class Measure(Protocol):
    """How many bytes each device computes in. patched: with experts on slots."""

    def __call__(
        self,
        n_gpu_layers: int,
        shares: Sequence[float],
        n_context: int,
        n_ubatch: int,
        *,
        patched: bool,
    ) -> Sequence[int]:
        """Return them for this placement, a context and pieces of a prompt in tokens."""


@dataclass(frozen=True)
class Share:
    """What one device holds, in bytes. headroom_bytes stays free; stage_bytes are slots, too.

    expert_bytes: of all experts of its layers, here or not.
    """

    pointer: int
    name: str
    layers: range
    dense_bytes: int
    kv_bytes: int
    compute_bytes: int
    wave_bytes: int
    slot_bytes: int
    stage_bytes: int
    expert_bytes: int
    headroom_bytes: int
    free_bytes: int

    @property
    def planned_bytes(self) -> int:
        """All that the model takes of the device's memory."""
        fixed = self.dense_bytes + self.kv_bytes + self.compute_bytes + self.wave_bytes
        return fixed + self.slot_bytes + self.stage_bytes


@dataclass(frozen=True)
class DevicePlan:
    """Where layers are computed and how much of the experts is kept there.

    pointers, n_gpu_layers and shares: as in backend.loading.Placement. rate: the slots' share of
    all experts, of each layer alike. n_stage: slots of the stage of each device. n_context and
    n_ubatch: tokens. sentences: why.
    """

    pointers: tuple[int, ...]
    n_gpu_layers: int
    shares: tuple[float, ...]
    rate: float
    n_slot: int
    n_stage: int
    n_context: int
    n_ubatch: int
    devices: tuple[Share, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """What is asked of a plan.

    rate: at most this share of the experts. n_context, n_ubatch: tokens; n_ubatch 0: as long
    pieces as pay. limit_bytes: of each device at most so much is used; 0: what is free.
    may_shorten: nobody chose the context by hand. whole: a device's layers have all their experts
    there, and llama.cpp runs unpatched. stages: the method lets prompts pass through a stage.
    """

    rate: float
    n_context: int
    n_ubatch: int = 0
    kv_type: str = "f16"
    limit_bytes: int = 0
    may_shorten: bool = False
    whole: bool = False
    stages: bool = True


def plan_devices(
    model: ModelFile, devices: Sequence[Device], wish: Wish, measure: Measure | None = None
) -> DevicePlan:
    """Place a model on devices. Where not a single layer fits, n_gpu_layers is 0.

    measure: what llama.cpp needs to compute in (backend.dry_run); else it is estimated.
    """
    if wish.rate >= 1 and not wish.whole:  # where all fits, llama.cpp runs unpatched
        unpatched = _Planner(model, devices, replace(wish, whole=True), measure)
        entire = unpatched.place(wish.n_context)
        if entire is not None and entire.n_gpu_layers > model.n_layer:
            return unpatched.finish(entire)
    planner = _Planner(model, devices, wish, measure)
    found = planner.place(wish.n_context)
    n_context = wish.n_context
    while wish.may_shorten and (found is None or found.n_gpu_layers <= model.n_layer):
        n_context //= 2
        if n_context < SHORTEST_CONTEXT:
            break
        shorter = planner.place(n_context)
        if shorter is not None and (found is None or shorter.n_gpu_layers > found.n_gpu_layers):
            found = shorter
    if found is None:
        names = " and ".join(d.name for d in devices)
        why = f"The memory of {names} holds not even one layer: the CPU computes."
        n_slot = plan.slots(model, wish.rate)
        return DevicePlan((), 0, (), wish.rate, n_slot, 0, wish.n_context, 0, (), (why,))
    return planner.finish(planner.lengthen(found))


@dataclass(frozen=True)
class _Place:
    """Layers that fit, with the least slots. fixed: of each device, all but slots and stage."""

    n_gpu_layers: int
    n_context: int
    n_ubatch: int
    parts: tuple[range, ...]
    fixed: tuple[_Fixed, ...]


@dataclass(frozen=True)
class _Fixed:
    """Bytes of a device that do not depend on how many slots there are."""

    dense: int = 0
    kv: int = 0
    compute: int = 0
    waves: int = 0

    @property
    def total(self) -> int:
        return self.dense + self.kv + self.compute + self.waves


class _Planner:
    """One model on these devices."""

    def __init__(
        self, model: ModelFile, devices: Sequence[Device], wish: Wish, measure: Measure | None
    ) -> None:
        self.model, self.devices, self.wish, self._measure = model, devices, wish, measure
        self.usable = [usable_bytes(device, wish.limit_bytes) for device in devices]
        self.shares = tuple(float(u) for u in self.usable) if len(devices) > 1 else ()
        self.sizes = [_Sizes(model, wish.kv_type, device.alignment) for device in devices]
        self.n_least = model.n_expert if wish.whole else plan.slots(model, 0.0)
        self.n_wanted = max(self.n_least, plan.slots(model, wish.rate))

    def place(self, n_context: int) -> _Place | None:
        """As many layers as fit with this context and pieces of N_UBATCH tokens."""
        n_ubatch = min(self.wish.n_ubatch or plan.N_UBATCH, n_context)
        n_all = self.model.n_layer + 1
        compute = self._compute(n_all, n_context, n_ubatch)
        for n_gpu_layers in range(n_all, 1, -1):
            found = self._place(n_gpu_layers, n_context, n_ubatch, compute)
            if self._n_fit(found) < self.n_least:
                continue
            if n_gpu_layers == n_all:
                return found
            compute = self._compute(n_gpu_layers, n_context, n_ubatch)
            found = self._place(n_gpu_layers, n_context, n_ubatch, compute)
            if self._n_fit(found) >= self.n_least:
                return found
        return None

    def lengthen(self, found: _Place) -> _Place:
        """The same with pieces of a prompt as long as pays."""
        n_slot = min(self.n_wanted, self._n_fit(found))
        if self.wish.n_ubatch or not self.model.is_moe or n_slot >= self.model.n_expert:
            return found
        spare = [UBATCH_SHARE * self._slot_bytes(d, found, n_slot) for d in range(len(found.parts))]
        longest = min(found.n_context, plan.MAX_UBATCH)
        best = found
        while best.n_ubatch < longest:
            n_ubatch = min(2 * best.n_ubatch, longest)
            compute = self._compute(found.n_gpu_layers, found.n_context, n_ubatch)
            longer = self._place(found.n_gpu_layers, found.n_context, n_ubatch, compute)
            more = [a.total - b.total for a, b in zip(longer.fixed, found.fixed, strict=True)]
            if self._n_fit(longer) < self.n_least or any(
                m > s for m, s in zip(more, spare, strict=True)
            ):
                break
            best = longer
        return best

    def finish(self, found: _Place) -> DevicePlan:
        """Slots and stage in what is left."""
        model, wish = self.model, self.wish
        n_slot = min(self.n_wanted, self._n_fit(found))
        n_stage = 0 if wish.whole or not wish.stages else self._n_stage(found, n_slot)
        if n_stage:
            n_slot = min(n_slot, self._n_fit(found, n_stage))
        places = range(len(self.devices))
        shares = tuple(
            Share(
                pointer=self.devices[d].pointer,
                name=self.devices[d].name,
                layers=found.parts[d],
                dense_bytes=found.fixed[d].dense,
                kv_bytes=found.fixed[d].kv,
                compute_bytes=found.fixed[d].compute,
                wave_bytes=found.fixed[d].waves,
                slot_bytes=self._slot_bytes(d, found, n_slot),
                stage_bytes=self.sizes[d].stage(found.parts[d], n_stage),
                expert_bytes=self._slot_bytes(d, found, model.n_expert),
                headroom_bytes=headroom(self.devices[d]),
                free_bytes=self.devices[d].free_bytes,
            )
            for d in places
        )
        made = DevicePlan(
            pointers=tuple(d.pointer for d in self.devices),
            n_gpu_layers=found.n_gpu_layers,
            shares=self.shares,
            rate=wish.rate if n_slot == self.n_wanted else n_slot / max(model.n_expert, 1),
            n_slot=n_slot,
            n_stage=n_stage,
            n_context=found.n_context,
            n_ubatch=found.n_ubatch,
            devices=shares,
            sentences=(),
        )
        return replace(made, sentences=_sentences(model, made, wish, self.n_wanted))

    def _place(
        self, n_gpu_layers: int, n_context: int, n_ubatch: int, compute: Sequence[int]
    ) -> _Place:
        parts = tuple(_divide(self.model.n_layer, n_gpu_layers, self.usable))
        fixed = tuple(
            self.sizes[d].fixed(parts[d], n_context, n_ubatch, compute[d], whole=self.wish.whole)
            for d in range(len(parts))
        )
        return _Place(n_gpu_layers, n_context, n_ubatch, parts, fixed)

    def _compute(self, n_gpu_layers: int, n_context: int, n_ubatch: int) -> Sequence[int]:
        if self._measure is not None:
            return self._measure(
                n_gpu_layers, self.shares, n_context, n_ubatch, patched=not self.wish.whole
            )
        return [plan.compute_bytes(self.model, n_context, n_ubatch)] * len(self.devices)

    def _slot_bytes(self, device: int, found: _Place, n_slot: int) -> int:
        return self.sizes[device].slots(found.parts[device], n_slot)

    def _n_fit(self, found: _Place, n_stage: int = 0) -> int:
        """How many slots of every layer fit; -1 where not even the rest does."""
        n_fit = self.model.n_expert
        for device, layers in enumerate(found.parts):
            sizes = self.sizes[device]
            room = self.usable[device] - found.fixed[device].total - sizes.stage(layers, n_stage)
            one = sizes.slots(layers, 1)
            n_fit = min(n_fit, -1 if room < 0 else room // one if one else n_fit)
        return n_fit

    def _n_stage(self, found: _Place, n_slot: int) -> int:
        """Room for two layers' missing experts, where that takes little of the cache."""
        n_stage = 2 * (self.model.n_expert - n_slot)
        for device, layers in enumerate(found.parts):
            if one := self.sizes[device].stage(layers, 1):
                most = STAGE_SHARE * self._slot_bytes(device, found, n_slot)
                n_stage = min(n_stage, int(most // one))
        if n_stage < STAGE_LEAST or self._n_fit(found, n_stage) < self.n_least:
            return 0
        return n_stage


def headroom(device: Device) -> int:
    """Return the bytes of a device's memory that are left alone."""
    from backend.headroom import taken_bytes

    least = max(HEADROOM_BYTES, int(device.total_bytes * HEADROOM_SHARE))
    return max(least, min(taken_bytes(device), device.total_bytes // 4))


def usable_bytes(device: Device, limit_bytes: int) -> int:
    """Return what of a free device may be taken; limit_bytes: at most so much, 0 for all."""
    free_bytes = max(0, device.free_bytes - headroom(device))
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
    """Bytes by layer, of a device that aligns what lies there."""

    def __init__(self, model: ModelFile, kv_type: str, alignment: int) -> None:
        self._model, self._kv_type, self._alignment = model, kv_type, alignment
        self._dense = [0] * (model.n_layer + 1)  # the last one: the output
        embedding = 0
        has_output = False
        for tensor in model.dense_tensors:
            size = self._padded(tensor.n_bytes)
            if tensor.layer is not None:
                self._dense[tensor.layer] += size
            elif tensor.name == "token_embd.weight":
                embedding = size  # stays with the CPU
            elif not tensor.name.startswith("token_embd"):
                self._dense[model.n_layer] += size
                has_output = has_output or tensor.name == "output.weight"
        if not has_output:
            self._dense[model.n_layer] += embedding  # the output's copy of it
        self._slots = [model.expert_bytes_per_layer().get(i, 0) for i in range(model.n_layer)]

    def _padded(self, n_bytes: int) -> int:
        return -(-n_bytes // self._alignment) * self._alignment

    def fixed(
        self, layers: range, n_context: int, n_ubatch: int, compute_bytes: int, *, whole: bool
    ) -> _Fixed:
        """What a device with these layers holds beside slots."""
        if not layers:
            return _Fixed()
        model = self._model
        own = [i for i in layers if i < model.n_layer]
        kv = plan.kv_bytes_by_layer(model, n_context, self._kv_type)
        has_experts = not whole and any(self._slots[i] for i in own)
        return _Fixed(
            dense=sum(self._dense[i] for i in layers),
            kv=sum(self._padded(kv[i]) for i in own),
            compute=compute_bytes,
            waves=plan.wave_bytes(model, n_ubatch) if has_experts else 0,
        )

    def slots(self, layers: range, n_slot: int) -> int:
        """So many slots of each of these layers."""
        return n_slot * sum(self._slots[i] for i in layers if i < len(self._slots))

    def stage(self, layers: range, n_stage: int) -> int:
        """A stage for these layers: one for each kind of layer."""
        return n_stage * sum({self._slots[i] for i in layers if i < len(self._slots)})


def _sentences(model: ModelFile, made: DevicePlan, wish: Wish, n_wanted: int) -> tuple[str, ...]:
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
    if made.n_context < wish.n_context:
        said.append(
            f"The context is {made.n_context} tokens instead of {wish.n_context}, so that more "
            f"layers fit; it takes {kv_size} there."
        )
    else:
        said.append(f"A context of {made.n_context} tokens takes {kv_size} there.")
    if not model.is_moe:
        return tuple(said)
    n_slot, n_expert = made.n_slot, model.n_expert
    size = size_text(sum(s.slot_bytes for s in made.devices))
    left = size_text(sum(s.headroom_bytes for s in made.devices))
    if n_slot == n_wanted:
        said.append(
            f"Kept there are {n_slot} of {n_expert} experts of each layer, as asked, in {size}."
        )
    else:
        said.append(
            f"Kept there are {n_slot} of {n_expert} experts of each layer instead of {n_wanted}, "
            f"in {size}; {left} are left to others."
        )
    if made.n_slot < model.n_expert:
        said.append(_prompt_sentence(made))
    return tuple(said)


def _prompt_sentence(made: DevicePlan) -> str:
    if not made.n_stage:
        return f"Prompts copy the experts once for every {made.n_ubatch} tokens."
    size = size_text(sum(s.stage_bytes for s in made.devices))
    return (
        f"Prompts copy the experts once for every {made.n_ubatch} tokens, through {size} beside "
        "the slots, ahead of the layers that need them."
    )


def size_text(n_bytes: int) -> str:
    """Return a size for a sentence: "17.3 GiB"."""
    if n_bytes >= 1 << 30:
        return f"{n_bytes / (1 << 30):.1f} GiB"
    return f"{n_bytes / (1 << 20):.0f} MiB"
