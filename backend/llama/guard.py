"""Keeps text that others wrote from becoming control tokens.

llama.cpp turns the text of a control token into that token wherever it stands in a prompt, so a
tool's output, a file or a pasted page could end its own turn and begin another one. `Guard` marks
these texts in messages before they are rendered. The prompt is then split at the marks, and each
part becomes tokens on its own: the model reads the same characters, as ordinary text. A text
without such a place is not changed, and neither are its tokens.

In vocabularies of SentencePiece that begin every text with a space, a part begins with one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from backend.protocol.chat import ChatOptions, Json

_MARK = "\ufdd0"  # a code point that Unicode reserves as no character
MEDIA = "<__media__>"
"""Stands for an image in a rendered prompt."""


class Guard:
    """The control tokens of a vocabulary.

    control: their texts. framing: texts of other tokens with which a template frames what a tool
    says; they are marked in messages of the role "tool" only.
    """

    def __init__(self, control: Iterable[str], framing: Iterable[str] = ()) -> None:
        self._control = _Texts(control)
        self._framing = _Texts([*self._control.texts, *framing])

    def messages(self, messages: Sequence[Json]) -> list[Json]:
        """Return messages with marks in what users and tools said.

        In a conversation with images, no text of any role stands for one.
        """
        by_role = {"user": self._control, "tool": self._framing}
        other: _Texts | None = None
        if any(part["type"] == "image" for m in messages for part in _parts(m)):
            other = _Texts([MEDIA])
            by_role = {role: _Texts([*texts.texts, MEDIA]) for role, texts in by_role.items()}
        return [
            message if texts is None else _with_content(message, texts)
            for message in messages
            for texts in (by_role.get(message["role"], other),)
        ]

    def options(self, options: ChatOptions) -> ChatOptions:
        """Return options with marks in the descriptions of tools, which servers write."""
        if not options.tools:
            return options
        return replace(options, tools=tuple(self._described(tool) for tool in options.tools))

    def _described(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._framing.marked(item)
                if name == "description" and isinstance(item, str)
                else self._described(item)
                for name, item in value.items()
            }
        return [self._described(item) for item in value] if isinstance(value, list) else value


class _Texts:
    """Texts of tokens, found at any place of another text, also where they overlap."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(text for text in texts if len(text) > 1 and not text.isspace())
        self._lengths = sorted({len(text) for text in self.texts})
        first = "".join(re.escape(c) for c in sorted({text[0] for text in self.texts}))
        self._first = re.compile(f"[{first}]" if first else "(?!)")

    def marked(self, text: str) -> str:
        """Return the text with a mark behind the first character of every such text in it."""
        text = text.replace(_MARK, "")
        pieces, begin = [], 0
        for match in self._first.finditer(text):
            place = match.start()
            if any(text[place : place + n] in self.texts for n in self._lengths):
                pieces.append(text[begin : place + 1])
                begin = place + 1
        return _MARK.join([*pieces, text[begin:]])


def _parts(message: Json) -> list[Json]:
    content = message["content"]
    return content if isinstance(content, list) else []


def _with_content(message: Json, texts: _Texts) -> Json:
    content = message["content"]
    if content is None:
        return message
    if isinstance(content, str):
        marked: Any = texts.marked(content)
    else:
        marked = [
            {**part, "text": texts.marked(part["text"])} if part.get("type") == "text" else part
            for part in content
        ]
    return message if marked == content else {**message, "content": marked}


def unmarked(text: str) -> str:
    """Return a rendered text without marks."""
    return text.replace(_MARK, "")


def tokens_of(text: str, tokenize: Callable[[str, bool], list[int]], add_bos: bool) -> list[int]:
    """Return the tokens of a rendered text with marks. tokenize: (text, add_bos) -> tokens."""
    begin, *rest = text.split(_MARK)
    tokens = tokenize(begin, add_bos)
    for part in rest:
        tokens += tokenize(part, False)
    return tokens


def framing_texts(user_defined: Iterable[str], template: str) -> list[str]:
    """Return the tags among the tokens that a vocabulary's maker defined and a template names."""
    return [text for text in user_defined if text[:1] in ("<", "[") and text in template]
