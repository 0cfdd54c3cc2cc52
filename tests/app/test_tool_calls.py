"""Tool calls in the window: the question, the choices, the run, the result, and the limits."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QTextBrowser
from tool_server import group
from window_page import WindowPage
from window_samples import WAIT_MS, Model, Opener

from app.chat.answer import AnswerView
from app.chat.tool_card import ToolCard
from app.state.conversation import CallState, Message
from app.state.preset import Preset
from backend.tools.settings import Server

SERVER = Path(__file__).resolve().parents[1] / "tool_server.py"
CHAT = {"tools": True}
ASKED, RUNNING, DONE = CallState.ASKED, CallState.RUNNING, CallState.DONE

Window = Callable[..., WindowPage]


@pytest.fixture
def with_tools(
    open_window: Opener, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Window]:
    """Open windows with a server and a model that makes the given calls once."""
    monkeypatch.setattr("app.session.tools.AWAITED_MS", 1000 * WAIT_MS)
    windows: list[WindowPage] = []

    def make(*calls: Any, mode: str = "plain", **more: Any) -> WindowPage:
        written = [[name, json.dumps(arguments)] for name, arguments in calls]
        options: dict[str, Any] = {"text": "One moment.", "chat": CHAT, "token_s": 0.0, **more}
        window = open_window(model("caller", calls=written, **options))
        windows.append(window)
        servers = window.calls.servers
        put(window, mode)
        window.qtbot.waitUntil(lambda: len(servers.tools()) > 0 or mode == "hang", timeout=WAIT_MS)
        return window

    yield make
    for window in windows:
        window.calls.servers.shut_down()


def put(window: WindowPage, mode: str) -> None:
    """Start the server in place of the one before."""
    server = Server("files", sys.executable, (str(SERVER), mode), is_on=True)
    window.calls.servers.put(server)


def tools_of_answer(window: WindowPage) -> list[str]:
    """Wait for an answer that echoes its options. Return the tools that were sent."""
    window.qtbot.waitUntil(lambda: not window.answer.is_live, timeout=WAIT_MS)
    return [t["function"]["name"] for t in json.loads(window.answer.content).get("tools", ())]


def awaits(window: WindowPage) -> bool:
    """Return whether the last answer says that it waits for the server."""
    labels = [view.findChildren(QLabel) for view in window.chat.findChildren(AnswerView)]
    shown = [label.text() for label in itertools.chain(*labels) if label.isVisible()]
    return "Waits for the tools to start: files" in shown


def cards(window: WindowPage) -> list[ToolCard]:
    """Return the cards of the last answer with calls."""
    views = [view for view in window.chat.findChildren(AnswerView) if view.cards]
    return views[-1].cards if views else []


def wait_states(window: WindowPage, *states: CallState) -> None:
    """Wait for these states of the calls, and for the buttons of the calls that ask."""
    n_asked = states.count(ASKED)
    window.qtbot.waitUntil(
        lambda: (
            [card.state for card in cards(window)] == list(states)
            and buttons(window).count("Refuse") == n_asked
        ),
        timeout=WAIT_MS,
    )


def results(window: WindowPage) -> list[Message]:
    return [m for m in window.session.conversation.messages if m.role == "tool"]


def wait_end(window: WindowPage) -> None:
    """Wait until the answer after the results ends."""
    window.qtbot.waitUntil(
        lambda: results(window) != [] and not window.session.growing, timeout=WAIT_MS
    )


def buttons(window: WindowPage) -> list[str]:
    """Return the visible buttons of the cards, row by row."""
    found = [
        button
        for card in cards(window)
        for button in card.findChildren(QAbstractButton)
        if button.isVisible() and button.isEnabled()
    ]
    places = {button: button.mapTo(window, button.rect().topLeft()) for button in found}
    found.sort(key=lambda button: (places[button].y(), places[button].x()))
    return [button.text() for button in found]


def test_a_call_asks_and_goes_round(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "Grüße"}])
    window.ask("Say it.")
    focused = QApplication.focusWidget()
    wait_states(window, ASKED)
    assert results(window) == []
    assert buttons(window) == [
        "Refuse", "Allow once", "Allow in this chat", "Always allow this tool",
    ]  # fmt: skip
    assert QApplication.focusWidget() is focused, "the question takes no focus"
    assert window.session.can_send, "nothing is blocked"
    reached: list[str] = []
    for _ in range(60):
        window.focusNextPrevChild(True)
        if (focus := window.focusWidget()) is not None and cards(window)[0].isAncestorOf(focus):
            reached.append(focus.text() if isinstance(focus, QAbstractButton) else "")
    assert [text for text in reached if text][:4] == buttons(window), "by keyboard, Refuse first"
    window.press("Allow once")
    wait_end(window)
    (result,) = results(window)
    assert (result.content, result.call_state, result.name) == ("Grüße", DONE, "files__echo")
    assert window.answer.content == "One moment."
    sent = window.session.conversation.for_engine()
    assert [turn["role"] for turn in sent] == ["user", "assistant", "tool", "assistant"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] != ""


def test_parallel_calls_are_decided_one_by_one(with_tools: Window) -> None:
    window = with_tools(
        ["files__add", {"a": 1, "b": 2}], ["files__add", {"a": 3, "b": 4}], ["files__fail", {}],
        ["files__none", {}],
    )  # fmt: skip
    window.ask("Add.")
    wait_states(window, ASKED, ASKED, ASKED, CallState.FAILED)
    window.press("Refuse")
    wait_states(window, CallState.REFUSED, ASKED, ASKED, CallState.FAILED)
    window.press("Allow once")
    window.press("Allow once") if "Allow once" in buttons(window) else None
    wait_end(window)
    texts = [message.content for message in results(window)]
    assert texts[0].startswith("The user refused") and texts[1] == "7"
    assert texts[2] == "it went wrong" and "no tool" in texts[3]


def test_a_chat_s_permission_covers_the_tool_in_this_chat_only(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "a"}])
    window.ask("Once.")
    wait_states(window, ASKED)
    window.press("Allow in this chat")
    wait_end(window)
    window.ask("Again.")
    window.qtbot.waitUntil(lambda: len(results(window)) == 2, timeout=WAIT_MS)
    wait_end(window)
    window.session.new_chat()
    window.ask("Elsewhere.")
    wait_states(window, ASKED)


def test_a_permission_for_ever_ends_with_the_tool_s_definition(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "a"}])
    window.ask("Once.")
    wait_states(window, ASKED)
    window.press("Always allow")
    wait_end(window)
    servers = window.calls.servers
    (tool,) = [tool for tool in servers.tools().values() if tool.name == "echo"]
    assert servers.is_always_allowed(tool)
    server = servers.settings.server("files")
    assert server is not None
    servers.put(Server(**{**vars(server), "always": {"echo": "of another definition"}}), "files")
    window.qtbot.waitUntil(lambda: len(servers.tools()) > 0, timeout=WAIT_MS)
    window.ask("Again.")
    wait_states(window, ASKED)


def test_stop_ends_a_call_and_the_answer(with_tools: Window) -> None:
    window = with_tools(["files__slow", {"seconds": 600}])
    window.ask("Wait.")
    wait_states(window, ASKED)
    window.press("Allow once")
    wait_states(window, RUNNING)
    assert window.session.is_answering
    assert window.chat.composer.button.accessibleName().startswith("Stop")
    window.session.stop()
    wait_states(window, CallState.NOT_RUN)
    assert results(window) == [] and not window.session.is_answering
    assert buttons(window) == ["Ask again"]
    window.press("Ask again")
    wait_states(window, ASKED)


def test_a_new_message_leaves_the_call_behind(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "a"}])
    window.ask("One.")
    wait_states(window, ASKED)
    window.ask("Never mind.")
    wait_states(window, ASKED)
    first = next(view for view in window.chat.findChildren(AnswerView) if view.cards)
    assert first.cards[0].state is CallState.NOT_RUN
    assert results(window) == []


def test_too_many_rounds_ask_in_spite_of_permissions(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "a"}], calls_again=True)
    window.calls.servers.set_limits(max_rounds=3, limit_s=60)
    window.ask("For ever.")
    wait_states(window, ASKED)
    window.press("Allow in this chat")
    window.qtbot.waitUntil(lambda: len(results(window)) == 4, timeout=WAIT_MS)
    wait_states(window, ASKED)
    words = [label.text() for card in cards(window) for label in card.findChildren(QLabel)]
    assert any("3 times in a row" in text for text in words)


def test_a_call_without_an_answer_can_be_asked_again_after_a_restart(
    with_tools: Window, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = with_tools(["files__echo", {"text": "a"}])
    window.ask("One.")
    wait_states(window, ASKED)
    chat = window.chats.open_id
    window.close()
    window.library.shut_down()
    window.link.shut_down()
    again = open_window(tmp_path / "caller.gguf")
    again.open_chat(chat)
    wait_states(again, CallState.NOT_RUN)
    assert buttons(again) == []
    again.calls.servers.start()
    again.qtbot.waitUntil(lambda: buttons(again) == ["Ask again"], timeout=WAIT_MS)
    again.press("Ask again")
    wait_states(again, ASKED)
    again.press("Allow once")
    wait_end(again)
    again.calls.servers.shut_down()


def test_long_arguments_are_seen_while_they_are_asked(with_tools: Window) -> None:
    window = with_tools(["files__echo", {"text": "word " * 400 + "END"}])

    def seen() -> bool:
        blocks = cards(window)[0].findChildren(QTextBrowser)
        return any(block.isVisible() and "END" in block.toPlainText() for block in blocks)

    window.ask("Say it.")
    wait_states(window, ASKED)
    assert seen()
    window.press("Refuse")
    wait_end(window)
    assert not seen(), "they fold again"


def test_closing_the_window_ends_the_servers(with_tools: Window) -> None:
    window = with_tools(["files__slow", {"seconds": 600}], mode="stubborn")
    (leader,) = window.calls.servers.host.groups
    assert len(group(leader)) == 2
    window.close()
    window.qtbot.waitUntil(lambda: group(leader) == [], timeout=WAIT_MS)  # the kill takes effect


def test_tools_are_sent_only_where_they_are_wanted_and_possible(
    with_tools: Window, model: Model
) -> None:
    window = with_tools(echo="options")
    switch = window.chat.composer.tools
    assert switch.isVisible() and switch.isChecked()
    window.ask()
    assert "files__echo" in tools_of_answer(window)
    switch.click()
    window.ask()
    assert tools_of_answer(window) == []
    window.session.new_chat()
    assert switch.isChecked()
    window.open_model(model("mute", echo="options", text="x"))
    window.qtbot.waitUntil(lambda: not switch.isEnabled(), timeout=WAIT_MS)


def test_an_answer_waits_for_a_server_that_starts(with_tools: Window) -> None:
    window = with_tools(echo="options", mode="hang")
    window.ask()
    window.qtbot.waitUntil(lambda: awaits(window))
    waiting = window.session.conversation
    window.press("New chat")
    window.chat_page.take_preset(Preset(tools=False), for_model=False)
    window.ask("Another, without tools.")
    assert tools_of_answer(window) == [] and window.session.growing == [waiting.last]
    window.session.show(waiting)
    put(window, "plain")
    assert "files__echo" in tools_of_answer(window) and not awaits(window)
    put(window, "hang")  # as after a crash
    window.press("Retry")
    window.qtbot.waitUntil(lambda: awaits(window))
    window.press("Stop")
    assert not awaits(window) and not window.session.is_answering
    window.press("Continue")
    window.qtbot.waitUntil(lambda: awaits(window))
    window.press("Answer without them")
    assert tools_of_answer(window) == [] and window.notice == "", "the user knows"


def test_a_message_says_once_that_a_server_gives_no_tools(with_tools: Window) -> None:
    window = with_tools(echo="options", mode="hang")
    servers = window.calls.servers
    put(window, "crash")
    window.ask()
    assert tools_of_answer(window) == []
    assert window.notice == "The model gets no tools of:\nfiles: The server has ended."
    window.ask()
    assert tools_of_answer(window) == [] and window.notice == ""
    put(window, "hang")
    window.ask()
    window.qtbot.waitUntil(lambda: awaits(window))
    servers.stop_waiting()  # as after half a minute
    assert tools_of_answer(window) == []
    assert window.notice.endswith("files: It has not started yet.")
