"""What is loaded and what is in force, for whoever shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from backend.gguf_file import ModelFile


@dataclass(frozen=True)
class ModelFacts:
    """What was loaded; sizes in bytes. expert_bytes is one expert's mean over the layers."""

    name: str
    path: str
    architecture: str
    n_layer: int
    moe_layers: tuple[int, ...]
    n_expert: int
    n_expert_used: int
    expert_bytes: int
    expert_bytes_total: int
    dense_bytes: int
    file_bytes: int
    context_length: int
    is_moe: bool

    @classmethod
    def of(cls, file: ModelFile, context_length: int) -> ModelFacts:
        """A model file that runs with this context, in tokens."""
        per_layer = file.expert_bytes_per_layer()
        return cls(
            name=file.name,
            path=str(file.path),
            architecture=file.architecture,
            n_layer=file.n_layer,
            moe_layers=tuple(per_layer),
            n_expert=file.n_expert,
            n_expert_used=file.n_expert_used,
            expert_bytes=sum(per_layer.values()) // max(len(per_layer), 1),
            expert_bytes_total=file.expert_bytes_total,
            dense_bytes=file.dense_bytes,
            file_bytes=file.file_size_bytes,
            context_length=context_length,
            is_moe=file.is_moe,
        )

    def to_json(self) -> dict[str, Any]:
        """As a plain dict."""
        return {**asdict(self), "moe_layers": list(self.moe_layers)}


@dataclass(frozen=True)
class CacheFacts:
    """What is in force, beside what was asked for. n_slot: resident experts of each layer.

    asked_method: the method that was asked for; `method` is "stock" where llama.cpp runs unpatched.
    """

    asked_rate: float
    rate: float
    min_rate: float
    n_slot: int
    bytes: int
    mode: str
    reason: str
    method: str
    predictor: str = ""
    """What forecasts the experts, in words; "" where nothing does."""
    remark: str = ""
    """Why weights of a predictor, or a pack, that were found are not used, in sentences; or ""."""
    asked_method: str = ""
    n_thread: int = 0
    kv_type: str = ""
    device: str = "cpu"
    """What computes: "cpu", or devices' names with commas between."""
    pack: str = ""
    """The path of the pack that experts are read from; empty: they are read from the model."""
    layout: str = "file"
    """Of the experts in memory: "file", as in the model, or "repacked", as stock llama.cpp's."""

    def to_json(self) -> dict[str, Any]:
        """As a plain dict."""
        return asdict(self)
