"""The worker's facts as typed values: the model, the cache, answers, passes, learning and advice.

`from_json` reads an absent field as zero or empty, and raises TypeError or ValueError for nonsense.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

Json = dict[str, Any]
_KINDS: Mapping[Any, Any] = {"str": str, "int": int, "float": float, "bool": bool}
_N_PASS_MAX = 4096
"""Most passes in one batch."""


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


@dataclass(frozen=True)
class TokenTime:
    """Where the wall time of one token went, in seconds."""

    compute_s: float
    stall_s: float
    other_s: float

    @property
    def total_s(self) -> float:
        """The whole of the token's wall time."""
        return self.compute_s + self.stall_s + self.other_s


@dataclass(frozen=True)
class Statistics:
    """One answer in numbers, from a `stats` or `done` message."""

    n_prompt: int = 0
    n_token: int = 0
    ttft_s: float = 0.0
    tokens_per_s: float = 0.0
    hits: int = 0
    late: int = 0
    misses: int = 0
    on_host: int = 0  # of the late and missed ones, computed by the processor beside a device
    bytes_read: int = 0
    bytes_from_file: int = 0
    bytes_from_host: int = 0  # of bytes_read, from RAM that keeps experts for a device
    bytes_wasted: int = 0
    prefetches_useful: int = 0
    prefetches_wasted: int = 0
    stall_s: float = 0.0
    compute_s: float = 0.0
    other_s: float = 0.0
    layer_stall_s: dict[int, float] = field(default_factory=dict)  # by layer number
    layer_on_host: dict[int, int] = field(default_factory=dict)  # likewise
    tokens: tuple[TokenTime, ...] = ()
    decisions: tuple[str, ...] = ()  # of an adaptive method, each a sentence

    @classmethod
    def from_json(cls, data: Json) -> Statistics:
        """Read the `stats` object of a message."""
        layers = [(int(layer["layer"]), layer) for layer in data.get("layers") or ()]
        return cls(
            **scalars(cls, data),
            layer_stall_s={n: float(layer.get("stall_s") or 0.0) for n, layer in layers},
            layer_on_host={n: int(layer.get("on_host") or 0) for n, layer in layers},
            tokens=tuple(
                TokenTime(**scalars(TokenTime, token)) for token in data.get("tokens") or ()
            ),
            decisions=tuple(str(line) for line in data.get("decisions") or ()),
        )

    @property
    def requests(self) -> int:
        """How often the answer asked for an expert."""
        return self.hits + self.late + self.misses

    @property
    def drive_bytes(self) -> int:
        """What was read from the drive."""
        return self.bytes_from_file or self.bytes_read - self.bytes_from_host

    @property
    def total_s(self) -> float:
        """The time that the answer took, by its three parts."""
        return self.compute_s + self.stall_s + self.other_s

    @property
    def stall_share(self) -> float:
        """The share of the time that went to waiting for experts."""
        return self.stall_s / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True)
class Residency:
    """A snapshot of the cache: one byte for each expert of each MoE layer, layer by layer."""

    moe_layers: tuple[int, ...]
    n_expert: int
    data: bytes  # len(moe_layers) * n_expert

    @classmethod
    def from_json(cls, message: Json) -> Residency:
        """Read a message "residency"."""
        layers = tuple(int(layer) for layer in message["moe_layers"])
        n_expert, data = int(message["n_expert"]), _from_base64(message["data"])
        if len(data) != len(layers) * n_expert:
            raise ValueError("the residency has the wrong length")
        return cls(layers, n_expert, data)


class PassFigures(NamedTuple):
    """What a pass cost; the order is that of the worker. n_token is 0 for a piece of the prompt."""

    n_token: int
    wall_us: int
    compute_us: int
    stall_us: int
    link_busy_us: int
    hits: int
    late: int
    misses: int
    bytes_read: int
    bytes_wasted: int
    prefetches_useful: int
    prefetches_wasted: int
    on_host: int

    @property
    def other_us(self) -> int:
        """What is neither computing nor waiting."""
        return max(self.wall_us - self.compute_us - self.stall_us, 0)

    @property
    def requests(self) -> int:
        """How often an expert was asked for."""
        return self.hits + self.late + self.misses


@dataclass(frozen=True)
class Batch:
    """Consecutive passes, from a message "moments"; `blob` is packed as in backend/engine/moments.py."""

    first: int
    figures: tuple[PassFigures, ...]
    blob: bytes

    @classmethod
    def from_json(cls, message: Json) -> Batch:
        """Read a message "moments"."""
        figures = tuple(PassFigures(*map(int, row)) for row in message["figures"])
        if not 1 <= len(figures) <= _N_PASS_MAX:
            raise ValueError("a batch has an impossible number of passes")
        return cls(int(message["first"]), figures, _from_base64(message["data"]))


def _from_base64(text: str) -> bytes:
    """Decode base64; ValueError where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("the data is not base64") from error
