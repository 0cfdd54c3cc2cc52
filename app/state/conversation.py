"""What was said: messages in order, each with how it ended. No Qt, nothing on disk.

The messages of a chat are a tree, because an answer can be asked for again and a question changed;
a Conversation is one path through it, from the first message to a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from app.state import reasoning
from app.state.preset import Preset
from backend.protocol.statistics import Statistics


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
    thought_s: float = 0.0  # how long the reasoning before the answer took
    id: int = 0  # in the store; 0: not kept
    branch: tuple[int, int] = (
        1,
        1,
    )  # which of how many in the same place

    @property
    def is_live(self) -> bool:
        """Whether more text may come."""
        return self.ending in (Ending.WAITING, Ending.STREAMING)

    @property
    def can_go_on(self) -> bool:
        """Whether the answer could be continued from where it stands."""
        return self.role == "assistant" and self.ending in (
            Ending.STOPPED, Ending.LENGTH, Ending.CUT_OFF, Ending.CONTEXT,
        )  # fmt: skip


@dataclass
class Conversation:
    """The messages of one chat, oldest first."""

    messages: list[Message] = field(default_factory=list)
    chat_id: int = 0  # in the store; 0: not kept
    title: str = ""
    preset: Preset | None = None  # None: as the model has it
    slides: bool = False  # when the context is full, the middle is left out
    n_char_max: int = 0  # of a prompt that must be shortened; 0: whole
    was_shortened: bool = False  # for the question that is asked now

    @property
    def last(self) -> Message | None:
        """The newest message."""
        return self.messages[-1] if self.messages else None

    def for_engine(self, system: str = "") -> list[dict[str, str]]:
        """Return the messages as the worker wants them.

        Answers without text are left out and what the user said in a row is joined, because many
        chat templates insist on turns. A last answer with text is what the engine continues; from
        those before it the reasoning is left out, as models are trained.
        """
        turns: list[dict[str, str]] = []
        if system.strip():
            turns.append({"role": "system", "content": system})
        for message in self.messages:
            content = message.content
            if message.role == "assistant" and message is not self.messages[-1]:
                content = reasoning.without_thought(content)
            if not content:
                continue
            if turns and turns[-1]["role"] == message.role == "user":
                turns[-1]["content"] += "\n\n" + content
            else:
                turns.append({"role": message.role, "content": content})
        return turns
