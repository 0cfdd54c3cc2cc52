"""Plans an engine from a model's file, the settings and the state of the machine.

`plan_engine` is a pure function: it reads no clock, no file and no memory. It gets the state of the
machine as a MachineState, which backend.engine.observer makes. backend.engine.loaded_model brings
a plan into force.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.gguf.tables import CACHE_FOR_EACH, GOES_BACK, ONE_SEQUENCE
from backend.machines.drive import Drive
from backend.machines.threads import useful_threads
from backend.memory.automatic import automatic, prefers_stock
from backend.memory.host_plan import HostPlan, plan_host
from backend.memory.placement import (
    ON_CPU,
    DevicePlan,
    Measure,
    Placement,
    Wish,
    plan_devices,
    usable_bytes,
)
from backend.memory.plan import (
    N_UBATCH,
    KvCache,
    MemoryPlan,
    checkpoints,
    largest_ubatch,
    plan,
    prediction_bytes,
    slots,
    why_no_kv_type,
)
from backend.methods.catalogue import METHODS, Method
from backend.methods.slots import rate_of
from backend.protocol.errors import EngineError
from backend.protocol.settings import BY_HAND, EngineConfig
from backend.text import joined, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.devices import Device
    from backend.packs.file import Pack


_CONTEXT_STEP = 256


class Step(enum.IntEnum):
    """The work that a plan needs. Each step includes the steps before it.

    But another context may keep the cache: EnginePlan.keeps_cache_of().
    """

    NOTHING = 0
    REBUILD = 1
    """Rebuild the cache with other slots or another method. Experts that have room stay."""
    CONTEXT = 2
    """Make another llama.cpp context; the weights stay."""
    RELOAD = 3


@dataclass(frozen=True)
class SlowTier:
    """The source of the experts: the model's file or its pack.

    remark: why a pack that was found is not used, or "". n_thread: the number of threads that
    computes fastest while the drive is read; 0: not measured.
    """

    drive: Drive = Drive()
    n_thread: int = 0
    pack: Pack | None = None
    remark: str = ""


@dataclass(frozen=True)
class MachineState:
    """The state of the machine that a plan depends on. Sizes in bytes.

    free_bytes: RAM that may be taken. Memory of the loaded model counts as free, on devices, too.
    n_thread: compute threads where the slow tier has no number. n_thread_max: the processors; more
    threads would only wait for each other. measure: measures llama.cpp's
    compute buffers; None: they are estimated. slow_tier: called only where experts are cached.
    refused: why this model cannot be cached, or "". layer_refused: the same of its layer for
    multi-token prediction. before: the plan that was in force last. is_loaded: it still is.
    """

    free_bytes: int
    n_thread: int = 1
    devices: tuple[Device, ...] = ()
    measure: Measure | None = None
    slow_tier: Callable[[EngineConfig], SlowTier] = lambda _config: SlowTier()
    refused: str = ""
    layer_refused: str = ""
    before: EnginePlan | None = None
    is_loaded: bool = False
    n_thread_max: int = 1024


@dataclass(frozen=True)
class EnginePlan:
    """How an engine runs. Sizes in bytes.

    config: the settings asked for; in automatic mode, with the values that memory decided.
    settings: the same, with a context no longer than the model was trained for and a number of
    threads.
    """

    config: EngineConfig
    method: Method
    settings: EngineConfig
    n_context: int
    """Length of the context in tokens."""
    n_ubatch: int
    """Tokens of a prompt in one pass."""
    n_checkpoint: int = 0
    """Checkpoints that the context keeps in memory."""
    n_slot: int = 0
    """Experts per layer that memory permits; a method may use fewer."""
    n_slot_min: int = 0
    n_slot_most: int = 0
    """The cache may grow to this number when memory is free again."""
    mode: str = "cached"
    """"cached", or "plain": llama.cpp runs unpatched, with every expert."""
    devices: DevicePlan | None = None
    """None: the CPU computes alone."""
    host: HostPlan = HostPlan()
    tier: SlowTier = SlowTier()
    repack: bool = True
    """In plain mode: copy weights into the layout that computes fastest."""
    mapped: bool = False
    """In cached mode: the dense weights are pages of the file, which the system may drop."""
    window_bytes: int = 0
    """Memory for mapped weights and for an attention cache on a drive. If not all fit, leading
    layers stay, and a window of the others is kept ahead (Klotski, section 6.1). 0: the system
    decides."""
    headroom_bytes: int | None = None
    """RAM that the plan leaves to other programs; None: memory is not watched."""
    reason: str = ""
    """Sentences that say why the plan differs from the settings, and what lies where."""

    overridden: str = ""
    """One sentence on the settings by hand and what the automatic ones would be, or ""."""
    predicts: bool = False
    """The layer for multi-token prediction is loaded, too, and guesses tokens."""
    draft_remark: str = ""
    """Why the prediction layer is not used; "" if it is used or not asked for."""

    @property
    def is_plain(self) -> bool:
        """Whether llama.cpp runs unpatched."""
        return self.mode == "plain"

    @property
    def n_thread(self) -> int:
        """The number of compute threads."""
        return self.settings.n_thread

    @property
    def placement(self) -> Placement:
        """The placement of the layers."""
        return self.devices.placement if self.devices else ON_CPU

    @property
    def device_names(self) -> str:
        """The devices in use, or "cpu"."""
        return self.devices.names if self.devices else "cpu"

    @property
    def device_keys(self) -> str:
        """The devices in use, or "cpu", with a name that is the same in every process."""
        return ",".join(d.key for d in self.devices.devices) if self.devices else "cpu"

    def with_fewest_slots(self) -> EnginePlan:
        """Return the plan with the slots that one token needs, and without a host store."""
        assert self.devices is not None
        few = self.devices.with_slots(self.n_slot_min)
        return replace(self, n_slot=self.n_slot_min, devices=few, host=HostPlan())

    def holding(self, share: float) -> EnginePlan:
        """Return the plan where a method uses at most this share of all experts on devices."""
        if self.devices is None or self.is_plain:
            return self
        return replace(self, devices=self.devices.holding(share))

    def step_from(self, before: EnginePlan | None) -> Step:
        """Return the step from `before`, the plan in force, to this one; None: nothing loaded."""
        if before is None or self._weights() != before._weights():
            return Step.RELOAD
        if self.tier.pack != before.tier.pack:
            return Step.RELOAD
        if self.settings.parts("context") != before.settings.parts("context"):
            return Step.CONTEXT
        return Step.REBUILD if self._cache() != before._cache() else Step.NOTHING

    def keeps_cache_of(self, before: EnginePlan) -> bool:
        """Return whether another context can use the cache of `before`, with the experts in it.

        Not on devices, where the cache is made for what the context leaves.
        """
        return self.devices is None and self._cache_in_context() == before._cache_in_context()

    def _cache_in_context(self) -> object:
        """Return the values that the cache is built from, with those that a context decides."""
        return self._cache(), self.n_ubatch, self.n_thread, self.tier

    def _weights(self) -> object:
        """Return the values that the weights are loaded by."""
        return self.mode, self.placement, self.mapped, self.predicts, self.config.setup.mmproj

    def _cache(self) -> object:
        """Return the values that the cache is built from."""
        if self.is_plain:
            return None
        return self.settings.parts("cache"), self.n_slot, self.host


def plan_engine(file: ModelFile, config: EngineConfig, machine: MachineState) -> EnginePlan:
    """Plan an engine. Memory grants the settings asked for, or less.

    A context that stays in use keeps its n_context and n_ubatch. Raises EngineError where the
    attention cache cannot be of the type asked for.
    """
    if why := why_no_kv_type(file, config.kv_type):
        raise EngineError(why)
    if file.architecture in ONE_SEQUENCE:
        config = config.changed(n_sequence=1, streams=False)
    before = machine.before
    on_devices = sum(usable_bytes(d, config.setup.device_bytes) for d in machine.devices)
    overridden = _overridden(file, config, on_devices, machine.free_bytes)
    if config.automatic:
        is_free = "context_length" not in config.by_hand
        config = automatic(file, config, on_devices or machine.free_bytes)
        if before is not None and before.config.automatic and is_free:
            # the context holds a conversation
            config = replace(config, context_length=before.config.context_length)
    method = METHODS[config.method]
    settings = _resolved(file, config, machine.n_thread, machine.n_thread_max)
    kept = before if machine.is_loaded else None
    if kept is not None and kept.settings.parts("context") != settings.parts("context"):
        kept = None
    predicts, draft_remark = _predicting(file, settings, method, machine)
    wanted = EnginePlan(
        config=config,
        method=method,
        settings=settings,
        n_context=kept.n_context if kept else settings.context_length,
        n_ubatch=kept.n_ubatch if kept else 0,
        n_slot_min=slots(file, 0.0),
        repack=file.file_size_bytes < machine.free_bytes,
        overridden=overridden,
        predicts=predicts,
        draft_remark=draft_remark,
    )
    made = _granted(file, wanted, machine, _asked_slots(file, settings, method))
    if predicts and made.is_plain:  # without a cache the prediction layer needs all experts, too
        made = _granted(file, wanted, machine, file.n_expert)
    n_checkpoint, _ = checkpoints(file, made.n_context, KvCache.of(config, made.n_ubatch))
    made = replace(made, n_checkpoint=n_checkpoint)
    if file.architecture in ONE_SEQUENCE:
        made = replace(made, reason=joined(made.reason, text("engine.one_sequence")))
    if machine.is_loaded and before is not None and config.host_bytes == before.config.host_bytes:
        same = replace(made, host=before.host)
        if same.step_from(before) is Step.NOTHING:  # keep an existing host store
            return same
    return made


def _granted(
    file: ModelFile, wanted: EnginePlan, machine: MachineState, n_guess_slot: int
) -> EnginePlan:
    """Grant what fits. n_guess_slot: slots of the layer that guesses tokens, if there is one."""
    if wanted.predicts:
        taken_bytes = _prediction_bytes(file, wanted.settings, n_guess_slot)
        machine = replace(machine, free_bytes=machine.free_bytes - taken_bytes)
    made = wanted
    if machine.devices:
        made = _on_devices(file, made, machine)
    if made.devices is None:
        made = _in_memory(file, made, machine)
    return made if made.is_plain else _with_slow_tier(file, made, machine)


def _predicting(
    file: ModelFile, settings: EngineConfig, method: Method, machine: MachineState
) -> tuple[bool, str]:
    """Return EnginePlan.predicts and draft_remark."""
    if settings.drafts == "off" or not file.n_layer_nextn:
        return False, ""
    reason = file.why_no_guess
    if not reason and file.architecture in GOES_BACK and not settings.n_back:
        if settings.setup.kv_on_drive:
            reason = text("draft.in_memory_only")
        elif not settings.holds or file.architecture in CACHE_FOR_EACH:
            reason = text("draft.not_alone")
    if reason:
        return False, text("draft.layer_not_used", file=file.path.name, reason=reason)
    if machine.layer_refused:
        return False, machine.layer_refused
    if machine.devices:
        return False, text("draft.layer_on_device")
    kv = KvCache(settings.kv_type)
    least = plan(file, slots(file, 0.0), settings.context_length, 0, kv)
    taken_bytes = _prediction_bytes(file, settings, _asked_slots(file, settings, method))
    missing = least.total_bytes + taken_bytes - machine.free_bytes
    if missing > 0:
        return False, text("draft.layer_too_large", missing=missing)
    return True, ""


def _asked_slots(file: ModelFile, settings: EngineConfig, method: Method) -> int:
    """Return the experts of a layer in memory that the settings ask for."""
    return file.n_expert if method.kind == "stock" else slots(file, settings.cache_rate)


def _prediction_bytes(file: ModelFile, settings: EngineConfig, n_slot: int) -> int:
    """Return what the layer that guesses takes with n_slot of its experts."""
    n_ubatch = min(settings.setup.n_ubatch or N_UBATCH, settings.context_length)
    return prediction_bytes(file, settings.context_length, n_ubatch, settings.kv_type, n_slot)


def _overridden(file: ModelFile, config: EngineConfig, on_devices: int, free_bytes: int) -> str:
    """Return EnginePlan.overridden. It names no automatic cache rate where devices compute."""
    by_hand = config.by_hand if config.automatic else BY_HAND
    free = automatic(file, replace(config, by_hand=()), on_devices or free_bytes)
    said = []
    if "cache_rate" in by_hand and file.is_moe and not on_devices:
        n_ubatch = min(N_UBATCH, free.context_length)
        kv = KvCache(config.kv_type, n_ubatch=n_ubatch)
        best = plan(file, file.n_expert, free.context_length, free_bytes, kv)
        n_slot = best.n_slot_min if best.best_n_slot is None else best.best_n_slot
        if n_slot != slots(file, config.cache_rate):
            rate = rate_of(n_slot, file.n_expert)
            said.append(text("memory.rate_by_hand", rate=config.cache_rate, automatic=rate))
    n = _held(min(config.context_length, _longest(file, config)))
    if "context_length" in by_hand and n != free.context_length:
        would_be = free.context_length
        said.append(text("memory.context_by_hand", n=n, automatic=would_be))
    if "method" in by_hand and config.method != free.method:
        said.append(text("memory.method_by_hand", method=config.method))
    return joined(*said)


def _resolved(
    file: ModelFile, config: EngineConfig, n_thread: int, n_thread_max: int
) -> EngineConfig:
    """Return EnginePlan.settings. n_thread: the number where the settings have none."""
    token_bytes = file.token_dense_bytes + file.token_expert_bytes
    return replace(
        config,
        context_length=min(config.context_length, _longest(file, config)),
        n_thread=min(config.n_thread or useful_threads(token_bytes, n_thread), n_thread_max),
    )


def _longest(file: ModelFile, config: EngineConfig) -> int:
    """Return the tokens of all conversations where each has as many as the model knows."""
    return (file.context_length or config.context_length) * config.setup.n_sequence


def _held(n_token: int) -> int:
    """Return the tokens that a context holds: llama.cpp rounds up to multiples of 256."""
    return -(-n_token // _CONTEXT_STEP) * _CONTEXT_STEP


def _on_devices(file: ModelFile, made: EnginePlan, machine: MachineState) -> EnginePlan:
    """Place layers on devices. The plan's devices stay None where not one layer fits."""
    config, method, devices = made.config, made.method, machine.devices
    wish = Wish(
        n_slot=slots(file, config.cache_rate),
        n_context=made.n_context,
        n_ubatch=made.n_ubatch or min(config.setup.n_ubatch, made.n_context),
        kv=KvCache.of(config, N_UBATCH),
        limit_bytes=config.setup.device_bytes,
        may_shorten=(
            config.automatic and "context_length" not in config.by_hand and not made.n_ubatch
        ),
        whole=method.kind == "stock",
        stages=method.stages,
    )
    found = plan_devices(file, devices, wish, machine.measure)
    placed = joined(*found.sentences)
    if not found.n_gpu_layers:
        return replace(made, reason=placed)
    host = HostPlan()
    if found.n_slot < file.n_expert:
        sizes: Mapping[str, int] = {}
        if machine.measure is not None:
            sizes = machine.measure(found.placement, found.n_context, found.n_ubatch, True)
        there = {device.memory for device in devices}
        elsewhere = sum(n for memory, n in sizes.items() if memory not in there)
        host = plan_host(
            file, found, machine.free_bytes, config.host_bytes, wish.kv, elsewhere,
        )  # fmt: skip
    made = replace(
        made,
        n_context=found.n_context,
        n_ubatch=found.n_ubatch,
        n_slot=found.n_slot,
        n_slot_most=found.n_slot,
        devices=found,
        host=host,
        headroom_bytes=host.headroom_bytes if host.bytes or host.cpu_bytes else None,
        reason=joined(placed, host.sentence),
    )
    return _with_mode(file, made, machine)


