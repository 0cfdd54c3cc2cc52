"""The cost and gain of a possible pack, and the command that measures or writes one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from backend.system import children


@dataclass(frozen=True)
class PackOffer:
    """A possible pack: its size in bytes and its speed-ups.

    read_gain: speed-up on this drive of reading an expert in one piece, not matrix by matrix.
    compute_gain: speed-up on this processor of the pack's layout over the file's.
    """

    path: str
    layout: str
    needed_bytes: int
    free_bytes: int
    read_gain: float
    compute_gain: float
    expert_share: float
    """Share of the experts in the weights that a token uses."""

    @property
    def fits(self) -> bool:
        """Whether the disk has room for the pack."""
        return self.needed_bytes <= self.free_bytes

    def speed_gain(self, compute_s: float, stall_s: float, other_s: float = 0.0) -> float:
        """Forecast the speed-up of a token that now takes these seconds (TokenCost)."""
        dense_s = compute_s * (1 - self.expert_share)
        experts_s = compute_s * self.expert_share / self.compute_gain
        now_s = compute_s + stall_s + other_s
        then_s = dense_s + experts_s + stall_s / self.read_gain + other_s
        return now_s / then_s if then_s > 0 else 1.0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PackOffer:
        """Read the output of `outrider pack --offer --json`. Raises KeyError, TypeError."""
        return cls(**{item.name: data[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, with `fits`."""
        return {**asdict(self), "fits": self.fits}


def pack_command(model: Path, *options: str) -> list[str]:
    """Return the command that runs `outrider pack` on a model."""
    return children.command("backend.cli", "pack", str(model), "--json", *options)
