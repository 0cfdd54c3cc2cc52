"""Open the window, or raise the open one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from app.display import admit_both, why_no_window
from app.store.chats import ChatStore
from app.store.schema import ChatsTaken
from backend import __version__
from backend.system import faults, paths, surroundings
from backend.system.kept_file import keep_private

WAIT_S = 10.0
"""Time for the first window to answer a second start; it may be starting or closing."""


def main(model: Path | None = None) -> int:
    """Open the window, load a model, and run until the window is closed. Return the exit status.

    If a window is open already, raise it, let it load the model, and return.
    model: by default the first argument of the command line, if there is one.
    """
    surroundings.mend()
    if model is None and len(sys.argv) > 1:
        model = _asked_for(sys.argv[1:])
    reason = why_no_window()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    return _run(paths.absolute(model) if model else None)


def _asked_for(words: list[str]) -> Path | None:
    """Return the model that the command line names. Exit after --help, --version or a mistake."""
    if sys.stdout is None or sys.stderr is None:  # on Windows a window has no terminal to write to
        return next((Path(word) for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="outrider-app",
        description="Open the window and load a model. If the window is open, raise it.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "model",
        metavar="MODEL.gguf",
        type=Path,
        nargs="?",
        help="the model to load (default: the last one, or the small one that comes along)",
    )
    parser.add_argument("--version", action="version", version=f"outrider {__version__}")
    model: Path | None = parser.parse_args(words).model
    return model


def _run(model: Path | None) -> int:
    # Qt is imported late, because its import fails without its system libraries.
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.chat import formulas
    from app.session.worker_link import EngineLink
    from app.settings import settings
    from app.text import language
    from app.widgets import icons, input_methods
    from app.window import second_start
    from app.window.main_window import MainWindow
    from backend.protocol.client import worker_command

    admit_both()
    input_methods.choose(os.environ, input_methods.plug_ins())
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("Outrider")
    app.setDesktopFileName("outrider")
    app.setStyle("Fusion")
    app.setWindowIcon(icons.application_icon())
    folder = paths.data_folder()
    keep_private(folder, but=paths.models_folder())
    store = _open_store(folder, model)
    if store is None:
        return 0
    if isinstance(store, ChatsTaken):
        language.apply(app, settings.load(settings.default_path())[0].language)
        _say(second_start.SENTENCE)
        return 1
    starts = second_start.SecondStarts(folder)
    keep_private(settings.default_path().parent)
    language.apply(app, settings.load(settings.default_path())[0].language)
    is_first_start = not settings.default_path().exists()
    window = MainWindow(
        EngineLink(worker_command()), settings.default_path(), store, paths.cache_folder()
    )
    typesetter = formulas.Typesetter(app)
    formulas.use(typesetter)
    app.aboutToQuit.connect(typesetter.close)
    starts.started.connect(window.come_forward)
    window.closing.connect(starts.close)
    app.styleHints().colorSchemeChanged.connect(lambda _: window.preferences.dress())
    faults.watch(window.failed.emit)
    if is_first_start:
        window.suit_screen()
    window.show()
    window.open_first(model)
    # Ctrl+C in the terminal ends the program; the timer lets Python see the signal. Python may see
    # it while the window is painted, which must not be closed then: Qt's Wayland crashes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: QTimer.singleShot(0, window.quit))
    timer = QTimer(app)
    timer.timeout.connect(lambda: None)
    timer.start(250)
    return app.exec()


def _open_store(folder: Path, model: Path | None) -> ChatStore | ChatsTaken | None:
    """Open the chats. If another window has them, raise that window.

    Return None if that window answered, and ChatsTaken if it did not. Retry both for WAIT_S: a
    closing window releases the chats, and a starting one listens soon.
    """
    from app.window.second_start import hand_over  # imports Qt

    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            store = ChatStore.open(folder / "chats.db")
            if store.is_kept or not hand_over(folder, model, WAIT_S):
                return store
            store.close()
            return None
        except ChatsTaken as taken:
            left_s = end_s - time.monotonic()
            if left_s > 0 and hand_over(folder, model, left_s):
                return None
            if left_s <= 0:
                return taken
            time.sleep(min(0.1, left_s))


def _say(sentence: str) -> None:
    """Tell why no window opens: in the terminal, or without one in a box."""
    from PySide6.QtGui import QGuiApplication
    from PySide6.QtWidgets import QMessageBox

    from app.text.messages import localized

    print(sentence, file=sys.stderr)
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not has_terminal and QGuiApplication.platformName() not in ("offscreen", "minimal"):
        QMessageBox.warning(None, "Outrider", localized(sentence))
