"""The section of the settings about servers of tools."""

from __future__ import annotations

import html
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMessageBox,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.pages.server_dialog import ServerDialog
from app.session.tools import ServerState, ToolServers
from app.text.messages import localized
from app.widgets.elided_label import ElidedLabel
from app.widgets.fields import Number, Tick
from app.widgets.page import Section, beside, small
from app.widgets.parts import discard, dress, filled, spaced
from backend.tools.settings import Server
from backend.tools.tool import Tool


class _Row(QFrame):
    """One server: its switch, its state, its tools."""

    def __init__(self, servers: ToolServers, name: str) -> None:
        super().__init__()
        self.setObjectName("toolServer")
        self._servers, self._name = servers, name
        self._tools: tuple[Tool, ...] = ()
        self._switches: dict[str, Tick] = {}
        self._permissions: dict[str, QPushButton] = {}
        self.on = Tick(name.replace("&", "&&"))
        self.on.setAccessibleName(self.tr("Server {name}").format(name=name))
        self.on.clicked.connect(lambda is_on: servers.switch(name, is_on))
        self._state = QLabel()
        self._state.setTextFormat(Qt.TextFormat.PlainText)
        self._command = ElidedLabel(Qt.TextElideMode.ElideMiddle)
        self._command.setProperty("role", "small")
        self._trouble = small("")
        self._trouble.setProperty("role", "warning")
        self._show_tools = self._button(self.tr("Tools"), self._toggle_tools)
        self._show_tools.setCheckable(True)
        self.restart = self._button(self.tr("Restart"), lambda: servers.restart(name))
        self.edit = self._button(self.tr("Edit\u2026"), self._edit)
        self.remove = self._button(self.tr("Remove\u2026"), self._remove)
        head = filled(
            spaced(QHBoxLayout(), 8), self.on, (self._state, 1), self._show_tools, self.restart,
            self.edit, self.remove,
        )  # fmt: skip
        self._list = QWidget()
        self._list_layout = spaced(QVBoxLayout(self._list), 4, 24, 2, 0, 4)
        self._list.hide()
        layout = spaced(QVBoxLayout(self), 3, 0, 4, 0, 4)
        filled(layout, head, self._command, self._trouble, self._list)

    def show_server(self, server: Server, state: ServerState) -> None:
        """Show a server and its state."""
        self.on.setChecked(server.is_on)
        words = {
            "off": self.tr("off"),
            "starting": self.tr("starting\u2026"),
            "ready": self.tr("ready with %n tool(s)", "", len(state.tools)),
            "failed": self.tr("failed"),
        }
        self._state.setText(words.get(state.state, ""))
        dress(self._state, "warning" if state.state == "failed" else "small")
        self._command.setText(server.shown)
        self._command.setToolTip(f"<p>{html.escape(server.shown)}</p>")  # never read as rich text
        lines = [localized(state.sentence)] if state.sentence else []
        if state.last_words:
            lines.append(self.tr("It wrote: {words}").format(words=state.last_words))
        self._trouble.setText("\n".join(lines))
        self._trouble.setVisible(bool(lines))
        self.restart.setEnabled(server.is_on)
        self._show_tools.setEnabled(bool(state.tools))
        if not state.tools:
            self._show_tools.setChecked(False)
            self._list.hide()
        if state.tools != self._tools:
            self._tools = state.tools
            self._build_list()
        for tool in self._tools:
            self._switches[tool.name].setChecked(not tool.fault and tool.name not in server.off)
            is_always = self._servers.is_always_allowed(tool)
            self._permissions[tool.name].setVisible(is_always)

    def _build_list(self) -> None:
        while (item := self._list_layout.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                discard(None, widget)
        self._switches.clear()
        self._permissions.clear()
        for tool in self._tools:
            switch = Tick(tool.name.replace("&", "&&"))
            switch.setAccessibleName(self.tr("Tool {name}").format(name=tool.name))
            switch.setEnabled(not tool.fault)
            switch.clicked.connect(lambda on, tool=tool: self._servers.switch_tool(tool, on))
            revoke = self._button(
                self.tr("Ask again"), lambda tool=tool: self._servers.allow_always(tool, False)
            )
            revoke.setToolTip(self.tr("This tool runs without asking. Let it ask again."))
            about = ElidedLabel()
            about.setProperty("role", "small")
            about.setText(" ".join((localized(tool.fault) or tool.description).split()))
            line = QWidget()
            filled(spaced(QHBoxLayout(line), 8), switch, (about, 1), revoke)
            self._switches[tool.name], self._permissions[tool.name] = switch, revoke
            self._list_layout.addWidget(line)

    def _toggle_tools(self) -> None:
        self._list.setVisible(self._show_tools.isChecked())

    def _edit(self) -> None:
        server = self._servers.settings.server(self._name)
        dialog = ServerDialog(server, self.window())
        if dialog.exec() and dialog.server is not None:
            self._servers.put(dialog.server, instead_of=self._name)
        dialog.deleteLater()

    def _remove(self) -> None:
        box = QMessageBox(self.window())
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(self.tr("Remove the server {name}?").format(name=self._name))
        box.setInformativeText(self.tr("Its settings and permissions are forgotten."))
        yes = box.addButton(self.tr("Remove"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(self.tr("Keep it"), QMessageBox.ButtonRole.RejectRole)
        box.exec()
        if box.clickedButton() is yes:
            self._servers.remove(self._name)

    def _button(self, words: str, action: object) -> QPushButton:
        button = QPushButton(words)
        button.setProperty("role", "quiet")
        button.setAccessibleName(f"{words}: {self._name}")
        button.clicked.connect(action)
        return button


class ToolsSection(Section):
    """Lists the servers, and adds, imports, switches, edits and removes them."""

    def __init__(self, servers: ToolServers) -> None:
        super().__init__(self.tr("Tools"))
        self._servers = servers
        self._rows: dict[str, _Row] = {}
        self.wide(
            small(
                self.tr(
                    "Servers that speak the Model Context Protocol (MCP) give a model tools. "
                    "The model asks for a call, and you allow it or not. A server is a program "
                    "that runs with your rights, or an address that gets what the model sends."
                )
            )
        )
        self._list = QWidget()
        self._list_layout = spaced(QVBoxLayout(self._list), 4)
        self.wide(self._list)
        self._none = small(self.tr("There are no servers yet."))
        self._list_layout.addWidget(self._none)
        self.add = QPushButton(self.tr("Add a server\u2026"))
        self.add.setAccessibleName(self.tr("Add a server of tools"))
        self.add.clicked.connect(self._add)
        self.load = QPushButton(self.tr("Import a file\u2026"))
        self.load.setAccessibleName(self.tr("Import servers from a file of another application"))
        self.load.setToolTip(
            self.tr("mcp.json or claude_desktop_config.json; you can also drop it on the window.")
        )
        self.load.clicked.connect(self._ask_file)
        self.wide(beside(self.add, self.load))
        self._news = small("")
        self._news.hide()
        self.wide(self._news)
        self.rounds = Number(1, 1000)
        self.rounds.setMinimumWidth(110)
        self.rounds.setToolTip(
            self.tr("Answers with calls in a row that run by earlier permissions.")
        )
        self.seconds = Number(1, 3600)
        self.seconds.setMinimumWidth(110)
        self.row(self.tr("Rounds before it asks again"), self.rounds)
        self.row(self.tr("Time for a call, in seconds"), self.seconds)
        for field in (self.rounds, self.seconds):
            field.editingFinished.connect(self._set_limits)
        servers.changed.connect(self._show)
        self._show()

    def take_file(self, path: Path) -> None:
        """Import a file, and show the result."""
        try:
            imported = self._servers.take_file(path)
        except ValueError as error:
            self._say(localized(error.args[0]), is_trouble=True)
            return
        words = self.tr(
            "%n server(s) imported, switched off. Switch on those that you trust.",
            "", len(imported.servers),
        )  # fmt: skip
        self._say(" ".join([words, *map(localized, imported.remarks)]))

    def _say(self, words: str, is_trouble: bool = False) -> None:
        self._news.setText(words)
        dress(self._news, "warning" if is_trouble else "small")
        self._news.show()

    def _show(self) -> None:
        settings = self._servers.settings
        names = [server.name for server in settings.servers]
        for name in [name for name in self._rows if name not in names]:
            discard(self._list_layout, self._rows.pop(name))
        for index, server in enumerate(settings.servers):
            if server.name not in self._rows:
                self._rows[server.name] = _Row(self._servers, server.name)
                self._list_layout.insertWidget(index + 1, self._rows[server.name])
            self._rows[server.name].show_server(server, self._servers.state(server.name))
        self._none.setVisible(not names)
        self.rounds.setValue(settings.max_rounds)
        self.seconds.setValue(settings.limit_s)

    def _add(self) -> None:
        dialog = ServerDialog(None, self.window())
        if dialog.exec() and dialog.server is not None:
            if self._servers.settings.server(dialog.server.name) is not None:
                self._say(self.tr("There is a server of this name already."), is_trouble=True)
            else:
                self._servers.put(dialog.server)
        dialog.deleteLater()

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self, self.tr("Import servers"), "", self.tr("JSON files (*.json *.jsonc)")
        )
        if name:
            self.take_file(Path(name))

    def _set_limits(self) -> None:
        self._servers.set_limits(self.rounds.value(), self.seconds.value())
