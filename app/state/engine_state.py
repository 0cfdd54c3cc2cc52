"""What the engine is doing as far as the user is concerned, and sentences for the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """What the engine is doing."""

    EMPTY = "empty"  # no model
    LOADING = "loading"
    IDLE = "idle"  # ready for a question
    CHANGING = "changing"  # it takes other settings
    ANSWERING = "answering"
    STOPPING = "stopping"  # Stop was pressed; the last token is still under way
    DEAD = "dead"  # the process is gone


@dataclass(frozen=True)
class Notice:
    """A sentence for the user, with what can be done about it."""

    sentence: str
    actions: tuple[tuple[str, Callable[[], None]], ...] = ()
    is_trouble: bool = True
