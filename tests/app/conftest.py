"""Fixtures of the window tests: no screen, a fake engine."""

import functools
import gc
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import fork_server
from fake_worker import DEVICE
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication
from window_page import WindowPage
from window_samples import FAKE_WORKER, WAIT_MS, Model, Opener
from worker_inside import WorkerInside

from app.session.worker_link import EngineLink
from app.state.engine_state import State
from app.text import language
from app.widgets import theme
from backend.memory import devices


@pytest.fixture(scope="session")
def qapp_cls() -> type[QApplication]:
    return QApplication


@pytest.fixture
def qtbot(qtbot: Any) -> Any:
    """Let waits end by their condition. pytest-qt gives up after 5 seconds."""
    for name in ("waitUntil", "waitSignal"):
        setattr(qtbot, name, functools.partial(getattr(qtbot, name), timeout=WAIT_MS))
    return qtbot


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Write "model" files for the fake engine. fake_worker.py lists the options."""

    def make(name: str = "model", **options: Any) -> Path:
        path = tmp_path / f"{name}.gguf"
        path.write_text(json.dumps(options), encoding="utf-8")
        return path

    return make


@pytest.fixture
def open_window(qapp: QApplication, qtbot: Any, tmp_path: Path) -> Iterator[Opener]:
    """Open windows with the fake worker in this process, or with a command's in one of its own.

    The fake worker's is forked: its imports take longer than most tests.
    """
    windows: list[WindowPage] = []
    if not (tmp_path / "settings.json").exists():
        manual = {"automatic": False, "method": "promoe", "models": {}}
        (tmp_path / "settings.json").write_text(json.dumps(manual), encoding="utf-8")

    def make(path: Path | None = None, command: list[str] | None = None) -> WindowPage:
        if command is FAKE_WORKER:
            command = fork_server.command(FAKE_WORKER[1:], ("fake_worker",))
        link = EngineLink(command) if command else EngineLink(["inside"], WorkerInside)
        window = WindowPage(link, tmp_path / "settings.json")
        window.qtbot = qtbot
        qtbot.addWidget(window)
        windows.append(window)
        window.show()
        if path is not None:
            window.open_model(path)
            window.wait_state(State.IDLE)
        return window

    yield make
    for window in windows:
        window.library.shut_down()
        window.link.shut_down()


_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def garbage() -> Iterator[None]:
    """Collect garbage between tests only, in this thread.

    A worker's thread would delete what belongs to a window, which Qt does not allow.
    """
    gc.disable()
    yield
    if next(_tests) % 10 == 0:
        gc.collect()
    gc.enable()


@pytest.fixture(autouse=True)
def as_at_a_start(qapp: QApplication) -> None:
    """Begin in English and in the usual style, whatever the system or the test before has.

    Under a style sheet every widget that gets another parent is styled again, which takes half of
    the time of building a window.
    """
    language.apply(qapp, "en")
    is_usual = theme.colours() is theme.LIGHT and theme.pixels() == theme.USUAL_PIXELS
    if qapp.styleSheet() or not is_usual:
        qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        qapp.setStyleSheet("")
        theme.choose(qapp, theme.Choice.LIGHT)


@pytest.fixture(autouse=True)
def no_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the embedded model. Tests name the models that they load."""
    monkeypatch.setattr("app.session.known_models.embedded_model", lambda: None)


@pytest.fixture(autouse=True)
def fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show the workers in this process a device."""
    monkeypatch.setattr(devices, "available", lambda: [DEVICE])


@pytest.fixture(autouse=True)
def no_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no title be asked for after eight seconds, which a slow test may take."""
    monkeypatch.setattr("app.session.titles.IDLE_MS", 1000 * WAIT_MS)


@pytest.fixture(autouse=True)
def bare_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the models of other programs and skip measuring, which takes seconds."""
    monkeypatch.setattr("app.library.library.known_folders", lambda: [])
    monkeypatch.setattr("app.library.library.Library.measure", lambda *_: None)
    monkeypatch.setattr("app.library.page.models_folder", lambda: tmp_path / "downloads")
