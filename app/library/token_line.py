"""The line on the user's token for the hub, with a field to enter one."""

from __future__ import annotations

import functools
from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.text.messages import localized
from app.widgets.background import Errand
from app.widgets.page import small
from app.widgets.parts import dress, filled, spaced
from backend.downloads import token
from backend.downloads.address import endpoint
from backend.downloads.errors import DownloadError, host_of


def _entered(secret: str) -> str:
    """Check a token at the hub, and keep it. Return "", or one sentence why that failed."""
    from backend.downloads.hub import owner  # network libraries: not at start
    from backend.downloads.web import new_client

    try:
        with new_client() as client:
            token.keep(secret, owner(secret, client))
    except DownloadError as error:
        return str(error)
    return ""


def _asked_again() -> str:
    """Ask the keyring once more. Return "", or one sentence why it gives no token."""
    token.ask_again()
    return "" if token.usable() else token.remark()


class TokenLine(QWidget):
    """Says which token is used. The token is checked at the hub before it is kept.

    Signals:
        entered: a token was entered and is right.
    """

    entered = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._trouble = ""  # of what was tried last
        self._is_busy = False
        self._errand = Errand("token", self)
        self._errand.came.connect(self._came)
        self._label = small("")
        self._label.setMinimumWidth(10)
        self.enter = QPushButton(self.tr("Enter a token\u2026"))
        self.again = QPushButton(self.tr("Ask the keyring again"))
        self.forget = QPushButton(self.tr("Forget"))
        self.forget.setAccessibleName(self.tr("Forget the token"))
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText(self.tr("hf_\u2026"))
        self.field.setAccessibleName(self.tr("Token"))
        self.check = QPushButton(self.tr("Check and keep"))
        self.cancel = QPushButton(self.tr("Cancel"))
        line = spaced(QHBoxLayout(), 10)
        filled(line, (self._label, 1), self.again, self.forget, self.enter)
        self._form = QWidget()
        filled(spaced(QHBoxLayout(self._form), 10), (self.field, 1), self.check, self.cancel)
        filled(spaced(QVBoxLayout(self), 6), line, self._form)
        self._form.hide()
        self.enter.clicked.connect(self.open)
        self.again.clicked.connect(self._ask_again)
        self.forget.clicked.connect(self._forget)
        self.field.returnPressed.connect(self._check)
        self.field.textChanged.connect(self.show_token)
        self.field.installEventFilter(self)
        self.check.clicked.connect(self._check)
        self.cancel.clicked.connect(self._close)
        self.show_token()

    @property
    def sentence(self) -> str:
        """Return what the line says."""
        return self._label.text()

    def open(self) -> None:
        """Show the field."""
        self._trouble = ""
        self._form.show()
        self.show_token()
        self.field.setFocus()

    def show_token(self) -> None:
        """Show the present state of the token."""
        is_open, own = not self._form.isHidden(), token.known()
        self._label.setText(self._words(is_open, own))
        is_warning = bool(self._trouble) or (not is_open and bool(token.remark()))
        role = "warning" if is_warning else "small"
        dress(self._label, role)
        self.enter.setVisible(not is_open)
        self.forget.setVisible(not is_open and own is not None)
        self.again.setVisible(not is_open and own is not None and token.is_withheld())
        for button in (self.enter, self.forget, self.again, self.field):
            button.setEnabled(not self._is_busy)
        self.check.setEnabled(bool(self.field.text().strip()) and not self._is_busy)

    def _words(self, is_open: bool, own: token.Own | None) -> str:
        host = host_of(endpoint())
        if self._is_busy:
            return self.tr("Asking {host} and the keyring\u2026").format(host=host)
        if self._trouble:
            return localized(self._trouble)
        if is_open:
            return self.tr(
                "Copy it from {host}/settings/tokens; one that may read is enough. It is checked "
                "there, and kept in the keyring of this system, never in a file."
            ).format(host=host)
        if remark := token.remark():
            return localized(remark)
        if own is not None and own.trouble:
            return self.tr("Token of {name}, until Outrider ends: {reason}.").format(
                name=own.name, reason=localized(own.trouble)
            )
        if own is not None:
            return self.tr("Token of {name}, in the keyring of this system.").format(name=own.name)
        if place := token.elsewhere():
            return self.tr("The token of {place} is used.").format(place=place)
        return self.tr("No token. Private repositories, and some with conditions, need one.")

    # Actions of the user

    def _close(self) -> None:
        self._trouble = ""
        self.field.clear()
        self._form.hide()
        self.show_token()
        self.enter.setFocus()

    def _check(self) -> None:
        if self.check.isEnabled():
            self._begin(functools.partial(_entered, self.field.text().strip()))

    def _forget(self) -> None:
        self._begin(token.forget)

    def _ask_again(self) -> None:
        self._begin(_asked_again)

    def _begin(self, work: Callable[[], str]) -> None:
        self._is_busy, self._trouble = True, ""
        self.show_token()
        self._errand.start(work)

    def _came(self, trouble: object) -> None:
        self._is_busy, self._trouble = False, str(trouble or "")
        is_entered = not self._form.isHidden() and not trouble
        if is_entered:
            self._close()
        self.show_token()
        if trouble and not self._form.isHidden():
            self.field.setFocus()
            self.field.selectAll()
        if is_entered:
            self.entered.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102
        kinds = (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride)
        if watched is self.field and event.type() in kinds and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:  # the window would close the page
                event.accept()
                if event.type() == QEvent.Type.KeyPress:
                    self._close()
                return True
        return super().eventFilter(watched, event)
