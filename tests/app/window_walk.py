"""What a person can look at in the window: pages, dialogs, menus, cards and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from factory import make_png, make_tiny
from PySide6.QtWidgets import QDialog, QWidget
from window_page import WindowPage
from window_samples import WAIT_MS

from app.chat.answer import AnswerView
from app.chat.preset_dialog import PresetDialog
from app.chat.question import UserBubble
from app.chat.seen_dialog import SeenDialog
from app.controls.remote_device import RemoteDialog
from app.pages.model_report import ModelReport
from app.pages.server_dialog import ServerDialog
from app.state.conversation import Conversation, Ending, Message
from app.state.preset import Preset
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ToolCall
from backend.tools.settings import Server

CHAT = {"thinking": "switch", "efforts": ["low", "medium", "high"], "tools": True}
"""What the template of the walk's model can do."""
SAID = "A fox.\n\n```python\nx = 1\n```\n\n| fruit | price |\n|---|--:|\n| apple | 3 |\n"
_FILE = Attachment("notes.txt", "text", "The dog is called Max.")


def _messages() -> Conversation:
    """Return a chat with a file, a thought, code, a table, and a call."""
    call = ToolCall("1", "letters__echo", json.dumps({"text": "a crow"}))
    asked = Message("user", "Who?", details={"attachments": [_FILE.to_json()]})
    said = Message("assistant", SAID, reasoning="Hm.", tool_calls=[call])
    result = Message("tool", "a crow", tool_call_id="1", details={"state": "done"})
    return Conversation([asked, said, result, Message("assistant", SAID, Ending.STOPPED)])


def places(window: WindowPage, folder: Path) -> Iterator[tuple[str, QWidget]]:
    """Show one place after the other. Yield its name, and what is to be looked at.

    REQUIRES: a model with the abilities CHAT is loaded. folder: an empty one.
    """
    qtbot: Any = window.qtbot
    yield "an empty chat", window
    yield from _chat(window, folder, qtbot)
    yield from _pages(window, folder, qtbot)
    for name, dialog in _dialogs(window):
        dialog.show()
        yield name, dialog
        dialog.close()
        dialog.deleteLater()


def _chat(window: WindowPage, folder: Path, qtbot: Any) -> Iterator[tuple[str, QWidget]]:
    chat = window.chat
    window.ask("Hello")
    window.wait_end()
    window.session.regenerate(1)
    window.wait_end()
    yield "an answer with another beside it", chat
    yield "menu of chats", window.sidebar.list.menu_for(window.chats.rows()[0])
    chat.composer.input.setPlainText("A draft.")
    (folder / "notes.txt").write_text("The dog is called Max.", "utf-8")
    (folder / "shot.png").write_bytes(make_png(np.zeros((40, 60, 3), np.uint8)))
    window.chat_page.attach([folder / "notes.txt", folder / "shot.png"])
    files = window.chat_page.attachments.files
    qtbot.waitUntil(
        lambda: not any(file.reading or file.counting for file in files), timeout=WAIT_MS
    )
    yield "files of a draft", chat
    chat.transcript.show_conversation(_messages())
    qtbot.waitUntil(lambda: chat.transcript.is_whole, timeout=WAIT_MS)
    chat.find_bar.begin()
    yield "messages", chat
    answer, question = chat.findChildren(AnswerView)[-1], chat.findChildren(UserBubble)[-1]
    yield "menu of an answer", answer.menu()
    yield "menu of a question", question.menu()
    answer.begin_edit()
    question.begin_edit()
    yield "messages that are changed", chat
    window.top_bar.controls.click()
    yield "the controls", window.controls.strip
    window.top_bar.controls.click()
    yield "the bar", window.top_bar


def _pages(window: WindowPage, folder: Path, qtbot: Any) -> Iterator[tuple[str, QWidget]]:
    good = folder / "good"
    good.mkdir()
    make_tiny("qwen3moe", "Q8_0", good / "good.gguf", n_expert=16, n_expert_used=4)
    (good / "README.gguf").write_bytes(b"")
    window.library.library.add_folder(good)
    window.show_library()
    qtbot.waitUntil(lambda: len(window.library.view.shown) >= 2, timeout=WAIT_MS)
    for row in window.library.view.shown:
        window.library.view.pick(row.entry.path)
        yield f"the library with {row.entry.path.name}", window.pages.currentWidget()
    window.show_get_models()
    yield "get models", window.pages.currentWidget()
    for page in ("settings", "server", "diagnostics", "shortcuts", "about"):
        window.pages.go(page)
        yield page, window.pages.currentWidget()
    window.show_chat()


def _dialogs(window: WindowPage) -> Iterator[tuple[str, QDialog]]:
    for server in (None, Server("letters", "npx", ("-y", "@acme/letters"))):
        yield f"a server of tools, {server and server.name}", ServerDialog(server, window)
    yield "preset", PresetDialog(Preset(), "model", True, window, window.engine.model.chat)
    yield "what the model saw", SeenDialog("<think>Hm.</think>A fox.", window)
    yield "another machine", RemoteDialog(window)
    yield "report", ModelReport(window.engine, window)
