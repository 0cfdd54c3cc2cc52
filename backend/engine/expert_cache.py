"""The expert cache of a patched model: build its slots for a plan and a method, and tune it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from backend import _native
from backend.engine import loading
from backend.engine.error import native_sentence
from backend.engine.experiment import Experiment
from backend.engine.learned_settings import Key, LearnedSettings, key_of
from backend.engine.loading import CachedModel
from backend.gguf.model_file import ModelFile
from backend.llama.api import Context, Model, ProgressCallback
from backend.memory.engine_plan import EnginePlan
from backend.memory.plan import N_PREDICTION
from backend.methods.auto import Learned
from backend.methods.catalogue import METHODS, Method
from backend.methods.compose import (
    NOTHING_LEARNED,
    composition,
    layout,
    predictor_of,
    predictor_text,
    share_of,
    slots_in,
    stretched,
    with_accuracy,
)
from backend.methods.cost import PassCost
from backend.methods.part import Part
from backend.methods.tuner import Tuner
from backend.protocol.errors import EngineError
from backend.system.memory import rss_bytes
from backend.system.paths import learned_settings_file
from backend.text import Text, text
from backend.weights.lookup import load as load_learned

Hook = _native.Patch | _native.ForcedRouting
"""The owners of llama.cpp's graph callback."""
_LAYER_METHOD = METHODS["lru-overlapped"]
"""How the experts of the layer for multi-token prediction are cached."""


