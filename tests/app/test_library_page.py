"""The page with all models, on real files, with the fake engine."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factory import make_split, make_tiny
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from window_samples import WAIT_MS, Model, Opener

from app.library import words
from app.library.library import Library
from app.library.plan_bar import PlanBar, parts
from app.state.engine_state import State
from app.text import language
from app.widgets import theme
from app.window.main_window import MainWindow
from backend.library.checksum import Checksum, checksum, note_origin
from backend.library.estimate import Kind
from backend.memory.plan import MemoryPlan

MEASURE = Library.measure  # which no other test here does


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_tiny(
        "qwen3moe", "Q8_0", tmp_path_factory.mktemp("m") / "m.gguf", n_expert=16, n_expert_used=4
    ).read_bytes()


@pytest.fixture
def folder(tmp_path: Path, tiny: bytes) -> Path:
    """Return a folder with a good, a broken and a dense model, and a split one without a part."""
    made = tmp_path / "models"
    made.mkdir()
    (made / "good.gguf").write_bytes(tiny)
    (made / "cut.gguf").write_bytes(tiny[:3000])
    make_tiny("dense", "Q8_0", made / "dense.gguf")
    split = make_split(made / "good.gguf", 3)
    split[1].unlink()
    for part in (split[0], split[2]):
        part.rename(part.with_name(part.name.replace("good", "split")))
    return made


def drop(window: MainWindow, *paths: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(10, 10), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(10, 10), copy, data, left, none))


def names(window: MainWindow) -> list[str]:
    return [row.entry.name for row in window.library.view.shown]


def wait_for(qtbot: Any, window: MainWindow, *expected: str) -> None:
    qtbot.waitUntil(lambda: sorted(names(window)) == sorted(expected), timeout=WAIT_MS)


def test_a_dropped_folder_is_listed_and_watched(
    qtbot: Any, open_window: Opener, folder: Path, tiny: bytes
) -> None:
    window = open_window()
    drop(window, folder)
    view = window.library.view
    assert view.isVisible()
    wait_for(qtbot, window, "good", "cut", "dense", "split")
    (folder / "below").mkdir()
    (folder / "below" / "new.gguf").write_bytes(tiny)
    (folder / "cut.gguf").unlink()
    wait_for(qtbot, window, "good", "new", "dense", "split")
    window.close()
    again = open_window()
    again.top_bar.model.library.emit()  # as the button's menu does it
    wait_for(qtbot, again, "good", "new", "dense", "split")


def test_verdicts_and_reasons_are_in_words(qtbot: Any, open_window: Opener, folder: Path) -> None:
    window = open_window()
    drop(window, folder)
    wait_for(qtbot, window, "good", "cut", "dense", "split")
    view = window.library.view
    said = {}
    for row in view.shown:
        view.pick(row.entry.path)
        said[row.entry.name] = view.details.sentence
        assert view.details.load.isEnabled() == (row.verdict is not None)
    assert said["good"].startswith("All its experts fit in memory.")
    assert "dense model" in said["dense"] and said["dense"].startswith("It fits in memory.")
    assert said["cut"].startswith("It cannot be used: ") and "than the file has" in said["cut"]
    assert said["split"] == "It cannot be used: part 2 of 3 is missing."
    assert names(window)[-1] in ("cut", "split")  # usable models come first


def test_search_sort_and_load_by_keyboard(
    qtbot: Any, open_window: Opener, folder: Path, model: Model
) -> None:
    loaded = model("loaded")
    window = open_window(loaded)
    window.library.library.add_folder(folder)
    qtbot.keyClick(window, Qt.Key.Key_M, Qt.KeyboardModifier.ControlModifier)
    wait_for(qtbot, window, "good", "cut", "dense", "split", "loaded")
    view = window.library.view
    view.table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    assert names(window) == ["split", "loaded", "good", "dense", "cut"]
    qtbot.keyClicks(view.search, "QWEN3 good")
    assert names(window) == ["good"]
    qtbot.keyClick(view.search, Qt.Key.Key_Down)
    qtbot.keyClick(view.table, Qt.Key.Key_Return)
    assert not view.isVisible()
    assert window.engine.path == folder / "good.gguf" or window.engine.state is State.LOADING
    view.search.setText("nothing has this")
    qtbot.keyClick(window, Qt.Key.Key_M, Qt.KeyboardModifier.ControlModifier)
    assert names(window) == [] and view.isVisible()
    qtbot.keyClick(view.search, Qt.Key.Key_Escape)
    assert not view.isVisible()


def test_folders_that_vanish_and_come_back(qtbot: Any, open_window: Opener, folder: Path) -> None:
    window = open_window()
    drop(window, folder)
    wait_for(qtbot, window, "good", "cut", "dense", "split")
    away = folder.with_name("away")
    folder.rename(away)
    wait_for(qtbot, window)
    foot = window.library.view.foot
    assert foot.text() == "No models. The folder models is not there."
    away.rename(folder)
    wait_for(qtbot, window, "good", "cut", "dense", "split")


def test_a_model_that_is_deleted_while_open(qtbot: Any, open_window: Opener, model: Model) -> None:
    path = model("mine")
    window = open_window(path)
    window.show_library()
    wait_for(qtbot, window, "mine")
    path.unlink()
    banner = window.chat.banner
    qtbot.waitUntil(lambda: "deleted or moved" in banner.sentence, timeout=WAIT_MS)
    rows = window.library.view.shown
    qtbot.waitUntil(
        lambda: window.library.view.shown[0].entry.trouble == "the file is gone", timeout=WAIT_MS
    )
    assert len(rows) == 1 and window.engine.state is State.IDLE
    window.show_chat()
    assert window.session.send("Are you there?")
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


def test_use_and_speed_are_remembered(qtbot: Any, tmp_path: Path, folder: Path) -> None:
    library = Library(tmp_path / "library.json", tmp_path / "cache")
    library.remember_answer(folder / "good.gguf", 8, 15, 99.0)  # too short to count
    library.remember_answer(folder / "good.gguf", 8, 100, 12.5)
    library.rate_for = lambda _: 0.5
    library.add_folder(folder)
    library.begin()

    def measured() -> bool:
        for row in library.rows:
            if row.entry.name == "good" and row.verdict and row.verdict.asked_speed:
                return row.verdict.asked_speed.tokens_per_s == 12.5
        return False

    qtbot.waitUntil(lambda: bool(library.rows), timeout=WAIT_MS)
    library.judge()
    assert measured()
    library.shut_down()


def test_a_file_is_checked(qtbot: Any, open_window: Opener, folder: Path) -> None:
    window = open_window()
    drop(window, folder)
    wait_for(qtbot, window, "good", "cut", "dense", "split")
    view, path = window.library.view, folder / "good.gguf"
    details = view.details
    for name in ("split", "good"):
        (row,) = (row for row in view.shown if row.entry.name == name)
        view.pick(row.entry.path)
        qtbot.mouseClick(details.check, Qt.MouseButton.LeftButton)
        assert details.check.text() == "Cancel"
        qtbot.waitUntil(lambda: not view.library.is_checking, timeout=WAIT_MS)
        assert details.check.text() == "Check the file"
        if name == "split":
            assert "00002-of-00003.gguf could not be read" in details.checked
    qtbot.waitUntil(lambda: "not known" in details.checked, timeout=WAIT_MS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert details.checked.startswith("Checked (today): ") and digest in details.checked
    note_origin(path, digest, "a/b", "")
    view.library.check_file(path)
    qtbot.waitUntil(lambda: "is what a/b states" in details.checked, timeout=WAIT_MS)
    view.pick(folder / "dense.gguf")
    assert details.checked == ""
    window.close()
    again = open_window()
    again.show_library()
    wait_for(qtbot, again, "good", "cut", "dense", "split")
    again.library.view.pick(path)
    assert "is what a/b states" in again.library.view.details.checked  # it is kept
    os.utime(path, ns=(0, 0))
    again.library.library.rescan()
    qtbot.waitUntil(lambda: again.library.view.details.checked == "", timeout=WAIT_MS)


def test_a_check_is_cancelled(
    qtbot: Any, open_window: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    drop(window, folder)
    wait_for(qtbot, window, "good", "cut", "dense", "split")
    view, details = window.library.view, window.library.view.details
    go = threading.Event()

    def slowly(path: Path, heard: Callable[[float], None], go_on: Callable[[], bool]) -> Checksum:
        heard(0.25)
        assert go.wait(WAIT_MS / 1000)
        return checksum(path, heard, go_on)

    monkeypatch.setattr("app.library.library.checksum", slowly)
    view.pick(folder / "good.gguf")
    qtbot.mouseClick(details.check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "25" in details.checked, timeout=WAIT_MS)
    view.pick(folder / "dense.gguf")
    assert not details.check.isEnabled() and details.checked == ""
    view.pick(folder / "good.gguf")
    qtbot.mouseClick(details.check, Qt.MouseButton.LeftButton)
    go.set()
    qtbot.waitUntil(lambda: details.checked == "The check was stopped.", timeout=WAIT_MS)


def test_the_bar_adds_up(qtbot: Any, tmp_path: Path, folder: Path) -> None:
    library = Library(tmp_path / "library.json", tmp_path / "cache")
    library.loose = [folder / "good.gguf"]
    library.begin()
    qtbot.waitUntil(lambda: bool(library.rows), timeout=WAIT_MS)
    (row,) = library.rows
    assert row.verdict is not None and row.verdict.kind is Kind.FITS
    plan = row.verdict.best
    assert sum(n_bytes for _, _, n_bytes in parts(plan)) == plan.available_bytes
    library.shut_down()


@pytest.mark.parametrize("code", ["en", "de"])
def test_missing_memory_is_no_part_of_the_bar(qtbot: Any, qapp: QApplication, code: str) -> None:
    plan = MemoryPlan("cached", "", 8, 4, 2, None, 10, 20, 5, 3, 2, 40, 10, 30)
    language.apply(qapp, code)
    try:
        bar = PlanBar()
        qtbot.addWidget(bar)
        bar.resize(400, 60)
        bar.show_plan(plan)
        assert parts(plan)[-1][2] == 20
        assert bar.grab().toImage().pixelColor(390, 8) == theme.colour("other")
    finally:
        language.apply(qapp, "en")


def test_words() -> None:
    assert words.parameters(30_532_000_000) == "30.5B"
    assert words.parameters(999_990_000) == "1.0B"
    assert words.parameters(124_000_000) == "124M"
    now = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
    assert words.ago(0.0, now) == "" and words.ago(now - 60, now) == "today"
    assert words.ago(now - 13 * 3600, now) == "yesterday"
    assert words.ago(now - 3 * 86_400, now).startswith("3")


def test_a_busy_machine_is_measured_only_when_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        "app.library.library.QProcess.start", lambda _, *command: started.append(list(command))
    )
    load = [1e6]
    monkeypatch.setattr("os.getloadavg", lambda: (load[0], 0.0, 0.0))
    library = Library(tmp_path / "library.json", tmp_path / "cache")
    MEASURE(library)
    assert not started and not library.is_measuring
    load[0] = 0.0
    MEASURE(library)
    assert len(started) == 1 and library.is_measuring
    again = Library(tmp_path / "library.json", tmp_path / "cache")
    load[0] = 1e6
    MEASURE(again, again=True)
    assert len(started) == 2
    for one in (library, again):
        one.shut_down()
