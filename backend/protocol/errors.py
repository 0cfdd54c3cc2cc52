"""Errors that one side of the pipe sends to the other."""

from __future__ import annotations


class RequestError(ValueError):
    """A request is malformed or cannot be served now; str() is one plain sentence.

    The stream stays usable.
    """


class EngineError(RuntimeError):
    """The engine failed; the text is one plain sentence for the user."""


class UntrustedError(EngineError):
    """The model's values are not finite or its files changed, so its results are useless."""
