"""What the user wants of the engine, beside the model: one switch, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass

from backend.protocol.settings import EngineConfig

DEFAULTS = EngineConfig()


@dataclass(frozen=True)
class EngineChoice:
    """The user's settings of the engine.

    automatic: the method `auto`, with the cache rate and the context that memory permits; cache
    rate, method and context length of this then rest.
    """

    automatic: bool = True
    cache_rate: float = DEFAULTS.cache_rate
    method: str = DEFAULTS.method
    context_length: int = DEFAULTS.context_length
    n_thread: int = DEFAULTS.n_thread
    kv_type: str = DEFAULTS.kv_type
    device: str = DEFAULTS.device
    hybrid: str = DEFAULTS.hybrid

    def to_json(self) -> dict[str, object]:
        """Return the fields of the messages `load` and `configure`."""
        return {
            "automatic": self.automatic,
            "cache_rate": 1.0 if self.automatic else self.cache_rate,
            "method": "auto" if self.automatic else self.method,
            "context_length": self.context_length,
            "n_thread": self.n_thread,
            "kv_type": self.kv_type,
            "device": self.device,
            "hybrid": self.hybrid,
        }
