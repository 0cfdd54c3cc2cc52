"""Slots and cache rates: the only conversion between the two."""

from __future__ import annotations


def slots_of(rate: float, n_expert: int) -> int:
    """Return the slots of a cache rate: as many of n_expert as are at most this share of them."""
    n_slot = min(round(rate * n_expert), n_expert)
    return n_slot if n_slot == 0 or rate_of(n_slot, n_expert) <= rate else n_slot - 1


def rate_of(n_slot: int, n_expert: int) -> float:
    """Return the cache rate of n_slot; 1 for a model without experts. Inverse of slots_of."""
    return n_slot / n_expert if n_expert else 1.0
