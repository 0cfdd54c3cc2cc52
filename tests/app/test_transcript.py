"""The order of messages on the screen, and the focus after an action on one."""

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QPushButton, QWidget
from window_samples import ENDLESS, FAKE_WORKER, WAIT_MS, Model, Opener

from app.chat.answer import AnswerView
from app.chat.branch_switch import BranchSwitch
from app.chat.question import UserBubble
from app.chat.text_block import TextBlock
from app.state.conversation import Conversation, Ending, Message
from app.state.engine_state import State
from app.window.main_window import MainWindow

Act = Callable[[QAbstractButton], None]


def ask(qtbot: Any, window: MainWindow, text: str) -> None:
    window.chat.composer.input.setPlainText(text)
    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_Return)


def say(qtbot: Any, window: MainWindow, *texts: str) -> None:
    for text in texts:
        ask(qtbot, window, text)
        wait_idle(qtbot, window)


def wait_idle(qtbot: Any, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


# Order and place


def on_screen(window: MainWindow) -> list[tuple[int, int, str]]:
    """Return top, bottom and text of each message on the screen, from the top."""
    column = window.chat.transcript
    found: list[tuple[QWidget, str]] = [
        (view, view.text) for view in column.findChildren(AnswerView)
    ]
    for bubble in column.findChildren(UserBubble):
        found.append((bubble, bubble.findChildren(TextBlock)[0].toPlainText()))
    tops = [(view.mapToGlobal(QPoint(0, 0)).y(), view, text) for view, text in found]
    return sorted((y, y + view.height(), text) for y, view, text in tops if view.isVisible())


def wait_order(qtbot: Any, window: MainWindow, n_message: int) -> None:
    """Wait until the screen shows the messages in order, one below the other."""
    expected = [message.content for message in window.session.conversation.messages]
    assert len(expected) == n_message

    def check() -> None:
        shown = on_screen(window)
        assert [text for _, _, text in shown] == expected
        for (_, bottom, _), (top, _, _) in itertools.pairwise(shown):
            assert bottom < top

    qtbot.waitUntil(check, timeout=WAIT_MS)


def tops(window: MainWindow) -> list[int]:
    """Return the tops of the messages. The last one's bottom is unknown until it is rendered."""
    return [top for top, _, _ in on_screen(window)]


def settled_tops(qtbot: Any, window: MainWindow) -> list[int]:
    """Return the tops once they stay: an answer's foot appears after its last word."""
    seen: list[list[int]] = []

    def stays() -> bool:
        seen.append(tops(window))
        return len(seen) > 20 and all(found == seen[-1] for found in seen[-20:])

    qtbot.waitUntil(stays, timeout=WAIT_MS)
    return seen[-1]


@pytest.fixture
def chat(open_window: Opener, model: Model) -> MainWindow:
    """Open a window with an engine that repeats the question, so that all answers differ."""
    window = open_window(model(echo=True, token_s=0.0))
    window.resize(1200, 800)
    return window


def test_a_question_in_a_reopened_chat_stands_at_the_end(qtbot: Any, chat: MainWindow) -> None:
    say(qtbot, chat, "One", "Two")
    wait_order(qtbot, chat, 4)
    live, first = settled_tops(qtbot, chat), chat.chats.open_id
    chat.top_bar.new_chat.click()
    say(qtbot, chat, "Another chat")
    chat.chats.open(first)
    wait_order(qtbot, chat, 4)
    # A reopened chat looks as it did when it was written.
    assert settled_tops(qtbot, chat) == live
    say(qtbot, chat, "Three", "Four")
    wait_order(qtbot, chat, 8)


def test_a_question_in_a_chat_from_the_last_start_stands_at_the_end(
    qtbot: Any, chat: MainWindow, open_window: Opener, model: Model
) -> None:
    say(qtbot, chat, "One")
    wait_order(qtbot, chat, 2)
    live = settled_tops(qtbot, chat)
    chat.close()
    again = open_window(model(echo=True, token_s=0.0))
    again.resize(1200, 800)
    again.move(chat.pos())
    wait_order(qtbot, again, 2)
    assert settled_tops(qtbot, again) == live
    say(qtbot, again, "Two")
    wait_order(qtbot, again, 4)


def test_a_question_asked_before_all_earlier_messages_are_shown_stands_at_the_end(
    qtbot: Any, chat: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(qtbot, chat, "One", "Two", "Three")
    first = chat.chats.open_id
    chat.top_bar.new_chat.click()
    monkeypatch.setattr("app.widgets.slices.SLICE_S", -1.0)  # one message at a time
    chat.chats.open(first)
    ask(qtbot, chat, "Four")
    assert "One" not in [text for _, _, text in on_screen(chat)]
    wait_idle(qtbot, chat)
    wait_order(qtbot, chat, 8)


def test_a_question_after_a_refused_one_stands_at_the_end(qtbot: Any, chat: MainWindow) -> None:
    say(qtbot, chat, "One")
    chat.session.why_not_kept = lambda _: "The disk is full."
    ask(qtbot, chat, "Two")
    wait_order(qtbot, chat, 2)
    chat.session.why_not_kept = lambda _: ""
    say(qtbot, chat, "Three")
    wait_order(qtbot, chat, 4)


# The focus


@pytest.fixture
def long_chat(qtbot: Any, chat: MainWindow) -> MainWindow:
    """A chat whose answers fill many screens, and wrap otherwise in a narrow window."""
    words = "a steadfast tin soldier stood on one leg before the paper castle "
    messages = [
        Message("assistant", "\n\n".join(words * (1 + (k + j) % 5) for j in range(6)))
        if k % 2
        else Message("user", f"Question {k}")
        for k in range(60)
    ]
    chat.chat.transcript.show_conversation(Conversation(messages))
    chat.chat.show_messages(True)
    chat.resize(1440, 900)
    wait_laid_out(qtbot, chat)
    return chat


def wait_laid_out(qtbot: Any, window: MainWindow) -> None:
    """Wait until all messages are shown, and their heights stay."""
    transcript, seen = window.chat.transcript, [0]

    def stays() -> bool:
        seen.append(transcript.verticalScrollBar().maximum())
        return transcript.is_whole and len(seen) > 20 and len(set(seen[-20:])) == 1

    qtbot.waitUntil(stays, timeout=WAIT_MS)


def heights(window: MainWindow) -> list[float]:
    return [block.height() for block in window.chat.transcript.text_blocks()]


def test_what_is_out_of_sight_wraps_later_and_as_if_it_were_seen(
    qtbot: Any, long_chat: MainWindow
) -> None:
    wide = heights(long_chat)
    long_chat.resize(820, 900)
    _, first, *_, last = long_chat.chat.transcript.text_blocks()
    assert last.visibleRegion().isEmpty() is False
    assert last.document().textWidth() == last.viewport().width()
    assert first.document().textWidth() != first.viewport().width()
    wait_laid_out(qtbot, long_chat)
    for block in long_chat.chat.transcript.text_blocks():
        assert block.document().textWidth() == block.viewport().width()
        assert block.height() >= block.document().size().height()
    assert sum(heights(long_chat)) != sum(wide)
    bar = long_chat.chat.transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()
    long_chat.resize(1440, 900)
    wait_laid_out(qtbot, long_chat)
    assert heights(long_chat) == wide


def test_another_width_leaves_what_is_read_at_the_top(qtbot: Any, long_chat: MainWindow) -> None:
    transcript = long_chat.chat.transcript
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)

    def at_top() -> tuple[int, float]:
        """Return the number of the block at the top, and how much of it is above the view."""
        for number, block in enumerate(transcript.text_blocks()):
            y = block.mapTo(transcript.viewport(), QPoint(0, 0)).y()
            if y + block.height() > 0:
                return number, max(-y / block.height(), 0)
        raise AssertionError("nothing is shown")

    before = at_top()
    for width in (820, 1100, 1440):
        long_chat.resize(width, 900)
        wait_laid_out(qtbot, long_chat)
        assert at_top() == (before[0], pytest.approx(before[1], abs=0.02))
    bar.setValue(bar.value() + 300)
    before = at_top()
    long_chat.resize(820, 900)
    wait_laid_out(qtbot, long_chat)
    assert at_top() == (before[0], pytest.approx(before[1], abs=0.02))


def by_mouse(qtbot: Any) -> Act:
    return lambda button: qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def by_keyboard(qtbot: Any) -> Act:
    def act(button: QAbstractButton) -> None:
        button.setFocus(Qt.FocusReason.TabFocusReason)
        qtbot.keyClick(button, Qt.Key.Key_Space)

    return act


@pytest.fixture(params=[by_mouse, by_keyboard])
def press(qtbot: Any, request: pytest.FixtureRequest) -> Act:
    """Press a button with the mouse or the keyboard."""
    return request.param(qtbot)  # type: ignore[no-any-return]


def active(qtbot: Any, window: MainWindow) -> MainWindow:
    """Give the window the keyboard, and a width that shows all its parts."""
    window.resize(1400, 900)
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window, timeout=WAIT_MS)
    return window


