"""A table whose words stay whole: a wide one scrolls sideways in a frame of its own."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import zip_longest

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QGuiApplication,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextLength,
    QTextTable,
)
from PySide6.QtWidgets import QFrame, QVBoxLayout

from app.chat.markdown.meant import first_direction
from app.chat.text_block import TextBlock
from app.chat.text_looks import CELL_PADDING, drawn_in, source_of, with_sources
from app.widgets import slices, theme
from app.widgets.parts import discard, filled, spaced
from app.widgets.quiet_button import QuietButton, head_of_card
from app.widgets.sideways_area import SidewaysArea

PART_ROWS = 12  # a long table is split into parts; only the last is rendered again
WORD_PIXELS_MAX = 400  # a longer word is cut
CELL_PIXELS = 160  # a column with more text is not made narrower than this
_EDGES = 2 * CELL_PADDING + 2  # pixels of a column beside its text
_NUMBER = re.compile(
    r"[~≈<>≤≥±+\-\u2212\u2013 ]*[$€£¥]?\s*\d[\d.,'\u2009\u202f\u00a0 ]*\s*(?:%|[^\W\d]{0,4})"
)


class TableCard(QFrame):
    """Shows a table as it grows, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("tableCard")
        self._text = ""  # the table as Markdown
        self.defined: Mapping[str, str] = {}  # as of TextBlock
        self._is_mirrored = False  # the first column stands at the right; Qt cannot do that
        self._n_row = 0  # rows that are shown, without the head
        self._parts: list[TextBlock] = []
        self._cells: list[list[str]] = []  # the plain text of each row, the head first
        self._measured: dict[int, tuple[list[float], list[float]]] = {}  # the next two of each part
        self._wanted: list[float] = []  # pixels of each column that keep each cell in one line
        self._least: list[float] = []  # pixels of the longest word of each column
        self._widths: list[int] = []
        self._n_wide = 0  # parts that have these widths
        copies = (
            (self.tr("Copy"), self.tr("Copy this table as Markdown"), self._markdown),
            (self.tr("Copy as CSV"), self.tr("Copy this table as CSV"), self.csv),
        )
        buttons = (QuietButton(text, name, partial(_copy, get)) for text, name, get in copies)
        self._frame = SidewaysArea()
        self._frame.setAccessibleName(self.tr("Table"))
        self._frame.widened.connect(self._share_width)
        self._bodies = self._frame.column
        filled(spaced(QVBoxLayout(self), 0), head_of_card("", *buttons), self._frame)

    def show_text(self, text: str) -> None:
        """Show the table so far, a long one in slices; do not lay out earlier parts again."""
        if not text.startswith(self._text):
            self._clear()
        self._text = text
        self._is_mirrored = first_direction(text.split("\n", 1)[0]) == "R"
        right, left = Qt.LayoutDirection.RightToLeft, Qt.LayoutDirection.LeftToRight
        self._frame.content.setLayoutDirection(right if self._is_mirrored else left)
        self._grow()

    def redress(self) -> Iterator[None]:
        """Render everything again after a change of theme, a part at each step."""
        self._wanted, self._least = [], []  # another size of text may have been chosen
        for index in range(len(self._parts)):
            self._render(index)
            yield
        self._share_width()

    def _grow(self) -> None:
        lines = self._text.rstrip("\n").split("\n")
        n_row = len(lines) - 2
        with slices.a_slice() as is_over:
            while self._n_row < n_row or not self._parts:
                if len(self._parts) * PART_ROWS <= self._n_row:
                    self._parts.append(self._new_part())
                index = len(self._parts) - 1
                self._n_row = min(n_row, (index + 1) * PART_ROWS)
                self._render(index)
                if is_over() and self._n_row < n_row:
                    slices.later(self, self._grow)
                    break
        self._share_width()

    def _new_part(self) -> TextBlock:
        part = TextBlock()
        part.defined = self.defined
        part.setAccessibleName(self.tr("Part of a table"))
        if self._widths:
            _set_widths(part, self._widths)
        self._bodies.addWidget(part)
        return part

    def _clear(self) -> None:
        discard(self._bodies, *self._parts)
        self._parts.clear()
        self._cells.clear()
        self._measured.clear()
        self._n_row, self._wanted, self._least, self._widths = 0, [], [], []

    def _render(self, index: int) -> None:
        lines = self._lines()
        begin = 2 + index * PART_ROWS
        source = "\n".join([*lines[:2], *lines[begin : min(begin + PART_ROWS, 2 + self._n_row)]])
        self._parts[index].show_markdown(source, partial(self._finish, index))

    def _lines(self) -> list[str]:
        """Return the lines of the table, their columns from left to right."""
        lines = self._text.rstrip("\n").split("\n")
        return [_mirrored(line) for line in lines] if self._is_mirrored else lines

    def _finish(self, index: int, document: QTextDocument) -> None:
        """Measure the cells of a part before it is laid out; keep the head of the first only."""
        tables = [one for one in document.rootFrame().childFrames() if isinstance(one, QTextTable)]
        if not tables:
            return  # it is no table after all, and shown as text
        table = tables[0]
        rows = [
            [_text_of(table, row, column) for column in range(table.columns())]
            for row in range(table.rows())
        ]
        looks = [
            [_formulas_of(table, row, column) for column in range(table.columns())]
            for row in range(table.rows())
        ]
        begin = 1 + index * PART_ROWS if index else 0
        if index:
            table.removeRows(0, 1)
            rows, looks = rows[1:], looks[1:]
        self._cells[begin:] = [
            [
                with_sources(cell, [source_of(look) for look in look_row])
                for cell, look_row in zip(row, inner, strict=True)
            ]
            for row, inner in zip(rows, looks, strict=True)
        ]
        widths = [[[look.toImageFormat().width() for look in one] for one in row] for row in looks]
        self._measure(index, document, rows, widths)
        if any(map(any, widths)):  # they came later than the text
            slices.later(self, self._share_width)
        look = table.format()
        look.setTopMargin(0)
        look.setBottomMargin(0)
        if index:
            look.setTopMargin(-1)  # its upper line is the last one of the part before
        if self._widths and len(self._widths) == table.columns():
            look.setColumnWidthConstraints(_lengths(self._widths))
        table.setFormat(look)
        for column in range(table.columns()):
            if not self._is_aligned(column) and self._is_of_numbers(column):
                _align_right(table, column)

    def _measure(
        self,
        index: int,
        document: QTextDocument,
        rows: list[list[str]],
        formulas: list[list[list[float]]],
    ) -> None:
        """Measure the cells of a part. formulas: the widths of those in each cell."""
        font = document.defaultFont()
        font.setPixelSize(theme.pixels() + 1)  # the style sheet may not be applied yet
        font.setBold(True)  # of the head, and of what a cell stresses
        bold = QFontMetricsF(font)
        font.setFamilies([theme.fixed_family()])
        fixed = QFontMetricsF(font) if "`" in self._text else bold

        def advance(words: str) -> float:
            return max(bold.horizontalAdvance(words), fixed.horizontalAdvance(words))

        n_column = max((len(row) for row in rows), default=0)
        wanted, least = [0.0] * n_column, [0.0] * n_column
        for row, inner in zip(rows, formulas, strict=True):
            for column, (cell, drawn) in enumerate(zip(row, inner, strict=True)):
                words = cell.replace("\ufffc", "") if drawn else cell
                lines = [advance(line) for line in words.split("\n")]
                wanted[column] = max(wanted[column], max(lines) + sum(drawn))
                longest = max(words.split(), key=len, default="")
                word = min(advance(longest), WORD_PIXELS_MAX)
                least[column] = max(least[column], word, *drawn)
        self._measured[index] = wanted, least
        self._wanted, self._least = (
            [max(column) for column in zip_longest(*values, fillvalue=0.0)]
            for values in zip(*self._measured.values(), strict=True)
        )

    def _is_aligned(self, column: int) -> bool:
        """Return whether the rule below the head says how to align a column."""
        rule = self._lines()[1].strip().strip("|").split("|")
        return column < len(rule) and ":" in rule[column]

    def _is_of_numbers(self, column: int) -> bool:
        cells = [row[column].strip() for row in self._cells[1:] if column < len(row)]
        filled = [cell for cell in cells if cell and cell not in ("-", "\u2013", "\u2014")]
        return bool(filled) and all(_NUMBER.fullmatch(cell) for cell in filled)

    def _share_width(self) -> None:
        """Give each column its width: all its text if there is room, else at least its words."""
        room = self._frame.viewport().width() - 2
        wanted = [width + _EDGES for width in self._wanted]
        if sum(wanted) <= room:
            widths = wanted
        else:
            least = [
                max(word + _EDGES, min(want, CELL_PIXELS))
                for word, want in zip(self._least, wanted, strict=True)
            ]
            spare, missing = room - sum(least), sum(wanted) - sum(least)
            share = max(spare, 0) / missing if missing > 0 else 0.0
            widths = [low + (want - low) * share for low, want in zip(least, wanted, strict=True)]
        whole = [round(width) for width in widths]
        if whole != self._widths:
            self._widths = whole
            self._n_wide = 0
            self._widen()
        self._frame.content.setMinimumWidth(sum(whole) + 2)

    def _widen(self) -> None:
        """Give the parts the widths of the columns, in slices."""
        with slices.a_slice() as is_over:
            while self._n_wide < len(self._parts):
                _set_widths(self._parts[self._n_wide], self._widths)
                self._n_wide += 1
                if is_over() and self._n_wide < len(self._parts):
                    slices.later(self, self._widen)
                    break

    def _markdown(self) -> str:
        return self._text

    def csv(self) -> str:
        """Return the table as CSV, formulas as LaTeX."""
        out = io.StringIO()
        step = -1 if self._is_mirrored else 1
        csv.writer(out).writerows(row[::step] for row in self._cells)
        return out.getvalue()


