"""The window's settings between runs: a small JSON file in the user's configuration folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from app.session.known_models import embedded_model
from app.session.local_server import DEFAULT_PORT, MINUTES_MAX, ServerChoice
from app.state.engine_choice import EngineChoice
from app.state.preset import NamedPreset
from backend.system.kept_file import KeptFile, an_object
from backend.text import text

N_RECENT = 8
_N_MODEL_MAX = 500


def default_path() -> Path:
    """Return the settings file of this user."""
    return Path(platformdirs.user_config_dir("outrider", appauthor=False)) / "settings.json"


@dataclass
class Settings:
    """The remembered choices. Paths are strings; an empty one means the embedded model."""

    recent: list[str] = field(default_factory=list)  # newest first
    last_model: str = ""
    engine: EngineChoice = field(default_factory=lambda: EngineChoice())  # without its own
    presets: list[dict[str, Any]] = field(default_factory=list)  # see NamedPreset
    models: dict[str, dict[str, Any]] = field(default_factory=dict)  # with its own, by path
    trusted_devices: list[str] = field(default_factory=list)  # rpc://host:port, once confirmed
    notify: bool = True  # when an answer is ready and the window is not active
    tray: bool = False  # a closed window stays in the tray
    titles: bool = True  # an idle model writes the titles of new chats
    theme: str = "system"
    high_contrast: bool = False
    text_percent: int = 100  # of the system's size
    language: str = "system"
    show_panel: bool = True
    show_sidebar: bool = True
    show_controls: bool = False
    show_counters: bool = False  # of the panel
    hint_read: bool = False  # about the first answer
    sidebar_width: int = 0  # in pixels; 0: as the window decides
    panel_width: int = 0  # as well
    server_on: bool = False
    server_port: int = DEFAULT_PORT
    server_key: str = ""  # made when it is first needed
    server_loads_models: bool = False
    server_unload_min: int = 0
    server_embedding_model: str = ""  # a file
    server_is_open: bool = False
    server_origins: str = ""
    open_chat: int = 0  # as well; 0: a new one
    width: int = 1320
    height: int = 840
    geometry: str = ""  # place, size and maximised or not, as Qt writes them, in base64

    @property
    def server(self) -> ServerChoice:
        """Return the settings of the local server."""
        names = [item.name for item in fields(ServerChoice)]
        return ServerChoice(**{name: getattr(self, f"server_{name}") for name in names})

    @server.setter
    def server(self, choice: ServerChoice) -> None:
        for name, value in asdict(choice).items():
            setattr(self, f"server_{name}", value)

    def to_json(self) -> dict[str, Any]:
        """Return the file's contents. The engine's settings stand beside the others."""
        values = asdict(self)
        del values["engine"]
        return {**self.engine.to_json(), **values}

    def remember(self, path: Path) -> None:
        """Put a model at the head of the recent ones."""
        text = str(path)
        self.recent = [text, *(item for item in self.recent if item != text)][:N_RECENT]


def load(path: Path) -> tuple[Settings, str | None]:
    """Read the file.

    Returns the settings and, where the file could not be used, one sentence that says so. A file
    that is not valid is kept under another name, and defaults are returned.
    """
    loaded, sentence = _file(path).load(_checked, Settings())
    return loaded, sentence or None


def save(settings: Settings, path: Path) -> str | None:
    """Write the file whole or not at all. Returns one sentence when that fails."""
    return _file(path).save(settings.to_json()) or None


def _checked(data: Any) -> Settings:
    """Return settings from JSON; raises ValueError where a value is of the wrong kind."""
    an_object(data)
    settings = Settings(engine=EngineChoice.from_message(data))
    for name in data.keys() & vars(settings).keys() - {"engine"}:
        if type(data[name]) is not type(getattr(settings, name)):
            raise ValueError(f"{name} is of the wrong kind")
        setattr(settings, name, data[name])
    for items in (settings.recent, settings.trusted_devices):
        if not all(isinstance(item, str) for item in items):
            raise ValueError("a list of texts holds something else")
    if settings.theme not in ("system", "light", "dark"):
        raise ValueError("the theme is unknown")
    if not 50 <= settings.text_percent <= 300:
        raise ValueError("the size of text is impossible")
    if settings.language not in ("system", "en", "de"):
        raise ValueError("the language is unknown")
    if not 0 <= settings.server_port <= 65535:
        raise ValueError("the server's port is not one")
    if not 0 <= settings.server_unload_min <= MINUTES_MAX:
        raise ValueError("the server cannot wait that long")
    if not (0 <= settings.sidebar_width <= 10_000 and 0 <= settings.panel_width <= 10_000):
        raise ValueError("a width is impossible")
    if settings.open_chat < 0:
        raise ValueError("there is no such chat")
    settings.models = {
        path: EngineChoice.from_message(an_object(own)).of_model()
        for path, own in list(settings.models.items())[-_N_MODEL_MAX:]
    }
    if "models" not in data and not settings.engine.automatic:  # older: one choice for all models
        model = settings.last_model or str(embedded_model())
        settings.models = {model: settings.engine.of_model()}
        settings.engine = replace(settings.engine, **EngineChoice().of_model())
    settings.presets = [NamedPreset.from_json(item).to_json() for item in settings.presets]
    settings.recent = settings.recent[:N_RECENT]
    settings.width = min(max(settings.width, 480), 10_000)
    settings.height = min(max(settings.height, 360), 10_000)
    return settings


def _file(path: Path) -> KeptFile:
    return KeptFile(path, text("settings.file"), text("kept.defaults_used"))
