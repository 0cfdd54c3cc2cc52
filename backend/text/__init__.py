"""Sentences for people: each is an id with values, and English is one of the languages.

`english` is the catalogue of templates. Every part of backend may import this package.
May import: the standard library only (tests/test_imports.py).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Any, Self

from backend.text.english import ENGLISH

JOINED = ""
"""The id of several sentences in a row; their texts are the value `parts`."""


class Text(str):
    """A sentence, or half of one, in English, that knows its id and values.

    A value is a string, a number, or another Text. A template says how a number is written:
    {n:count}, {n:size} in bytes, {n:percent} of a share, {n:decimal} with one digit, {n:seconds}.
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

    def to_json(self) -> dict[str, Any]:
        """Return the id and the values, for a message."""
        values: dict[str, Any] = {}
        for name, value in self.values.items():
            if isinstance(value, list | tuple):
                values[name] = [_plain(one) for one in value]
            else:
                values[name] = _plain(value)
        return {"text_id": self.id, "values": values}


def text(id: str, /, **values: Any) -> Text:
    """Return the sentence with this id of the catalogue."""
    return Text(id, values)


def joined(*parts: str) -> str:
    """Return sentences in a row; empty ones are left out."""
    kept = [part for part in parts if part]
    if len(kept) == 1:
        return kept[0]
    return Text(JOINED, {"parts": kept}) if kept else ""


def from_json(data: Mapping[str, Any]) -> Text:
    """Read what Text.to_json() returned. Raises KeyError, TypeError or ValueError for nonsense."""
    values: dict[str, Any] = {}
    for name, value in data["values"].items():
        values[str(name)] = [_read(v) for v in value] if isinstance(value, list) else _read(value)
    return Text(data["text_id"], values)


def is_text(data: object) -> bool:
    """Whether a JSON object is a Text."""
    return isinstance(data, dict) and data.keys() == {"text_id", "values"}


def of_error(error: BaseException) -> str:
    """Return an exception's sentence, with its id where it has one; str(error) has none."""
    first = error.args[0] if error.args else ""
    return first if isinstance(first, Text) else str(error)


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


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, Text) else value


def _read(value: Any) -> Any:
    if is_text(value):
        return from_json(value)
    if not isinstance(value, str | int | float):
        raise TypeError("a value of a text is neither text nor a number")
    return value


def size(n_bytes: float) -> str:
    """Return a number of bytes in English, such as 3.2 GiB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(n_bytes) >= 0.95 * scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": lambda n: f"{n:,}",
    "decimal": lambda value: f"{value:,.1f}",
    "percent": lambda share: f"{100 * share:.0f} %",
    "seconds": lambda value_s: f"{value_s:.1f} s",
    "size": size,
}
"""How English writes numbers."""
