"""The parts of methods, by the names in the native registries.

A part is a name with numbers. Its implementation in backend/native/core describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Part:
    """A predictor, eviction, scheduler or allocation. numbers: override its own defaults."""

    name: str
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        numbers = ", ".join(f"{key} {value:g}" for key, value in self.numbers.items())
        return f"{self.name} ({numbers})" if numbers else self.name


def part(name: str, **numbers: float) -> Part:
    """Return a part with numbers, such as omega=128 and rho=0.25 for lcp."""
    return Part(name, MappingProxyType({key: float(value) for key, value in numbers.items()}))
