"""What a pack would cost and bring, and the commands that find out and write one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from backend.system import children


@dataclass(frozen=True)
class PackOffer:
    """A pack that could be made: its space in bytes, and how much faster things would be.

    read_gain is measured on this drive: an expert in one piece, against its matrices one by one.
    compute_gain is measured on this processor: an expert in the pack's layout, against the file's.
    """

    path: str
    layout: str
    needed_bytes: int
    free_bytes: int
    read_gain: float
    compute_gain: float
    expert_share: float
    """Of the weights that a token is computed with, those of experts."""

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.needed_bytes <= self.free_bytes

    def speed_gain(self, compute_s: float, stall_s: float, other_s: float = 0.0) -> float:
        """Forecast by how much a token gets faster that now takes these seconds (TokenCost)."""
        dense_s = compute_s * (1 - self.expert_share)
        experts_s = compute_s * self.expert_share / self.compute_gain
        now_s = compute_s + stall_s + other_s
        then_s = dense_s + experts_s + stall_s / self.read_gain + other_s
        return now_s / then_s if then_s > 0 else 1.0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PackOffer:
        """Read what `outrider pack --offer --json` prints. Raises KeyError, TypeError."""
        return cls(**{item.name: data[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        """As a plain dict, with `fits`."""
        return {**asdict(self), "fits": self.fits}


def pack_command(model: Path, *options: str) -> list[str]:
    """Return a command that runs `outrider pack` on a model."""
    return children.command("backend.cli", "pack", str(model), "--json", *options)
