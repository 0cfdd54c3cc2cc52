"""A thin line of progress while a model loads."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.text import units
from app.text.messages import localized


class LoadingStrip(QWidget):
    """Shows the model, the progress, and Cancel.

    Signals:
        cancel: the user wants to cancel loading.
    """

    cancel = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._label = QLabel()
        self._label.setProperty("role", "muted")
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setRange(0, 1000)
        self._bar.setAccessibleName(self.tr("Loading"))
        cancel = QPushButton(self.tr("Cancel"))
        cancel.setProperty("role", "quiet")
        cancel.setAccessibleName(self.tr("Cancel loading"))
        cancel.clicked.connect(self.cancel)
        row = QHBoxLayout()
        row.addWidget(self._label, 1)
        row.addWidget(cancel)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addLayout(row)
        layout.addWidget(self._bar)
        self.hide()

    @property
    def text(self) -> str:
        """Return the shown text."""
        return self._label.text()

    def begin(self, title: str) -> None:
        """Show that loading has begun."""
        self._title = title
        self._bar.setValue(0)
        self._label.setText(self.tr("Loading {model}\u2026").format(model=title))
        self.show()

    def show_progress(self, fraction: float, stage: str) -> None:
        """Show the progress (0 to 1) and the stage."""
        self._bar.setValue(round(1000 * min(max(fraction, 0.0), 1.0)))
        text = self.tr("Loading {model}, {share}").format(
            model=self._title, share=units.percent(fraction)
        )
        self._label.setText(f"{text}: {localized(stage)}" if stage else text)
