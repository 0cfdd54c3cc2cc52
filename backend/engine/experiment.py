"""The changes that an experiment makes to an engine; the default makes none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend import _native


@dataclass(frozen=True)
class Experiment:
    """Changes to an engine. Tell `forced` of every pass before the patch or llama.cpp."""

    forced: _native.ForcedRouting | None = None
    """Chooses the experts in the routers' place."""
    future: _native.Future | None = None
    """All passes that follow once the cache is built."""
    accuracy: float | None = None
    """Replace the method's predictor by one that knows the future and has this accuracy."""
    lookahead: int = 1
    """Layers ahead that this predictor forecasts."""
    link_bytes_per_s: float = 0.0
    """Limit of the copies' bandwidth; 0: the bandwidth of the drive."""


NO_EXPERIMENT = Experiment()
