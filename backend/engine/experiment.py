"""What an experiment changes of an engine; nothing, unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend import _native


@dataclass(frozen=True)
class Study:
    """See each field. `forced` must hear of every pass before the patch or llama.cpp does."""

    forced: _native.ForcedRouting | None = None
    """Chooses the experts in the routers' place."""
    future: _native.Future | None = None
    """All passes that will come, from the making of the cache on."""
    accuracy: float | None = None
    """In place of a method's predictor one that knows the future and is right this often."""
    lookahead: int = 1
    """How many layers ahead that one tells of."""
    link_bytes_per_s: float = 0.0
    """What copies bring at most; 0: as much as the drive gives."""


NO_STUDY = Study()
