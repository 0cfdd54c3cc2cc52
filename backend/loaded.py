"""A loaded model, with what its cache rate and method ask for: plain llama.cpp, or a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend import cells
from backend.auto_trial import Window
from backend.automatic import automatic
from backend.config import EngineConfig
from backend.engine_error import EngineError, engine_errors
from backend.facts import CacheFacts
from backend.gguf_file import ModelFile
from backend.grant import Grant, grant, held_bytes
from backend.machines.drive import Drive, drive_of, in_whole_blocks
from backend.machines.threads import compute_threads, useful_threads
from backend.memory_watch import Cache, MemoryWatch
from backend.methods import METHODS, Method
from backend.pack_file import Pack, find
from backend.plan import slots
from backend.study import NO_STUDY, Study
from backend.system.memory import available_bytes, physical_cores, rss_bytes

if TYPE_CHECKING:
    from backend.adapter import Adapter

Progress = Callable[[float, str], bool]


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
        self.method: Method
        self._study = study
        self.stop_flag = _native.StopFlag()
        self.file = file
        self.learned, self._remark = load_learned(file)  # a remark on weights that are not used
        self.remark = self._remark  # on whatever is not used
        self._pack: Pack | None = None
        self._drive = Drive()
        self._n_measured = 0  # threads that compute fastest, once that is known
        self._cached: Any = None
        self._adapter: Adapter | None = None
        self._granted: Grant
        self._even: Any = None  # the layout as if all layers had the same memory
        self._memory: MemoryWatch | None = None
        self._empty_rss_bytes = 0  # of this process when the slots were new
        self._most_slots = 0  # that memory has permitted
        self._refused = ""  # why this model cannot be cached at all
        self._take(self._resolve(config, available_bytes()))
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

    def residency(self) -> bytes:
        """One cell (backend.cells) per MoE layer and expert; all resident without a cache."""
        if (patch := self.patch) is not None:
            return bytes(patch.snapshot())
        return bytes([cells.RESIDENT]) * (self.file.n_moe_layer * self.file.n_expert)

    def close(self) -> None:
        """Free the model. Twice is fine."""
        if self.template is not None:
            self.template.close()
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
        before, granted, context = self.config, self._granted, self.context
        with engine_errors():
            if self.llama is not None:
                self.llama.files.require_unchanged()  # while all is still in place
            free_bytes = self._free_bytes()
            self._take(self._resolve(config, free_bytes))
            try:
                self._change(before, free_bytes)
            except Exception:
                self._take(before)
                self._granted = granted
                if self.context is not context:
                    self.close()
                    self._load(before.cache_rate, None)
                elif self._cached is not None:
                    self._configure(self.cache.asked_rate, self.cache.rate, self.cache.reason)
                raise

    def _change(self, before: EngineConfig, free_bytes: int) -> None:
        """Bring what was taken into force."""
        config, rate = self.config, self.config.cache_rate
        other_context = self._context_settings(config) != self._context_settings(before)
        placement, host = self.on_device.placement, self.on_device.host
        self._ask(free_bytes, new_context=other_context)
        is_plain = bool(self._refused) or self._is_plain()
        other_pack = not is_plain and config.pack != before.pack
        moved = self.on_device.placement != placement
        if is_plain != (self._cached is None) or other_pack or moved:
            self.close()
            self._load(rate, None)
            return
        if is_plain:
            self.cache = self._plain_facts(rate)
        elif not other_context and self._is_in_force(before):
            self.on_device.host = host
            self.cache = self._facts(rate, self._granted.reason)
        else:
            self._configure(rate, self._granted.rate, self._granted.reason)
        self._most_slots = self.cache.n_slot
        if other_context:
            self.context.close()
            self.context = None
            self._make_context()

    def _is_in_force(self, before: EngineConfig) -> bool:
        """Whether the cache is already what is asked for, and need not be emptied."""
        config = self.config
        same = config.method == before.method and config.pack == before.pack
        same = same and config.hybrid == before.hybrid
        same = same and config.host_bytes == before.host_bytes
        return same and slots(self.file, self._granted.rate) == self.cache.n_slot

    def _resolve(self, config: EngineConfig, free_bytes: int) -> EngineConfig:
        """Where memory is to decide, return what it decides."""
        self.on_device.take(config.device)
        if not config.automatic:
            return config
        device_bytes = self.on_device.usable_bytes(config.device_bytes)
        resolved = automatic(self.file, config, device_bytes or free_bytes)
        if self.context is not None and self.config.automatic:  # a conversation is in it
            resolved = replace(resolved, context_length=self.config.context_length)
        return resolved

    def _take(self, config: EngineConfig) -> None:
        """Note what is asked for."""
        self.on_device.take(config.device)
        self.config = config
        if self._adapter is not None and config.method != self.method.name:
            self._adapter = None
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
        n_thread = config.n_thread or useful_threads(
            self.file.token_dense_bytes + self.file.token_expert_bytes,
            self._n_measured or physical_cores(),
        )
        return n_context, n_thread, config.n_ubatch, config.kv_type

    def _free_bytes(self) -> int:
        """What may be taken: what this model holds already is given back before."""
        if self.llama is None:
            return available_bytes()
        rate, n_ubatch = self.cache.rate, self._granted.n_ubatch
        held = held_bytes(self.file, self.config, self.on_device, self._n_context, rate, n_ubatch)
        if self.patch is not None:
            stored = int(self.patch.host_held_bytes)
            grown_bytes = max(rss_bytes() - self._empty_rss_bytes - stored, 0)
            held += stored + min(self.on_device.host.cpu_bytes, grown_bytes)
        return available_bytes() + held

    def _ask(self, free_bytes: int, *, new_context: bool) -> None:
        """Have memory grant what is asked for, or less."""
        kept = 0 if new_context else self._granted.n_ubatch
        n_context = self._n_context if new_context else self._granted.n_context
        self._granted = grant(
            self.file, self.config, self.method, self.on_device, n_context, free_bytes, kept
        )
        self._n_context = self._granted.n_context
        headroom_bytes = self._granted.headroom_bytes
        self._memory = None if headroom_bytes is None else MemoryWatch(headroom_bytes)

    def _is_plain(self) -> bool:
        """Whether llama.cpp runs unpatched with what was granted."""
        stock = self.method.kind == "stock" or bool(self._granted.stock_is_faster)
        return not self.file.is_moe or self._granted.rate >= 1.0 or stock

    def mind_memory(self) -> bool:
        """Give memory back where it is short, or take it again; True: the cache is another one."""
        if self._cached is None:
            return False
        facts, n_expert, least = self.cache, self.file.n_expert, slots(self.file, 0.0)
        if self.on_device.plan is not None:
            n_slot = self.on_device.give_back(least)
            asked = facts.n_slot
            why = "Other programs need the device's memory"
            kept = "experts of each layer are kept there instead of"
            if n_slot is None and (reason := self.on_device.give_back_ram(self._memory)):
                self._configure(facts.asked_rate, facts.rate, reason)
                return True
        else:
            most = self._most_slots if self.config.automatic else slots(self.file, facts.asked_rate)
            asked = max(most, facts.n_slot)
            why, kept = "Other programs need memory", "experts of each layer are kept instead of"

            def cache_now() -> Cache:
                slot_bytes = sum(self.file.expert_bytes_per_layer().values())
                return Cache(facts.n_slot, least, asked, slot_bytes, self._untouched_bytes())

            n_slot = None if self._memory is None else self._memory.look(cache_now)
        if n_slot is None:
            return False
        reason = ""
        if n_slot < asked:
            reason = f"{why}: {n_slot} of {n_expert} {kept} {asked}."
        self._configure(facts.asked_rate, n_slot / n_expert, reason)
        if self.cache.n_slot == facts.n_slot:  # a method whose cache has one size
            self._memory = None
        return True

    def _untouched_bytes(self) -> int:
        """Of the slots, what the system has not given any memory to yet."""
        grown_bytes = rss_bytes() - self._empty_rss_bytes
        return max(self.cache.bytes - max(grown_bytes, 0), 0) if self._empty_rss_bytes else 0

    def _load(self, rate: float, progress: Progress | None) -> None:
        from backend import llama, loading
        from backend.chat_template import ChatTemplate

        def on_progress(fraction: float) -> bool:
            return progress is None or progress(fraction, "Reading the weights")

        llama.log.listen(echo=bool(os.environ.get("OUTRIDER_DEBUG")))
        self._refused = "" if self.file.is_moe else "A dense model has no experts to cache."
        self._ask(self._free_bytes(), new_context=True)
        if not self._is_plain():
            self._pack, remark = find(self.file) if self.config.pack else (None, "")
            slow_tier = self._pack.path if self._pack else self.file.paths[0]
            matrices = (t.matrix_bytes for ts in self.file.expert_tensors.values() for t in ts)
            by_queue = self._pack is not None or in_whole_blocks(matrices)
            self._drive = drive_of(slow_tier, ring=by_queue)
            if not self.config.n_thread:
                self._n_measured = compute_threads(slow_tier, self._drive, ring=by_queue)
                self._n_thread = self._context_settings(self.config)[1]
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
            self._configure(rate, self._granted.rate, self._granted.reason)
            self._most_slots = self.cache.n_slot
        self.template = ChatTemplate(self.llama, self.file)
        self._make_context()

    def _make_context(self) -> None:
        from backend import llama

        hook = self.patch or self._study.forced  # what hears of llama.cpp's nodes
        self.context = llama.Context(
            self.llama,
            n_context=self._n_context,
            n_ubatch=self._granted.n_ubatch,
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
        why = self.method.sentence if is_stock else self._granted.stock_is_faster
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

    def _configure(self, rate: float, granted: float, reason: str) -> None:
        from backend.adapter import Adapter
        from backend.compose import layout

        patch = self.patch
        if self._adapter is None:
            predicts = self._predictor() is not None
            self._adapter = Adapter(self.method, patch.shape, predicts=predicts)
        patch.set_statistics(self._adapter.statistics)
        self.lay_out(layout(self.method, patch.shape, granted))
        self._empty_rss_bytes = rss_bytes()
        self.cache = self._facts(rate, reason)
        self.on_device.note_slots(self.cache.rate)
        why = f"The cache rate is {100 * self.cache.rate:.0f} %"
        self._adapter.attend(patch, self.cache.n_slot, why)

    def observe(self, token: Window, wave_s: float) -> str:
        """Hear what a decoded token cost; returns what an adaptive method decided, or ""."""
        if self._adapter is None or self.patch is None:
            return ""
        return self._adapter.hear(token, wave_s)

    def idle(self) -> bool:
        """Do what only an engine may that nobody waits for; True if the cache was laid out anew."""
        patch = self.patch
        if self._adapter is None or patch is None:
            return False
        layout = self._adapter.new_layout(self._even.bytes(patch.shape))
        if layout is None:
            return False
        self.lay_out(layout)
        self.cache = self._facts(self.cache.asked_rate, self.cache.reason)
        return True

    def lay_out(self, layout: Any) -> None:
        """Make the cache anew, empty, in a backend._native.Layout. Raises EngineError.

        The CPU's layers beside a device get what RAM has room for, and prompts their stage.
        """
        from backend import _native

        patch, n_stage = self.patch, self._granted.n_stage
        self._even = layout
        layout = self.on_device.stretched(layout, patch.shape, patch.layers)
        if n_stage and self.method.stages:
            layout = layout.staged(patch.shape, n_stage)
        options = _native.PatchOptions(
            n_thread=self._n_thread,
            n_transfer_thread=self._drive.n_read,
            joined_bytes=self._drive.read_bytes,
            max_token=self._granted.n_ubatch,
            link_bytes_per_s=self._study.link_bytes_per_s,
            repack=self._cached.repacked,
            host_bytes=self.on_device.host.bytes,
        )
        try:
            patch.configure(layout, self._composition(), options)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"{error}.") from None

    def _composition(self) -> Any:
        from backend.compose import composition

        patch = self.patch
        has_routers = patch.n_embd > 0
        return composition(
            self.method,
            patch.shape,
            self.learned,
            has_routers=has_routers,
            hybrid=self.config.hybrid,
        )

    def _predictor(self) -> Any:
        """What forecasts the experts, as a backend.parts.Part; None: nothing does."""
        from backend.compose import predictor_of

        return predictor_of(self.method, self.learned, has_routers=self.patch.n_embd > 0)

    def _facts(self, rate: float, reason: str) -> CacheFacts:
        from backend.compose import predictor_text, share_of

        patch = self.patch
        shape = patch.shape
        share = share_of(self._even, shape)
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
            predictor=predictor_text(self._predictor()),
            remark=self.remark,
            asked_method=self.method.name,
            n_thread=self._n_thread,
            kv_type=self.config.kv_type,
            device=self.on_device.names,
            hybrid=self.config.hybrid if self.patch.host_speeds() else "off",
            host_bytes=patch.host_bytes,
            cpu_bytes=self.on_device.host.cpu_bytes,
            ram_dense_bytes=self.on_device.host.dense_bytes,
            pack=str(self._pack.path) if self._pack else "",
            layout="repacked" if self._cached.repacked else "file",
        )
