"""The servers of tools that the user added, in a kept file, and files of other applications.

Other applications write {"mcpServers": {name: {"command", "args", "env"} or {"url", "headers"}}}
(Claude Desktop, Cursor and others) or "servers" (VS Code, with comments). This application's own
file has the same form, with fields of its own.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from backend.protocol.chat import Json
from backend.system.kept_file import KeptFile, an_object, parse_json
from backend.system.paths import open_regular
from backend.text import text
from backend.tools.plain_text import clean

FILE_NAME = "tools.json"
MAX_ROUNDS = 25
LIMIT_S = 120
RESULT_CHARS = 20_000
_N_SERVER_MAX = 64
_N_ENTRY_MAX = 256
_NAME_CHARS_MAX = 60
_VALUE_CHARS_MAX = 32_768
_FILE_BYTES_MAX = 1 << 20
_SECRET_WORDS = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"^(sk-|pk-|gh[a-z]_|github_pat_|xox|glpat-|AKIA|eyJ)|^(?=.*\d)[A-Za-z0-9+_=-]{32,}$"
)
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INPUT = re.compile(r"\$\{(?!env:)[A-Za-z]+:(?!-)[^}]*\}|\$\{workspace\w*\}")
_FILE_NAME = re.compile(r"(^|[^a-z])mcp|^claude_desktop_config$", re.IGNORECASE)
_HIDDEN = "\u2022" * 6


@dataclass(frozen=True)
class Server:
    """A server: a program with its arguments and environment, or an address with headers.

    off: names of tools that are not offered. always: names of tools that run without being asked,
    with the fingerprint (Tool.fingerprint) of the allowed version. Raises ValueError, one sentence.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_on: bool = False
    off: frozenset[str] = frozenset()
    always: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (
            not self.name.strip()
            or len(self.name) > _NAME_CHARS_MAX
            or self.name != clean(self.name)
        ):
            raise ValueError(text("tools.bad_name", limit=_NAME_CHARS_MAX))
        if bool(self.command) == bool(self.url):
            raise ValueError(text("tools.neither", name=self.name))
        if self.url and not _is_web(self.url):
            raise ValueError(text("tools.bad_url", name=self.name))
        values = (self.command, self.cwd, *self.args, *self.env, *self.env.values())
        if any("\0" in value or len(value) > _VALUE_CHARS_MAX for value in values):
            raise ValueError(text("tools.bad_value", name=self.name))
        if any(not key or "=" in key for key in self.env):
            raise ValueError(text("tools.bad_value", name=self.name))
        if not all(_is_header(key, value) for key, value in self.headers.items()):
            raise ValueError(text("tools.bad_header", name=self.name))

    @classmethod
    def from_json(cls, name: str, data: Any) -> Self:
        """Read an entry of a file. Raises ValueError with one sentence."""
        try:
            return cls(
                name=name,
                command=_a_text(data.get("command")),
                args=_texts(data.get("args")),
                env=_pairs(data.get("env")),
                cwd=_a_text(data.get("cwd")),
                url=_a_text(data.get("url") or data.get("serverUrl") or data.get("httpUrl")),
                headers=_pairs(data.get("headers")),
                is_on=data.get("is_on") is True,
                off=frozenset(_texts(data.get("off"))),
                always=_pairs(data.get("always")),
            )
        except (TypeError, AttributeError):
            raise ValueError(text("tools.bad_entry", name=clean(name)[:_NAME_CHARS_MAX])) from None

    def to_json(self) -> Json:
        """Return the entry of the kept file. Empty fields are left out."""
        values = {k: v for k, v in vars(self).items() if v and k != "name"}
        return {k: sorted(v) if isinstance(v, frozenset) else v for k, v in values.items()}

    @property
    def shown(self) -> str:
        """The command line or the address for people, without secrets."""
        if self.url:
            return _shown_url(self.url)
        return " ".join([shlex.quote(self.command), *_shown_arguments(self.args)])

    def is_same_source(self, other: Server) -> bool:
        """Return whether both start or reach the same server."""
        ours, theirs = (_source(server) for server in (self, other))
        return ours == theirs

    def expanded(self, environment: Mapping[str, str] = os.environ) -> Server:
        """Return the server with ${NAME}, ${env:NAME} and ${NAME:-default} filled in."""

        def fill(value: str) -> str:
            return _VARIABLE.sub(lambda m: environment.get(m[1], m[2] or ""), value)

        return replace(
            self,
            command=fill(self.command),
            args=tuple(map(fill, self.args)),
            env={key: fill(value) for key, value in self.env.items()},
            cwd=os.path.expanduser(fill(self.cwd)),
            url=fill(self.url),
            headers={key: fill(value) for key, value in self.headers.items()},
        )


