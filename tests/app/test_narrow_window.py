"""A narrow window, in the language with the longest words."""

from typing import Any

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QApplication
from test_transcript import ask, wait_idle
from window_samples import WAIT_MS, Model, Opener

from app.chat.answer import AnswerView
from app.text import language

CHAT = {"thinking": "switch", "efforts": ["low", "medium", "high"], "tools": True}


@pytest.mark.parametrize("width", [520, 620])
def test_every_button_of_a_chat_is_within_the_window(
    qapp: QApplication, qtbot: Any, open_window: Opener, model: Model, width: int
) -> None:
    """A stopped answer that has another beside it, so that all buttons are shown."""
    language.apply(qapp, "de")
    window = open_window(model(token_s=0.02, chat=CHAT))
    window.resize(width, 700)
    ask(qtbot, window, "hello")
    wait_idle(qtbot, window)
    window.session.regenerate(1)
    last = window.session.conversation.messages[-1]
    qtbot.waitUntil(lambda: len(last.content) > 10, timeout=WAIT_MS)
    window.session.stop()
    wait_idle(qtbot, window)
    (answer,) = window.findChildren(AnswerView)
    qtbot.waitUntil(lambda: answer.findChildren(QAbstractButton)[2].isVisible(), timeout=WAIT_MS)
    buttons = [button for button in answer.findChildren(QAbstractButton) if button.isVisible()]
    assert len(buttons) >= 6
    for button in [*buttons, *window.chat.composer.findChildren(QAbstractButton)]:
        right = button.mapTo(window, QPoint(button.width(), 0)).x()
        assert right <= width or not button.isVisible(), button.accessibleName()
    assert window.width() == width
