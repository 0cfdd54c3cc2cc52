"""The system prompt, the sampling settings and the thinking of a model or a chat."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from backend.protocol.chat import ChatFacts, ChatOptions, Json
from backend.protocol.settings import Sampling
from backend.system.kept_file import parse_json

RULES = {name: rule for name, rule in Sampling.rules().items() if rule.window}
"""The rules of the sampling settings that a preset may have."""
SYSTEM_CHARS = 100_000
EFFORT_CHARS = 40


@dataclass(frozen=True)
class Preset:
    """A system prompt and sampling settings. Missing settings keep the engine's default.

    thinking: None leaves it to the model's chat template. effort: the template variable
    reasoning_effort, or "". tools: whether tools are offered to the model.
    """

    system: str = ""
    sampling: dict[str, float] = field(default_factory=dict)
    thinking: bool | None = None
    effort: str = ""
    tools: bool = True

    def to_text(self) -> str:
        """Return the preset as JSON."""
        data: dict[str, Any] = {"system": self.system, "sampling": self.sampling}
        if self.thinking is not None:
            data["thinking"] = self.thinking
        if self.effort:
            data["effort"] = self.effort
        if not self.tools:
            data["tools"] = False
        return json.dumps(data)

    def options(self, chat: ChatFacts, tools: tuple[Json, ...] = ()) -> ChatOptions:
        """Return the options of an answer, without those that a model's template lacks."""
        return ChatOptions(
            tools=tools if chat.tools and self.tools else (),
            thinking=self.thinking if chat.thinking == "switch" else None,
            effort=self.effort if self.effort in chat.efforts else "",
        )

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
            if name not in RULES or isinstance(value, bool):
                raise ValueError("a sampling setting is unknown")
            low, high = RULES[name].window or (-math.inf, math.inf)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError("a sampling setting is not a number")
            is_count = RULES[name].kind == "count"
            if not low <= value <= high or (is_count and value != int(value)):
                raise ValueError("a sampling setting is out of range")
            checked[name] = int(value) if is_count else float(value)
        thinking, effort = data.get("thinking"), data.get("effort", "")
        if not (thinking is None or isinstance(thinking, bool)):
            raise ValueError("the switch of thinking is neither on nor off")
        if not isinstance(effort, str) or len(effort) > EFFORT_CHARS:
            raise ValueError("the effort of thinking is not a short text")
        tools = data.get("tools", True)
        if not isinstance(tools, bool):
            raise ValueError("the switch of tools is neither on nor off")
        return cls(system, checked, thinking, effort, tools)
