"""Keeps text that others wrote from becoming control tokens.

llama.cpp turns the text of a control token into that token wherever it stands in a prompt, so a
tool's output, its schema, a file or a copied answer could end its own turn and begin another one.
Every conversation passes one border before it is rendered: `Guard` puts marks into every text that
neither the person's settings nor the template wrote, whatever field it stands in. After rendering,
`resolved` keeps the marks that stand within the text of a control token and drops the others. The
prompt is split at the kept marks, and each part becomes tokens on its own: the model reads the same
characters, as ordinary text. A prompt without such a place has the same text and tokens as before.

Marks stand where a template could make a control token of what it receives:

- behind each character that begins a control token, so that no cut, join or replacement within the
  template completes one;
- at the beginning or end of a text that could go on with a control token which the template has
  begun, as a name in "<" + name + ">".

Templates look at texts, too. A tag that a template names, and that is no control token, stays
whole ("</think>" in an answer). So does a text that is one word of the template ("type").

In vocabularies of SentencePiece that begin every text with a space, a part begins with one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from backend.protocol.chat import Json

_MARK = "\ufdd0"  # a code point that Unicode reserves as no character
MEDIA = "<__media__>"
"""Stands for an image in a rendered prompt."""

_OWN_ROLES = ("system", "developer")
_ROLES = (*_OWN_ROLES, "user", "assistant", "tool")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_UNIT = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_TAG = re.compile(r"<[^<>\[\]\s'\"{}]+>|\[[^<>\[\]\s'\"{}]+\]")
_ESCAPES_ALL = re.compile(r"ensure_ascii\s*=\s*[Tt]rue")
_NOTHING = re.compile(r"(?!)")


class Guard:
    """The control tokens of a vocabulary.

    control: their texts. framing: texts of other tokens with which a template frames what a tool
    says; they are marked wherever a person or an answer does not speak. template: its source.
    """

    def __init__(
        self, control: Iterable[str] = (), framing: Iterable[str] = (), template: str = ""
    ) -> None:
        self._control = list(control)
        self._framing = list(framing)
        self._template = template
        self._is_escaped = bool(_ESCAPES_ALL.search(template))
        self._sets: dict[bool, tuple[_Texts, _Texts]] = {}
        self._media = _Texts([MEDIA])

    def messages(self, messages: Sequence[Json]) -> list[Json]:
        """Return messages with marks in all texts but those of the system prompt.

        messages: in the form that llama.cpp reads; the arguments of calls are JSON in text. In a
        conversation with images, no text of any role stands for one.
        """
        images = has_images(messages)
        return [self._message(message, images) for message in messages]

    def words(self, text: str, images: bool = False) -> str:
        """Return what a person or the model said, with marks."""
        return self._texts(images)[0].marked(text)

    def values(self, value: Any, images: bool = False) -> Any:
        """Return a value of JSON with marks in all its texts and keys, as of a schema."""
        return self._texts(images)[1].values(value)

    def tools(self, tools: Sequence[Json], images: bool = False) -> list[Json]:
        """Return tools in OpenAI's form, with marks in everything that a server wrote."""
        texts = self._texts(images)[1]
        return [
            {
                **_fields(tool, texts, ("type", "function")),
                "type": tool.get("type", "function"),
                "function": _fields(
                    tool["function"], texts, ("name", "description", "parameters", "strict")
                ),
            }
            for tool in tools
        ]

    def resolved(self, prompt: str, images: bool = False) -> str:
        """Return a rendered text with only the marks that break the text of a control token."""
        if self._is_escaped:
            prompt = _unescaped(prompt)
        return self._texts(images)[1].resolved(prompt) if _MARK in prompt else prompt

    def _texts(self, images: bool) -> tuple[_Texts, _Texts]:
        """Return the texts that are marked where somebody speaks, and everywhere else."""
        if images not in self._sets:
            control = [*self._control, MEDIA] if images else self._control
            framed = [*control, *self._framing]
            self._sets[images] = (
                _Texts(control, self._template, self._framing),
                _Texts(framed, self._template),
            )
        return self._sets[images]

    def _message(self, message: Json, images: bool) -> Json:
        said, foreign = self._texts(images)
        role = message["role"]
        if role in _OWN_ROLES:
            own = self._media.broken if images else unmarked
            return {**message, "content": _content(message.get("content"), own)}
        marked: Json = _fields(
            message, foreign, ("role", "content", "reasoning_content", "tool_calls")
        )
        marked["role"] = role if role in _ROLES else foreign.values(role)
        if role == "user" or role == "assistant":
            marked["content"] = _content(message.get("content"), said.marked)
        else:
            marked["content"] = _content(message.get("content"), foreign.marked_result)
        if "reasoning_content" in message:
            marked["reasoning_content"] = said.values(message["reasoning_content"])
        if "tool_calls" in message:
            marked["tool_calls"] = [_call(call, foreign) for call in message["tool_calls"]]
        return marked


