"""Takes the pictures of the window, of a real answer.

    python docs/images/make.py              window.png, which the documents show
    python docs/images/make.py --all FOLDER every view, dark and light, at 1x and 2x, to look at

Needs no screen. Nothing in the pictures is made up, so that another run says something else: an
answer at its end, with what the simulator says of it; the same looked back over; the models.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np  # noqa: E402
from PySide6.QtCore import QEventLoop, Qt, QTimer  # noqa: E402
from PySide6.QtGui import QImage  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

from app import language, theme  # noqa: E402
from app.engine.expert_map import View  # noqa: E402
from app.main_window import MainWindow  # noqa: E402
from app.state import State  # noqa: E402
from app.theme import Choice  # noqa: E402
from backend.client import worker_command  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402

QUESTION = "Tell me a story about a soldier and the sea."
SIZE = 1280, 880
N_COLOUR = 16
MEANINGS = ("text", "absent", "resident", "arriving", "hit", "late", "stall", "compute", "other")
WAIT_MS = 120_000


def main() -> int:
    """Take one picture, or all of them in a process for each resolution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, default=embedded_model())
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.all is None or "QT_SCALE_FACTOR" in os.environ:
        return take(arguments)
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
    language.apply(app, "en")
    with tempfile.TemporaryDirectory() as folder:
        window = MainWindow(worker_command(), Path(folder) / "settings.json")
        window.resize(*SIZE)
        window.show()
        window.session.asked = replace(window.session.asked, n_thread=arguments.threads)
        window.open_model(arguments.model)
        wait_for(lambda: window.session.state is State.IDLE)
        advised: list[object] = []
        window.link.advice.connect(advised.append)
        window.session.send(arguments.question)
        wait_for(lambda: window.session.state is State.ANSWERING)
        wait_for(lambda: window.session.state is State.IDLE)
        wait_for(lambda: bool(advised))
        if arguments.all is None:
            window.preferences.set_theme(Choice.DARK)
            save(grab(window), HERE / "window.png")
        else:
            for choice in (Choice.DARK, Choice.LIGHT):
                window.preferences.set_theme(choice)
                for name, picture in views(window):
                    file = f"{name}-{choice.value}-{arguments.scale}x.png"
                    picture.save(str(arguments.all / file))
        window.close()
    return 0


def views(window: MainWindow) -> Iterator[tuple[str, QImage]]:
    """Every view by its name."""
    panel = window.panel
    yield "window", grab(window)
    panel.choose(panel.moments.n_token // 3)
    panel.show_view(View.USE)
    panel.map.setFocus()
    yield "looking-back", grab(window)
    panel.choose(None)
    panel.show_view(View.STATE)
    for action in window.actions():
        if action.shortcut().toString() == "Ctrl+M":
            action.trigger()
    yield "models", grab(window)
    window.show_chat()


def grab(window: MainWindow) -> QImage:
    """What the window shows, as soon as it has settled."""
    pause(300)
    return window.grab().toImage()


def save(picture: QImage, path: Path) -> None:
    """Write a picture in few colours: those with a meaning, and the most frequent others."""
    plain = picture.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(plain.constBits(), "<u4").copy()
    values, counts = np.unique(pixels, return_counts=True)
    table = list(dict.fromkeys(theme.colour(name).rgb() for name in MEANINGS))
    frequent = (int(c) for c in values[np.argsort(-counts, kind="stable")])
    table += [colour for colour in frequent if colour not in table][: N_COLOUR - len(table)]
    flags = Qt.ImageConversionFlag.ThresholdDither | Qt.ImageConversionFlag.AvoidDither
    plain.convertToFormat(QImage.Format.Format_Indexed8, table, flags).save(str(path), "PNG", 0)


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
