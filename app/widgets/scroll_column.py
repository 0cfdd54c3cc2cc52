"""A column of text that scrolls up and down."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea

BAR_WIDTH = 12  # pixels, as in the style sheet


class ScrollColumn(QScrollArea):
    """A scroll area as wide as its widget. The scroll bar always has its place.

    If the bar took its width only while it is shown, a text could need the bar only while the bar
    is hidden. Qt would then show and hide it in turns within one call until the stack overflows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self._show_bar(0, 0)
        self.verticalScrollBar().rangeChanged.connect(self._show_bar)

    def _show_bar(self, low: int, high: int) -> None:
        self.verticalScrollBar().setEnabled(high > low)  # the style sheet hides a disabled bar
