"""The pages of the window, by name."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

CHAT = "chat"


class Pages(QStackedWidget):
    """Shows one page. The first page is the chat; Esc returns to it.

    Signals:
        went: (str) the name of the page that is shown now.
    """

    went = Signal(str)

    def __init__(self, chat: QWidget) -> None:
        super().__init__()
        self._pages: dict[str, QWidget] = {}
        self._makers: dict[str, Callable[[], QWidget]] = {}
        self.add(CHAT, chat)

    def add(self, name: str, page: QWidget) -> None:
        """Add a page."""
        self._pages[name] = page
        self.addWidget(page)

    def add_later(self, name: str, make: Callable[[], QWidget]) -> None:
        """Add a page that is made when it is shown for the first time."""
        self._makers[name] = make

    @property
    def present(self) -> str:
        """Return the name of the shown page."""
        shown = self.currentWidget()
        return next(name for name, page in self._pages.items() if page is shown)

    def go(self, name: str) -> None:
        """Show a page; an unknown name shows the chat."""
        if name in self._makers:
            self.add(name, self._makers.pop(name)())
        name = name if name in self._pages else CHAT
        self.setCurrentWidget(self._pages[name])
        self.went.emit(name)

    def toggle(self, name: str) -> None:
        """Show a page, or the chat if the page is shown already."""
        self.go(CHAT if self.present == name else name)
