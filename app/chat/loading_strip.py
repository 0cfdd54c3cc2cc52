"""A thin line of progress of work that a person may end: a model loads, chats are imported."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.text import units
from app.text.messages import localized
from app.widgets.parts import filled, progress_bar, spaced, text_label


class LoadingStrip(QWidget):
    """Shows the work, the progress, and a button that ends it.

    Signals:
        cancel: the user wants to end the work.
    """

    cancel = Signal()

    def __init__(self, name: str, button: str, ends: str) -> None:
        """Make a hidden strip. name, ends: what a screen reader says of the bar and the button."""
        super().__init__()
        self._words = ""
        self._label = text_label("muted")
        self._bar = progress_bar(name)
        cancel = QPushButton(button)
        cancel.setProperty("role", "quiet")
        cancel.setAccessibleName(ends)
        cancel.clicked.connect(self.cancel)
        row = filled(QHBoxLayout(), (self._label, 1), cancel)
        filled(spaced(QVBoxLayout(self), 6), row, self._bar)
        self.hide()

    @property
    def text(self) -> str:
        """Return the shown text."""
        return self._label.text()

    def begin(self, words: str) -> None:
        """Show that work has begun. words: what it is, without a full stop."""
        self._words = words
        self._bar.setValue(0)
        self._label.setText(self.tr("{words}\u2026").format(words=words))
        self.show()

    def show_progress(self, fraction: float, stage: str) -> None:
        """Show the progress (0 to 1) and the stage."""
        self._bar.setValue(round(1000 * min(max(fraction, 0.0), 1.0)))
        text = f"{self._words}, {units.percent(fraction)}"
        self._label.setText(f"{text}: {localized(stage)}" if stage else text)
