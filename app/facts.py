"""What the worker tells about an answer, and what a cache may hold, as typed values."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.facts import CacheFacts, Json, ModelFacts, scalars
from backend.plan import rate_of, slots_of


@dataclass(frozen=True)
class SlotRange:
    """The experts per layer that a model's cache may hold, and what each choice weighs."""

    n_slot_min: int
    n_expert: int
    bytes_per_slot: int  # over all MoE layers

    @classmethod
    def of(cls, model: ModelFacts, cache: CacheFacts) -> SlotRange:
        """Return the range for a model: from what one token of one layer needs, to every expert."""
        smallest = max(model.n_expert_used, slots_of(cache.min_rate, model.n_expert), 1)
        return cls(
            n_slot_min=min(smallest, model.n_expert),
            n_expert=model.n_expert,
            bytes_per_slot=model.expert_bytes * len(model.moe_layers),
        )

    def rate(self, n_slot: int) -> float:
        """Return the cache rate that gives exactly `n_slot`."""
        return rate_of(n_slot, self.n_expert)

    def n_slot(self, rate: float) -> int:
        """Return what a rate asks for, as the engine reads it."""
        return max(slots_of(rate, self.n_expert), self.n_slot_min)


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
