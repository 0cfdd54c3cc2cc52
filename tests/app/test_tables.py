"""Tables: words stay whole, wide ones scroll, numbers align, and rows are copied."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QTextTable
from PySide6.QtWidgets import QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.chat.answer import AnswerView
from app.chat.table_card import TableCard
from app.chat.text_block import TextBlock
from app.state.conversation import Ending, Message
from app.widgets import theme

WIDE = (
    "| Model | " + " | ".join(f"Benchmark{i}" for i in range(11)) + " |\n" + "|---" * 12 + "|\n"
    "| Qwen3-235B-A22B | " + " | ".join(f"{i}7.5 %" for i in range(11)) + " |\n"
)


@pytest.fixture
def card(qtbot: Any) -> TableCard:
    made = TableCard()
    qtbot.addWidget(made)
    made.resize(600, 200)
    made.show()
    return made


def parts(card: TableCard) -> list[TextBlock]:
    return card.findChildren(TextBlock)


def table(part: TextBlock) -> QTextTable:
    (found,) = (f for f in part.document().rootFrame().childFrames() if isinstance(f, QTextTable))
    return found


def test_a_wide_table_scrolls_sideways_and_no_word_is_cut(card: TableCard, qtbot: Any) -> None:
    card.show_text(WIDE)
    (part,) = parts(card)
    frame = card.findChild(QScrollArea)
    assert isinstance(frame, QScrollArea)
    qtbot.waitUntil(lambda: frame.horizontalScrollBar().maximum() > 0)
    assert part.width() > card.width() > frame.viewport().width() - 1
    assert part.height() < 4 * QFontMetricsF(part.document().defaultFont()).height() * 1.55


def test_a_table_takes_the_width_that_its_frame_has_later(card: TableCard, qtbot: Any) -> None:
    card.resize(900, 200)
    card.show_text("| a | b |\n|---|---|\n| 1 | " + "some words " * 20 + "|\n")
    card.resize(400, 200)
    frame = card.findChild(QScrollArea)
    assert isinstance(frame, QScrollArea)
    qtbot.waitUntil(lambda: parts(card)[0].width() <= frame.viewport().width() <= 400)
    qtbot.waitUntil(lambda: frame.horizontalScrollBar().maximum() == 0)


def test_numbers_align_unless_the_table_says_how(card: TableCard) -> None:
    card.show_text(
        "| a | b | c | d |\n|---|---|:--|--:|\n| x1 | $1.20 | 3 | y |\n| y | 12 % | 4 | z |\n"
    )
    found = table(parts(card)[0])
    right = [
        bool(found.cellAt(1, column).firstCursorPosition().blockFormat().alignment()
             & Qt.AlignmentFlag.AlignRight)
        for column in range(4)
    ]  # fmt: skip
    assert right == [False, True, False, True]


def test_a_table_is_copied_as_markdown_and_as_csv(card: TableCard) -> None:
    source = '| a | b |\n|---|---|\n| **x**, y | say `"hi"`<br>twice |\n'
    card.show_text(source)
    as_markdown, as_csv = card.findChildren(QPushButton)
    as_markdown.click()
    assert QGuiApplication.clipboard().text() == source
    as_csv.click()
    rows = list(csv.reader(QGuiApplication.clipboard().text().splitlines(keepends=True)))
    assert rows == [["a", "b"], ["x, y", 'say "hi"\ntwice']]


def test_a_table_from_right_to_left_begins_at_the_right(card: TableCard, qtbot: Any) -> None:
    card.show_text("| \u05d0\u05d1 | b \\| c |\n|--:|---|\n| 1 | x |\n")
    (part,) = parts(card)
    assert part.toPlainText().split() == ["b", "|", "c", "\u05d0\u05d1", "x", "1"]
    qtbot.waitUntil(lambda: part.geometry().right() > card.width() - 40)
    card.findChildren(QPushButton)[1].click()
    assert QGuiApplication.clipboard().text().split() == ["\u05d0\u05d1,b", "|", "c", "1,x"]


def test_hundreds_of_rows_grow_in_parts_of_one_width(card: TableCard, qtbot: Any) -> None:
    text = "| number | name |\n|---|---|\n"
    for n in range(200):
        text += f"| {n} | {'name ' * (n % 7 + 1)}|\n"
        if n % 20 == 0:
            card.show_text(text)
    card.show_text(text)
    qtbot.waitUntil(lambda: sum(table(part).rows() for part in parts(card)) == 201)
    qtbot.waitUntil(lambda: len({part.width() for part in parts(card)}) == 1)
    shown = "".join(part.toPlainText() for part in parts(card)).split("\n")
    assert [line for line in shown if line.isdecimal()] == [str(n) for n in range(200)]
    assert shown.count("number") == 1


def test_the_head_of_a_table_is_prose_until_the_line_below_it(qtbot: Any) -> None:
    message = Message("assistant", "See:\n\n| a | b |", Ending.STREAMING)
    view = AnswerView(message)
    qtbot.addWidget(view)
    view.refresh(now=True)
    assert not view.findChildren(TableCard)
    for more in ("\n|--", "-|---|\n| 1 ", "| 2 |\n", "\nEnd."):
        message.content += more
        view.refresh(now=True)
    (card,) = view.findChildren(TableCard)
    assert "1" in parts(card)[0].toPlainText() and "|" not in parts(card)[0].toPlainText()
    assert [block.toPlainText().split("\n")[0] for block in view.findChildren(TextBlock)
            if block not in parts(card)] == ["See:", "End.\u2009\u258d"]  # fmt: skip


def test_columns_fit_the_letters_that_the_style_sheet_makes_larger(qtbot: Any) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    host.setStyleSheet(f"QTextBrowser {{ font-size: {theme.pixels() + 1}px }}")
    card = TableCard()
    card.show_text("| Name | Formula |\n|---|---|\n| Softmax | abc |\n")  # before it has its style
    QVBoxLayout(host).addWidget(card)
    host.resize(600, 300)
    with qtbot.waitExposed(host):
        host.show()
    document = card.findChild(TextBlock).document()
    document.size()  # lays it out
    block, lines = document.begin(), []
    while block.isValid():
        lines.append((block.text(), block.layout().lineCount()))
        block = block.next()
    assert [one for one in lines if one[0]] == [
        ("Name", 1), ("Formula", 1), ("Softmax", 1), ("abc", 1),
    ]  # fmt: skip
