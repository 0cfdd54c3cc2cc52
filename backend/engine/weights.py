"""What is loaded of a model's files: weights, conversation format, and what sees images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.engine import loading
from backend.engine.expert_cache import ExpertCache
from backend.gguf.model_file import ModelFile
from backend.llama import api as llama
from backend.llama.chat_format import ChatFormat
from backend.llama.guard import Guard, framing_texts
from backend.llama.vision import Vision
from backend.memory.engine_plan import EnginePlan
from backend.protocol.chat import ChatFacts
from backend.protocol.settings import EngineConfig
from backend.system.memory import forget_mapped

_VISION_BYTES_PER_BYTE = 1.5
"""RAM reserved for each byte of an mmproj file, which needs buffers beside its weights."""


class Weights:
    """The parts of a model that do not depend on a context.

    `llama`: llama.cpp's model; None while nothing is loaded. `chat_format` and `guard`: set by the
    first load. `vision`: the part that sees images, or None. `remark`: why an mmproj file is not
    used, or "".
    """

    guard: Guard

    def __init__(self, file: ModelFile, experts: ExpertCache) -> None:
        self.llama: Any = None
        self.chat_format: ChatFormat | None = None
        self.vision: Vision | None = None
        self.remark = ""
        self._file = file
        self._experts = experts
        self._vision_path: Path | None = None

    def find_vision(self, config: EngineConfig) -> int:
        """Find the mmproj file. Return the bytes of RAM that it needs. Raises LlamaError."""
        self._vision_path = loading.vision_file(self._file, config.mmproj)
        n_bytes = self._vision_path.stat().st_size if self._vision_path is not None else 0
        return round(n_bytes * _VISION_BYTES_PER_BYTE)

    def load(self, plan: EnginePlan, on_progress: Callable[[float], bool]) -> None:
        """Load all parts. Raises LlamaError, and NotCacheable where only a plain plan is possible.

        on_progress: receives the share of the weights that is loaded, and returns False to stop.
        """
        if plan.is_plain:
            # Repacked weights need anonymous memory; pages of the file can be dropped.
            self.llama = loading.load_plain(
                self._file, on_progress, repack=plan.repack, placement=plan.placement
            )
            # Beside the repacked copies, they would make the process twice as large as the model.
            for path in self._file.paths if plan.repack else ():
                forget_mapped(path)
        else:
            self.llama = self._experts.load(plan, on_progress)
        self._load_vision(plan)
        bos, eos = self.llama.special_text(self.llama.bos), self.llama.special_text(self.llama.eos)
        template = self._file.chat_template or ""
        self.chat_format = ChatFormat(self._file.name, template, bos, eos)
        control, user_defined = self.llama.special_texts()
        self.guard = Guard(control, framing_texts(user_defined, template))

    def close(self) -> None:
        """Free all parts, after the context. A second call does nothing."""
        if self.chat_format is not None:
            self.chat_format.close()
        if self.vision is not None:
            self.vision.close()
            self.vision = None
        if not self._experts.close() and self.llama is not None:
            self.llama.close()
        self.llama = None

    def chat_facts(self) -> ChatFacts:
        """Return the facts of the chat template; empty if it fails, which an answer will report."""
        assert self.chat_format is not None
        try:
            facts = self.chat_format.facts()
        except llama.LlamaError:
            facts = ChatFacts()
        return replace(facts, images=self.vision is not None)

    def _load_vision(self, plan: EnginePlan) -> None:
        """Load the mmproj file. One that was not asked for by name is left out if it is unfit."""
        self.remark = ""
        if self._vision_path is None:
            return
        try:
            self.vision = Vision(self._vision_path, self.llama, plan.n_thread)
        except llama.LlamaError as error:
            if plan.config.mmproj:
                raise
            self.remark = str(error)
