"""Takes paths and names out of a text that a person may publish."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_LETTER = r"""(?:[^\n"'/\\:,;()]|(?<=\w)'(?=\w))"""
_PATH = re.compile(
    rf"""(?P<quote>["'])(?:~|[A-Za-z]:)?[/\\][^"'\n]*(?P=quote)   # in quotes
      # Not in quotes: folders may have spaces, but none ends with one. The last name has none.
      | (?<![\w.])(?:~|[A-Za-z]:)?[/\\](?:{_LETTER}+(?<!\s)[/\\])+[^\s"'/\\:,;()]*""",
    re.VERBOSE,
)
_MODEL = re.compile(
    r"""(?<=["'])[^"'\n]+[.]gguf(?=["'])|[^\s"'/\\\u2026]+[.]gguf\b""", re.IGNORECASE
)
_OF_EVERYBODY = {"root", "localhost"}


def without_names(text: str, *known: Path) -> str:
    """Return a text with each path cut to its last name, and names of user and machine replaced.

    known: paths that may be in the text. Their folders are also cut where they have spaces.
    """

    def shorten(match: re.Match[str]) -> str:
        inside = match[0].strip("\"'")
        name = re.split(r"[/\\]", inside.rstrip("/\\"))[-1]
        return f"\u2026/{name}"

    for folder in sorted(_folders(known), key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}[/\\]", "~/", text)
        text = re.sub(rf"{re.escape(folder)}(?!\w)", "~", text)
    text = _PATH.sub(shorten, text)
    for name, instead in _names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def without_models(text: str, *models: Path) -> str:
    """Return a text with the names of these models, and of others that end in .gguf, replaced.

    Without .gguf, a name that is a plain word, such as dense, may mean something else; it stays.
    """
    for model in models:
        text = text.replace(model.name, "model.gguf")
        if not re.fullmatch("[a-z]*", model.stem):
            text = re.sub(rf"(?<!\w){re.escape(model.stem)}(?!\w)", "model", text)
    return _MODEL.sub("model.gguf", text)


def _folders(known: tuple[Path, ...]) -> Iterator[str]:
    """Yield the user's folder and the folders of the paths, also with links resolved."""
    homes = {Path.home(), Path(os.path.realpath(Path.home()))}
    yield from (str(home) for home in homes if home != home.parent)
    for path in known:
        for one in {path.absolute(), Path(os.path.realpath(path))}:
            yield from (str(folder) for folder in one.parents if folder != folder.parent)


def _names() -> Iterator[tuple[str, str]]:
    """Yield the names of the user and of the machine, and what replaces them. Longest first."""
    users = {os.environ.get(key, "") for key in ("USER", "USERNAME", "LOGNAME")}
    with contextlib.suppress(OSError, KeyError, ImportError):
        users.add(getpass.getuser())
    users.add(Path.home().name)
    host = socket.gethostname()
    found = {host: "machine", host.partition(".")[0]: "machine"} | dict.fromkeys(users, "user")
    for name in sorted(found, key=len, reverse=True):
        if len(name) > 2 and name not in _OF_EVERYBODY:
            yield name, found[name]
