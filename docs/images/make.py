"""Takes the pictures of the window, of a real answer.

    python docs/images/make.py                   those that the documents show
    python docs/images/make.py --models FOLDER   also that of the library, with these models
    python docs/images/make.py --all FOLDER      every view, in both themes, at 1x and 2x

It needs no screen. The window, the engine and the answers are real, so each run shows other figures
and another story. `--language de` shows the window in German.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
SCREEN = {"name": "screen", "x": 0, "y": 0, "width": 3840, "height": 2160, "logicalDpi": 96}
if "QT_QPA_PLATFORM" not in os.environ:  # its own screen of 800 pixels is too small for the panel
    _screen = Path(tempfile.gettempdir(), f"outrider-screen-{os.getuid()}.json")
    _screen.write_text(json.dumps({"screens": [SCREEN]}), encoding="utf-8")
    os.environ["QT_QPA_PLATFORM"] = f"offscreen:configfile={_screen}"

import numpy as np  # noqa: E402
from PySide6.QtCore import QEventLoop, Qt, QTimer  # noqa: E402
from PySide6.QtGui import QImage  # noqa: E402
from PySide6.QtWidgets import QApplication, QWidget  # noqa: E402

from app.chat.preset_dialog import PresetDialog  # noqa: E402
from app.panel.expert_map import View  # noqa: E402
from app.session.worker_link import EngineLink  # noqa: E402
from app.state.conversation import Conversation, Message  # noqa: E402
from app.state.engine_state import State  # noqa: E402
from app.text import language  # noqa: E402
from app.widgets import theme  # noqa: E402
from app.widgets.theme import Choice  # noqa: E402
from app.window.main_window import MainWindow  # noqa: E402
from backend import machines  # noqa: E402
from backend.protocol.chat import ChatFacts, ToolCall  # noqa: E402
from backend.protocol.client import worker_command  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402
from backend.tools.settings import Server  # noqa: E402
from backend.tools.tool import Tool  # noqa: E402

QUESTION = "Tell me a story about a soldier and the sea."
ASKED = "Why does the sky turn red in the evening?"
THOUGHTFUL = Message(
    "assistant",
    "In the evening, sunlight takes a **longer path** through the air. Blue light is scattered "
    "away on that path, so mostly red light is left.\n\n"
    "- At noon the path is short, and the sky is blue.\n"
    "- Dust and smoke make the red stronger.",
    reasoning="The path through the air is what matters.",
    thought_s=11.6,
)
WANTED = "What did I want to do in November?"
CALL = ToolCall("call00001", "files__read_text_file", '{"path": "notes/2026-11.md", "head": 40}')
SIZE = 1280, 880
NARROW = 560, 600
PAGES = {"models": "Ctrl+M", "settings": "Ctrl+,", "diagnostics": "Ctrl+D", "shortcuts": "F1"}
N_COLOUR = 32
MEANINGS = (
    "text",
    "muted",
    "faint",
    "absent",
    "resident",
    "arriving",
    "hit",
    "late",
    "stall",
    "processor",
    "compute",
    "other",
    "dense",
    "accent",
)
WAIT_MS = 120_000


def main() -> int:
    """Take the pictures, in a process for each resolution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    parser.add_argument("--models", type=Path, metavar="FOLDER")
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, default=embedded_model())
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--language", default="en")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--hybrid", default="off")
    arguments = parser.parse_args()
    if "QT_SCALE_FACTOR" in os.environ:
        return take(arguments)
    if arguments.all is not None:
        arguments.all.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, *sys.argv[1:]]
    for scale in (1, 2):
        environment = {**os.environ, "QT_SCALE_FACTOR": str(scale)}
        subprocess.run([*command, "--scale", str(scale)], env=environment, check=True)
    return 0


def take(arguments: argparse.Namespace) -> int:
    """Ask, wait for the answer and its advice, and take the pictures."""
    app = QApplication([])
    app.setStyle("Fusion")
    language.apply(app, arguments.language)
    with tempfile.TemporaryDirectory() as folder:
        window = MainWindow(EngineLink(worker_command()), Path(folder) / "settings.json")
        window.resize(*SIZE)
        window.show()
        window.engine.asked = replace(
            window.engine.asked,
            n_thread=arguments.threads,
            device=arguments.device,
            hybrid=arguments.hybrid,
        )
        window.open_model(arguments.model)
        wait_for(lambda: window.engine.state is State.IDLE)
        if arguments.all is not None:
            take_all(window, welcome, arguments)
        elif arguments.scale == 1:
            window.preferences.set("theme", "light")
            save(grab(window), "start")
        advised: list[object] = []
        window.link.advice.connect(advised.append)
        ask(window, arguments.question)
        wait_for(lambda: window.engine.state is State.IDLE)
        wait_for(lambda: bool(advised))
        if arguments.all is not None:
            take_all(window, views, arguments)
        elif arguments.scale == 1:
            take_documented(window, arguments)
        else:
            take_panel(window)
        window.close()
    return 0


