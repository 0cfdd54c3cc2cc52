"""Place layers, context and slots in the memory of devices.

Devices get as many layers as fit, beginning with the last, because llama.cpp computes the output
with them. The rest of their memory becomes slots. A share of the slots is the stage: prompts copy
experts through it that the cache does not keep. Each choice comes with a sentence.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.memory import plan
from backend.memory.devices import Device
from backend.text import Text, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

HEADROOM_BYTES = 256 << 20
HEADROOM_SHARE = 1 / 32
"""This share of a device's memory stays free, at least HEADROOM_BYTES: desktop programs may need
more than they hold now, and llama.cpp's kernels take some memory while they run. The headroom is
larger where others were seen to take more (backend.memory.headroom)."""
STAGE_SHARE = 1 / 16
"""Largest share of the slots' bytes for the stage. In the simulator 16 slots keep the link as busy
as 128 do; more slots mean larger waves."""
STAGE_LEAST = 4
"""Smallest stage in slots; a smaller one gains nothing over copies through a layer's own slots."""
UBATCH_SHARE = 1 / 8
"""Largest share of the slots' bytes that a larger n_ubatch may take. Each partial batch of a prompt
copies nearly all experts, so batches of twice the size copy half as much."""
SHORTEST_CONTEXT = 2048
"""Tokens. An automatic context is not shortened below this to make room for layers."""


@dataclass(frozen=True)
class Placement:
    """Which devices compute which layers. The CPU computes the remaining first layers.

    pointers: ggml's devices. n_gpu_layers: number of layers on devices, counted from the output,
    which counts as one, back towards the first layer; may exceed the number of layers. shares: how
    the layers are divided among the devices; if empty, by free memory.
    """

    pointers: tuple[int, ...] = ()
    n_gpu_layers: int = 0
    shares: tuple[float, ...] = ()

    @property
    def on_device(self) -> bool:
        """Whether a device computes any layer."""
        return bool(self.pointers) and self.n_gpu_layers > 0

    def cpu_layers(self, n_layer: int) -> range:
        """Return the layers that the CPU computes, of n_layer."""
        return range(max(n_layer + 1 - self.n_gpu_layers, 0) if self.on_device else n_layer)


ON_CPU = Placement()


Measure = Callable[[Placement, int, int, bool], Mapping[str, int]]
"""Measures llama.cpp's compute buffers, from (placement, n_context, n_ubatch, patched).

patched: with experts on slots. Returns bytes by the name of a memory (Device.memory).
"""


@dataclass(frozen=True)
class Share:
    """The contents of one device, in bytes. headroom_bytes stays free; stage_bytes are slots, too.

    name: ggml's, for sentences. key: as in Device. expert_bytes: all experts of its layers, on the
    device or not.
    """

    pointer: int
    name: str
    key: str
    layers: range
    headroom_bytes: int
    free_bytes: int
    dense_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    wave_bytes: int = 0
    slot_bytes: int = 0
    stage_bytes: int = 0
    expert_bytes: int = 0

    @property
    def planned_bytes(self) -> int:
        """The device memory that the model takes."""
        fixed = self.dense_bytes + self.kv_bytes + self.compute_bytes + self.wave_bytes
        return fixed + self.slot_bytes + self.stage_bytes