def button(window: MainWindow, text: str) -> QPushButton:
    """Return the last visible button with this text."""
    found = [
        item
        for item in window.findChildren(QPushButton)
        if item.text() == text and item.isVisible()
    ]
    return max(found, key=lambda item: item.mapToGlobal(QPoint(0, 0)).y())


def is_editing() -> bool:
    focused = QApplication.focusWidget()
    return focused is not None and focused.accessibleName() == "Your message, to change"


def check_typing(qtbot: Any, window: MainWindow, text: str = "and then") -> None:
    """Type into the widget with the focus, and check that the composer gets the text."""
    for n_typed, letter in enumerate(text, 1):
        focused = QApplication.focusWidget()
        assert focused is not None
        qtbot.keyClicks(focused, letter)
        assert window.chat.composer.input.toPlainText() == text[:n_typed], focused.accessibleName()
    window.chat.composer.clear()


def test_typing_goes_on_after_a_message_was_acted_on(
    qtbot: Any, open_window: Opener, model: Model, press: Act
) -> None:
    window = active(qtbot, open_window(model(reason_at_end="length", n_token=5)))
    say(qtbot, window, "One")
    for name in ("Retry", "Continue"):
        press(button(window, name))
        check_typing(qtbot, window)
        wait_idle(qtbot, window)
        check_typing(qtbot, window)
    for end, question in (("Cancel", "One"), ("Send", "One more")):
        press(button(window, "Edit"))
        qtbot.waitUntil(is_editing, timeout=WAIT_MS)
        qtbot.keyClicks(QApplication.focusWidget(), " more")
        press(button(window, end))
        check_typing(qtbot, window)
        wait_idle(qtbot, window)
        assert window.session.conversation.messages[0].content == question


