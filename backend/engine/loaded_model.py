"""A loaded model: bring a plan into force, with plain llama.cpp or an expert cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from backend import _native
from backend.engine import loading
from backend.engine.error import engine_errors, native_sentence
from backend.engine.experiment import NO_EXPERIMENT, Experiment
from backend.engine.expert_cache import ExpertCache, Hook
from backend.engine.observer import Observer
from backend.engine.scheduler import Limits, Scheduler
from backend.engine.weights import Weights
from backend.gguf.model_file import ModelFile
from backend.llama import api as llama
from backend.llama.api import Context, Model
from backend.llama.batch_log import BatchLog
from backend.memory.engine_plan import EnginePlan, Step, held_bytes
from backend.memory.plan import KvCache, kv_bytes
from backend.memory.pressure import Pressure
from backend.methods import cells
from backend.methods.cost import PassCost
from backend.methods.slots import rate_of
from backend.protocol.errors import UntrustedError
from backend.protocol.settings import EngineConfig
from backend.protocol.status import CacheFacts
from backend.system.paths import cache_folder
from backend.text import joined, text

Progress = Callable[[float, str], bool]


class LoadedModel:
    """llama.cpp's model and context, and the expert cache where there is one.

    `plan`: the plan in force, or the last one before a failure; no other object holds it. `cache`:
    its facts for clients. `warnings`: what llama.cpp warned of while it loaded the model and made
    the context. Use from one thread; `patch` from any.
    """

    def __init__(
        self,
        file: ModelFile,
        config: EngineConfig,
        progress: Progress | None,
        experiment: Experiment = NO_EXPERIMENT,
    ) -> None:
        self.file = file
        self.cache: CacheFacts
        self._plan: EnginePlan | None = None
        self._due = Step.RELOAD  # the least step of the next plan: a part is missing or broken
        self.warnings: tuple[str, ...] = ()
        self._context: Context | None = None
        self._scheduler: Scheduler[Any] | None = None  # as long as the context
        self._of_weights: tuple[str, ...] = ()  # warnings, without those of the context
        self.stop_flag = _native.StopFlag()
        self.on_leaving: Callable[[], None] | None = None
        """Called once, before the context is closed."""
        self._experts = ExpertCache(file, experiment)
        self.weights = Weights(file, self._experts)
        self._observer = Observer(file)
        self._pressure: Pressure
        llama.log.listen(echo=bool(os.environ.get("OUTRIDER_DEBUG")))
        self.log = None if experiment.forced else _new_log(file)
        try:
            self._reach(config, progress)
        except BaseException:
            self.close()
            self.end_log()
            raise

    @property
    def plan(self) -> EnginePlan:
        """The plan in force."""
        assert self._plan is not None
        return self._plan

    @property
    def config(self) -> EngineConfig:
        """The settings asked for; in automatic mode, with the values that the plan chose."""
        return self.plan.config

    @property
    def llama(self) -> Model:
        """llama.cpp's model."""
        assert self.weights.llama is not None
        return self.weights.llama

    @property
    def context(self) -> Context:
        """llama.cpp's context."""
        assert self._context is not None
        return self._context

    @property
    def scheduler(self) -> Scheduler[Any]:
        """The scheduler of the requests, which knows what the context holds."""
        assert self._scheduler is not None
        return self._scheduler

    @property
    def has_context(self) -> bool:
        """Whether there is a context. There is none after a failure that could not be mended."""
        return self._context is not None

    @property
    def patch(self) -> _native.Patch | None:
        """The patch, or None where llama.cpp runs unpatched."""
        return self._experts.patch

    @property
    def patches(self) -> list[_native.Patch]:
        """The patches of the model and of its layer for multi-token prediction, if there are."""
        return [p for p in (self._experts.patch, self._experts.layer_patch) if p is not None]

    def residency(self) -> bytes:
        """Return one cell (methods.cells) per MoE layer and expert; all resident if uncached."""
        everything = bytes([cells.RESIDENT]) * (self.file.n_moe_layer * self.file.n_expert)
        return everything if (patch := self.patch) is None else patch.snapshot()

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        self._due = Step.RELOAD
        self._close_context()
        self.weights.close()

    def end_log(self) -> None:
        """Close the batch log, if there is one."""
        if self.log is not None:
            self.log.close()

    def change(self, config: EngineConfig) -> None:
        """Apply other settings between answers. On failure, restore the old ones and raise."""
        with engine_errors():
            if self.weights.llama is not None:
                self.llama.files.require_unchanged()  # before anything is freed
            self._reach(config)

    def reads_states_of(self, plan: EnginePlan) -> bool:
        """Whether this context can continue from tokens that a context of that plan computed.

        Longrope chooses its factors by the length of the context.
        """
        has_factors = any("rope_factors" in tensor.name for tensor in self.file.tensors)
        return not has_factors or plan.n_context == self.plan.n_context

    def rebuild(self, config: EngineConfig) -> bool:
        """Apply settings that change the cache only, between two passes.

        Return False, and change nothing, where they change more. On failure, restore the old ones
        and raise.
        """
        return self._reach(config, most=Step.REBUILD) is Step.REBUILD

    def _reach(
        self, config: EngineConfig, progress: Progress | None = None, most: Step = Step.RELOAD
    ) -> Step | None:
        """Observe, plan and apply, until a plan for these settings is in force. Return its step.

        Applying a plan shows facts for the next one: the memory that is free without the old
        weights, what a device's kernels take, that the model or its layer for multi-token
        prediction cannot be cached. Return None, and change nothing, where a plan takes more than
        `most`. On failure the plan before is in force again. Raises LlamaError and EngineError.
        """
        before, measures = self._plan, True
        try:
            self._observer.reserved_bytes = self.weights.find_others(config)
            while True:
                plan = self._observer.plan(config, self._plan, self._held_bytes())
                step = self._step_to(plan)
                if step > most:
                    return None
                try:
                    if step is Step.RELOAD and self.weights.llama is not None:
                        self.close()  # the memory of its weights was an estimate
                        self._observer.refused = self._observer.layer_refused = ""
                    elif measures and self.weights.llama is None and self._observer.is_new(plan):
                        measures = False
                        self._measure_kernels(plan, progress)
                    else:
                        self._apply(plan, progress)
                        break
                except loading.NotCacheable as error:
                    self._observer.refused = str(error)
                except loading.LayerRefused as error:
                    self._observer.layer_refused = str(error)
        except Exception:
            if before is not None:
                self._observer.reserved_bytes = self.weights.find_others(before.config)
                self._apply(before)
            raise
        self._pressure = Pressure(self.file, self.plan)
        return step

    def _step_to(self, plan: EnginePlan) -> Step:
        """Return the step to a plan from the plan in force, or from the one before a failure."""
        return max(plan.step_from(self._plan), self._due)

    def _apply(self, plan: EnginePlan, progress: Progress | None = None) -> Step:
        """Bring a plan into force. Return the step that this took.

        After a failure the old plan may be broken; the next one to be applied mends that. Raises
        NotCacheable and LayerRefused where another plan may do, LlamaError and EngineError.
        """
        before, is_whole, step = self._plan, self._due is Step.NOTHING, self._step_to(plan)
        keeps = is_whole and before is not None and plan.keeps_cache_of(before)
        self._due = step
        if step is Step.RELOAD:
            self.close()
            self._load(plan, progress)
        elif not plan.is_plain and (step is Step.REBUILD or (step is Step.CONTEXT and not keeps)):
            self._experts.build(plan)
        if step >= Step.CONTEXT:
            self._make_context(plan)
        self.cache = self._facts(plan)
        self._plan, self._due = plan.holding(self.cache.rate), Step.NOTHING
        if self.log is not None:
            self.log.write("rounds", self._experts.rounding)
        return step

    def mind_memory(self) -> bool:
        """Give memory back where it is short, or take it again. Return True after a rebuild."""
        if self.patch is None:
            return False
        plan = self._pressure.look(
            self.plan,
            self.cache.n_slot,
            self._experts.untouched_bytes,
            self._observer.free_on_devices,
        )
        return plan is not None and self._apply(plan) is not Step.NOTHING

    def begin_pass(self, n_answer: int) -> None:
        """Tune for a pass with one token of each of n answers. Call observe() afterwards."""
        self._experts.begin_pass(n_answer)

    def observe(self, token: PassCost, wave_s: float) -> str:
        """Observe the cost of a pass of tokens. Return the adaptive method's decision, or ""."""
        return self._experts.observe(token, wave_s)

    def untouched_bytes(self) -> int:
        """Return the bytes of slots that have no physical pages yet; 0 without a cache."""
        return self._experts.untouched_bytes() if self.patch is not None else 0

    def idle(self) -> None:
        """Run idle-time maintenance. Some methods rebuild their slots."""
        if self._experts.idle(self.plan):
            self.cache = self._facts(self.plan)

    def require_right_experts(self, number: int) -> None:
        """Compare a resident expert, chosen by `number`, with its file.

        Raises UntrustedError if they differ; the cache is then rebuilt, empty. Raises EngineError.
        """
        wrong = self._experts.find_wrong(number)
        if wrong is not None:
            self._experts.build(self.plan, empty=True)
            layer, expert = wrong
            raise UntrustedError(text("engine.wrong_expert", expert=expert, layer=layer))

    def _held_bytes(self) -> int | None:
        """Return the bytes of RAM that another plan may use again; None if nothing is loaded."""
        if self.weights.llama is None:
            return None
        held = held_bytes(self.file, self.plan, self.cache.n_slot)
        return held + (
            self._experts.held_beside_devices(self.plan) if self.patch is not None else 0
        )

    def _load(self, plan: EnginePlan, progress: Progress | None) -> None:
        def on_progress(fraction: float) -> bool:
            return progress is None or progress(fraction, text("engine.stage_weights"))

        llama.log.warnings.clear()
        self.weights.load(plan, on_progress)
        self._of_weights = tuple(llama.log.warnings)
        if self.log is not None:
            self.weights.write_to(self.log, plan)

    def _close_context(self) -> None:
        if self._context is not None:
            if self.on_leaving is not None:
                leaving, self.on_leaving = self.on_leaving, None
                leaving()
            self._experts.computes_in(None)
            self._context.close()
            self._context = self._scheduler = None

    def _make_context(self, plan: EnginePlan) -> None:
        self._close_context()
        llama.log.warnings.clear()
        hook = self._experts.hook
        self._context, kv = _new_context(self.file, self.llama, plan, hook, self.stop_flag)
        self.warnings = tuple(dict.fromkeys((*self._of_weights, *llama.log.warnings)))
        self._experts.computes_in(self.context, kv, plan.window_bytes)
        self._scheduler = Scheduler(limits_of(self.context, plan.config), self.context)
        self.context.write_to(self.log)
        self.weights.attach(self.context, plan)

    def _measure_kernels(self, plan: EnginePlan, progress: Progress | None) -> None:
        """Load with few slots and compute a piece of a prompt, so that kernels take their memory.

        Drivers load kernels and allocate their scratch memory when they first run. How much that
        is stays free from then on.
        """
        self._apply(plan.with_fewest_slots(), progress)
        assert self.plan.devices is not None
        self._experts.compute_once(self.context)
        self._observer.free_on_devices(self.plan.devices)

    def _facts(self, plan: EnginePlan) -> CacheFacts:
        experts, weights = self._experts, self.weights
        remark = joined(experts.remark, experts.memory_remark, plan.tier.remark, weights.remark)
        drafts = weights.drafts(plan, self.context)
        facts = _facts_without_cache(self.file, plan, remark, drafts)
        facts = replace(facts, warnings="\n".join(self.warnings))
        return facts if plan.is_plain else replace(facts, **experts.facts(plan))


