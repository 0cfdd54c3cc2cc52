"""A switch between the branches of a chat: an arrow, 2/3, an arrow."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.widgets.icon_button import IconButton
from app.widgets.parts import filled, spaced, text_label


class BranchSwitch(QWidget):
    """Hidden if there is only one branch.

    Signals:
        stepped: (-1 or 1) the user wants the branch before or after this one.
    """

    stepped = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._label: QLabel | None = None  # nothing is made for the only branch
        self.hide()

    def _fill(self) -> QLabel:
        label = text_label("small")
        back = IconButton("left", self.tr("Version before this one"), side=22)
        forth = IconButton("right", self.tr("Version after this one"), side=22)
        back.clicked.connect(lambda: self.stepped.emit(-1))
        forth.clicked.connect(lambda: self.stepped.emit(1))
        filled(spaced(QHBoxLayout(self), 1), back, label, forth)
        return label

    def show_branch(self, branch: tuple[int, int]) -> None:
        """Show the number of a branch and the number of branches."""
        place, count = branch
        if count > 1:
            self._label = self._label or self._fill()
            self._label.setText(f"{place}/{count}")
        self.setVisible(count > 1)
