"""Errors that one side of the pipe tells the other."""

from __future__ import annotations


class RequestError(ValueError):
    """One request is malformed or cannot be done now; str() is one plain sentence.

    The stream is still good.
    """
