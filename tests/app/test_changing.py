"""Messages that the user changes: another text of an answer, removed messages, a new chat."""

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from window_page import WindowPage
from window_samples import WAIT_MS, Model, Opener

from app.chat.answer import AnswerView
from app.chat.left_out_line import LeftOutLine
from app.chat.question import UserBubble
from app.state.conversation import Conversation, Ending, Message, question
from app.state.engine_state import Notice, State
from app.widgets.fields import TextField
from backend.protocol.chat import ToolCall

ANSWERS = ("Alpha.", "Beta.", "Gamma.", "Delta.")
Turns = list[dict[str, Any]]


def said(window: WindowPage) -> list[str]:
    return [message.content for message in window.session.conversation.messages]


def shown(window: WindowPage) -> list[str]:
    """Return the messages on the screen, from the top."""
    transcript = window.chat.transcript
    views = [*transcript.findChildren(AnswerView), *transcript.findChildren(UserBubble)]
    visible = sorted((v for v in views if v.isVisible()), key=lambda v: v.y())
    return [v.message.content for v in visible]


def wait_shown(window: WindowPage, texts: list[str]) -> None:
    window.qtbot.waitUntil(lambda: shown(window) == texts, timeout=WAIT_MS)
    assert said(window) == texts


def field_of(view: AnswerView | UserBubble) -> TextField:
    (field,) = [field for field in view.findChildren(TextField) if field.isVisible()]
    return field


def menu_of(view: AnswerView | UserBubble, words: str) -> Any:
    (action,) = [action for action in view.menu().actions() if action.text() == words]
    return action


@pytest.fixture
def window(qtbot: Any, open_window: Opener, model: Model) -> WindowPage:
    """A chat of three questions, with an answer each."""
    window = open_window(model(answers=[["", text] for text in ANSWERS], token_s=0.0))
    window.resize(1200, 800)
    for text in ("One", "Two", "Three"):
        window.ask(text)
        window.wait_end()
    return window


@pytest.fixture
def sent(window: WindowPage, monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    asked: list[Turns] = []
    generate = window.link.generate

    def spy(turns: Turns, *rest: Any) -> None:
        asked.append(turns)
        generate(turns, *rest)

    monkeypatch.setattr(window.link, "generate", spy)
    return asked


def rewrite(window: WindowPage, qtbot: Any, index: int, text: str) -> None:
    view = window.chat.transcript.answer(index)
    assert view is not None
    menu_of(view, "Change the answer").trigger()
    field = field_of(view)
    assert window.focusWidget() is field and field.toPlainText() == said(window)[index]
    field.setPlainText(text)
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)


def test_a_changed_answer_is_a_version_and_is_what_the_model_reads(
    qtbot: Any, window: WindowPage, sent: list[Turns]
) -> None:
    before = said(window)
    rewrite(window, qtbot, 1, "# Changed\n\nby hand")
    after = [before[0], "# Changed\n\nby hand", *before[2:]]
    wait_shown(window, after)
    messages = window.session.conversation.messages
    assert [m.branch for m in messages] == [(1, 1), (2, 2)] + [(1, 1)] * 4
    window.ask("Four")
    window.wait_end()
    assert [turn["content"] for turn in sent[-1]] == [*after, "Four"]
    window.chats.switch(1, -1)
    assert said(window) == before  # the version before, with what followed
    window.chats.switch(1, 1)
    assert said(window)[:7] == [*after, "Four"]
    kept = window.chats.store.load(window.chats.open_id)
    assert kept is not None and [m.content for m in kept.messages] == said(window)


def test_a_changed_answer_goes_on_from_its_new_end(
    qtbot: Any, window: WindowPage, sent: list[Turns]
) -> None:
    rewrite(window, qtbot, 5, "It begins so")
    qtbot.waitUntil(lambda: shown(window)[-1] == "It begins so", timeout=WAIT_MS)
    window.press("Continue")
    window.wait_state(State.IDLE)
    assert sent[-1][-1] == {"role": "assistant", "content": "It begins so"}
    assert (
        window.answer.content.startswith("It begins so") and window.answer.content != "It begins so"
    )