@dataclass(frozen=True)
class ToolSettings:
    """The user's settings.

    max_rounds: answers with calls in a row before the user is asked whether to go on. limit_s: time
    of a call. result_chars: characters of a result that the model gets.
    """

    servers: tuple[Server, ...] = ()
    max_rounds: int = MAX_ROUNDS
    limit_s: int = LIMIT_S
    result_chars: int = RESULT_CHARS

    def server(self, name: str) -> Server | None:
        """Return the server with this name."""
        return next((server for server in self.servers if server.name == name), None)

    def with_server(self, server: Server, instead_of: str = "") -> ToolSettings:
        """Add a server, or replace the one called `instead_of` or of the same name.

        Permissions are lost where the server changed its command or address.
        """
        old = self.server(instead_of or server.name)
        if old is not None and not old.is_same_source(server):
            server = replace(server, always={})
        place = self.servers.index(old) if old is not None else len(self.servers)
        rest = [s for s in self.servers if s is not old and s.name != server.name]
        return replace(self, servers=(*rest[:place], server, *rest[place:]))

    def without_server(self, name: str) -> ToolSettings:
        """Remove a server."""
        return replace(self, servers=tuple(s for s in self.servers if s.name != name))

    def to_json(self) -> Json:
        """Return the kept file's contents."""
        servers = {server.name: server.to_json() for server in self.servers}
        limits = {k: v for k, v in vars(self).items() if k != "servers"}
        return {**limits, "mcpServers": servers}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what to_json wrote. Raises ValueError, TypeError or KeyError."""
        entries = an_object(an_object(data)["mcpServers"])
        limits = {"max_rounds": (1, 1000), "limit_s": (1, 3600), "result_chars": (1000, 1_000_000)}
        values = {name: data[name] for name in limits if name in data}
        for name, value in values.items():
            lowest, highest = limits[name]
            if type(value) is not int or not lowest <= value <= highest:
                raise ValueError(f"{name} is out of range")
        return cls(tuple(Server.from_json(k, v) for k, v in entries.items()), **values)


@dataclass(frozen=True)
class Imported:
    """Servers of another application's file, and one sentence for each that was left out."""

    servers: tuple[Server, ...]
    remarks: tuple[str, ...]


def kept_file(path: Path) -> KeptFile:
    """Return the file in which ToolSettings are kept."""
    return KeptFile(path, text("tools.file"), text("tools.none_used"))


def read_foreign(path: Path) -> Imported:
    """Read a file of another application. Its servers come switched off.

    Raises ValueError with one sentence where no server can be taken from it.
    """
    name = clean(path.name)
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(text("file.not_read", file=name, reason=error.strerror or "")) from None
    if len(data) > _FILE_BYTES_MAX:
        raise ValueError(text("tools.file_too_large", file=name, limit=_FILE_BYTES_MAX))
    entries = _entries(_parsed(data, name))
    if not entries:
        raise ValueError(text("tools.file_without", file=name))
    servers, remarks = [], []
    for key, entry in list(entries.items())[:_N_SERVER_MAX]:
        try:
            servers.append(_foreign(key, entry))
        except ValueError as error:
            remarks.append(error.args[0])
    if not servers:
        raise ValueError(remarks[0])
    if len(entries) > _N_SERVER_MAX:
        remarks.append(text("tools.too_many", limit=_N_SERVER_MAX))
    return Imported(tuple(servers), tuple(remarks))


