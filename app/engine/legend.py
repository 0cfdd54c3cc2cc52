"""What the colours of a picture mean."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QLabel, QWidget

from app import theme


class Legend(QLabel):
    """Words with squares of colour before them; wraps where there is little room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._items: list[tuple[str, str]] = []
        self.setProperty("role", "small")
        self.setWordWrap(True)

    def show_items(self, items: list[tuple[str, str]]) -> None:
        """Show pairs of a colour's name and its meaning."""
        self._items = items
        self._write()

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102, N802
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._write()

    def _write(self) -> None:
        text = " &nbsp; ".join(
            f'<span style="color:{theme.colour(name).name()}">\u25a0</span>'
            f"&nbsp;{words.replace(' ', '&nbsp;')}"
            for name, words in self._items
        )
        if text != self.text():
            self.setText(text)
