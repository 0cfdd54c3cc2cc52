"""The commands of keys and the menu, in one table. The page of shortcuts shows it too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QT_TRANSLATE_NOOP
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from app.text.language import translate


@dataclass(frozen=True)
class Command:
    """A command: its name in the code, its label, its keys (the first is shown)."""

    name: str
    label: object  # English; `words` translates it
    keys: tuple[str, ...]
    in_menu: bool = True
    begins: bool = False  # a group of the menu


COMMANDS: tuple[Command, ...] = (
    Command("new_chat", QT_TRANSLATE_NOOP("commands", "New chat"), ("Ctrl+N",)),
    Command("rename", QT_TRANSLATE_NOOP("commands", "Rename the chat"), ("F2",), False),
    Command("search", QT_TRANSLATE_NOOP("commands", "Search chats"), ("Ctrl+F",)),
    Command("find", QT_TRANSLATE_NOOP("commands", "Find in this chat"), ("Ctrl+Shift+F",)),
    Command("sidebar", QT_TRANSLATE_NOOP("commands", "Chats"), ("Ctrl+B",)),
    Command(
        "next", QT_TRANSLATE_NOOP("commands", "Next chat in the list"), ("Ctrl+PgDown",), False
    ),
    Command(
        "previous",
        QT_TRANSLATE_NOOP("commands", "Previous chat in the list"),
        ("Ctrl+PgUp",),
        False,
    ),
    Command("retry", QT_TRANSLATE_NOOP("commands", "Retry the last answer"), ("Ctrl+R",), False),
    Command(
        "copy_last", QT_TRANSLATE_NOOP("commands", "Copy the last answer"), ("Ctrl+Shift+C",), False
    ),
    Command(
        "open", QT_TRANSLATE_NOOP("commands", "Open a GGUF file\u2026"), ("Ctrl+O",), begins=True
    ),
    Command("models", QT_TRANSLATE_NOOP("commands", "Models"), ("Ctrl+M",)),
    Command("get", QT_TRANSLATE_NOOP("commands", "Get models\u2026"), ("Ctrl+G",)),
    Command(
        "attach", QT_TRANSLATE_NOOP("commands", "Attach files\u2026"), ("Ctrl+U",), begins=True
    ),
    Command(
        "preset", QT_TRANSLATE_NOOP("commands", "System prompt and sampling\u2026"), ("Ctrl+P",)
    ),
    Command("controls", QT_TRANSLATE_NOOP("commands", "Engine controls"), ("Ctrl+K",), begins=True),
    Command("panel", QT_TRANSLATE_NOOP("commands", "Engine panel"), ("Ctrl+E",)),
    Command(
        "wide", QT_TRANSLATE_NOOP("commands", "Engine panel in the whole window"), ("Ctrl+Shift+E",)
    ),
    Command("stop", QT_TRANSLATE_NOOP("commands", "Stop, or back to the chat"), ("Esc",), False),
    Command("write", QT_TRANSLATE_NOOP("commands", "Write"), ("Ctrl+L",), False),
    Command("settings", QT_TRANSLATE_NOOP("commands", "Settings"), ("Ctrl+,",), begins=True),
    Command("server", QT_TRANSLATE_NOOP("commands", "Local server"), ()),
    Command("diagnostics", QT_TRANSLATE_NOOP("commands", "Diagnostics"), ("Ctrl+D",)),
    Command("shortcuts", QT_TRANSLATE_NOOP("commands", "Keyboard shortcuts"), ("F1", "Ctrl+?")),
    Command("about", QT_TRANSLATE_NOOP("commands", "About Outrider"), ()),
    Command("quit", QT_TRANSLATE_NOOP("commands", "Quit"), ("Ctrl+Q",), begins=True),
)

# Keys that only one widget handles, for the page of shortcuts.
LOCAL: tuple[tuple[str, object], ...] = (
    ("Enter", QT_TRANSLATE_NOOP("commands", "In the message: send")),
    ("Shift+Enter", QT_TRANSLATE_NOOP("commands", "In the message: a new line")),
    ("Up", QT_TRANSLATE_NOOP("commands", "In the empty message: change the last question")),
    ("Ctrl+Enter", QT_TRANSLATE_NOOP("commands", "In an answer that is changed: keep it")),
    ("Del", QT_TRANSLATE_NOOP("commands", "In the list of chats: delete")),
    ("Ctrl+Shift+P", QT_TRANSLATE_NOOP("commands", "In the list of chats: pin or unpin")),
    ("Shift+F10", QT_TRANSLATE_NOOP("commands", "In the list of chats: menu")),
    ("Tab", QT_TRANSLATE_NOOP("commands", "To the next control")),
)


def words(text: object) -> str:
    """Translate a label into the window's language."""
    return translate("commands", str(text))


def key_words(*keys: object) -> str:
    """Return the names of keys as the system's language has them, such as "Strg+N"."""
    native = QKeySequence.SequenceFormat.NativeText
    return "   ".join(QKeySequence(str(key)).toString(native) for key in keys)


def add_actions(window: QWidget, run: Mapping[str, Callable[[], object]]) -> QMenu:
    """Add the actions of all commands to a window, and return their menu.

    REQUIRES: `run` has a function for the name of each command.
    """
    menu = QMenu(window)
    for command in COMMANDS:
        action = QAction(words(command.label), window)
        action.setShortcuts([QKeySequence(key) for key in command.keys])
        action.triggered.connect(lambda _=False, act=run[command.name]: act())
        window.addAction(action)
        if command.begins:
            menu.addSeparator()
        if command.in_menu:
            menu.addAction(action)
    return menu
