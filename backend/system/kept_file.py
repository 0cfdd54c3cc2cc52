"""Small files kept between runs: private, written atomically, set aside when damaged."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from backend.system.paths import exists, is_folder, open_regular
from backend.text import Text, from_json, text, to_json

_BYTES_MAX = 16 << 20
_WHOLE_MAX = 1 << 63
_LOCK_S = 5.0
# Errors of a check of parsed JSON for a missing value or a wrong type.
_DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)

T = TypeVar("T")


def sync(descriptor: int) -> None:
    """Put the written bytes of an open file or folder on the drive. Raises OSError.

    On macOS fsync() leaves it in the drive's own memory. Some file systems there, such as those of
    other machines, know fsync() only.
    """
    if sys.platform == "darwin":
        import fcntl  # not on Windows

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder and its missing parents, private to this user; they survive a loss of power.

    Raises OSError.
    """
    try:
        path.mkdir(mode)
    except FileNotFoundError:
        make_folder(path.parent, mode)
        path.mkdir(mode, exist_ok=True)
    except FileExistsError:
        if not is_folder(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Put the names in a folder on the drive, where the system can do that. Raises OSError."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # it may be written, but not read
        return
    try:
        sync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no such thing
            raise
    finally:
        os.close(descriptor)


def make_file(path: Path) -> None:
    """Make an empty file, private to this user. Make an existing one private. Raises OSError."""
    os.close(open_regular(path, os.O_WRONLY | os.O_CREAT, 0o600))
    path.chmod(0o600)


def keep_private(folder: Path, *, but: Path | None = None) -> None:
    """Make a folder, and make it and its files private to this user, except one subfolder.

    Ignore what cannot be changed.
    """
    if os.name == "nt":  # on Windows a user's folders are private by inheritance
        return
    with contextlib.suppress(OSError):
        make_folder(folder)
        folder.chmod(0o700)
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(root, name) != but]
        for name in files:
            path = Path(root, name)
            with contextlib.suppress(OSError):
                if not path.is_symlink() and path.stat().st_mode & 0o077:
                    path.chmod(path.stat().st_mode & 0o700)


def write_whole(
    path: Path,
    data: bytes,
    *,
    makes_folder: bool = True,
    private: bool = True,
    durable: bool = False,
) -> None:
    """Write a file atomically: after a loss of power, too, it is the old one or the new one.

    private: readable by this user only. durable: the new one is on the drive when this returns.
    Raises OSError, and then leaves nothing behind.
    """
    if makes_folder:
        make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb", opener=_private if private else None) as file:
            file.write(data)
            file.flush()
            sync(file.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let no other process change a file that is read and then written with a change.

    Its lock is a file beside it. Where the drive knows no locks, or one is held for _LOCK_S, go on
    without: others' changes of this moment may then be lost.
    """
    from filelock import FileLock  # imports asyncio, which most processes do not need

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            make_folder(path.parent)
            lock = FileLock(f"{path}.lock", timeout=_LOCK_S, mode=0o600)
            stack.enter_context(lock)
        yield


def write_json(path: Path, value: object) -> None:
    """Write a value as write_whole does; it is on the drive when this returns. Raises OSError."""
    written = json.dumps(to_json(value), indent=1) + "\n"
    write_whole(path, written.encode("utf-8"), durable=True)


def parse_json(data: str | bytes | bytearray) -> Any:
    """Parse JSON in UTF-8, from anywhere. Raises ValueError otherwise.

    Also raises it for numbers that are not finite and integers of more than 64 bits, so that all
    values can be converted, compared and stored.
    """
    return _parse(data, None)


def parse_kept(data: str | bytes) -> Any:
    """Parse JSON of backend.text.to_json as parse_json does; a Text comes back as it was."""
    return _parse(data, from_json)


def _parse(data: str | bytes | bytearray, hook: Callable[[dict[str, Any]], Any] | None) -> Any:
    try:
        return json.loads(
            data if isinstance(data, str) else data.decode("utf-8"),
            object_hook=hook,
            parse_int=whole,
            parse_float=finite,
            parse_constant=finite,
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def is_deeper(data: Any, n_level: int) -> bool:
    """Return whether data of JSON has more levels of objects and lists than `n_level`."""
    level = [data]
    for _ in range(n_level + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def read_json(path: Path, check: Callable[[Any], T]) -> T:
    """Read a JSON file and return `check` of its content.

    Raises OSError where it cannot be read, and ValueError where it is damaged: it is too large or
    not JSON, or `check` fails on a missing or wrong value.
    """
    with open(path, "rb", opener=open_regular) as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError("the file is too large")
    try:
        return check(parse_kept(data))
    except _DAMAGE as error:
        raise ValueError(f"the file is damaged: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Return {} where the file is missing, unreadable or damaged."""
    try:
        return read_json(path, an_object)
    except (OSError, ValueError):
        return {}


def an_object(data: Any) -> dict[str, Any]:
    """Return parsed JSON that is an object. Raises TypeError for another value."""
    if not isinstance(data, dict):
        raise TypeError("it is not an object")
    return data


def set_aside(path: Path) -> Path | None:
    """Rename a damaged file to the first free name. Return None where that fails."""
    for number in range(1, 1000):
        free = path.with_name(f"{path.stem}.broken-{number}{path.suffix}")
        if not exists(free):
            break
    try:
        os.replace(path, free)
    except OSError:
        return None
    return free


class KeptFile:
    """A JSON file of the user, which reports errors as sentences.

    what: its name at the beginning of a sentence. instead: the consequence of damage, in words.
    """

    def __init__(self, path: Path, what: Text, instead: Text) -> None:
        self._path, self._what, self._instead = path, what, instead

    def save(self, value: object) -> str:
        """Write the file. Return "", or one sentence that says why that failed."""
        try:
            write_json(self._path, value)
        except OSError as error:
            reason = error.strerror or str(error)
            return text("kept.not_saved", what=self._what, reason=reason)
        return ""

    def load(self, check: Callable[[Any], T], default: T) -> tuple[T, str]:
        """Read the file as read_json does. Return its content, and "" or one sentence.

        The content is the default where the file cannot be used. A damaged file is set aside.
        """
        try:
            return read_json(self._path, check), ""
        except FileNotFoundError:
            return default, ""
        except OSError as error:
            reason = error.strerror or str(error)
            return default, text("kept.not_read", what=self._what, reason=reason)
        except ValueError:
            aside = set_aside(self._path)
            what, instead = self._what, self._instead
            if aside is None:
                return default, text("kept.damaged", what=what, instead=instead)
            sentence = text("kept.damaged_aside", what=what, instead=instead, file=aside.name)
            return default, sentence


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def whole(digits: str) -> int:
    """Read an integer of at most 64 bits. Raises ValueError for another."""
    number = int(digits)
    if not -_WHOLE_MAX <= number < _WHOLE_MAX:
        raise ValueError("an integer has more than 64 bits")
    return number


def finite(text: str) -> float:
    """Read a number of JSON.

    Raises ValueError for NaN and for numbers that are, or round to, infinity.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number
