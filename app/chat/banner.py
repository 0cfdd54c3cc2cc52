"""The notice above the composer: a sentence, and buttons."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.state.engine_state import Notice
from app.text.messages import localized
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, dress, filled, spaced


class Banner(QFrame):
    """Shows a Notice until it is replaced or closed, or one of its buttons is pressed."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAccessibleName(self.tr("Notice"))
        self._text = QLabel()
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        close = IconButton("close", self.tr("Close this notice"), side=28)
        close.clicked.connect(self.hide)
        self._foot = QWidget()
        self._buttons = spaced(QHBoxLayout(self._foot), 8)
        inner = filled(spaced(QVBoxLayout(), 10), self._text, self._foot)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 12, 10, 12)
        filled(layout, (inner, 1), (close, Qt.AlignmentFlag.AlignTop))
        self.hide()

    @property
    def sentence(self) -> str:
        """Return the shown sentence."""
        return self._text.text()

    @property
    def buttons(self) -> list[QPushButton]:
        """Return the buttons; the first is the sensible choice."""
        items = [self._buttons.itemAt(index) for index in range(self._buttons.count())]
        widgets = [item.widget() for item in items if item is not None]
        return [widget for widget in widgets if isinstance(widget, QPushButton)]

    def show_notice(self, notice: Notice | None) -> None:
        """Show a notice; None hides the banner."""
        while item := self._buttons.takeAt(0):
            if widget := item.widget():
                discard(None, widget)
        if notice is None:
            self.hide()
            return
        sentence = localized(notice.sentence)
        self._text.setText(sentence)
        self.setAccessibleDescription(sentence)
        dress(self, "trouble" if notice.is_trouble else "plain", "kind")
        for index, (label, action) in enumerate(notice.actions):
            button = QPushButton(label)
            if index == 0 and notice.is_trouble:
                button.setProperty("role", "primary")
            button.setAccessibleName(label)
            button.clicked.connect(self.hide)
            button.clicked.connect(lambda _=False, action=action: action())
            self._buttons.addWidget(button)
        self._buttons.addStretch(1)
        self._foot.setVisible(bool(notice.actions))  # an empty row would squeeze the text
        self.show()
