"""The dialog that measures the loaded model by `outrider report`, and shows the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QProcess, QTemporaryDir, QTimer
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.session import known_models
from app.session.engine import EngineSession
from app.text.messages import localized
from app.widgets import files
from app.widgets.on_screen import OnScreen
from app.widgets.page import small
from app.widgets.parts import filled, progress_bar, report_field, spaced
from backend.system import children
from backend.text import from_json

_WIDTH, _HEIGHT = 720, 620
_END_MS = 10_000
"""A process that is told to end has this long."""


class ModelReport(QDialog):
    """Frees the engine's model, measures it in a process of its own, and loads it again.

    So memory never holds it twice. REQUIRES: the engine is idle, with a model.
    """

    def __init__(self, engine: EngineSession, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        OnScreen(self, _WIDTH)
        assert engine.path is not None
        self._engine, self._path = engine, engine.path
        self._folder = QTemporaryDir()
        self._out = Path(self._folder.path(), "report.txt")
        self._process: QProcess | None = None
        self._buffer = b""
        self._is_running = self._is_stopped = False
        self.setWindowTitle(self.tr("Report on this model"))
        self.words = QLabel(
            self.tr(
                "{name} is measured on this machine: three turns of a chat that is made up for it, "
                "its speed at two cache rates, and whether it computes the same numbers as stock "
                "llama.cpp. This takes less than five minutes."
            ).format(name=known_models.title(self._path))
        )
        self.words.setWordWrap(True)
        self._explained = small(
            self.tr(
                "The model is freed meanwhile, and loaded again at the end. Your chats are not "
                "read. The report holds no names or folders and is sent nowhere: you read it "
                "here, then copy or save it."
            )
        )
        self.bar = progress_bar(self.tr("Progress"))
        self.text = report_field(self.tr("Report"))
        self.copy = self._button(self.tr("Copy the report"), self._copy)
        self.save = self._button(self.tr("Save\u2026"), self._save)
        self.start = self._button(self.tr("Measure"), self._free)
        self.stop = self._button(self.tr("Stop"), self._stop)
        self.leave = self._button(self.tr("Close"), self.reject)
        for button in (self.start, self.copy):
            button.setProperty("role", "primary")
        row = spaced(QHBoxLayout(), 8)
        filled(row, self.copy, self.save, 1, self.start, self.stop, self.leave)
        layout = spaced(QVBoxLayout(self), 12, 20, 18, 20, 16)
        filled(layout, self.words, self._explained, self.bar, (self.text, 1), row)
        self._show()

    def _button(self, caption: str, act: Callable[[], None]) -> QPushButton:
        button = QPushButton(caption)
        button.setAccessibleName(caption.rstrip("\u2026"))
        button.clicked.connect(act)
        return button

    def _show(self) -> None:
        """Show the widgets of the present step: before, while it runs, or after."""
        has_text = bool(self.text.toPlainText())
        self.start.setVisible(not self._is_running and not has_text)
        self._explained.setVisible(not has_text)
        self.bar.setVisible(self._is_running)
        self.stop.setVisible(self._is_running)
        self.leave.setVisible(not self._is_running)
        for widget in (self.text, self.copy, self.save):
            widget.setVisible(has_text)
        first = self.stop if self._is_running else self.copy if has_text else self.start
        first.setDefault(True)
        first.setFocus()
        if has_text:
            self.resize(_WIDTH, _HEIGHT)
        else:
            self.adjustSize()
        if (owner := self.parentWidget()) is not None:
            frame = self.frameGeometry()
            frame.moveCenter(owner.window().frameGeometry().center())
            self.move(frame.topLeft())

    def reject(self) -> None:
        """Close the dialog; while it measures, stop that first."""
        if self._is_running:
            self._stop()
        else:
            super().reject()

    # Measuring

    def _free(self) -> None:
        self._is_running = True
        self.bar.setRange(0, 0)
        self.words.setText(self.tr("Freeing the model."))
        self._show()
        self._engine.link.unloaded.connect(self._run)
        self._engine.link.died.connect(self._run)
        self._engine.free()

    def _run(self, *_: object) -> None:
        self._engine.link.unloaded.disconnect(self._run)
        self._engine.link.died.disconnect(self._run)
        if not self._is_running:  # it was stopped meanwhile
            return
        self._process = process = QProcess(self)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._finished)
        if (application := QApplication.instance()) is not None:
            application.aboutToQuit.connect(self._end)
        words = ("report", str(self._path), "--json", "--out", str(self._out))
        command = children.command("backend.cli", *words)
        process.start(command[0], command[1:])

    def _read(self) -> None:
        assert self._process is not None
        self._buffer += bytes(self._process.readAllStandardOutput().data())
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            said = json.loads(line, object_hook=from_json)
            if "words" in said:
                self.bar.setRange(0, said["parts"])
                self.bar.setValue(said["part"])
                self.words.setText(localized(said["words"]))

    def _stop(self) -> None:
        self._is_stopped = True
        self.stop.setEnabled(False)
        self.words.setText(self.tr("Stopping."))
        if self._process is None:
            self._show_end("")
        else:
            self._tell()
            QTimer.singleShot(_END_MS, self._process, self._process.kill)

    def _tell(self) -> None:
        """Tell the process to end and to keep its results. Windows has no such signal."""
        assert self._process is not None
        self._process.kill() if os.name == "nt" else self._process.terminate()

    def _end(self) -> None:
        """End the process with the program."""
        if self._process is not None:
            self._process.blockSignals(True)
            self._tell()
            self._process.waitForFinished(_END_MS)

    def _finished(self, status: int, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:  # it did not start, and has said so before
            return
        said = bytes(process.readAllStandardError().data()).decode("utf-8", "replace").strip()
        process.deleteLater()
        try:
            text = self._out.read_text(encoding="utf-8")
        except OSError:
            self._show_end(said or self.tr("The process for the report did not start."))
            return
        self.text.setPlainText(text)
        if status == 0:
            words = self.tr("The report is complete, and all numbers are those of llama.cpp.")
        elif self._is_stopped:
            words = self.tr("It was stopped. The report holds what was measured before.")
        else:
            words = self.tr("Something is missing or different; the report says what.")
        self._show_end(words)

    def _show_end(self, sentence: str) -> None:
        self._is_running = False
        self.words.setText(sentence)
        self._show()
        self._engine.open_model(self._path)

    # The report

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.text.toPlainText())
        self.words.setText(self.tr("The report is in the clipboard."))

    def _save(self) -> None:
        name, _ = QFileDialog.getSaveFileName(
            self,
            self.tr("Save the report"),
            files.start("files", "outrider-report.txt"),
            self.tr("Text (*.txt)"),
        )
        if not name:
            return
        files.remember("files", name)
        try:
            Path(name).write_text(self.text.toPlainText(), encoding="utf-8")
        except OSError as error:
            words = self.tr("The report could not be saved: {reason}.")
            self.words.setText(words.format(reason=error.strerror or error))
        else:
            self.words.setText(self.tr("The report is saved."))
