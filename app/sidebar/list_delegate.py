"""Paints the rows of the list of chats."""

from __future__ import annotations

from PySide6.QtCore import (
    QModelIndex,
    QPersistentModelIndex,
    QPointF,
    QRectF,
    QRegularExpression,
    QSize,
    Qt,
)
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPen, QTextLayout
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.sidebar.list_model import ChatListModel
from app.store.chats import ChatRow
from app.text.language import translate
from app.widgets import icons, theme

Index = QModelIndex | QPersistentModelIndex
ROW = 34
HEADING = 32
SIDE = 10  # padding of a row, in pixels
MORE_WIDTH = 30


def place_of(words: str, text: str) -> tuple[int, int]:
    """Return where words stand in a text, as Qt counts: in units of UTF-16. (-1, -1): nowhere."""
    pattern = QRegularExpression(QRegularExpression.escape(words))
    pattern.setPatternOptions(QRegularExpression.PatternOption.CaseInsensitiveOption)
    found = pattern.match(text)
    return found.capturedStart(), found.capturedEnd()


class ChatDelegate(QStyledItemDelegate):
    """Paints a chat's title, in a search also the passage found, and small headings."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:  # noqa: D102
        chat = _model(index).chat(index)
        if chat is None:
            return QSize(80, HEADING)
        line = QFontMetrics(_small(option.font)).height()
        return QSize(80, ROW + (line if chat.snippet else 0))

    def paint(  # noqa: D102
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        chat = _model(index).chat(index)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        place = QRectF(option.rect)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        small = _small(option.font)
        if chat is None:
            small.setWeight(QFont.Weight.DemiBold)
            painter.setFont(small)
            painter.setPen(theme.colour("muted"))
            room = place.adjusted(SIDE, 8, -SIDE, 0)
            painter.drawText(room, left, str(index.data()))
            painter.restore()
            return
        state = option.state
        selected = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        card = place.adjusted(0.5, 1, -0.5, -1)
        if selected or hovered:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour("bubble" if selected else "raised"))
            painter.drawRoundedRect(card, 8, 8)
        if state & QStyle.StateFlag.State_HasFocus:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.colour("focus"), 1.3))
            painter.drawRoundedRect(card, 8, 8)
        busy = chat.id in _model(index).busy
        marks = hovered or selected or chat.is_pinned or busy
        room = place.adjusted(SIDE, 0, -(MORE_WIDTH if marks else SIDE), 0)
        painter.setPen(theme.colour("text"))
        metrics = QFontMetrics(option.font)
        title = metrics.elidedText(chat.title, Qt.TextElideMode.ElideRight, int(room.width()))
        painter.setFont(option.font)
        painter.drawText(QRectF(room.x(), room.y(), room.width(), ROW), left, title)
        if chat.snippet:
            self._snippet(
                painter, small, QRectF(room.x(), room.y() + ROW - 8, room.width(), 0), chat
            )
        if hovered or selected:
            self._icon(painter, place, "more")
        elif busy:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour("accent"))
            painter.drawEllipse(QPointF(place.right() - MORE_WIDTH + 15, place.y() + ROW / 2), 4, 4)
        elif chat.is_pinned:
            self._icon(painter, place, "pin")
        painter.restore()

    def createEditor(  # noqa: D102
        self, parent: QWidget, option: QStyleOptionViewItem, index: Index
    ) -> QWidget:
        editor = QLineEdit(parent)
        editor.setAccessibleName(translate("chats", "Name of the chat"))
        editor.setMaxLength(200)
        return editor

    def updateEditorGeometry(  # noqa: D102
        self, editor: QWidget, option: QStyleOptionViewItem, index: Index
    ) -> None:
        editor.setGeometry(option.rect)

    def _snippet(self, painter: QPainter, font: QFont, room: QRectF, chat: ChatRow) -> None:
        """Paint the passage, with what was found in it marked as in the transcript."""
        elided = QFontMetrics(font).elidedText(
            chat.snippet, Qt.TextElideMode.ElideRight, int(room.width())
        )
        layout = QTextLayout(elided, font)
        begin, end = place_of(chat.marked, elided)
        if begin < end:
            mark = QTextLayout.FormatRange()
            mark.start, mark.length = begin, end - begin
            mark.format.setBackground(theme.colour("accent"))
            mark.format.setForeground(theme.colour("on_accent"))
            layout.setFormats([mark])
        layout.beginLayout()
        layout.createLine()
        layout.endLayout()
        painter.setPen(theme.colour("muted"))
        layout.draw(painter, room.topLeft())

    def _icon(self, painter: QPainter, place: QRectF, name: str) -> None:
        y = place.y() + ROW / 2 - 7
        spot = QRectF(place.right() - MORE_WIDTH + 8, y, 14, 14)
        icons.paint(painter, name, spot, theme.colour("muted"))


def _small(font: QFont) -> QFont:
    small = QFont(font)
    small.setPixelSize(max(theme.pixels() - 1, 11))
    return small


def _model(index: Index) -> ChatListModel:
    model = index.model()
    assert isinstance(model, ChatListModel)
    return model
