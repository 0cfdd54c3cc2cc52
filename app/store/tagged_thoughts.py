"""Find a thought marked by tags at the start of an answer that was kept with its thought inside.

Databases of version 1 and exports of version 1 hold such answers. Some chat templates wrote the
opening tag, so that only the closing tag is in the text.
"""

from __future__ import annotations

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<seed:think>", "</seed:think>"),
)


def split(text: str) -> tuple[str, str]:
    """Return the thought and the answer. Without a thought the answer is the whole text."""
    start = len(text) - len(text.lstrip())
    for opening, closing in _TAGS:
        if text.startswith(opening, start):
            thought, _, answer = text[start + len(opening) :].partition(closing)
            return thought.strip(), answer.lstrip()
    thought, closing, answer = text.partition("</think>")
    if closing and "<think>" not in text:
        return thought.strip(), answer.lstrip()
    return "", text
