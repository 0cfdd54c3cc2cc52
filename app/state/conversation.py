"""A conversation: messages in order, and how each answer ended. No Qt, nothing on disk.

The messages of a chat form a tree, because the user can retry an answer and edit a question. A
Conversation is one path through the tree, from the first message to a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from app.state import reasoning
from app.state.preset import Preset
from backend.protocol.statistics import Statistics


class Ending(Enum):
    """The state of an answer."""

    WAITING = "waiting"  # no text yet
    STREAMING = "streaming"
    FINISHED = "finished"
    STOPPED = "stopped"  # by the user
    LENGTH = "length"  # at the requested number of tokens
    CONTEXT = "context"  # because the context is full
    CUT_OFF = "cut off"  # because the engine died or failed


@dataclass
class Message:
    """One message of the user or the assistant."""

    role: str
    content: str
    ending: Ending = Ending.FINISHED
    note: str = ""  # one sentence: why it ended
    progress: str = ""  # while waiting: what the engine is doing
    statistics: Statistics | None = None  # of the part that was generated last
    n_token_before: int = 0  # tokens of the parts before
    thought_s: float = 0.0  # duration of the reasoning
    id: int = 0  # in the store; 0: not stored
    branch: tuple[int, int] = (1, 1)  # number of this branch from 1, number of branches

    @property
    def is_live(self) -> bool:
        """Return whether more text may come."""
        return self.ending in (Ending.WAITING, Ending.STREAMING)

    @property
    def can_go_on(self) -> bool:
        """Return whether the answer can be continued."""
        return self.role == "assistant" and self.ending in (
            Ending.STOPPED, Ending.LENGTH, Ending.CUT_OFF, Ending.CONTEXT,
        )  # fmt: skip


@dataclass
class Conversation:
    """The messages of one chat, oldest first."""

    messages: list[Message] = field(default_factory=list)
    chat_id: int = 0  # in the store; 0: not stored
    title: str = ""
    preset: Preset | None = None  # None: use the model's
    slides: bool = False  # leave out the middle when the context is full
    n_char_max: int = 0  # limit of the prompt in characters; 0: none
    was_shortened: bool = False  # the prompt of the present question

    @property
    def last(self) -> Message | None:
        """Return the last message."""
        return self.messages[-1] if self.messages else None

    def for_engine(self, system: str = "") -> list[dict[str, str]]:
        """Return the messages in the worker's format, `system` first.

        Many chat templates require alternating roles: empty answers are left out, and successive
        messages of the user are joined. The engine continues a last answer with text. Earlier
        answers lose their reasoning, because models are trained without it.
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
