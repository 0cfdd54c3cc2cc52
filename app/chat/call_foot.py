"""The foot of a tool call's card: the question or the progress."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.state.conversation import CallState
from app.state.tool_approval import Call, Choice
from app.widgets.flow_layout import FlowLayout
from app.widgets.page import small
from app.widgets.parts import filled, progress_bar, spaced
from backend.tools.plain_text import clean


class CallFoot(QWidget):
    """Shows one of: nothing, the question with its four answers, progress with Stop, "Ask again".

    No button has the focus unless the user moves it there, and the first one refuses.

    Signals:
        decided: (Choice) the user's answer.
        stopped: the user wants the call stopped.
        again: the user wants to be asked again.
    """

    decided = Signal(object)
    stopped = Signal()
    again = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[object, ...] = ()
        self._words = small("")
        self.choices = {
            Choice.REFUSE: self._button(self.tr("Refuse")),
            Choice.ONCE: self._button(self.tr("Allow once")),
            Choice.CHAT: self._button(self.tr("Allow in this chat")),
            Choice.ALWAYS: self._button(self.tr("Always allow this tool")),
        }
        for choice, button in self.choices.items():
            button.clicked.connect(lambda _=False, choice=choice: self.decided.emit(choice))
        self._bar = progress_bar(self.tr("Progress of the call"))
        self._bar.setFixedSize(120, 6)
        self.stop = self._button(self.tr("Stop"))
        self.stop.setAccessibleName(self.tr("Stop this call"))
        self.stop.clicked.connect(self.stopped)
        self.ask_again = self._button(self.tr("Ask again"))
        self.ask_again.clicked.connect(self.again)
        row = FlowLayout()  # a column may be narrow, and German words are long
        for widget in (self._bar, *self.choices.values(), self.stop, self.ask_again):
            row.addWidget(widget)
        filled(spaced(QVBoxLayout(self), 7, 0, 2), self._words, row)
        self.show_nothing()

    def show_call(self, call: Call, is_held: bool, max_rounds: int) -> None:
        """Show the question or the progress of a call."""
        shown = call.state, call.words, call.share, call.tool, is_held
        if shown == self._shown:
            return
        self._shown = shown
        asks, runs = call.state is CallState.ASKED, call.state is CallState.RUNNING
        words = clean(call.words)
        if asks and call.tool is not None:
            words = self.tr(
                "The model wants to run \u201c{tool}\u201d of the server \u201c{server}\u201d."
            ).format(tool=call.tool.name, server=call.tool.server)
            if is_held:
                words += " " + self.tr(
                    "It has called tools %n time(s) in a row, so it asks again.", "", max_rounds
                )
        self._words.setText(words)
        self._words.setVisible(bool(words) and (asks or runs))
        for choice, button in self.choices.items():
            button.setVisible(asks)
            name = call.tool.name if call.tool else ""
            button.setAccessibleName(f"{button.text()}: {name}")
            button.setProperty("choice", choice.value)
        self._bar.setVisible(runs)
        self._bar.setRange(0, 0 if call.share is None else 100)
        self._bar.setValue(round(100 * (call.share or 0)))
        self.stop.setVisible(runs)
        self.ask_again.hide()
        self.setVisible(asks or runs)

    def show_nothing(self, can_ask_again: bool = False) -> None:
        """Show that the call neither asks nor runs."""
        if self._shown == (can_ask_again,):
            return
        self._shown = (can_ask_again,)
        for widget in (self._words, self._bar, self.stop, *self.choices.values()):
            widget.hide()
        self.ask_again.setVisible(can_ask_again)
        self.setVisible(can_ask_again)

    def _button(self, words: str) -> QPushButton:
        button = QPushButton(words)
        button.setAutoDefault(False)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.setAccessibleName(words)
        return button
