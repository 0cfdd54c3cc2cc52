"""A conversation: messages in order, and how each answer ended. No Qt, nothing on disk.

The messages of a chat form a tree, because the user can retry an answer and edit a question. A
Conversation is one path through the tree, from the first message to a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from app.state.context_fit import joined
from app.state.preset import Preset
from backend.protocol.attachments import UNSEEN_IMAGE, Attachment, content_parts, in_words
from backend.protocol.chat import AnswerText, Delta, Json, ToolCall
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


# Words for the model, in English like most tools' own.
_OF_RESULTS = "These are the images of the tool results above."
_UNSEEN = "[You cannot see the images of this result. The user can.]"


class CallState(Enum):
    """The state of a tool call."""

    WRITING = "writing"  # its arguments still arrive
    ASKED = "asked"  # waits for the user's permission
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # the result is an error
    REFUSED = "refused"  # by the user
    NOT_RUN = "not run"  # nobody ran it


@dataclass
class Message:
    """One message of the user, the assistant or a tool.

    details: JSON of the message: the attachments of a question or of a tool's result
    (Attachment.to_json), how a tool's call was approved. A tool's message has "state", a value of
    CallState.
    """

    role: str  # "user", "assistant" or "tool"
    content: str
    ending: Ending = Ending.FINISHED
    note: str = ""  # one sentence: why it ended
    progress: str = ""  # while waiting: the engine's present work
    awaits_tools: bool = False  # waits for servers of tools to start; not in the store
    statistics: Statistics | None = None  # of the part that was generated last
    n_token_before: int = 0  # tokens of the parts before
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    raw: str | None = None  # an answer as the model wrote it; None: equal to the content
    tool_call_id: str = ""  # of a tool's message: the call that it answers
    name: str = ""  # of the tool
    details: dict[str, Any] = field(default_factory=dict)
    call_states: dict[str, CallState] = field(default_factory=dict)  # by id; not in the store
    thought_s: float = 0.0  # duration of the reasoning
    id: int = 0  # in the store; 0: not stored
    branch: tuple[int, int] = (1, 1)  # number of this branch from 1, number of branches
    is_joint: bool = False  # written together with other branches; not in the store

    @property
    def attachments(self) -> list[Attachment]:
        """Return the files of a question or a result. Leave out damaged ones."""
        found = []
        kept = self.details.get("attachments", ())
        for data in kept if isinstance(kept, list) else ():
            try:
                found.append(Attachment.from_json(data))
            except (KeyError, TypeError, ValueError):
                continue
        return found

    @property
    def is_live(self) -> bool:
        """Return whether more text may come."""
        return self.ending in (Ending.WAITING, Ending.STREAMING)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no text, no reasoning and no call."""
        return not (self.content or self.reasoning or self.tool_calls)

    @property
    def raw_text(self) -> str:
        """Return the answer as the model wrote it."""
        return self.content if self.raw is None else self.raw

    @property
    def call_state(self) -> CallState:
        """Return the state of the call that a tool's message answers."""
        try:
            return CallState(self.details.get("state", "done"))
        except ValueError:
            return CallState.DONE

    def gain(self, delta: Delta, raw: str) -> None:
        """Add a delta to an answer, with its raw text."""
        raw = self.raw_text + raw
        parts = AnswerText(self.reasoning, self.content, self.tool_calls)
        parts.add(delta)
        self.reasoning, self.content = parts.reasoning, parts.content
        self.raw = None if raw == self.content else raw

    @property
    def can_go_on(self) -> bool:
        """Return whether the answer can be continued."""
        return self.role == "assistant" and self.ending in (
            Ending.STOPPED, Ending.LENGTH, Ending.CUT_OFF, Ending.CONTEXT,
        )  # fmt: skip


def question(text: str, attachments: Sequence[Attachment] = ()) -> Message:
    """Return a message of the user."""
    kept = [attachment.to_json() for attachment in attachments]
    return Message("user", text, details={"attachments": kept} if kept else {})