def _in_memory(file: ModelFile, made: EnginePlan, machine: MachineState) -> EnginePlan:
    """Grant what fits into this machine's memory. Experts come before a larger n_ubatch."""
    config, method, n_context = made.config, made.method, made.n_context
    is_stock, n_slot = method.kind == "stock", slots(file, config.cache_rate)
    least_ubatch = made.n_ubatch or min(config.setup.n_ubatch or N_UBATCH, n_context)

    kv = KvCache.of(config, least_ubatch)

    def planned(n_slot: int) -> MemoryPlan:
        return plan(file, n_slot, n_context, machine.free_bytes, kv)

    wanted, why_fewer, faster = planned(n_slot), "", ""
    least_bytes = planned(wanted.n_slot_min).total_bytes
    mapped = not is_stock and file.is_moe and least_bytes > machine.free_bytes
    if not is_stock and file.is_moe and not wanted.fits:
        n_slot = wanted.n_slot_min if wanted.best_n_slot is None else wanted.best_n_slot
        why_fewer = text(
            "memory.fewer_slots",
            free=machine.free_bytes,
            n=n_slot,
            all=file.n_expert,
            wanted=wanted.n_slot,
        )
    if mapped:  # otherwise the system would kill this process
        why_mapped = text(
            "memory.mapped", dense=file.dense_bytes, missing=least_bytes - machine.free_bytes
        )
        why_fewer = joined(why_fewer, why_mapped)
    n_ubatch = least_ubatch
    if not made.n_ubatch and not config.setup.n_ubatch:
        n_ubatch, _ = largest_ubatch(file, planned(n_slot), n_context, kv)
    if method.adaptive:
        faster = prefers_stock(file, n_slot, machine.free_bytes)
    made = replace(
        made,
        n_ubatch=n_ubatch,
        n_slot=n_slot,
        mapped=mapped,
        window_bytes=_window_bytes(
            file, planned(n_slot), mapped=mapped, kv_on_drive=config.setup.kv_on_drive
        ),
        n_slot_most=n_slot if config.automatic and not config.by_hand else wanted.n_slot,
        headroom_bytes=None if is_stock else wanted.headroom_bytes,
    )
    return _with_mode(file, made, machine, why_fewer, faster)


