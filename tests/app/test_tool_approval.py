"""Permissions of tool calls without a window: what a choice covers, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.state.conversation import Conversation, Message
from app.state.tool_approval import Calls, Choice, Grants
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
