"""The system prompt and the sampling settings of a model or a chat."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from backend.system.kept_file import parse_json

# The sampling settings, with their smallest and largest value.
RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 5), "top_k": (0, 1000), "top_p": (0, 1), "min_p": (0, 1),
    "repeat_penalty": (0.5, 2), "seed": (0, 2**31),
}  # fmt: skip
WHOLE = {"top_k", "seed"}
SYSTEM_CHARS = 100_000


@dataclass(frozen=True)
class Preset:
    """A system prompt and sampling settings. Missing settings keep the engine's default."""

    system: str = ""
    sampling: dict[str, float] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the preset as JSON."""
        return json.dumps({"system": self.system, "sampling": self.sampling})

    @classmethod
    def from_text(cls, text: str | None) -> Preset | None:
        """Parse JSON. Return None if it is empty or invalid."""
        try:
            return cls.from_json(parse_json(text)) if text else None
        except ValueError:
            return None

    @classmethod
    def from_json(cls, data: Any) -> Preset:
        """Check parsed JSON. Raises ValueError."""
        if not isinstance(data, dict):
            raise ValueError("the preset is not an object")
        system, sampling = data.get("system", ""), data.get("sampling", {})
        if not isinstance(system, str) or len(system) > SYSTEM_CHARS:
            raise ValueError("the system prompt is not a text of reasonable length")
        if not isinstance(sampling, dict):
            raise ValueError("the sampling settings are not an object")
        checked: dict[str, float] = {}
        for name, value in sampling.items():
            if name not in RANGES or isinstance(value, bool):
                raise ValueError("a sampling setting is unknown")
            low, high = RANGES[name]
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError("a sampling setting is not a number")
            if not low <= value <= high or (name in WHOLE and value != int(value)):
                raise ValueError("a sampling setting is out of range")
            checked[name] = int(value) if name in WHOLE else float(value)
        return cls(system, checked)