def _window_bytes(file: ModelFile, made: MemoryPlan, *, mapped: bool, kv_on_drive: bool) -> int:
    """Return EnginePlan.window_bytes: RAM that `made` leaves, or plans for layers and KV cache."""
    left_bytes = made.available_bytes - made.total_bytes
    if mapped:
        left_bytes += round(file.layer_dense_bytes * file.n_layer)
    else:
        left_bytes -= made.headroom_bytes
    return max(left_bytes + (made.kv_bytes if kv_on_drive else 0), 0)


def _with_mode(
    file: ModelFile,
    made: EnginePlan,
    machine: MachineState,
    why_fewer: str = "",
    stock_is_faster: str = "",
) -> EnginePlan:
    """Decide whether llama.cpp runs patched, and say why.

    made.reason: the sentences of the devices. why_fewer: why fewer experts fit than asked for.
    """
    is_stock = made.method.kind == "stock"
    refused = machine.refused or ("" if file.is_moe else text("memory.dense"))
    if not (refused or is_stock or stock_is_faster or made.n_slot >= file.n_expert):
        return replace(made, reason=why_fewer or made.reason)
    why = refused or (made.method.sentence if is_stock else stock_is_faster)
    return replace(
        made,
        mode="plain",
        mapped=False,
        window_bytes=0,
        n_slot=file.n_expert,
        n_slot_min=file.n_expert if refused or is_stock else made.n_slot_min,
        reason=joined(why, made.reason),
    )


