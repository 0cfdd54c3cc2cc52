"""The facts of a model that clients are told: of its file, and of the loaded one."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.gguf.companions import vision_files
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import ModelFile, read_model
from backend.protocol.status import CacheFacts, ModelFacts, VocabularyFacts
from backend.text import without_folders

Json = dict[str, Any]
_N_KEPT = 256  # models whose facts are kept
_THINKS = ("enable_thinking", "<think>", "reasoning_effort", "[THINK]", "<|channel|>")


@dataclass(frozen=True)
class LoadedFacts:
    """The facts of an engine's model. Ask for them in the engine's thread."""

    model: ModelFacts
    vocabulary: VocabularyFacts
    cache: CacheFacts

    @property
    def runs(self) -> str:
        """How it runs and why."""
        return without_folders(self.cache.runs)

    @property
    def size_bytes(self) -> int:
        """The memory of its weights and experts."""
        is_whole = self.cache.mode == "plain"
        experts = self.model.expert_bytes_total if is_whole else self.cache.bytes
        return self.model.dense_bytes + experts + self.cache.host_bytes

    @property
    def device_bytes(self) -> int:
        """The part of it that is on devices."""
        if self.cache.device == "cpu":
            return 0
        in_ram = self.cache.cpu_bytes + self.cache.ram_dense_bytes + self.cache.host_bytes
        return max(self.size_bytes - in_ram, 0)

    @property
    def capabilities(self) -> list[str]:
        """Its abilities, in Ollama's words."""
        chat = self.model.chat
        can = {"tools": chat.tools, "thinking": chat.thinking != "none", "vision": chat.images}
        return ["completion", *(name for name, does in can.items() if does)]


@dataclass(frozen=True)
class FileFacts:
    """The facts of a model file. file: None where it cannot be read, and all else is empty then."""

    path: Path
    file: ModelFile | None = None
    companions: tuple[Path, ...] = ()

    @classmethod
    def of(cls, path: Path) -> FileFacts:
        """Return the facts; they are read again when the file or its folder has changed."""
        try:
            return _read(path, path.stat().st_mtime_ns, path.parent.stat().st_mtime_ns)
        except OSError:
            return cls(path)

    @property
    def n_parameter(self) -> int:
        """The number of weights."""
        return sum(math.prod(t.shape) for t in self.file.tensors) if self.file is not None else 0

    @property
    def size_bytes(self) -> int:
        """The size of its parts, and of the file with which it sees."""
        if self.file is None:
            return 0
        return self.file.file_size_bytes + sum(_size_of(path) for path in self.companions)

    @property
    def digest(self) -> str:
        """The SHA-256 of the headers and sizes of its parts, in hexadecimal.

        That of the contents would take minutes to read.
        """
        return self.file.fingerprint if self.file is not None else ""

    @property
    def template(self) -> str:
        """Its chat template, or ""."""
        return (self.file.chat_template if self.file is not None else None) or ""

    @property
    def capabilities(self) -> list[str]:
        """Its abilities, in Ollama's words. Tools are described to models that know none."""
        if self.file is None:
            return []
        if not self.template and self.file.key("pooling_type") is not None:
            return ["embedding"]
        can = {
            "tools": bool(self.template),
            "thinking": any(word in self.template for word in _THINKS),
            "vision": bool(self.companions),
        }
        return ["completion", *(name for name, does in can.items() if does)]

    @property
    def plain(self) -> Json:
        """The metadata without lists, with the number of weights."""
        if self.file is None:
            return {}
        values = {k: v for k, v in self.file.metadata.items() if _is_plain(v)}
        return {"general.parameter_count": self.n_parameter, **values}

    @property
    def n_token(self) -> int:
        """The size of the vocabulary."""
        tokens = self.file.metadata.get("tokenizer.ggml.tokens") if self.file is not None else None
        return len(tokens) if isinstance(tokens, list | tuple) else 0


@functools.lru_cache(_N_KEPT)
def _read(path: Path, _changed_ns: int, _folder_changed_ns: int) -> FileFacts:
    try:
        file = read_model(path)
    except ModelFileError:
        return FileFacts(path)
    return FileFacts(path, file, tuple(vision_files(file)[:1]))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
