"""The possible sizes of a model's cache."""

from __future__ import annotations

from dataclasses import dataclass

from backend.methods.slots import rate_of, slots_of
from backend.protocol.status import CacheFacts, ModelFacts


@dataclass(frozen=True)
class SlotRange:
    """The range of slots per layer, and the bytes of a slot."""

    n_slot_min: int
    n_expert: int
    bytes_per_slot: int  # over all MoE layers

    @classmethod
    def of(cls, model: ModelFacts, cache: CacheFacts) -> SlotRange:
        """Return a model's range: from the experts of one token to all experts of a layer."""
        smallest = max(model.n_expert_used, slots_of(cache.min_rate, model.n_expert), 1)
        return cls(
            n_slot_min=min(smallest, model.n_expert),
            n_expert=model.n_expert,
            bytes_per_slot=model.expert_bytes * len(model.moe_layers),
        )

    def rate(self, n_slot: int) -> float:
        """Return the cache rate that results in exactly `n_slot` slots."""
        return rate_of(n_slot, self.n_expert)

    def n_slot(self, rate: float) -> int:
        """Return the slots per layer of a cache rate, as the engine computes them."""
        return max(slots_of(rate, self.n_expert), self.n_slot_min)
