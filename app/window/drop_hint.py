"""The hint that covers the window while a file is dragged over it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.text import units
from app.widgets.parts import text_label


class DropHint(QFrame):
    """Tells the effect of a drop."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dropHint")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._label = text_label("title")
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QVBoxLayout(self)
        layout.addWidget(self._label)
        self.hide()

    def show_for(
        self, name: str | None, folder: str | None = None, servers: str | None = None,
        n_file: int = 0,
    ) -> None:  # fmt: skip
        """Cover the parent.

        name: file name of a dragged model. folder: name of a folder. servers: name of a file with
        servers of tools. n_file: number of all files.
        """
        if name:
            self._label.setText(self.tr("Drop to load {model}").format(model=name))
        elif folder:
            self._label.setText(
                self.tr("Drop to list the models of {folder}").format(folder=folder)
            )
        elif servers:
            self._label.setText(
                self.tr("Drop to import the servers of tools in {file}").format(file=servers)
            )
        else:
            self._label.setText(
                self.tr("Drop to attach {files}").format(files=units.count(n_file, "file"))
            )
        parent = self.parentWidget()
        assert parent is not None
        self.setGeometry(parent.rect().adjusted(14, 14, -14, -14))
        self.raise_()
        self.show()