class _Texts:
    """Texts of tokens, and where they must be broken in another text.

    template: its words and tags stay whole in other texts. whole: further tags that stay whole.
    """

    def __init__(self, texts: Iterable[str], template: str = "", whole: Iterable[str] = ()) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1 and not text.isspace())
        lower = {text.lower() for text in self._texts}
        self._n_max = max(map(len, self._texts), default=0)
        self._lengths: dict[str, list[int]] = {}
        for text in self._texts:
            self._lengths.setdefault(text[0], []).append(len(text))
        self._lengths = {first: sorted(set(n)) for first, n in self._lengths.items()}
        self._firsts = _firsts(self._texts)
        signs = [c for c in self._lengths if not re.match(r"[\w\s\\]", c)]
        tags = {*_TAG.findall(template), *whole}
        tags = {tag for tag in tags if not _is_like(tag.lower(), lower, signs)}
        self._begins = _pattern(tags, signs)
        # Texts that begin like a word cannot have a mark behind each such letter.
        worded = sorted(text for text in lower if text[0] not in signs)
        self._worded = _ahead(worded)
        self._prefixes = {text[:n] for text in worded for n in range(1, len(text))}
        self._suffixes = {text[n:] for text in lower for n in range(1, len(text))}
        self._joined = "\0".join(sorted(lower))
        self._words = frozenset(re.findall(r"\w+", template))

    def values(self, value: Any) -> Any:
        """Return a value of JSON with marks in its texts and keys."""
        if isinstance(value, str):
            return self.marked(value)
        if isinstance(value, dict):
            return {self.marked(str(name)): self.values(item) for name, item in value.items()}
        return [self.values(item) for item in value] if isinstance(value, list) else value

    def marked(self, text: str) -> str:
        """Return the text with a mark wherever a control token may have to be broken."""
        text = unmarked(text)
        cuts = self._cuts(text)
        if (at := self._edge(text.strip())) is not None:
            cuts.append(len(text) - len(text.lstrip()) + at)
        return _cut(text, cuts)

    def marked_result(self, text: str) -> str:
        """Return the result of a tool with marks. JSON stays JSON; llama.cpp may read it."""
        text = unmarked(text)
        if text.lstrip()[:1] in ("{", "[") and _is_json(text):
            marked = self.marked_json(text)
            if not any(is_marked(self.broken(piece)) for piece in marked.split(_MARK)):
                return marked
        return self.marked(text)

    def marked_json(self, text: str) -> str:
        """Return JSON in text, with marks in its texts and keys; otherwise as it was written."""
        if self._prefixes:  # a mark could stand within an escape sequence
            return json.dumps(self.values(json.loads(text)), ensure_ascii=False)
        return _STRING.sub(self._marked_string, unmarked(text))

    def broken(self, text: str) -> str:
        """Return the text with a mark in every text of a token that it has, but nowhere else."""
        text = unmarked(text)
        cuts = [
            start + 1
            for match in self._firsts.finditer(text)
            for start in (match.start(),)
            if any(text[start : start + n] in self._texts for n in self._lengths[match[0]])
        ]
        return _cut(text, cuts)

    def resolved(self, prompt: str) -> str:
        """Return the prompt with only the marks that stand within the text of a token."""
        pieces = prompt.split(_MARK)
        text = "".join(pieces)
        cuts = list(accumulate(map(len, pieces[:-1])))
        return _cut(text, [at for at in cuts if self._is_within(text, at)])

    def _cuts(self, text: str) -> list[int]:
        cuts = [match.end() for match in self._begins.finditer(text) if match.lastgroup == "sign"]
        if self._prefixes:
            lower = text.lower()
            cuts += [match.start() + 1 for match in self._worded.finditer(lower)]
            n_most = min(self._n_max, len(lower)) if text not in self._words else 0
            cuts += [len(lower) - n + 1 for n in range(1, n_most) if lower[-n:] in self._prefixes]
        return cuts

    def _edge(self, text: str) -> int | None:
        """Return where a token must be broken that the template begins before this text.

        Return None if it cannot go on in the text. The mark is at the beginning only if there is
        no other place, because templates sort names.
        """
        if not text or text in self._words:
            return None
        begin = text[: self._n_max].lower()
        ends = (n for n in range(1, len(begin) + 1) if begin[:n] in self._suffixes)
        if (n := next(ends, None)) is not None:
            return 0 if n == 1 else 1
        is_within = len(text) <= self._n_max and "\0" not in begin and begin in self._joined
        return len(text) if is_within else None

    def _marked_string(self, match: re.Match[str]) -> str:
        """Return a string of JSON, with its quotes, with marks."""
        raw = match[0][1:-1]
        cuts = self._cuts(raw)
        text = (json.loads(match[0]) if "\\" in raw else raw).strip()
        at = self._edge(text)
        if at is not None:
            # An escape sequence is one character of the text.
            ends = [0] + [unit.end() for unit in _UNIT.finditer(raw) if not _is_space(unit[0])]
            first = next(unit.start() for unit in _UNIT.finditer(raw) if not _is_space(unit[0]))
            cuts.append(first if at == 0 else ends[1] if at == 1 else ends[-1])
        return f'"{_cut(raw, cuts)}"'

    def _is_within(self, text: str, at: int) -> bool:
        begin = max(at - self._n_max + 1, 0)
        return any(
            start < at < start + n and text[start : start + n] in self._texts
            for match in self._firsts.finditer(text, begin, at + 1)  # it looks one ahead
            for start in (match.start(),)
            for n in self._lengths[match[0]]
        )


