"""Takes the pictures of the window that the documents show, of a real answer.

    python docs/images/make.py [MODEL] [QUESTION]

Without a model it is the embedded one. Needs no screen. Each picture is one moment of one answer,
dark and light; nothing in it is made up, so that another run says something else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np  # noqa: E402
from PySide6.QtCore import QEventLoop, Qt, QTimer  # noqa: E402
from PySide6.QtGui import QImage  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

from app.main_window import MainWindow  # noqa: E402
from app.state import State  # noqa: E402
from app.theme import Choice  # noqa: E402
from backend.client import worker_command  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402

QUESTION = "Tell me a story about a soldier and the sea."
N_CHAR = 250  # of the answer are on the picture
WAIT_MS = 120_000


def main() -> int:
    """Ask, wait for some of the answer, and take both pictures."""
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else embedded_model()
    question = sys.argv[2] if len(sys.argv) > 2 else QUESTION
    app = QApplication([])
    app.setStyle("Fusion")
    with tempfile.TemporaryDirectory() as folder:
        window = MainWindow(worker_command(), Path(folder) / "settings.json")
        window.resize(1440, 900)
        window.show()
        window.open_model(model)
        wait_for(lambda: window.session.state is State.IDLE)
        for choice, name in ((Choice.DARK, "window.png"), (Choice.LIGHT, "window-light.png")):
            window.preferences.set_theme(choice)
            window.session.new_chat()
            window.session.notice.emit(None)
            window.session.send(question)
            wait_for(lambda: has_enough(window))
            pause(100)
            save(window.grab().toImage(), HERE / name)
            window.session.stop()
            wait_for(lambda: window.session.state is State.IDLE)
        window.close()
    return 0


def save(picture: QImage, path: Path) -> None:
    """Write a picture with a palette of its 256 most frequent colours: a third of the size."""
    plain = picture.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(plain.constBits(), "<u4").copy()
    colours, counts = np.unique(pixels, return_counts=True)
    table = [int(c) for c in colours[np.argsort(-counts, kind="stable")[:256]]]
    flags = Qt.ImageConversionFlag.ThresholdDither | Qt.ImageConversionFlag.AvoidDither
    plain.convertToFormat(QImage.Format.Format_Indexed8, table, flags).save(str(path), "PNG", 0)


def has_enough(window: MainWindow) -> bool:
    """Whether so much was said, or the answer is over."""
    last = window.session.conversation.last
    assert last is not None
    return len(last.content) >= N_CHAR or window.session.state is not State.ANSWERING


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
