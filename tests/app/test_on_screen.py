"""Windows and cards within what surrounds them: screens, frames and columns (B36)."""

from typing import Any

import pytest
from PySide6.QtCore import QMargins, QRect, QSize
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton
from window_samples import Opener

from app.chat.call_foot import CallFoot
from app.chat.preset_dialog import PresetDialog
from app.chat.seen_dialog import SeenDialog
from app.controls.remote_device import RemoteDialog
from app.pages.server_dialog import ServerDialog
from app.state.conversation import CallState
from app.state.preset import Preset
from app.state.tool_approval import Call
from app.text import language
from app.widgets.on_screen import placed
from app.window.arrangement import PanelWindow
from backend.protocol.chat import ToolCall

ROOM = QRect(0, 0, 1280, 800)
FRAME = QMargins(1, 28, 1, 2)


@pytest.mark.parametrize(
    ("kept", "place"),
    [
        ((2600, 100, 900, 600), (379, 100, 900, 600)),  # of a screen that has gone
        ((-1500, -900, 900, 600), (1, 28, 900, 600)),  # at the left of it
        ((100, 0, 900, 600), (100, 28, 900, 600)),  # the title bar above the screen
        ((0, 0, 3000, 2000), (1, 28, 1278, 770)),  # a larger screen
        ((0, 0, 1280, 800), (1, 28, 1278, 770)),  # the whole screen without the frame
        ((300, 100, 900, 600), (300, 100, 900, 600)),
    ],
)
def test_a_window_has_its_place_on_the_screen_with_its_frame(
    kept: tuple[int, ...], place: tuple[int, ...]
) -> None:
    assert placed(QRect(*kept), FRAME, ROOM) == QRect(*place)


def test_every_window_and_dialog_is_shown_within_the_screen(qtbot: Any) -> None:
    room = QGuiApplication.primaryScreen().availableGeometry()
    for window in (
        PanelWindow(), SeenDialog("raw"), PresetDialog(Preset(), "m", False), ServerDialog(None),
        RemoteDialog(),
    ):  # fmt: skip
        qtbot.addWidget(window)
        window.move(room.right() + 2000, room.bottom() + 500)
        window.resize(3000, 2000)
        window.show()
        assert room.contains(window.frameGeometry()), type(window)


def test_a_small_screen_does_not_shrink_what_was_kept_of_a_large_one(
    open_window: Opener,
) -> None:
    window = open_window(None)
    window.resize(700, 640)
    window.close()
    kept = window.settings.geometry
    again = open_window(None)
    assert again.size() == QSize(700, 640) and again.settings.geometry == kept
    again.hide()
    again.resize(3000, 2000)
    again.show()
    assert again.width() <= QGuiApplication.primaryScreen().availableGeometry().width()
    again.close()
    assert again.settings.geometry == kept and again.settings.width == 700


@pytest.mark.parametrize("code", ["en", "de"])
def test_a_tool_that_asks_stays_within_a_narrow_column(qtbot: Any, qapp: Any, code: str) -> None:
    language.apply(qapp, code)
    foot = CallFoot()
    qtbot.addWidget(foot)
    foot.show_call(Call(ToolCall("1", "a", "{}"), None, CallState.ASKED), False, 5)
    foot.show()
    foot.resize(300, foot.layout().heightForWidth(300))
    foot.layout().activate()
    assert foot.minimumSizeHint().width() <= 300
    shown = [button for button in foot.findChildren(QPushButton) if button.isVisible()]
    assert len(shown) == 4
    for button in shown:
        assert foot.rect().contains(button.geometry()), button.text()
