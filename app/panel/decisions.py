"""The decisions of the adaptive method (`auto`) in this answer: the last one, or all."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.text.messages import localized
from app.widgets.parts import filled, spaced, text_label
from app.widgets.quiet_button import head_of_card


class Decisions(QWidget):
    """Hidden without decisions."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[str, ...] = ()
        self.last = text_label("small", wraps=True)
        self.all = text_label("small", wraps=True)
        self.all.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = QPushButton()
        self.button.setProperty("role", "quiet")
        self.button.setCheckable(True)
        self.button.setAccessibleName(self.tr("All decisions"))
        self.button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.button.toggled.connect(lambda _: self._write())
        head = head_of_card(self.tr("What the adaptive method decided"), self.button, role="strong")
        filled(spaced(QVBoxLayout(self), 4), head, self.last, self.all)
        self.show_lines(())

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the decisions, oldest first."""
        return self._lines

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show decisions, oldest first."""
        lines = tuple(map(localized, lines))
        if lines != self._lines or not lines:
            self._lines = lines
            self._write()

    def _write(self) -> None:
        lines, is_open = self._lines, self.button.isChecked()
        self.setVisible(bool(lines))
        self.last.setText(lines[-1] if lines else "")
        self.last.setVisible(not is_open)
        self.all.setVisible(is_open)
        self.all.setText("\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1)))
        self.button.setVisible(len(lines) > 1)
        self.button.setText(
            self.tr("Only the last") if is_open else self.tr("All %n decision(s)", "", len(lines))
        )