def _with_slow_tier(file: ModelFile, made: EnginePlan, machine: MachineState) -> EnginePlan:
    """Choose the source of the experts. A source in use stays in use."""
    config, before = made.config, machine.before
    if (
        machine.is_loaded
        and before is not None
        and not before.is_plain
        and before.config.pack == config.pack
    ):
        tier = before.tier
    else:
        tier = machine.slow_tier(config)
    settings = _resolved(file, config, tier.n_thread or machine.n_thread, machine.n_thread_max)
    return replace(made, tier=tier, settings=settings)


def held_bytes(file: ModelFile, made: EnginePlan, n_slot: int) -> int:
    """Return the bytes of RAM that a loaded model with n_slot experts per layer would give back.

    Return 0 for a model on devices, whose memory holds nearly all of it. The experts in RAM are
    not counted, nor are mapped weights, which count as free.
    """
    if made.devices is not None:
        return 0
    n_slot = file.n_expert if made.is_plain else n_slot
    held = plan(file, n_slot, made.n_context, 0, KvCache.of(made.config, made.n_ubatch))
    held_bytes = held.total_bytes - held.process_bytes
    if made.predicts:
        held_bytes += _prediction_bytes(file, made.settings, n_slot)
    return held_bytes - (file.dense_bytes if made.mapped else 0)
