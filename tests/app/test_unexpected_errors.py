"""Unexpected errors in the window's process: each is shown in its place, and is in the report."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication
from window_samples import Opener

from app.chat.markdown import highlight
from app.controls.pack_offer import PackDesk
from app.library.library import Library
from app.library.search import Search
from app.pages import about_page
from app.pages.system_sections import VersionSection
from app.session.tool_host import ToolHost
from app.session.tools import ToolServers
from app.widgets.background import Background
from backend.downloads import newer
from backend.system import faults
from backend.tools.settings import Server

MEASURE = Library.measure  # which tests of the window leave out
SENTENCE = (
    "A part of this program is missing or damaged (No module named 'lost'). Install it again."
)


def lost(*_: object, **__: object) -> Any:
    raise ModuleNotFoundError("No module named 'lost'")


BROKEN = [
    sys.executable, "-c",
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    "from backend.system import children\n"
    "def lost(_): raise ModuleNotFoundError(\"No module named 'lost'\")\n"
    "children.importlib.import_module = lost\n"
    "sys.exit(children.run('a child'))",
]  # fmt: skip
"""A child process that fails when its module is imported."""


@pytest.fixture(autouse=True)
def nothing_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the errors of other tests."""
    monkeypatch.setattr(faults, "_last", ("", ""))


@pytest.fixture
def recorded(qtbot: Any) -> Callable[[], None]:
    def check() -> None:
        qtbot.waitUntil(lambda: any("'lost'" in said for said in faults.recent()))

    return check


def test_jobs_go_on_after_one_that_fails(qtbot: Any, recorded: Callable[[], None]) -> None:
    def deleted() -> None:
        raise RuntimeError("Internal C++ object (Library) already deleted.")

    said: list[str] = []
    done: list[int] = []
    background = Background("jobs")
    background.later(lost, said.append)
    background.later(deleted, said.append)
    background.later(lambda: done.append(1), said.append)
    qtbot.waitUntil(lambda: bool(done))
    assert said == [SENTENCE]
    recorded()
    background.shut_down()


@pytest.fixture
def library(tmp_path: Path, qtbot: Any) -> Any:
    made = Library(tmp_path / "library.json", tmp_path / "cache")
    yield made
    made.shut_down()


@pytest.mark.parametrize("place", ["scan", "look_at", "remember_answer"])
def test_the_library(
    place: str, library: Library, qtbot: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    recorded: Callable[[], None],
) -> None:  # fmt: skip
    said: list[str] = []
    busy: list[bool] = []
    library.failed.connect(said.append)
    library.busy.connect(busy.append)
    library.may_measure = lambda: False
    with monkeypatch.context() as patch:
        patch.setattr("app.library.library.scan", lost)
        if place == "scan":
            library.begin()
        elif place == "look_at":
            library.look_at(tmp_path / "a.gguf")
        else:
            library.remember_answer(tmp_path / "a.gguf", 1, 100, 1.0)
        qtbot.waitUntil(lambda: said == [SENTENCE])
        assert busy == ([True, False] if place == "scan" else [])
    recorded()
    library.begin()
    qtbot.waitUntil(lambda: busy[-1:] == [False] and bool(busy))
    assert said == [SENTENCE]


def test_the_check_of_a_file(
    library: Library, qtbot: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    recorded: Callable[[], None],
) -> None:  # fmt: skip
    monkeypatch.setattr("app.library.library.checksum", lost)
    library.check_file(tmp_path / "a.gguf")
    qtbot.waitUntil(lambda: not library.is_checking)
    assert library.check is not None and library.check.trouble == SENTENCE
    recorded()


def test_the_measurement_of_the_machine(
    library: Library, qtbot: Any, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]
) -> None:
    said: list[str] = []
    library.failed.connect(said.append)
    monkeypatch.setattr("app.library.library.measure_command", lambda *_: BROKEN)
    MEASURE(library, again=True)
    qtbot.waitUntil(lambda: not library.is_measuring)
    assert said == [SENTENCE]
    recorded()


