"""What was said: messages in order, each with how it ended. No Qt, nothing on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from app.facts import Statistics


class Ending(Enum):
    """How an answer stands."""

    WAITING = "waiting"  # asked, no text yet
    STREAMING = "streaming"
    FINISHED = "finished"
    STOPPED = "stopped"  # by the user
    LENGTH = "length"  # the number of tokens asked for was reached
    CONTEXT = "context"  # the context is full
    CUT_OFF = "cut off"  # the engine died or failed


@dataclass
class Message:
    """One thing said by the user or the assistant."""

    role: str
    content: str
    ending: Ending = Ending.FINISHED
    note: str = ""  # one sentence: why it ended as it did
    progress: str = ""  # while waiting: what the engine is doing
    statistics: Statistics | None = None  # of the last part that was generated
    n_token_before: int = 0  # tokens of the parts before that one

    @property
    def is_live(self) -> bool:
        """Whether more text may come."""
        return self.ending in (Ending.WAITING, Ending.STREAMING)

    @property
    def can_go_on(self) -> bool:
        """Whether the answer could be continued from where it stands."""
        return self.role == "assistant" and self.ending in (
            Ending.STOPPED, Ending.LENGTH, Ending.CUT_OFF,
        )  # fmt: skip


@dataclass
class Conversation:
    """The messages of one chat, oldest first."""

    messages: list[Message] = field(default_factory=list)

    @property
    def last(self) -> Message | None:
        """The newest message."""
        return self.messages[-1] if self.messages else None

    def for_engine(self) -> list[dict[str, str]]:
        """Return the messages as the worker wants them.

        Answers without text are left out and what the user said in a row is joined, because many
        chat templates insist on turns. A last answer with text is what the engine continues.
        """
        turns: list[dict[str, str]] = []
        for message in self.messages:
            if not message.content:
                continue
            if turns and turns[-1]["role"] == message.role == "user":
                turns[-1]["content"] += "\n\n" + message.content
            else:
                turns.append({"role": message.role, "content": message.content})
        return turns