def is_foreign(path: Path) -> bool:
    """Return whether a file's name is one of a configuration of servers, such as mcp.json."""
    return path.suffix.lower() in (".json", ".jsonc") and bool(_FILE_NAME.search(path.stem))


def _parsed(data: bytes, name: str) -> Any:
    for attempt in (lambda t: t, _without_comments):
        try:
            return parse_json(attempt(data.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            continue
    raise ValueError(text("tools.file_damaged", file=name))


def _without_comments(source: str) -> str:
    """Return JSON without the comments and trailing commas that VS Code allows."""

    def kept(match: re.Match[str]) -> str:
        return match.group() if match.group().startswith('"') else " "

    string = r'"(?:[^"\\]|\\.)*+"'
    bare = re.sub(rf"{string}|//[^\n]*|/\*.*?(?:\*/|\Z)", kept, source, flags=re.DOTALL)
    return re.sub(rf"{string}|,(?=\s*+[}}\]])", kept, bare)


def _entries(data: Any) -> dict[str, Any]:
    """Return the entries of servers, by name; {} where there are none."""
    if not isinstance(data, dict):
        return {}
    for name in ("mcpServers", "servers", "context_servers"):
        if isinstance(data.get(name), dict):
            return dict(data[name])
    return _entries(data["mcp"]) if isinstance(data.get("mcp"), dict) else {}


def _foreign(name: str, data: Any) -> Server:
    """Read an entry as others write it, switched off. Raises ValueError with one sentence."""
    name = " ".join(clean(name).split())[:_NAME_CHARS_MAX]
    if not isinstance(data, dict):
        raise ValueError(text("tools.bad_entry", name=name))
    if data.get("type") == "sse" or data.get("transport") == "sse":
        raise ValueError(text("tools.old_transport", name=name))
    fields = ("command", "args", "env", "cwd", "url", "serverUrl", "httpUrl", "headers")
    own = {key: data[key] for key in fields if data.get(key)}
    if _INPUT.search(str(own)):
        raise ValueError(text("tools.needs_input", name=name))
    return Server.from_json(name, own)


def _a_text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError("it is not text")
    return value or ""


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _N_ENTRY_MAX:
        raise TypeError("it is not a list of texts")
    return tuple(map(_a_text, value))


def _pairs(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _N_ENTRY_MAX:
        raise TypeError("it is not an object of texts")
    # Numbers and switches are often written without quotes.
    plain = {k: str(v) if type(v) in (int, float) else v for k, v in value.items()}
    return {key: _a_text(v) for key, v in plain.items() if v is not None}


def _source(server: Server) -> tuple[object, ...]:
    return server.command, server.args, dict(server.env), server.cwd, server.url


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


def _is_header(name: str, value: str) -> bool:
    return bool(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)) and bool(
        re.fullmatch(r"[\t\x20-\x7e]{0,32768}", value)
    )


def _shown_url(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = f"{_HIDDEN}@" if "@" in parts.netloc else ""
    query = _HIDDEN if parts.query else ""
    return urlunsplit((parts.scheme, user + host, parts.path, query, ""))


def _shown_arguments(args: Iterable[str]) -> list[str]:
    shown, is_secret = [], False
    for argument in args:
        name, equals, value = argument.partition("=")
        if is_secret or _SECRET_VALUE.search(argument):
            shown.append(_HIDDEN)
        elif equals and (_SECRET_WORDS.search(name) or _SECRET_VALUE.search(value)):
            shown.append(f"{shlex.quote(name)}={_HIDDEN}")
        else:
            shown.append(shlex.quote(argument))
        is_secret = argument.startswith("-") and not equals and bool(_SECRET_WORDS.search(argument))
    return shown
