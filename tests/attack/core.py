"""The deterministic simulation of the cache's core (tests/core/simulation.py)."""

from __future__ import annotations

from pathlib import Path

from simulation import simulate


def attack(seed: int, _folder: Path) -> str:
    """Simulate a core of a method, chosen like all else by the seed."""
    return simulate(seed)
