"""The methods by name: each a composition of the core's parts in a few lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Schedule:
    """The ordered scheduler's steps, each on its own (ProMoE, Figures 12 and 13)."""

    chunks: bool = True
    """Copy matrix by matrix; otherwise whole experts."""
    early_preemption: bool = True
    """At the gate, all needed copies are queued; otherwise each when its expert's turn comes."""
    reorder: bool = True
    """Compute what is ready first; otherwise in the router's order."""


@dataclass(frozen=True)
class Method:
    """What predicts, what moves in which order; eviction is LRU and allocation uniform so far."""

    name: str
    sentence: str
    paper: str
    predictor: str | None = None
    """"next_router", or None for a reactive cache."""
    min_precision: float = 0.0
    """Ranks of a forecast that are right less often than this are not fetched."""
    schedule: Schedule = field(default_factory=Schedule)


_BASE = Schedule(chunks=False, early_preemption=False, reorder=False)

_ALL = (
    Method(
        "promoe",
        "Prefetches what the next layer's router predicts; needed experts overtake, ready ones "
        "are computed first.",
        "ProMoE, sections 5 and 6, with MoEpic's Eq. 3 as predictor",
        predictor="next_router",
        min_precision=0.85,
    ),
    Method(
        "lru",
        "Reads an expert when its turn to be computed comes, and keeps the most recently used.",
        "ProMoE, section 7.1 and Figure 12 (Base)",
        schedule=_BASE,
    ),
    Method(
        "lru-overlapped",
        "As lru, but at the gate all missing experts are ordered, and computed as they arrive.",
        "ProMoE, sections 5.1 to 5.3, without its prediction",
    ),
    Method(
        "promoe-prefetch",
        "The first step of ProMoE's ablation: prefetching, and nothing else.",
        "ProMoE, Figure 12",
        predictor="next_router",
        schedule=_BASE,
    ),
    Method(
        "promoe-chunks",
        "The second step: prefetching matrix by matrix.",
        "ProMoE, Figure 12",
        predictor="next_router",
        schedule=Schedule(early_preemption=False, reorder=False),
    ),
    Method(
        "promoe-preempt",
        "The third step: needed experts overtake predicted ones.",
        "ProMoE, Figure 12",
        predictor="next_router",
        schedule=Schedule(reorder=False),
    ),
)

METHODS: MappingProxyType[str, Method] = MappingProxyType({m.name: m for m in _ALL})
