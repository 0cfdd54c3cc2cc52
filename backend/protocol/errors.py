"""Errors that one side of the pipe sends to the other."""

from __future__ import annotations


class RequestError(ValueError):
    """A request is malformed or cannot be served now; str() is one plain sentence.

    The stream stays usable.
    """


class EngineError(RuntimeError):
    """The engine failed; the text is one plain sentence for the user."""


class GivenUp(RuntimeError):
    """Nobody waits any more for what was being computed."""

    def __init__(self) -> None:
        super().__init__("Nobody waits for this any more.")


class UntrustedError(EngineError):
    """The model's values are not finite or its files changed, so its results are useless."""
