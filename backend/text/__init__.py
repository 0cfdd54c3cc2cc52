"""Sentences for people: each is an id with values, and English is one of the languages.

`english` is the catalogue of templates. Every part of backend may import this package.
May import: the standard library only (tests/test_imports.py).
"""

from __future__ import annotations

import datetime
import math
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, Self

from backend.text.english import ENGLISH

_ATOMS = frozenset((bool, float, int, str))  # the types of nearly all values in long lists
_ID = "text_id"
JOINED = ""
"""The id of several sentences in a row; their texts are the value `parts`."""


class Text(str):
    """A sentence, or half of one, in English, that knows its id and values.

    A value is a string, a number, or another Text. A template says how a number is written:
    {n:count}, {n:size} in bytes, {n:percent} of a share ({n:percent1} with one digit), {n:clock} of
    a time in seconds since 1970.
    """

    id: str
    values: Mapping[str, Any]

    def __new__(cls, id: str, values: Mapping[str, Any]) -> Self:
        """Return the English sentence. Raises KeyError if the catalogue has no such id."""
        made = super().__new__(cls, render(id, values, ENGLISH.__getitem__, FORMATS))
        made.id, made.values = id, values
        return made

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return self.id, self.values

    def __str__(self) -> str:
        """Return the same Text, so that str() of an exception keeps the id too."""
        return self


def text(id: str, /, **values: str | float) -> Text:
    """Return the sentence with this id of the catalogue."""
    return Text(id, values)


def joined(*parts: str) -> str:
    """Return sentences in a row; empty ones are left out."""
    kept = [part for part in parts if part]
    if len(kept) == 1:
        return kept[0]
    return Text(JOINED, {"parts": kept}) if kept else ""


_FOLDER = re.compile(
    r"""(?:\bfile:|(?<![\w:/\\.~-])(?:[A-Za-z]:)?)[/\\]+"""
    r"""(?:[^/\\:;,'"\n]*[^\s/\\:;,'"][/\\]+)*(?=[^\s/\\])"""
)
"""The folders of a path that begins at a root, within a sentence. Names in them may have spaces."""
_ROOT = re.compile(r"(?:[A-Za-z]:)?[/\\]")


def without_folders(sentence: str) -> str:
    """Return a sentence in which files have names only, for readers who may not know their places.

    A value that begins as an absolute path is one; in other words a path is found by its form.
    """
    if isinstance(sentence, Text):
        return Text(sentence.id, {name: _named(value) for name, value in sentence.values.items()})
    return _FOLDER.sub("", sentence)


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, str) and not isinstance(value, Text) and _ROOT.match(value):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return without_folders(value) if isinstance(value, str) else value


def to_json(data: Any) -> Any:
    """Return data that JSON can hold, in which every Text is an object with its id and values.

    No other object has the key "text_id" then: one that has it becomes a list of pairs. So
    from_json never takes foreign JSON, such as a tool's arguments, for a Text.
    """
    if isinstance(data, Text):
        values = {name: to_json(value) for name, value in data.values.items()}
        return {_ID: data.id, "values": values, "text": data}
    if isinstance(data, Mapping):
        if _ID in data:
            return {_ID: None, "pairs": [[name, to_json(value)] for name, value in data.items()]}
        return {name: to_json(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [value if type(value) in _ATOMS else to_json(value) for value in data]
    return data


def from_json(data: dict[str, Any]) -> Any:
    """Return what an object of to_json stands for; json.loads's object_hook.

    Use it only for JSON that to_json has made. Where the catalogue has no such id of a Text, or
    other values, return the English text. Raises ValueError if the fields have the wrong types.
    """
    if _ID not in data:
        return data
    if data.keys() == {_ID, "pairs"} and data[_ID] is None:
        return _object_of(data["pairs"])
    if data.keys() != {_ID, "values", "text"}:
        return data
    id, values, english = data[_ID], data["values"], data["text"]
    if not (isinstance(id, str) and isinstance(values, dict) and isinstance(english, str)):
        raise ValueError("a text has fields of the wrong types")
    if not all(_is_value(value) for value in values.values()):
        raise ValueError("a value of a text is neither text nor a number")
    try:
        return Text(id, values)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return english


def _object_of(pairs: Any) -> dict[str, Any]:
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError("an object is no list of pairs")
    return dict(pairs)


def render(
    id: str,
    values: Mapping[str, Any],
    template: Callable[[str], str],
    formats: Mapping[str, Callable[[Any], str]],
) -> str:
    """Return a sentence in a language: its templates by id, and how it writes numbers."""
    if id == JOINED:
        return " ".join(_value(part, template, formats) for part in values["parts"])
    pieces = []
    for literal, name, spec, _ in string.Formatter().parse(template(id)):
        pieces.append(literal)
        if name is not None:
            value = values[name]
            pieces.append(formats[spec](value) if spec else _value(value, template, formats))
    return "".join(pieces)


def _value(
    value: Any, template: Callable[[str], str], formats: Mapping[str, Callable[[Any], str]]
) -> str:
    if isinstance(value, Text):
        return render(value.id, value.values, template, formats)
    return str(value)


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_value(item) for item in value)
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def size(n_bytes: float) -> str:
    """Return a number of bytes in English with about three digits, such as 3.2 GiB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= 0.95 * scale:
            value = n_bytes / scale
            return f"{value:,.{1 if value < 99.95 else 0}f} {unit}"
    return f"{n_bytes:.0f} bytes"


def clock(at_s: float) -> str:
    """Return the local time of day, with the day unless it is today's."""
    at = datetime.datetime.fromtimestamp(at_s)
    is_today = at.date() == datetime.date.today()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": lambda n: f"{n:,}",
    "percent": lambda share: f"{100 * share:.0f} %",
    "percent1": lambda share: f"{100 * share:.1f} %",
    "size": size,
    "clock": clock,
}
"""How English writes numbers."""
