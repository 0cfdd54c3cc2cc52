"""The engine panel with the real worker, the real engine and the embedded model."""

import csv
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from window_samples import WAIT_MS, Opener

from app.panel.expert_map import View
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.window.main_window import MainWindow
from backend.protocol.chat import ChatOptions
from backend.protocol.client import worker_command
from backend.protocol.status import Advice
from backend.system.paths import embedded_model

QUESTION = "Tell me a long story about a soldier and the sea."


@pytest.fixture
def window(qtbot: Any, open_window: Opener) -> MainWindow:
    window = open_window(command=worker_command())
    window.resize(1300, 820)
    window.engine.asked = EngineChoice(
        automatic=False, cache_rate=0.25, method="promoe", context_length=256, n_thread=1
    )
    window.open_model(embedded_model())
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)
    return window


def ask(qtbot: Any, window: MainWindow) -> None:
    """Ask until an answer is long enough for statistics."""
    for _ in range(20):
        assert window.session.send(QUESTION)
        qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)
        if window.panel.moments.n_token >= 40:
            return
        window.session.new_chat()
    raise AssertionError("the model never said so much")


def test_an_answer_can_be_looked_at_token_by_token(
    qtbot: Any, window: MainWindow, tmp_path: Path
) -> None:
    ask(qtbot, window)
    panel, last = window.panel, window.session.conversation.last
    assert last is not None and last.statistics is not None
    # The worker reports every token except the last, which is not computed.
    assert last.statistics.n_token - 1 <= panel.moments.n_token <= last.statistics.n_token
    figures = panel.moments.history.figures
    for name in ("hits", "late", "misses", "bytes_read"):
        assert sum(getattr(f, name) for f in figures) == getattr(last.statistics, name)
    stalls_s = sum(f.stall_us for f in figures) / 1e6
    assert stalls_s == pytest.approx(last.statistics.stall_s, rel=0.01, abs=1e-3)
    n_used = sum(f.requests for f in figures if f.n_token)
    assert sum(panel.moments.history.uses()) == n_used == 8 * 4 * panel.moments.n_token

    panel.choose(7)
    told = panel.map.residency
    assert told is not None and sum(value & 12 != 0 for value in told.data) == 8 * 4
    assert sum(value & 3 != 0 for value in told.data) <= 8 * 8
    assert panel.parts.place.text().startswith("token 8 of")
    panel.parts.views[View.USE].click()
    panel.map.setFocus()
    qtbot.keyClick(panel.map, Qt.Key.Key_Down)
    assert "Layer 1, expert 0" in panel.map.accessibleDescription()
    assert "of 8\u00a0tokens" in panel.map.accessibleDescription()

    panel.save_tokens(tmp_path / "tokens.csv")
    with open(tmp_path / "tokens.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "token"]
    assert len(rows) == panel.moments.n_token
    panel.save_picture(tmp_path / "engine.png")
    assert (tmp_path / "engine.png").stat().st_size > 1000


def test_after_an_answer_the_simulator_says_what_would_help(qtbot: Any, window: MainWindow) -> None:
    told: list[Advice] = []
    window.link.advice.connect(told.append)
    ask(qtbot, window)
    told.clear()  # advice for an answer that was too short
    qtbot.waitUntil(lambda: bool(told), timeout=WAIT_MS)
    advice = told[0]
    assert "too short" not in advice.reason
    assert 0 <= advice.stall_share <= 1
    for option in (advice.cache, advice.method):
        assert option is None or (option.times >= 1.05 and option.cache_bytes > 0)
    assert advice.reason or "waiting for" in window.panel.words.text()  # with the measured share
    if advice.cache is not None:
        assert advice.cache.n_slot > 8 and advice.cache.method == "promoe"
        window.panel.parts.use_it.click()
        qtbot.waitUntil(
            lambda: (
                window.engine.state is State.IDLE
                and window.engine.cache is not None
                and window.engine.cache.rate == pytest.approx(advice.cache.rate)
            ),
            timeout=WAIT_MS,
        )


def test_an_answer_aside_leaves_the_advice_on_the_answer_in_the_chat(
    qtbot: Any, window: MainWindow
) -> None:
    """A title is asked for while the advice is computed."""
    told: list[Advice] = []
    window.link.advice.connect(told.append)
    ask(qtbot, window)
    told.clear()
    aside: list[str] = []
    window.link.aside.connect(aside.append)
    messages = [{"role": "user", "content": "Hello"}]
    window.link.ask_aside(messages, {"temperature": 0.0}, ChatOptions(), 4)
    qtbot.waitUntil(lambda: bool(aside and told), timeout=WAIT_MS)
    assert "too short" not in told[0].reason


def test_a_hidden_panel_is_told_nothing(qtbot: Any, window: MainWindow) -> None:
    told: list[object] = []
    window.link.moments.connect(told.append)
    window.top_bar.panel.click()
    assert not window.panel.isVisible()
    assert window.session.send(QUESTION)
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)
    assert told == []
    window.top_bar.panel.click()
    ask(qtbot, window)
    assert told and window.panel.moments.n_token >= 40
