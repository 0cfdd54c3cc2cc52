"""What the window remembers between runs: a small JSON file in the user's configuration folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import platformdirs

from app.session.local_server import DEFAULT_PORT
from app.state.engine_choice import EngineChoice
from backend.protocol.settings import EngineConfig
from backend.system.kept_file import KeptFile, an_object
from backend.text import text

DEFAULTS = EngineChoice()
N_RECENT = 8


def default_path() -> Path:
    """Return the settings file of this user."""
    return Path(platformdirs.user_config_dir("outrider", appauthor=False)) / "settings.json"


@dataclass
class Settings:
    """The remembered choices. Paths are strings; an empty one means the embedded model."""

    recent: list[str] = field(default_factory=list)  # newest first
    last_model: str = ""
    automatic: bool = True  # the engine's settings; see EngineChoice
    cache_rate: float = DEFAULTS.cache_rate
    method: str = DEFAULTS.method
    context_length: int = DEFAULTS.context_length
    n_thread: int = DEFAULTS.n_thread
    kv_type: str = DEFAULTS.kv_type
    device: str = DEFAULTS.device
    hybrid: str = DEFAULTS.hybrid
    trusted_devices: list[str] = field(default_factory=list)  # rpc://host:port, once confirmed
    theme: str = "system"
    language: str = "system"
    show_panel: bool = True
    show_sidebar: bool = True
    show_controls: bool = False
    server_on: bool = False
    server_port: int = DEFAULT_PORT
    server_key: str = ""  # made when it is first needed
    page: str = "chat"  # to show at the next start
    open_chat: int = 0  # as well; 0: a new one
    width: int = 1320
    height: int = 840
    geometry: str = ""  # place, size and maximised or not, as Qt writes them, in base64

    @property
    def choice(self) -> EngineChoice:
        """What is asked of the engine."""
        names = (item.name for item in fields(EngineChoice))
        return EngineChoice(**{name: getattr(self, name) for name in names})

    def take_choice(self, choice: EngineChoice) -> None:
        """Remember what is asked of the engine."""
        for item in fields(EngineChoice):
            setattr(self, item.name, getattr(choice, item.name))

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
    return _file(path).save(asdict(settings)) or None


def _checked(data: Any) -> Settings:
    """Return settings from JSON; raises ValueError where a value is of the wrong kind."""
    an_object(data)
    settings = Settings()
    for name, default in asdict(settings).items():
        value = data.get(name, default)
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(default):
            raise ValueError(f"{name} is of the wrong kind")
        setattr(settings, name, value)
    for items in (settings.recent, settings.trusted_devices):
        if not all(isinstance(item, str) for item in items):
            raise ValueError("a list of texts holds something else")
    choice = settings.choice
    EngineConfig(
        cache_rate=choice.cache_rate,
        method=choice.method,
        context_length=choice.context_length,
        n_thread=choice.n_thread,
        kv_type=choice.kv_type,
        device=choice.device,
        hybrid=choice.hybrid,
    )
    if settings.theme not in ("system", "light", "dark"):
        raise ValueError("the theme is unknown")
    if settings.language not in ("system", "en", "de"):
        raise ValueError("the language is unknown")
    if not 0 <= settings.server_port <= 65535:
        raise ValueError("the server's port is not one")
    if not 0 <= settings.open_chat:
        raise ValueError("there is no such chat")
    settings.recent = settings.recent[:N_RECENT]
    settings.width = min(max(settings.width, 480), 10_000)
    settings.height = min(max(settings.height, 360), 10_000)
    return settings


def _file(path: Path) -> KeptFile:
    return KeptFile(path, text("settings.file"), text("kept.defaults_used"))
