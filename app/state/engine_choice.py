"""What the user wants of the engine, beside the model: one switch, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.protocol.settings import EngineConfig, setting


@dataclass(frozen=True)
class EngineChoice(EngineConfig):
    """The user's settings of the engine. Raises ValueError, one sentence, as EngineConfig does.

    If `automatic` is set, memory decides about the cache rate and the context, and the method is
    `auto`. The cache rate, the method and the context length of the choice are then not in use.
    """

    automatic: bool = setting(True, "switch")

    def to_message(self) -> dict[str, Any]:
        """Return the fields of the messages `load` and `configure`."""
        asked = {"cache_rate": 1.0, "method": "auto"} if self.automatic else {}
        return {**self.to_json(), **asked}
