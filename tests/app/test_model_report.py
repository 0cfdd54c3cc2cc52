"""The dialog that measures the loaded model. A script stands for `outrider report`."""

import sys
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QFileDialog
from window_samples import FAKE_WORKER, WAIT_MS

from app.pages.diagnostics_page import DiagnosticsPage
from app.pages.model_report import ModelReport
from app.session.engine import EngineSession
from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from backend.system import children

PROGRAM = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
model, out = sys.argv[2], sys.argv[5]
status = STATUS
def write(words):
    open(out, "w", encoding="utf-8").write(words + "\\n")
write("begun")
words = {"text_id": "report.load", "values": {}, "text": "Loading the model."}
try:
    print(json.dumps({"part": 2, "parts": 6, "words": words}), flush=True)
    time.sleep(SLEEP_S)
    write("Summary of " + model.rsplit(".", 1)[1])
except KeyboardInterrupt:
    write("stopped")
    status = 130
sys.exit(status)
"""


@pytest.fixture
def engine(qtbot: Any, model: Any) -> Any:
    """Return an engine with a loaded model, as the window has it."""
    link = EngineLink(FAKE_WORKER)
    session = EngineSession(link, EngineChoice(), link)
    session.open_model(model("tin-soldier", n_layer=2))
    qtbot.waitUntil(lambda: session.state is State.IDLE)
    yield session
    link.shut_down()


@pytest.fixture
def page(engine: EngineSession, qtbot: Any) -> DiagnosticsPage:
    made = DiagnosticsPage(lambda: "", engine)
    qtbot.addWidget(made)
    made.show()
    return made


def opened(
    page: DiagnosticsPage, engine: EngineSession, qtbot: Any, monkeypatch: pytest.MonkeyPatch,
    status: int = 0, sleep_s: int = 0, program: str = PROGRAM,
) -> ModelReport:  # fmt: skip
    """Open the dialog by its button, and let it measure."""
    program = program.replace("STATUS", str(status)).replace("SLEEP_S", str(sleep_s))
    command = lambda _module, *words: [sys.executable, "-c", program, *words]  # noqa: E731
    monkeypatch.setattr(children, "command", command)
    page.measure.click()
    dialog = page.findChild(ModelReport)
    assert isinstance(dialog, ModelReport)
    assert "tin-soldier" in dialog.words.text() and not dialog.text.isVisible()
    path = engine.path
    dialog.start.click()
    assert engine.model is None and not page.measure.isEnabled()
    if sleep_s:
        qtbot.waitUntil(lambda: dialog.words.text() == "Loading the model.", timeout=WAIT_MS)
        assert dialog.bar.value() == 2
        dialog.reject()  # stops it first
    qtbot.waitUntil(lambda: engine.state is State.IDLE, timeout=WAIT_MS)
    assert engine.path == path and page.measure.isEnabled() and dialog.isVisible()
    return dialog


@pytest.mark.parametrize(("status", "words"), [(0, "complete"), (1, "missing or different")])
def test_the_model_is_measured_and_loaded_again(
    status: int, words: str, page: DiagnosticsPage, engine: EngineSession, qtbot: Any,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    dialog = opened(page, engine, qtbot, monkeypatch, status)
    assert words in dialog.words.text()
    assert dialog.text.isVisible() and dialog.text.toPlainText() == "Summary of gguf\n"
    dialog.copy.click()
    assert QApplication.clipboard().text() == "Summary of gguf\n"
    saved = tmp_path / "r.txt"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(saved), ""))
    dialog.save.click()
    assert saved.read_text(encoding="utf-8") == "Summary of gguf\n"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "a" / "b"), ""))
    dialog.save.click()
    assert "could not be saved" in dialog.words.text()
    dialog.leave.click()
    assert not dialog.isVisible()


def test_stopping_shows_what_was_measured(
    page: DiagnosticsPage, engine: EngineSession, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = opened(page, engine, qtbot, monkeypatch, sleep_s=600)
    assert "stopped" in dialog.words.text()
    if sys.platform != "win32":
        assert dialog.text.toPlainText() == "stopped\n"


def test_a_refused_report_is_its_sentence(
    page: DiagnosticsPage, engine: EngineSession, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = opened(
        page, engine, qtbot, monkeypatch, program="raise SystemExit('The file is gone.')"
    )
    assert dialog.words.text() == "The file is gone."
    assert not dialog.text.isVisible() and dialog.start.isVisible()


def test_a_report_needs_an_idle_model(page: DiagnosticsPage, engine: EngineSession) -> None:
    assert page.measure.isEnabled()
    for state in (State.ANSWERING, State.LOADING, State.EMPTY, State.DEAD):
        engine.set_state(state)
        assert not page.measure.isEnabled() and "loaded" in page.measure.toolTip()
    engine.set_state(State.IDLE)
    assert page.measure.isEnabled()