def limits_of(
    context: Context, config: EngineConfig, attends: tuple[int, int] = (0, 0), *, keeps: bool = True
) -> Limits:
    """Return the limits of a context. attends, keeps: of the requests (Engine)."""
    return Limits(
        config.setup.n_sequence, context.n_context, context.n_longest, context.n_ubatch,
        context.shares, context.cuts_batches, attends, context.n_output,
        context.n_back, context.holds and config.holds,
        checkpoints=keeps and context.n_checkpoint > 0, keeps=keeps,
    )  # fmt: skip


def _new_log(file: ModelFile) -> BatchLog | None:
    """Return the log that the environment asks for. Raises LlamaError where it cannot be made."""
    try:
        return BatchLog.of_environment(file.path.stem, llama.kernels())
    except OSError as error:
        reason, name = error.strerror or str(error), str(error.filename)
        raise llama.LlamaError(text("file.not_written", file=name, reason=reason)) from None


def _new_context(
    file: ModelFile,
    model: Model,
    plan: EnginePlan,
    hook: Hook | None,
    stop_flag: _native.StopFlag,
) -> tuple[Context, loading.KvPages]:
    """Return a context, and the tensors of its attention cache that are pages of a file."""
    if not plan.config.setup.kv_on_drive:
        return _context_in_memory(model, plan, hook, stop_flag), ()
    # No other buffer that llama.cpp clears is as large as a part of the attention cache.
    all_cells = KvCache(plan.config.kv_type, windows=False)
    n_byte_min = kv_bytes(file, plan.n_context, all_cells) // 8
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise llama.LlamaError(text("file.not_written", file=str(folder), reason=reason)) from None
    drive = _native.KvOnDrive(str(folder), n_byte_min)
    try:
        context = _context_in_memory(model, plan, hook, stop_flag)
    finally:
        drive.close()
    if drive.error:
        context.close()
        raise llama.LlamaError(native_sentence(drive.error))
    return context, drive.tensors()


