"""A loaded model, with what its cache rate and method ask for: plain llama.cpp, or a cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from backend.auto import Auto, Decision, prefers_stock
from backend.auto_trial import Window
from backend.auto_work import WorkMeter
from backend.automatic import automatic
from backend.config import EngineConfig
from backend.devices import DeviceError
from backend.facts import CacheFacts
from backend.gguf_file import ModelFile
from backend.machines.drive import Drive, drive_of, in_whole_blocks
from backend.memory_watch import Cache, MemoryWatch
from backend.methods import METHODS
from backend.pack_file import Pack, find
from backend.plan import N_UBATCH, MemoryPlan, largest_ubatch, plan, slots, why_no_kv_type
from backend.study import NO_STUDY, Study
from backend.system.memory import available_bytes, physical_cores

N_TRANSFER_THREAD = 4
"""Threads that read experts. They wait for the drive nearly all the time."""

Progress = Callable[[float, str], bool]


class EngineError(RuntimeError):
    """Something that the user should know; the text is one plain sentence."""


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """llama.cpp's errors as the engine's."""
    from backend.llama import LlamaError

    try:
        yield
    except (LlamaError, DeviceError) as error:
        raise EngineError(str(error)) from None


class LoadedModel:
    """llama.cpp's model and context, and the patch where experts are cached.

    `llama`, `context`, `template` and `cache` are what is in force. Use from one thread;
    `patch` from any.
    """

    def __init__(
        self,
        file: ModelFile,
        config: EngineConfig,
        progress: Progress | None,
        study: Study = NO_STUDY,
    ) -> None:
        from backend import _native
        from backend.learned import load as load_learned
        from backend.on_device import OnDevice

        self.on_device = OnDevice()
        self.llama: Any = None
        self.context: Any = None
        self.template: Any = None
        self.cache: CacheFacts
        self._study = study
        self.stop_flag = _native.StopFlag()
        self.file = file
        self.learned, self._remark = load_learned(file)  # a remark on weights that are not used
        self.remark = self._remark  # on whatever is not used
        self._pack: Pack | None = None
        self._drive = Drive()
        self._cached: Any = None
        self._auto: Auto | None = None
        self._work: WorkMeter | None = None
        self._configurator: Any = None
        self._take(self._resolve(config, available_bytes()))
        self._memory: MemoryWatch | None = None
        self._most_slots = 0  # that memory has permitted
        self._n_ubatch = 0  # not chosen yet
        self.why_ubatch = ""  # why so many tokens of a prompt are computed at once
        self._refused = ""  # why this model cannot be cached at all
        self._stock_is_faster = ""  # why an adaptive method leaves llama.cpp unpatched
        try:
            self._load(self.config.cache_rate, progress)
        except BaseException:
            self.close()
            raise

    @property
    def patch(self) -> Any:
        """The backend._native.Patch, or None where llama.cpp runs unpatched."""
        cached = self._cached  # another thread may be closing it
        return cached.patch if cached is not None else None

    @property
    def n_context(self) -> int:
        """Tokens of conversation that are kept."""
        return int(self.context.n_context)

    def close(self) -> None:
        """Free the model. Twice is fine."""
        if self.context is not None:
            self.context.close()
            self.context = None
        if self._cached is not None:
            self._cached.close()
            self._cached = None
        elif self.llama is not None:
            self.llama.close()
        self.llama = None

    def change(self, config: EngineConfig) -> None:
        """Take other settings between answers; where that fails, keep those before and raise.

        Another cache rate or method is another, empty cache; another context or number of threads
        is another `context`. The weights are read again only where llama.cpp is to run patched
        after it ran unpatched, or the other way round.
        """
        before, context = self.config, self.context
        with engine_errors():
            free_bytes = self._free_bytes()
            self._take(self._resolve(config, free_bytes))
            try:
                self._change(before, free_bytes)
            except Exception:
                self._take(before)
                if self.context is not context:
                    self.close()
                    self._load(before.cache_rate, None)
                elif self._cached is not None:
                    self._configure(self.cache.asked_rate, self.cache.rate, self.cache.reason)
                raise

    def _change(self, before: EngineConfig, free_bytes: int) -> None:
        """Bring what was taken into force."""
        config, rate = self.config, self.config.cache_rate
        if config.method != before.method:
            self._auto = self._configurator = None
            self._stock_is_faster = ""
        other_context = self._context_settings(config) != self._context_settings(before)
        if other_context:
            self._n_ubatch = 0
        placement = self.on_device.placement
        granted, reason = self._grant(rate, free_bytes)
        self._note_stock(granted, free_bytes)
        self._choose_ubatch(granted, free_bytes)
        is_plain = bool(self._refused) or self._is_plain(granted)
        other_pack = not is_plain and config.pack != before.pack
        moved = self.on_device.placement != placement
        if is_plain != (self._cached is None) or other_pack or moved:
            self.close()
            self._load(rate, None)
            return
        if is_plain:
            self.cache = self._plain_facts(rate)
        elif not other_context and self._is_in_force(before, granted):
            self.cache = self._facts(rate, reason)
        else:
            self._configure(rate, granted, reason)
        self._most_slots = self.cache.n_slot
        if other_context:
            self.context.close()
            self.context = None
            self._make_context()

    def _is_in_force(self, before: EngineConfig, granted: float) -> bool:
        """Whether the cache is already what is asked for, and need not be emptied."""
        same = self.config.method == before.method and self.config.pack == before.pack
        return same and slots(self.file, granted) == self.cache.n_slot

    def _resolve(self, config: EngineConfig, free_bytes: int) -> EngineConfig:
        """Where memory is to decide, return what it decides."""
        if not config.automatic:
            return config
        resolved = automatic(self.file, config, free_bytes)
        if self.context is not None and self.config.automatic:  # a conversation is in it
            resolved = replace(resolved, context_length=self.config.context_length)
        return resolved

    def _take(self, config: EngineConfig) -> None:
        """Note what is asked for."""
        self.on_device.take(config.device)
        self.config = config
        self.method = METHODS[config.method]
        study = self._study
        if study.accuracy is not None:
            from backend.compose import with_accuracy

            self.method = with_accuracy(self.method, study.accuracy, lookahead=study.lookahead)
        self._n_context, self._n_thread, *_ = self._context_settings(config)

    def _context_settings(self, config: EngineConfig) -> tuple[int, int, int, str]:
        """What another llama_context has to be made for: tokens, threads, ubatch, kv_type.

        More tokens than the model was trained for are beyond what it can make sense of.
        """
        trained = self.file.context_length or config.context_length
        n_context = min(config.context_length, trained)
        n_thread = config.n_thread or physical_cores()
        return n_context, n_thread, config.n_ubatch, config.kv_type

    def _free_bytes(self) -> int:
        """What may be taken: what this model holds already is given back before."""
        return available_bytes() + self._held_bytes()

    def mind_memory(self) -> bool:
        """Give memory back where it is short, or take it again; True: the cache is another one."""
        if self._cached is not None and self.on_device.plan is not None:
            n_slot = self.on_device.give_back(slots(self.file, 0.0))
            return n_slot is not None and self._give_device_memory(n_slot)
        if self._cached is None or self._memory is None:
            return False
        file, facts = self.file, self.cache
        asked = self._most_slots if self.config.automatic else slots(file, facts.asked_rate)
        slot_bytes = sum(file.expert_bytes_per_layer().values())
        n_slot = self._memory.look(
            Cache(facts.n_slot, slots(file, 0.0), max(asked, facts.n_slot), slot_bytes)
        )
        if n_slot is None:
            return False
        reason = ""
        if n_slot < asked:
            reason = (
                f"Other programs need memory: {n_slot} of {file.n_expert} experts of each layer "
                f"are kept instead of {asked}."
            )
        self._configure(facts.asked_rate, n_slot / file.n_expert, reason)
        if self.cache.n_slot == facts.n_slot:  # a method whose cache has one size
            self._memory = None
        return True

    def _give_device_memory(self, n_slot: int) -> bool:
        """Keep so many experts of each layer; the layers stay where they are."""
        facts, n_expert = self.cache, self.file.n_expert
        reason = (
            f"Other programs need the device's memory: {n_slot} of {n_expert} experts of each "
            f"layer are kept there instead of {facts.n_slot}."
        )
        self._configure(facts.asked_rate, n_slot / n_expert, reason)
        return self.cache.n_slot != facts.n_slot

    def _note_stock(self, granted: float, free_bytes: int) -> None:
        """Let an adaptive method say whether llama.cpp had better run unpatched."""
        if self.method.adaptive and self.on_device.plan is None:
            sizes = self.file.file_size_bytes, self.file.expert_bytes_total
            self._stock_is_faster = prefers_stock(*sizes, free_bytes, granted)

    def _is_plain(self, rate: float) -> bool:
        stock = self.method.kind == "stock" or bool(self._stock_is_faster)
        return not self.file.is_moe or rate >= 1.0 or stock

    def _load(self, rate: float, progress: Progress | None) -> None:
        from backend import llama, loading
        from backend.chat_template import ChatTemplate

        def on_progress(fraction: float) -> bool:
            return progress is None or progress(fraction, "Reading the weights")

        llama.log.listen(echo=bool(os.environ.get("OUTRIDER_DEBUG")))
        self._refused = "" if self.file.is_moe else "A dense model has no experts to cache."
        free_bytes = self._free_bytes()
        self._n_ubatch = 0
        granted, reason = self._grant(rate, free_bytes)
        self._note_stock(granted, free_bytes)
        self._choose_ubatch(granted, free_bytes)
        if not self._is_plain(granted):
            self._pack, remark = find(self.file) if self.config.pack else (None, "")
            slow_tier = self._pack.path if self._pack else self.file.paths[0]
            matrices = (t.matrix_bytes for ts in self.file.expert_tensors.values() for t in ts)
            by_queue = self._pack is not None or in_whole_blocks(matrices)
            self._drive = drive_of(slow_tier, ring=by_queue)
            self.remark = " ".join(filter(None, [self._remark, remark]))
            try:
                self._cached = loading.CachedModel(
                    self.file,
                    n_thread=self._n_thread,
                    progress=on_progress,
                    pack=self._pack,
                    placement=self.on_device.placement,
                )
                self.llama = self._cached.model
                self.patch.set_future(self._study.future)
                self.patch.force(self._study.forced)
            except loading.NotCacheable as error:
                self._refused = str(error)
        if self._cached is None:
            self._load_plain(rate, on_progress)
        else:
            self._configure(rate, granted, reason)
            self._most_slots = self.cache.n_slot
        self.template = ChatTemplate(self.llama, self.file.chat_template)
        self._make_context()

    def _make_context(self) -> None:
        from backend import llama

        hook = self.patch or self._study.forced  # what hears of llama.cpp's nodes
        self.context = llama.Context(
            self.llama,
            n_context=self._n_context,
            n_ubatch=self._n_ubatch,
            n_thread=self._n_thread,
            callback=hook.callback if hook else None,
            user_data=hook.user_data if hook else None,
            stop_flag=None if self._cached else self.stop_flag,  # the patch stops by itself
            n_output=0 if self.config.keeps_outputs else 1,
            kv_type=self.config.kv_type,
        )

    def _load_plain(self, rate: float, progress: Callable[[float], bool]) -> None:
        from backend import loading

        # Repacked weights are memory; pages of the file can be dropped and read again.
        fits = self.file.file_size_bytes < available_bytes()
        self.llama = loading.load_plain(
            self.file, progress, repack=fits, placement=self.on_device.placement
        )
        self.cache = self._plain_facts(rate)

    def _plain_facts(self, rate: float) -> CacheFacts:
        is_stock = self.method.kind == "stock"
        why = self.method.sentence if is_stock else self._stock_is_faster
        return CacheFacts(
            asked_rate=rate,
            rate=1.0,
            min_rate=1.0 if self._refused or is_stock else self._min_rate(),
            n_slot=self.file.n_expert,
            bytes=self.file.expert_bytes_total,
            mode="plain",
            reason=" ".join(filter(None, [self._refused or why, self.on_device.said])),
            method="stock",
            asked_method=self.method.name,
            n_thread=self._n_thread,
            kv_type=self.config.kv_type,
            device=self.on_device.names,
        )

    def _min_rate(self) -> float:
        return self.file.n_expert_used / self.file.n_expert if self.file.n_expert else 1.0

    def _grant(self, rate: float, free_bytes: int) -> tuple[float, str]:
        """The rate that memory permits, and why it is not the one asked for.

        With a device: the rate that its memory permits, and what is where.
        """
        self._memory = None
        if why := why_no_kv_type(self.file, self.config.kv_type):
            raise EngineError(why)
        whole = self.method.kind == "stock"
        on_device = self.on_device
        on_device.make_plan(self.file, rate, self._n_context, self.config, whole=whole)
        if on_device.plan is not None:
            return on_device.plan.rate, on_device.said
        if whole:
            return rate, on_device.said
        wanted = self._plan(rate, free_bytes)
        self._memory = MemoryWatch(wanted.headroom_bytes)
        if not self.file.is_moe or wanted.fits:
            return rate, on_device.said
        granted = 0.0 if wanted.best_rate is None else wanted.best_rate
        n_slot = slots(self.file, granted)
        return granted, (
            f"{free_bytes / (1 << 30):.1f} GiB of memory are free: {n_slot} of "
            f"{self.file.n_expert} experts of each layer are kept instead of {wanted.n_slot}."
        )

    def _held_bytes(self) -> int:
        """What this model takes now; it is given back before something is taken."""
        if self.llama is None:
            return 0
        if self.on_device.plan is not None:
            return 0  # nearly all of it is the device's
        n_ubatch = self._n_ubatch or N_UBATCH
        held = plan(self.file, self.cache.rate, self._n_context, 0, n_ubatch, self.config.kv_type)
        return held.total_bytes - held.process_bytes

    def _plan(self, rate: float, free_bytes: int) -> MemoryPlan:
        """Experts go before larger pieces of prompts."""
        n_ubatch = self.config.n_ubatch or self._n_ubatch or min(N_UBATCH, self._n_context)
        return plan(self.file, rate, self._n_context, free_bytes, n_ubatch, self.config.kv_type)

    def _choose_ubatch(self, granted: float, free_bytes: int) -> None:
        """Compute as many tokens of a prompt at once as the memory beside the cache permits."""
        if self.config.n_ubatch or self.on_device.plan is not None:
            self._n_ubatch = min(self.config.n_ubatch or N_UBATCH, self._n_context)
        elif not self._n_ubatch:
            made = self._plan(granted, free_bytes)
            self._n_ubatch, self.why_ubatch = largest_ubatch(self.file, made, self._n_context)

    def _configure(self, rate: float, granted: float, reason: str) -> None:
        from backend.compose import layout
        from backend.configurator import Configurator

        if self.method.configured and self._configurator is None:
            self._configurator = Configurator(self.patch.shape)
        if self._configurator is not None:
            self.patch.set_statistics(self._configurator.statistics)
        self.lay_out(layout(self.method, self.patch.shape, granted))
        self.cache = self._facts(rate, reason)
        if self.method.adaptive:
            self._start_adapting(f"The cache rate is {100 * self.cache.rate:.0f} %")

    def _start_adapting(self, why: str) -> None:
        shape = self.patch.shape
        self._work = WorkMeter(shape.n_layer, shape.n_expert, self.cache.n_slot)
        if self._auto is None:
            from backend.compose import predictor_of

            names = [eviction.name for eviction in self.method.evictions]
            predictor = predictor_of(self.method, self.learned, has_routers=self.patch.n_embd > 0)
            self._auto = Auto(names, max_depth=0 if predictor is None else self.method.depth)
            self._tune(Decision(self._auto.setting, ""))
        else:
            self._tune(self._auto.restart(why))

    def _tune(self, decision: Decision) -> None:
        from backend import _native

        setting = decision.setting
        names = [eviction.name for eviction in self.method.evictions]
        self.patch.tune(
            _native.Tuning(
                setting.prefetch,
                setting.depth,
                setting.min_precision,
                names.index(setting.eviction),
            )
        )

    def observe(self, token: Window, wave_s: float) -> str:
        """Hear what a decoded token cost; returns what an adaptive method decided, or ""."""
        if self._configurator is not None:
            self._configurator.observe(token, wave_s)
        if self._auto is None or self.patch is None:
            return ""
        assert self._work is not None
        decision = self._auto.observe(replace(token, work=self._work.count(self.patch.snapshot())))
        if decision is None:
            return ""
        self._tune(decision)
        return decision.line

    def idle(self) -> bool:
        """Do what only an engine may that nobody waits for; True if the cache was laid out anew."""
        if self._configurator is None or self.patch is None or not self._configurator.is_due:
            return False
        layout = self._configurator.layout(self.patch.layout.bytes(self.patch.shape))
        self.lay_out(layout)
        self.cache = self._facts(self.cache.asked_rate, self.cache.reason)
        return True

    def lay_out(self, layout: Any) -> None:
        """Make the cache anew, empty, in a backend._native.Layout. Raises EngineError."""
        from backend import _native

        patch = self.patch
        options = _native.PatchOptions(
            n_thread=self._n_thread,
            n_transfer_thread=self._drive.n_read,
            joined_bytes=self._drive.read_bytes,
            max_token=self._n_ubatch,
            link_bytes_per_s=self._study.link_bytes_per_s,
            repack=self._cached.repacked,
        )
        try:
            patch.configure(layout, self._composition(), options)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"{error}.") from None

    def _composition(self) -> Any:
        from backend.compose import composition

        patch = self.patch
        has_routers = patch.n_embd > 0
        return composition(self.method, patch.shape, self.learned, has_routers=has_routers)

    def _facts(self, rate: float, reason: str) -> CacheFacts:
        from backend.compose import predictor_of, predictor_text

        patch = self.patch
        shape, layout = patch.shape, patch.layout
        predictor = predictor_of(self.method, self.learned, has_routers=patch.n_embd > 0)
        total_bytes = sum(shape.expert_bytes(n) for n in range(shape.n_layer)) * shape.n_expert
        share = min(1.0, layout.bytes(shape) / total_bytes)
        n_slot = round(share * shape.n_expert)
        exact = n_slot / shape.n_expert
        return CacheFacts(
            asked_rate=rate,
            rate=exact if abs(share - exact) < 1e-9 else share,
            min_rate=shape.n_expert_used / shape.n_expert,
            n_slot=n_slot,
            bytes=patch.slab_bytes,
            mode="cached",
            reason=reason,
            method=self.method.name,
            predictor=predictor_text(predictor),
            remark=self.remark,
            asked_method=self.method.name,
            n_thread=self._n_thread,
            kv_type=self.config.kv_type,
            device=self.on_device.names,
            pack=str(self._pack.path) if self._pack else "",
            layout="repacked" if self._cached.repacked and not layout.any_cut() else "file",
        )
