"""Every control has a name and works from the keyboard."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QHeaderView,
    QLineEdit,
    QPlainTextEdit,
    QScrollBar,
    QTextBrowser,
    QWidget,
)
from window_samples import WAIT_MS, Model, Opener

from app.chat.text_block import TextBlock
from app.chat.transcript import ROW_HEIGHT, Transcript
from app.state.conversation import Conversation, Ending, Message
from app.state.engine_state import State
from app.window.main_window import MainWindow
from backend.protocol.chat import ToolCall

INTERACTIVE = (
    QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit, QAbstractItemView,
    QPlainTextEdit, QTextBrowser,
)  # fmt: skip


def interactive(root: QWidget) -> list[QWidget]:
    """Return the visible controls below a widget, without the inner parts of Qt's controls."""
    found = []
    for widget in root.findChildren(QWidget):
        own = widget.objectName().startswith("qt_") or isinstance(widget, QScrollBar)
        focusable = bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
        if widget.isVisible() and not own and (isinstance(widget, INTERACTIVE) or focusable):
            if not isinstance(widget.parent(), QComboBox | QAbstractSpinBox):
                found.append(widget)
    return found


def described(widget: QWidget) -> tuple[str, QAccessible.Role]:
    interface = QAccessible.queryAccessibleInterface(widget)
    assert interface is not None, widget
    return interface.text(QAccessible.Text.Name), interface.role()


def wait_idle(qtbot: Any, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


def test_tab_reaches_every_control_and_the_focus_is_seen(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.resize(1400, 900)
    window.top_bar.controls.click()
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    for page in ("chat", "settings"):
        window.pages.go(page)
        walk(window)


def walk(window: MainWindow) -> None:
    wanted = {
        widget for widget in interactive(window)
        if widget.isEnabled() and widget.focusPolicy() & Qt.FocusPolicy.TabFocus
    }  # fmt: skip
    reached: set[QWidget] = set()
    for _ in range(3 * len(wanted) + 10):
        window.focusNextChild()
        focused = QApplication.focusWidget()
        if focused is None or focused in reached:
            continue
        reached.add(focused)
        with_focus = focused.grab().toImage()
        focused.clearFocus()
        without = focused.grab().toImage()
        focused.setFocus(Qt.FocusReason.TabFocusReason)
        is_text = isinstance(focused, QPlainTextEdit | QLineEdit | QTextBrowser)
        is_list = isinstance(focused, QAbstractItemView)
        assert with_focus != without or is_text or is_list, described(focused)
    # Tab stops at one button of an exclusive group; arrow keys lead to the others.
    missed = [widget for widget in wanted - reached if not in_group(widget)]
    assert [described(widget)[0] for widget in missed] == []


def is_told(widget: QWidget) -> bool:
    """Return whether a screen reader says a name and a role of a control."""
    name, role = described(widget)
    # Scroll areas and painted widgets have no role of their own. A painted one has a description.
    is_plain = isinstance(widget, QAbstractScrollArea | QHeaderView) or (
        widget.accessibleDescription() != ""
    )
    has_role = role != QAccessible.Role.NoRole and (role != QAccessible.Role.Client or is_plain)
    return bool(name.strip()) and has_role


def is_reached(widget: QWidget) -> bool:
    """Return whether Tab reaches a control, or what it belongs to has keys."""
    is_part = in_group(widget) or isinstance(widget, TextBlock | QHeaderView)
    return is_part or bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)


def in_group(widget: QWidget) -> bool:
    return isinstance(widget, QAbstractButton) and widget.group() is not None


def test_chats_are_renamed_pinned_found_and_deleted_by_keyboard(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    for text in ("Apples", "Pears"):
        window.session.new_chat()
        window.session.send(text)
        wait_idle(qtbot, window)
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    key, control = Qt.Key, Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(window, key.Key_F, control)
    assert QApplication.focusWidget() is window.sidebar.search
    qtbot.keyClicks(window.sidebar.search, "Appl")
    qtbot.waitUntil(lambda: window.sidebar.list.titles() == ["Apples"], timeout=WAIT_MS)
    qtbot.keyClick(window.sidebar.search, key.Key_Down)
    chats = window.sidebar.list
    assert QApplication.focusWidget() is chats
    qtbot.keyClick(chats, key.Key_F2)
    editor = QApplication.focusWidget()
    assert isinstance(editor, QLineEdit) and editor.accessibleName() == "Name of the chat"
    editor.setText("Red apples")
    qtbot.keyClick(editor, key.Key_Return)
    qtbot.waitUntil(lambda: "Red apples" in [row.title for row in window.chats.rows()])
    window.sidebar.search.clear()
    qtbot.waitUntil(lambda: len(chats.titles()) == 2, timeout=WAIT_MS)
    chat_id = next(row.id for row in window.chats.rows() if row.title == "Red apples")
    chats.mark(chat_id)
    chats.setFocus()
    qtbot.keyClick(chats, key.Key_P, control | Qt.KeyboardModifier.ShiftModifier)
    assert next(row for row in window.chats.rows() if row.id == chat_id).is_pinned
    qtbot.waitUntil(lambda: chats.titles()[0] == "Red apples", timeout=WAIT_MS)
    chats.mark(chat_id)
    qtbot.keyClick(chats, key.Key_Return)
    assert window.chats.open_id == chat_id
    chats.setFocus()
    chats.mark(chat_id)
    qtbot.keyClick(chats, key.Key_Delete)
    assert "Red apples" not in [row.title for row in window.chats.rows()]
    undo = window.chat.banner.buttons[0]
    undo.setFocus()
    qtbot.keyClick(undo, key.Key_Space)
    assert "Red apples" in [row.title for row in window.chats.rows()]


def rows(interface: QAccessibleInterface) -> Iterator[list[int]]:
    """Yield the tops of the visible parts of each control, in the order of a screen reader."""
    parts = [interface.child(i) for i in range(interface.childCount())]
    parts = [part for part in parts if not part.state().invisible]
    yield [part.rect().top() for part in parts]
    for part in parts:
        yield from rows(part)


def test_a_chat_is_read_from_top_to_bottom(qtbot: Any) -> None:
    """Also one that is opened, whose messages are made from the last to the first."""
    call = ToolCall("1", "search", '{"text": "crow"}')
    said = Message(
        "assistant", "A fox.\n\n```c\nint x;\n```\n\nA crow.", Ending.FINISHED,
        reasoning="Hm.", tool_calls=[call],
    )  # fmt: skip
    conversation = Conversation([Message("user", "Who?"), said, Message("user", "So?"), said])
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(700, 1500)
    transcript.show()
    transcript.show_conversation(conversation)
    qtbot.waitUntil(lambda: transcript.is_whole, timeout=WAIT_MS)
    interface = QAccessible.queryAccessibleInterface(transcript.widget())
    found = list(rows(interface))
    assert max(map(len, found)) >= 4
    for tops in found:
        assert all(below > above - ROW_HEIGHT for above, below in pairwise(tops)), tops
