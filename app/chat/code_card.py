"""A block of code with its language and a Copy button."""

from __future__ import annotations

import math
from collections.abc import Iterator

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication, QTextCharFormat, QTextLayout
from PySide6.QtWidgets import QFrame, QVBoxLayout

from app.chat.markdown import highlight
from app.chat.text_block import TextBlock
from app.widgets import slices, theme
from app.widgets.parts import discard, filled, spaced
from app.widgets.quiet_button import QuietButton, head_of_card
from app.widgets.sideways_area import SidewaysArea

PART_LINES = 50  # long code is split into parts; only the last is coloured again
PART_CHARS = 6000
WAIT_MS = 60  # between two checks whether a lexer is loaded


class CodeCard(QFrame):
    """Shows code as it grows."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.setObjectName("codeCard")
        self._language = language
        self._text = self._wanted = ""  # the text shown now, and the next one
        self._parts: list[tuple[TextBlock, int]] = []  # each with its start in the text
        copy = QuietButton(self.tr("Copy"), self.tr("Copy this code"), self._copy)
        self._wrap = QuietButton(self.tr("Wrap lines"), self.tr("Wrap the lines of this code"))
        self._wrap.setCheckable(True)
        self._wrap.toggled.connect(self._set_wrapping)
        self._wrap.hide()
        self._frame = SidewaysArea()
        self._frame.setAccessibleName(self.tr("Code"))
        self._frame.widened.connect(self._offer_wrapping)
        self._bodies = self._frame.column
        head = head_of_card(language or "text", self._wrap, copy)
        filled(spaced(QVBoxLayout(self), 5, 14, 7, 8, 8), head, self._frame)
        self._later = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._later.timeout.connect(self._colour_all)

    def show_text(self, text: str) -> None:
        """Show the code so far, long code in slices; do not lay out earlier code again."""
        self._wanted = text.rstrip("\n")
        if not self._wanted.startswith(self._text):
            self._clear()
        if not self._parts:
            self._new_part(0)
        self._grow()

    def _grow(self) -> None:
        text = self._wanted
        with slices.a_slice() as is_over:
            while len(self._text) < len(text):
                body, begin = self._parts[-1]
                part = text[begin : begin + PART_CHARS]
                lines = part.split("\n", PART_LINES)
                end = begin + len("\n".join(lines[:PART_LINES]))
                addition = text[len(self._text) : end]
                if len(self._text) == begin:
                    body.show_plain(addition)
                else:
                    body.append_plain(addition)
                self._text = text[:end]
                self._colour(body, begin)
                self._widen(body)
                if end < len(text):  # the next line break separates two parts
                    self._text = text[: end + (text[end] == "\n")]
                    self._new_part(len(self._text))
                    if is_over():
                        slices.later(self, self._grow)
                        break

    def _widen(self, body: TextBlock) -> None:
        """Have room for the longest line of a part, unless lines are wrapped."""
        if not self._wrap.isChecked():
            wanted = max(
                math.ceil(body.document().idealWidth()) + 2, self._frame.content.minimumWidth()
            )
            self._frame.content.setMinimumWidth(wanted)
            self._offer_wrapping()

    def _set_wrapping(self, wraps: bool) -> None:
        self._frame.content.setMinimumWidth(0)
        for body, _ in self._parts:
            body.set_wrapping(wraps)
            self._widen(body)

    def _offer_wrapping(self) -> None:
        is_wide = self._frame.content.minimumWidth() > self._frame.viewport().width()
        self._wrap.setVisible(is_wide or self._wrap.isChecked())

    def redress(self) -> Iterator[None]:
        """Colour everything again, a part at each step."""
        for body, begin in self._parts:
            self._colour(body, begin)
            yield

    def _colour_all(self) -> None:
        for _ in self.redress():
            pass

    def _new_part(self, begin: int) -> None:
        body = TextBlock(is_code=True)
        body.setAccessibleName(self.tr("Code"))
        body.set_wrapping(self._wrap.isChecked())
        self._parts.append((body, begin))
        self._bodies.addWidget(body)

    def _colour(self, body: TextBlock, begin: int) -> None:
        if not highlight.is_ready(self._language):
            self._later.start()
            return
        text = body.toPlainText()
        pieces = highlight.pieces(self._language, text)
        block, column = body.document().begin(), 0
        spans: list[QTextLayout.FormatRange] = []
        place = 0
        for piece in pieces:
            for number, line in enumerate(text[place : place + piece.n_char].split("\n")):
                if number:
                    block.layout().setFormats(spans)
                    block, column, spans = block.next(), 0, []
                if piece.kind and line:
                    spans.append(_span(column, len(line), piece.kind))
                column += len(line)
            place += piece.n_char
        if pieces and block.isValid():
            block.layout().setFormats(spans)
        if pieces:
            body.document().markContentsDirty(0, len(text))

    def _clear(self) -> None:
        discard(self._bodies, *(body for body, _ in self._parts))
        self._parts.clear()
        self._frame.content.setMinimumWidth(0)
        self._text = ""

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._wanted)


def _span(start: int, length: int, kind: str) -> QTextLayout.FormatRange:
    span = QTextLayout.FormatRange()
    span.start, span.length = start, length
    look = QTextCharFormat()
    look.setForeground(theme.colour(kind))
    span.format = look
    return span
