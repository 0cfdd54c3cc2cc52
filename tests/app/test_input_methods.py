"""Text under composition, and input methods that Qt's packages lack (B30, B31)."""

import sys
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from window_samples import WAIT_MS, Model, Opener

from app.chat.question import UserBubble
from app.state.conversation import question
from app.widgets import input_methods
from app.widgets.fields import TextField

WHOLE, HEAD, LAST = "\uc548\ub155\ud558\uc138\uc694", "\uc548\ub155\ud558\uc138", "\uc694"


def compose(field: Any, committed: str, composed: str) -> None:
    event = QInputMethodEvent(composed, [])
    event.setCommitString(committed)
    QApplication.sendEvent(field, event)


def test_the_last_syllable_is_sent_once(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    field, button = window.chat.composer.input, window.chat.composer.button
    compose(field, "", LAST)
    assert window.draft == "" and button.isEnabled()
    compose(field, "", "")
    assert not button.isEnabled()

    def asked() -> list[str]:
        window.wait_end()
        assert field.whole_text == ""
        return [m.content for m in window.session.conversation.messages if m.role == "user"]

    compose(field, HEAD, LAST)
    button.click()
    assert asked() == [WHOLE]
    compose(field, HEAD, LAST)
    compose(field, LAST, "")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert asked() == [WHOLE, WHOLE]


def test_a_draft_has_what_is_under_composition(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.ask("first")
    window.wait_end()
    first, field = window.chats.open_id, window.chat.composer.input
    field.setPlainText("\U0001f600 end")
    field.moveCursor(field.textCursor().MoveOperation.Start)
    field.moveCursor(field.textCursor().MoveOperation.Right)
    compose(field, HEAD, LAST)
    qtbot.waitUntil(lambda: window.chats.store.draft(first) == f"\U0001f600{WHOLE} end")
    window.press("New chat")
    assert field.whole_text == ""
    window.open_chat(first)
    assert window.draft == f"\U0001f600{WHOLE} end"
    window.chat_page.keep_draft()
    qtbot.waitUntil(lambda: window.chat_page.attachments.text == window.draft, timeout=WAIT_MS)


def test_a_changed_question_has_what_is_under_composition(qtbot: Any) -> None:
    bubble = UserBubble(question("a"))
    qtbot.addWidget(bubble)
    bubble.begin_edit()
    (field,) = bubble.findChildren(TextField)
    field.clear()
    compose(field, HEAD, LAST)
    with qtbot.waitSignal(bubble.edited) as sent:
        field.done.emit(True)
    assert sent.args == [WHOLE]


def test_searches_find_what_is_under_composition(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.ask(WHOLE)
    window.wait_end()
    window.press("New chat")
    window.ask("another")
    window.wait_end()
    search, bar = window.sidebar.search, window.chat.find_bar
    compose(search, HEAD, LAST)
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == [WHOLE], timeout=WAIT_MS)
    compose(search, "", "\ud55c")
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == [], timeout=WAIT_MS)
    bar.begin()
    compose(bar.words, "anoth", "er")
    qtbot.waitUntil(lambda: bar.found == 1, timeout=WAIT_MS)
    compose(bar.words, "", LAST)
    qtbot.waitUntil(lambda: bar.found == 0, timeout=WAIT_MS)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"QT_IM_MODULE": "fcitx"}, "ibus"),
        ({"QT_IM_MODULE": "fcitx5"}, "ibus"),
        ({"QT_IM_MODULES": "fcitx", "QT_IM_MODULE": "fcitx"}, "ibus"),
        ({"QT_IM_MODULES": "wayland;fcitx;ibus", "QT_IM_MODULE": "fcitx"}, "fcitx"),  # Qt chooses
        ({"QT_IM_MODULE": "ibus"}, "ibus"),
        ({"QT_IM_MODULE": "uim"}, None),
        ({"QT_IM_MODULE": "xim"}, "xim"),
        ({}, None),
    ],
)
def test_an_input_method_that_works_is_named(asked: dict[str, str], chosen: str | None) -> None:
    found = dict(asked)
    input_methods.choose(found, ["compose", "ibus", "qtvirtualkeyboard"])
    assert found.get("QT_IM_MODULE") == chosen
    is_changed = found != asked
    assert bool(input_methods.said()) == is_changed
    if is_changed:
        assert asked["QT_IM_MODULE"] in input_methods.said()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have their own")
def test_the_package_has_the_plug_in_of_ibus() -> None:
    assert {"compose", "ibus"} <= set(input_methods.plug_ins())
