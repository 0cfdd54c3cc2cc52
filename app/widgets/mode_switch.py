"""The switch between automatic and manual engine settings."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QSizePolicy

from app.widgets.parts import spaced


class ModeSwitch(QFrame):
    """Two buttons, one of which is checked.

    Signals:
        chosen: (bool) the user picked automatic settings.
    """

    chosen = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("modeSwitch")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.automatic = QPushButton(self.tr("Automatic"))
        self.automatic.setAccessibleName(self.tr("Automatic engine settings"))
        self.automatic.setToolTip(
            self.tr(
                "The cache uses the free memory, and the method follows from measurements during "
                "the answers."
            )
        )
        self.manual = QPushButton(self.tr("Manual"))
        self.manual.setAccessibleName(self.tr("Engine settings by hand"))
        self.manual.setToolTip(self.tr("You set the cache rate, the method and the context."))
        self._group = QButtonGroup(self)
        layout = spaced(QHBoxLayout(self), 0, 2, 2, 2, 2)
        for button in (self.automatic, self.manual):
            button.setCheckable(True)
            button.setProperty("role", "segment")
            self._group.addButton(button)
            layout.addWidget(button)
        self._group.buttonClicked.connect(lambda button: self.chosen.emit(button is self.automatic))

    def show_choice(self, automatic: bool) -> None:
        """Show the mode in force."""
        (self.automatic if automatic else self.manual).setChecked(True)
