"""The cache of a patched model: its slots as a plan and a method want them, and what it is told."""

from __future__ import annotations

from typing import Any

from backend import _native
from backend.engine import loading
from backend.engine.experiment import Study
from backend.engine.loading import CachedModel
from backend.gguf.model_file import ModelFile
from backend.llama.api import ProgressCallback
from backend.memory.engine_plan import EnginePlan
from backend.methods.catalogue import Method
from backend.methods.compose import (
    composition,
    layout,
    predictor_of,
    predictor_text,
    share_of,
    stretched,
    with_accuracy,
)
from backend.methods.cost import PassCost
from backend.methods.part import Part
from backend.methods.tuner import Adapter
from backend.protocol.errors import EngineError
from backend.system.memory import rss_bytes
from backend.text import Text, text
from backend.weights.lookup import load as load_learned


class ExpertCache:
    """The slots of one model, also while other weights are loaded for it.

    `plan` is what they were made from. `patch` may be read from any thread. `remark` says why
    weights of a predictor that were found are not used.
    """

    def __init__(self, file: ModelFile, study: Study) -> None:
        self.plan: EnginePlan
        self.learned, self.remark = load_learned(file)
        self._file, self._study = file, study
        self._cached: CachedModel | None = None
        self._method: Method
        self._adapter: Adapter | None = None
        self._even: _native.Layout  # the layout as if all layers had the same memory
        self._empty_rss_bytes = 0  # of this process when the slots were new

    @property
    def patch(self) -> Any:
        """The backend._native.Patch, or None where llama.cpp runs unpatched."""
        cached = self._cached  # another thread may be closing it
        return cached.patch if cached is not None else None

    @property
    def hook(self) -> Any:
        """What hears of llama.cpp's nodes, or None."""
        return self.patch or self._study.forced

    def load(self, plan: EnginePlan, progress: ProgressCallback) -> Any:
        """Load the model patched, and make its slots; returns llama.cpp's model.

        Raises NotCacheable, LlamaError and EngineError.
        """
        self._cached = loading.CachedModel(
            self._file,
            n_thread=plan.n_thread,
            progress=progress,
            pack=plan.tier.pack,
            placement=plan.placement,
        )
        self.patch.set_future(self._study.future)
        self.patch.force(self._study.forced)
        self.build(plan)
        return self._cached.model

    def close(self) -> bool:
        """Free the patched model; False where there is none."""
        cached, self._cached = self._cached, None
        if cached is not None:
            cached.close()
        return cached is not None

    def build(self, plan: EnginePlan) -> None:
        """Make the slots anew, empty. Raises EngineError."""
        patch, study, method = self.patch, self._study, plan.method
        if study.accuracy is not None:
            method = with_accuracy(method, study.accuracy, lookahead=study.lookahead)
        if self._adapter is None or method.name != self._method.name:
            self._method = method
            predicts = self._predictor is not None
            self._adapter = Adapter(method, patch.shape, predicts=predicts)
        self.plan, self._method = plan, method
        patch.set_statistics(self._adapter.statistics)
        self._lay_out(layout(method, patch.shape, plan.n_slot))
        self._empty_rss_bytes = rss_bytes()
        why = f"The cache rate is {100 * self.share:.0f} %"
        self._adapter.attend(patch, self.n_slot, why)

    def observe(self, token: PassCost, wave_s: float) -> str:
        """Hear what a decoded token cost; returns what an adaptive method decided, or ""."""
        if self._adapter is None or self.patch is None:
            return ""
        return self._adapter.hear(token, wave_s)

    def idle(self) -> bool:
        """Run a method's idle-time maintenance; True if the slots were made anew."""
        if self._adapter is None or self.patch is None:
            return False
        found = self._adapter.new_layout(self._even.bytes(self.patch.shape))
        if found is None:
            return False
        self._lay_out(found)
        return True

    @property
    def share(self) -> float:
        """The slots' share of all experts' bytes, as if all layers had the same memory."""
        return share_of(self._even, self.patch.shape)

    @property
    def n_slot(self) -> int:
        """Experts of each layer that this share is."""
        return round(self.share * self._file.n_expert)

    def untouched_bytes(self) -> int:
        """Of the slots, what the system has not given any memory to yet."""
        grown_bytes = rss_bytes() - self._empty_rss_bytes
        slab_bytes = int(self.patch.slab_bytes)
        return max(slab_bytes - max(grown_bytes, 0), 0) if self._empty_rss_bytes else 0

    def held_beside_devices(self) -> int:
        """Bytes of RAM that keep experts for devices, and that slots beside those have touched."""
        stored = int(self.patch.host_held_bytes)
        grown_bytes = max(rss_bytes() - self._empty_rss_bytes - stored, 0)
        return stored + min(self.plan.host.cpu_bytes, grown_bytes)

    def facts(self) -> dict[str, Any]:
        """Return the fields of CacheFacts that say what is in force of a cache."""
        patch, plan = self.patch, self.plan
        pack = plan.tier.pack
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
            "layout": "repacked" if self._cached and self._cached.repacked else "file",
        }

    @property
    def _predictor(self) -> Part | None:
        """What forecasts the experts; None: nothing does."""
        return predictor_of(self._method, self.learned, has_routers=self.patch.n_embd > 0)

    def _lay_out(self, even: _native.Layout) -> None:
        """Make the slots anew. Raises EngineError.

        The CPU's layers beside a device get what RAM has room for, and prompts their stage.
        """
        plan, patch = self.plan, self.patch
        self._even = made = even
        if plan.devices is not None and plan.host.n_cpu_slot:
            there = plan.devices.layers
            on_cpu = {index for index, layer in enumerate(patch.layers) if layer not in there}
            times = plan.host.n_cpu_slot / (self.share * self._file.n_expert)
            made = stretched(made, patch.shape, on_cpu, times)
        if plan.devices is not None and plan.devices.n_stage and plan.method.stages:
            made = made.staged(patch.shape, plan.devices.n_stage)
        options = _native.PatchOptions(
            n_thread=plan.n_thread,
            n_transfer_thread=plan.tier.drive.n_read,
            joined_bytes=plan.tier.drive.read_bytes,
            max_token=plan.n_ubatch,
            link_bytes_per_s=self._study.link_bytes_per_s,
            repack=self._cached is not None and self._cached.repacked,
            host_bytes=plan.host.bytes,
        )
        parts = composition(
            self._method,
            patch.shape,
            self.learned,
            has_routers=patch.n_embd > 0,
            hybrid=plan.config.hybrid,
        )
        try:
            patch.configure(made, parts, options)
        except _native.SlotsTooLarge as error:
            raise EngineError(_too_large(error)) from None
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"{error}.") from None


def _too_large(refusal: Any) -> Text:
    """Return the sentence of a _native.SlotsTooLarge."""
    return text(
        "engine.slots_too_large",
        tensor=refusal.tensor,
        bytes=refusal.bytes,
        device=refusal.device,
    )
