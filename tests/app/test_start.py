"""The window starts although files that it remembers are damaged or unreadable."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from window_samples import WAIT_MS, Opener

FAILING = [errno.EIO, errno.EACCES, errno.ENOTCONN, errno.ESTALE, errno.ENAMETOOLONG]


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Make paths of models that fail with a given error number."""
    real = os.stat

    def make(number: int) -> Path:
        def fail(path: Any, *args: Any, **more: Any) -> os.stat_result:
            if "broken drive" in os.fsdecode(path if not isinstance(path, int) else b""):
                raise OSError(number, os.strerror(number), path)
            return real(path, *args, **more)

        monkeypatch.setattr(os, "stat", fail)
        return tmp_path / "broken drive" / "model.gguf"

    return make


def test_a_small_screen_begins_without_the_panel(
    open_window: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    window.resize(1280, 700)
    assert window.panel.isVisible()
    monkeypatch.setattr("app.window.main_window.SMALL_SCREEN", 10)
    window.suit_screen()
    assert window.panel.isVisible()
    monkeypatch.setattr("app.window.main_window.SMALL_SCREEN", 10_000)
    window.suit_screen()
    assert window.panel.isHidden() and window.chat.width() > 900
    window.top_bar.panel.click()
    window.resize(1270, 700)
    assert window.panel.isVisible() and window.settings.show_panel


@pytest.mark.parametrize("number", FAILING)
def test_models_on_a_failing_drive(
    open_window: Opener, tmp_path: Path, failing: Callable[[int], Path], number: int, qtbot: Any
) -> None:
    path = failing(number)
    long = tmp_path / ("x" * 300 + ".gguf")
    settings = {"recent": [str(path), str(long)], "last_model": str(path)}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "library.json").write_text(
        json.dumps({"format": 1, "folders": [str(path.parent)], "used": {}, "measured": {}})
    )
    window = open_window()
    window.open_first()
    assert window.isVisible() and window.engine.path is None
    window.show_library()
    qtbot.waitUntil(lambda: bool(window.library.library.scan.places), timeout=WAIT_MS)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(9, 9), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(9, 9), copy, data, left, none))
    qtbot.waitUntil(lambda: "model.gguf" in window.chat.banner.sentence, timeout=WAIT_MS)


@pytest.mark.parametrize("text", ["x" * 300, "\ud800", "a\0b", "/\udcff/m.gguf", ""])
def test_any_text_in_the_settings(open_window: Opener, tmp_path: Path, text: str) -> None:
    names = ("last_model", "device", "server_key", "geometry")
    lists = {"recent": [text], "trusted_devices": [text]}
    values = {**dict.fromkeys(names, text), "device": "auto", **lists, "open_chat": 1 << 62}
    (tmp_path / "settings.json").write_text(json.dumps(values))
    window = open_window()
    window.open_first()
    assert window.isVisible()
    window.close()
    QApplication.processEvents()


@pytest.mark.parametrize("damage", ["schema", "version", "settings"])
def test_a_window_beside_damaged_files(open_window: Opener, tmp_path: Path, damage: str) -> None:
    open_window().close()
    path = tmp_path / ("settings.json" if damage == "settings" else "chats.db")
    data = bytearray(path.read_bytes())
    if damage == "settings":
        data[:] = b'{"cache_rate": 1' + b"0" * 400 + b', "open_chat": 1180591620717411303424}'
    elif damage == "version":
        data[60] = 0xFF  # the first of the four bytes of user_version
    else:
        at = data.index(b"CREATE TABLE chat")
        data[at] = 0xFF
    path.write_bytes(data)
    window = open_window()
    assert window.isVisible() and "was damaged" in window.chat.banner.sentence
    assert path.with_name(f"{path.stem}.broken-1{path.suffix}").read_bytes() == bytes(data)
    assert window.chats.store.is_kept


def test_chats_and_settings_are_for_this_user_alone(open_window: Opener, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        window = open_window()
        window.preferences.save()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    names = {"chats.db", "chats.db-wal", "chats.db-shm", "settings.json"}
    assert {modes[name] for name in names} == {0o600}
