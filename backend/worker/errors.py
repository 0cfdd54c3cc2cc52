"""An error as one plain sentence for the user."""

from __future__ import annotations

import traceback


def explain(error: Exception) -> str:
    """Return one plain sentence for the user about `error`, and log what is unexpected."""
    if type(error).__module__.startswith("backend."):
        return _plain(error)
    traceback.print_exc()
    if isinstance(error, MemoryError):
        return "There is not enough memory; a lower cache rate or a shorter context needs less."
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}."
    if isinstance(error, ImportError):
        return f"The engine could not be started: {_plain(error)}"
    return f"The engine failed unexpectedly ({type(error).__name__}): {_plain(error)}"


def _plain(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else text + "."
