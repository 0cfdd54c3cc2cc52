"""Thoughts and tool calls on the screen, the switch of thinking, "What the model saw"."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QLabel,
    QPlainTextEdit,
    QWidget,
)
from window_page import WindowPage
from window_samples import FAKE_WORKER, WAIT_MS, Model, Opener, let_go

from app.chat.answer import AnswerView
from app.chat.preset_dialog import PresetDialog
from app.chat.seen_dialog import SeenDialog
from app.chat.text_block import TextBlock
from app.chat.tool_card import ToolCard
from app.state.conversation import CallState, Conversation, Ending, Message
from app.state.engine_state import State
from app.state.preset import Preset
from app.text import language
from backend.protocol.chat import ChatFacts

SWITCH = {"thinking": "switch", "thinks_by_default": True}
THOUGHT = "First line.\n\nSecond line of the thought."


def active(window: WindowPage) -> WindowPage:
    """Give the window the keyboard."""
    window.resize(1280, 800)
    window.activateWindow()
    window.qtbot.waitUntil(lambda: QApplication.activeWindow() is window, timeout=WAIT_MS)
    return window


def view(window: WindowPage) -> AnswerView:
    """Return the last answer on the screen."""
    return max(window.chat.findChildren(AnswerView), key=lambda item: top(item))


def last_line(window: WindowPage) -> QLabel:
    """Return the line below the folded thought of the last answer, or an empty one."""
    thought = view(window).thought
    return QLabel() if thought is None else thought.last_line


def top(widget: QWidget) -> int:
    return widget.mapToGlobal(QPoint(0, 0)).y()


def blocks(window: WindowPage, name: str) -> list[TextBlock]:
    """Return the visible named texts of the last answer, from the top."""
    found = [item for item in view(window).findChildren(TextBlock) if item.isVisible()]
    return sorted((item for item in found if item.accessibleName() == name), key=top)


def type_in(window: WindowPage, text: str) -> None:
    """Type into the widget with the focus."""
    focused = QApplication.focusWidget()
    assert focused is not None
    window.qtbot.keyClicks(focused, text)


# The thought above the answer


def test_a_live_thought_shows_its_last_line_and_folds_when_the_answer_begins(
    open_window: Opener, model: Model
) -> None:
    path = model(thought=THOUGHT, text="Yes. " * 40, holds=8)
    window = active(open_window(path))
    window.ask()
    window.qtbot.waitUntil(lambda: "Second" in last_line(window).text(), timeout=WAIT_MS)
    assert view(window).thought.label.startswith("Thinking…") and not window.answer.content
    assert "<think>" not in last_line(window).text()
    let_go(path)
    window.qtbot.waitUntil(lambda: bool(blocks(window, "Part of the answer")), timeout=WAIT_MS)
    assert last_line(window).isHidden() and blocks(window, "Reasoning") == []
    assert view(window).thought.label.startswith("Thought for ")
    window.wait_state(State.IDLE)
    assert window.answer.reasoning == THOUGHT and window.answer.content == "Yes. " * 40
    assert window.answer.raw == f"<think>{THOUGHT}</think>" + "Yes. " * 40


def test_the_thought_unfolds_above_the_answer(open_window: Opener, model: Model) -> None:
    window = active(open_window(model(thought=THOUGHT, text="Yes.", token_s=0.0)))
    window.ask()
    window.wait_state(State.IDLE)
    window.qtbot.waitUntil(lambda: bool(blocks(window, "Part of the answer")), timeout=WAIT_MS)
    window.press("▸ Thought")
    (thought,) = blocks(window, "Reasoning")
    (answer,) = blocks(window, "Part of the answer")
    window.qtbot.waitUntil(lambda: top(thought) + thought.height() <= top(answer), timeout=WAIT_MS)
    assert thought.toPlainText() == THOUGHT
    window.press("▾ Thought")
    assert blocks(window, "Reasoning") == []


def test_a_chat_with_a_thought_looks_the_same_after_the_next_start(
    open_window: Opener, model: Model
) -> None:
    path = model(thought=THOUGHT, text="Yes.", token_s=0.0)
    window = open_window(path)
    window.ask()
    window.wait_state(State.IDLE)
    before = (view(window).thought.label, window.answer_texts())
    window.close()
    again = open_window(path)
    assert (view(again).thought.label, again.answer_texts()) == before
    assert again.chats.rows("Second") == [] and again.chats.rows("Yes")


@pytest.mark.parametrize("n_token", [1, 3, 11], ids=["before", "within", "after"])
def test_go_on_sends_the_message_as_it_is(open_window: Opener, model: Model, n_token: int) -> None:
    """Spaces at the end stay, also within the thought."""
    options = {"thought": "Hm, then so. ", "text": "One two \n\nthree"}
    window = open_window(model(**options, n_token=n_token, reason_at_end="length", token_s=0.0))
    window.ask("Why?")
    window.wait_state(State.IDLE)
    said = (window.answer.reasoning, window.answer.content)
    sent: list[Any] = []
    window.link.generate = lambda turns, *_: sent.append(turns)
    window.session.go_on()
    message = {"role": "assistant", "content": said[1], "reasoning_content": said[0]}
    assert sent == [[{"role": "user", "content": "Why?"}, *([message] if any(said) else [])]]


def test_an_answer_cut_off_within_its_thought_keeps_it(open_window: Opener, model: Model) -> None:
    window = open_window(model(thought="hm " * 20_000, text="Yes.", token_s=0.01), FAKE_WORKER)
    window.ask()
    window.qtbot.waitUntil(lambda: len(window.answer.reasoning) > 20, timeout=WAIT_MS)
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    answer = window.answer
    assert answer.ending is Ending.CUT_OFF and answer.content == ""
    assert view(window).thought.label.startswith("Thought for ")
    thought = answer.reasoning
    window.press("Start again and continue")
    window.qtbot.waitUntil(lambda: len(answer.reasoning) > len(thought), timeout=WAIT_MS)
    assert answer.reasoning.startswith(thought)


def test_a_growing_thought_is_on_disk(open_window: Opener, model: Model, tmp_path: Path) -> None:
    window = open_window(model(thought="hm " * 20_000, text="Yes.", token_s=0.01))
    window.ask()
    reader = window.chats.store
    query = "SELECT coalesce(group_concat(reasoning, ''), ''), max(content) FROM piece"
    window.qtbot.waitUntil(
        lambda: reader.connection.execute(query).fetchone()[0].startswith("hm hm"),
        timeout=WAIT_MS,
    )
    assert reader.connection.execute(query).fetchone()[1] == ""
    window.session.stop()
    window.wait_state(State.IDLE)
    kept = reader.load(window.chats.open_id)
    assert kept is not None and kept.messages[-1].reasoning == window.answer.reasoning


# The switch


def test_the_switch_is_only_where_the_template_has_one(open_window: Opener, model: Model) -> None:
    window = open_window(model("plain"))
    think = window.chat.composer.think
    assert not think.isVisible()
    window.open_model(model("switch", chat=SWITCH))
    window.qtbot.waitUntil(think.button.isVisible, timeout=WAIT_MS)
    assert think.button.isChecked() and not think.effort.isVisible()
    window.open_model(model("always", chat={"thinking": "always", "efforts": ["low", "high"]}))
    window.qtbot.waitUntil(think.always.isVisible, timeout=WAIT_MS)
    assert not think.button.isVisible() and think.effort.isVisible()
    assert "no switch" in think.always.toolTip()


def test_the_switch_reaches_the_engine_and_belongs_to_the_chat(
    open_window: Opener, model: Model
) -> None:
    facts = {**SWITCH, "efforts": ["low", "high"]}
    path = model(chat=facts, thought=THOUGHT, echo="options", token_s=0.0)
    window = active(open_window(path))
    window.chat.composer.input.setFocus()
    window.ask()
    window.wait_state(State.IDLE)
    assert window.answer.reasoning and json.loads(window.answer.content) == {}
    think = window.chat.composer.think
    window.qtbot.mouseClick(think.button, Qt.MouseButton.LeftButton)
    type_in(window, "Again")  # the focus is in the composer
    window.chat.composer.button.click()
    window.wait_state(State.IDLE)
    assert json.loads(window.answer.content) == {"thinking": False} and not window.answer.reasoning
    first = window.chats.open_id
    window.top_bar.new_chat.click()
    assert think.button.isChecked()
    think.menu.actions()[2].trigger()
    window.ask()
    window.wait_state(State.IDLE)
    assert json.loads(window.answer.content) == {"effort": "high"}
    assert think.effort.text().startswith("Effort: high")
    window.close()
    again = open_window(path)
    again.open_chat(first)
    assert not again.chat.composer.think.button.isChecked()


def test_the_switch_works_from_the_keyboard(open_window: Opener, model: Model) -> None:
    window = active(open_window(model(chat=SWITCH)))
    button = window.chat.composer.think.button
    window.chat.composer.input.setFocus()
    for _ in range(6):
        window.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        if button.hasFocus():
            break
    assert button.hasFocus()
    window.qtbot.keyClick(button, Qt.Key.Key_Space)
    assert window.session.preset.thinking is False
    assert button.accessibleName() == "Think: off"
    window.qtbot.keyClick(button, Qt.Key.Key_Space)
    assert window.session.conversation.preset is None  # back to the model's choice


def test_the_default_of_a_model_holds_for_its_new_chats(open_window: Opener, model: Model) -> None:
    window = open_window(model(chat=SWITCH))
    window.chat_page.take_preset(Preset(thinking=False), for_model=True)
    think = window.chat.composer.think.button
    assert not think.isChecked()
    think.click()
    assert window.session.preset.thinking is True
    window.session.new_chat()
    window.session.show(Conversation())
    assert not think.isChecked()


# Tool calls


def cards(window: WindowPage) -> list[ToolCard]:
    return [card for card in window.chat.findChildren(ToolCard) if card.isVisible()]


def test_a_tool_call_is_a_card_below_the_text(open_window: Opener, model: Model) -> None:
    calls = [["add", '{"a": 1}'], ["look_up", '{"word": "tin soldier"}']]
    window = active(open_window(model(text="I look.", calls=calls, token_s=0.0)))
    window.session.calls_made.disconnect()  # without servers no call runs
    made: list[Message] = []
    window.session.calls_made.connect(lambda _, message: made.append(message))
    window.ask()
    window.wait_state(State.IDLE)
    assert made == [window.answer]
    window.qtbot.waitUntil(lambda: len(cards(window)) == 2, timeout=WAIT_MS)
    assert [card.call.arguments for card in cards(window)] == [call[1] for call in calls]
    assert [card.state for card in cards(window)] == [CallState.NOT_RUN] * 2
    (prose,) = blocks(window, "Part of the answer")
    assert prose.toPlainText() == "I look."
    for card in cards(window):
        window.qtbot.waitUntil(lambda: top(prose) < top(card), timeout=WAIT_MS)
    assert "look_up" in cards(window)[1].accessibleName()


def results(window: WindowPage) -> list[Message]:
    return [
        Message("tool", "<b>3</b>", tool_call_id=call.id, name=call.name)
        for call in window.answer.tool_calls
    ]


def test_a_result_folds_into_its_card_and_the_answer_goes_on(
    open_window: Opener, model: Model
) -> None:
    path = model(text="So:", calls=[["add", '{"a": 1}']], token_s=0.0)
    window = active(open_window(path))
    window.session.calls_made.disconnect()
    window.ask()
    window.wait_state(State.IDLE)
    window.session.take_results(window.session.conversation, results(window))
    window.wait_state(State.IDLE)
    roles = [message.role for message in window.session.conversation.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    for _ in range(2):
        window.qtbot.waitUntil(lambda: len(cards(window)) == 1, timeout=WAIT_MS)
        (card,) = cards(window)
        assert card.state is CallState.DONE
        assert not any(block.isVisible() for block in result_texts(card))
        card.result.button.click()
        assert [block.toPlainText() for block in result_texts(card)] == ["<b>3</b>"]
        assert top(card) < top(view(window))
        window.close()
        window = open_window(path)


def result_texts(card: ToolCard) -> list[TextBlock]:
    blocks = card.findChildren(TextBlock)
    return [block for block in blocks if block.accessibleName().startswith("Result")]


def test_results_reach_a_chat_that_is_not_shown(open_window: Opener, model: Model) -> None:
    window = open_window(model(text="So:", calls=[["add", "{}"]], token_s=0.0))
    window.session.calls_made.disconnect()
    window.ask("First")
    window.wait_state(State.IDLE)
    conversation, found = window.session.conversation, results(window)
    window.top_bar.new_chat.click()
    window.session.take_results(conversation, found)
    window.wait_state(State.IDLE)
    assert conversation.last is not None and conversation.last.content == "So:"
    window.open_chat(conversation.chat_id)
    assert [m.role for m in window.session.conversation.messages][2:] == ["tool", "assistant"]
    assert len(window.chats.rows()) == 1


def test_a_call_cut_off_is_dropped_when_the_answer_goes_on(
    open_window: Opener, model: Model
) -> None:
    path = model(text="So:", calls=[["add", '{"a": 1}']], n_token=2, reason_at_end="length")
    window = open_window(path)
    window.session.calls_made.disconnect()
    window.ask()
    window.wait_state(State.IDLE)
    window.answer.ending = Ending.STOPPED
    assert [call.arguments for call in window.answer.tool_calls] == [""]
    window.session.go_on()
    window.wait_state(State.IDLE)
    assert window.answer.content.startswith("So: And") and cards(window) == []


# What the model saw


def test_what_the_model_saw(open_window: Opener, model: Model) -> None:
    window = active(open_window(model(thought="hm", text="Yes.", token_s=0.0)))
    for question in ("One", "Two"):
        window.ask(question)
        window.wait_state(State.IDLE)
    turns = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"},
        {"role": "user", "content": "Two"},
    ]
    for answer in (3, 1):
        window.chat.transcript.inspected.emit(answer)
        (dialog,) = window.findChildren(SeenDialog)
        fields = {item.accessibleName(): item for item in dialog.findChildren(QPlainTextEdit)}
        shown, expected = fields["Prompt"].toPlainText, json.dumps([turns[:answer], {}])
        window.qtbot.waitUntil(lambda: shown() == expected, timeout=WAIT_MS)
        assert "<think>hm</think>Yes." in [item.toPlainText() for item in fields.values()]
        window.qtbot.mouseClick(dialog.prompt.copy, Qt.MouseButton.LeftButton)
        assert QApplication.clipboard().text() == shown()
        dialog.close()
        window.qtbot.waitUntil(lambda: not window.findChildren(SeenDialog), timeout=WAIT_MS)
        assert window.focusWidget() is window.chat.composer.input


def test_a_prompt_that_cannot_be_rendered_is_a_sentence(open_window: Opener, model: Model) -> None:
    window = active(
        open_window(model(format_error="The template refuses.", token_s=0.0), FAKE_WORKER)
    )
    window.ask("One")
    window.wait_state(State.IDLE)
    window.chat.transcript.inspected.emit(1)
    (dialog,) = window.findChildren(SeenDialog)
    words = dialog.prompt.field.toPlainText
    window.qtbot.waitUntil(lambda: words() == "The template refuses.", timeout=WAIT_MS)
    assert not dialog.prompt.copy.isEnabled() and dialog.answer.copy.isEnabled()
    assert window.notice == ""
    dialog.close()
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    window.chat.transcript.inspected.emit(1)
    assert (
        "when a model is loaded" in window.findChildren(SeenDialog)[-1].prompt.field.toPlainText()
    )


# Long chats, focus, edits


def test_a_chat_of_ten_thousand_turns_is_shortened_with_a_sentence(
    open_window: Opener, model: Model
) -> None:
    window = open_window(model(echo=True, token_s=0.0))
    roles = ("user", "assistant")
    messages = [Message(roles[n % 2], f"turn {n}") for n in range(10_000)]
    sent: list[Any] = []
    window.link.generate = lambda turns, *_: sent.append(turns)
    window.session.added.disconnect()  # writing them all takes long
    window.session.show(Conversation(messages))
    window.ask("The last question")
    assert len(sent) == 1 and len(sent[0]) < 2000
    assert sent[0][-1]["content"] == "The last question"
    assert window.notice.startswith("This chat is longer than the context of 4,096\u00a0tokens.")


def test_a_click_on_copy_leaves_the_focus_in_the_composer(
    open_window: Opener, model: Model
) -> None:
    window = active(open_window(model(text="Look:\n\n```c\nint x;\n```\n", token_s=0.0)))
    window.ask()
    window.wait_state(State.IDLE)
    window.chat.composer.input.setFocus()
    for name in ("Copy this answer", "Copy this code"):
        (button,) = [
            item for item in view(window).findChildren(QWidget) if item.accessibleName() == name
        ]
        window.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        assert window.chat.composer.input.hasFocus(), name
    assert QApplication.clipboard().text() == "int x;"


@pytest.mark.parametrize("act", ["edit", "retry"])
def test_what_is_asked_while_the_engine_is_dead_starts_it_again(
    open_window: Opener, model: Model, act: str
) -> None:
    window = open_window(model(echo=True, token_s=0.0), FAKE_WORKER)
    window.ask("One")
    window.wait_state(State.IDLE)
    os.kill(window.link.pid, signal.SIGKILL)
    window.wait_state(State.DEAD)
    before = window.answer
    if act == "edit":
        window.chat.transcript.edited.emit(0, "Two")
    else:
        window.press("Retry")
    window.wait_state(State.IDLE)
    window.qtbot.waitUntil(lambda: not window.answer.is_live, timeout=WAIT_MS)
    question = "Two" if act == "edit" else "One"
    assert json.loads(window.answer.content)[-1]["content"] == question
    assert window.answer is not before


def test_an_edit_without_a_model_is_put_into_the_composer(open_window: Opener) -> None:
    window = open_window()
    messages = [Message("user", "One"), Message("assistant", "1")]
    window.session.show(Conversation(messages))
    window.chat.transcript.edited.emit(0, "Two")
    assert window.draft == "Two" and window.notice == "Open a model first."
    assert window.session.conversation.messages == messages


def test_the_dialog_has_the_choice_of_a_template(qtbot: Any) -> None:
    facts = ChatFacts("switch", True, ("low", "high"))
    dialog = PresetDialog(Preset(thinking=False, effort="high"), "m", True, chat=facts)
    qtbot.addWidget(dialog)
    fields = {item.accessibleName(): item for item in dialog.findChildren(QComboBox)}
    assert fields["Thinking"].currentText() == "Off" and fields["Effort"].currentText() == "high"
    fields["Thinking"].setCurrentIndex(0)
    assert "on" in fields["Thinking"].currentText()
    assert dialog.preset == Preset(effort="high")
    plain = PresetDialog(Preset(thinking=False, effort="high"), "m", True)
    qtbot.addWidget(plain)
    assert [box.accessibleName() for box in plain.findChildren(QComboBox)] == ["Own presets"]
    assert plain.preset == Preset(thinking=False, effort="high")


def test_the_buttons_of_an_answer_fit_into_a_narrow_chat(
    open_window: Opener, model: Model, qapp: QApplication
) -> None:
    """The sidebar and the panel are open, and the language has long words."""
    language.apply(qapp, "de")
    window = open_window(model(chat=SWITCH, reason_at_end="length", n_token=5, token_s=0.0))
    window.resize(1280, 800)
    window.ask()
    window.wait_state(State.IDLE)
    window.session.regenerate(1)
    window.wait_state(State.IDLE)
    column = window.chat.transcript
    inside = column.widget()
    window.qtbot.waitUntil(lambda: inside.width() <= column.viewport().width(), timeout=WAIT_MS)
    buttons = [item for item in view(window).findChildren(QAbstractButton) if item.isVisible()]
    assert len(buttons) == 6  # Copy, Retry, Go on, More, and the arrows between the versions
    for button in buttons:
        assert button.width() >= button.minimumSizeHint().width()
        right = button.mapTo(column, QPoint(button.width(), 0)).x()
        assert right <= column.viewport().width(), button.accessibleName()
