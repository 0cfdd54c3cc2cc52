"""What the window does over and over leaves nothing behind."""

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtGui import QActionGroup, QTextDocument
from PySide6.QtWidgets import QApplication, QMenu
from shiboken6 import Shiboken
from window_samples import WAIT_MS, Model, Opener

from app.chat.answer import AnswerView
from app.chat.question import UserBubble
from app.chat.text_block import TextBlock
from app.chat.think_switch import ThinkSwitch
from app.chat.transcript import Transcript
from app.state.conversation import Conversation, Message
from app.state.engine_state import State
from app.widgets import slices, theme
from backend.protocol.chat import ChatFacts

ANSWER = "A line with `code`.\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"


def settled(what: Callable[[], int]) -> int:
    """Count after everything that waits for its deletion is gone."""
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QApplication.processEvents()
    while not slices.is_done():
        QApplication.processEvents()
    return what()


def test_chats_that_were_left_leave_no_widgets(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ANSWER, thought="Well.", token_s=0.0))
    window.resize(1300, 800)
    chats = []
    for number in range(3):
        window.press("New chat")
        window.ask(f"Question {number}")
        window.wait_state(State.IDLE)
        chats.append(window.chats.open_id)

    def look_at_all() -> int:
        for chat in chats:
            window.open_chat(chat)
            last = window.session.conversation.messages[-1]
            qtbot.waitUntil(
                lambda last=last: any(
                    view.message is last for view in window.chat.findChildren(AnswerView)
                ),
                timeout=WAIT_MS,
            )
            window.chat_page.inspect(1)
            window.press("Close")
        window.press("New chat")
        return settled(lambda: len(QApplication.allWidgets()))

    look_at_all()
    after_two = look_at_all()
    assert [look_at_all() for _ in range(3)] == [after_two] * 3


def test_a_menu_that_was_closed_is_gone(open_window: Opener, model: Model) -> None:
    window = open_window(model())
    window.ask("A question")
    window.wait_state(State.IDLE)
    rows = window.sidebar.list

    def n_menu() -> int:
        return len(rows.findChildren(QMenu))

    before = settled(n_menu)
    for make in (lambda: rows.menu_for(window.chats.rows()[0]), lambda: rows.folder_menu("Work")):
        menu = make()
        menu.popup(rows.mapToGlobal(rows.rect().center()))
        menu.close()
    assert settled(n_menu) == before


def test_efforts_that_change_leave_no_groups(qtbot: Any) -> None:
    switch = ThinkSwitch()
    qtbot.addWidget(switch)
    for effort in ("low", "high", "low", "high"):
        switch.show_state(ChatFacts(thinking="always", efforts=("low", "high")), True, effort)
    assert len(switch.findChildren(QActionGroup)) == 1
    assert [action.text() for action in switch.menu.actions() if action.isChecked()] == ["high"]


def test_a_question_that_is_resized_leaves_no_documents(qtbot: Any) -> None:
    bubble = UserBubble(Message("user", "Tell me of the sea. " * 20))
    qtbot.addWidget(bubble)
    bubble.show()

    def n_document() -> int:
        return sum(isinstance(item, QTextDocument) for item in Shiboken.getAllValidWrappers())

    bubble.resize(500, 200)
    before = settled(n_document)
    for width in range(510, 600, 10):
        bubble.resize(width, 200)
    assert settled(n_document) == before


def test_a_theme_renders_each_answer_once(
    qtbot: Any, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    theme.apply(qapp, theme.Choice.DARK)
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.show_conversation(Conversation([Message("assistant", ANSWER) for _ in range(3)]))
    transcript.show()
    qtbot.waitUntil(lambda: len(transcript.text_blocks()) == 9)
    rendered = []
    redress = AnswerView.redress

    def count(view: AnswerView) -> Any:
        rendered.append(view)
        yield from redress(view)

    def backgrounds() -> set[str]:
        first = [view.findChildren(TextBlock)[0].document() for view in rendered]
        spans = [document.begin().begin() for document in first]
        return {_second(span).charFormat().background().color().name() for span in spans}

    monkeypatch.setattr(AnswerView, "redress", count)
    theme.apply(qapp, theme.Choice.LIGHT)
    qtbot.waitUntil(lambda: len(rendered) == 3 and backgrounds() == {theme.LIGHT.hover})
    qtbot.wait(50)
    assert len(rendered) == 3
    theme.apply(qapp, theme.Choice.DARK)


def _second(span: Any) -> Any:
    span += 1
    return span.fragment()


def test_words_are_found_after_the_chat_was_left(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(token_s=0.0))
    window.resize(1300, 800)
    chats = []
    for question in ("soldier one", "soldier two"):
        window.press("New chat")
        window.ask(question)
        window.wait_state(State.IDLE)
        chats.append(window.chats.open_id)
    bar = window.chat.find_bar
    bar.begin()
    bar.words.setText("soldier")
    bar.search()
    assert bar.found
    window.open_chat(chats[0])
    bar.begin()
    qtbot.waitUntil(lambda: bool(bar.found), timeout=WAIT_MS)  # as soon as all of it is shown


def test_a_theme_keeps_the_conversation_and_what_is_written_in_it(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ANSWER, token_s=0.0))
    window.resize(1300, 800)
    window.preferences.set("theme", "dark")
    window.ask("A question")
    window.wait_state(State.IDLE)
    transcript = window.chat.transcript
    qtbot.waitUntil(lambda: transcript.is_whole, timeout=WAIT_MS)
    # The last letters are shown a moment later, without the sign that the answer is growing.
    qtbot.waitUntil(lambda: "\u258d" not in "".join(window.answer_texts()), timeout=WAIT_MS)
    before = window.answer_texts()
    window.preferences.set("theme", "light")
    qtbot.waitUntil(lambda: transcript.is_whole, timeout=WAIT_MS)
    assert window.answer_texts() == before
    (bubble,) = window.chat.findChildren(UserBubble)
    bubble.begin_edit()
    window.preferences.set("theme", "dark")
    assert Shiboken.isValid(bubble) and bubble.is_edited