class ExpertCache:
    """The slots of one model. Outlives a reload of its weights.

    The plan in force is LoadedModel's. `patch` may be read from any thread. `remark`: why predictor
    weights that were found are not used.
    """

    def __init__(self, file: ModelFile, experiment: Experiment) -> None:
        self.learned, self.remark = load_learned(file)
        self._file, self._experiment = file, experiment
        self._cached: CachedModel | None = None
        self._method: Method
        self._tuner: Tuner | None = None
        self._settings = LearnedSettings(learned_settings_file())
        self._begun: tuple[Key, Learned] | None = None  # where the tuner began, and with what
        self._even: _native.Layout  # the layout with the same memory for all layers
        self._empty_rss_bytes = 0  # RSS of this process when the slots were new

    @property
    def patch(self) -> _native.Patch | None:
        """The patch, or None where llama.cpp runs unpatched."""
        cached = self._cached  # another thread may be closing it
        return cached.open_patch if cached is not None else None

    @property
    def layer_patch(self) -> _native.Patch | None:
        """The patch of the layer for multi-token prediction, or None."""
        cached = self._cached
        return cached.layer_patch if cached is not None else None

    @property
    def hook(self) -> Hook | None:
        """The object with llama.cpp's graph callback, or None."""
        return self.patch or self._experiment.forced

    def load(self, plan: EnginePlan, progress: ProgressCallback) -> Model:
        """Load the model patched and build its slots. Return llama.cpp's model.

        Raises NotCacheable, LlamaError and EngineError.
        """
        self._cached = loading.CachedModel(
            self._file,
            n_thread=plan.n_thread,
            progress=progress,
            pack=plan.tier.pack,
            placement=plan.placement,
            mapped=plan.mapped,
            predicts=plan.predicts,
        )
        self._patch.set_future(self._experiment.future)
        self._patch.force(self._experiment.forced)
        self.build(plan)
        return self._cached.model

    def computes_in(
        self, context: Context | None, kv: loading.KvPages = (), room_bytes: int = 0
    ) -> None:
        """As CachedModel.computes_in()."""
        if self._cached is not None:
            self._cached.computes_in(context, kv, room_bytes)

    def compute_once(self, context: Context) -> None:
        """Compute a full piece of a prompt whose tokens all choose the same few experts."""
        patch, shape = self._patch, self._patch.shape
        n_token = context.n_ubatch
        chosen = np.arange(shape.n_expert_used, dtype=np.int32)
        ids = np.ascontiguousarray(np.broadcast_to(chosen, (n_token, shape.n_layer, len(chosen))))
        forced = _native.ForcedRouting(patch.layers, shape.n_expert, ids, n_used=shape.n_used)
        forced.begin_pass(0, n_token)
        patch.force(forced)
        try:
            patch.begin_pass(_native.Phase.prefill, [0] * n_token)
            context.decode([0] * n_token, 0)
            context.void()
            patch.end_pass()
        finally:
            patch.force(self._experiment.forced)
            context.forget_from(0)

    def close(self) -> bool:
        """Free the patched model. Return False where there is none."""
        self._note_learned()
        cached, self._cached = self._cached, None
        if self._tuner is not None:
            self._tuner.detach()
        if cached is not None:
            cached.close()
        return cached is not None

    def build(self, plan: EnginePlan, *, empty: bool = False) -> None:
        """Rebuild the slots. Raises EngineError.

        The present experts stay as far as they have room, those that the method's eviction would
        keep longest. empty: none stays.
        """
        patch, experiment, method = self._patch, self._experiment, plan.method
        if experiment.accuracy is not None:
            method = with_accuracy(method, experiment.accuracy, lookahead=experiment.lookahead)
        self._note_learned()
        is_first = self._tuner is None or method.name != self._method.name
        self._method = method
        if self._tuner is None or is_first:
            self._tuner = Tuner(method, patch.shape, predicts=self._predictor is not None)
        patch.set_statistics(self._tuner.statistics)
        self._lay_out(plan, layout(method, patch.shape, plan.n_slot), keeps_residents=not empty)
        if self.layer_patch is not None:
            self._lay_out_layer(plan)
        self._empty_rss_bytes = rss_bytes() - int(patch.kept_bytes)
        why = text("auto.rate", rate=self.share)
        self._attach(plan, self._tuner, why, is_first=is_first)

    def _attach(self, plan: EnginePlan, tuner: Tuner, why: str, *, is_first: bool) -> None:
        """Tune the new slots.

        An adaptive method begins with the settings learned for such slots.
        """
        self._begun = None
        if tuner.learned is None:
            tuner.attach(self._patch, self.n_slot, why)
            return
        key = key_of(
            self._file.fingerprint,
            self._experiment,
            predictor_text(self._predictor),
            plan,
            self.n_slot,
        )
        known = self._settings.find(key, tuner)
        if known is None and is_first:
            known = self._settings.guess(key, tuner)
        tuner.attach(self._patch, self.n_slot, why, known)
        self._begun = key, tuner.learned

    def _note_learned(self) -> None:
        """Keep the settings that an adaptive method has learned since the cache was built."""
        learned = self._tuner.learned if self._tuner is not None else None
        if self._begun is None or learned is None:
            return
        key, before = self._begun
        if replace(learned, spent=before.spent) != before:
            self._settings.note(key, learned)
            self._begun = key, learned

    def begin_pass(self, n_answer: int) -> None:
        """Tune for a pass with one token of each of n answers. Call observe() afterwards."""
        if self._tuner is not None and self.patch is not None:
            self._tuner.begin_pass(n_answer)

    def observe(self, token: PassCost, wave_s: float) -> str:
        """Observe the cost of a pass of tokens. Return the adaptive method's decision, or ""."""
        if self._tuner is None or self.patch is None:
            return ""
        return self._tuner.observe(token, wave_s)

    def idle(self, plan: EnginePlan) -> bool:
        """Run a method's idle-time maintenance. Return True if the slots were rebuilt."""
        self._note_learned()
        if self._tuner is None or self.patch is None:
            return False
        found = self._tuner.new_layout(self._even.bytes(self._patch.shape))
        if found is None:
            return False
        self._lay_out(plan, found, keeps_residents=True)
        self._patch.stock(self._tuner.stock())
        return True

    def find_wrong(self, number: int) -> tuple[int, int] | None:
        """Compare a resident expert with its file. Return its layer and itself if they differ.

        number: any; chooses the expert. Raises EngineError where the file cannot be read.
        """
        if self.patch is None:
            return None
        try:
            found: tuple[int, int] | None = self._patch.find_wrong_slot(number)
        except RuntimeError as error:
            raise EngineError(native_sentence(error)) from None
        return found

    @property
    def repacked(self) -> bool:
        """Whether the slots have the layout that computes fastest."""
        return self._cached is not None and self._cached.repacked

    @property
    def rounding(self) -> str:
        """Why results round differently from llama.cpp's: "hybrid", "cut" experts, or ""."""
        if self.patch is None:
            return ""
        return "hybrid" if self._patch.host_speeds() else "cut" if self._even.any_cut() else ""

    @property
    def share(self) -> float:
        """The slots' share of all experts' bytes, all layers the same, to show it."""
        return share_of(self._even, self._patch.shape)

    @property
    def n_slot(self) -> int:
        """The experts per layer that have the memory of the slots, all layers the same."""
        return round(slots_in(self._even, self._patch.shape))

    def untouched_bytes(self) -> int:
        """Return the bytes of slots that have no physical pages yet."""
        grown_bytes = rss_bytes() - self._empty_rss_bytes
        slab_bytes = int(self._patch.slab_bytes)
        return max(slab_bytes - max(grown_bytes, 0), 0) if self._empty_rss_bytes else 0

    def held_beside_devices(self, plan: EnginePlan) -> int:
        """Return the bytes of RAM in the host store and in touched slots of the CPU's layers."""
        stored = int(self._patch.host_held_bytes)
        grown_bytes = max(rss_bytes() - self._empty_rss_bytes - stored, 0)
        return stored + min(plan.host.cpu_bytes, grown_bytes)

    def facts(self, plan: EnginePlan) -> dict[str, Any]:
        """Return the fields of CacheFacts that describe the cache in force."""
        patch, pack = self._patch, plan.tier.pack
        return {
            "rate": self.share,
            "n_slot": self.n_slot,
            "bytes": patch.slab_bytes,
            "method": plan.method.name,
            "predictor": predictor_text(self._predictor),
            "hybrid": plan.config.hybrid if patch.host_speeds() else "off",
            "host_bytes": patch.host_bytes,
            "cpu_bytes": plan.host.cpu_bytes,
            "ram_dense_bytes": plan.host.dense_bytes,
            "pack": str(pack.path) if pack else "",
            "layout": "repacked" if self.repacked else "file",
        }

    @property
    def memory_remark(self) -> Text | str:
        """The reason why RAM serves devices more slowly than it could, or ""."""
        if self.patch is None or not self._patch.host_lacks_pinned:
            return ""
        return text("engine.not_pinned", bytes=int(self._patch.host_bytes))

    @property
    def _patch(self) -> _native.Patch:
        """The patch of a model that is loaded patched."""
        assert self._cached is not None
        return self._cached.patch

    @property
    def _predictor(self) -> Part | None:
        """The predictor in use, or None."""
        return predictor_of(self._method, self.learned, has_routers=self._patch.n_embd > 0)

    def _lay_out(self, plan: EnginePlan, even: _native.Layout, *, keeps_residents: bool) -> None:
        """Rebuild the slots from an even layout. Raises EngineError.

        Beside a device, the CPU's layers get the slots that fit in RAM, and prompts get a stage.
        """
        patch = self._patch
        self._even = made = even
        if plan.devices is not None and plan.host.n_cpu_slot:
            there = plan.devices.layers
            on_cpu = {index for index, layer in enumerate(patch.layers) if layer not in there}
            made = stretched(made, patch.shape, on_cpu, plan.host.n_cpu_slot)
        if plan.devices is not None and plan.devices.n_stage and plan.method.stages:
            made = made.staged(patch.shape, plan.devices.n_stage)
        options = _native.PatchOptions(
            **self._reading(plan),
            max_token=plan.n_ubatch,
            repack=self.repacked,
            host_bytes=plan.host.bytes,
        )
        parts = composition(
            self._method,
            patch.shape,
            self.learned,
            has_routers=patch.n_embd > 0,
            hybrid=plan.config.hybrid,
            on_device=plan.devices is not None,
        )
        _configure(patch, made, parts, options, keeps_residents=keeps_residents)

    def _lay_out_layer(self, plan: EnginePlan) -> None:
        """Rebuild the slots of the layer for multi-token prediction, empty. Raises EngineError.

        It has as many as any other layer. No forecast is made for it: there is no layer before it.
        """
        patch = self.layer_patch
        assert patch is not None
        parts = composition(
            _LAYER_METHOD,
            patch.shape,
            NOTHING_LEARNED,
            has_routers=False,
            hybrid="off",
            on_device=False,
        )
        options = _native.PatchOptions(**self._reading(plan), max_token=N_PREDICTION)
        slots = layout(_LAYER_METHOD, patch.shape, plan.n_slot)
        _configure(patch, slots, parts, options, keeps_residents=False)

    def _reading(self, plan: EnginePlan) -> dict[str, Any]:
        """Return how experts are read and computed, of PatchOptions."""
        drive = plan.tier.drive
        return {
            "n_thread": plan.n_thread,
            "n_transfer_thread": drive.n_read,
            "joined_bytes": drive.read_bytes,
            "link_bytes_per_s": self._experiment.link_bytes_per_s,
        }


def _configure(
    patch: _native.Patch,
    made: _native.Layout,
    parts: _native.Composition,
    options: _native.PatchOptions,
    *,
    keeps_residents: bool,
) -> None:
    """Rebuild a patch's slots. Raises EngineError."""
    try:
        patch.configure(made, parts, options, keeps_residents)
    except _native.SlotsTooLarge as error:
        raise EngineError(_too_large(error)) from None
    except (RuntimeError, ValueError) as error:
        raise EngineError(native_sentence(error)) from None


def _too_large(refusal: Any) -> Text:
    """Return the sentence of a _native.SlotsTooLarge, whose type names no values."""
    return text(
        "engine.slots_too_large",
        tensor=refusal.tensor,
        bytes=refusal.bytes,
        device=refusal.device,
    )
