"""What the worker tells about a model, its cache and an answer, as typed values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class ModelFacts:
    """A loaded model, from the `loaded` message."""

    name: str
    path: str
    architecture: str
    n_layer: int
    moe_layers: tuple[int, ...]
    n_expert: int
    n_expert_used: int
    expert_bytes: int  # one expert of one layer, mean
    expert_bytes_total: int
    dense_bytes: int
    file_bytes: int
    context_length: int
    is_moe: bool

    @classmethod
    def from_json(cls, data: Json) -> ModelFacts:
        """Read the `model` object of a message; what is absent counts as nothing."""
        return cls(
            name=str(data.get("name") or ""),
            path=str(data.get("path") or ""),
            architecture=str(data.get("architecture") or ""),
            n_layer=int(data.get("n_layer") or 0),
            moe_layers=tuple(int(layer) for layer in data.get("moe_layers") or ()),
            n_expert=int(data.get("n_expert") or 0),
            n_expert_used=int(data.get("n_expert_used") or 0),
            expert_bytes=int(data.get("expert_bytes") or 0),
            expert_bytes_total=int(data.get("expert_bytes_total") or 0),
            dense_bytes=int(data.get("dense_bytes") or 0),
            file_bytes=int(data.get("file_bytes") or 0),
            context_length=int(data.get("context_length") or 0),
            is_moe=bool(data.get("is_moe")),
        )


@dataclass(frozen=True)
class CacheFacts:
    """The expert cache that is in force, from a `loaded` or `cache` message."""

    asked_rate: float
    rate: float
    min_rate: float
    n_slot: int  # resident experts of each layer
    bytes: int
    mode: str  # "cached" or "plain"
    reason: str
    method: str
    predictor: str = ""
    remark: str = ""
    asked_method: str = ""
    n_thread: int = 0
    kv_type: str = ""
    device: str = ""
    pack: str = ""  # the file that experts are read from; "": the model's own

    @classmethod
    def from_json(cls, data: Json) -> CacheFacts:
        """Read the `cache` object of a message."""
        return cls(
            asked_rate=float(data.get("asked_rate") or 0.0),
            rate=float(data.get("rate") or 0.0),
            min_rate=float(data.get("min_rate") or 0.0),
            n_slot=int(data.get("n_slot") or 0),
            bytes=int(data.get("bytes") or 0),
            mode=str(data.get("mode") or "plain"),
            reason=str(data.get("reason") or ""),
            method=str(data.get("method") or ""),
            predictor=str(data.get("predictor") or ""),
            remark=str(data.get("remark") or ""),
            asked_method=str(data.get("asked_method") or ""),
            n_thread=int(data.get("n_thread") or 0),
            kv_type=str(data.get("kv_type") or ""),
            device=str(data.get("device") or ""),
            pack=str(data.get("pack") or ""),
        )


@dataclass(frozen=True)
class SlotRange:
    """The experts per layer that a model's cache may hold, and what each choice weighs."""

    n_slot_min: int
    n_expert: int
    bytes_per_slot: int  # over all MoE layers

    @classmethod
    def of(cls, model: ModelFacts, cache: CacheFacts) -> SlotRange:
        """Return the range for a model: from what one token of one layer needs, to every expert."""
        smallest = max(model.n_expert_used, math.ceil(cache.min_rate * model.n_expert - 1e-6), 1)
        return cls(
            n_slot_min=min(smallest, model.n_expert),
            n_expert=model.n_expert,
            bytes_per_slot=model.expert_bytes * len(model.moe_layers),
        )

    def rate(self, n_slot: int) -> float:
        """Return the cache rate that gives exactly `n_slot`, however the other side rounds."""
        rate = n_slot / self.n_expert
        if math.floor(rate * self.n_expert) < n_slot:
            rate = math.nextafter(rate, 2.0)
        return min(rate, 1.0)

    def n_slot(self, rate: float) -> int:
        """Return the choice nearest to a rate."""
        return min(max(round(rate * self.n_expert), self.n_slot_min), self.n_expert)


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
    bytes_read: int = 0
    bytes_wasted: int = 0
    prefetches_useful: int = 0
    prefetches_wasted: int = 0
    stall_s: float = 0.0
    compute_s: float = 0.0
    other_s: float = 0.0
    layer_stall_s: dict[int, float] = field(default_factory=dict)  # by layer number
    tokens: tuple[TokenTime, ...] = ()
    decisions: tuple[str, ...] = ()  # of an adaptive method, each a sentence

    @classmethod
    def from_json(cls, data: Json) -> Statistics:
        """Read the `stats` object of a message."""
        return cls(
            n_prompt=int(data.get("n_prompt") or 0),
            n_token=int(data.get("n_token") or 0),
            ttft_s=float(data.get("ttft_s") or 0.0),
            tokens_per_s=float(data.get("tokens_per_s") or 0.0),
            hits=int(data.get("hits") or 0),
            late=int(data.get("late") or 0),
            misses=int(data.get("misses") or 0),
            bytes_read=int(data.get("bytes_read") or 0),
            bytes_wasted=int(data.get("bytes_wasted") or 0),
            prefetches_useful=int(data.get("prefetches_useful") or 0),
            prefetches_wasted=int(data.get("prefetches_wasted") or 0),
            stall_s=float(data.get("stall_s") or 0.0),
            compute_s=float(data.get("compute_s") or 0.0),
            other_s=float(data.get("other_s") or 0.0),
            layer_stall_s={
                int(layer["layer"]): float(layer.get("stall_s") or 0.0)
                for layer in data.get("layers") or ()
            },
            tokens=tuple(
                TokenTime(
                    float(token.get("compute_s") or 0.0),
                    float(token.get("stall_s") or 0.0),
                    float(token.get("other_s") or 0.0),
                )
                for token in data.get("tokens") or ()
            ),
            decisions=tuple(str(line) for line in data.get("decisions") or ()),
        )

    @property
    def requests(self) -> int:
        """How often the answer asked for an expert."""
        return self.hits + self.late + self.misses

    @property
    def total_s(self) -> float:
        """The time that the answer took, by its three parts."""
        return self.compute_s + self.stall_s + self.other_s

    @property
    def stall_share(self) -> float:
        """The share of the time that went to waiting for experts."""
        return self.stall_s / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True)
class LearningFacts:
    """How learning from chats stands, from a `learning` message."""

    allowed: bool
    n_bytes: int  # of all recordings
    most_bytes: int  # of the loaded model's; 0 without one
    share: float | None  # of a training in progress
    sentence: str

    @classmethod
    def from_json(cls, data: Json) -> LearningFacts:
        """Read the `state` object of a message."""
        share = data.get("share")
        return cls(
            allowed=bool(data.get("allowed")),
            n_bytes=int(data.get("n_bytes") or 0),
            most_bytes=int(data.get("most_bytes") or 0),
            share=None if share is None else float(share),
            sentence=str(data.get("sentence") or ""),
        )


@dataclass(frozen=True)
class Residency:
    """A snapshot of the cache: one byte for each expert of each MoE layer, layer by layer."""

    moe_layers: tuple[int, ...]
    n_expert: int
    data: bytes  # len(moe_layers) * n_expert
