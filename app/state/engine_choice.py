"""The user's settings of the engine beside the model: one switch, and those that it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.protocol.settings import EngineConfig, setting

OF_MODEL = ("automatic", "by_hand", "cache_rate", "method", "context_length", "kv_type")
"""The settings that belong to a model. The others belong to the machine."""


@dataclass(frozen=True)
class EngineChoice(EngineConfig):
    """The user's settings of the engine. Raises ValueError, one sentence, as EngineConfig does.

    If `automatic` is set, memory decides about the cache rate and the context, and the method is
    `auto`. Settings of these three that are in `by_hand` keep the user's value.
    """

    automatic: bool = setting(True, "switch")

    def of_model(self) -> dict[str, Any]:
        """Return the settings that belong to a model, by name."""
        return {name: getattr(self, name) for name in OF_MODEL}

    def to_message(self) -> dict[str, Any]:
        """Return the fields of the messages `load` and `configure`."""
        asked = {"cache_rate": 1.0, "method": "auto"} if self.automatic else {}
        given = {name: value for name, value in asked.items() if name not in self.by_hand}
        return {**self.to_json(), **given}
