"""The whole window with the real worker's messages and a fake engine."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QLabel, QTextEdit
from waiting import WAIT_S
from window_page import WindowPage
from window_samples import ENDLESS, FAKE_WORKER, WAIT_MS, Model, Opener, let_go

from app.state.conversation import Ending
from app.state.engine_state import Notice, State
from app.text import language


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


# Chatting


def test_an_answer_streams_and_ends_with_its_figures(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(holds=15)
    window = open_window(path)
    window.ask()
    assert window.state is State.ANSWERING
    assert window.draft == ""
    window.wait_text()
    early = window.answer.content
    let_go(path)
    window.wait_state(State.IDLE)
    said = window.answer
    assert said.content.startswith(early) and len(said.content) > len(early)
    assert (
        said.content
        == (
            "Once there was a tin soldier who stood on a window sill and watched the river "
            "all day long. "
        )
        * 4
    )
    assert window.answer_texts() == [said.content.strip()]
    assert said.ending is Ending.FINISHED and said.statistics is not None
    assert said.statistics.n_token > 60
    assert window.panel.figures.values[0] != "–" and "%" in window.panel.figures.values[1]
    assert "read from the disk while it answers" in plain(window.panel.words.text())


def test_the_engine_hears_the_whole_conversation(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True))
    window.ask("First")
    window.wait_state(State.IDLE)
    first = window.answer.content
    window.ask("Second")
    window.wait_state(State.IDLE)
    assert json.loads(window.answer.content) == [
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "Second"},
    ]


def test_stop_shows_at_once_and_ends_the_answer(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(holds=15))
    window.ask()
    window.wait_text()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    # The screen has changed although the event loop has not run yet.
    assert window.answer.ending is Ending.STOPPED
    assert window.state is State.STOPPING
    assert window.chat.composer.button.accessibleName().startswith("Send")
    window.wait_state(State.IDLE)
    assert window.answer.ending is Ending.STOPPED
    assert len(window.answer.content) < 200
    window.session.go_on()
    window.wait_state(State.IDLE)
    assert window.answer.content.endswith(" And he went on.")


def test_a_new_chat_forgets_and_the_old_one_is_kept(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True))
    window.ask("First")
    window.wait_state(State.IDLE)
    qtbot.keyClick(window, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert window.session.conversation.messages == []
    assert window.chats.rows()[0].title == "First"
    window.open_chat(window.chats.rows()[0].id)
    assert [message.role for message in window.session.conversation.messages] == [
        "user", "assistant",
    ]  # fmt: skip
    window.press("New chat")
    window.ask("Second")
    window.wait_state(State.IDLE)
    assert json.loads(window.answer.content) == [{"role": "user", "content": "Second"}]


def test_an_answer_goes_on_behind_another_chat_and_is_kept(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(holds=15)
    window = open_window(path)
    written = window.ask_and_leave()
    assert window.session.conversation.messages == []
    assert window.state is State.ANSWERING
    assert window.session.busy_chats == {written.chat_id}
    assert window.chat.composer.button.accessibleName().startswith("Send")
    let_go(path)
    window.wait_state(State.IDLE)
    assert window.session.conversation.messages == []
    assert window.session.busy_chats == set()
    window.open_chat(written.chat_id)
    assert window.answer.ending is Ending.FINISHED
    assert window.answer.content.count("Once there was a tin soldier") == 4


def test_a_chat_is_opened_again_while_its_answer_is_written(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.03))
    window.open_chat(window.ask_and_leave().chat_id)
    assert window.session.is_answering
    early = len(window.answer.content)
    qtbot.waitUntil(lambda: len(window.answer.content) > early, timeout=WAIT_MS)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert window.answer.ending is Ending.STOPPED
    window.wait_state(State.IDLE)


def test_a_question_in_another_chat_waits_for_its_turn(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(holds=15)
    window = open_window(path)
    first = window.ask_and_leave()
    window.ask("Second")
    assert window.answer.progress == "Waits for the answer in another chat"
    assert window.session.busy_chats == {first.chat_id, window.chats.open_id}
    let_go(path, 1)
    window.wait_text()
    assert first.last is not None and first.last.ending is Ending.FINISHED
    window.press("New chat")
    window.ask("Third")
    qtbot.keyClick(window, Qt.Key.Key_Escape)  # this one waits; the second goes on
    assert window.answer.ending is Ending.STOPPED and window.answer.content == ""
    assert window.state is State.ANSWERING
    let_go(path, 2)
    window.wait_state(State.IDLE)
    assert window.answer.content == ""


def test_the_worker_dies_behind_another_chat(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(holds=15), FAKE_WORKER)
    first = window.ask_and_leave(n_char=40)
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    assert first.last is not None and first.last.ending is Ending.CUT_OFF
    window.press("Start again and continue")
    assert window.session.conversation is first
    window.wait_end()
    assert window.answer.content.endswith(" And he went on.")


def test_deleting_a_chat_stops_its_answer(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(holds=15))
    chat_id = window.ask_and_leave().chat_id
    window.sidebar.list.deleted.emit(chat_id)
    assert window.state is State.STOPPING
    window.wait_state(State.IDLE)
    assert window.chats.rows() == []
    window.press("Undo")
    window.open_chat(chat_id)
    assert window.answer.ending is Ending.STOPPED and window.answer.content


def test_a_prompt_that_does_not_fit_goes_back_to_the_composer(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    sentence = "The prompt has 5,000 tokens and the context 4,096."
    window = open_window(model(context_error=sentence))
    window.ask("very long")
    window.wait_notice(sentence)
    assert window.draft == "very long"
    assert window.session.conversation.messages == []
    assert window.state is State.IDLE


def test_a_full_context_is_said(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(reason_at_end="context"))
    window.ask()
    window.wait_state(State.IDLE)
    assert window.answer.ending is Ending.CONTEXT and "context is full" in window.answer.note
    assert window.choices == [
        "Leave out the middle and continue", "Stop here",
    ]  # fmt: skip
    window.press("Stop here")
    assert not window.notice
    # The last token was drawn, but has no place in the context.
    used = replace(window.answer.statistics, n_prompt=window.engine.n_context, n_token=1)
    window.answer.statistics = used
    window.chat_page.show_composer()
    shown, limit = window.chat.composer.meter.toolTip().split(" of ", 1)
    assert limit.startswith(shown)


def test_an_answer_without_end_asks_again_before_it_goes_on(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    """A model that never ends its answer wrote for ever in a chat whose middle is left out."""
    window = open_window(model(reason_at_end="context", text="word " * 4080, token_s=0.0))
    window.ask()
    window.wait_state(State.IDLE)
    window.press("Leave out the middle")
    window.wait_notice("This answer is longer than the context of 4,096\u00a0tokens")
    assert window.state is State.IDLE and not window.session.busy_chats
    assert len(window.answer.content.split()) >= 4080 + 16
    before = window.answer.content
    window.press("New chat")
    window.open_chat(window.chats.rows()[0].id)
    assert "longer than the context" in window.notice
    window.press("Leave out the middle")
    window.wait_state(State.IDLE)
    assert window.answer.content.startswith(before) and len(window.answer.content) > len(before)
    assert "longer than the context" in window.notice


def test_a_full_context_offers_a_longer_one(qtbot: Any, open_window: Opener, model: Model) -> None:
    path = model(reason_at_end="context", trained_length=6000, text="word " * 6)
    window = open_window(path)
    window.ask()
    window.wait_state(State.IDLE)
    before = window.answer.content
    assert window.choices[0] == "Use a context of 6,000\u00a0tokens and continue"
    window.press("Use a context")
    qtbot.waitUntil(lambda: window.answer.ending is Ending.FINISHED, timeout=WAIT_MS)
    assert window.engine.n_context == window.engine.asked.context_length == 6000
    assert window.answer.content.startswith(before) and len(window.answer.content) > len(before)
    assert not window.session.conversation.slides and not window.notice
    assert window.engine.longer_context == 0


# Loading


def test_the_window_lives_while_a_model_loads(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window()
    turns = []
    timer = QTimer()
    timer.timeout.connect(lambda: turns.append(window.state))
    timer.start(5)
    window.open_model(model(load_s=0.6))
    qtbot.waitUntil(lambda: "reading the dense weights" in window.chat.loading.text)
    assert window.chat.loading.isVisible()
    window.wait_state(State.IDLE)
    timer.stop()
    assert turns.count(State.LOADING) > 10
    assert not window.chat.loading.isVisible()


def test_a_question_that_is_sent_while_the_model_loads_waits_for_it(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window()
    window.open_model(model("first", load_s=30))
    field = window.chat.composer.input

    def submit(text: str) -> None:
        field.setPlainText(text)
        qtbot.keyClick(field, Qt.Key.Key_Return)

    kept: list[str] = []  # while a question leaves the chat
    window.session.withdrawn.connect(lambda _: kept.append(window.chats.draft(0)[0]))
    submit("typed meanwhile")
    assert window.draft == "" and window.answer.progress == "Waits until the model is loaded"
    window.chat.composer.set_text("the next")
    window.press("Stop")  # takes it back
    assert window.session.conversation.messages == []
    assert window.draft == "typed meanwhile\n\nthe next" and window.state is State.LOADING
    assert window.chats.rows() == [] and kept == [window.draft]
    submit("again")
    window.open_model(model("second"))  # another model answers it
    window.wait_end()
    assert window.session.conversation.messages[0].content == "again"
    window.open_model(model("third", load_s=30))
    qtbot.waitUntil(lambda: window.state is State.LOADING, timeout=WAIT_MS)
    submit("in vain")
    window.engine.cancel_loading()
    window.wait_notice("Loading was cancelled.")
    assert window.draft == "in vain" and len(window.session.conversation.messages) == 2
    assert window.chats.draft(window.chats.open_id)[0] == "in vain"


def test_a_bad_file_is_said_and_the_model_before_stays(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    good = model("good")
    window = open_window(good)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x00")
    window.open_model(bad)
    window.wait_notice("bad.gguf: The file does not begin with the GGUF magic.")
    assert window.state is State.IDLE and window.engine.path == good
    assert "good" in window.top_bar.model.accessibleName()
    window.ask()  # without loading it again
    window.wait_text()
    assert str(bad) not in window.settings.recent


def test_loading_can_be_cancelled(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window()
    window.open_model(model(load_s=30))
    qtbot.waitUntil(lambda: window.chat.loading.isVisible())
    window.engine.cancel_loading()
    window.wait_state(State.EMPTY)
    assert window.notice == "Loading was cancelled."


def test_another_model_may_be_picked_at_any_time(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window()
    window.open_model(model("slow", load_s=30))
    window.open_model(model("second", holds=15))
    qtbot.waitUntil(lambda: window.engine.model is not None, timeout=WAIT_MS)
    assert window.engine.model is not None and window.engine.model.name == "second"
    window.ask()
    window.wait_text()
    window.open_model(model("third"))
    qtbot.waitUntil(
        lambda: window.engine.model is not None and window.engine.model.name == "third",
        timeout=WAIT_MS,
    )
    assert window.answer.ending is Ending.STOPPED
    assert [Path(item).stem for item in window.settings.recent] == ["third", "second"]


def drop(window: WindowPage, paths: list[Path]) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(200, 200), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(200, 200), copy, data, left, none))


def test_a_model_can_be_dropped(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window()
    dropped = model("модель 模型")
    drop(window, [dropped.with_name("notes.txt"), dropped])
    window.wait_state(State.IDLE)
    assert window.engine.path == dropped


def test_no_field_swallows_a_dropped_file(open_window: Opener) -> None:
    window = open_window()
    for field in window.findChildren(QTextEdit):
        assert not field.acceptDrops()
    assert not window.chat.composer.input.acceptDrops()


def test_the_embedded_model_comes_first_and_then_the_last_one(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded, own = model("outrider-tiny"), model("own")
    monkeypatch.setattr("app.session.known_models.embedded_model", lambda: embedded)
    window = open_window()
    window.open_first()
    window.wait_state(State.IDLE)
    assert window.engine.path == embedded and window.settings.recent == []
    window.open_model(own)
    qtbot.waitUntil(lambda: window.engine.model is not None and window.engine.path == own)
    window.wait_state(State.IDLE)
    window.close()
    again = open_window()
    again.open_first()
    again.wait_state(State.IDLE)
    assert again.engine.path == own


# The cache rate


def test_the_rate_changes_between_answers(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    rate = window.top_bar.rate
    assert plain(rate.asked.text()) == "25 % · 8 of 32 experts"
    window.move_rate(16)
    qtbot.waitUntil(
        lambda: window.engine.cache is not None and window.engine.cache.n_slot == 16,
        timeout=WAIT_MS,
    )
    window.wait_state(State.IDLE)
    assert plain(rate.asked.text()) == "50 % · 16 of 32 experts"
    assert plain(rate.force.text()) == "458 MiB of memory"
    window.move_rate(32)
    qtbot.waitUntil(
        lambda: window.engine.cache is not None and window.engine.cache.mode == "plain",
        timeout=WAIT_MS,
    )
    window.wait_state(State.IDLE)
    assert rate.slider.isEnabled()
    assert "Every expert is in memory" in window.panel.words.text()


def test_the_rate_changes_within_an_answer(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.03))
    window.ask()
    window.wait_text()
    for n_slot in (16, 10):
        window.move_rate(n_slot)
        qtbot.waitUntil(lambda: _n_slot(window) == n_slot, timeout=WAIT_MS)
        assert window.state is State.ANSWERING and not window.engine.change_waits
        assert "next answer" not in window.top_bar.rate.force.text()
    window.press("Stop")
    window.wait_state(State.IDLE)
    assert _n_slot(window) == 10


def test_a_rate_that_loads_the_model_again_waits_for_the_next_answer(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.03))
    window.ask()
    window.wait_text()
    window.move_rate(32)
    force = plain(window.top_bar.rate.force.text())
    assert "from the next answer" in force and "now 8 experts" in force
    shown = len(window.answer.content)
    qtbot.waitUntil(lambda: len(window.answer.content) > shown, timeout=WAIT_MS)
    assert window.state is State.ANSWERING and window.engine.change_waits
    window.press("Stop")
    qtbot.waitUntil(lambda: _n_slot(window) == 32, timeout=WAIT_MS)
    window.wait_state(State.IDLE)


def _n_slot(window: Any) -> int:
    assert window.engine.cache is not None
    return int(window.engine.cache.n_slot)


def test_a_question_asked_while_the_cache_changes_is_answered_after(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(change_s=0.4, holds=15)
    window = open_window(path)
    window.move_rate(16)
    assert window.state is State.CHANGING
    window.move_rate(20)
    window.ask()
    qtbot.waitUntil(lambda: window.state is State.ANSWERING, timeout=WAIT_MS)
    assert window.engine.cache is not None and window.engine.cache.n_slot == 20
    let_go(path)
    window.wait_state(State.IDLE)
    assert window.answer.ending is Ending.FINISHED


def test_a_question_that_waits_for_the_cache_can_be_stopped_or_survive(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(change_s=0.5), FAKE_WORKER)
    window.move_rate(16)
    window.ask()
    assert window.state is State.CHANGING
    assert window.chat.composer.button.accessibleName().startswith("Stop")
    window.press("Stop")
    assert window.answer.ending is Ending.STOPPED
    window.wait_state(State.IDLE)
    assert window.answer.content == ""
    window.move_rate(20)
    window.ask()
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    window.press("Start again and continue")
    window.wait_end()
    assert window.answer.content.startswith("Once there was")


def test_going_on_may_be_asked_before_the_last_token_is_in(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(token_s=0.3))
    window.ask()
    window.wait_text()
    window.session.stop()
    assert window.state is State.STOPPING
    window.session.go_on()
    window.wait_end()
    assert window.answer.content.endswith(" And he went on.")


def test_a_dense_model_chats_without_a_slider(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(is_moe=False, reason="This model is dense."))
    assert not window.top_bar.rate.slider.isEnabled()
    assert window.top_bar.rate.force.text() == "This model is dense."
    window.ask()
    window.wait_state(State.IDLE)
    assert window.answer.content and "This model is dense." in window.panel.words.text()


# The panel


def test_the_panel_is_fed_while_the_answer_runs(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02))
    qtbot.waitUntil(lambda: "12 layers" in window.panel.map.accessibleDescription())
    window.ask()
    qtbot.waitUntil(lambda: window.panel.strip.slowest_s > 0, timeout=WAIT_MS)
    assert window.state is State.ANSWERING
    assert window.panel.stall.longest_s > 0
    assert "waited longest" in window.panel.stall.accessibleDescription()


def test_a_narrow_window_shows_the_chat_or_the_panel(open_window: Opener) -> None:
    window = open_window()
    window.resize(1300, 800)
    assert window.panel.isVisible() and window.chat.isVisible()
    window.resize(700, 700)
    assert not window.panel.isVisible() and window.chat.isVisible()
    window.top_bar.panel.click()
    assert window.panel.isVisible() and not window.chat.isVisible()
    window.resize(1300, 800)
    assert window.panel.isVisible() and window.chat.isVisible()


# When the worker dies


def test_killed_during_an_answer_what_was_said_stays_and_going_on_works(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02), FAKE_WORKER)
    window.ask()
    window.wait_text(40)
    qtbot.waitUntil(lambda: getattr(window.answer.statistics, "n_token", 0) > 0)
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    said = window.answer.content
    assert said.startswith("Once there was a tin soldier")
    assert window.answer_texts() == [said.strip()]
    assert window.answer.ending is Ending.CUT_OFF
    assert "signal 9" in window.notice
    window.press("Start again and continue")
    window.wait_end()
    assert window.answer.content == said + " And he went on."
    assert window.answer.ending is Ending.FINISHED
    assert window.answer.n_token_before > 0
    assert not window.notice


def test_killed_before_the_first_word_the_question_is_asked_again(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(prefill_s=0.5), FAKE_WORKER)
    window.ask()
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    window.press("Start again and continue")
    window.wait_end()
    assert window.answer.content.startswith("Once there was")
    assert len(window.session.conversation.messages) == 2


def test_killed_while_idle_it_starts_again(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(), FAKE_WORKER)
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    window.ask()
    assert window.session.conversation.messages == []
    assert window.draft == "Tell me a story."
    window.press("Start again")
    window.wait_state(State.IDLE)


def test_the_engine_s_sentences_come_in_the_window_s_language(
    qtbot: Any, qapp: QApplication, open_window: Opener, model: Model
) -> None:
    window = open_window(model(), FAKE_WORKER)
    language.apply(qapp, "de")
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    assert window.notice.startswith(
        "Der Prozess der Engine endete unerwartet: er wurde vom Benutzer"
    )


def test_killed_while_loading_a_smaller_cache_is_offered(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(command=FAKE_WORKER)
    window.open_model(model(crash_on_load=True))
    window.wait_state(State.DEAD)
    assert window.choices == [
        "Try again", "Try with half the cache",
    ]  # fmt: skip
    model(n_layer=4)  # the same file, now without the crash
    window.press("Try with half the cache")
    window.wait_state(State.IDLE)
    assert window.engine.cache is not None and window.engine.cache.asked_rate == 0.125


def test_a_worker_that_cannot_start_is_said(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(command=["/nonexistent/worker"])
    window.open_model(model())
    window.wait_state(State.DEAD)
    assert window.notice == "The engine could not be started."


def test_a_worker_that_talks_nonsense_is_ended(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(command=["/bin/sh", "-c", "echo nonsense that is not a frame; sleep 60"])
    window.open_model(model())
    window.wait_state(State.DEAD)
    assert "could not be understood" in window.notice
    assert not window.link.is_running


def test_a_worker_that_hangs_is_noticed(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.protocol.connection.PING_S", 0.1)
    window = open_window(model(hang_after=10), [*FAKE_WORKER])  # with its own id
    window.ask()
    window.wait_text(20)
    os.kill(window.link.pid, signal.SIGSTOP)
    monkeypatch.setattr("backend.protocol.connection.PONG_LIMIT_S", 0.2)
    window.wait_notice("has not answered")
    said = window.answer.content
    monkeypatch.setattr("backend.protocol.connection.PONG_LIMIT_S", WAIT_S)
    window.press("Start again and continue")
    window.wait_end()
    assert window.answer.content == said + " And he went on."


def test_closing_the_window_ends_the_worker(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02), [*FAKE_WORKER])  # with its own id
    window.ask()
    window.wait_text()
    pid = window.link.pid
    window.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# For everyone


def test_tab_goes_round_the_controls(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    window.activateWindow()
    window.chat.composer.input.setFocus()
    visited = []
    for _ in range(8):
        qtbot.keyClick(QApplication.focusWidget() or window, Qt.Key.Key_Tab)
        focused = QApplication.focusWidget()
        visited.append(focused.accessibleName() if focused else "")
    for name in ("Cache rate", "More"):
        assert name in visited, visited
    assert any(name.startswith("Model: ") for name in visited)


def test_a_damaged_settings_file_is_said_also_while_the_first_model_loads(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "settings.json").write_text("{")
    window = open_window()
    window.open_first(model())
    qtbot.waitUntil(lambda: window.state is State.IDLE, timeout=WAIT_MS)
    assert "settings file was damaged" in window.notice
    assert window.chat.banner.isVisible()


def test_the_window_comes_back_where_it_was(open_window: Opener, tmp_path: Path) -> None:
    first = open_window()
    first.setGeometry(60, 50, 700, 500)
    first.close()
    second = open_window()
    assert second.geometry() == first.geometry()
    second.close()
    kept = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({**kept, "geometry": "nonsense\u00e9"}))
    third = open_window()
    assert (third.width(), third.height()) == (700, 500)


def test_a_notice_has_the_whole_width_with_buttons_and_without(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.resize(1000, 700)
    words = "Other programs need memory: 82 of 128 experts of each layer are kept instead of 88."
    banner = window.chat.banner
    for actions in ((), (("Continue", lambda: None),), ()):
        window.session.notice.emit(Notice(words, actions))
        (label,) = (x for x in banner.findChildren(QLabel) if x.text() == words)
        qtbot.waitUntil(lambda label=label: label.width() > banner.width() - 80, timeout=WAIT_MS)
        assert len(banner.buttons) == len(actions)
