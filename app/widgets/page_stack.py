"""The pages of the window, by name."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

CHAT = "chat"


class Pages(QStackedWidget):
    """Shows one page. The first page is the chat; Esc returns to it.

    Signals:
        went: (str) the name of the page that is shown now.
    """

    went = Signal(str)

    def __init__(self, chat: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names: list[str] = []
        self.add(CHAT, chat)

    def add(self, name: str, page: QWidget) -> None:
        """Add a page."""
        self._names.append(name)
        self.addWidget(page)

    @property
    def present(self) -> str:
        """Return the name of the shown page."""
        return self._names[self.currentIndex()]

    def go(self, name: str) -> None:
        """Show a page; an unknown name shows the chat."""
        name = name if name in self._names else CHAT
        self.setCurrentIndex(self._names.index(name))
        self.went.emit(name)

    def toggle(self, name: str) -> None:
        """Show a page, or the chat if the page is shown already."""
        self.go(CHAT if self.present == name else name)
