"""Asks for the address of another machine that is to compute, and whether it is trusted."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QLineEdit, QVBoxLayout, QWidget

from app.text.language import translate
from app.text.messages import localized
from app.widgets.on_screen import OnScreen
from app.widgets.parts import filled, spaced, text_label
from backend.protocol.settings import EngineConfig

SCHEME = "rpc://"


def remote_parts(device: str) -> list[str]:
    """Return the other machines among the devices of an option."""
    return [part for part in device.split(",") if part.startswith(SCHEME)]


def warning(address: str) -> str:
    """Return what must be known before a machine at this address computes."""
    return translate(
        "devices",
        "{address} is sent the model's weights, your prompts and the answers, unencrypted, and "
        "whoever reaches that port controls it. Use it only in a network that you trust.",
    ).format(address=address)


class RemoteDialog(QDialog):
    """Lets the user name a machine that runs llama.cpp's rpc server; `device` holds it.

    The same dialog says what that machine can read, so that accepting is to trust the address.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        OnScreen(self, 440)
        self.setWindowTitle(self.tr("Another machine"))
        self.device = ""
        self.address = QLineEdit()
        self.address.setPlaceholderText("rpc://192.168.1.20:50052")
        self.address.setAccessibleName(self.tr("Address of the machine"))
        asked = QLabel(self.tr("Address at which llama.cpp's rpc server runs there"))
        asked.setBuddy(self.address)
        self._warning = QLabel()
        self._trouble = text_label("warning")
        for label in (self._warning, self._trouble):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        kinds = QDialogButtonBox.StandardButton
        buttons = QDialogButtonBox(kinds.Cancel)
        self.use = buttons.addButton(
            self.tr("Trust it and use it"), QDialogButtonBox.ButtonRole.AcceptRole
        )
        self.use.setProperty("role", "primary")
        for button in buttons.buttons():
            button.setAccessibleName(button.text().replace("&", ""))
        buttons.accepted.connect(self._take)
        buttons.rejected.connect(self.reject)
        layout = spaced(QVBoxLayout(self), 10, 20, 18, 20, 16)
        filled(layout, asked, self.address, self._trouble, self._warning, 1, buttons)
        self.address.textChanged.connect(self._show)
        self._show()

    @property
    def sentence(self) -> str:
        """Why the address cannot be one, if that is so."""
        return self._trouble.text()

    @property
    def warning(self) -> str:
        """The sentence about the data that this machine would receive."""
        return self._warning.text()

    def _written(self) -> str:
        text = self.address.text().strip()
        return text if not text or "://" in text else SCHEME + text

    def _show(self) -> None:
        text = self._written()
        self._trouble.hide()
        self.use.setEnabled(bool(text))
        self._warning.setText(warning(text or self.tr("That machine")))

    def _take(self) -> None:
        text = self._written()
        try:
            EngineConfig(device=text)
        except ValueError as error:
            self._trouble.setText(localized(str(error)))
            self._trouble.show()
            return
        self.device = text
        self.accept()
