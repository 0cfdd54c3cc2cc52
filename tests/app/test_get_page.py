"""The page that downloads models, against a local server with the hub's protocol."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factory import make_split, make_tiny
from fake_hub import FakeHub, Fault
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from window_samples import WAIT_MS, Opener

from app.window.main_window import MainWindow
from backend.downloads import job as job_module
from backend.downloads import transfer as transfer_module
from backend.downloads.manager import State
from backend.library.estimate import Kind

REPOSITORY = "somebody/Tiny-GGUF"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("hub")
    for kind in ("Q4_0", "Q8_0"):
        make_tiny("qwen3moe", kind, folder / f"Tiny-{kind}.gguf", n_expert=16, n_expert_used=4)
    for part in make_split(folder / "Tiny-Q8_0.gguf", 2):
        part.rename(folder / f"part-{part.name}")
    found = {path.name.removeprefix("part-"): path for path in sorted(folder.glob("part-*"))}
    found["Tiny-Q4_0.gguf"] = folder / "Tiny-Q4_0.gguf"
    return {name: path.read_bytes() for name, path in found.items()}


@pytest.fixture
def hub(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer_module, "WAIT_S", 0.01)
    monkeypatch.setattr(job_module, "MARGIN_BYTES", 0)
    with FakeHub() as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        made.repositories[REPOSITORY] = dict(files)
        yield made


def look_up(qtbot: Any, window: MainWindow, text: str = REPOSITORY) -> None:
    get = window.library.get
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=WAIT_MS)
    qtbot.keyClick(window, Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    assert get.isVisible()
    get.address.setText(text)
    qtbot.keyClick(get.address, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not get.is_busy, timeout=WAIT_MS)


def test_a_repository_by_keyboard(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    window = open_window()
    assert hub.requests == []
    look_up(qtbot, window)
    get, library = window.library.get, window.library.library
    qtbot.waitUntil(lambda: get.search.found[0].is_exact, timeout=WAIT_MS)
    found = get.search.found
    assert [item.offer.name for item in found] == ["Tiny-Q4_0", "Tiny-Q8_0"]
    assert [item.is_exact for item in found] == [True, False]  # the other is estimated
    assert all(item.row.verdict and item.row.verdict.kind is Kind.FITS for item in found)
    assert get.sentence.startswith("All its experts fit in memory")
    qtbot.keyClick(get.address, Qt.Key.Key_Down)
    qtbot.keyClick(get.table, Qt.Key.Key_Down)
    qtbot.waitUntil(lambda: get.search.found[1].is_exact, timeout=WAIT_MS)
    hub.faults = [Fault("hold", 20_000)]
    qtbot.keyClick(get.table, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: get.rows[0].download.n_byte >= 20_000, timeout=WAIT_MS)
    (row,) = get.rows
    assert row.main.accessibleName() == "Pause: Tiny-Q8_0"
    window.show_library()
    assert window.library.view.get.text() == "Getting 1 model\u2026"
    window.show_get_models()
    row.main.click()
    assert get.downloads.all()[0].state is State.PAUSED
    qtbot.waitUntil(lambda: "paused" in row.sentence, timeout=WAIT_MS)
    hub.release.set()
    row.main.click()
    qtbot.waitUntil(lambda: row.download.state is State.DONE, timeout=WAIT_MS)
    assert row.sentence.endswith("complete and checked.")
    qtbot.waitUntil(lambda: [r.entry.name for r in library.rows] == ["Tiny-Q8_0"], timeout=WAIT_MS)
    assert library.rows[0].entry.n_part == 2
    with qtbot.waitSignal(window.library.picked) as picked:
        row.main.click()
    assert picked.args[0] == library.rows[0].entry.path
    row.remove.click()
    qtbot.waitUntil(lambda: get.rows == [], timeout=WAIT_MS)
    assert library.rows[0].entry.path.exists()


def test_what_goes_wrong_is_a_sentence(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    window = open_window()
    get = window.library.get
    for text, said in (
        ("nonsense", "'nonsense' is neither a repository, such as owner/name, nor an address."),
        ("no/body", "There is no such repository on 127.0.0.1, or it is private and HF_TOKEN is "
                    "needed."),
    ):  # fmt: skip
        look_up(qtbot, window, text)
        assert get.sentence == said and not get.download.isEnabled()
    hub.gated.add(REPOSITORY)
    look_up(qtbot, window)
    qtbot.waitUntil(lambda: "gated" in get.sentence, timeout=WAIT_MS)
    hub.gated.clear()
    look_up(qtbot, window)
    hub.faults = [Fault("wrong")]
    window.library.downloads.add(_job(window))
    window.show_chat()
    banner = window.chat.banner
    qtbot.waitUntil(lambda: "arrived damaged" in banner.sentence, timeout=WAIT_MS)
    window.show_library()
    assert window.library.view.get.text() == "1 download stopped\u2026"
    assert window.library.library.rows == []


def test_interrupted_downloads_come_back(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    window = open_window()
    look_up(qtbot, window)
    hub.faults = [Fault("hold", 20_000)]
    window.library.downloads.add(_job(window))
    downloads = window.library.downloads
    qtbot.waitUntil(lambda: downloads.all()[0].n_byte >= 20_000, timeout=WAIT_MS)
    threading.Timer(0.3, hub.release.set).start()  # after the window stopped it
    window.close()
    n_request = len(hub.requests)
    again = open_window()
    again.show_get_models()
    (row,) = again.library.get.rows
    assert row.main.text() == "Resume" and len(hub.requests) == n_request
    row.main.click()
    qtbot.waitUntil(lambda: row.download.state is State.DONE, timeout=WAIT_MS)


def test_every_control_has_a_name(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    window = open_window()
    look_up(qtbot, window)
    window.library.downloads.add(_job(window))
    qtbot.waitUntil(lambda: bool(window.library.get.rows), timeout=WAIT_MS)
    for widget in window.library.get.findChildren(QWidget):
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.isVisible():
            assert widget.accessibleName() or getattr(widget, "text", lambda: "")(), widget


def _job(window: MainWindow) -> job_module.Job:
    search = window.library.search
    assert search.listing is not None
    folder: Path = window.library.downloads.folder
    return job_module.Job.of(search.listing.offers[0], search.listing.source, folder)
