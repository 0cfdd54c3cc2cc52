"""Where this application keeps its files, and where the model that comes with it lies."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs

_NAME = "outrider"
_EMBEDDED = Path("assets") / "embedded" / "outrider-tiny.gguf"


def is_file(path: Path) -> bool:
    """Whether a regular file is there and can be reached. Raises nothing.

    Path.is_file() raises OSError where a drive fails, a folder is forbidden or a name is too long.
    """
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether a folder is there and can be reached. Raises nothing."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Whether anything is there and can be reached. Raises nothing."""
    return _mode(path) != 0


def absolute(path: Path) -> Path:
    """Return a path from the root, without links where they can be followed. Raises nothing."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a working folder that is gone
        return path


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return 0


def data_folder() -> Path:
    """Folder for what must not be lost: chats, settings, history. Not made here."""
    return Path(platformdirs.user_data_dir(_NAME, appauthor=False))


def models_folder() -> Path:
    """Folder that downloads go to, until the user names another. Not made here."""
    return data_folder() / "models"


def cache_folder() -> Path:
    """Folder for what can be made again. Not made here."""
    return Path(platformdirs.user_cache_dir(_NAME, appauthor=False))


def log_folder() -> Path:
    """Folder for log files. Not made here."""
    return Path(platformdirs.user_log_dir(_NAME, appauthor=False))


def embedded_model() -> Path:
    """Return the path of the embedded model.

    Raises FileNotFoundError, with one plain sentence, where this copy came without it.
    """
    places = list(_roots())
    for root in places:
        if is_file(root / _EMBEDDED):
            return root / _EMBEDDED
    raise FileNotFoundError(
        f"The embedded model is missing: there is no {_EMBEDDED.name} in {places[0] / 'assets'}."
    )


def _roots() -> Iterator[Path]:
    """Yield the folders that may hold "assets"."""
    bundle = getattr(sys, "_MEIPASS", None)  # where a one-folder bundle unpacks its data
    if bundle is not None:
        yield Path(bundle)
    backend = Path(__file__).resolve().parent.parent
    yield backend.parent  # a source checkout, or "assets" beside backend in a wheel
    yield backend
    yield Path(sys.prefix) / "share" / _NAME
