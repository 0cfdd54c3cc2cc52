"""What the simulator says would have made an answer faster (backend/advice.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One change, and how many times as fast it is forecast to make such an answer."""

    method: str
    n_slot: int
    rate: float
    cache_bytes: int
    times: float

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Option | None:
        """Read an option; None stays None."""
        if data is None:
            return None
        return cls(
            method=str(data["method"]),
            n_slot=int(data["n_slot"]),
            rate=float(data["rate"]),
            cache_bytes=int(data["cache_bytes"]),
            times=float(data["times"]),
        )


@dataclass(frozen=True)
class Advice:
    """Where the time of the answer's tokens went, and the best change of each kind, if any is.

    `reason`: why nothing could be forecast, in English; else empty.
    """

    stall_share: float
    cache: Option | None = None
    method: Option | None = None
    reason: str = ""

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> Advice:
        """Read a message. Raises KeyError, TypeError or ValueError for one that makes no sense."""
        return cls(
            stall_share=float(message["stall_share"]),
            cache=Option.from_json(message.get("cache")),
            method=Option.from_json(message.get("method")),
            reason=str(message.get("reason") or ""),
        )
