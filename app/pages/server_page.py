"""The page of the local server: switch, address, examples, and the last requests."""

from __future__ import annotations

import datetime

from PySide6.QtCore import QLocale, QTime
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QListWidget,
    QPushButton,
    QWidget,
)

from app.pages.server_section import ServerSection
from app.session.local_server import LocalServer, ServerFacts, ServerRequest
from app.text import units
from app.text.messages import localized
from app.widgets.fields import WholeLine
from app.widgets.page import Page, Section, beside, small
from app.widgets.parts import filled, report_field

QUESTION = "Why is the sky blue?"
_CURL = """curl {address}/chat/completions \\
    -H "Authorization: Bearer {key}" -H "Content-Type: application/json" \\
    -d '{{"messages": [{{"role": "user", "content": "{question}"}}]}}'"""
_OPENAI = """from openai import OpenAI

client = OpenAI(base_url="{address}", api_key="{key}")
answer = client.chat.completions.create(
    model="{model}", messages=[{{"role": "user", "content": "{question}"}}]
)
print(answer.choices[0].message.content)"""
_ANTHROPIC = """from anthropic import Anthropic

client = Anthropic(base_url="{root}", api_key="{key}")
answer = client.messages.create(
    model="{model}", max_tokens=500, messages=[{{"role": "user", "content": "{question}"}}]
)
print(answer.content[0].text)"""
EXAMPLES = {"curl": _CURL, "Python, OpenAI": _OPENAI, "Python, Anthropic": _ANTHROPIC}


class ServerPage(Page):
    """Contains the section of the settings about the server, `section`."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(self.tr("Local server"))
        self._server = server
        self._example = "curl"
        self.section = ServerSection(server)
        parts = self.section, self._address_section(), self._examples(), self._requests()
        filled(self.column, *parts, 1)
        server.changed.connect(self._show)
        self._show(server.facts)

    def _address_section(self) -> Section:
        section = self._address_box = Section(self.tr("Address"))
        self.address = WholeLine()
        self.address.setAccessibleName(self.tr("Address"))
        self.copy_address = QPushButton(self.tr("Copy"))
        self.copy_address.setAccessibleName(self.tr("Copy the address"))
        self.copy_address.clicked.connect(
            lambda: QApplication.clipboard().setText(self.address.text())
        )
        section.wide(beside(self.address, self.copy_address))
        section.wide(
            small(self.tr("OpenAI's protocol uses this address, Anthropic's the same without /v1."))
        )
        return section

    def _examples(self) -> Section:
        section = Section(self.tr("Examples"))
        self.example = report_field(self.tr("An example request"))
        self.example.setFixedHeight(150)
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        for name in EXAMPLES:
            button = QPushButton(name)
            button.setAccessibleName(self.tr("Example: {name}").format(name=name))
            button.clicked.connect(lambda _=False, name=name: self._pick(name))
            layout.addWidget(button)
        layout.addStretch(1)
        self.copy_example = QPushButton(self.tr("Copy"))
        self.copy_example.setAccessibleName(self.tr("Copy the example"))
        self.copy_example.clicked.connect(
            lambda: QApplication.clipboard().setText(self.example.toPlainText())
        )
        layout.addWidget(self.copy_example)
        section.wide(row)
        section.wide(self.example)
        return section

    def _requests(self) -> Section:
        section = Section(self.tr("Last requests"))
        self.log = QListWidget()
        self.log.setAccessibleName(self.tr("Last requests"))
        self.log.setFixedHeight(160)
        section.wide(self.log)
        return section

    def _pick(self, name: str) -> None:
        self._example = name
        self._show_example()

    def _show_example(self) -> None:
        facts, choice = self._server.facts, self._server.choice
        self.example.setPlainText(
            EXAMPLES[self._example].format(
                address=self._shown_address(), root=self._shown_address().removesuffix("/v1"),
                key=choice.key, model=facts.model or "model",
                question=QUESTION,
            )
        )  # fmt: skip

    def _shown_address(self) -> str:
        facts, choice = self._server.facts, self._server.choice
        return facts.address or f"http://127.0.0.1:{choice.port}/v1"

    def _show(self, facts: ServerFacts) -> None:
        self.address.setText(self._shown_address())
        self._address_box.setEnabled(facts.on)
        self._show_example()
        self.log.clear()
        self.log.addItems([_line(request) for request in reversed(facts.log)])
        if not facts.log:
            self.log.addItem(self.tr("None yet."))


def _line(request: ServerRequest) -> str:
    """Return a request in one line."""
    at = datetime.datetime.fromtimestamp(request.at_s)
    clock = QLocale().toString(QTime(at.hour, at.minute, at.second), "HH:mm:ss")
    parts = (clock, request.model, units.seconds(request.took_s), localized(request.refusal))
    return "  \u00b7  ".join(part for part in parts if part)