def has_images(messages: Iterable[Json]) -> bool:
    """Return whether a conversation in llama.cpp's form has images."""
    return any(
        isinstance(part, dict) and part.get("type") == "media_marker"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def unmarked(text: str) -> str:
    """Return a text without marks."""
    return text.replace(_MARK, "")


def is_marked(text: str) -> bool:
    """Return whether a text has marks."""
    return _MARK in text


def python_value(value: Any) -> str:
    """Return a value with marks as Python writes it. Python would write a mark as an escape."""
    return _unescaped(repr(value))


def tokens_of(text: str, tokenize: Callable[[str, bool], list[int]], add_bos: bool) -> list[int]:
    """Return the tokens of a rendered text with marks. tokenize: (text, add_bos) -> tokens."""
    begin, *rest = text.split(_MARK)
    tokens = tokenize(begin, add_bos)
    known: dict[str, list[int]] = {}
    for part in rest:
        if part not in known:
            known[part] = tokenize(part, False)
        tokens += known[part]
    return tokens


def framing_texts(user_defined: Iterable[str], template: str) -> list[str]:
    """Return the tags among the tokens that a vocabulary's maker defined and a template names."""
    return [text for text in user_defined if text[:1] in ("<", "[") and text in template]


def _fields(table: Json, texts: _Texts, known: Sequence[str]) -> Json:
    """Return an object with marks everywhere but in the known names of fields."""
    return {
        name if name in known else texts.marked(name): texts.values(value)
        for name, value in table.items()
    }


def _content(content: Any, marked: Callable[[str], str]) -> Any:
    """Return the content of a message with marks in its texts, but not in what stands for images.

    marked: puts them into a text.
    """
    if isinstance(content, str):
        return marked(content)
    if not isinstance(content, list):
        return content
    return [
        {"type": part["type"], "text": marked(str(part.get("text", "")))}
        if isinstance(part, dict) and part.get("type") == "text"
        else part
        for part in content
    ]


def _call(call: Json, texts: _Texts) -> Json:
    """Return a call of a tool with marks."""
    function = call["function"]
    marked = _fields(function, texts, ("name", "arguments"))
    arguments = function.get("arguments")
    if isinstance(arguments, str) and _is_json(arguments):
        marked["arguments"] = texts.marked_json(arguments)
    fields = _fields(call, texts, ("id", "type", "function"))
    return {**fields, "type": "function", "function": marked}


def _cut(text: str, cuts: Iterable[int]) -> str:
    """Return the text with a mark at each of these places."""
    places = [0, *sorted(set(cuts)), len(text)]
    return _MARK.join(text[a:b] for a, b in pairwise(places))


def _unescaped(text: str) -> str:
    """Return a text in which marks that were written as escape sequences are marks again."""
    escape = f"\\u{ord(_MARK):04x}"
    return re.sub(rf"(?<!\\)((?:\\\\)*){re.escape(escape)}", rf"\1{_MARK}", text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_space(unit: str) -> bool:
    """Return whether a character of a string of JSON, or its escape sequence, is white space."""
    return unit.isspace() if len(unit) == 1 else str(json.loads(f'"{unit}"')).isspace()


def _is_like(tag: str, texts: Iterable[str], signs: Iterable[str]) -> bool:
    """Return whether a token may begin in a tag. Both are in small letters."""
    if any(sign in tag[1:] for sign in signs):
        return True
    return any(tag.startswith(text) or text.startswith(tag) for text in texts)


def _firsts(texts: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the first characters of texts where the second ones follow."""
    seconds: dict[str, set[str]] = {}
    for text in texts:
        seconds.setdefault(text[0], set()).add(text[1])
    found = (
        f"{re.escape(first)}(?=[{''.join(map(re.escape, sorted(following)))}])"
        for first, following in sorted(seconds.items())
    )
    return re.compile("|".join(found)) if seconds else _NOTHING


def _ahead(texts: Sequence[str]) -> re.Pattern[str]:
    """Return an expression that finds texts at every place, also where they overlap."""
    return re.compile(f"(?=(?:{'|'.join(map(re.escape, texts))}))") if texts else _NOTHING


def _pattern(tags: Iterable[str], signs: Sequence[str]) -> re.Pattern[str]:
    """Return what finds the signs as the group "sign", also as escapes of JSON, but not in tags."""
    if not signs:
        return _NOTHING
    escapes = ("".join(rf"\\u(?i:{unit:04x})" for unit in _units(sign)) for sign in signs)
    found = "|".join([*map(re.escape, signs), *escapes])
    whole = "|".join(map(re.escape, sorted(tags, key=len, reverse=True)))
    return re.compile(f"(?:{whole})|(?P<sign>{found})" if whole else f"(?P<sign>{found})")


def _units(letter: str) -> list[int]:
    data = letter.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