@dataclass(frozen=True)
class DevicePlan:
    """Where layers are computed, and how many experts devices keep.

    n_slot: experts per layer. n_stage: slots of each device's stage. n_context, n_ubatch: tokens.
    sentences: the reasons.
    """

    placement: Placement
    n_slot: int
    n_stage: int
    n_context: int
    n_ubatch: int
    devices: tuple[Share, ...]
    sentences: tuple[str, ...]

    @property
    def n_gpu_layers(self) -> int:
        """As in Placement."""
        return self.placement.n_gpu_layers

    @property
    def names(self) -> str:
        """The names of the devices, separated by commas."""
        return ",".join(share.name for share in self.devices)

    @property
    def layers(self) -> set[int]:
        """The numbers of the layers that devices compute."""
        return {layer for share in self.devices for layer in share.layers}

    def with_slots(self, n_slot: int) -> DevicePlan:
        """Return the plan with fewer slots and their memory."""
        shares = tuple(
            replace(s, slot_bytes=s.slot_bytes // self.n_slot * n_slot) for s in self.devices
        )
        return replace(self, n_slot=n_slot, devices=shares)

    def holding(self, share: float) -> DevicePlan:
        """Return the plan with slots for at most this share of all experts."""
        shares = tuple(
            replace(s, slot_bytes=min(s.slot_bytes, round(share * s.expert_bytes)))
            for s in self.devices
        )
        return replace(self, devices=shares)


@dataclass(frozen=True)
class Wish:
    """The request to plan_devices.

    n_slot: maximum of experts per layer. n_context, n_ubatch: tokens; n_ubatch 0: as large as pays.
    limit_bytes: maximum of each device's memory; 0: all that is free. may_shorten: the context was
    not chosen by hand. kv: with any n_ubatch. whole: a device holds all experts of its layers, and
    llama.cpp runs unpatched. stages: the method uses a stage for prompts.
    """

    n_slot: int
    n_context: int
    n_ubatch: int = 0
    kv: plan.KvCache = plan.KV_CACHE
    limit_bytes: int = 0
    may_shorten: bool = False
    whole: bool = False
    stages: bool = True


def plan_devices(
    model: ModelFile, devices: Sequence[Device], wish: Wish, measure: Measure | None = None
) -> DevicePlan:
    """Place a model on devices. Where not a single layer fits, n_gpu_layers is 0.

    measure: measures the compute buffers (backend.engine.dry_run); None: they are estimated.
    """
    if wish.n_slot >= model.n_expert and not wish.whole:  # if all fits, llama.cpp runs unpatched
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
        why = _no_layer([d.name for d in devices])
        return DevicePlan(ON_CPU, wish.n_slot, 0, wish.n_context, 0, (), (why,))
    return planner.finish(planner.lengthen(found))


@dataclass(frozen=True)
class _Place:
    """Layers that fit. parts: the contents of each device without slots and stage."""

    n_gpu_layers: int
    n_context: int
    n_ubatch: int
    parts: tuple[Share, ...]


class _Planner:
    """Places one model on these devices."""

    def __init__(
        self, model: ModelFile, devices: Sequence[Device], wish: Wish, measure: Measure | None
    ) -> None:
        self.model, self.devices, self.wish, self._measure = model, devices, wish, measure
        self.usable = [usable_bytes(device, wish.limit_bytes) for device in devices]
        self.shares = tuple(float(u) for u in self.usable) if len(devices) > 1 else ()
        self.sizes = [_Sizes(model, wish, device.alignment) for device in devices]
        self.n_least = model.n_expert if wish.whole else plan.slots(model, 0.0)
        self.n_wanted = max(self.n_least, wish.n_slot)

    def place(self, n_context: int) -> _Place | None:
        """Return as many layers as fit with this context and the smallest n_ubatch."""
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
        """Return the place with an n_ubatch as large as pays."""
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
            pairs = zip(longer.parts, found.parts, strict=True)
            more = [a.planned_bytes - b.planned_bytes for a, b in pairs]
            if self._n_fit(longer) < self.n_least or any(
                m > s for m, s in zip(more, spare, strict=True)
            ):
                break
            best = longer
        return best

    def finish(self, found: _Place) -> DevicePlan:
        """Return the plan, with slots and stage in the rest of the memory."""
        model, wish = self.model, self.wish
        n_slot = min(self.n_wanted, self._n_fit(found))
        n_stage = 0 if wish.whole or not wish.stages else self._n_stage(found, n_slot)
        if n_stage:
            n_slot = min(n_slot, self._n_fit(found, n_stage))
        shares = tuple(
            replace(
                part,
                slot_bytes=sizes.slots(part.layers, n_slot),
                stage_bytes=sizes.stage(part.layers, n_stage),
                expert_bytes=sizes.slots(part.layers, model.n_expert),
            )
            for part, sizes in zip(found.parts, self.sizes, strict=True)
        )
        made = DevicePlan(
            placement=self._placement(found.n_gpu_layers),
            n_slot=n_slot,
            n_stage=n_stage,
            n_context=found.n_context,
            n_ubatch=found.n_ubatch,
            devices=shares,
            sentences=(),
        )
        return replace(made, sentences=_on_devices(model, made, wish.n_context, self.n_wanted))

    def _place(
        self, n_gpu_layers: int, n_context: int, n_ubatch: int, compute: Sequence[int]
    ) -> _Place:
        layers = _divide(self.model.n_layer, n_gpu_layers, self.usable)
        parts = tuple(
            self.sizes[d].fixed(device, layers[d], n_context, n_ubatch, compute[d], self.wish.whole)
            for d, device in enumerate(self.devices)
        )
        return _Place(n_gpu_layers, n_context, n_ubatch, parts)

    def _compute(self, n_gpu_layers: int, n_context: int, n_ubatch: int) -> Sequence[int]:
        if self._measure is not None:
            place = self._placement(n_gpu_layers)
            found = self._measure(place, n_context, n_ubatch, not self.wish.whole)
            return [found.get(device.memory, 0) for device in self.devices]
        return [plan.compute_bytes(self.model, n_context, n_ubatch)] * len(self.devices)

    def _placement(self, n_gpu_layers: int) -> Placement:
        return Placement(tuple(d.pointer for d in self.devices), n_gpu_layers, self.shares)

    def _slot_bytes(self, device: int, found: _Place, n_slot: int) -> int:
        return self.sizes[device].slots(found.parts[device].layers, n_slot)

    def _n_fit(self, found: _Place, n_stage: int = 0) -> int:
        """Return how many slots per layer fit; -1 where even the rest does not fit."""
        n_fit = self.model.n_expert
        for usable, part, sizes in zip(self.usable, found.parts, self.sizes, strict=True):
            room = usable - part.planned_bytes - sizes.stage(part.layers, n_stage)
            one = sizes.slots(part.layers, 1)
            n_fit = min(n_fit, -1 if room < 0 else room // one if one else n_fit)
        return n_fit

    def _n_stage(self, found: _Place, n_slot: int) -> int:
        """Return the slots of a stage: the missing experts of two layers, or as many as pay."""
        n_stage = 2 * (self.model.n_expert - n_slot)
        for device, part in enumerate(found.parts):
            if one := self.sizes[device].stage(part.layers, 1):
                most = STAGE_SHARE * self._slot_bytes(device, found, n_slot)
                n_stage = min(n_stage, int(most // one))
        if n_stage < STAGE_LEAST or self._n_fit(found, n_stage) < self.n_least:
            return 0
        return n_stage


def headroom(device: Device) -> int:
    """Return the bytes of a device's memory that stay free."""
    least = max(HEADROOM_BYTES, int(device.total_bytes * HEADROOM_SHARE))
    return max(least, min(device.taken_bytes, device.total_bytes // 4))


def usable_bytes(device: Device, limit_bytes: int) -> int:
    """Return the bytes of a device that a plan may take. limit_bytes: the maximum; 0: no limit."""
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
    """Sizes by layer in bytes, on a device with this alignment."""

    def __init__(self, model: ModelFile, wish: Wish, alignment: int) -> None:
        self._model, self._wish, self._alignment = model, wish, alignment
        self._dense = [0] * (model.n_layer + 1)  # the last entry is the output
        embedding = 0
        has_output = False
        for tensor in model.loaded_tensors:
            size = self._padded(tensor.n_bytes)
            if tensor.layer is not None:
                self._dense[tensor.layer] += size
            elif tensor.name == "token_embd.weight":
                embedding = size  # stays with the CPU
            elif not tensor.name.startswith(("token_embd", "per_layer_token_embd")):
                self._dense[model.n_layer] += size
                has_output = has_output or tensor.name == "output.weight"
        if not has_output:
            self._dense[model.n_layer] += embedding  # the output's copy of it
        self._slots = [model.expert_bytes_per_layer().get(i, 0) for i in range(model.n_layer)]

    def _padded(self, n_bytes: int) -> int:
        return -(-n_bytes // self._alignment) * self._alignment

    def fixed(
        self,
        device: Device,
        layers: range,
        n_context: int,
        n_ubatch: int,
        compute_bytes: int,
        whole: bool,
    ) -> Share:
        """Return the contents of a device with these layers, without slots."""
        share = Share(
            device.pointer, device.name, device.key, layers, headroom(device), device.free_bytes
        )
        if not layers:
            return share
        model = self._model
        own = [i for i in layers if i < model.n_layer]
        cache = replace(self._wish.kv, n_ubatch=n_ubatch)
        kv = plan.kv_bytes_by_layer(model, n_context, cache)
        has_experts = not whole and any(self._slots[i] for i in own)
        return replace(
            share,
            dense_bytes=sum(self._dense[i] for i in layers),
            kv_bytes=sum(self._padded(kv[i]) for i in own),
            compute_bytes=compute_bytes,
            wave_bytes=plan.wave_bytes(model, n_ubatch) if has_experts else 0,
        )

    def slots(self, layers: range, n_slot: int) -> int:
        """Return the bytes of n_slot slots in each of these layers."""
        return n_slot * sum(self._slots[i] for i in layers if i < len(self._slots))

    def stage(self, layers: range, n_stage: int) -> int:
        """Return the bytes of the stages for these layers: one for each kind of layer."""
        return n_stage * sum({self._slots[i] for i in layers if i < len(self._slots)})


def _no_layer(names: Sequence[str]) -> Text:
    """Say why devices that were asked for compute nothing."""
    return text("memory.layers_none", devices=_in_words(names))


def _on_devices(
    model: ModelFile, made: DevicePlan, n_context_asked: int, n_asked: int
) -> tuple[Text, ...]:
    """Say which layers devices compute, and name the other contents of their memory."""
    devices, n_layer = _in_words([s.name for s in made.devices]), model.n_layer
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
    said.append(_kept_on_devices(model.n_expert, made, n_asked))
    if made.n_slot < model.n_expert:
        said.append(_prompts_copy(made))
    return tuple(said)


def _kept_on_devices(n_expert: int, made: DevicePlan, n_asked: int) -> Text:
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


def _in_words(names: Sequence[str]) -> str:
    """Return names as a list in words: "A and B"."""
    return functools.reduce(lambda a, b: text("words.and", first=a, last=b), names)
