"""The page that downloads models, against a local server with the hub's protocol."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from factory import make_split, make_tiny
from fake_hub import FakeHub, Fault
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTableView, QWidget
from window_samples import ENDLESS, WAIT_MS, Model, Opener

from app.library.download_row import DownloadRow
from app.state.engine_state import State as EngineState
from app.text import units
from app.window.main_window import MainWindow
from backend.downloads import job as job_module
from backend.downloads import transfer as transfer_module
from backend.downloads.curated import Curated, curated
from backend.downloads.job import Job
from backend.downloads.manager import Download, State
from backend.downloads.offers import RemoteFile
from backend.library.estimate import Kind
from backend.machines import Hardware
from backend.text import text

MACHINE = Hardware(
    name="m", sentence="A machine.", link_gb_per_s=3.0, link_latency_us=100.0, n_link=4,
    memory_gb_per_s=40.0, tflop_per_s=1.0, step_us=5.0,
)  # fmt: skip
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


def test_a_listing_goes_on_after_the_wait_of_the_server(
    qtbot: Any, open_window: Opener, hub: FakeHub
) -> None:
    hub.api_status, hub.api_headers = 429, {"Retry-After": "0.4"}
    window = open_window()
    look_up(qtbot, window)
    get = window.library.get
    assert "asks to wait until" in get.sentence
    assert get.sentence.endswith("(HTTP 429). Then it is asked again by itself.")
    hub.api_status = 0
    qtbot.waitUntil(lambda: len(get.search.found) == 2, timeout=WAIT_MS)
    assert "asks to wait" not in get.sentence
    hub.api_status = 429  # the user has gone back meanwhile: it is not asked again
    look_up(qtbot, window)
    n_asked = len(hub.requests)
    get.list.click()
    assert not get.search.goes_on and len(hub.requests) == n_asked


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
    assert [item.there for item in get.search.found] == [None, library.rows[0].entry.path]
    window.show_get_models()
    assert get.download.text() == "Open"
    with qtbot.waitSignal(window.library.picked) as picked:
        row.main.click()
    assert picked.args[0] == library.rows[0].entry.path
    row.remove.click()
    qtbot.waitUntil(lambda: get.rows == [], timeout=WAIT_MS)
    assert library.rows[0].entry.path.exists()


def test_what_goes_wrong_is_a_sentence(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    window = open_window()
    get = window.library.get
    for words, said in (
        ("nonsense", "127.0.0.1 has no GGUF model with \u201cnonsense\u201d in its name."),
        ("ftp://x", "'ftp://x' is neither a repository, such as owner/name, nor an address."),
        ("no/body", "There is no such repository on 127.0.0.1, or it is private and needs a "
                    "token (in Get models, or HF_TOKEN)."),
    ):  # fmt: skip
        look_up(qtbot, window, words)
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


@pytest.fixture
def entry(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Curated:
    """Put one model of the fake hub into the curated list, which the fake engine can load."""
    known = curated()[1][0]
    data = hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    hub.repositories["a/Small-GGUF"] = {"arrived.gguf": data, "mmproj-F16.gguf": b"GGUF eye"}
    made = replace(
        known, title="Small", repository="a/Small-GGUF", file="arrived.gguf", sees_images=True,
        facts=replace(known.facts, file_bytes=len(data)),
    )  # fmt: skip
    monkeypatch.setattr("app.library.search.curated", lambda: ("2026-11-22", (made,)))
    return made


def test_from_the_first_start_to_a_chat_with_a_real_model(
    qtbot: Any, open_window: Opener, hub: FakeHub, entry: Curated
) -> None:
    window = open_window()
    get = window.library.get
    window.press("Get a larger model")
    assert get.table.isVisible() and get.download.text() == "Download"
    size = units.size(entry.facts.file_bytes)
    assert get.sentence.startswith(
        "Suggested for this computer: the largest of the list that fits in its memory. "
        f"Small: {size}. All its experts fit in memory"
    )
    assert "16 layers of 64 experts, 8 used" in get.sentence
    assert "It sees images" in get.sentence and "licence Apache-2.0" in get.sentence
    assert hub.requests == []  # nothing is asked before the user says so
    hub.faults = [Fault("hold", 20_000)]
    window.press("Download")
    qtbot.waitUntil(lambda: bool(get.rows) and get.rows[0].download.n_byte >= 20_000,
                    timeout=WAIT_MS)  # fmt: skip
    assert get.isVisible()
    hub.release.set()
    window.wait_state(EngineState.IDLE)
    folder = window.library.downloads.folder / "a" / "Small-GGUF"
    assert window.engine.path == folder / "arrived.gguf"
    assert (folder / "mmproj-F16.gguf").read_bytes() == b"GGUF eye"
    assert window.chat.isVisible() and not get.isVisible()
    window.show_get_models()
    qtbot.waitUntil(lambda: get.download.text() == "Open", timeout=WAIT_MS)
    assert get.there.text() == "1\u00a0model on this computer already."
    window.press("Open")
    assert window.chat.isVisible()


def test_a_model_that_arrives_does_not_interrupt(
    qtbot: Any, open_window: Opener, hub: FakeHub, entry: Curated, model: Model
) -> None:
    window = open_window(model("busy", text=ENDLESS, token_s=0.02))
    window.show_get_models()
    hub.faults = [Fault("hold", 20_000)]
    window.press("Download")
    qtbot.waitUntil(lambda: bool(window.library.get.rows), timeout=WAIT_MS)
    window.show_chat()
    window.ask()
    window.wait_text()
    hub.release.set()
    window.wait_notice("arrived has arrived.")
    assert window.choices == ["Open it"] and window.state is EngineState.ANSWERING
    window.press("Open it")
    qtbot.waitUntil(lambda: window.engine.path.name == "arrived.gguf", timeout=WAIT_MS)


def test_the_list_needs_no_network(
    qtbot: Any, open_window: Opener, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    window = open_window()
    window.show_get_models()
    get = window.library.get
    every = get.search.found
    assert len(every) == len(curated()[1])
    assert all(item.row.verdict is not None for item in every)
    reads = Mock(return_value=1 << 34)
    with monkeypatch.context() as patch:
        patch.setattr("app.library.library.available_bytes", reads)
        assert len(get.search.found) == len(every)
    assert reads.call_count <= 2  # for the list and the suggested model, not for each model
    assert "26 Nov 2026" in get.about.text()
    qtbot.keyClicks(get.address, "coder q8 qwen")
    assert [item.offer.name for item in get.search.found] == ["Qwen3 Coder 30B-A3B Instruct Q8_0"]
    assert get.sentence.endswith("Its numbers are estimated, the file was not read.")
    assert "Qwen3 Coder" in get.table.model().index(0, 0).data()
    qtbot.keyClick(get.address, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "cannot be reached" in get.sentence, timeout=WAIT_MS)
    assert "The list of models needs no network" in get.sentence
    window.press("Back to the list")
    assert len(get.search.found) == len(every) and get.address.text() == ""
    window.press("Download")
    qtbot.waitUntil(lambda: "cannot be reached" in get.sentence, timeout=WAIT_MS)
    assert get.rows == []


def test_words_find_a_repository(qtbot: Any, open_window: Opener, hub: FakeHub) -> None:
    hub.repositories["other/Thing-GGUF"] = {}
    window = open_window()
    look_up(qtbot, window, "tiny")
    get = window.library.get
    table = get.table.model()
    assert [table.index(i, 0).data() for i in range(table.rowCount())] == [REPOSITORY]
    assert get.about.text() == "Repositories with \u201ctiny\u201d, the most used first."
    qtbot.keyClick(get.address, Qt.Key.Key_Down)
    qtbot.keyClick(get.table, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(get.search.found) == 2 and get.search.found[0].is_exact,
                    timeout=WAIT_MS)  # fmt: skip
    assert get.about.text() == REPOSITORY and get.download.text() == "Download"


def is_in_sight(table: QTableView) -> bool:
    """Return whether the selected row can be seen."""
    place = table.visualRect(table.currentIndex()).center()
    return bool(table.viewport().rect().contains(place))


def test_the_suggested_model_is_the_largest_that_is_fast_enough(
    qtbot: Any, open_window: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    search, library = window.library.search, window.library.library

    def suggested(free_gib: float, drive_gb_per_s: float) -> str:
        library.machine = replace(MACHINE, link_gb_per_s=drive_gb_per_s)
        monkeypatch.setattr("app.library.library.available_bytes", lambda: int(free_gib * 2**30))
        found = search.suggested()
        return found.offer.name if found is not None else ""

    assert suggested(0.1, 3.0) == ""
    slow, fast = suggested(8, 0.05), suggested(8, 7.0)
    sizes = {model.title: model.facts.file_bytes for model in curated()[1]}
    assert sizes[slow] < 8 * 2**30 < sizes[fast]
    assert suggested(128, 3.0) == "Qwen3-Next 80B-A3B Instruct Q6_K"
    slowest = replace(MACHINE, link_gb_per_s=0.05, memory_gb_per_s=0.5)
    monkeypatch.setattr("app.library.library.available_bytes", lambda: 16 * 2**30)
    library.machine = slowest  # no model is usable: the fastest
    name = max(search.curated(), key=lambda item: item.row.verdict.best_speed.tokens_per_s)
    assert search.suggested().offer.name == name.offer.name
    # What was suggested before the measurement is not what stays selected after it.
    library.machine = None
    window.show_get_models()
    get = window.library.get
    blind = get.chosen.offer.name
    library.machine = slowest
    library.changed.emit()
    assert get.chosen.offer.name == search.suggested().offer.name != blind
    assert get.sentence.startswith("Suggested for this computer: the fastest of the list here.")
    # It stands first, in sight. What does not run stands at the end.
    kinds = [item.row.verdict.kind for item in search.found]
    assert search.found[0].offer.name == search.suggested().offer.name
    assert kinds == sorted(kinds, key=lambda kind: kind not in (Kind.FITS, Kind.CACHE))
    rect = get.table.visualRect(get.table.currentIndex())
    assert get.table.currentIndex().row() == 0 and get.table.viewport().rect().contains(
        rect.center()
    )
    get.table.selectRow(4)
    picked = get.chosen.offer.name
    library.machine = replace(MACHINE, link_gb_per_s=7.0)
    library.changed.emit()  # the order is another, and the choice of the user stays
    assert get.chosen.offer.name == picked and get.table.currentIndex().row() != 4
    assert is_in_sight(get.table)


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


def test_the_chosen_row_is_described_and_no_other(
    qtbot: Any, open_window: Opener, hub: FakeHub
) -> None:
    """A row of the list that needs no network by its button, a found one after a moment."""
    template = "{% if tools %}<think>{% endif %}"
    for name in ("a/Wee-One", "b/Wee-Two", curated()[1][0].repository):
        readme = b"---\nlicense: mit\n---\n# Head\n<b>A tiny</b> model of [words](x) for tests.\n"
        hub.repositories[name] = {"README.md": readme, "x.gguf": b"x"}
        hub.cards[name] = {"gguf": {"chat_template": template}, "cardData": {"license": "mit"}}
    window = open_window()
    get = window.library.get
    said = "Its page says: \u201cA tiny model of words for tests.\u201d"
    can = "It can think before it answers. It can call tools."
    look_up(qtbot, window, "Wee-")
    qtbot.waitUntil(lambda: get.card.text().endswith(said), timeout=WAIT_MS)
    assert get.card.text() == f"Licence mit. {can} {said}"
    asked = [request.path for request in hub.requests if "resolve" in request.path]
    assert len(set(asked)) == 1 and not get.describe.isVisible()
    get.list.click()
    names = [item.curated.repository for item in get.search.found if item.curated]
    get.table.selectRow(names.index(curated()[1][0].repository))
    hub.requests.clear()
    assert get.describe.isVisible() and get.card.text() == "" and not hub.requests
    get.describe.click()
    qtbot.waitUntil(lambda: get.card.text() == f"{can} {said}", timeout=WAIT_MS)
    assert not get.describe.isVisible()


def test_a_token_is_entered_where_one_is_needed(
    qtbot: Any, open_window: Opener, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gated repository fails, the row opens the field, and the download goes on by itself."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    hub.gated.add(REPOSITORY)
    hub.owners["hf_new"] = "alice"
    window = open_window()
    get = window.library.get
    look_up(qtbot, window)
    qtbot.waitUntil(lambda: get.card.text() == "Its page could not be read.", timeout=WAIT_MS)
    window.library.downloads.add(_job(window))
    qtbot.waitUntil(lambda: any(row.enter_token.isVisible() for row in get.rows), timeout=WAIT_MS)
    line = get.token
    assert line.sentence == "No token. Private repositories, and some with conditions, need one."
    get.rows[0].enter_token.click()
    assert line.field.hasFocus() and not line.check.isEnabled()
    line.field.setText("hf_x")
    qtbot.keyClick(line.field, Qt.Key.Key_Escape)
    assert not line.field.isVisible() and get.isVisible() and line.enter.hasFocus()
    line.enter.click()
    held = "Token of alice, until Outrider ends: no keyring runs on this system."
    unknown = "127.0.0.1 does not know this token (HTTP 401)."
    for typed, said in (("hf_old", unknown), ("hf_new", held)):
        line.field.setText(typed)
        qtbot.keyClick(line.field, Qt.Key.Key_Return)
        qtbot.waitUntil(lambda said=said: line.sentence.startswith(said), timeout=WAIT_MS)
    row = get.rows[0]
    qtbot.waitUntil(lambda: row.download.state is State.DONE, timeout=WAIT_MS)
    assert not row.enter_token.isVisible() and not line.field.isVisible()
    window.show_get_models()
    line.forget.click()
    qtbot.waitUntil(lambda: line.sentence.startswith("No token."), timeout=WAIT_MS)
    monkeypatch.setenv("HF_TOKEN", "hf_shell")
    line.show_token()
    assert line.sentence == "The token of HF_TOKEN is used."


def test_a_row_says_how_long_the_hub_asks_to_wait(qtbot: Any, tmp_path: Path) -> None:
    job = Job("a/b", "Tiny", tmp_path, (RemoteFile("http://hub/x", "x.gguf", 2 << 20),))
    at_s = time.mktime(time.strptime("2020-10-21 07:28", "%Y-%m-%d %H:%M"))
    reason = text("download.wait_until", host="hub", status=429, at=at_s)
    until_s = time.monotonic() + 3600
    download = Download(1, job, State.RUNNING, 1 << 20, 0.0, reason, waits_until_s=until_s)
    row = DownloadRow(download)
    qtbot.addWidget(row)
    assert row.sentence.replace("\u00a0", " ") == (
        "1.0 MiB of 2.0 MiB. hub asks to wait until 21 Oct 2020 07:28 (HTTP 429). "
        "Goes on by itself in 60.0 min."
    )
    row.show_download(replace(download, waits_until_s=0.0))
    assert row.sentence.endswith("waits for the server.")
