"""Chats in the window: stored while they grow, listed, branched, deleted, restored."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QPushButton
from window_samples import ENDLESS, FAKE_WORKER, WAIT_MS, Model, Opener, let_go

from app.chat.preset_dialog import PresetDialog, name_of
from app.state.conversation import Ending, Message
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.state.preset import NamedPreset, Preset
from app.text import language
from app.window.main_window import MainWindow
from backend.protocol.chat import Delta
from backend.text import text


def ask(window: MainWindow, text: str = "Tell me a story.") -> None:
    window.chat.composer.input.setPlainText(text)
    window.chat.composer.button.click()


def say(qtbot: Any, window: MainWindow, text: str) -> None:
    ask(window, text)
    wait_idle(qtbot, window)


def wait_idle(qtbot: Any, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


def last(window: MainWindow) -> Message:
    message = window.session.conversation.last
    assert message is not None
    return message


def said(window: MainWindow) -> list[str]:
    return [message.content for message in window.session.conversation.messages]


def on_disk(tmp_path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(tmp_path / "chats.db")) as reader:
        return reader.execute(query).fetchall()


def test_a_question_is_on_disk_before_it_is_sent(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    path = model(holds=15)
    window = open_window(path)
    seen: list[list[tuple[Any, ...]]] = []
    generate = window.link.generate

    def spy(*args: Any) -> None:
        seen.append(on_disk(tmp_path, "SELECT content FROM message WHERE role = 'user'"))
        generate(*args)

    window.link.generate = spy  # type: ignore[method-assign]
    ask(window, "Is this kept?")
    assert seen == [[("Is this kept?",)]]
    query = "SELECT coalesce(group_concat(content, ''), '') FROM piece"
    qtbot.waitUntil(lambda: "tin soldier" in on_disk(tmp_path, query)[0][0], timeout=WAIT_MS)
    let_go(path)
    wait_idle(qtbot, window)
    assert on_disk(tmp_path, "SELECT count(*) FROM piece") == [(0,)]
    query = "SELECT content, ending FROM message WHERE role = 'assistant'"
    assert on_disk(tmp_path, query) == [(last(window).content, "finished")]


def test_the_state_of_a_chat_is_deleted_with_it(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    sent: list[tuple[str, str]] = []
    window.link.warm = lambda owner: sent.append(("warm", owner))  # type: ignore[method-assign]
    window.link.forget = lambda owner: sent.append(("forget", owner))  # type: ignore[method-assign]
    generate = window.link.generate

    def spy(*given: Any) -> None:
        sent.append(("generate", given[5]))
        generate(*given)

    window.link.generate = spy  # type: ignore[method-assign]
    say(qtbot, window, "One")
    first = window.session.conversation.chat_id
    window.session.new_chat()
    say(qtbot, window, "Two")
    second = window.session.conversation.chat_id
    window.chats.open(first)
    folders = [tmp_path / "states" / f"chat-{number}" for number in (first, second, 99)]
    for folder in folders:
        folder.mkdir(parents=True)
    window.chats.delete(second)
    expected = [("generate", first), ("generate", second), ("warm", first), ("forget", second)]
    assert sent == [(kind, f"chat-{number}") for kind, number in expected]
    assert [folder.exists() for folder in folders] == [True, False, True]
    window.close()
    open_window(model())
    assert [folder.exists() for folder in folders] == [True, False, False]  # 99 is no chat


def test_the_open_chat_is_there_at_the_next_start(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True))
    say(qtbot, window, "First")
    window.top_bar.new_chat.click()
    say(qtbot, window, "Second")
    before = said(window)
    window.close()
    again = open_window(model(echo=True))
    assert said(again) == before and last(again).statistics is not None
    assert again.sidebar.list.titles() == ["Second", "First"]
    say(qtbot, again, "More")
    assert len(json.loads(last(again).content)) == 3


def test_another_answer_is_a_branch(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    say(qtbot, window, "Question")
    first = last(window)
    window.session.regenerate(1)
    wait_idle(qtbot, window)
    assert last(window).id != first.id and last(window).branch == (2, 2)
    window.chats.switch(1, -1)
    assert last(window).id == first.id and last(window).branch == (1, 2)
    window.chats.switch(1, -1)
    assert last(window).branch == (2, 2)


def test_a_changed_question_is_a_branch(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(echo=True))
    say(qtbot, window, "One")
    say(qtbot, window, "Two")
    window.session.edit(2, "Three")
    wait_idle(qtbot, window)
    assert said(window)[0] == "One" and said(window)[2] == "Three"
    assert [turn["content"] for turn in json.loads(last(window).content)][-1] == "Three"
    window.chats.switch(2, 1)
    assert said(window)[2] == "Two" and len(said(window)) == 4


def test_asking_again_during_an_answer_stops_it_and_mixes_nothing(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02))
    ask(window, "One")
    qtbot.waitUntil(lambda: bool(last(window).content), timeout=WAIT_MS)
    old = last(window)
    window.session.edit(0, "Two")
    assert old.ending is Ending.STOPPED and last(window).ending is Ending.WAITING
    length = len(old.content)
    qtbot.waitUntil(lambda: len(last(window).content) > 20, timeout=WAIT_MS)
    assert len(old.content) == length and last(window).content.startswith("Once there")
    window.session.stop()
    wait_idle(qtbot, window)
    window.chats.switch(0, -1)
    assert said(window) == ["One", old.content]


def test_deleting_can_be_undone(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    say(qtbot, window, "Question")
    chat_id = window.chats.open_id
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == ["Question"])
    qtbot.keyClick(window.sidebar.list, Qt.Key.Key_Delete)
    assert window.session.conversation.messages == [] and window.chats.rows() == []
    assert "was deleted" in window.chat.banner.sentence
    window.chat.banner.buttons[0].click()
    assert window.chats.open_id == chat_id and said(window)[0] == "Question"


def test_renamed_pinned_and_found(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    for title in ("Alpha", "Beta"):
        window.top_bar.new_chat.click()
        say(qtbot, window, title)
    alpha = next(row for row in window.chats.rows() if row.title == "Alpha")
    window.chats.pin(alpha.id, True)
    window.chats.rename(alpha.id, "Renamed")
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == ["Renamed", "Beta"])
    qtbot.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(window.sidebar.search, "bet")
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == ["Beta"])
    window.sidebar.search.setText("tin sol")
    qtbot.waitUntil(lambda: len(window.sidebar.list.titles()) == 2)
    qtbot.keyClick(window.sidebar.search, Qt.Key.Key_Down)
    qtbot.keyClick(window.sidebar.list, Qt.Key.Key_Return)
    assert window.chats.open_id != 0


def test_what_does_not_fit_on_the_disk_is_sent_only_if_that_is_wanted(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    say(qtbot, window, "Kept")
    connection = window.chats.store.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    long = ("word " * 1_900).strip()
    window.chat.composer.set_text(long)
    window.chat.composer.button.click()
    assert "the disk is full" in window.chat.banner.sentence
    assert window.chat.banner.sentence.endswith("So it was not sent.")
    assert window.chat.composer.input.toPlainText() == long  # the draft stays
    assert window.engine.state is State.IDLE and len(window.session.conversation.messages) == 2
    window.session.edit(0, long)
    assert next(m.content for m in window.session.conversation.messages) == "Kept"
    assert [button.text() for button in window.chat.banner.buttons] == [
        "Try again", "Send it anyway",
    ]  # fmt: skip
    window.chat.banner.buttons[0].click()
    assert window.chat.composer.input.toPlainText() == long
    window.chat.banner.buttons[1].click()
    wait_idle(qtbot, window)
    assert last(window).content and last(window).id == 0
    connection.execute("PRAGMA max_page_count = 100000")
    say(qtbot, window, "Once more")
    assert all(message.id for message in window.session.conversation.messages)
    assert on_disk(tmp_path, "SELECT count(*) FROM message") == [(6,)]


def test_a_profile_that_cannot_be_written_is_said_and_chatting_works(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "chats.db").mkdir()
    window = open_window(model())
    assert not window.chats.store.is_kept
    say(qtbot, window, "Question")
    assert last(window).content and window.chats.rows()[0].title == "Question"


def test_a_worker_killed_in_an_answer_leaves_it_on_disk(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(holds=15), FAKE_WORKER)
    ask(window)
    qtbot.waitUntil(lambda: len(last(window).content) > 20, timeout=WAIT_MS)
    os.kill(window.link.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: window.engine.state is State.DEAD, timeout=WAIT_MS)
    query = "SELECT content, ending FROM message WHERE role = 'assistant'"
    assert on_disk(tmp_path, query) == [(last(window).content, "cut off")]


def test_a_refused_prompt_leaves_nothing_behind(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    sentence = "The prompt has 5,000 tokens and the context 4,096."
    window = open_window(model(context_error=sentence))
    ask(window, "very long")
    qtbot.waitUntil(lambda: window.chat.banner.isVisible(), timeout=WAIT_MS)
    assert on_disk(tmp_path, "SELECT * FROM chat") == [] and window.chats.rows() == []


def test_a_long_chat_offers_to_slide(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    say(qtbot, window, "First " + "word " * 200)
    say(qtbot, window, "Second " + "word " * 200)
    sentence = text("engine.prompt_too_long", n=5000, n_context=4096)
    sent: list[list[dict[str, str]]] = []
    window.link.generate = lambda turns, *_: sent.append(turns)  # type: ignore[method-assign]
    ask(window, "Third")
    window.link.error.emit("generate", sentence)
    assert window.chat.banner.buttons[0].text() == "Leave out the middle and continue"
    window.chat.banner.buttons[0].click()
    assert len(sent) == 2 and window.session.conversation.slides
    n_char = [sum(len(turn["content"]) for turn in turns) for turns in sent]
    assert n_char[1] < 0.6 * n_char[0]
    assert sent[1][0]["content"].startswith("First") and sent[1][-1]["content"] == "Third"
    roles = [turn["role"] for turn in sent[1]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)


def test_the_preset_reaches_the_engine(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(echo=True))
    window.chats.set_model_preset(Preset("Be brief.", {"temperature": 0.1}))
    window.chats.set_preset(Preset("Be kind.", {}))
    say(qtbot, window, "Hello")
    turns = json.loads(last(window).content)
    assert turns[0] == {"role": "system", "content": "Be kind."}
    window.top_bar.new_chat.click()
    say(qtbot, window, "Hello")
    assert json.loads(last(window).content)[0]["content"] == "Be brief."
    window.close()
    again = open_window(model(echo=True))
    again.open_first()
    assert again.session.model_preset == Preset("Be brief.", {"temperature": 0.1})


def checked(dialog: PresetDialog) -> list[str]:
    return [b.text() for b in dialog.findChildren(QPushButton) if b.isChecked()]


def test_a_preset_of_the_user_holds_prompt_sampling_stops_seed_and_engine(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    choice = EngineChoice(automatic=False, context_length=1024, method="lru")
    preset = Preset(
        "Be brief.", {"temperature": 0.2, "top_k": 20, "top_p": 0.9, "seed": 3},
        stops=("END", "\n\n"), max_tokens=50,
    )  # fmt: skip
    dialog = PresetDialog(preset, "m", False, choice=choice)
    qtbot.addWidget(dialog)
    dialog.show()
    assert dialog.preset == preset and checked(dialog) == ["Precise"]
    press = {b.accessibleName() or b.text(): b for b in dialog.findChildren(QPushButton)}
    (box,) = [b for b in dialog.findChildren(QCheckBox) if b.isVisible()]
    box.setChecked(True)
    dialog.save_as("Short")
    press["Sampling: Creative"].click()
    assert checked(dialog) == ["Creative"]
    assert dialog.own == [NamedPreset("Short", preset, choice.of_model())]
    window = open_window(model(echo=True))
    window.chat_page.own_presets = dialog.own
    window.chat_page.presets_changed.emit(dialog.own)
    other = PresetDialog(Preset(), "m", False, own=dialog.own, choice=EngineChoice())
    qtbot.addWidget(other)
    own = next(b for b in other.findChildren(QComboBox) if b.accessibleName() == "Own presets")
    own.setCurrentIndex(own.findText("Short"))
    own.activated.emit(own.currentIndex())
    assert other.preset == preset and other.engine == choice.of_model()
    window.chat_page.take_preset(other.preset, for_model=False)
    assert window.chat.composer.preset.text() == "Short"  # the active one is named
    sent: list[tuple[Any, ...]] = []
    window.link.generate = lambda *given: sent.append(given)  # type: ignore[method-assign]
    ask(window, "Hello")
    _, sampling, options, longest, *_ = sent[0]
    assert (sampling["seed"], options.stops, longest) == (3, ("END", "\n\n"), 50)
    window.close()
    again = open_window()
    assert again.chat_page.own_presets == dialog.own
    again_own = PresetDialog(preset, "m", False, own=again.chat_page.own_presets)
    qtbot.addWidget(again_own)
    delete = [b for b in again_own.findChildren(QPushButton) if b.text() == "Delete"]
    delete[0].click()
    assert again_own.own == []


@pytest.mark.parametrize(
    "bad",
    [{"stops": "x"}, {"stops": [""]}, {"stops": ["x"] * 17}, {"max_tokens": -1},
     {"max_tokens": True}],
)  # fmt: skip
def test_a_damaged_preset_is_refused(bad: dict[str, Any]) -> None:
    assert Preset.from_text(json.dumps(bad)) is None


def test_the_dialog_gives_back_what_was_set(qtbot: Any) -> None:
    preset = Preset("Be brief.", {"temperature": 0.2, "top_k": 20, "top_p": 0.9, "seed": 3})
    dialog = PresetDialog(preset, "m", False)
    qtbot.addWidget(dialog)
    assert dialog.preset == preset and not dialog.for_model and name_of(preset) == "Precise"
    for button in dialog.findChildren(QPushButton):
        if button.text() == "Balanced":
            button.click()
    assert dialog.preset == Preset("Be brief.", {"seed": 3})
    assert name_of(Preset("", {"temperature": 0.33})) == "Own sampling"


def test_a_preset_is_shown_and_reaches_the_chat(open_window: Opener, model: Model) -> None:
    window = open_window(model())
    window.chat_page.take_preset(Preset("Be kind.", {"temperature": 1.4}), for_model=False)
    assert window.session.preset.system == "Be kind."
    assert "System prompt set" in window.chat.composer.preset.text()
    window.chat_page.take_preset(Preset("Be brief."), for_model=True)
    assert (
        window.session.conversation.preset is None and window.session.preset.system == "Be brief."
    )


@pytest.mark.parametrize("kind", ["md", "json"])
def test_out_and_in_again(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path, kind: str
) -> None:
    window = open_window(model())
    say(qtbot, window, "Question")
    before = said(window)
    window.exchange.export(window.chats.open_id, tmp_path / f"out.{kind}")
    window.wait_notice(f"written to out.{kind}")
    window.exchange.import_file(tmp_path / f"out.{kind}")
    window.wait_notice("imported")
    assert len(window.chats.rows()) == 2 and said(window) == before
    (tmp_path / "bad.json").write_text("[")
    window.exchange.import_file(tmp_path / "bad.json")
    window.wait_notice("bad.json cannot be imported")
    window.exchange.export(window.chats.open_id, tmp_path / "missing" / "out.md")
    window.wait_notice("could not be written")


def test_late_text_does_not_reach_another_chat(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(holds=15)
    let_go(path)
    window = open_window(path)
    say(qtbot, window, "First")
    first, before = window.chats.open_id, said(window)
    window.top_bar.new_chat.click()
    ask(window, "Second")
    qtbot.waitUntil(lambda: bool(last(window).content), timeout=WAIT_MS)
    second = window.session.conversation
    window.chats.open(first)
    window.link.text.emit(Delta(content="late"), "late")
    let_go(path, 2)
    wait_idle(qtbot, window)
    assert said(window) == before
    assert second.last is not None and "late" in second.last.content
    assert isinstance(window.chats, QObject)


@pytest.mark.parametrize("code", ["en", "de"])
def test_a_point_and_a_comma_both_mark_decimals(qtbot: Any, qapp: Any, code: str) -> None:
    language.apply(qapp, code)
    dialog = PresetDialog(Preset(), "m", False)
    qtbot.addWidget(dialog)
    field = dialog.findChildren(QDoubleSpinBox)[0]
    for typed in ("0.5", "0,5"):
        field.setValue(1.0)
        field.selectAll()
        qtbot.keyClicks(field, typed)
        assert dialog.preset.sampling["temperature"] == 0.5
