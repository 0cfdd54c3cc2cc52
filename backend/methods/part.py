"""The parts that methods are composed of, by the names that the native registries know.

A part is a name with numbers; what it does is said where it is implemented, in backend/native/core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Part:
    """A predictor, eviction, scheduler or allocation: its name, and numbers other than its own."""

    name: str
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value:g}" for key, value in self.numbers.items())
        return f"{self.name} ({said})" if said else self.name


def part(name: str, **numbers: float) -> Part:
    """Make a part with some numbers, such as omega=128 and rho=0.25 for lcp."""
    return Part(name, MappingProxyType({key: float(value) for key, value in numbers.items()}))
