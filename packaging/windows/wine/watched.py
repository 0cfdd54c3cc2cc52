"""Runs the window, and keeps a file of its visible texts and their places for window.py.

python.exe watched.py FILE
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
FILE = Path(sys.argv[1])
sys.stdout = sys.stderr = FILE.with_suffix(".log").open("w", encoding="utf-8", buffering=1)
faulthandler.enable(sys.stderr)

from PySide6.QtCore import QPoint, QTimer  # noqa: E402
from PySide6.QtWidgets import QApplication, QWidget  # noqa: E402

from app.main import main  # noqa: E402
from app.window.main_window import MainWindow  # noqa: E402


def place(widget: QWidget) -> list[int]:
    """Return x, y, width and height in pixels of the screen."""
    corner, ratio = widget.mapToGlobal(QPoint(0, 0)), widget.devicePixelRatioF()
    values = corner.x(), corner.y(), widget.width(), widget.height()
    return [round(value * ratio) for value in values]


def told(window: MainWindow) -> dict[str, Any]:
    """Return what the window shows."""
    bar, engine = window.top_bar, window.engine
    slider = bar.rate.slider
    seen: dict[str, QWidget] = {
        "input": window.chat.composer.input, "manual": bar.mode.manual, "slider": slider,
        "map": window.panel.map,
    }  # fmt: skip
    return {
        "places": {name: place(widget) for name, widget in seen.items() if widget.isVisible()},
        "is_front": window.isActiveWindow() and not window.isMinimized(),
        "is_minimised": window.isMinimized(),
        "state": engine.state.value,
        "model": str(engine.path or ""),
        "n_slot": engine.cache.n_slot if engine.cache else 0,
        "slider": [slider.minimum(), slider.value(), slider.maximum()],
        "rate": bar.rate.asked.text(),
        "input": window.chat.composer.input.toPlainText(),
        "dialogs": [w.windowTitle() for w in QApplication.topLevelWidgets() if w.isModal()],
        "answers": [
            message.content
            for message in window.session.conversation.messages
            if message.role == "assistant"
        ],
    }


def tell() -> None:
    """Write the file whole."""
    for window in QApplication.topLevelWidgets():
        if isinstance(window, MainWindow) and window.isVisible():
            part = FILE.with_suffix(".part")
            part.write_text(json.dumps(told(window)), "utf-8")
            os.replace(part, FILE)


application = QApplication(sys.argv[:1])
timer = QTimer(application)
timer.timeout.connect(tell)
timer.start(100)
sys.argv = sys.argv[:1]
sys.exit(main())
