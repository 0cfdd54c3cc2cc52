"""The worker's facts as typed values: model, cache, learning and advice.

`from_json` reads an absent field as zero or empty. It raises TypeError or ValueError for an invalid
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from backend.protocol.chat import ChatFacts
from backend.text import joined, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.protocol.settings import EngineConfig

Json = dict[str, Any]
_KINDS: Mapping[Any, Any] = {"str": str, "int": int, "float": float, "bool": bool}


def scalars(kind: type, data: Json) -> Json:
    """Return the fields of a dataclass of type str, int, float or bool, read from JSON."""
    return {name: read(data.get(name) or read()) for name, read in _readers(kind)}


@cache  # fields() takes longer than reading the values
def _readers(kind: type) -> list[tuple[str, Any]]:
    return [(item.name, _KINDS[item.type]) for item in fields(kind) if item.type in _KINDS]


@dataclass(frozen=True)
class ModelFacts:
    """The loaded model. Sizes in bytes. expert_bytes: one expert's mean size over the layers."""

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
    trained_length: int = 0
    """The longest context that the model was trained for, in tokens."""
    chat: ChatFacts = field(default_factory=ChatFacts)

    @classmethod
    def of(cls, file: ModelFile, context_length: int, chat: ChatFacts) -> ModelFacts:
        """Return the facts of a model file. context_length: of the engine, in tokens."""
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
            trained_length=file.context_length,
            chat=chat,
        )

    @classmethod
    def from_json(cls, data: Json) -> ModelFacts:
        """Read the `model` object of a message."""
        layers = tuple(int(layer) for layer in data.get("moe_layers") or ())
        chat = ChatFacts.from_json(data.get("chat") or {})
        return cls(**scalars(cls, data), moe_layers=layers, chat=chat)

    def to_json(self) -> Json:
        """Return a plain dict."""
        return {
            **asdict(self),
            "moe_layers": list(self.moe_layers),
            "chat": self.chat.to_json(),
        }


@dataclass(frozen=True)
class VocabularyFacts:
    """The tokens of a model, and its chat template.

    begin, end: the texts of the tokens that begin and end a sequence. ending_tokens: those that end
    an answer. template: Jinja, or "".
    """

    n_token: int
    begin: str
    end: str
    ending_tokens: tuple[int, ...]
    template: str


@dataclass(frozen=True)
class CacheFacts:
    """The settings of the cache in force and those asked for. n_slot: resident experts per layer.

    asked_method: the method asked for. method: "stock" where llama.cpp runs unpatched.
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
    """The predictor in words, or ""."""
    remark: str = ""
    """Sentences that say why predictor weights or a pack that were found are not used, or ""."""
    asked_method: str = ""
    n_thread: int = 0
    kv_type: str = ""
    device: str = "cpu"
    """"cpu", or the names of the devices, separated by commas."""
    hybrid: str = "off"
    """How missing experts of a device are handled, of backend.protocol.settings.HYBRID."""
    drafts: str = "off"
    """Whether tokens are guessed: "off", also where the model cannot drop wrong ones, "auto", or
    "mtp": with the model's layer for multi-token prediction, too."""
    host_bytes: int = 0
    """Size of the host store, which keeps experts in RAM for devices; 0: there is none."""
    cpu_bytes: int = 0
    """Part of `bytes` in RAM, for layers that the CPU computes beside devices."""
    ram_dense_bytes: int = 0
    """Size of the other weights in RAM beside devices."""
    pack: str = ""
    """Path of the pack that experts are read from; "": they are read from the model."""
    warnings: str = ""
    """Warnings of llama.cpp while it loaded the model and made its context, a line each."""
    overridden: str = ""
    """Sentences on the settings by hand, and what the automatic ones would be, or ""."""
    layout: str = "file"
    """Layout of the experts in memory: "file", as in the model, or "repacked", as in stock
    llama.cpp."""

    @classmethod
    def of(cls, settings: EngineConfig, **facts: Any) -> CacheFacts:
        """Return these facts. Settings with a control that are not given are those of `settings`.

        A setting is shown as in force if it has a field of the same name here.
        """
        names = {field.name for field in fields(cls)}
        shown = {name for name, rule in settings.rules().items() if rule.title} & names
        return cls(**{**{name: getattr(settings, name) for name in shown}, **facts})

    @property
    def runs(self) -> str:
        """How the model runs and why: with the cache and its rate in force, or without."""
        if self.mode != "plain":
            how = text("runs.cached", n=self.n_slot, rate=self.rate, method=self.method)
        elif self.min_rate < 1.0:
            how = text("runs.resident")
        else:
            how = text("runs.uncached")
        return joined(how, self.reason)

    @classmethod
    def from_json(cls, data: Json) -> CacheFacts:
        """Read the `cache` object of a message."""
        values = scalars(cls, data)
        return cls(**{**values, "mode": values["mode"] or "plain"})

    def to_json(self) -> Json:
        """Return a plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class LearningFacts:
    """The state of learning from chats."""

    allowed: bool
    n_bytes: int
    """Size of the recordings of all models on the drive."""
    most_bytes: int
    """Limit for the loaded model; 0 where none is loaded."""
    n_token: int
    enough_tokens: int
    share: float | None
    """Progress of the training, 0 to 1; None where none runs."""
    can_learn: bool
    """False where the loaded model cannot be learnt; `sentence` says why."""
    sentence: str

    @classmethod
    def from_json(cls, data: Json) -> LearningFacts:
        """Read the `state` object of a message."""
        share = data.get("share")
        return cls(**scalars(cls, data), share=None if share is None else float(share))

    def to_json(self) -> Json:
        """Return a plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class Option:
    """A change of settings and its forecast speed-up. times: 2.0 means twice as fast."""

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
    """The stall share of an answer's tokens, and the best worthwhile change of each kind.

    scale: measured stall divided by simulated stall, with the present settings; 0 where nothing was
    simulated. reason: why there is no forecast, or "". fault: why the simulation failed, or "".
    """

    stall_share: float
    cache: Option | None = None
    method: Option | None = None
    scale: float = 0.0
    reason: str = ""
    fault: str = ""

    @classmethod
    def from_json(cls, data: Json) -> Advice:
        """Read a message "advice"."""
        return cls(
            **scalars(cls, data),
            cache=Option.from_json(data.get("cache")),
            method=Option.from_json(data.get("method")),
        )

    def to_json(self) -> Json:
        """Return a plain dict."""
        return asdict(self)
