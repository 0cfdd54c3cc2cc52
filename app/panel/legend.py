"""The legend of a picture's colours."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from app.widgets import theme

SQUARE = "\u25a0"
Items = Sequence[tuple[str, str] | tuple[str, str, str]]


class Legend(QLabel):
    """Words after coloured squares. It wraps if the room is small."""

    def __init__(self) -> None:
        super().__init__()
        self._items: Items = []
        self.setProperty("role", "small")
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Maximum)

    def show_items(self, items: Items) -> None:
        """Show items: a colour's name, its meaning, and the sign if it is not a square."""
        self._items = items
        self._write()

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._write()

    def _write(self) -> None:
        text = "&nbsp;&nbsp; ".join(
            f'<span style="color:{theme.colour(name).name()}">{(*sign, SQUARE)[0]}</span>'
            f"&nbsp;{words.replace(' ', '&nbsp;')}"
            for name, words, *sign in self._items
        )
        if text != self.text():
            self.setText(text)
