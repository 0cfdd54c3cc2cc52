"""The switch of a model's thinking beside the Send button, and the menu of its effort."""

from __future__ import annotations

from PySide6.QtCore import QT_TRANSLATE_NOOP, QPoint, Qt, Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QWidget

from app.text.language import translate
from app.widgets.parts import filled, spaced, text_label
from backend.protocol.chat import ChatFacts

_EFFORTS = {
    "low": QT_TRANSLATE_NOOP("effort", "low"),
    "medium": QT_TRANSLATE_NOOP("effort", "medium"),
    "high": QT_TRANSLATE_NOOP("effort", "high"),
}


class ThinkSwitch(QWidget):
    """Hidden where the model's template has neither thinking nor effort.

    Signals:
        effort_chosen: (str) one of the template's efforts; "" for the template's default.
    """

    effort_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.button = QPushButton(self.tr("Think"))
        self.button.setProperty("role", "toggle")
        self.button.setCheckable(True)
        self.always = text_label("small", self.tr("Always thinks"))
        self.always.setToolTip(
            self.tr("This model thinks before every answer. Its chat template has no switch.")
        )
        self.effort = QPushButton()
        self.effort.setProperty("role", "quiet")
        self.effort.setToolTip(
            self.tr("How long the model thinks: more effort takes more time and more context.")
        )
        self.menu = QMenu(self)
        self._efforts = QActionGroup(self.menu)
        self.effort.clicked.connect(self._open_menu)
        for button in (self.button, self.effort):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the field
            button.setCursor(Qt.CursorShape.PointingHandCursor)
        filled(spaced(QHBoxLayout(self), 6), self.effort, self.always, self.button)
        self._shown: tuple[ChatFacts, bool, str] | None = None
        self.hide()

    def show_state(self, chat: ChatFacts, thinks: bool, effort: str) -> None:
        """Show the model's ways to think, and the chosen one."""
        if self._shown == (chat, thinks, effort):
            return
        self._shown = chat, thinks, effort
        self.button.setVisible(chat.thinking == "switch")
        self.button.setChecked(thinks)
        cost = self.tr(
            "The model thinks before it answers. Answers to hard questions get better, but you "
            "wait longer, and the thoughts fill the context. For this chat; \u201cSystem "
            "prompt\u201d has the choice for all chats."
        )
        self.button.setToolTip(cost)
        words = self.tr("Think: on") if thinks else self.tr("Think: off")
        self.button.setAccessibleName(words)
        self.button.setAccessibleDescription(cost)
        self.always.setVisible(chat.thinking == "always")
        self.effort.setVisible(bool(chat.efforts) and (thinks or chat.thinking != "switch"))
        label = self.tr("Effort: {effort}").format(effort=effort_words(effort))
        self.effort.setText((label if effort else self.tr("Effort")) + " \u25be")
        self.effort.setAccessibleName(label)
        self._fill_menu(chat.efforts, effort)
        self.setVisible(chat.thinking != "none" or bool(chat.efforts))

    def _fill_menu(self, efforts: tuple[str, ...], chosen: str) -> None:
        self.menu.clear()
        for effort in ("", *efforts):
            action = self.menu.addAction(effort_words(effort))
            action.setCheckable(True)
            action.setChecked(effort == chosen)
            action.triggered.connect(lambda _=False, effort=effort: self.effort_chosen.emit(effort))
            self._efforts.addAction(action)

    def _open_menu(self) -> None:
        above = QPoint(0, -self.menu.sizeHint().height())
        self.menu.popup(self.effort.mapToGlobal(above))


def effort_words(effort: str) -> str:
    """Return an effort in words."""
    if not effort:
        return translate("effort", "default")
    return translate("effort", str(_EFFORTS[effort])) if effort in _EFFORTS else effort