Views = Iterator[tuple[str, QImage]]


def take_documented(window: MainWindow, arguments: argparse.Namespace) -> None:
    """Write the pictures of README.md and docs/guide.md, but for the first and for the panel."""
    window.preferences.set("theme", "dark")
    save(grab(window), "window")
    press(window, "Ctrl+Shift+E")
    save(grab(window), "panel-wide")
    press(window, "Ctrl+Shift+E")
    window.preferences.set("theme", "light")
    take_controls(window)
    take_branches(window, arguments.question)
    take_thought(window)
    take_tools(window)
    take_get(window)
    if arguments.models is not None:
        take_models(window, arguments.models)
    press(window, "Ctrl+,")
    save(grab(window), "settings")
    window.show_chat()
    take_failure(window)


def take_panel(window: MainWindow) -> None:
    """Write the panel alone, as it is now, and as it was at a token in the middle."""
    window.preferences.set("theme", "light")
    save(grab(window.panel), "panel")
    window.panel.choose(window.panel.moments.n_token // 3)
    window.panel.show_view(View.USE)
    save(grab(window.panel), "panel-back")


def take_controls(window: MainWindow) -> None:
    """Write the top of the window with the settings by hand."""
    window.controls.choose_automatic(False)
    wait_for(lambda: window.engine.state is State.IDLE)
    press(window, "Ctrl+K")
    picture = grab(window)
    save(picture.copy(0, 0, picture.width(), 178), "controls")
    press(window, "Ctrl+K")
    window.controls.choose_automatic(True)
    wait_for(lambda: window.engine.state is State.IDLE)


def take_branches(window: MainWindow, question: str) -> None:
    """Write a chat whose first answer has another version, and whose second was stopped."""
    window.session.regenerate(1)
    wait_for(lambda: window.engine.state is State.ANSWERING)
    wait_for(lambda: window.engine.state is State.IDLE)
    ask(window, question.replace("a soldier and the sea", "a fox"))
    wait_for(lambda: len(window.session.conversation.messages[-1].content) > 120)
    press(window, "Esc")
    wait_for(lambda: window.engine.state is State.IDLE)
    save(grab(window.chat), "branches")


def take_thought(window: MainWindow) -> None:
    """Write a thought folded above an answer, made up: the embedded model does not think."""
    model, shown = window.engine.model, window.session.conversation
    assert model is not None
    window.engine.model = replace(model, chat=ChatFacts("switch", True, ("low", "medium", "high")))
    window.session.show(Conversation([Message("user", ASKED), THOUGHTFUL]))
    window.resize(SIZE[0], 520)
    save(grab(window.chat), "thought")
    window.resize(*SIZE)
    window.engine.model = model
    window.session.show(shown)


def take_tools(window: MainWindow) -> None:
    """Write a tool call that asks, made up: the embedded model calls none."""
    servers, model, shown = window.calls.servers, window.engine.model, window.session.conversation
    assert model is not None
    window.engine.model = replace(model, chat=ChatFacts("switch", tools=True))
    servers.put(Server("files", "sleep", ("600",), is_on=True))
    tool = Tool.read("files", "read_text_file", "Read a file.", {"type": "object"})
    servers.host.told.emit(
        {"type": "server", "server": "files", "state": "ready", "sentence": "", "last_words": "",
         "tools": [tool.to_json()]}
    )  # fmt: skip
    answer = Message("assistant", "I look into your notes first.", tool_calls=[CALL])
    conversation = Conversation([Message("user", WANTED), answer])
    window.session.show(conversation)
    window.calls.take(conversation, answer)
    window.resize(SIZE[0], 580)
    pause(200)
    save(grab(window.chat), "tools")
    window.resize(*SIZE)
    window.calls.stop(conversation)
    servers.remove("files")
    window.engine.model = model
    window.session.show(shown)


def take_get(window: MainWindow) -> None:
    """Write the curated list with the speeds to expect on a laptop with an SSD."""
    window.resize(SIZE[0], 800)
    press(window, "Ctrl+G")
    pause(1000)
    window.library.library.machine = machines.load("laptop-ssd")
    window.library.library.changed.emit()
    pause(500)
    save(grab(window), "get")
    window.show_chat()
    window.resize(*SIZE)


def take_models(window: MainWindow, folder: Path) -> None:
    """Write the library with the models of a folder, the largest one picked."""
    library = window.library
    library.library.measure()  # no speeds are forecast while other programs compute
    wait_for(lambda: not library.library.is_measuring)
    library.library.add_folder(folder)
    press(window, "Ctrl+M")
    n_model = len(list(folder.glob("*.gguf")))
    wait_for(lambda: len(library.view.shown) > n_model)
    largest = max(folder.glob("*.gguf"), key=lambda path: path.stat().st_size)
    library.view.pick(largest)
    pause(1000)
    window.resize(SIZE[0], 640)
    save(grab(window), "models")
    window.resize(*SIZE)
    window.show_chat()
    library.library.remove_folder(folder)


def take_failure(window: MainWindow) -> None:
    """Write what is seen when the engine is killed in the middle of an answer."""
    window.resize(SIZE[0], 560)
    window.session.new_chat()
    ask(window, QUESTION)
    wait_for(lambda: len(window.session.conversation.messages[-1].content) > 120)
    os.kill(window.link.pid, signal.SIGKILL)
    wait_for(lambda: window.engine.state is State.DEAD)
    save(grab(window.chat), "failure")


def ask(window: MainWindow, question: str) -> None:
    """Send a question and wait for the beginning of its answer."""
    window.session.send(question)
    wait_for(lambda: window.engine.state is State.ANSWERING)


def take_all(
    window: MainWindow, views: Callable[[MainWindow], Views], arguments: argparse.Namespace
) -> None:
    """Write these views in both themes."""
    for choice in (Choice.DARK, Choice.LIGHT):
        window.preferences.set("theme", choice.value)
        for name, picture in views(window):
            picture.save(str(arguments.all / f"{name}-{choice.value}-{arguments.scale}x.png"))


def welcome(window: MainWindow) -> Views:
    """What is seen before anything was said."""
    yield "welcome", grab(window)
    press(window, "Ctrl+G")
    yield "get", grab(window)
    window.show_chat()


def views(window: MainWindow) -> Views:
    """Every view of an answer, and every page, by its name."""
    panel = window.panel
    yield "window", grab(window)
    panel.choose(panel.moments.n_token // 3)
    panel.show_view(View.USE)
    panel.map.setFocus()
    yield "looking-back", grab(window)
    panel.choose(None)
    panel.show_view(View.STATE)
    for name, keys in PAGES.items():
        press(window, keys)
        yield name, grab(window)
    window.pages.go("about")
    yield "about", grab(window)
    window.show_chat()
    yield from controls(window)
    yield from narrow(window)


def controls(window: MainWindow) -> Views:
    """The engine's settings by hand, and the dialogs."""
    automatic = window.engine.asked.automatic
    window.controls.choose_automatic(False)
    wait_for(lambda: window.engine.state is State.IDLE)
    press(window, "Ctrl+K")
    yield "controls", grab(window)
    press(window, "Ctrl+K")
    window.controls.choose_automatic(automatic)
    preset = PresetDialog(window.session.preset, "outrider-tiny", False, window)
    for name, dialog in (("preset", preset), ("another-machine", window.controls.ask_remote())):
        dialog.show()
        yield name, grab(dialog)
        dialog.reject()
    wait_for(lambda: window.engine.state is State.IDLE)


def narrow(window: MainWindow) -> Views:
    """A window with room for the chat or the panel, not for both."""
    window.resize(*NARROW)
    yield "narrow", grab(window)
    press(window, "Ctrl+E")
    yield "narrow-panel", grab(window)
    press(window, "Ctrl+E")
    window.resize(*SIZE)


def press(window: MainWindow, keys: str) -> None:
    """Do what keys do."""
    for action in window.actions():
        if action.shortcut().toString() == keys:
            action.trigger()


def grab(window: QWidget) -> QImage:
    """What a window shows, as soon as it has settled."""
    pause(300)
    return window.grab().toImage()


def save(picture: QImage, name: str) -> None:
    """Write a picture of the documents, in few colours: those with a meaning, and frequent ones."""
    plain = picture.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(plain.constBits(), "<u4").copy()
    values, counts = np.unique(pixels, return_counts=True)
    table = list(dict.fromkeys(theme.colour(name).rgb() for name in MEANINGS))
    frequent = (int(c) for c in values[np.argsort(-counts, kind="stable")])
    table += [colour for colour in frequent if colour not in table][: N_COLOUR - len(table)]
    flags = Qt.ImageConversionFlag.ThresholdDither | Qt.ImageConversionFlag.AvoidDither
    few = plain.convertToFormat(QImage.Format.Format_Indexed8, table, flags)
    few.save(str(HERE / f"{name}.png"), "PNG", 0)


def wait_for(condition: Callable[[], bool]) -> None:
    """Let the window live until something is so; give up after WAIT_MS."""
    for _ in range(WAIT_MS // 5):
        if condition():
            return
        pause(5)
    raise SystemExit("The window did not get so far.")


def pause(time_ms: int) -> None:
    """Let the window live for a while."""
    loop = QEventLoop()
    QTimer.singleShot(time_ms, loop.quit)
    loop.exec()


if __name__ == "__main__":
    sys.exit(main())
