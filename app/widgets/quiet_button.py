"""Buttons of words without a frame, beside what they act on."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton

from app.widgets.parts import filled, text_label


class QuietButton(QPushButton):
    """A click leaves the focus in the composer. `name`: what a screen reader says."""

    def __init__(self, text: str, name: str, action: Callable[[], object] | object = None) -> None:
        super().__init__(text)
        self.setProperty("role", "quiet")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName(name)
        if action is not None:
            self.clicked.connect(action)


def head_of_card(title: str, *buttons: QPushButton, role: str = "small") -> QHBoxLayout:
    """Return the head of a card: its title at the left, its buttons at the right."""
    return filled(QHBoxLayout(), *([text_label(role, title)] if title else []), 1, *buttons)