@pytest.mark.parametrize("text", ["Start again and continue", "Continue"])
def test_typing_goes_on_after_a_stop_and_a_recovery(
    qtbot: Any, open_window: Opener, model: Model, press: Act, text: str
) -> None:
    window = active(qtbot, open_window(model(holds=15), FAKE_WORKER))
    ask(qtbot, window, "Stopped")
    press(window.chat.composer.button)
    check_typing(qtbot, window)
    wait_idle(qtbot, window)
    ask(qtbot, window, "Killed")
    last = window.session.conversation.messages[-1]
    qtbot.waitUntil(lambda: len(last.content) > 10, timeout=WAIT_MS)
    os.kill(window.link.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: window.engine.state is State.DEAD, timeout=WAIT_MS)
    press(button(window, text))
    check_typing(qtbot, window)
    wait_idle(qtbot, window)
    assert last.content.endswith(" And he went on.")
    check_typing(qtbot, window)


def test_tab_goes_through_the_messages_before_the_panel(qtbot: Any, chat: MainWindow) -> None:
    say(qtbot, chat, "One")
    chat.resize(1320, 840)
    chat.activateWindow()
    chat.sidebar.list.setFocus()
    names = []
    for _ in range(60):
        focused = QApplication.focusWidget()
        assert focused is not None
        names.append(focused.accessibleName())
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
    first = names.index("Conversation")
    wanted = ["Change this message", "More about this message", "Copy this answer"]
    assert names[first + 1 : first + 4] == wanted
    assert names.index("Use the whole window (Ctrl+Shift+E)") > first + 4
    assert names.index("Message") > names.index("Use the whole window (Ctrl+Shift+E)")
    chat.chat.composer.setFocus()
    qtbot.keyClick(chat.chat.composer.input, Qt.Key.Key_Backtab)
    backwards = QApplication.focusWidget()
    assert backwards is not None and not chat.chat.transcript.isAncestorOf(backwards)


