"""Syntax highlighting by Pygments: the kind of each piece of code. No Qt.

A thread loads the lexer, because that takes tens of milliseconds. Until then the code is plain.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from backend.system import faults

LINE_CHARS_MAX = 2000  # longer lines stay plain, because patterns may be slow on them

_loaded: dict[str, Any] = {}  # language -> lexer; None if there is none
_loading: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Piece:
    """`n_char` characters of one kind: the name of a colour, or ""."""

    n_char: int
    kind: str


def is_ready(language: str) -> bool:
    """Return whether the lexer has been looked up. If not, begin to load it."""
    language = language.strip().lower()[:40]
    with _lock:
        if not language or language in _loaded:
            return True
        if language not in _loading:
            _loading.add(language)
            # A lexer that fails leaves the code plain.
            faults.Thread("highlight", _load, language, failed=faults.no_place).start()
        return False


def pieces(language: str, text: str) -> list[Piece]:
    """Return the pieces of a text in order; none if there is no lexer for the language."""
    lexer = _loaded.get(language.strip().lower()[:40])
    if lexer is None or any(len(line) > LINE_CHARS_MAX for line in text.split("\n")):
        return []
    return [
        Piece(len(value), _kind(token)) for _, token, value in lexer.get_tokens_unprocessed(text)
    ]


def _load(language: str) -> None:
    lexer = None
    try:
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound

        try:
            lexer = get_lexer_by_name(language)
            list(lexer.get_tokens_unprocessed("x = 1\n"))
        except ClassNotFound:
            lexer = None
    finally:
        with _lock:
            _loaded[language] = lexer
            _loading.discard(language)


def _kind(token: Any) -> str:
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

    if token in Comment:
        return "code_comment"
    if token in String or token in Generic.Inserted:
        return "code_string"
    if token in Generic.Deleted:
        return "danger"
    if token in Keyword or token in Operator.Word or token in Generic.Subheading:
        return "code_keyword"
    if token in Number:
        return "code_number"
    if token in Name.Function or token in Name.Class or token in Name.Tag or token in Name.Builtin:
        return "code_name"
    return ""
