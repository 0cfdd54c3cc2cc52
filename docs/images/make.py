"""Takes the pictures of the window that the documents show, of a real answer.

    python docs/images/make.py [--scale 2] [--out FOLDER] [--model MODEL] [--question QUESTION]

Needs no screen. Each picture is the end of one answer, with what the simulator says of it, dark and
light; nothing in it is made up, so that another run says something else. Pictures at twice the
resolution (--scale 2) are for looking at: the documents show the plain ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
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
    """Ask, wait for the answer and its advice, and take both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--model", type=Path, default=embedded_model())
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["QT_SCALE_FACTOR"] = str(arguments.scale)
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
        for choice, name in ((Choice.DARK, "window"), (Choice.LIGHT, "window-light")):
            window.preferences.set_theme(choice)
            advised.clear()
            window.session.new_chat()
            window.session.notice.emit(None)
            window.session.send(arguments.question)
            wait_for(lambda: window.session.state is State.ANSWERING)
            wait_for(lambda: window.session.state is State.IDLE)
            wait_for(lambda: bool(advised))
            suffix = f"-{arguments.scale:g}x" if arguments.scale != 1 else ""
            save(window.grab().toImage(), arguments.out / f"{name}{suffix}.png")
        window.close()
    return 0


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