def _mirrored(line: str) -> str:
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return "|" + "|".join(cells[::-1]) + "|"


def _copy(source: object) -> None:
    assert callable(source)
    QGuiApplication.clipboard().setText(source())


def _text_of(table: QTextTable, row: int, column: int) -> str:
    cell = table.cellAt(row, column)
    cursor = cell.firstCursorPosition()
    cursor.setPosition(cell.lastCursorPosition().position(), QTextCursor.MoveMode.KeepAnchor)
    return cursor.selectedText().replace("\u2028", "\n").replace("\u2029", "\n")


def _formulas_of(table: QTextTable, row: int, column: int) -> list[QTextCharFormat]:
    cell = table.cellAt(row, column)
    begin, end = cell.firstPosition(), cell.lastPosition()
    return [look for _, look in drawn_in(table.document(), begin, end)]


def _align_right(table: QTextTable, column: int) -> None:
    right = QTextBlockFormat()
    right.setAlignment(Qt.AlignmentFlag.AlignRight)
    for row in range(table.rows()):
        table.cellAt(row, column).firstCursorPosition().mergeBlockFormat(right)


def _set_widths(part: TextBlock, widths: list[int]) -> None:
    part.setFixedWidth(sum(widths) + 2)
    for table in part.document().rootFrame().childFrames():
        if isinstance(table, QTextTable) and table.columns() == len(widths):
            look = table.format()
            look.setColumnWidthConstraints(_lengths(widths))
            table.setFormat(look)


def _lengths(widths: list[int]) -> list[QTextLength]:
    return [QTextLength(QTextLength.Type.FixedLength, width) for width in widths]
