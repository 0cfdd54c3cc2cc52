"""The report for a bug: versions, machine, model, settings, figures and errors.

It contains nothing personal.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata

from PySide6.QtCore import QLibraryInfo, qVersion
from PySide6.QtGui import QGuiApplication

from app.session.engine import EngineSession
from app.session.event_log import EventLog
from app.settings.settings import Settings
from app.state.engine_choice import EngineChoice
from app.widgets import input_methods
from backend.machines import Hardware, facts
from backend.protocol.statistics import Statistics
from backend.protocol.status import Json
from backend.system import faults
from backend.system.names import without_models, without_names

# The settings that affect behaviour; no paths, no key.
_SETTINGS = {
    *EngineChoice.rules(),
    *("theme", "language", "show_panel", "show_sidebar", "server_on", "server_port"),
    *("width", "height"),
}
_MODEL = (
    "architecture", "n_layer", "n_expert", "n_expert_used", "expert_bytes", "expert_bytes_total",
    "dense_bytes", "file_bytes", "context_length", "is_moe",
)  # fmt: skip


def report(
    engine: EngineSession,
    settings: Settings,
    machine: Hardware | None,
    statistics: Statistics | None,
    log: EventLog,
) -> str:
    """Return the report as plain text, in English for its readers."""
    parts = [
        ("Versions", versions()),
        ("Machine", {**facts.hardware(), **facts.speeds(machine)}),
        ("Window", _window()),
        ("Model", _model(engine)),
        ("Engine settings in force", _cache(engine)),
        ("Settings", {k: v for k, v in settings.to_json().items() if k in _SETTINGS}),
        ("Last answer", _figures(statistics)),
    ]
    text = ""
    for title, values in parts:
        text += f"{title}\n" + "".join(f"  {name}: {value}\n" for name, value in values.items())
    errors = log.errors or ["none"]
    text += "Last errors\n" + "".join(f"  {line}\n" for line in errors)
    text += "Unexpected errors\n" + _indented("\n".join(faults.recent()), 200)
    text += "Engine's last words\n" + _indented(engine.link.last_words)
    text += "Log\n" + "".join(f"  {line}\n" for line in log.lines[-60:])
    models = [engine.path] if engine.path is not None else []
    return without_models(without_names(text, *models), *models)


def versions() -> Json:
    """Return the versions of the software, by name."""
    found: Json = {**facts.versions(), "Qt": qVersion()}
    for name in ("PySide6-Essentials", "numpy", "starlette", "uvicorn", "huggingface_hub"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not found"
    return found


def _window() -> Json:
    screen = QGuiApplication.primaryScreen()
    return {
        "platform": QGuiApplication.platformName(),
        "input method": input_methods.said() or "as the desktop names it",
        "scale": f"{screen.devicePixelRatio():.2f}" if screen is not None else "",
        "Qt build": QLibraryInfo.build(),
    }


def _model(engine: EngineSession) -> Json:
    if engine.model is None:
        return {"state": engine.state.value}
    data = asdict(engine.model)
    return {"state": engine.state.value} | {key: data[key] for key in _MODEL}


def _cache(engine: EngineSession) -> Json:
    return asdict(engine.cache) if engine.cache is not None else {}


def _figures(statistics: Statistics | None) -> Json:
    if statistics is None:
        return {}
    data = asdict(statistics)
    for name in ("tokens", "layers"):
        data.pop(name, None)
    return {
        name: f"{value:.4g}" if isinstance(value, float) else value for name, value in data.items()
    }


def _indented(text: str, n_line: int = 40) -> str:
    lines = text.strip().splitlines()[-n_line:] or ["none"]
    return "".join(f"  {line}\n" for line in lines)
