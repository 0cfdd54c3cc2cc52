"""Keeps the settings: writes them when something was chosen, and dresses the window by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication

from app.session import known_models as models
from app.session.local_server import LocalServer
from app.settings import settings
from app.settings.settings import Settings
from app.state.engine_choice import EngineChoice
from app.state.preset import NamedPreset
from app.widgets import theme

_LOOKS = ("theme", "high_contrast", "text_percent")


class Preferences(QObject):
    """The settings of this user, in a file.

    Signals:
        trouble: one sentence; they could not be written. Said once.
        restyling: all widgets are about to be styled again.
    """

    trouble = Signal(object)
    restyling = Signal()

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self.values, self.remark = settings.load(path)
        self._failed = False

    def set(self, name: str, value: object) -> None:
        """Set a value of Settings by its name, and remember it. A look is applied at once."""
        setattr(self.values, name, value)
        self.save()
        if name in _LOOKS:
            self.dress()

    def choose_theme(self) -> None:
        """Set the colours and the font before widgets are made; dress() styles them."""
        theme.choose(*self._look())

    def dress(self) -> None:
        """Give the application the colours that are set."""
        theme.apply(*self._look(), before=self.restyling.emit)

    def _look(self) -> tuple[QApplication, theme.Choice, bool, int]:
        app, values = QApplication.instance(), self.values
        assert isinstance(app, QApplication)
        return app, theme.Choice(values.theme), values.high_contrast, values.text_percent

    def take_choices(self, usual: EngineChoice, own: dict[str, dict[str, Any]]) -> None:
        """Remember the settings of the engine, the usual ones and those of single models."""
        if (usual, own) != (self.values.engine, self.values.models):
            self.values.engine = usual
            self.values.models = {path: dict(item) for path, item in own.items()}
            self.save()

    def take_presets(self, presets: list[NamedPreset]) -> None:
        """Remember the user's own presets."""
        self.values.presets = [preset.to_json() for preset in presets]
        self.save()

    def take_server(self, server: LocalServer) -> None:
        """Remember whether the local server is wanted, and how."""
        if server.choice != self.values.server:
            self.values.server = server.choice
            self.save()

    def remember_model(self, path: Path) -> None:
        """Remember a model that was loaded."""
        if models.is_embedded(path):
            self.values.last_model = ""
        else:
            self.values.last_model = str(path)
            self.values.remember(path)
        self.save()

    def reset(self) -> None:
        """All settings back to the beginning; which models were used is not one of them."""
        fresh, kept = Settings(), self.values
        for name in ("recent", "last_model", "open_chat", "width", "height", "geometry"):
            setattr(fresh, name, getattr(kept, name))
        vars(kept).update(vars(fresh))
        self.save()
        self.dress()

    def save(self) -> None:
        """Write the file."""
        trouble = settings.save(self.values, self.path)
        if trouble and not self._failed:
            self._failed = True
            self.trouble.emit(trouble)