def test_a_changed_answer_keeps_thought_calls_and_results(
    open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    call = ToolCall("c1", "time", "{}")
    chat = Conversation([
        question("When?"),
        Message("assistant", "I look.", reasoning="Look.", tool_calls=[call], raw="<call>"),
        Message("tool", "12:00", tool_call_id="c1", name="time"),
        Message("assistant", "Noon.", reasoning="It is 12."),
    ])  # fmt: skip
    new_id = window.chats.store.copy("a chat", chat, 4)
    window.chats.open(new_id)
    window.chats.edit_answer(1, "I ask the clock.")
    window.chats.edit_answer(3, "Midday.")
    turns = window.session.conversation.for_engine()
    assert [turn["content"] for turn in turns] == ["When?", "I ask the clock.", "12:00", "Midday."]
    assert turns[1]["tool_calls"][0]["id"] == turns[2]["tool_call_id"] == "c1"
    assert turns[3]["reasoning_content"] == "It is 12."
    window.chats.delete_message(1)  # with the result of its call
    assert said(window) == ["When?", "Midday."]


def test_escape_and_the_same_text_change_nothing(qtbot: Any, window: WindowPage) -> None:
    before = said(window)
    view = window.chat.transcript.answer(3)
    assert view is not None
    view.begin_edit()
    field_of(view).setPlainText("not this")
    qtbot.keyClick(field_of(view), Qt.Key.Key_Escape)
    rewrite(window, qtbot, 3, before[3])
    rewrite(window, qtbot, 3, " \n")
    wait_shown(window, before)
    assert window.session.conversation.messages[3].branch == (1, 1)
    assert not view.is_edited


@pytest.mark.parametrize("index", [0, 1, 2, 5])
def test_a_deleted_message_is_gone_until_undo(
    qtbot: Any, window: WindowPage, sent: list[Turns], index: int
) -> None:
    before = said(window)
    view = window.chat.transcript.view(index)
    assert isinstance(view, AnswerView | UserBubble)
    menu_of(view, "Delete").trigger()
    after = before[:index] + before[index + 1 :]
    wait_shown(window, after)
    kept = window.chats.store.load(window.chats.open_id)
    assert kept is not None and [m.content for m in kept.messages] == after
    found = window.chats.store.search(before[index])
    assert not any(one.message_id for one in found)  # the title may have the words
    assert window.notice == "The message was deleted."
    window.press("Undo")
    wait_shown(window, before)
    view = window.chat.transcript.view(index)
    assert isinstance(view, AnswerView | UserBubble)
    menu_of(view, "Delete").trigger()
    window.ask("Four")
    window.wait_end()
    turns = [turn["content"] for turn in sent[-1]]
    joint = {1: "One\n\nTwo", 5: "Three\n\nFour"}.get(index)
    assert turns == [*after, "Four"] if joint is None else joint in turns


def test_a_deleted_version_leaves_the_others(qtbot: Any, window: WindowPage) -> None:
    rewrite(window, qtbot, 5, "other")
    before = said(window)
    window.chats.delete_message(5)
    first = window.session.conversation.messages[5]
    assert first.content != "other" and first.branch == (1, 1)
    window.press("Undo")
    wait_shown(window, before)
    assert window.session.conversation.messages[5].branch == (2, 2)


def test_undo_comes_too_late_for_the_place_but_not_for_the_message(window: WindowPage) -> None:
    """The chat went on where the last answer was."""
    first = window.chats.open_id
    before = said(window)
    view = window.chat.transcript.view(5)
    assert isinstance(view, AnswerView)
    notices: list[Notice | None] = []
    window.session.notice.connect(notices.append)
    view.deleted.emit()
    assert notices[-1] is not None
    ((_, undo),) = notices[-1].actions
    window.ask("Four")
    window.wait_end()
    longer = said(window)
    window.session.new_chat()
    undo()
    window.chats.open(first)
    assert said(window) == longer
    window.chats.switch(5, -1)
    assert said(window) == before


def test_the_only_message_takes_its_chat_along(window: WindowPage) -> None:
    window.chats.fork(1)
    window.chats.delete_message(1)
    window.chats.delete_message(0)
    assert said(window) == [] and len(window.chats.rows()) == 1
    window.press("Undo")
    assert said(window) == ["One"]


def test_a_chat_begins_from_a_message(window: WindowPage, sent: list[Turns]) -> None:
    before, title = said(window), window.session.conversation.title
    first = window.chats.open_id
    view = window.chat.transcript.answer(3)
    assert view is not None
    menu_of(view, "New chat from here").trigger()
    assert window.chats.open_id != first
    wait_shown(window, before[:4])
    window.ask("Other")
    window.wait_end()
    assert [turn["content"] for turn in sent[-1]] == [*before[:4], "Other"]
    assert {row.title for row in window.chats.rows()} == {title, f"{title} (2)"}
    window.chats.open(first)
    assert said(window) == before


def test_an_answer_in_progress_ends_before_a_change(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True, token_s=0.0))
    window.ask("One")
    window.wait_end()
    window.open_model(model("slow", n_token=10**6))
    window.wait_state(State.IDLE)
    window.ask("Two")
    window.wait_text()
    window.chats.edit_answer(1, "changed")
    window.chats.delete_message(0)
    window.wait_state(State.IDLE)
    assert said(window)[:2] == ["changed", "Two"]
    assert window.answer.ending is Ending.STOPPED
    kept = window.chats.store.load(window.chats.open_id)
    assert kept is not None and [m.content for m in kept.messages] == said(window)


