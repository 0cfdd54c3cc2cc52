"""Tool outputs are inert: 105 of them approve no call, open no link and read no file."""

import json
import re
import socket
import sys
import threading
from pathlib import Path

import pytest
from hostile_outputs import hostile_answers
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QTextBrowser
from test_tool_calls import SERVER, cards
from window_samples import WAIT_MS, Model, Opener

from app.state.conversation import CallState, Message
from app.state.tool_approval import Choice
from backend.protocol.chat import ToolCall
from backend.tools.plain_text import clean
from backend.tools.settings import Server


class Listener:
    """A port that records connections. There must be none."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.n_connection = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return
            self.n_connection += 1

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("count", [105, pytest.param(510, marks=pytest.mark.night)])
def test_no_output_of_a_tool_does_anything(
    count: int, open_window: Opener, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url) or True)
    read: list[str] = []
    mark = tmp_path / "mark.png"
    mark.write_bytes(b"secret")
    sys.addaudithook(
        lambda event, arguments: (
            read.append(event)
            if event == "open" and str(arguments[0]).endswith(str(mark))
            else None
        )
    )
    listener = Listener()
    answers = tmp_path / "answers"
    answers.mkdir()
    for index, answer in enumerate(hostile_answers(7, count, listener.port, str(mark))):
        (answers / str(index)).write_bytes(answer)
    window = open_window(model("m", chat={"tools": True}, text="x"))
    servers, calls = window.calls.servers, window.calls
    servers.put(Server("files", sys.executable, (str(SERVER), "plain"), is_on=True))
    window.qtbot.waitUntil(lambda: len(servers.tools()) > 0, timeout=WAIT_MS)
    kept = servers.settings
    conversation = window.session.conversation
    window.ask("Begin.")
    window.qtbot.waitUntil(lambda: not window.session.growing, timeout=WAIT_MS)
    outputs: list[Message] = []
    step = 15  # calls of an answer; one more waits beside them and is never allowed
    for first in range(0, count, step):
        made = [
            {"name": "files__file", "arguments": json.dumps({"path": str(answers / str(n))})}
            for n in range(first, first + step)
        ]
        made.append({"name": "files__add", "arguments": '{"a": 1, "b": 2}'})
        answer = Message("assistant", "")
        answer.tool_calls = [
            ToolCall(f"c{first + n:08}", c["name"], c["arguments"]) for n, c in enumerate(made)
        ]
        conversation.messages[-1:] = [answer]
        window.session.show(conversation)
        calls.take(conversation, answer)
        open_calls = calls.of(answer)
        assert open_calls is not None
        for call in open_calls.calls[:step]:
            calls.decide(open_calls, call, Choice.ONCE)
        window.qtbot.waitUntil(
            lambda: not open_calls.is_running,
            timeout=WAIT_MS,
        )
        waiting = open_calls.calls[step]
        assert waiting.state is CallState.ASKED, "an output has decided about another call"
        calls.stop(conversation)
        assert waiting.state is CallState.NOT_RUN
        outputs += [m for m in conversation.messages if m.role == "tool"][-step - 1 : -1]
        for card in cards(window):
            card.result.button.click()
        QTest.qWait(20)  # loading would begin here
        for card in cards(window):
            for label in card.findChildren(QLabel):
                assert not label.openExternalLinks()
            for block in card.findChildren(QTextBrowser):
                assert block.document().toHtml().count("<img") == 0
                assert not re.search(r"<a\s", block.document().toHtml())
                block.anchorClicked.emit(QUrl("javascript:0"))
        del conversation.messages[-step - 2 :]
        conversation.messages.append(Message("assistant", "x"))
    assert len(outputs) == count
    assert all(clean(m.content) == m.content and len(m.content) < 21_000 for m in outputs)
    assert all(m.call_state in (CallState.DONE, CallState.FAILED) for m in outputs)
    assert servers.settings == kept and servers.state("files").state == "ready"
    assert (opened, read, listener.n_connection) == ([], [], 0)
    assert mark.read_bytes() == b"secret"
    listener.close()
    servers.shut_down()