def test_the_search(
    library: Library, qtbot: Any, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]
) -> None:
    search = Search(library)
    said: list[str] = []
    busy: list[bool] = []
    search.refused.connect(said.append)
    search.busy.connect(busy.append)
    monkeypatch.setattr("app.library.search._new_client", lost)
    for n, ask in enumerate((lambda: search.look_up("words"), lambda: search.look_up("x/y")), 1):
        ask()
        qtbot.waitUntil(lambda n=n: len(said) == n)
    assert said == [SENTENCE] * 2 and busy == [True, False] * 2
    recorded()
    search.shut_down()


def test_a_newer_version(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]
) -> None:
    monkeypatch.setenv("OUTRIDER_RELEASES", "https://example.org")
    section = VersionSection()
    qtbot.addWidget(section)
    monkeypatch.setattr(newer, "latest", lost)
    section.look.click()
    qtbot.waitUntil(section.look.isEnabled)
    assert section.answer.text() == SENTENCE
    recorded()


def test_a_thread_holds_no_page(
    qtbot: Any, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that a thread is the last to hold would be deleted there."""
    goes_on = threading.Event()
    monkeypatch.setenv("OUTRIDER_RELEASES", "https://example.org")
    monkeypatch.setattr(newer, "latest", goes_on.wait)
    monkeypatch.setattr(about_page, "components", goes_on.wait)
    section, page = VersionSection(), about_page.AboutPage()
    section.look.click()
    page.show()
    pages = [weakref.ref(section), weakref.ref(page)]
    for widget in (section, page):
        widget.deleteLater()
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    del section, page, widget
    gc.collect()
    assert [ref() for ref in pages] == [None, None]
    goes_on.set()


def test_the_list_of_parts(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]
) -> None:
    monkeypatch.setattr(about_page, "components", lost)
    page = about_page.AboutPage()
    qtbot.addWidget(page)
    page.show()
    qtbot.waitUntil(lambda: page.list.count() == 1)
    assert page.text.toPlainText() == SENTENCE
    recorded()


def test_the_colours_of_code(monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]) -> None:
    monkeypatch.setattr("pygments.lexers.get_lexer_by_name", lost)
    assert not highlight.is_ready("brainfuck")
    recorded()
    assert highlight.is_ready("brainfuck")  # it is looked for once
    assert highlight.pieces("brainfuck", "+++") == []


def test_the_process_of_the_tools(qtbot: Any, tmp_path: Path, recorded: Callable[[], None]) -> None:
    servers = ToolServers(tmp_path / "tools.json", ToolHost(BROKEN))
    servers.put(Server("s", command="x", is_on=True))
    qtbot.waitUntil(lambda: servers.state("s").state == "failed")
    assert servers.state("s").sentence.startswith(SENTENCE)
    recorded()


class FakeSession(QObject):
    """What PackDesk needs of a session."""

    model_changed = Signal()


def test_a_process_that_packs_and_does_not_start(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    desk = PackDesk(FakeSession())  # type: ignore[arg-type]
    said: list[Any] = []
    desk.notice.connect(said.append)
    monkeypatch.setattr(PackDesk, "can_stripe", True)
    monkeypatch.setattr("app.controls.pack_offer.pack_command", lambda *_: [str(tmp_path / "no")])
    desk._path, desk._offer = tmp_path / "model.gguf", SimpleNamespace(path=str(tmp_path / "x"))  # type: ignore[assignment]
    desk.write()
    qtbot.waitUntil(lambda: not desk.is_writing)
    assert said and said[0].sentence


def test_a_slot_that_fails_is_a_notice_with_the_report(
    qtbot: Any, open_window: Opener, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[], None]
) -> None:
    window = open_window()
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    faults.watch(window.failed.emit)
    QTimer.singleShot(0, lost)
    qtbot.waitUntil(lambda: window.chat.banner.sentence == SENTENCE)
    recorded()
    window.chat.banner.buttons[0].click()
    page = window.pages.currentWidget()
    report = page.text.toPlainText()
    assert "No module named 'lost'" in report
    assert "test_unexpected_errors.py" in report and str(Path(__file__).parent) not in report
