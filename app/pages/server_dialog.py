"""The form of a server of tools: a command with its environment, or an address with headers."""

from __future__ import annotations

import shlex
from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QVBoxLayout,
    QWidget,
)

from app.text.messages import localized
from app.widgets.fields import caption
from app.widgets.on_screen import OnScreen
from app.widgets.page import small
from app.widgets.parts import filled, saves_or_cancels, spaced, text_label
from backend.tools.settings import Server


class _Pairs(QWidget):
    """Names with values. The values are shown as dots."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__()
        self._name, self._value = name, value
        self._rows: list[tuple[QLineEdit, QLineEdit]] = []
        self._layout = spaced(QVBoxLayout(self), 6)
        more = QPushButton(self.tr("Add"))
        more.setAccessibleName(self.tr("Add: {name}").format(name=name))
        more.setAutoDefault(False)
        more.clicked.connect(lambda: self._add("", "").setFocus())
        self._layout.addWidget(more, 0, Qt.AlignmentFlag.AlignLeft)

    def fill(self, pairs: dict[str, str]) -> None:
        """Show pairs."""
        for name, value in pairs.items():
            self._add(name, value)

    def pairs(self) -> dict[str, str]:
        """Return the pairs that have a name."""
        return {name.text().strip(): v.text() for name, v in self._rows if name.text().strip()}

    def _add(self, name: str, value: str) -> QLineEdit:
        fields = QLineEdit(name), QLineEdit(value)
        for field, words in zip(fields, (self._name, self._value), strict=True):
            field.setAccessibleName(words)
            field.setPlaceholderText(words)
        fields[1].setEchoMode(QLineEdit.EchoMode.Password)
        row = filled(spaced(QHBoxLayout(), 6), (fields[0], 2), (fields[1], 3))
        self._rows.append(fields)
        self._layout.insertLayout(self._layout.count() - 1, row)
        return fields[0]


class ServerDialog(QDialog):
    """Edits a Server, which is `server` once the dialog was accepted."""

    def __init__(self, server: Server | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        OnScreen(self, 520)
        self.server = server
        self.setWindowTitle(self.tr("Server of tools"))
        self.name = QLineEdit(server.name if server else "")
        self.is_program = QRadioButton(self.tr("A program on this machine"))
        self.is_web = QRadioButton(self.tr("An address"))
        self._group = QButtonGroup(self)
        for button in (self.is_program, self.is_web):
            button.setAccessibleName(button.text())
            self._group.addButton(button)
        self.command = QLineEdit()
        self.command.setPlaceholderText("npx -y @modelcontextprotocol/server-everything")
        self.url = QLineEdit(server.url if server else "")
        self.url.setPlaceholderText("https://example.org/mcp")
        self._env = _Pairs(self.tr("Variable"), self.tr("Value"))
        self._headers = _Pairs(self.tr("Header"), self.tr("Value"))
        if server is not None:
            if server.command:
                self.command.setText(shlex.join([server.command, *server.args]))
            self._env.fill(dict(server.env))
            self._headers.fill(dict(server.headers))
        self._warning = text_label("warning", wraps=True)
        self._warning.setTextFormat(Qt.TextFormat.PlainText)
        self._warning.hide()
        self._form = QFormLayout()
        self._form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        self._form.setVerticalSpacing(10)
        kinds = QWidget()
        row = QHBoxLayout(kinds)
        row.setContentsMargins(0, 0, 0, 0)
        filled(row, self.is_program, self.is_web, 1)
        self._row(self.tr("Name"), self.name)
        self._form.addRow(kinds)
        self._row(self.tr("Command line"), self.command)
        self._row(self.tr("Environment"), self._env)
        self._row(self.tr("Address"), self.url)
        self._row(self.tr("Headers"), self._headers)
        trust = small(
            self.tr(
                "A server runs with your rights: it can read and change what you can. Add only "
                "servers that you trust."
            )
        )
        layout = spaced(QVBoxLayout(self), 12, 20, 18, 20, 16)
        filled(layout, self._form, trust, self._warning, saves_or_cancels(self))
        self._group.buttonToggled.connect(self._show_kind)
        (self.is_web if server is not None and server.url else self.is_program).setChecked(True)
        self._show_kind()

    def accept(self) -> None:
        """Check the form. Show a sentence if it is invalid."""
        try:
            self.server = self._read()
        except ValueError as error:
            self._warning.setText(localized(error.args[0]))
            self._warning.show()
            return
        super().accept()

    def _read(self) -> Server:
        old = self.server or Server("-", "-", is_on=True)  # who adds a server wants it
        name = " ".join(self.name.text().split())
        if self.is_web.isChecked():
            return replace(
                old, name=name, command="", args=(), env={}, cwd="", url=self.url.text().strip(),
                headers=self._headers.pairs(),
            )  # fmt: skip
        try:
            command, *args = shlex.split(self.command.text()) or [""]
        except ValueError:
            raise ValueError(self.tr("The command line has a quotation mark too few.")) from None
        return replace(
            old, name=name, command=command, args=tuple(args), env=self._env.pairs(), url="",
            headers={},
        )  # fmt: skip

    def _row(self, words: str, field: QWidget) -> None:
        field.setAccessibleName(words)
        self._form.addRow(caption(words, field), field)

    def _show_kind(self, *_: object) -> None:
        is_web = self.is_web.isChecked()
        for field in (self.command, self._env):
            self._form.setRowVisible(field, not is_web)
        for field in (self.url, self._headers):
            self._form.setRowVisible(field, is_web)
        self.adjustSize()
