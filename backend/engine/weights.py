"""The loaded parts of a model: weights, conversation format, vision encoder, prediction layer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backend.engine import loading
from backend.engine.embedding_model import embedding_bytes
from backend.engine.expert_cache import ExpertCache
from backend.engine.prediction_layer import PredictionLayer
from backend.gguf.model_file import ModelFile
from backend.gguf.tables import SEEING
from backend.llama import api as llama
from backend.llama.batch_log import BatchLog
from backend.llama.chat_format import ChatFormat
from backend.llama.vision import Vision
from backend.memory.devices import modules
from backend.memory.engine_plan import EnginePlan
from backend.protocol.chat import ChatFacts
from backend.protocol.settings import EngineConfig
from backend.system.memory import forget_mapped
from backend.text import Text, joined, text

_VISION_BYTES_PER_BYTE = 1.5
"""RAM reserved for each byte of an mmproj file, which needs buffers beside its weights."""


class Weights:
    """The parts of a model that do not depend on a context.

    `llama`: llama.cpp's model; None while nothing is loaded. `chat_format`: set by the first
    load. `vision`: the part that sees images, or None. `draft`: the layer that guesses tokens, or
    None. `remark`: why an mmproj file or that layer is not used, or "".
    """

    def __init__(self, file: ModelFile, experts: ExpertCache) -> None:
        self.llama: llama.Model | None = None
        self.chat_format: ChatFormat | None = None
        self.vision: Vision | None = None
        self.draft: PredictionLayer | None = None
        self.remark = ""
        self._file = file
        self._experts = experts
        self._vision_path: Path | None = None

    def find_others(self, config: EngineConfig) -> int:
        """Find the mmproj file. Return the bytes of RAM that it needs.

        A model for embeddings counts, too. Raises LlamaError where an mmproj file that was asked
        for is unfit, and EngineError where a model for embeddings is.
        """
        self._vision_path = loading.vision_file(self._file, config.setup.mmproj)
        n_bytes = self._vision_path.stat().st_size if self._vision_path is not None else 0
        n_bytes = round(n_bytes * _VISION_BYTES_PER_BYTE)
        if config.setup.embedding_model:
            n_bytes += embedding_bytes(Path(config.setup.embedding_model))
        return n_bytes

    def load(self, plan: EnginePlan, on_progress: Callable[[float], bool]) -> None:
        """Load all parts. Raises LlamaError; NotCacheable or LayerRefused if another plan may do.

        on_progress: receives the share of the weights that is loaded, and returns False to stop.
        """
        self.remark = plan.draft_remark
        try:
            self.llama = model = self._loaded(plan, on_progress)
        except loading.NotCacheable:
            raise
        except llama.LlamaError as error:
            if not plan.predicts:
                raise
            raise loading.LayerRefused(self._no_layer(error)) from None
        if plan.predicts:
            self.draft = PredictionLayer(model, plan.n_thread, self._experts.layer_patch)
        self._load_vision(model, plan)
        bos, eos = model.special_text(model.bos), model.special_text(model.eos)
        template = self._file.chat_template or ""
        texts = model.special_texts()
        self.chat_format = ChatFormat(self._file.name, template, bos, eos, *texts)

    def _loaded(self, plan: EnginePlan, on_progress: Callable[[float], bool]) -> llama.Model:
        """Load llama.cpp's model."""
        if not plan.is_plain:
            return self._experts.load(plan, on_progress)
        # Repacked weights need anonymous memory; pages of the file can be dropped.
        model = loading.load_plain(
            self._file,
            on_progress,
            repack=plan.repack,
            placement=plan.placement,
            predicts=plan.predicts,
        )
        # Beside the repacked copies, they would make the process twice as large as the model.
        for path in self._file.paths if plan.repack else ():
            forget_mapped(path)
        return model

    def attach(self, context: llama.Context, plan: EnginePlan) -> None:
        """Let the layer for multi-token prediction guess for a new context."""
        if self.draft is not None:
            try:
                self.draft.attach(context, plan.config.kv_type)
            except llama.LlamaError as error:
                self.draft = None
                self.remark = joined(self.remark, self._no_layer(error))

    def _no_layer(self, error: llama.LlamaError) -> Text:
        reason = str(error).rstrip(".")
        return text("draft.layer_not_used", file=self._file.path.name, reason=reason)

    def write_to(self, log: BatchLog, plan: EnginePlan) -> None:
        """Write how stock llama.cpp loads the same weights, and from now on all images."""
        file, vision = self._file, self.vision
        placement, devices = plan.placement, plan.devices
        assert self.llama is not None
        log.begin_model(
            {
                "path": os.path.abspath(file.path),
                "fingerprint": file.fingerprint,
                "settings": self.llama.settings,
                # The file's layout of experts is kept in a buffer that is not the CPU's own.
                "experts_as_in_file": not (plan.is_plain or self._experts.repacked),
                "n_expert_used": file.n_expert_used_instead,
                "device": plan.config.device if devices else "",
                "backends": [m.file for m in modules() if m.backend],
                "devices": [share.key for share in devices.devices] if devices else [],
                "n_cpu_layer": len(placement.cpu_layers(file.n_layer)),
                "shares": placement.shares,
                "mmproj": "" if vision is None else os.path.abspath(vision.path),
                "n_thread": plan.n_thread,
            }
        )
        if vision is not None:
            vision.log = log

    def close(self) -> None:
        """Free all parts, after the context. A second call does nothing."""
        if self.chat_format is not None:
            self.chat_format.close()
        if self.vision is not None:
            self.vision.close()
            self.vision = None
        if self.draft is not None:
            self.draft.close()
            self.draft = None
        if not self._experts.close() and self.llama is not None:
            self.llama.close()
        self.llama = None

    def drafts(self, plan: EnginePlan, context: llama.Context) -> str:
        """Return what guesses tokens, of CacheFacts.drafts."""
        is_held = context.holds and plan.config.holds
        if context.cuts_batches and not context.n_back and not is_held:
            return "off"
        return "mtp" if self.draft is not None else plan.config.drafts

    def chat_facts(self) -> ChatFacts:
        """Return the facts of the chat template; empty if it fails, which an answer will report."""
        assert self.chat_format is not None
        try:
            facts = self.chat_format.facts()
        except llama.LlamaError:
            facts = ChatFacts()
        return replace(facts, images=self.vision is not None)

    def _load_vision(self, model: llama.Model, plan: EnginePlan) -> None:
        """Load the mmproj file. One that was not asked for by name is left out if it is unfit."""
        if self._vision_path is None:
            return
        needed = SEEING.get(self._file.architecture)
        try:
            if needed is not None and self._file.key(needed) is None:
                raise llama.LlamaError(text("vision.old_model", model=self._file.path.name))
            self.vision = Vision(self._vision_path, model, plan.n_thread)
        except llama.LlamaError as error:
            if plan.config.setup.mmproj:
                raise
            self.remark = joined(self.remark, str(error))