@dataclass
class Conversation:
    """The messages of one chat, oldest first."""

    messages: list[Message] = field(default_factory=list)
    chat_id: int = 0  # in the store; 0: not stored
    title: str = ""
    preset: Preset | None = None  # None: use the model's
    slides: bool = False  # leave out the middle when the context is full
    n_char_max: int = 0  # limit of the prompt in characters; 0: none
    n_char_besides: int | None = None  # of the last prompt, less those of the last message then
    was_shortened: bool = False  # the prompt of the present question
    seen_from: int = 0  # index of the first message of the last prompt after what was left out

    @property
    def last(self) -> Message | None:
        """Return the last message."""
        return self.messages[-1] if self.messages else None

    @property
    def left_out_before(self) -> int:
        """Return the id of the first message that the model saw after a gap; 0: it saw all."""
        answers = (message for message in reversed(self.messages) if message.role == "assistant")
        kept = next((answer.details.get("seen_from", 0) for answer in answers), 0)
        return kept if isinstance(kept, int) else 0

    def for_engine(
        self, system: str = "", sees_images: bool = True, begins: list[int] | None = None
    ) -> list[Json]:
        """Return the messages in OpenAI's format, `system` first.

        begins: gets the index of the first message of each turn; -1 for `system`.

        Many chat templates require alternating roles: empty answers are left out, and successive
        messages of the user are joined. The engine continues a last answer exactly, also within
        its reasoning. Calls without a result are left out, and results without a call. Images
        of results follow them as a message of the user, for few templates take them from a tool. A
        model that sees none is told in words, but for images of the last question.
        """
        last = max((i for i, one in enumerate(self.messages) if one.role == "user"), default=-1)
        turns: list[Json] = []
        begins = [] if begins is None else begins
        if system.strip():
            turns.append({"role": "system", "content": system})
            begins.append(-1)
        answered: set[str] = set()  # calls of the answer before that have a result
        shown: list[Attachment] = []  # images of the results before
        for index, message in enumerate(self.messages):
            if shown and message.role != "tool":
                turns.append({"role": "user", "content": content_parts(_OF_RESULTS, shown)})
                shown = []
            if message.role == "assistant":
                is_last = index + 1 == len(self.messages)
                kept = results_of(self.messages, index)
                answered = {call.id for call, result in kept if result is not None}
                calls = [call for call in message.tool_calls if call.id in answered]
                if message.content or calls or (is_last and message.reasoning):
                    turns.append(AnswerText(message.reasoning, message.content, calls).to_message())
            elif message.role == "tool":
                if message.tool_call_id in answered:
                    files = message.attachments
                    shown += files if sees_images else []
                    blind = f"\n{_UNSEEN}" if files and not sees_images else ""
                    turns.append(
                        {
                            "role": "tool", "content": message.content + blind,
                            "name": message.name, "tool_call_id": message.tool_call_id,
                        }
                    )  # fmt: skip
            elif not (content := content_parts(message.content, message.attachments)):
                continue
            else:
                if not sees_images and index < last:
                    content = in_words({"content": content}, UNSEEN_IMAGE)["content"]
                if turns and turns[-1]["role"] == "user":
                    turns[-1]["content"] = joined(turns[-1]["content"], content)
                else:
                    turns.append({"role": "user", "content": content})
            begins += [index] * (len(turns) - len(begins))
        if shown:
            turns.append({"role": "user", "content": content_parts(_OF_RESULTS, shown)})
            begins.append(len(self.messages) - 1)
        return turns


def results_of(messages: Sequence[Message], index: int) -> list[tuple[ToolCall, Message | None]]:
    """Return the calls of an answer, each with its result: one of the messages right after it."""
    calls, results = messages[index].tool_calls, dict[str, Message]()
    for place in range(index + 1, len(messages) if calls else 0):
        if messages[place].role != "tool":
            break
        results.setdefault(messages[place].tool_call_id, messages[place])
    return [(call, results.get(call.id)) for call in calls]
