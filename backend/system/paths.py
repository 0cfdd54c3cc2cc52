"""The folders of this application's files, and the path of the embedded model."""

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
    """Return whether this is a reachable regular file. Raises nothing.

    Path.is_file() raises OSError where a drive fails, a folder is forbidden or a name is too long.
    """
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return whether this is a reachable folder. Raises nothing."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Return whether this exists and is reachable. Raises nothing."""
    return _mode(path) != 0


def absolute(path: Path) -> Path:
    """Return an absolute path, with links resolved where possible. Raises nothing."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or the current folder is gone
        return path


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return 0


def data_folder() -> Path:
    """Return the folder for data to keep: chats, settings, history. Does not create it."""
    return Path(platformdirs.user_data_dir(_NAME, appauthor=False))


def models_folder() -> Path:
    """Return the default folder for downloads. Does not create it."""
    return data_folder() / "models"


def states_folder() -> Path:
    """Return the folder for the states of chats, one folder for each. Does not create it.

    OUTRIDER_STATES names another one, for tests.
    """
    return Path(os.environ.get("OUTRIDER_STATES") or data_folder() / "states")


def digests_file() -> Path:
    """Return the file of known checksums of models, beside the folder of states."""
    return states_folder().with_name("digests.json")


def backends_folder() -> Path:
    """Return the folder in which a bundle looks for further backends. Does not create it."""
    return data_folder() / "backends"


def cache_folder() -> Path:
    """Return the folder for data that can be made again. Does not create it."""
    return Path(platformdirs.user_cache_dir(_NAME, appauthor=False))


def embedded_model() -> Path:
    """Return the path of the embedded model.

    Raises FileNotFoundError, with one plain sentence, where this installation has none.
    """
    places = list(_roots())
    for root in places:
        if is_file(root / _EMBEDDED):
            return root / _EMBEDDED
    raise FileNotFoundError(
        f"The embedded model is missing: there is no {_EMBEDDED.name} in {places[0] / 'assets'}."
    )


def _roots() -> Iterator[Path]:
    """Yield the folders that may contain "assets"."""
    bundle = getattr(sys, "_MEIPASS", None)  # the data folder of a bundle
    if bundle is not None:
        yield Path(bundle)
    backend = Path(__file__).resolve().parent.parent
    yield backend.parent  # a source checkout, or "assets" beside backend in a wheel
    yield backend
    yield Path(sys.prefix) / "share" / _NAME
