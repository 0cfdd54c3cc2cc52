"""Finds the user's token for the hub, and remembers tokens that the hub refused.

The token that a person entered in this program comes first, then the one of the environment or of
huggingface's own login. The first is in the system's keyring; a file says whose it is and for which
hub, so that no keyring is asked before there is a token. Without a keyring it is held in this
process alone.

Importing this module loads no network library. Reading a token may ask the keyring, which may wait
for a person to unlock it.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backend.downloads.address import endpoint
from backend.system import keyring
from backend.system.kept_file import KeptFile, write_json
from backend.system.paths import is_file, states_folder
from backend.text import JOINED, Text, joined, text

_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_ASKED_FOR = ("download.gated", "download.needs_token", "download.no_repository",
              "download.forbidden")  # fmt: skip
_LENGTH_MAX = 500
_lock = threading.RLock()
_refused: dict[str, str] = {}  # a sentence for each refused token
_last: list[Token] = []  # what was found last, in order
_own: dict[Path, Own] = {}  # what was entered or read, by the file that tells of it


@dataclass(frozen=True)
class Own:
    """The token that a person entered; secret is "" if the keyring did not give it.

    name: of its owner at the hub. trouble: a clause why it is not in the keyring, or not given.
    """

    host: str
    name: str
    secret: str
    trouble: str = ""


@dataclass(frozen=True)
class Token:
    """The token in use. name: of its owner; "" where it was not entered here, but in `place`."""

    secret: str
    name: str
    place: str = ""


def token() -> Token | None:
    """Return the user's token; None if there is none, or if the hub refused it."""
    from huggingface_hub import get_token  # network libraries: not at start

    own, theirs = entered(), get_token() or ""
    found = [Token(own.secret, own.name)] if own and own.secret else []
    found += [Token(theirs, "", _place(theirs))] if theirs else []
    for one in found:
        if not is_possible(one.secret):
            place = one.place or one.name
            _refused.setdefault(one.secret, text("download.token_odd", place=place))
    _last[:] = found
    return next((one for one in found if one.secret not in _refused), None)


def usable() -> str:
    """Return the secret of the user's token; "" if there is none, or if the hub refused it."""
    found = token()
    return found.secret if found else ""


def is_possible(secret: str) -> bool:
    """Return whether a text has only characters of tokens."""
    return secret.isascii() and secret.isprintable() and 0 < len(secret) <= _LENGTH_MAX


def refused(secret: str, host: str, status: int) -> str:
    """Return the sentence on a token that the hub refused."""
    own = entered()
    place = own.name if own is not None and own.secret == secret else _place(secret)
    return text("download.token_refused", host=host, place=place, status=status)


def leave_out(secret: str, sentence: str) -> None:
    """Send this token no more, and give the sentence as the reason."""
    _refused[secret] = sentence


def remark() -> str:
    """Return why tokens of the user were not sent last; "" if the first was, or there is none."""
    refused = itertools.takewhile(lambda one: one.secret in _refused, _last)
    said = [_refused[one.secret] for one in refused]
    if is_withheld():
        own = _own[_path()]
        said.insert(0, text("download.token_locked", name=own.name, reason=own.trouble))
    return joined(*said)


def is_asked_for(sentence: str) -> bool:
    """Return whether a sentence of a download says that a token may be needed."""
    if not isinstance(sentence, Text):
        return False
    if sentence.id == JOINED:
        return any(map(is_asked_for, sentence.values["parts"]))
    return sentence.id in _ASKED_FOR


# The token that a person entered.


def entered() -> Own | None:
    """Return the token that was entered for this hub; None if there is none.

    The keyring is asked once in a run.
    """
    with _lock:
        if (path := _path()) not in _own:
            kept, _ = _file(path).load(_checked, None)
            if kept is None:
                return None
            _own[path] = _read(*kept)
        own = _own[path]
        return own if own.host == _host() else None


def keep(secret: str, name: str) -> str:
    """Use a token from now on. Return "", or why it is held for this run only.

    name: of its owner, as the hub says.
    """
    forget()
    with _lock:
        path, host, trouble = _path(), _host(), ""
        try:
            keyring.write(_service(host), name, secret)
            write_json(path, {"host": host, "name": name})
        except keyring.NoKeyring as error:
            trouble = str(error)
        except OSError as error:
            trouble = text("keyring.no_note", reason=error.strerror or str(error))
        _own[path] = Own(host, name, secret, trouble)
        _refused.pop(secret, None)
        return trouble


def forget() -> str:
    """Forget the token that was entered. Return "", or a sentence why the keyring still has it."""
    with _lock:
        path, trouble = _path(), ""
        own = _own.pop(path, None)
        kept, _ = _file(path).load(_checked, None)
        if own is not None:
            _refused.pop(own.secret, None)
        if kept is not None:
            path.unlink(missing_ok=True)
            try:
                keyring.erase(_service(kept[0]), kept[1])
            except keyring.NoKeyring as error:
                trouble = text("download.token_stays", name=kept[1], reason=str(error))
        return trouble


def known() -> Own | None:
    """Return the token that was entered for this hub, without a question to the keyring."""
    path = _path()
    if (own := _own.get(path)) is None:
        kept, _ = _file(path).load(_checked, None)
        own = Own(*kept, "") if kept is not None else None
    return own if own is not None and own.host == _host() else None


def is_withheld() -> bool:
    """Return whether the keyring was asked for the token, and did not give it."""
    own = _own.get(_path())
    return own is not None and own.host == _host() and not own.secret


def elsewhere() -> str:
    """Return where there is a token that was not entered here: a variable, or a file; or ""."""
    for name in _VARIABLES:
        if os.environ.get(name, "").strip():
            return name
    return str(_login()) if is_file(_login()) else ""


def ask_again() -> None:
    """Ask the keyring again, which did not give the token, at the next request."""
    with _lock:
        own = _own.get(_path())
        if own is not None and not own.secret:
            del _own[_path()]


def _read(host: str, name: str) -> Own:
    try:
        secret = keyring.read(_service(host), name)
    except keyring.NoKeyring as error:
        return Own(host, name, "", str(error))
    return Own(host, name, secret, "" if secret else text("keyring.not_there"))


def _file(path: Path) -> KeptFile:
    return KeptFile(path, text("download.token_note"), text("kept.empty_used"))


def _path() -> Path:
    return states_folder().with_name("hub.json")


def _checked(data: Any) -> tuple[str, str]:
    if type(data["host"]) is not str or type(data["name"]) is not str:
        raise ValueError("the note on the token is no text")
    return data["host"], data["name"]


def _host() -> str:
    return urlsplit(endpoint()).netloc.lower()


def _service(host: str) -> str:
    return f"Outrider: {host}"


def _place(secret: str) -> str:
    """Return where a token was found: the name of a variable, or the path of a file."""
    for name in _VARIABLES:
        if os.environ.get(name, "").strip() == secret:
            return name
    return str(_login())


def _login() -> Path:
    """Return the file of huggingface's own login, by its rules."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")
    return Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")).expanduser()
