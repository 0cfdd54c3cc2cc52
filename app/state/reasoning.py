"""Find a model's reasoning at the start of its answer. No Qt.

Models mark their reasoning with tags. Some chat templates write the opening tag themselves, so that
only the closing tag is in the text.
"""

from __future__ import annotations

from dataclasses import dataclass

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<seed:think>", "</seed:think>"),
)


@dataclass(frozen=True)
class Parts:
    """Positions in a text: the reasoning is text[begin:end], the answer text[rest:]."""

    begin: int
    end: int
    rest: int
    is_open: bool  # the reasoning has not ended

    @property
    def has_thought(self) -> bool:
        """Return whether there is any reasoning."""
        return self.rest > 0 or self.is_open


NOTHING = Parts(0, 0, 0, False)


def find(text: str) -> Parts:
    """Find the reasoning at the start of an answer."""
    start = len(text) - len(text.lstrip())
    for opening, closing in _TAGS:
        if text.startswith(opening, start):
            begin = start + len(opening)
            end = text.find(closing, begin)
            if end < 0:
                return Parts(begin, _end_before_tag(text, closing), len(text), True)
            return Parts(begin, end, end + len(closing), False)
    if 0 < len(text) - start < 32 and any(tag.startswith(text[start:]) for tag, _ in _TAGS):
        return Parts(len(text), len(text), len(text), True)  # perhaps the first part of a tag
    end = text.find("</think>")
    if end >= 0 and "<think>" not in text:
        return Parts(0, end, end + len("</think>"), False)
    return NOTHING


def without_thought(text: str) -> str:
    """Return the answer after the reasoning."""
    parts = find(text)
    return text[parts.rest :].lstrip() if parts.has_thought else text


def _end_before_tag(text: str, closing: str) -> int:
    """Return the end of the text without letters that may begin the closing tag."""
    for n in range(min(len(closing) - 1, len(text)), 0, -1):
        if text.endswith(closing[:n]):
            return len(text) - n
    return len(text)
