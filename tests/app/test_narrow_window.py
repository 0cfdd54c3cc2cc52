"""A narrow window, in the language with the longest words."""

from pathlib import Path
from typing import Any

import pytest
from factory import make_tiny
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QApplication, QSplitter
from test_transcript import ask, wait_idle
from window_samples import WAIT_MS, Model, Opener, let_go

from app.chat.answer import AnswerView
from app.text import language

CHAT = {"thinking": "switch", "efforts": ["low", "medium", "high"], "tools": True}


def test_the_panes_follow_the_window_and_the_hand(qtbot: Any, open_window: Opener) -> None:
    """At 2,560 pixels an empty middle once stood beside cells of 2.4 pixels."""
    window = open_window()
    window.resize(1320, 800)
    usual = window.panel.width()
    window.resize(2560, 1300)
    qtbot.waitUntil(lambda: window.panel.width() > 2 * usual, timeout=WAIT_MS)
    splitter = window.pages.widget(0)
    assert isinstance(splitter, QSplitter)
    left, middle, right = splitter.sizes()
    splitter.setSizes([left, middle + 300, right - 300])
    splitter.splitterMoved.emit(0, 0)  # as dragging does
    dragged = window.panel.width()
    assert dragged < right - 200
    window.resize(2500, 1300)
    assert window.panel.width() == dragged


def test_a_table_hides_the_columns_that_have_no_room(
    qtbot: Any, open_window: Opener, tmp_path: Path
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    make_tiny("qwen3moe", "Q8_0", folder / "good.gguf")
    window = open_window()
    window.library.library.add_folder(folder)
    for width, are_hidden in ((1800, False), (700, True), (1800, False)):
        window.resize(width, 800)
        window.show_library()
        view = window.library.view
        qtbot.waitUntil(lambda: len(view.shown) == 1, timeout=WAIT_MS)
        n_column = view.table.model().columnCount()
        hidden = [column for column in range(n_column) if view.table.isColumnHidden(column)]
        assert bool(hidden) == are_hidden and not {0, 1} & set(hidden)
        window.show_chat()


@pytest.mark.parametrize("width", [520, 620])
def test_every_button_of_a_chat_is_within_the_window(
    qapp: QApplication, qtbot: Any, open_window: Opener, model: Model, width: int
) -> None:
    """A stopped answer that has another beside it, so that all buttons are shown."""
    language.apply(qapp, "de")
    path = model(holds=15, chat=CHAT)
    let_go(path)
    window = open_window(path)
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
