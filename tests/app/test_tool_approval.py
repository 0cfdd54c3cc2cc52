"""Permissions of tool calls without a window: what a choice covers, and what it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QObject, Signal
from PySide6.QtWidgets import QLabel

from app.chat.tool_card import ToolCard
from app.pages.server_dialog import ServerDialog
from app.session.tools import ToolCalls, ToolServers
from app.state.conversation import CallState, Conversation, Message
from app.state.tool_approval import Calls, Choice, Grants, n_round
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ToolCall
from backend.tools.settings import Server
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


# The calls of a session, with a host that runs nothing.


class Host(QObject):
    """Notes what is sent to the process of the servers."""

    told, died = Signal(object), Signal(object)
    is_running = True

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append((kind, fields))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for sent, fields in self.sent if sent == kind]


class Session(QObject):
    """Notes what is given back to the conversation."""

    calls_made, stopped = Signal(object, object), Signal(object)
    added, branch_begun = Signal(object, int), Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[list[Message], bool]] = []

    def take_results(
        self, conversation: Conversation, results: list[Message], *, goes_on: bool = True
    ) -> None:
        conversation.messages += results
        self.taken.append((results, goes_on))

    def report_calls(self, conversation: Conversation, answer: Message) -> None:
        pass

    def tools_changed(self) -> None:
        pass


class Desk:
    """A chat whose answers call tools of two servers, both ready."""

    def __init__(self, folder: Path) -> None:
        self.host, self.session, self.chat = Host(), Session(), Conversation([Message("user", "q")])
        host: Any = self.host
        session: Any = self.session
        self.servers = ToolServers(folder / "tools.json", host)
        self.calls = ToolCalls(session, self.servers)
        for name in ("files", "mail"):
            self.servers.put(Server(name, "program", is_on=True))
            self.tell(name, [tool for tool in TOOLS.values() if tool.server == name])

    def tell(self, server: str, tools: list[Tool], state: str = "ready") -> None:
        self.host.told.emit(
            {
                "type": "server", "server": server, "state": state, "sentence": "",
                "last_words": "", "tools": [tool.to_json() for tool in tools],
            }
        )  # fmt: skip

    def answer(self, *names: str) -> Calls | None:
        """Let an answer call these tools. Return its calls, unless all are settled."""
        answer = Message("assistant", "")
        answer.tool_calls = [ToolCall(f"c{i}", name, '{"a": 1}') for i, name in enumerate(names)]
        self.chat.messages.append(answer)
        self.session.calls_made.emit(self.chat, answer)
        return self.calls.of(answer)

    def asked(self, *names: str) -> Calls:
        calls = self.answer(*names)
        assert calls is not None
        return calls

    def result(self, number: int, is_unsure: bool = False) -> None:
        """Let a call end that was sent."""
        message = {"type": "result", "id": number, "is_error": is_unsure, "text": "r", "n_char": 1}
        self.host.told.emit({**message, "is_unsure": is_unsure})


@pytest.fixture
def desk(qapp: QCoreApplication, tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_call_is_sent_when_it_is_allowed_and_to_its_server(desk: Desk) -> None:
    calls = desk.asked("mail__read", "files__read", "files__read")
    assert desk.host.of("call") == []
    desk.calls.decide(calls, calls.calls[1], Choice.ONCE)
    (sent,) = desk.host.of("call")
    assert (sent["server"], sent["tool"], sent["arguments"]) == ("files", "read", {"a": 1})
    states = [CallState.ASKED, CallState.RUNNING, CallState.ASKED]
    assert [call.state for call in calls.calls] == states
    desk.calls.decide(calls, calls.calls[1], Choice.ONCE)
    desk.result(99)
    assert len(desk.host.of("call")) == 1 and [call.state for call in calls.calls] == states


@pytest.mark.parametrize(
    ("choice", "n_allowed"),
    [(Choice.ONCE, 0), (Choice.REFUSE, 0), (Choice.CHAT, 1), (Choice.ALWAYS, 2)],
)
def test_a_choice_covers_later_answers_as_it_says(
    desk: Desk, tmp_path: Path, choice: Choice, n_allowed: int
) -> None:
    """In this chat, in another one; and in the file that is read at the next start."""
    calls = desk.asked("files__read")
    desk.calls.decide(calls, calls.calls[0], choice)
    if choice is not Choice.REFUSE:
        desk.result(1)
    assert desk.asked("mail__read", "files__delete").is_running is False
    n_running = 0
    for chat in (desk.chat, Conversation([Message("user", "q")])):
        desk.chat = chat
        desk.session.added.emit(chat, 0)
        n_running += desk.asked("files__read").is_running
    assert n_running == n_allowed
    kept = json.loads((tmp_path / "tools.json").read_text("utf-8"))["mcpServers"]["files"]
    assert ("always" in kept) == (choice is Choice.ALWAYS)


def test_a_call_that_may_have_run_asks_before_it_is_repeated(desk: Desk) -> None:
    """Whatever was allowed before; another tool, and the call once it has a result, do not ask."""
    for name in ("files__read", "mail__read"):
        calls = desk.asked(name)
        desk.calls.decide(calls, calls.calls[0], Choice.ALWAYS)
        desk.result(len(desk.host.of("call")), is_unsure=name == "files__read")
    assert desk.asked("mail__read").is_running
    desk.result(3)
    calls = desk.asked("files__read")
    assert not calls.is_running
    desk.calls.decide(calls, calls.calls[0], Choice.ONCE)
    desk.result(4)
    assert desk.asked("files__read").is_running


def test_a_server_that_is_added_by_hand_is_on(qtbot: Any) -> None:
    """An edited one stays off or on."""
    off = Server("mail", "program")
    for given, is_on in ((None, True), (off, False), (replace(off, is_on=True), True)):
        dialog = ServerDialog(given)
        qtbot.addWidget(dialog)
        dialog.name.setText("files")
        dialog.command.setText("program --all")
        dialog.accept()
        assert dialog.server == Server("files", "program", ("--all",), is_on=is_on)


def test_the_pictures_of_a_result_are_kept_and_shown(desk: Desk, qtbot: Any) -> None:
    calls = desk.asked("files__read")
    desk.calls.decide(calls, calls.calls[0], Choice.ONCE)
    picture = Attachment("shot-1", "image", "", data="AAAA").to_json()
    message = {"type": "result", "id": 1, "is_error": False, "text": "[image]", "n_char": 7}
    desk.host.told.emit({**message, "files": [picture]})
    result = desk.chat.messages[-1]
    assert [file.name for file in result.attachments] == ["shot-1"]
    card = ToolCard()
    qtbot.addWidget(card)
    for _ in range(2):
        card.show_result(result.content, result.attachments)
    card.show_call(ToolCall("1", "files__read", "{}"), CallState.DONE)
    assert "read \u00b7 files" in [label.text() for label in card.findChildren(QLabel)]
    (fold,) = card.files
    assert "shot-1" in fold.button.accessibleName() and not fold.isHidden()


def test_no_permission_survives_another_definition(desk: Desk) -> None:
    for choice in (Choice.CHAT, Choice.ALWAYS):
        calls = desk.asked("files__read")
        desk.calls.decide(calls, calls.calls[0], choice)
        desk.result(len(desk.host.of("call")))
        desk.tell("files", [replace(READ, description=f"Sends a file: {choice}.")])
        calls = desk.asked("files__read")
        assert not calls.is_running
        desk.calls.decide(calls, calls.calls[0], Choice.REFUSE)


def test_too_many_rounds_ask_whatever_was_allowed(desk: Desk) -> None:
    """They are counted from the last question, or from the last call allowed by hand."""
    desk.servers.set_limits(max_rounds=2, limit_s=60)
    for question in range(2):
        calls = desk.asked("files__read")
        if not question:
            desk.calls.decide(calls, calls.calls[0], Choice.ALWAYS)
        n_before = len(desk.host.of("call"))
        for n in range(2 + (not question)):  # the one that was allowed by hand does not count
            desk.result(n_before + n)
            calls = desk.asked("files__read")
        assert calls.is_held != calls.is_running and calls.is_held
        assert len(desk.host.of("call")) == n_before + 1 + (not question)
        desk.calls.decide(calls, calls.calls[0], Choice.REFUSE)
        desk.chat.messages.append(Message("user", "q"))


def test_only_tools_that_are_on_and_ready_are_offered_and_run(desk: Desk) -> None:
    def names() -> list[str]:
        return [tool["function"]["name"] for tool in desk.servers.definitions()]

    assert names() == ["files__read", "files__delete", "mail__read"]
    desk.servers.switch_tool(TOOLS["files__delete"], is_on=False)
    desk.tell("mail", [], "failed")
    assert names() == ["files__read"]
    desk.tell("mail", [TOOLS["mail__read"]], "failed")  # with the tools that it had
    assert names() == ["files__read"]
    desk.servers.switch("mail", is_on=False)
    desk.tell("mail", [TOOLS["mail__read"]])  # too late
    assert names() == ["files__read"] and desk.servers.state("mail").state == "off"
    assert desk.answer("files__delete", "mail__read") is None  # all are settled
    assert [m.call_state for m in desk.chat.messages[-2:]] == [CallState.FAILED] * 2
    assert desk.host.of("call") == []


def test_stop_ends_what_runs_and_leaves_nothing_to_be_decided(desk: Desk) -> None:
    calls = desk.asked("files__read", "files__delete")
    desk.calls.decide(calls, calls.calls[0], Choice.ONCE)
    desk.session.stopped.emit(desk.chat)
    assert desk.host.of("cancel") == [{"id": 1}] and desk.session.taken == []
    desk.result(1)
    assert desk.session.taken == [] and desk.calls.of(calls.answer) is None
    assert desk.calls.can_ask_again(desk.chat, calls.answer)


def test_a_call_that_was_left_behind_runs_no_more(desk: Desk) -> None:
    calls = desk.asked("files__read", "files__delete")
    desk.calls.decide(calls, calls.calls[0], Choice.ONCE)
    desk.chat.messages.append(Message("user", "Never mind."))
    desk.session.added.emit(desk.chat, 2)
    assert desk.calls.of(calls.answer) is None and desk.host.of("cancel") == [{"id": 1}]
    assert {call.state for call in calls.calls} == {CallState.NOT_RUN}


def test_a_call_goes_to_a_server_that_was_lost_while_the_answer_was_written(desk: Desk) -> None:
    """The host lets it wait until the server is there again; a new answer is offered no such tool.

    A server that failed takes no call.
    """
    desk.tell("files", [], "starting")
    assert list(desk.servers.tools()) == ["mail__read"]
    calls = desk.asked("files__read")
    desk.calls.decide(calls, calls.calls[0], Choice.ONCE)
    (sent,) = desk.host.of("call")
    assert (sent["server"], sent["tool"]) == ("files", "read")
    desk.result(1)
    desk.tell("files", [], "failed")
    desk.tell("files", [], "starting")  # as the user begins again
    assert desk.answer("files__read") is None


def test_when_the_process_of_the_servers_ends_all_calls_have_failed(desk: Desk) -> None:
    calls = desk.asked("files__read", "mail__read")
    for call in calls.calls:
        desk.calls.decide(calls, call, Choice.ONCE)
    desk.host.died.emit("")
    ((results, goes_on),) = desk.session.taken
    assert [m.call_state for m in results] == [CallState.FAILED] * 2 and goes_on
    assert desk.servers.tools() == {}
