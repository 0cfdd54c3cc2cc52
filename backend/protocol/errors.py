"""Errors that one side of the pipe tells the other."""

from __future__ import annotations


class RequestError(ValueError):
    """One request is malformed or cannot be done now; str() is one plain sentence.

    The stream is still good.
    """


class EngineError(RuntimeError):
    """Something that the user should know; the text is one plain sentence."""


class UntrustedError(EngineError):
    """The model's values are not finite, or its files changed: what it computed is of no use."""
