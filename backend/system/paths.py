"""The folders of this application's files, and the path of the embedded model."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from backend.text import text

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


def may_write(folder: Path) -> bool:
    """Return whether files can be made in a folder. Raises nothing."""
    if os.name != "nt":
        return os.access(folder, os.W_OK)
    try:  # os.access() ignores access lists there
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor, also as the `opener` of open().

    Raises OSError, also for anything else: to open a pipe can wait for ever, a device may have no
    end, and some do something when they are opened.
    """
    try:
        _require_regular(os.stat(path).st_mode, path)
    except FileNotFoundError:
        pass  # os.open() creates it, or says so
    except ValueError:  # a zero byte in the name
        raise OSError(errno.EINVAL, text("file.bad_name"), os.fspath(path)) from None
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), mode)
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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


def _require_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, text("model.folder"), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, text("file.not_regular"), os.fspath(path))


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


def faults_file() -> Path:
    """Return the file of unexpected errors, beside the folder of states."""
    return states_folder().with_name("faults.jsonl")


def learned_settings_file() -> Path:
    """Return the file of what the adaptive method learned, beside the folder of states."""
    return states_folder().with_name("auto.json")


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
