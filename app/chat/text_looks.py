"""The look of parts of a document that Qt has made from Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFont,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextTable,
)

from app.chat.markdown import meant
from app.chat.markdown.line_breaks import drawn_lines
from app.widgets import theme

PARAGRAPH_GAP = 9  # pixels
CELL_PADDING = 6
_MARKED = re.compile(f"[{meant.FIRST_MARK}-{meant.LAST_MARK}]")
SOURCE = QTextFormat.Property.UserProperty.value + 1  # of a drawn formula: its LaTeX
_IMAGE = "\ufffc"  # stands for an image in the text of a document


def drawn_in(
    document: QTextDocument, begin: int = 0, end: int | None = None
) -> Iterator[tuple[int, QTextCharFormat]]:
    """Yield the place and the look of each drawn formula between two places."""
    block = document.findBlock(begin)
    while block.isValid() and (end is None or block.position() < end):
        pieces = block.begin()
        while not pieces.atEnd():
            piece = pieces.fragment()
            if piece.charFormat().hasProperty(SOURCE):
                for at in range(piece.position(), piece.position() + piece.length()):
                    if (
                        begin <= at
                        and (end is None or at < end)
                        and (document.characterAt(at) == _IMAGE)
                    ):
                        yield at, piece.charFormat()
            pieces += 1
        block = block.next()


def source_of(look: QTextCharFormat) -> str:
    """Return the LaTeX of a drawn formula, with its delimiters."""
    return str(look.property(SOURCE))


def with_sources(text: str, sources: list[str]) -> str:
    """Return text with the sources of its formulas in place of their images."""
    pieces = text.split(_IMAGE)
    if len(pieces) != len(sources) + 1:  # the text itself has such a sign
        return text
    return "".join(piece + source for piece, source in zip(pieces, [*sources, ""], strict=True))


def in_units(text: str) -> str:
    """Return text whose indices are Qt's: with two signs for each one beyond U+FFFF."""
    return re.sub("[\U00010000-\U0010ffff]", "\ufffd\ufffd", text)


def stand_alone(cursor: QTextCursor) -> None:
    """Give the formula before the cursor a line of its own, in the middle where it can be."""
    if cursor.currentTable() is not None:
        return
    block, at, document = cursor.block(), cursor.positionInBlock(), cursor.document()
    text, begin, in_list = in_units(block.text()), block.position(), block.textList() is not None
    image = begin + at - 1
    after, before = text[at:], text[: at - 1]
    n_after = len(after) - len(after.lstrip())
    n_before = len(before) - len(before.rstrip())
    for side, start, n_gap in ((after, begin + at, n_after), (before, image - n_before, n_before)):
        if not side.strip():
            continue
        n_before_change = document.characterCount()
        cursor.setPosition(start)
        cursor.setPosition(start + n_gap, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if in_list:
            cursor.insertText(meant.LINE_SEPARATOR, QTextCharFormat())
        else:
            cursor.insertBlock()
        if side is before:
            image += document.characterCount() - n_before_change
    if not in_list:
        cursor.setPosition(image)
        layout = QTextBlockFormat()
        layout.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        cursor.mergeBlockFormat(layout)


def rule_format() -> QTextBlockFormat:
    """Return the format of a rule between paragraphs."""
    layout = QTextBlockFormat()
    layout.setBackground(theme.colour("border"))
    layout.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    return layout


def format_heading(cursor: QTextCursor, level: int) -> None:
    """Give a whole heading its size; Qt leaves out what stands behind bold text, code or a link.

    cursor: at its beginning.
    """
    look = QTextCharFormat()
    look.setProperty(QTextFormat.Property.FontSizeAdjustment.value, 4 - level)
    look.setFontWeight(QFont.Weight.Bold)
    cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    cursor.mergeCharFormat(look)


def format_table(table: QTextTable) -> None:
    """Give a table its lines, and a bold head."""
    look = table.format()
    look.setBorderCollapse(True)
    look.setBorder(1)
    look.setBorderBrush(theme.colour("border"))
    look.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    look.setCellPadding(CELL_PADDING)
    look.setCellSpacing(0)
    look.setTopMargin(PARAGRAPH_GAP)
    look.setBottomMargin(PARAGRAPH_GAP)
    table.setFormat(look)
    for column in range(table.columns()):  # Qt inserts an empty line after a quotation
        cell = table.cellAt(0, column)
        cursor = cell.firstCursorPosition()
        if not cursor.block().text() and cursor.block() != cell.lastCursorPosition().block():
            cursor.deleteChar()
        bold = QTextCharFormat()
        bold.setFontWeight(QFont.Weight.DemiBold)
        cursor.setPosition(cell.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        cursor.mergeCharFormat(bold)


def format_drawing(block: QTextBlock, cursor: QTextCursor) -> None:
    """Give the lines of a drawing letters of one width."""
    lines = in_units(block.text()).split("\u2028")
    place = block.position()
    look = QTextCharFormat()
    look.setFontFamilies([theme.fixed_family()])
    for line, is_drawn in zip(lines, drawn_lines(lines), strict=True):
        if is_drawn:
            cursor.setPosition(place)
            cursor.setPosition(place + len(line), QTextCursor.MoveMode.KeepAnchor)
            cursor.mergeCharFormat(look)
        place += len(line) + 1


def resolve_marks(document: QTextDocument) -> None:
    """Give the text between marks of `meant` its look, and take the marks away."""
    units = memoryview(document.toPlainText().encode("utf-16-le")).cast("H")
    marks = [(at, chr(unit)) for at, unit in enumerate(units) if _MARKED.match(chr(unit))]
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    begun: dict[str, list[int]] = {}
    for at, mark in marks:
        for name, opening in meant.OPENING.items():
            if mark == opening:
                begun.setdefault(name, []).append(at)
            elif mark == meant.CLOSING[name] and begun.get(name):
                cursor.setPosition(begun[name].pop())
                cursor.setPosition(at, QTextCursor.MoveMode.KeepAnchor)
                cursor.mergeCharFormat(_look(name))
    for at, mark in reversed(marks):
        cursor.setPosition(at)
        cursor.setPosition(at + 1, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertText("~" if mark == meant.TILDE else "")
    cursor.endEditBlock()


def _look(name: str) -> QTextCharFormat:
    """Return the format of a tag of HTML; app.chat.markdown.meant has the names."""
    look = QTextCharFormat()
    if name in ("sub", "sup"):
        kinds = QTextCharFormat.VerticalAlignment
        look.setVerticalAlignment(kinds.AlignSubScript if name == "sub" else kinds.AlignSuperScript)
    elif name == "kbd":
        look.setFontFamilies([theme.fixed_family()])
        look.setBackground(theme.colour("hover"))
    elif name == "b":
        look.setFontWeight(QFont.Weight.Bold)
    elif name == "i":
        look.setFontItalic(True)
    elif name == "u":
        look.setFontUnderline(True)
    elif name == "s":
        look.setFontStrikeOut(True)
    else:
        look.setBackground(theme.colour("hover"))
    return look
