"""The base of all pages: a title, a button back to the chat, and a column that scrolls."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFormLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QVBoxLayout,
    QWidget,
)

from app.widgets.fields import FIELD_HEIGHT
from app.widgets.icon_button import IconButton
from app.widgets.parts import filled, spaced, text_label
from app.widgets.scroll_column import BAR_WIDTH, ScrollColumn

COLUMN_WIDTH = 760


class Page(QWidget):
    """A page of the window; its widgets are added to `column`.

    Signals:
        closed: the user wants the chat.
    """

    closed = Signal()

    def __init__(self, title: str, *, scrolls: bool = True) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAccessibleName(title)
        heading = text_label("title", title)
        close = IconButton("close", self.tr("Back to the chat (Esc)"))
        close.clicked.connect(self.closed)
        head = QHBoxLayout()
        head.setContentsMargins(24, 18, 24, 0)
        filled(head, heading, 1, close)
        inside = QWidget()
        inside.setObjectName("pageColumn")
        inside.setMaximumWidth(COLUMN_WIDTH)
        self.column = spaced(QVBoxLayout(inside), 14, 24, 6, 24, 24)
        layout = spaced(QVBoxLayout(self), 8)
        layout.addLayout(head)
        if not scrolls:
            inside.setMaximumWidth(16_777_215)
            layout.addWidget(inside, 1)
            return
        centred = QWidget()
        centred.setObjectName("pageColumn")
        row = QHBoxLayout(centred)
        row.setContentsMargins(BAR_WIDTH, 0, 0, 0)  # the bar has its place at the right
        filled(row, 1, (inside, 1000), 1)
        self.area = ScrollColumn()
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(centred)
        layout.addWidget(self.area, 1)


_BESIDE_CAPTION = 24  # pixels between a caption and its field


class Section(QFrame):
    """A card with a title, and rows that have a caption and a field."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setAccessibleName(title)
        self.form = QFormLayout()
        self.form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        self.form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.FieldsStayAtSizeHint)
        self.form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        self.form.setHorizontalSpacing(0)  # Qt forgets it where it asks if a row is too long
        self.form.setVerticalSpacing(10)
        layout = spaced(QVBoxLayout(self), 10, 18, 14, 18, 16)
        filled(layout, text_label("strong", title), self.form)

    def row(self, caption: str, field: QWidget) -> None:
        """Add a field with its caption, which is also its accessible name."""
        if not field.accessibleName():
            field.setAccessibleName(caption)
        label = QLabel(caption)
        label.setBuddy(field)
        label.setMinimumSize(170 + _BESIDE_CAPTION, FIELD_HEIGHT)  # aligned with the field
        label.setContentsMargins(0, 0, _BESIDE_CAPTION, 0)
        self.form.addRow(label, field)

    def wide(self, field: QWidget) -> None:
        """Add a widget over the whole width."""
        self.form.addRow(field)


def small(text: str) -> QLabel:
    """Return a line of explanation."""
    label = text_label("small", text, wraps=True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label


def beside(*widgets: QWidget) -> QWidget:
    """Return one widget that holds widgets in a row."""
    row = QWidget()
    filled(spaced(QHBoxLayout(row), 8), *widgets, 1)
    return row
