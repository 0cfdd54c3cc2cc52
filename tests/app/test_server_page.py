"""The page of the local server, and its sign in the bar at the top."""

import secrets
from functools import partial
from typing import Any

import httpx
import pytest
from PySide6.QtWidgets import QApplication, QLineEdit, QStyle, QStyleOptionFrame
from waiting import WAIT_S
from window_samples import WAIT_MS, Model, Opener

from backend.text import text


def shows_all(line: QLineEdit) -> bool:
    """Return whether a field has room for its text; Qt leaves two pixels free at both ends."""
    option = QStyleOptionFrame()
    line.initStyleOption(option)
    inside = line.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, line)
    return line.fontMetrics().horizontalAdvance(line.text()) <= inside.width() - 4


def test_the_page_shows_where_what_and_when(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its row is hardly too long for one line.
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "WWWWWrrKlKU-mqcUxIQaPN3eqdspbBim")
    window = open_window(model("tiny"))
    window.resize(1300, 900)
    page, sign = window.settings_page.server_page, window.top_bar.server
    window.settings_page.server_wanted.emit()
    assert window.pages.present == "server" and page.isVisible() and not sign.isVisible()
    page.section.on.click()
    qtbot.waitUntil(lambda: window.server.facts.on, timeout=WAIT_MS)
    address = window.server.facts.address
    for size in (900, 1300):
        window.resize(size, 900)
        for line in (page.section.key, page.address):
            qtbot.waitUntil(partial(shows_all, line))
            assert line.width() <= line.parentWidget().width()
    page.copy_address.click()
    assert QApplication.clipboard().text() == address == page.address.text()
    assert sign.isVisible() and sign.text() == "Server" and address in sign.toolTip()
    for name, words in (("curl", "Authorization: Bearer"), ("Python, OpenAI", "base_url")):
        window.press(name)
        shown = page.example.toPlainText()
        assert address in shown and window.server.choice.key in shown and words in shown
    page.copy_example.click()
    assert QApplication.clipboard().text() == page.example.toPlainText()
    assert page.log.item(0).text() == "None yet."
    answer = httpx.post(
        f"{address}/chat/completions",
        headers={"Authorization": f"Bearer {window.server.choice.key}"},
        json={"messages": [{"role": "user", "content": "A secret question?"}], "max_tokens": 3},
        timeout=WAIT_S,
    )
    assert answer.status_code == 200
    qtbot.waitUntil(lambda: len(window.server.facts.log) == 1, timeout=WAIT_MS)
    assert "tiny" in page.log.item(0).text() and "secret" not in page.log.item(0).text()
    page.section.on.click()
    qtbot.waitUntil(lambda: not sign.isVisible(), timeout=WAIT_MS)


def test_pages_and_other_machines_may_ask_where_the_person_says_so(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model("tiny"))
    window.settings_page.server_wanted.emit()
    section, server = window.settings_page.server_page.section, window.server
    section.port.setValue(0)
    section.on.click()

    def write(origins: str) -> None:
        section.origins.setText(origins)
        section.origins.editingFinished.emit()

    write("chat.example")
    qtbot.waitUntil(lambda: "not chat.example" in section.status.text(), timeout=WAIT_MS)
    assert section.status.isVisible() and section.status.property("role") == "warning"
    write(" https://chat.example  localhost ")
    qtbot.waitUntil(lambda: server.facts.on, timeout=WAIT_MS)
    assert server.choice.origins == "https://chat.example localhost"
    headers = {"Authorization": f"Bearer {server.choice.key}", "Origin": "http://localhost:3000"}
    answer = httpx.get(f"{server.facts.address}/models", headers=headers, timeout=WAIT_S)
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert "encrypted" not in section.status.text()
    before = server.facts.address
    section.is_open.click()
    qtbot.waitUntil(lambda: server.facts.on and server.facts.address != before, timeout=WAIT_MS)
    assert "Nothing is encrypted" in section.status.text()
    section.switch_off()
    assert not section.is_open.isChecked() and section.origins.text() == ""
    qtbot.waitUntil(lambda: not server.facts.on, timeout=WAIT_MS)


def test_a_refusal_is_logged_in_words(open_window: Opener, model: Model) -> None:
    window = open_window()
    line = {"at_s": 1.7e9, "took_s": 0.2, "model": "m", "refusal": text("engine.no_model")}
    window.link.server.emit({"on": True, "address": "http://127.0.0.1:1", "log": [line]})
    shown = window.settings_page.server_page.log.item(0).text()
    assert shown.endswith(str(text("engine.no_model"))) and " m " in shown