def test_an_edited_message_takes_what_is_typed(qtbot: Any, chat: MainWindow) -> None:
    say(qtbot, chat, "One")
    edit = next(b for b in chat.findChildren(QPushButton) if b.isVisible() and b.text() == "Edit")
    chat.activateWindow()
    qtbot.mouseClick(edit, Qt.MouseButton.LeftButton)
    focused = QApplication.focusWidget()
    assert focused is not None and focused.accessibleName() == "Your message, to change"
    assert not focused.acceptDrops(), "the window attaches what is dropped anywhere"


# Several answers at once


def last_answer(window: MainWindow) -> AnswerView:
    view = window.chat.transcript.answer(1)
    assert view is not None
    return view


def switch_of(window: MainWindow) -> str:
    """Return what the branch switch of the last answer shows; "" if it is hidden."""
    view = last_answer(window)
    switch = view.findChild(BranchSwitch)
    return "" if switch.isHidden() else switch.findChild(QLabel).text()


def step(qtbot: Any, window: MainWindow, name: str) -> None:
    view = last_answer(window)
    buttons = {b.accessibleName(): b for b in view.findChildren(QAbstractButton)}
    qtbot.mouseClick(buttons[name], Qt.MouseButton.LeftButton)


def more(window: MainWindow, n: int) -> None:
    """Choose a number in the menu of the last answer."""
    menu = last_answer(window).menu()
    (several,) = (a.menu() for a in menu.actions() if a.text() == "More answers at once")
    (action,) = (a for a in several.actions() if a.text() == str(n))
    action.trigger()


def test_several_answers_are_written_at_once(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(n_token=20, token_s=0.0))
    say(qtbot, window, "Tell me.")
    before = window.session.conversation.messages[-1].content
    more(window, 3)
    wait_idle(qtbot, window)
    found = []
    for place in ("4/4", "3/4", "2/4", "1/4"):
        assert switch_of(window) == place
        found.append(window.session.conversation.messages[-1])
        step(qtbot, window, "Version before this one")
    beginnings = ["(0) ", "(2) ", "(1) ", ""]
    assert [message.content for message in found] == [text + before for text in beginnings]
    assert all(message.ending is Ending.FINISHED for message in found)


def test_answers_go_on_while_another_is_looked_at(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02))
    ask(qtbot, window, "Tell me.")
    qtbot.waitUntil(lambda: bool(last_answer(window).text), timeout=WAIT_MS)
    window.session.stop()
    wait_idle(qtbot, window)
    stopped = window.session.conversation.messages[-1].content
    more(window, 2)
    qtbot.waitUntil(lambda: "(0)" in last_answer(window).text, timeout=WAIT_MS)
    assert switch_of(window) == "3/3"
    for place, text in (("2/3", "(1)"), ("1/3", stopped), ("3/3", "(0)")):
        step(qtbot, window, "Version before this one")
        qtbot.waitUntil(lambda text=text: text in last_answer(window).text, timeout=WAIT_MS)
        assert switch_of(window) == place and window.engine.state is State.ANSWERING
    n_char = len(last_answer(window).text)
    qtbot.waitUntil(lambda: len(last_answer(window).text) > n_char, timeout=WAIT_MS)
    window.session.stop()
    wait_idle(qtbot, window)
    for place in ("3/3", "2/3"):
        assert switch_of(window) == place
        assert window.session.conversation.messages[-1].ending is Ending.STOPPED
        step(qtbot, window, "Version before this one")
