"""The system prompt, the sampling settings and the thinking of a model or a chat."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from app.state.engine_choice import EngineChoice
from backend.protocol.chat import ChatFacts, ChatOptions, Json
from backend.protocol.settings import Sampling
from backend.system.kept_file import parse_json

RULES = {name: rule for name, rule in Sampling.rules().items() if rule.window}
"""The rules of the sampling settings that a preset may have."""
SYSTEM_CHARS = 100_000
EFFORT_CHARS = 40
NAME_CHARS = 60
N_STOP_MAX = 16
STOP_CHARS = 200
TOKENS_MAX = 1 << 20


@dataclass(frozen=True)
class Preset:
    """A system prompt and sampling settings. Missing settings keep the engine's default.

    thinking: None leaves it to the model's chat template. effort: the template variable
    reasoning_effort, or "". tools: whether tools are offered to the model. stops: texts that end an
    answer. max_tokens: the longest answer; 0: any.
    """

    system: str = ""
    sampling: dict[str, float] = field(default_factory=dict)
    thinking: bool | None = None
    effort: str = ""
    tools: bool = True
    stops: tuple[str, ...] = ()
    max_tokens: int = 0

    def to_text(self) -> str:
        """Return the preset as JSON."""
        data: dict[str, Any] = {"system": self.system, "sampling": self.sampling}
        if self.thinking is not None:
            data["thinking"] = self.thinking
        if self.effort:
            data["effort"] = self.effort
        if not self.tools:
            data["tools"] = False
        if self.stops:
            data["stops"] = list(self.stops)
        if self.max_tokens:
            data["max_tokens"] = self.max_tokens
        return json.dumps(data)

    def options(self, chat: ChatFacts, tools: tuple[Json, ...] = ()) -> ChatOptions:
        """Return the options of an answer, without those that a model's template lacks."""
        return ChatOptions(
            tools=tools if chat.tools and self.tools else (),
            thinking=self.thinking if chat.thinking == "switch" else None,
            effort=self.effort if self.effort in chat.efforts else "",
            stops=self.stops,
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
        stops, max_tokens = data.get("stops", []), data.get("max_tokens", 0)
        if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
            raise ValueError("the stops are not texts")
        if len(stops) > N_STOP_MAX or max(map(len, stops), default=0) > STOP_CHARS:
            raise ValueError("there are too many stops, or one is too long")
        if type(max_tokens) is not int or not 0 <= max_tokens <= TOKENS_MAX:
            raise ValueError("the longest answer is not a number of tokens")
        return cls(system, checked, thinking, effort, tools, tuple(stops), max_tokens)


@dataclass(frozen=True)
class NamedPreset:
    """A preset that the user has saved. engine: settings of EngineChoice.of_model(), or empty."""

    name: str
    preset: Preset
    engine: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the preset as JSON."""
        preset = json.loads(self.preset.to_text())
        return {"name": self.name, "preset": preset, "engine": self.engine}

    @classmethod
    def from_json(cls, data: Any) -> NamedPreset:
        """Check parsed JSON. Raises ValueError, KeyError or TypeError."""
        name, engine = data["name"], data["engine"]
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS:
            raise ValueError("the name is not a short text")
        if not isinstance(engine, dict):
            raise ValueError("the engine's settings are not an object")
        own = EngineChoice.from_message(engine).of_model() if engine else {}
        return cls(name, Preset.from_json(data["preset"]), own)
