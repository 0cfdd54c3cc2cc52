"""The window with the real worker, the real engine and the embedded model."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import needs_rpc, server
from PySide6.QtCore import Qt, QTimer
from window_samples import WAIT_MS, Opener

from app.chat.welcome import FOR_EMBEDDED
from app.state.conversation import Ending, Message
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.state.preset import Preset
from app.window.main_window import MainWindow
from backend.protocol.client import worker_command
from backend.system.paths import embedded_model

GREEDY = {"temperature": 0.0}
QUESTION = "Tell me a long story about a soldier and the sea."


@pytest.fixture
def window(open_window: Opener) -> MainWindow:
    window = open_window(command=worker_command())
    # A short context, because the embedded model fills any; one thread, because threads
    # that wait for each other are slow on a busy machine.
    window.engine.choose(
        EngineChoice(automatic=False, method="promoe", context_length=256, n_thread=1)
    )
    window.resize(1300, 820)
    return window


def load(qtbot: Any, window: MainWindow) -> None:
    window.open_model(embedded_model())
    wait_state(qtbot, window, State.IDLE)
    assert window.engine.model is not None, window.chat.banner.sentence


def wait_state(qtbot: Any, window: MainWindow, state: State) -> None:
    def is_reached() -> bool:
        now = window.engine.state
        assert state is State.DEAD or now is not State.DEAD, window.chat.banner.sentence
        return now is state

    qtbot.waitUntil(is_reached, timeout=WAIT_MS)


def ask(window: MainWindow, text: str = QUESTION) -> None:
    window.chat.composer.input.setPlainText(text)
    window.chat.composer.button.click()


def answer(window: MainWindow) -> Message:
    last = window.session.conversation.last
    assert last is not None and last.role == "assistant"
    return last


def wait_text(qtbot: Any, window: MainWindow, n_char: int) -> None:
    """Wait for this much text. Ask again when the small model ends sooner."""
    for _ in range(20):
        qtbot.waitUntil(
            lambda: window.engine.state is State.IDLE or len(answer(window).content) >= n_char,
            timeout=WAIT_MS,
        )
        if window.engine.state is State.ANSWERING:
            return
        ask(window)
    raise AssertionError("the model never said so much")


def test_an_answer_streams_with_its_figures_and_map(qtbot: Any, window: MainWindow) -> None:
    turns = []
    timer = QTimer()
    timer.timeout.connect(lambda: turns.append(window.engine.state))
    timer.start(1)
    load(qtbot, window)
    timer.stop()
    assert turns.count(State.LOADING) > 3  # the event loop ran while the model was loading
    described = window.panel.map.accessibleDescription
    qtbot.waitUntil(lambda: "8 layers of 32 experts" in described(), timeout=WAIT_MS)
    ask(window)
    lengths = set()
    while window.engine.state is State.ANSWERING:
        qtbot.wait(20)
        lengths.add(len(answer(window).content))
    said = answer(window)
    assert said.ending in (Ending.FINISHED, Ending.CONTEXT) and said.content.strip()
    assert said.statistics is not None
    assert said.statistics.n_token > 0 and said.statistics.ttft_s > 0
    assert said.statistics.requests > 0 and said.statistics.misses > 0
    assert said.statistics.total_s > 0 and len(said.statistics.tokens) > 0
    if said.statistics.n_token > 100:
        assert len(lengths) > 3
    assert window.panel.figures.values[0] != "–" and "%" in window.panel.figures.values[1]
    assert window.panel.words.text()


@needs_rpc
def test_the_processor_computes_what_a_device_lacks(qtbot: Any, window: MainWindow) -> None:
    with server() as device:
        window.engine.choose(replace(window.engine.asked, device=device.option, hybrid="cpu-only"))
        load(qtbot, window)
        assert window.controls.strip.force["hybrid"].text() == "in force: compute"
        ask(window)
        wait_state(qtbot, window, State.IDLE)
        said = answer(window).statistics
        assert said is not None and said.on_host == said.late + said.misses > 0
        assert sum(said.layer_on_host.values()) == said.on_host
        panel = window.panel
        panel.choose(1)
        shown, figures = panel.moments.layer_on_host, panel.moments.figures
        assert figures is not None and 0 < sum(shown.values()) == figures.on_host
        row = next(i for i, n in enumerate(shown.values()) if n)
        assert "the processor computed" in panel.stall.describe(row)


def test_stop_ends_the_answer(qtbot: Any, window: MainWindow) -> None:
    load(qtbot, window)
    ask(window)
    wait_text(qtbot, window, 5)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert answer(window).ending is Ending.STOPPED
    wait_state(qtbot, window, State.IDLE)
    assert answer(window).ending is Ending.STOPPED and answer(window).content
    ask(window, "And then?")
    qtbot.waitUntil(lambda: bool(answer(window).content), timeout=WAIT_MS)


def test_the_cache_rate_changes_without_loading_again(qtbot: Any, window: MainWindow) -> None:
    load(qtbot, window)
    window.session.model_preset = Preset(max_tokens=12)
    engine, slider = window.engine, window.top_bar.rate.slider
    assert (slider.minimum(), slider.maximum()) == (4, 32)
    for n_slot in (4, 16, 32, 8):
        slider.setSliderDown(True)
        slider.setValue(n_slot)
        slider.setSliderDown(False)
        wait_state(qtbot, window, State.IDLE)
        assert engine.cache is not None
        assert engine.cache.mode == ("plain" if n_slot == 32 else "cached")
        assert n_slot == 32 or engine.cache.n_slot == n_slot, window.top_bar.rate.force.text()
        assert f"{n_slot} of 32 experts" in window.top_bar.rate.asked.text()
        assert "in force" not in window.top_bar.rate.force.text()
        ask(window)
        wait_state(qtbot, window, State.IDLE)
        assert answer(window).statistics is not None
        sentence = window.chat.banner.sentence
        assert not window.chat.banner.isVisible() or "is full" in sentence, sentence
        window.session.new_chat()


def test_killed_during_an_answer_it_goes_on_from_what_was_said(
    qtbot: Any, window: MainWindow
) -> None:
    load(qtbot, window)
    ask(window)
    wait_text(qtbot, window, 20)
    os.kill(window.link.pid, signal.SIGKILL)
    wait_state(qtbot, window, State.DEAD)
    said = answer(window).content
    assert len(said) >= 20 and answer(window).ending is Ending.CUT_OFF
    assert "signal 9" in window.chat.banner.sentence
    window.chat.banner.buttons[0].click()
    wait_state(qtbot, window, State.ANSWERING)
    wait_state(qtbot, window, State.IDLE)
    went_on = answer(window)
    assert went_on.content.startswith(said.rstrip())
    assert went_on.ending in (Ending.FINISHED, Ending.CONTEXT), went_on.note
    assert went_on.statistics is not None
    was_whole = went_on.content == said  # where the window has read all before it could kill
    assert was_whole or went_on.statistics.n_token > 0


def test_a_damaged_model_is_refused_with_a_sentence(
    qtbot: Any, window: MainWindow, tmp_path: Path
) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(embedded_model().read_bytes()[:200_000])
    window.open_model(path)
    wait_state(qtbot, window, State.EMPTY)
    sentence = window.chat.banner.sentence
    assert sentence.startswith("damaged.gguf cannot be used: ") and sentence.endswith(".")
    assert "Traceback" not in sentence
    load(qtbot, window)


def test_a_prompt_longer_than_the_context_comes_back(qtbot: Any, window: MainWindow) -> None:
    load(qtbot, window)
    text = "word " * 600
    ask(window, text)
    qtbot.waitUntil(lambda: window.chat.banner.isVisible(), timeout=WAIT_MS)
    assert window.chat.composer.input.toPlainText().split() == text.split()
    assert window.session.conversation.messages == []
    composer = window.chat.composer
    composer.input.setPlainText(QUESTION)
    # The long text is counted at once, as it is kept at once; what is typed, after a pause.
    qtbot.waitUntil(composer.button.isEnabled, timeout=WAIT_MS)
    composer.button.click()
    wait_state(qtbot, window, State.IDLE)
    assert answer(window).statistics is not None


def test_a_full_context_can_slide(qtbot: Any, window: MainWindow) -> None:
    load(qtbot, window)
    for _ in range(40):
        ask(window)
        qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)
        if window.chat.banner.isVisible():
            break
    larger, leave_out, *_ = window.chat.banner.buttons
    assert larger.text() == "Use a context of 512\u00a0tokens and continue"
    assert leave_out.text() == "Leave out the middle and continue"
    before = answer(window).content
    leave_out.click()
    wait_state(qtbot, window, State.ANSWERING)
    qtbot.waitUntil(
        lambda: window.engine.state is State.IDLE or len(answer(window).content) > len(before) + 80,
        timeout=WAIT_MS,
    )
    assert len(answer(window).content) > len(before.rstrip())
    assert answer(window).content.startswith(before.rstrip())
    assert not window.chat.banner.isVisible(), window.chat.banner.sentence
    window.session.stop()
    wait_state(qtbot, window, State.IDLE)


def test_the_embedded_model_answers_its_suggestions_well(qtbot: Any, window: MainWindow) -> None:
    load(qtbot, window)
    window.chats.set_model_preset(replace(window.session.model_preset, sampling=GREEDY))
    for question, words in zip(FOR_EMBEDDED, ("fox", "leaves", "Max"), strict=True):
        window.session.new_chat()
        ask(window, question)
        qtbot.waitUntil(
            lambda words=words: words in answer(window).content or not answer(window).is_live,
            timeout=WAIT_MS,
        )
        assert words in answer(window).content, question
        window.session.stop()
        wait_state(qtbot, window, State.IDLE)


def test_several_answers_are_computed_jointly(qtbot: Any, window: MainWindow) -> None:
    """The conversation goes on after them with the one that is shown."""
    load(qtbot, window)
    window.session.model_preset = Preset(sampling={"temperature": 0.9, "seed": 3}, max_tokens=12)
    ask(window)
    wait_state(qtbot, window, State.IDLE)
    window.session.more_answers(1, 3)
    assert answer(window).is_live
    wait_state(qtbot, window, State.IDLE)
    found = []
    for _ in range(3):
        last = answer(window)
        assert last.ending is Ending.LENGTH and last.content
        assert last.statistics is not None and last.statistics.n_token == 12
        found.append(last.content)
        window.chats.switch(1, -1)
    assert len(set(found)) > 1  # each has a seed of its own
    ask(window, "And then?")
    wait_state(qtbot, window, State.IDLE)
    assert answer(window).content
