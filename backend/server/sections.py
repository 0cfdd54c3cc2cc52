"""Cuts an answer into sections that follow each other: thoughts, texts and calls of tools.

OpenAI's responses call them output items, Anthropic's messages content blocks. Both announce the
beginning and the end of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backend.protocol.chat import Delta, ToolCall

OPEN, GAIN, CLOSE = "open", "gain", "close"


@dataclass
class Section:
    """A section of the kind "thought", "text" or "call". index: its place in the answer.

    call: the call, without its arguments, which are the text. call_index: its place among calls.
    """

    kind: str
    index: int
    text: str = ""
    call: ToolCall | None = None
    call_index: int = -1


@dataclass(frozen=True)
class Step:
    """A section begins (OPEN), ends (CLOSE), or gains a text."""

    action: str
    section: Section
    text: str = ""


class Sections:
    """The sections of an answer so far."""

    def __init__(self) -> None:
        self.all: list[Section] = []
        self._is_open = False

    def add(self, delta: Delta) -> Iterator[Step]:
        """Yield the steps that a delta makes."""
        for kind, text in (("thought", delta.reasoning), ("text", delta.content)):
            if text:
                yield from self._gain(kind, text)
        for index, call in sorted(delta.tool_calls.items()):
            yield from self._gain("call", call.arguments, call, index)

    def close(self) -> Iterator[Step]:
        """Yield the end of the last section."""
        if self._is_open:
            self._is_open = False
            yield Step(CLOSE, self.all[-1])

    def _gain(
        self, kind: str, text: str, call: ToolCall | None = None, call_index: int = -1
    ) -> Iterator[Step]:
        last = self.all[-1] if self._is_open else None
        if last is None or (last.kind, last.call_index) != (kind, call_index):
            yield from self.close()
            last = Section(kind, len(self.all), call=call, call_index=call_index)
            self.all.append(last)
            self._is_open = True
            yield Step(OPEN, last)
        if text:
            last.text += text
            yield Step(GAIN, last, text)
