"""The worker's facts as typed values: the model, the cache, answers, passes, learning and advice.

`from_json` reads an absent field as zero or empty, and raises TypeError or ValueError for nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

Json = dict[str, Any]
_KINDS: Mapping[Any, Any] = {"str": str, "int": int, "float": float, "bool": bool}


def scalars(kind: type, data: Json) -> Json:
    """The fields of a dataclass that are a text, a number, or true or false."""
    return {
        field.name: _KINDS[field.type](data.get(field.name) or _KINDS[field.type]())
        for field in fields(kind)
        if field.type in _KINDS
    }


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

    @classmethod
    def from_json(cls, data: Json) -> ModelFacts:
        """Read the `model` object of a message."""
        layers = tuple(int(layer) for layer in data.get("moe_layers") or ())
        return cls(**scalars(cls, data), moe_layers=layers)

    def to_json(self) -> Json:
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
    hybrid: str = "off"
    """What becomes of experts that a device lacks, of backend.protocol.settings.HYBRID."""
    host_bytes: int = 0
    """RAM that keeps experts between the file and devices; 0: they are read from the file."""
    cpu_bytes: int = 0
    """Of `bytes`, slots in RAM, of layers that the CPU computes beside devices."""
    ram_dense_bytes: int = 0
    """What else of the weights is in RAM beside devices."""
    pack: str = ""
    """The path of the pack that experts are read from; empty: they are read from the model."""
    layout: str = "file"
    """Of the experts in memory: "file", as in the model, or "repacked", as stock llama.cpp's."""

    @classmethod
    def from_json(cls, data: Json) -> CacheFacts:
        """Read the `cache` object of a message."""
        values = scalars(cls, data)
        return cls(**{**values, "mode": values["mode"] or "plain"})

    def to_json(self) -> Json:
        """As a plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class LearningFacts:
    """How learning from chats stands."""

    allowed: bool
    n_bytes: int
    """On the drive, of all models."""
    most_bytes: int
    """For the loaded model; 0 where none is."""
    n_token: int
    enough_tokens: int
    share: float | None
    """Of a training in progress; None where there is none."""
    is_paused: bool
    sentence: str

    @classmethod
    def from_json(cls, data: Json) -> LearningFacts:
        """Read the `state` object of a message."""
        share = data.get("share")
        return cls(**scalars(cls, data), share=None if share is None else float(share))

    def to_json(self) -> Json:
        """As a plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class Option:
    """One change, and the times as fast that it is forecast to make the answer."""

    method: str
    n_slot: int
    rate: float
    cache_bytes: int
    times: float

    @classmethod
    def from_json(cls, data: Json | None) -> Option | None:
        """Read an option; None stays None."""
        return None if data is None else cls(**scalars(cls, data))


@dataclass(frozen=True)
class Advice:
    """Where the time of an answer's tokens went, and the best change of each kind that is worth it.

    scale: measured waiting to simulated waiting, of the setting that ran; 0 where nothing could be
    simulated. `reason` says why nothing is forecast, and is else empty.
    """

    stall_share: float
    cache: Option | None = None
    method: Option | None = None
    scale: float = 0.0
    reason: str = ""

    @classmethod
    def from_json(cls, data: Json) -> Advice:
        """Read a message "advice"."""
        return cls(
            **scalars(cls, data),
            cache=Option.from_json(data.get("cache")),
            method=Option.from_json(data.get("method")),
        )

    def to_json(self) -> Json:
        """As a plain dict."""
        return asdict(self)
