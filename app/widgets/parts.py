"""Small things that most widgets are made of."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QBoxLayout,
    QDialog,
    QDialogButtonBox,
    QLabel,
    QLayout,
    QPlainTextEdit,
    QProgressBar,
    QWidget,
)

L = TypeVar("L", bound=QBoxLayout)
Part = QWidget | QLayout


def text_label(role: str, text: str = "", *, wraps: bool = False) -> QLabel:
    """Return a label whose look is that of a role in the style sheet."""
    made = QLabel(text)
    made.setProperty("role", role)
    made.setWordWrap(wraps)
    return made


def report_field(name: str) -> QPlainTextEdit:
    """Return a field with a text to read, in a fixed-width font."""
    made = QPlainTextEdit()
    made.setObjectName("report")
    made.setReadOnly(True)
    made.setAccessibleName(name)
    return made


def progress_bar(name: str = "", most: int = 1000) -> QProgressBar:
    """Return a bar without words. most: its value at the end; 0: there is no telling."""
    made = QProgressBar()
    made.setTextVisible(False)
    made.setRange(0, most)
    made.setAccessibleName(name)
    return made


def spaced(
    layout: L, spacing: int, left: int = 0, top: int = 0, right: int = 0, bottom: int = 0
) -> L:
    """Return a layout with these pixels between its items, and around them."""
    layout.setContentsMargins(left, top, right, bottom)
    layout.setSpacing(spacing)
    return layout


def filled(
    layout: L, *items: Part | int | tuple[Part, int] | tuple[QWidget, Qt.AlignmentFlag]
) -> L:
    """Return a layout with these items. A number is a stretch.

    A pair is an item and its stretch, or a widget and its alignment.
    """
    for item in items:
        if isinstance(item, int):
            layout.addStretch(item)
            continue
        part, how = item if isinstance(item, tuple) else (item, 0)
        if isinstance(part, QLayout):
            layout.addLayout(part, how)
        elif isinstance(how, Qt.AlignmentFlag):
            layout.addWidget(part, 0, how)
        else:
            layout.addWidget(part, how)
    return layout


def discard(layout: QLayout | None, *widgets: QWidget) -> None:
    """Hide widgets, take them out of a layout, and have Qt delete them when it is idle."""
    for widget in widgets:
        if layout is not None:
            layout.removeWidget(widget)
        widget.hide()
        widget.deleteLater()


def dress(widget: QWidget, value: object, name: str = "role") -> None:
    """Give a widget the look of another value of a property in the style sheet."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def saves_or_cancels(dialog: QDialog) -> QDialogButtonBox:
    """Return the buttons that end a dialog."""
    kinds = QDialogButtonBox.StandardButton
    buttons = QDialogButtonBox(kinds.Save | kinds.Cancel)
    for kind in (kinds.Save, kinds.Cancel):
        buttons.button(kind).setAccessibleName(buttons.button(kind).text().replace("&", ""))
    buttons.button(kinds.Save).setProperty("role", "primary")
    buttons.accepted.connect(dialog.accept)
    buttons.rejected.connect(dialog.reject)
    return buttons
