"""A selection runs over the blocks of an answer, and stays while the answer grows."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QTextCursor
from PySide6.QtTest import QTest
from shiboken6 import Shiboken

from app.chat.answer import AnswerView
from app.chat.text_block import TextBlock
from app.state.conversation import Ending, Message

TEXT = "First words.\n\nSecond.\n\n```py\nx = 1\n```\n\n- a\n- last words"


@pytest.fixture
def view(qtbot: Any) -> AnswerView:
    made = AnswerView(Message("assistant", TEXT, Ending.STREAMING))
    qtbot.addWidget(made)
    made.resize(500, made.sizeHint().height())
    made.show()
    qtbot.waitUntil(lambda: len(made.blocks_in_order()) == 3)
    return made


def place(block: TextBlock, word: str, *, end: bool = False) -> QPoint:
    """Return where a word begins or ends in a block."""
    found = block.document().find(word)
    cursor = QTextCursor(found)
    cursor.setPosition(found.selectionEnd() if end else found.selectionStart())
    return block.cursorRect(cursor).center()


def drag(begin: TextBlock, at: QPoint, end: TextBlock, to: QPoint) -> None:
    """Press at a point of a block, and let go at one of another; the first has the mouse."""
    viewport, left = begin.viewport(), Qt.MouseButton.LeftButton
    QTest.mousePress(viewport, left, pos=at)
    target = viewport.mapFromGlobal(end.viewport().mapToGlobal(to))
    for point in (at + QPoint(20, 0), target):
        QTest.mouseMove(viewport, point)
    QTest.mouseRelease(viewport, left, pos=target)


def test_a_selection_runs_over_paragraphs_code_and_lists(view: AnswerView) -> None:
    first, code, last = view.blocks_in_order()
    drag(first, place(first, "words"), last, place(last, "last", end=True))
    first.copy()
    assert QGuiApplication.clipboard().text() == "words.\nSecond.\nx = 1\na\nlast"
    # The clipboard may go after Python has ended, which an object of Python does not outlive.
    assert not Shiboken.createdByPython(QGuiApplication.clipboard().mimeData())
    drag(last, place(last, "last"), code, place(code, "= 1"))
    last.copy()
    assert QGuiApplication.clipboard().text() == "= 1\na\n"
    assert not first.textCursor().hasSelection()
    assert all(not block.horizontalScrollBar().value() for block in (first, code, last))


def test_all_of_an_answer_is_selected_by_the_key(view: AnswerView) -> None:
    _, code, _ = view.blocks_in_order()
    QTest.keyClick(code, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(code, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().startswith("First words.\nSecond.\nx = 1\na\nlast")


def test_a_selection_stays_while_the_text_grows(view: AnswerView) -> None:
    last = view.blocks_in_order()[-1]
    drag(last, place(last, "last"), last, place(last, "last", end=True))
    before = last.selected_text()
    assert before.strip() == "last"
    for more in (" and", " more\n- b", "\n- c **bold**"):
        view.message.content += more
        view.refresh(now=True)
        assert last.selected_text() == before


def test_a_press_forgets_the_selection_of_other_blocks(view: AnswerView) -> None:
    first, _, last = view.blocks_in_order()
    drag(first, place(first, "words"), last, place(last, "last"))
    QTest.mouseClick(last.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(2, 2))
    assert last.selected_text() == ""
