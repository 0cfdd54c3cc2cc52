"""Permissions and states of tool calls. No Qt, nothing on disk.

A call runs only after `Calls.decide` with a Choice of the user, or where an earlier choice covers
it: for a chat, or always for a tool that is still defined as it was when the user allowed it. No
text decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from app.state.conversation import CallState, Conversation, Message
from backend.protocol.chat import Json, ToolCall
from backend.tools.plain_text import read_arguments
from backend.tools.tool import Tool

# Results for the model, in English like most tools' own.
_REFUSED = "The user refused this call. Do not try it again unless the user asks for it."
_STOPPED = "The user stopped this call."
_ID_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789"


class Choice(Enum):
    """The user's answers to a call that asks."""

    ONCE = "once"
    CHAT = "chat"
    ALWAYS = "always"
    REFUSE = "refuse"


@dataclass
class Call:
    """A call of an answer. tool: None where there is none of this name.

    share, words: progress. result: what the model gets; n_char: its length before it was shortened.
    files: the pictures of the result, as JSON (Attachment.to_json).
    """

    call: ToolCall
    tool: Tool | None = None
    arguments: Json = field(default_factory=dict)
    state: CallState = CallState.ASKED
    share: float | None = None
    words: str = ""
    result: str = ""
    n_char: int = 0
    files: Sequence[Json] = ()

    @property
    def is_settled(self) -> bool:
        """Return whether the call needs nothing more."""
        return self.state not in (CallState.ASKED, CallState.RUNNING)

    def end(
        self, state: CallState, result: str, n_char: int = 0, files: Sequence[Json] = ()
    ) -> None:
        """Settle the call."""
        self.files = files
        self.state, self.result, self.n_char = state, result, n_char or len(result)
        self.share, self.words = None, ""

    def to_message(self) -> Message:
        """Return the result as a message of the conversation."""
        details: Json = {"state": self.state.value, "n_char": self.n_char}
        if self.files:
            details["attachments"] = list(self.files)
        return Message(
            "tool", self.result, tool_call_id=self.call.id, name=self.call.name, details=details
        )


class Grants:
    """The tools that a chat may call without being asked. They end with the window."""

    def __init__(self) -> None:
        self._granted: dict[int, tuple[Conversation, set[str]]] = {}

    def covers(self, conversation: Conversation, tool: Tool) -> bool:
        """Return whether the user allowed this tool, defined as it is, for this chat."""
        _, granted = self._granted.get(_key(conversation), (None, set()))
        return tool.fingerprint in granted

    def add(self, conversation: Conversation, tool: Tool) -> None:
        """Allow a tool for a chat."""
        kept = self._granted.setdefault(_key(conversation), (conversation, set()))
        kept[1].add(tool.fingerprint)


class Calls:
    """The calls of one answer.

    is_held: there were too many answers with calls since the user last allowed one by hand. Every
    call then asks, even if its tool was allowed before.
    """

    def __init__(
        self,
        conversation: Conversation,
        answer: Message,
        tools: Mapping[str, Tool],
        is_held: bool = False,
    ) -> None:
        self.conversation, self.answer, self.is_held = conversation, answer, is_held
        make_ids_unique(answer)
        self.calls = [_checked(Call(call, tools.get(call.name))) for call in answer.tool_calls]

    @property
    def is_running(self) -> bool:
        """Return whether a call runs."""
        return any(call.state is CallState.RUNNING for call in self.calls)

    @property
    def is_settled(self) -> bool:
        """Return whether the conversation can go on."""
        return all(call.is_settled for call in self.calls)

    @property
    def states(self) -> dict[str, CallState]:
        """Return the states by the calls' ids."""
        return {call.call.id: call.state for call in self.calls}

    def asked(self) -> list[Call]:
        """Return the calls that wait for the user."""
        return [call for call in self.calls if call.state is CallState.ASKED]

    def decide(self, call: Call, choice: Choice) -> list[Call]:
        """Apply the user's choice and return the calls that may run now.

        A choice for the chat, or for ever, covers all calls of the same tool.
        """
        if call not in self.calls or call.state is not CallState.ASKED or call.tool is None:
            return []
        if choice is Choice.REFUSE:
            call.end(CallState.REFUSED, _REFUSED)
            return []
        if choice is Choice.ONCE:
            return [call]
        return [other for other in self.asked() if other.tool == call.tool]

    def stop(self) -> list[Message]:
        """Settle all open calls. Return the results, or none if no call has ended.

        Calls without a result can be asked again.
        """
        has_result = any(call.is_settled for call in self.calls)
        for call in self.calls:
            if not call.is_settled:
                call.end(CallState.NOT_RUN, _STOPPED)
        return self.results() if has_result else []

    def results(self) -> list[Message]:
        """Return the results as messages, in the order of the calls."""
        return [call.to_message() for call in self.calls]


def n_round(conversation: Conversation) -> int:
    """Return how many answers with calls there are since the user's last message."""
    n_answer = 0
    for message in reversed(conversation.messages):
        if message.role == "user":
            break
        n_answer += bool(message.tool_calls)
    return n_answer


def make_ids_unique(answer: Message) -> None:
    """Give a new id to each call without one, or with that of another call."""
    seen: set[str] = set()
    for index, call in enumerate(answer.tool_calls):
        if not call.id or call.id in seen:
            # Nine letters and digits, as Mistral's templates require.
            number, letters = index, ""
            while len(letters) < 4:
                number, place = divmod(number, len(_ID_CHARS))
                letters = _ID_CHARS[place] + letters
            answer.tool_calls[index] = call = replace(call, id=f"call0{letters}")
        seen.add(call.id)


def _checked(call: Call) -> Call:
    """Settle a call that cannot run."""
    if call.tool is None:
        call.end(CallState.FAILED, f"There is no tool called {call.call.name[:100]!a}.")
        return call
    try:
        call.arguments = read_arguments(call.call.arguments)
    except ValueError as error:
        call.end(CallState.FAILED, f"The call was not run: {error}.")
    return call


def _key(conversation: Conversation) -> int:
    """Return a chat's id, or the conversation itself if it is not stored."""
    return conversation.chat_id or -id(conversation)
