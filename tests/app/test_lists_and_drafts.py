"""Drafts, folders, and the keys of the list of chats, as the user meets them."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit
from window_samples import ENDLESS, WAIT_MS, Model, Opener

from app.session.worker_link import EngineLink
from app.state.engine_state import State
from app.store.chats import ChatStore

CLICK = Qt.MouseButton.LeftButton


def say(window: Any, text: str) -> int:
    """Ask, wait for the answer, and return the chat's id."""
    window.ask(text)
    window.wait_state(State.IDLE)
    return int(window.chats.open_id)


def two_chats(window: Any) -> tuple[int, int]:
    first = say(window, "First question")
    window.press("New chat")
    return first, say(window, "Second question")


def click_row(qtbot: Any, window: Any, title: str) -> None:
    rows = window.sidebar.list
    qtbot.waitUntil(lambda: title in rows.titles(), timeout=WAIT_MS)
    model = rows.model()
    for row in range(model.rowCount()):
        index = model.index(row, 0)
        if str(index.data()).startswith(title):
            place = rows.visualRect(index).center() - QPoint(40, 0)
            qtbot.mouseClick(rows.viewport(), CLICK, pos=place)
            return
    raise AssertionError(title)


def test_each_chat_has_its_own_draft(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    first, second = two_chats(window)
    window.chat.composer.set_text("for the second")
    window.open_chat(first)
    assert window.draft == ""
    window.chat.composer.set_text("for the first")
    window.press("New chat")
    assert window.draft == ""
    window.open_chat(second)
    assert window.draft == "for the second"
    window.close()
    again = open_window(model())
    again.open_chat(first)
    assert again.draft == "for the first"
    say(again, "sent")
    again.open_chat(second)
    again.open_chat(first)
    assert again.draft == ""


def test_a_row_that_was_clicked_takes_f2_del_and_text(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.resize(1300, 800)
    two_chats(window)
    click_row(qtbot, window, "First question")
    rows = window.sidebar.list
    assert window.session.conversation.title == "First question" and rows.hasFocus()
    window.activateWindow()
    qtbot.keyClick(rows, Qt.Key.Key_X)
    assert window.draft == "x" and window.chat.composer.input.hasFocus()
    click_row(qtbot, window, "First question")
    action = next(action for action in window.actions() if action.shortcut().toString() == "F2")
    action.trigger()
    editor = rows.findChild(QLineEdit)
    editor.setText("Renamed")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "Renamed" in rows.titles(), timeout=WAIT_MS)
    click_row(qtbot, window, "Renamed")
    qtbot.keyClick(rows, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: rows.titles() == ["Second question"], timeout=WAIT_MS)


def test_escape_leaves_the_search_and_stops_nothing(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02))
    window.ask()
    window.wait_text()
    search = window.sidebar.search
    search.setFocus()
    qtbot.keyClicks(search, "soldier")
    qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert search.text() == "" and window.state is State.ANSWERING
    assert QApplication.focusWidget() is window.chat.composer.input
    window.session.stop()


def test_folders_hold_chats(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    first, _ = two_chats(window)
    rows = window.sidebar.list
    window.chats.move(first, "Work")

    def shown() -> list[str]:
        model_ = rows.model()
        return [str(model_.index(row, 0).data()) for row in range(model_.rowCount())]

    qtbot.waitUntil(
        lambda: shown() == ["Work ▾", "First question", "Today", "Second question"],
        timeout=WAIT_MS,
    )
    heading = rows.visualRect(rows.model().index(0, 0)).center()
    qtbot.mouseClick(rows.viewport(), CLICK, pos=heading)
    assert shown() == ["Work ▸", "Today", "Second question"]
    qtbot.mouseClick(rows.viewport(), CLICK, pos=heading)
    window.chats.rename_folder("Work", "Home")
    assert window.chats.folders() == ["Home"]
    window.chats.rename_folder("Home", "")
    qtbot.waitUntil(lambda: "First question" in shown() and "Home ▾" not in shown())
    assert window.chats.folders() == []


def test_after_a_crash_the_open_chat_returns_with_what_was_cut_off(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.02))
    window.ask("A long story")
    window.wait_text(10)
    qtbot.waitUntil(lambda: window.chats.n_saved(window.answer) > 0, timeout=WAIT_MS)
    kept = (tmp_path / "settings.json").read_text(encoding="utf-8")
    copy = (tmp_path / "crashed.db").absolute()
    window.chats.store.connection.execute(f"VACUUM INTO '{copy}'")  # as the crash leaves it
    assert '"open_chat": 1' in kept
    store = ChatStore.open(copy)
    assert store.cut_off == [1]
    after = type(window)(EngineLink([]), tmp_path / "settings.json", store)
    qtbot.addWidget(after)
    after.show()
    assert after.chats.open_id == 1
    assert "ended while “A long story” was being answered" in after.notice
    assert after.choices == ["Continue"]
    after.link.shut_down()
    window.session.stop()
