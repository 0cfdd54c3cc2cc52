"""Start the application as a user does, with a fake engine, and print its state.

    python start_child.py WAIT_S [MODEL]

Print a line of JSON when the window changes: whether it is minimised, its model, and its stored
chats. A line on standard input is a command: "minimise", "chat", "terminate" or "close".
"terminate" sends the signal while the window is painted, and prints whether it is visible after. A
window that is closed would then stay in the tray.
"""

import json
import os
import signal
import sys
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"
sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from PySide6.QtCore import QObject, QSocketNotifier, QTimer  # noqa: E402
from PySide6.QtGui import QPaintEvent  # noqa: E402
from PySide6.QtWidgets import QApplication, QWidget  # noqa: E402

import app.main  # noqa: E402
import app.session.known_models  # noqa: E402
import backend.protocol.client  # noqa: E402
from app.window.main_window import MainWindow  # noqa: E402
from app.window.presence import Presence  # noqa: E402

FAKE_WORKER = [sys.executable, str(Path(__file__).parents[1] / "fake_worker.py")]
app.session.known_models.embedded_model = lambda: None
backend.protocol.client.worker_command = lambda: FAKE_WORKER
app.main.WAIT_S = float(sys.argv[1])


class Terminating(QWidget):
    """Sends SIGTERM to this process while it is painted, once."""

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.objectName() == "":
            self.setObjectName("painted")
            signal.raise_signal(signal.SIGTERM)
            print(json.dumps({"is_visible": self.window().isVisible()}), flush=True)


class Watch(QObject):
    """Reports changes of the window."""

    def __init__(self) -> None:
        super().__init__()
        self._told = ""
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.tell)
        self._timer.start(20)
        self._notifier = QSocketNotifier(0, QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self.obey)

    def window(self) -> MainWindow | None:
        windows = (w for w in QApplication.topLevelWidgets() if isinstance(w, MainWindow))
        return next(windows, None)

    def tell(self) -> None:
        window = self.window()
        if window is None or not window.isVisible():
            return
        path = window.engine.path
        line = json.dumps(
            {
                "minimised": window.isMinimized(),
                "model": str(path) if path else "",
                "chats": [row.title for row in window.chats.rows()],
                "kept": window.chats.store.is_kept,
            }
        )
        if line != self._told:
            self._told = line
            print(line, flush=True)

    def obey(self) -> None:
        order = sys.stdin.readline().strip()
        window = self.window()
        if window is None:
            return
        if order == "minimise":
            window.showMinimized()
        elif order == "chat":
            window.chats.store.new_chat("a chat")
            window.chats._list_changed()
        elif order == "terminate":
            self._timer.stop()
            Presence.stays = property(lambda _: True)
            terminating = Terminating(window)
            terminating.resize(8, 8)
            terminating.show()
        else:
            self._notifier.setEnabled(False)
            window.close()


qt = QApplication(sys.argv[:1])
watch = Watch()
sys.exit(app.main.main(Path(sys.argv[2]) if len(sys.argv) > 2 else None))
