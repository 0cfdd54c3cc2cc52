"""Opens the window."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from app.display import why_no_window


def main(model: Path | None = None) -> int:
    """Open the window, load a model, and stay until it is closed. Returns the exit status.

    Without a model it is the first word of the command line, if there is one.
    """
    if model is None and len(sys.argv) > 1:
        model = Path(sys.argv[1])
    reason = why_no_window()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    return _run(model)


def _run(model: Path | None) -> int:
    # Qt is imported late: importing it fails where system libraries are missing.
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app import icons, language, settings
    from app.main_window import MainWindow
    from backend.client import worker_command
    from backend.system import paths

    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("Outrider")
    app.setDesktopFileName("outrider")
    app.setStyle("Fusion")
    app.setWindowIcon(icons.application_icon())
    language.apply(app, settings.load(settings.default_path())[0].language)
    window = MainWindow(
        worker_command(),
        settings.default_path(),
        paths.data_folder() / "chats.db",
        paths.cache_folder(),
    )
    app.styleHints().colorSchemeChanged.connect(lambda _: window.preferences.dress())
    window.show()
    window.open_first(model.resolve() if model else None)
    # Ctrl+C in the terminal closes the window; the timer lets Python see the signal.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: window.close())
    timer = QTimer(app)
    timer.timeout.connect(lambda: None)
    timer.start(250)
    return app.exec()