def test_a_line_shows_what_the_model_no_longer_sees(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(model(text="Done.", token_s=0.0))
    window.resize(1200, 800)
    texts = [f"Message {n} " + "word " * 30 for n in range(12)]
    chat = Conversation(
        [Message("user" if n % 2 == 0 else "assistant", t) for n, t in enumerate(texts)]
    )
    new_id = window.chats.store.copy("long", chat, 12)
    window.chats.open(new_id)
    transcript = window.chat.transcript
    sent: list[Turns] = []
    generate = window.link.generate
    monkeypatch.setattr(
        window.link, "generate", lambda turns, *rest: (sent.append(turns), generate(turns, *rest))
    )
    shown_chat = window.session.conversation
    shown_chat.slides, shown_chat.n_char_max = True, 800
    window.ask("And now?")
    window.wait_end()

    def check() -> None:
        qtbot.waitUntil(lambda: len(transcript.findChildren(LeftOutLine)) == 1, timeout=WAIT_MS)
        (line,) = transcript.findChildren(LeftOutLine)
        qtbot.waitUntil(line.isVisible, timeout=WAIT_MS)
        below = line.parentWidget().message.content
        prompt = str(sent[-1])
        place = texts.index(below)
        assert place > 2 and below[-80:].strip() in prompt
        assert all(f"Message {n} " in prompt for n in range(place + 1, 12))
        assert all(f"Message {n} " not in prompt for n in range(1, place))

    check()
    window.session.new_chat()
    qtbot.waitUntil(lambda: not transcript.findChildren(LeftOutLine), timeout=WAIT_MS)
    window.chats.open(new_id)
    check()
    window.session.conversation.n_char_max = 0  # as with a longer context
    window.ask("And then?")
    window.wait_end()
    qtbot.waitUntil(lambda: not transcript.findChildren(LeftOutLine), timeout=WAIT_MS)


# Keys


def test_keys_retry_copy_and_change_the_last_messages(qtbot: Any, window: WindowPage) -> None:
    window.activateWindow()
    field = window.chat.composer.input
    keys, control = Qt.Key, Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(field, keys.Key_C, control | Qt.KeyboardModifier.ShiftModifier)
    assert QApplication.clipboard().text() == said(window)[5]
    qtbot.keyClick(field, keys.Key_R, control)
    window.wait_end()
    assert window.answer.branch == (2, 2)
    qtbot.keyClick(field, keys.Key_Up)
    editing = window.focusWidget()
    assert isinstance(editing, TextField) and editing.toPlainText() == "Three"
    editing.setPlainText("3")
    qtbot.keyClick(editing, keys.Key_Return)
    window.wait_end()
    assert said(window)[4] == "3"
    field.setPlainText("x\ny")
    qtbot.keyClick(field, keys.Key_Up)
    assert window.focusWidget() is field


def test_keys_go_through_the_chats(qtbot: Any, window: WindowPage) -> None:
    window.chats.fork(1)
    window.chats.fork(1)
    newest_first = [row.id for row in window.chats.rows()]
    field, keys, control = window.chat.composer.input, Qt.Key, Qt.KeyboardModifier.ControlModifier
    window.press("New chat")
    seen = []
    for key in [keys.Key_PageDown] * 4 + [keys.Key_PageUp] * 3:
        qtbot.keyClick(field, key, control)
        seen.append(window.chats.open_id)
    a, b, c = newest_first
    assert seen == [a, b, c, c, b, a, a]
    qtbot.waitUntil(lambda: window.sidebar.list.current_id == a, timeout=WAIT_MS)


def test_a_long_question_is_changed_in_place(qtbot: Any) -> None:
    text = "\n".join(["word " * 6000, "x" * 25_000, "end"]).strip()
    bubble = UserBubble(question(text))
    qtbot.addWidget(bubble)
    bubble.show()
    bubble.begin_edit()
    field = field_of(bubble)
    assert field.document().maximumBlockCount() == 0
    assert max(map(len, field.toPlainText().split("\n"))) <= 10_000
    qtbot.keyClicks(field, "ing")
    with qtbot.waitSignal(bubble.edited) as edited:
        qtbot.keyClick(field, Qt.Key.Key_Return)
    assert edited.args == [text + "ing"]
