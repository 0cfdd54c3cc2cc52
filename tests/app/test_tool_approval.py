"""Permissions of tool calls without a window: what a choice covers, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.state.conversation import CallState, Conversation, Message
from app.state.tool_approval import Calls, Choice, Grants, n_round
from backend.protocol.chat import ToolCall
from backend.tools.tool import Tool

READ = Tool("files", "read", "Reads a file.", {"type": "object", "properties": {}})
TOOLS = {
    "files__read": READ,
    "files__delete": replace(READ, name="delete"),
    "mail__read": replace(READ, server="mail"),
}


def calls_of(*names: str, arguments: str = "{}") -> Calls:
    """Return an answer's calls of the tools with these names."""
    answer = Message("assistant", "")
    answer.tool_calls = [ToolCall(f"call{i:05}", n, arguments) for i, n in enumerate(names)]
    return Calls(Conversation([Message("user", "q"), answer]), answer, TOOLS)


def covered(choice: Choice) -> list[str]:
    """Return which of four waiting calls may run when the first one is decided about."""
    calls = calls_of("files__read", "mail__read", "files__delete", "files__read")
    return [call.call.id for call in calls.decide(calls.calls[0], choice)]


@pytest.mark.parametrize("choice", [Choice.CHAT, Choice.ALWAYS])
def test_a_permission_runs_no_waiting_call_of_another_server(choice: Choice) -> None:
    """Neither one whose tool has the same name, nor another tool of the same server."""
    assert covered(choice) == ["call00000", "call00003"]


def test_unsaved_chats_share_no_permission() -> None:
    """Such as private chats, and chats that cannot be written."""
    grants, first, second = Grants(), Conversation(), Conversation()
    grants.add(first, READ)
    assert grants.covers(first, READ)
    assert not grants.covers(second, READ)
    assert not grants.covers(Conversation(chat_id=7), READ)


def test_a_permission_ends_with_its_unsaved_chat() -> None:
    """A later chat may lie at the same place in memory."""
    grants = Grants()
    grants.add(Conversation(), READ)
    assert not any([grants.covers(chat, READ) for chat in [Conversation() for _ in range(1000)]])


def test_a_chat_s_permission_ends_with_the_tool_s_definition() -> None:
    """A server can describe another tool under the same name while the window is open."""
    grants, chat = Grants(), Conversation(chat_id=7)
    grants.add(chat, READ)
    assert grants.covers(Conversation(chat_id=7), replace(READ))  # the chat was opened again
    for other in (
        replace(READ, description="Reads a file and sends it."),
        replace(READ, schema={"type": "object", "properties": {"url": {"type": "string"}}}),
        *(tool for tool in TOOLS.values() if tool != READ),
    ):
        assert not grants.covers(chat, other)


def test_allow_once_runs_one_call_and_a_refusal_none() -> None:
    assert covered(Choice.ONCE) == ["call00000"]
    calls = calls_of("files__read", "files__read")
    assert calls.decide(calls.calls[0], Choice.REFUSE) == []
    assert calls.states == {"call00000": CallState.REFUSED, "call00001": CallState.ASKED}
    assert calls.results()[0].call_state is CallState.REFUSED


@pytest.mark.parametrize("state", [state for state in CallState if state is not CallState.ASKED])
@pytest.mark.parametrize("choice", Choice)
def test_a_call_is_decided_about_once(state: CallState, choice: Choice) -> None:
    """A second click on a button that is still there runs nothing again."""
    calls = calls_of("files__read", "files__read")
    calls.calls[0].state = state
    assert calls.decide(calls.calls[0], choice) == [] and calls.calls[0].state is state


def test_a_call_of_another_answer_is_not_decided_about() -> None:
    calls, other = calls_of("files__read"), calls_of("files__read", arguments='{"path": "b"}')
    assert calls.decide(other.calls[0], Choice.ALWAYS) == []


@pytest.mark.parametrize(
    "arguments", ["{", "[]", "null", '"x"', '{"a": NaN}', '{"a":' * 5000 + "1" + "}" * 5000]
)
def test_a_call_without_proper_arguments_never_asks(arguments: str) -> None:
    calls = calls_of("files__read", arguments=arguments)
    assert calls.asked() == [] and calls.calls[0].state is CallState.FAILED
    assert calls.decide(calls.calls[0], Choice.ONCE) == []


def test_calls_with_the_same_id_get_their_own_results() -> None:
    answer = Message("assistant", "")
    answer.tool_calls = [ToolCall(key, "files__read", "{}") for key in ("a", "a", "", "a")]
    calls = Calls(Conversation([answer]), answer, TOOLS)
    ids = [call.call.id for call in calls.calls]
    assert len(set(ids)) == 4 and ids[0] == "a" and ids == [c.id for c in answer.tool_calls]
    assert [message.tool_call_id for message in calls.results()] == ids


def test_what_was_stopped_before_anything_ran_can_be_asked_again() -> None:
    calls = calls_of("files__read", "files__read")
    assert calls.stop() == [] and calls.is_settled
    calls = calls_of("files__read", "files__read")
    calls.calls[0].end(CallState.DONE, "text")
    states = [message.call_state for message in calls.stop()]
    assert states == [CallState.DONE, CallState.NOT_RUN]


def test_rounds_count_from_the_last_question() -> None:
    asks, says = Message("user", "q"), Message("assistant", "a")
    calls = Message("assistant", "", tool_calls=[ToolCall("c", "files__read", "{}")])
    result = Message("tool", "r", tool_call_id="c")
    for messages, n in (
        ([], 0), ([asks], 0), ([asks, says], 0), ([asks, calls], 1),
        ([asks, calls, result, calls, result, calls], 3), ([asks, calls, result, asks, calls], 1),
    ):  # fmt: skip
        assert n_round(Conversation(messages)) == n
