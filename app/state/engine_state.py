"""The engine's state as the user sees it, and notices for the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """The engine's state."""

    EMPTY = "empty"  # no model
    LOADING = "loading"
    IDLE = "idle"  # ready for a question
    CHANGING = "changing"  # applying settings
    ANSWERING = "answering"
    STOPPING = "stopping"  # Stop was pressed; the last token is still computed
    DEAD = "dead"  # the process has ended


@dataclass(frozen=True)
class Notice:
    """A sentence for the user, with (label, action) for each button."""

    sentence: str
    actions: tuple[tuple[str, Callable[[], None]], ...] = ()
    is_trouble: bool = True
