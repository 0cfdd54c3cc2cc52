"""The switch of tools beside the Send button."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton


class ToolsSwitch(QPushButton):
    """Whether tools are sent along in this chat. Hidden where no server is on."""

    def __init__(self) -> None:
        super().__init__(self.tr("Tools"))
        self.setProperty("role", "toggle")
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the field
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.hide()

    def show_state(
        self, has_servers: bool, n_tool: int, can: bool, is_on: bool, starting: str = ""
    ) -> None:
        """Show the number of tools. can: the model's chat template has a form for tools.

        starting: the servers whose start an answer would wait for.
        """
        self.setVisible(has_servers)
        self.setEnabled(can and n_tool > 0)
        self.setChecked(is_on and can and n_tool > 0)
        self.setText(self.tr("Tools: {n}").format(n=n_tool) if n_tool else self.tr("Tools"))
        if not can:
            words = self.tr("This model's chat template has no form for tools.")
        elif not n_tool and starting:
            words = self.tr("These start: {servers}. An answer waits for them.").format(
                servers=starting
            )
        elif not n_tool:
            words = self.tr("No server is ready. The settings show why.")
        elif is_on:
            words = self.tr("The model may ask for %n tool(s) in this chat.", "", n_tool)
        else:
            words = self.tr("No tools are offered to the model in this chat.")
        self.setToolTip(words)
        name = self.tr("Tools: on") if self.isChecked() else self.tr("Tools: off")
        self.setAccessibleName(name)
        self.setAccessibleDescription(words)
