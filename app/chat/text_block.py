"""A block of formatted text, as tall as its content."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from PySide6.QtCore import QEvent, QMimeData, QPoint, QRectF, QSize, QSizeF, Qt, QUrl
from PySide6.QtGui import (
    QClipboard,
    QCursor,
    QFontMetrics,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextImageFormat,
    QTextTable,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QToolTip, QWidget

from app.chat import formulas
from app.chat.markdown import meant
from app.chat.markdown.latex import replace_math
from app.chat.markdown.line_breaks import keep_breaks
from app.chat.spoken_formulas import in_words
from app.chat.text_looks import (
    PARAGRAPH_GAP,
    SOURCE,
    drawn_in,
    format_drawing,
    format_heading,
    format_table,
    in_units,
    resolve_marks,
    rule_format,
    source_of,
    stand_alone,
    with_sources,
)
from app.widgets import files, slices, theme

LINE_HEIGHT = 1.55  # times the size of the text
QUOTE_INDENT = 40  # pixels, as Qt indents a quotation
QUOTE_BAR = 3
FORMULA_SIZE = 1.12  # times the size of the text; the font of formulas has smaller letters

# No HTML: a model's output must not refer to resources elsewhere. Qt's dialect has two extensions
# more than GitHub's: it underlines what stands between "_", and hides an answer's beginning up to
# the second line "---" as "front matter".
_UNDERLINE, _FRONT_MATTER = 0x4000, 0x10_0000
FEATURES = QTextDocument.MarkdownFeature(
    QTextDocument.MarkdownFeature.MarkdownDialectGitHub.value & ~(_UNDERLINE | _FRONT_MATTER)
    | QTextDocument.MarkdownFeature.MarkdownNoHTML.value
)

_QUOTE = QTextFormat.Property.BlockQuoteLevel.value
_RULE = QTextFormat.Property.BlockTrailingHorizontalRulerWidth.value
_CODE = QTextFormat.Property.BlockCodeLanguage.value  # of indented code
_MARKED = re.compile(f"[{meant.FIRST_MARK}-{meant.LAST_MARK}]")
_FORMULA = re.compile(f"{meant.FORMULA}([0-9]+){meant.FORMULA_END}")
_HTML_IMAGE = re.compile(r'<img src="formula:[^>]*>')
_HEADING_SIZES = (0.7, 0.8, 1.0, 1.2, 1.5, 2.0, 2.4)  # Qt's, from the adjustment -2 on
_ISOLATES = re.compile("[\u2066\u2069]")


class BlockOwner(QWidget):
    """A widget whose blocks are selected together."""

    def blocks_in_order(self) -> list[TextBlock]:
        """Return the blocks, from the first to the last."""
        raise NotImplementedError


def _leave(document: QTextDocument) -> None:
    """Change nothing."""


class _Formula(NamedTuple):
    """A drawn formula with its source, of a text that is shown."""

    source: str
    drawn: formulas.Drawn
    is_display: bool


class TextBlock(QTextBrowser):
    """Selectable text without scroll bars. It never loads a resource that the text names."""

    def __init__(self, *, is_code: bool = False) -> None:
        super().__init__()
        self._is_code = is_code
        self._has_quotes = False
        self._ideal_width = 0  # 0: not known
        self._anchor: int | None = None  # where the mouse button went down, while it is down
        self._markdown = ""
        self.defined: Mapping[str, str] = {}
        """Addresses that other blocks define for references, by their labels."""
        self._finish: Callable[[QTextDocument], None] = _leave
        self._awaited: set[formulas.Key] = set()
        self._is_listening = False  # for formulas that are drawn
        self._widest = 0.0  # pixels of the widest formula; 0: there is none
        self._room = 0  # pixels for each formula
        self.setAccessibleName(self.tr("Part of the answer"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setOpenLinks(False)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAcceptDrops(False)
        self.viewport().setAutoFillBackground(False)
        self._show(self._new_document())
        self.anchorClicked.connect(self._open_link)
        # The text of a link may name another place than its target.
        self.highlighted.connect(lambda url: self.setToolTip(bytes(url.toEncoded()).decode()))
        self.setFixedHeight(1)

    def show_markdown(self, text: str, finish: Callable[[QTextDocument], None] = _leave) -> None:
        """Show Markdown. Single line breaks stay line breaks.

        A formula is shown as text until it is drawn; then the block is shown again.

        finish: changes the document before it is laid out.
        """
        self._markdown, self._finish = text, finish
        self._awaited.clear()
        found: list[_Formula] = []
        document = self._new_document()
        source = replace_math(meant.without_marks(text), partial(self._draw, found))
        source = meant.as_meant(source, self.defined)
        document.setMarkdown(keep_breaks(source), FEATURES)
        self._format(document)
        self._place(document, found)
        if _MARKED.search(source):
            resolve_marks(document)
        finish(document)
        self._show(document)

    def _draw(self, found: list[_Formula], source: str, body: str, is_display: bool) -> str | None:
        """Return the mark of a formula that is drawn; None if it is not, or not yet."""
        typesetter, key = formulas.typesetter(), (body, is_display)
        if typesetter is None:
            return None
        if (drawn := typesetter.find(key)) is None:
            if not typesetter.is_known(key):
                self._awaited.add(key)
                if not self._is_listening:
                    self._is_listening = True
                    typesetter.drawn.connect(self._look_again)
            return None
        found.append(_Formula(source, drawn, is_display))
        return f"{meant.FORMULA}{len(found) - 1}{meant.FORMULA_END}"

    def _look_again(self) -> None:
        """Show the text again if a formula that it waits for has its answer."""
        typesetter = formulas.typesetter()
        if typesetter is not None and any(typesetter.is_known(key) for key in self._awaited):
            slices.later(self, self._show_again)

    def _show_again(self) -> None:
        self.show_markdown(self._markdown, self._finish)

    def _place(self, document: QTextDocument, found: list[_Formula]) -> None:
        """Put drawn formulas in place of their marks."""
        self._widest = 0.0
        said = "; ".join(in_words(one.drawn.spoken) or one.source for one in found)
        said = self.tr("Formulas: {list}").format(list=said) if said else ""
        if said != self.accessibleDescription():
            self.setAccessibleDescription(said)
        if not found:
            return
        self._room = self.viewport().width()
        text = in_units(document.toPlainText())
        cursor = QTextCursor(document)
        cursor.beginEditBlock()
        for mark in reversed(list(_FORMULA.finditer(text))):
            one = found[int(mark[1])]
            cursor.setPosition(mark.start())
            cursor.setPosition(mark.end(), QTextCursor.MoveMode.KeepAnchor)
            image = self._image(document, cursor, one, f"formula:{mark[1]}")
            cursor.insertImage(image)
            layout = QTextBlockFormat()
            least = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
            layout.setLineHeight(self._line_height(), least)
            cursor.mergeBlockFormat(layout)
            if one.is_display:
                stand_alone(cursor)
        cursor.endEditBlock()

    def _image(
        self, document: QTextDocument, cursor: QTextCursor, one: _Formula, name: str
    ) -> QTextImageFormat:
        """Return an image of a formula, whose baseline Qt puts on that of the line.

        Qt centres an image at half the height of a letter x: it has (height + x / 2) / 2 above
        the baseline. So the image has an empty edge above or below.
        """
        look = QTextImageFormat()
        look.setFont(document.defaultFont())
        adjusted = cursor.charFormat().intProperty(QTextFormat.Property.FontSizeAdjustment.value)
        em = self._letter_pixels() * _HEADING_SIZES[min(max(adjusted, -2), 4) + 2] * FORMULA_SIZE
        level = cursor.blockFormat().intProperty(_QUOTE)
        lists = cursor.blockFormat().indent() + (
            cursor.currentList().format().indent() if cursor.currentList() else 0
        )
        room = self._room - QUOTE_INDENT * level - 24 * lists - 4
        self._widest = max(self._widest, one.drawn.width * em + self._room - room)
        if room > em * 5 and cursor.currentTable() is None:
            em *= min(1.0, room / (one.drawn.width * em))
        width, ascent, depth = (em * size for size in one.drawn[1:4])
        half_x = QFontMetrics(look.font()).xHeight() / 2
        height = math.ceil(max(2 * ascent - half_x, 2 * depth + half_x))
        above = (height + half_x) / 2
        place = (0.0, above - ascent, width, ascent + depth)
        image = formulas.picture(
            one.drawn.svg, math.ceil(width), height, place, theme.colour("text").name(),
            self.devicePixelRatioF(),
        )  # fmt: skip
        document.addResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name), image)
        look.setName(name)
        look.setWidth(math.ceil(width))
        look.setHeight(height)
        look.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
        look.setProperty(SOURCE, one.source)
        return look

    def find_all(self, words: str, most: int) -> list[QTextCursor]:
        """Return the places of words, also in the source of drawn formulas, in their order."""
        found: list[QTextCursor] = []
        cursor = self.document().find(words)
        while not cursor.isNull() and len(found) < most:
            found.append(cursor)
            cursor = self.document().find(words, cursor)
        if self._widest:
            for at, look in drawn_in(self.document()):
                if words.casefold() in source_of(look).casefold():
                    cursor = QTextCursor(self.document())
                    cursor.setPosition(at)
                    cursor.setPosition(at + 1, QTextCursor.MoveMode.KeepAnchor)
                    found.append(cursor)
            found.sort(key=QTextCursor.selectionStart)
        return found[:most]

    def show_plain(self, text: str) -> None:
        """Show plain text."""
        self._markdown, self._widest = "", 0.0
        self._awaited.clear()
        document = self._new_document()
        document.setPlainText(text)
        self._format(document, gap=0)
        self._show(document)

    def append_plain(self, text: str) -> None:
        """Append plain text without a new layout of the present text."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)

    def set_wrapping(self, wraps: bool) -> None:
        """Wrap lines at the width of the block, or never."""
        modes = QTextBrowser.LineWrapMode
        self.setLineWrapMode(modes.WidgetWidth if wraps else modes.NoWrap)

    def ideal_width(self) -> int:
        """Return the width at which no line of plain text would wrap."""
        if not self._ideal_width:
            copy = QTextDocument()  # PySide never frees what QTextDocument.clone() returns
            copy.setDocumentMargin(0)
            copy.setDefaultFont(self.document().defaultFont())
            copy.setPlainText(self.toPlainText())
            self._ideal_width = math.ceil(copy.idealWidth()) + 1
        return self._ideal_width

    def _open_link(self, address: QUrl) -> None:
        if address.scheme() in ("http", "https") and (said := files.open_page(address)):
            QToolTip.showText(QCursor.pos(), said, self)

    def event(self, event: QEvent) -> bool:
        """Draw formulas for the pixels of another screen."""
        if event.type() == QEvent.Type.DevicePixelRatioChange and self._widest:
            slices.later(self, self._show_again)
        return bool(super().event(event))

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        self._ideal_width = 0  # another font may be another width

    def loadResource(self, kind: int, name: QUrl | str) -> Any:  # noqa: D102
        return None

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        super().paintEvent(event)
        if not self._has_quotes:
            return
        painter = QPainter(self.viewport())
        layout = self.document().documentLayout()
        block = self.document().begin()
        while block.isValid():
            # Qt indents a quotation, and draws nothing.
            format_, following = block.blockFormat(), block.next()
            n_next = following.blockFormat().intProperty(_QUOTE) if following.isValid() else 0
            place = layout.blockBoundingRect(block)
            below = layout.blockBoundingRect(following).y() if n_next else 0.0
            for level in range(format_.intProperty(_QUOTE)):
                if level < n_next and below > place.y():  # it goes on
                    place.setBottom(below)
                x = QUOTE_INDENT * level + 10.0
                if block.textList() is None:  # the quotation lies in an item
                    x += self.document().indentWidth() * format_.indent()
                if block.textDirection() == Qt.LayoutDirection.RightToLeft:
                    x = self.viewport().width() - x - QUOTE_BAR
                painter.fillRect(
                    QRectF(x, place.y(), QUOTE_BAR, place.height()), theme.colour("faint")
                )
            block = block.next()
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay out the text for another width; in a later slice, if it is out of sight."""
        if self._widest > min(self._room, event.size().width()) and (
            self._room != event.size().width()
        ):
            slices.later(self, self._show_again)  # its formulas are scaled to the width
        is_narrower_or_wider = 0 < event.oldSize().width() != event.size().width()
        if is_narrower_or_wider and self.isVisible() and self.visibleRegion().isEmpty():
            slices.later(self, self._lay_out)
        else:
            super().resizeEvent(event)

    def _lay_out(self) -> None:
        super().resizeEvent(QResizeEvent(self.viewport().size(), QSize(0, 0)))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin a selection; forget the one of other blocks."""
        for block in self._together():
            if block is not self:
                block.select(0, 0)
        super().mousePressEvent(event)
        is_left = event.button() == Qt.MouseButton.LeftButton
        self._anchor = self._position_at(event.globalPosition().toPoint()) if is_left else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Select to the mouse, over the blocks of the answer."""
        place = event.globalPosition().toPoint()
        if self._anchor is None or not event.buttons() & Qt.MouseButton.LeftButton:
            super().mouseMoveEvent(event)
        elif self.textCursor().hasSelection() or self._position_at(place) != self._anchor:
            self._select_to(place)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """End a selection. Where there is one, a link below the mouse is not followed."""
        is_drag, self._anchor = self._anchor is not None, None
        if not (is_drag and self.textCursor().hasSelection()):
            super().mouseReleaseEvent(event)
        elif (clipboard := QGuiApplication.clipboard()).supportsSelection():
            clipboard.setText(self.selected_text(), QClipboard.Mode.Selection)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Select all of the answer, not of the block only."""
        if event.matches(QKeySequence.StandardKey.SelectAll):
            for block in self._together():
                block.select(0, block.document().characterCount() - 1)
        else:
            super().keyPressEvent(event)

    def select(self, anchor: int, position: int) -> None:
        """Select from a position to another; nothing if they are equal."""
        cursor = QTextCursor(self.document())
        cursor.setPosition(anchor)
        cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
        cursor.setKeepPositionOnInsert(True)  # what an answer grows by is not selected
        self.setTextCursor(cursor)
        for bar in (self.horizontalScrollBar(), self.verticalScrollBar()):
            bar.setValue(0)  # Qt shows the cursor, and moves the text for it

    def selected_text(self) -> str:
        """Return the selected text of all blocks of the answer, in order."""
        texts = [block._own_selected_text() for block in self._together()]
        return "\n".join(text for text in texts if text)

    def _own_selected_text(self) -> str:
        """Return the text selected here: formulas as LaTeX, without marks that keep directions."""
        text = _ISOLATES.sub("", self.textCursor().selection().toPlainText())
        return with_sources(text, self._selected_sources()) if self._widest else text

    def _selected_sources(self) -> list[str]:
        cursor = self.textCursor()
        begin, end = cursor.selectionStart(), cursor.selectionEnd()
        return [source_of(look) for _, look in drawn_in(self.document(), begin, end)]

    def _select_to(self, place: QPoint) -> None:
        """Select from where the button went down to a place on the screen."""
        blocks = self._together()
        spans = [(block, block.mapFromGlobal(place).y()) for block in blocks]
        target = min(spans, key=lambda span: max(-span[1], span[1] - span[0].height(), 0))[0]
        here, there = blocks.index(self), blocks.index(target)
        for index, block in enumerate(blocks):
            end = block.document().characterCount() - 1
            begin, end = (0, end) if here <= there else (end, 0)
            if not min(here, there) <= index <= max(here, there):
                begin = end = 0
            if index == here:
                begin = self._anchor or 0
            if index == there:
                end = target._position_at(place)
            block.select(begin, end)

    def _position_at(self, place: QPoint) -> int:
        return self.cursorForPosition(self.viewport().mapFromGlobal(place)).position()

    def _together(self) -> list[TextBlock]:
        """Return the blocks that are selected together, from the first to the last."""
        owner = self.parentWidget()
        while owner is not None and not isinstance(owner, BlockOwner):
            owner = owner.parentWidget()
        blocks = owner.blocks_in_order() if owner is not None else []
        return blocks if self in blocks else [self]

    def createMimeDataFromSelection(self) -> QMimeData:
        """Copy what is selected in all blocks; formulas as LaTeX."""
        made = super().createMimeDataFromSelection()
        made.text()  # Qt fills it in when it is first read, over what was set
        text = self.selected_text()
        if text != self._own_selected_text():
            # The text of one block says less. The clipboard gets no object that Python made: Qt
            # may delete it after the end of Python, and crashes then.
            made.clear()
        elif self._widest and made.hasHtml():
            escaped = [html.escape(source) for source in self._selected_sources()]
            made.setHtml(_HTML_IMAGE.sub(lambda _: escaped.pop(0), made.html()))
        made.setText(text)
        return made

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: D102
        event.ignore()  # the transcript scrolls, not one message

    def _forget_width(self) -> None:
        self._ideal_width = 0

    def _fit(self, size: QSizeF) -> None:
        height = max(math.ceil(size.height()), 1)
        if height != self.height():
            self.setFixedHeight(height)

    def _new_document(self) -> QTextDocument:
        """Return an empty document. Its contents are laid out once, when it is shown."""
        document = QTextDocument(self)
        document.setUndoRedoEnabled(False)
        document.setDocumentMargin(0)
        document.setIndentWidth(24)
        document.setDefaultFont(self.document().defaultFont())
        return document

    def _show(self, document: QTextDocument) -> None:
        before, selected = self.document(), self.textCursor()
        is_ours = before.parent() is self
        marks = [
            (mark.cursor.selectionStart(), mark.cursor.selectionEnd(), mark)
            for mark in self.extraSelections()
        ]
        text = before.toPlainText() if selected.hasSelection() or marks else ""
        self.setExtraSelections([])  # Qt would look for their places in the deleted text
        self.setDocument(document)
        shown = document.toPlainText() if text else ""  # it has grown as a rule
        end = max(selected.anchor(), selected.position())
        if selected.hasSelection() and shown[:end] == text[:end]:
            self.select(selected.anchor(), selected.position())
        while marks and shown[: marks[-1][1]] != text[: marks[-1][1]]:
            marks.pop()
        for begin, end, mark in marks:
            mark.cursor = QTextCursor(document)
            mark.cursor.setPosition(begin)
            mark.cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        self.setExtraSelections([mark for *_, mark in marks])
        if is_ours:  # Qt deletes its own
            before.deleteLater()
        document.documentLayout().documentSizeChanged.connect(self._fit)
        document.contentsChanged.connect(self._forget_width)
        self._forget_width()
        self._fit(document.size())

    def _format(self, document: QTextDocument, gap: int = PARAGRAPH_GAP) -> None:
        """Set line height, paragraph gaps, the background of inline code, and table borders."""
        line_height = self._line_height()
        cursor = QTextCursor(document)
        cursor.beginEditBlock()
        self._has_quotes = False
        block = document.begin()
        while block.isValid():
            format_ = block.blockFormat()
            self._has_quotes |= format_.hasProperty(_QUOTE)
            layout = QTextBlockFormat()
            # One height for all lines, whatever their fonts; headings set their own.
            kinds = QTextBlockFormat.LineHeightTypes
            if block.blockFormat().headingLevel():
                layout.setLineHeight(120, kinds.ProportionalHeight.value)
            else:
                layout.setLineHeight(line_height, kinds.FixedHeight.value)
            in_list = block.textList() is not None and block.next().textList() is not None
            is_first = block == document.begin()
            layout.setTopMargin(gap if block.blockFormat().headingLevel() and not is_first else 0)
            cursor.setPosition(block.position())
            in_table = cursor.currentTable() is not None
            last = not block.next().isValid()
            in_code = all(one.blockFormat().hasProperty(_CODE) for one in (block, block.next()))
            is_joined = last or in_table or in_code
            layout.setBottomMargin(0 if is_joined else 3 if in_list else gap)
            cursor.mergeBlockFormat(layout)
            if block.blockFormat().hasProperty(_RULE):
                cursor.mergeBlockFormat(rule_format())
            self._format_code(block.begin(), cursor)
            if "\u2028" in block.text():
                format_drawing(block, cursor)
            if level := block.blockFormat().headingLevel():
                cursor.setPosition(block.position())
                format_heading(cursor, level)
            block = block.next()
        for frame in document.rootFrame().childFrames():
            if isinstance(frame, QTextTable):
                format_table(frame)
        cursor.endEditBlock()

    def _letter_pixels(self) -> int:
        # As in the style sheet, which may not be applied yet.
        return theme.pixels() + (not self._is_code)

    def _line_height(self) -> int:
        return round(self._letter_pixels() * LINE_HEIGHT)

    def _format_code(self, iterator: Any, cursor: QTextCursor) -> None:
        spans = []
        while not iterator.atEnd():
            fragment = iterator.fragment()
            if fragment.isValid() and fragment.charFormat().fontFixedPitch():
                spans.append((fragment.position(), fragment.length()))
            iterator += 1
        for position, length in spans:
            look = QTextCharFormat()
            look.setBackground(theme.colour("hover"))
            look.setFontFamilies([theme.fixed_family()])
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            cursor.mergeCharFormat(look)
