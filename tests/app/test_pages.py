"""The pages Settings, Diagnostics, Shortcuts and About: contents, and use by keyboard."""

import json
import os
import signal
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from factory import make_tiny
from factory.embedding import make_embedder
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QApplication,
    QDialogButtonBox,
    QFileDialog,
    QStyle,
    QTreeView,
    QWidget,
)
from waiting import WAIT_S
from window_samples import FAKE_WORKER, WAIT_MS, Model, Opener

from app.chat.preset_dialog import PresetDialog
from app.pages.licences import components
from app.state.engine_state import State
from app.state.preset import Preset
from app.text import language
from app.text.methods import title_of
from app.widgets import files, theme
from app.widgets.commands import COMMANDS, add_actions
from app.window.main_window import MainWindow

CONTROL = Qt.KeyboardModifier.ControlModifier


def wait_idle(qtbot: Any, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


def saved(tmp_path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize(
    ("name", "key", "modifier"),
    [
        ("settings", Qt.Key.Key_Comma, CONTROL),
        ("diagnostics", Qt.Key.Key_D, CONTROL),
        ("shortcuts", Qt.Key.Key_F1, Qt.KeyboardModifier.NoModifier),
        ("models", Qt.Key.Key_M, CONTROL),
    ],
)
def test_a_page_comes_and_goes_by_its_key(
    qtbot: Any, open_window: Opener, name: str, key: Qt.Key, modifier: Qt.KeyboardModifier
) -> None:
    window = open_window()
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    qtbot.keyClick(window, key, modifier)
    assert window.pages.present == name
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert window.pages.present == "chat"
    qtbot.keyClick(window, key, modifier)
    qtbot.keyClick(window, key, modifier)
    assert window.pages.present == "chat"


def test_the_next_start_shows_the_chat(open_window: Opener) -> None:
    """A page such as the models in its place looks as if the model and the chat were lost."""
    window = open_window()
    for page in ("get", "settings"):
        window.pages.go(page)
        window.close()
        window = open_window()
        assert window.pages.present == "chat" and window.chat.isVisible()


# Settings


def test_colours_and_language_are_chosen_and_kept(open_window: Opener, tmp_path: Path) -> None:
    window = open_window()
    page = window.settings_page
    for choice, dark in (("light", False), ("dark", True)):
        page.theme.setCurrentIndex(page.theme.findData(choice))
        page.theme.activated.emit(0)
        assert (theme.colours() is theme.DARK) is dark and saved(tmp_path)["theme"] == choice
    page.language.setCurrentIndex(page.language.findData("de"))
    page.language.activated.emit(0)
    assert saved(tmp_path)["language"] == "de"


def test_folders_of_models_are_added_and_removed(
    qtbot: Any, open_window: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    page = window.settings_page
    folder = tmp_path / "my models"
    folder.mkdir()
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(folder))
    page.add_folder.click()
    assert page.folders.item(0).text() == str(folder)
    assert window.library.library.history.folders == [folder]
    page.folders.setCurrentRow(0)
    page.remove_folder.click()
    assert page.folders.item(0).text().startswith("None yet") and folder.is_dir()
    assert not page.remove_folder.isEnabled()
    page.downloads.click()
    assert window.library.downloads.folder == folder


def test_new_chats_begin_with_what_was_set_for_all(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True))
    window.chats.set_any_preset(Preset("Be kind."))
    window.session.send("Hello")
    wait_idle(qtbot, window)
    last = window.session.conversation.last
    assert last is not None
    assert json.loads(last.content)[0] == {"role": "system", "content": "Be kind."}
    window.chats.set_model_preset(Preset("Be brief."))
    assert window.session.preset == Preset("Be brief.")
    window.chats.set_model_preset(Preset())
    window.open_model(model("other"))
    qtbot.waitUntil(
        lambda: window.engine.model is not None and window.engine.model.name == "other",
        timeout=WAIT_MS,
    )
    assert window.session.preset == Preset("Be kind.")


def test_reset_brings_the_beginning_back(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    path = model()
    window = open_window(path)
    window.settings_page.chosen.emit("theme", "light")
    window.top_bar.controls.click()
    window.server.choose(replace(window.server.choice, on=True, port=0))
    qtbot.waitUntil(lambda: window.server.facts.on, timeout=WAIT_MS)
    window.reset_settings()
    qtbot.waitUntil(lambda: not window.server.facts.on, timeout=WAIT_MS)
    wait_idle(qtbot, window)
    kept = saved(tmp_path)
    assert (kept["theme"], kept["automatic"], kept["server_on"]) == ("system", True, False)
    assert kept["recent"] == [str(path)]
    assert not window.controls.strip.isVisible() and window.top_bar.mode.automatic.isChecked()


# The local server


def test_the_server_is_off_until_it_is_wanted_and_then_answers(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    section = window.settings_page.server
    assert section.status.text() == "Off." and not window.server.facts.on
    section.port.setValue(0)
    section.on.click()
    qtbot.waitUntil(lambda: window.server.facts.on, timeout=WAIT_MS)
    address = window.server.facts.address
    assert address.startswith("http://127.0.0.1:") and address in section.status.text()
    section.copy.click()
    key = QApplication.clipboard().text()
    assert key == window.server.choice.key and len(key) > 20
    names = httpx.get(f"{address}/models", headers={"Authorization": f"Bearer {key}"}).json()
    assert names["data"][0]["id"] == "model"
    section.renew.click()
    qtbot.waitUntil(
        lambda: window.server.facts.on and window.server.facts.address != address, timeout=WAIT_MS
    )
    address = window.server.facts.address
    assert section.key.text() != key
    assert httpx.get(f"{address}/models", headers={"Authorization": f"Bearer {key}"}).is_error
    assert saved(tmp_path)["server_on"] is True
    assert stat.S_IMODE((tmp_path / "settings.json").stat().st_mode) == 0o600
    section.on.click()
    qtbot.waitUntil(lambda: not window.server.facts.on, timeout=WAIT_MS)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/models")


def test_the_server_comes_back_with_the_engine(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(), FAKE_WORKER)
    window.server.choose(replace(window.server.choice, on=True, port=0))
    qtbot.waitUntil(lambda: window.server.facts.on, timeout=WAIT_MS)
    os.kill(window.link.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: not window.server.facts.on, timeout=WAIT_MS)
    assert window.settings_page.server.status.text() == "It starts with the engine."
    window.chat.banner.buttons[0].click()
    qtbot.waitUntil(lambda: window.server.facts.on, timeout=WAIT_MS)


def test_a_program_names_a_model_of_the_library(
    qtbot: Any,
    open_window: Opener,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chat's own model comes back for the next message."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    make_tiny("qwen3moe", "Q8_0", folder / "shelved.gguf")
    window = open_window(model(echo=True))
    window.library.library.add_folder(folder)
    section = window.settings_page.server
    section.port.setValue(0)
    section.on.click()
    section.loads_models.click()
    section.unload_min.setValue(5)
    section.unload_min.editingFinished.emit()
    server = window.server
    headers = {"Authorization": f"Bearer {server.choice.key}"}

    def names() -> list[str]:
        listed = httpx.get(f"{server.facts.address}/models", headers=headers).json()["data"]
        return [entry["id"] for entry in listed]

    qtbot.waitUntil(lambda: server.facts.on and "shelved" in names(), timeout=WAIT_MS)
    body = {"prompt": "hello", "model": "shelved"}
    url = f"{server.facts.address}/completions"
    assert httpx.post(url, json=body, headers=headers, timeout=WAIT_S).json()["model"] == "shelved"
    qtbot.waitUntil(
        lambda: "A program has loaded shelved." in section.status.text(), timeout=WAIT_MS
    )
    assert window.engine.model is not None and window.engine.model.name == "model"
    window.session.send("Hello")
    wait_idle(qtbot, window)
    last = window.session.conversation.last
    assert last is not None and "Hello" in last.content
    qtbot.waitUntil(lambda: "A program" not in section.status.text(), timeout=WAIT_MS)
    kept = saved(tmp_path)
    assert (kept["server_loads_models"], kept["server_unload_min"]) == (True, 5)

    def embeds() -> int:
        asked = {"url": f"{server.facts.address}/embeddings", "json": {"input": "the cat"}}
        return httpx.post(**asked, headers=headers, timeout=WAIT_S).status_code

    assert section.embedding_model.text() == "none" and embeds() == 501
    small = make_embedder(tmp_path / "small.gguf")
    monkeypatch.setattr(files, "browse_model", lambda *_: str(small))
    section.choose_embedding_model.click()
    qtbot.waitUntil(lambda: embeds() == 200, timeout=WAIT_MS)
    assert section.embedding_model.text() == "small.gguf"
    qtbot.waitUntil(
        lambda: saved(tmp_path)["server_embedding_model"] == str(small), timeout=WAIT_MS
    )
    section.no_embedding_model.click()
    qtbot.waitUntil(lambda: embeds() == 501, timeout=WAIT_MS)
    section.choose_embedding_model.click()
    section.switch_off()
    assert section.embedding_model.text() == "none"
    qtbot.waitUntil(lambda: not server.facts.on, timeout=WAIT_MS)
    assert not section.loads_models.isChecked() and not saved(tmp_path)["server_loads_models"]


# Diagnostics


def test_the_report_holds_no_personal_text(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "annabel")
    home = tmp_path / "home" / "annabel"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    window = open_window(model("secret-folder-model", echo=True))
    window.session.send("My doctor is called Zebedee.")
    wait_idle(qtbot, window)
    window.chats.rename(window.chats.open_id, "About Zebedee")
    bad = home / "private" / "broken.gguf"
    bad.parent.mkdir()
    bad.write_bytes(b"no")
    window.open_model(bad)
    window.wait_notice("broken.gguf")
    window.server.choose(replace(window.server.choice, on=True, port=0))
    window.pages.go("diagnostics")
    page = window.pages.currentWidget()
    page.copy.click()  # type: ignore[attr-defined]
    report = QApplication.clipboard().text()
    for part in ("Outrider: ", "llama-cpp-python: 0.3", "physical cores", "n_token",
                 "automatic: False", "load failed"):  # fmt: skip
        assert part in report, report
    key = window.server.choice.key
    models = ("secret-folder-model", "broken.gguf")
    for personal in ("Zebedee", "annabel", "private", str(tmp_path), str(home), key, *models):
        assert personal not in report, report


# Shortcuts, about


def test_every_shortcut_is_in_the_list_and_means_one_thing(open_window: Opener) -> None:
    window = open_window()
    window.pages.go("shortcuts")
    table = window.pages.currentWidget().table  # type: ignore[attr-defined]
    shown = " ".join(table.item(row, 0).text() for row in range(table.rowCount()))
    for action in window.actions():
        for sequence in action.shortcuts():
            assert sequence.toString(sequence.SequenceFormat.NativeText) in shown
    keys = [key for command in COMMANDS for key in command.keys]
    assert len(keys) == len(set(keys))


def test_the_menu_has_groups(qtbot: Any) -> None:
    owner = QWidget()
    qtbot.addWidget(owner)
    menu = add_actions(owner, {command.name: print for command in COMMANDS})
    marks = "".join("|" if action.isSeparator() else "x" for action in menu.actions())
    assert max(map(len, marks.split("|"))) <= 5 and marks.count("|") >= 4


def test_a_dialog_for_files_begins_where_files_of_its_kind_are(
    open_window: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []

    class Picked(QFileDialog):
        def exec(self) -> int:
            begun.append(self.directory().absolutePath())
            return 1

        def selectedFiles(self) -> list[str]:
            return [str(tmp_path / "other" / "x.gguf")]

    monkeypatch.setattr("app.widgets.files._last", {})
    monkeypatch.setattr("app.widgets.files.models_folder", lambda: tmp_path)
    monkeypatch.setattr("app.widgets.files.QFileDialog", Picked)
    (tmp_path / "other").mkdir()
    window = open_window()
    window.browse()
    window.browse()
    assert begun == [str(tmp_path), str(tmp_path / "other")]


def test_the_dialog_for_files_cuts_no_size(qtbot: Any, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(bytes(123_456))
    dialog = files.open_dialog(None, "Open", str(tmp_path), "All (*)")
    qtbot.addWidget(dialog)
    dialog.show()
    table = dialog.findChild(QTreeView, "treeView")
    assert table is not None
    qtbot.waitUntil(lambda: table.model().rowCount(table.rootIndex()) == 1)
    size = table.model().index(0, 1, table.rootIndex())
    wanted = table.fontMetrics().horizontalAdvance(size.data())
    qtbot.waitUntil(lambda: wanted < table.visualRect(size).width())


def test_without_a_file_manager_the_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda _: False)
    assert str(tmp_path) in files.show_folder(tmp_path)
    said = files.open_page(QUrl("https://example.org/a b"))
    assert said.endswith("This one is https://example.org/a%20b.")
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda _: True)
    assert files.show_folder(tmp_path) == files.open_page(QUrl("https://example.org")) == ""


def test_dialogs_have_no_icons_of_the_system(qtbot: Any, qapp: QApplication) -> None:
    theme.apply(qapp, theme.Choice.LIGHT)
    dialog = PresetDialog(Preset(), "m", False)
    qtbot.addWidget(dialog)
    dialog.show()
    (box,) = dialog.findChildren(QDialogButtonBox)
    assert not box.style().styleHint(
        QStyle.StyleHint.SH_DialogButtonBox_ButtonsHaveIcons, None, box
    )
    assert all(button.icon().isNull() for button in box.buttons())


def test_replaced_words_do_not_come_back() -> None:
    root = ElementTree.parse(Path(language.__file__).with_name("translations") / "de.ts").getroot()
    words = {message.findtext("source", "") for message in root.iter("message")}
    gone = {"As the system has it", "Go on", "a small cache, to see it work", "Here",
            "brighter: used more often"}  # fmt: skip
    assert not words & gone
    assert {"System", "Continue", "Demo: cache kept small on purpose", "On this computer"} <= words
    assert "Adaptive" in words and title_of("auto") == "Adaptive"


def test_the_licences_of_all_parts_are_there(qtbot: Any, open_window: Opener) -> None:
    parts = {part.name.lower().replace("_", "-"): part for part in components()}
    for name, licence in (
        ("outrider", "MIT"), ("llama.cpp and ggml", "MIT"), ("llama-cpp-python", "MIT"),
        ("pyside6-essentials", "LGPL"), ("pygments", "BSD"), ("starlette", "BSD"),
        ("uvicorn", "BSD"), ("numpy", "BSD"),
    ):  # fmt: skip
        assert licence in parts[name].licence and parts[name].text, name
    window = open_window()
    window.pages.go("about")
    page = window.pages.currentWidget()
    qtbot.waitUntil(
        lambda: page.list.count() == len(parts),  # type: ignore[attr-defined]
        timeout=WAIT_MS,
    )
    page.list.setCurrentRow(1)  # type: ignore[attr-defined]
    assert "ggml authors" in page.text.toPlainText()  # type: ignore[attr-defined]
