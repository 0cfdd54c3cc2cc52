"""Messages of the parts without Qt, in the window's language (backend.text)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.text import units
from app.text.language import translate
from backend.text import Text, render
from backend.text.english import ENGLISH

_FORMATS: dict[str, Callable[[Any], str]] = {
    "count": units.number,
    "percent": units.percent,
    "percent1": lambda share: units.decimal(100 * share, 1) + units.SPACE + "%",
    "size": units.size,
    "clock": units.clock,
}


def localized(text: str) -> str:
    """Return a message in the window's language; one without an id stays as it is."""
    return render(text.id, text.values, _template, _FORMATS) if isinstance(text, Text) else text


def _template(id: str) -> str:
    return translate("", ENGLISH[id])