def _context_in_memory(
    model: Model, plan: EnginePlan, hook: Hook | None, stop_flag: _native.StopFlag
) -> Context:
    config = plan.config
    return llama.Context(
        model,
        n_context=plan.n_context,
        n_ubatch=plan.n_ubatch,
        n_thread=plan.n_thread,
        callback=hook.callback if hook else None,
        user_data=hook.user_data if hook else None,
        stop_flag=stop_flag if plan.is_plain else None,  # the patch stops by itself
        n_output=config.n_output,
        kv_type=config.kv_type,
        n_sequence=config.n_seq_max,
        streams=config.setup.streams,
        n_back=config.n_back,
        n_checkpoint=plan.n_checkpoint,
        windows=config.windows,
    )


def _facts_without_cache(file: ModelFile, plan: EnginePlan, remark: str, drafts: str) -> CacheFacts:
    return CacheFacts.of(
        plan.settings,
        asked_rate=plan.config.cache_rate,
        rate=1.0,
        min_rate=rate_of(plan.n_slot_min, file.n_expert),
        n_slot=file.n_expert,
        bytes=file.expert_bytes_total,
        mode=plan.mode,
        reason=plan.reason,
        overridden=plan.overridden,
        method="stock",
        asked_method=plan.method.name,
        device=plan.device_names,
        hybrid="off",
        drafts=drafts,
        remark=remark,
    )
