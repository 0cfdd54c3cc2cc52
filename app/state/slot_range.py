"""What a cache may hold."""

from __future__ import annotations

from dataclasses import dataclass

from backend.methods.slots import rate_of, slots_of
from backend.protocol.status import CacheFacts, ModelFacts


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
