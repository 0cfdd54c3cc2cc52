"""The page with the report that can be copied into a bug report, and the way to a longer one."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QHBoxLayout, QPushButton

from app.pages.model_report import ModelReport
from app.session.engine import EngineSession
from app.state.engine_state import State
from app.widgets.page import Page, small
from app.widgets.parts import filled, report_field

REFRESH_MS = 2000


class DiagnosticsPage(Page):
    """Shows a report and copies it. `make_report` returns an up-to-date report.

    `measure` opens a ModelReport on the loaded model.
    """

    def __init__(self, make_report: Callable[[], str], engine: EngineSession) -> None:
        super().__init__(self.tr("Diagnostics"), scrolls=False)
        self._make_report, self._engine = make_report, engine
        self.copy = QPushButton(self.tr("Copy the report"))
        self.copy.setProperty("role", "primary")
        self.copy.setAccessibleName(self.tr("Copy the report"))
        self.copy.clicked.connect(self._copy)
        self.measure = QPushButton(self.tr("Measure the model\u2026"))
        self.measure.setAccessibleName(self.tr("Measure the model"))
        self.measure.clicked.connect(self._measure)
        engine.state_changed.connect(self._show_state)
        self._show_state(engine.state)
        self.text = report_field(self.tr("Report"))
        self._done = small("")
        row = filled(QHBoxLayout(), self.copy, self.measure, (self._done, 1))
        about = small(
            self.tr(
                "The report contains versions, the machine, the model, settings, figures and "
                "errors. It contains no chats, names or folders. It is sent nowhere; you can paste "
                "it where you want."
            )
        )
        filled(self.column, about, row, (self.text, 1))
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self.refresh)

    def refresh(self) -> None:
        """Update the report, unless the user is reading in it."""
        text = self._make_report()
        if text != self.text.toPlainText() and not self.text.textCursor().hasSelection():
            bar = self.text.verticalScrollBar()
            place = bar.value()
            self.text.setPlainText(text)
            bar.setValue(place)

    def _show_state(self, state: State) -> None:
        """Let the model be measured while nothing else is done with it."""
        self.measure.setEnabled(state is State.IDLE)
        self.measure.setToolTip(
            self.tr(
                "Compares the model with stock llama.cpp and measures its speed on this machine"
            )
            if state is State.IDLE
            else self.tr("Needs a model that is loaded and writes no answer")
        )

    def _measure(self) -> None:
        ModelReport(self._engine, self).open()

    def _copy(self) -> None:
        QApplication.clipboard().setText(self._make_report())
        self._done.setText(self.tr("The report is in the clipboard."))

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self._done.setText("")
        self.refresh()
        self._timer.start()
        self.copy.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102
        super().hideEvent(event)
        self._timer.stop()
