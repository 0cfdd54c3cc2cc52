"""Turns an error into one plain sentence for the user."""

from __future__ import annotations

import traceback

from backend.text import Text, text


def explain(error: Exception) -> str:
    """Return one plain sentence for the user about `error`. Log unexpected errors."""
    if type(error).__module__.startswith("backend."):
        return _plain(error)
    traceback.print_exc()
    if isinstance(error, MemoryError):
        return text("engine.no_memory")
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}."
    if isinstance(error, ImportError):
        return text("worker.not_started_because", reason=_plain(error))
    return text("worker.failed", kind=type(error).__name__, reason=_plain(error))


def _plain(error: Exception) -> str:
    sentence = str(error)
    if isinstance(sentence, Text):
        return sentence
    sentence = " ".join(sentence.split()) or type(error).__name__
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."
