"""The hint that covers the window while a file is dragged over it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget


class DropHint(QFrame):
    """Tells what a drop would do."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dropHint")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._label = QLabel()
        self._label.setProperty("role", "title")
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QVBoxLayout(self)
        layout.addWidget(self._label)
        self.hide()

    def show_for(self, name: str | None, folder: str | None = None) -> None:
        """Cover the parent. `name`: file name of a dragged model; `folder`: name of a folder."""
        if name:
            self._label.setText(self.tr("Drop to load {model}").format(model=name))
        elif folder:
            self._label.setText(
                self.tr("Drop to list the models of {folder}").format(folder=folder)
            )
        else:
            self._label.setText(self.tr("This is not a GGUF file"))
        parent = self.parentWidget()
        assert parent is not None
        self.setGeometry(parent.rect().adjusted(14, 14, -14, -14))
        self.raise_()
        self.show()
