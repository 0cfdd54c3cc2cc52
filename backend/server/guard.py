"""Who may speak to the server: this machine with the key, and not too many at once.

The key is required although only this machine can connect, because any web page in a browser can
connect, too. For the same reason the Host header must name this machine (a page whose domain was
resolved to 127.0.0.1 would send its own name), and an Origin header must, too. Other names, pages
of other origins (CORS) and other machines are admitted only where the user names them (Access).
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from backend.server import anthropic_messages, ollama, openai_chat
from backend.server.ask import Json, RequestRefused
from backend.server.bodies import Bodies

ADDRESS = "127.0.0.1"
PUBLIC = ("/", "/health", "/v1/health")
"""The paths that answer without the key: whether the server runs, and nothing else."""
MAX_IDLE = 64
"""Maximum of connections without a request for GRACE_S; the oldest ones are closed."""
GRACE_S = 1.0
"""Time for a client that has connected to send its request, however many connect at once."""
MAX_UNUSED = 256
"""Maximum of connections without a request. Beyond it the oldest one is told so, and closed."""
IDLE_S = 5.0
"""A connection is closed that has no request for this time, and twice this time at most."""
KEY_CHARS_MIN = 16
"""Least characters of a key that other machines may try."""
_ORIGIN = re.compile(r"\*|null|localhost|[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+")
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_EXPOSED = "x-queue-position, x-ignored-fields, x-outrider-fitted, retry-after"

_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


def error_form(request: Request) -> Callable[[RequestRefused], Json]:
    """Return how a refusal is written to the client of a request."""
    path = request.scope["path"]
    is_anthropic = path.removeprefix("/v1").startswith("/messages")
    if is_anthropic or "anthropic-version" in request.headers:
        return anthropic_messages.error_json
    return ollama.error_json if path.startswith("/api/") else openai_chat.error_json


@dataclass(frozen=True)
class Access:
    """Who may ask beside programs on this machine, all of them with the key.

    address: the address to listen at. names: further names of this machine, in lower case, for the
    Host header; the address at which a connection arrives is always one. origins: of pages that may
    read answers, in lower case; "*": of all pages; "localhost": of those of this machine.
    """

    address: str = ADDRESS
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether other machines can connect."""
        return not ipaddress.ip_address(self.address).is_loopback

    def admits(self, origin: str) -> bool:
        """Return whether pages of an origin may read answers."""
        if "localhost" in self.origins and _is_local(origin):
            return True
        return "*" in self.origins or origin.lower() in self.origins


def is_origin(text: str) -> bool:
    """Return whether a text is an origin as browsers send it, or another word of Access.origins."""
    return _ORIGIN.fullmatch(text) is not None


LOCAL = Access()
"""Programs on this machine only."""


class Guard:
    """Passes on requests that address this machine and have the key. Refuses others.

    The scope of a request that is passed on has the `room` of its body.
    """

    def __init__(self, app: ASGIApp, key: str, access: Access = LOCAL) -> None:
        self._app, self._key, self._access = app, key.strip().encode(), access
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused, shares = self._refusal(request), self._shares(request)
        if refused is None and shares and _is_preflight(request):
            await Response(headers=_permission(request))(scope, receive, send)
            return
        refused = refused or self._no_key(request)
        if refused is not None:
            form = error_form(request)
            # The connection is closed, so that the body of a stranger is not read.
            headers = {"Connection": "close"}
            answer = JSONResponse(form(refused), status_code=refused.status, headers=headers)
            await answer(scope, receive, send)
            return
        with self._bodies.room() as scope["room"]:
            await self._app(scope, receive, self._shared(request, send) if shares else send)

    def _refusal(self, request: Request) -> RequestRefused | None:
        """Return why a request is refused, whatever its key."""
        hosts = request.headers.getlist("host")
        names = {*_HOSTS, *self._access.names, _address(request)}
        if len(hosts) != 1 or _name(hosts[0]) not in names:
            return RequestRefused("This server answers only to its own names.", status=403)
        for origin in request.headers.getlist("origin"):
            if not _is_local(origin) and not self._access.admits(origin):
                return RequestRefused("This server answers no page of another origin.", status=403)
        return None

    def _no_key(self, request: Request) -> RequestRefused | None:
        """Return a refusal of a request without the key, where it needs one."""
        length = request.headers.get("content-length", "0")
        has_body = length != "0" or "transfer-encoding" in request.headers
        is_public = request.scope["path"] in PUBLIC and request.method in ("GET", "HEAD")
        if is_public and not has_body:  # that of a stranger is not read
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        keys = [given] if kind.lower() == "bearer" else []
        keys.append(request.headers.get("x-api-key", ""))  # Anthropic's clients
        # Starlette reads a header as Latin-1. A key with other letters is sent in UTF-8.
        sent = [
            data for key in keys for data in (key.strip().encode(), key.strip().encode("latin-1"))
        ]
        if not any(hmac.compare_digest(data, self._key) for data in sent):
            return RequestRefused(
                "The key is missing or wrong: send it as 'Authorization: Bearer KEY'.",
                status=401,
                code="invalid_api_key",
            )
        return None

    def _shares(self, request: Request) -> bool:
        """Return whether the page that sent a request may read the answer."""
        origins = request.headers.getlist("origin")
        return len(origins) == 1 and self._access.admits(origins[0])

    def _shared(self, request: Request, send: Send) -> Send:
        """Return a send() that lets the page read the answer."""

        async def share(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers["Access-Control-Allow-Origin"] = request.headers["origin"]
                headers["Access-Control-Expose-Headers"] = _EXPOSED
                headers.add_vary_header("Origin")
            await send(message)

        return share


def _is_preflight(request: Request) -> bool:
    """Return whether a browser asks whether a page may send a request. It sends no key then."""
    return request.method == "OPTIONS" and "access-control-request-method" in request.headers


def _permission(request: Request) -> dict[str, str]:
    """Return the headers that permit a page's request.

    The permitted request still needs the key.
    """
    return {
        "Access-Control-Allow-Origin": request.headers["origin"],
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": request.headers.get("access-control-request-headers", ""),
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def _name(host: str) -> str:
    """Return a host in lower case, without its port."""
    name, colon, port = host.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        name = host
    return name.lower()


def _is_local(origin: str) -> bool:
    """Return whether a page comes from a server on this machine."""
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and _name(host) in _HOSTS


def _address(request: Request) -> str:
    """Return the address at which a request has arrived, as a host.

    No page of another machine has an address of this one as its host.
    """
    try:
        address = ipaddress.ip_address(request.scope["server"][0])
    except (TypeError, ValueError):
        return ADDRESS
    mapped = getattr(address, "ipv4_mapped", None) or address
    return str(mapped) if mapped.version == 4 else f"[{mapped}]"


class _Connection(H11Protocol):
    """A connection that is closed if no request arrives, or if too many such ones are open."""

    idle: dict[_Connection, bool]
    """Connections without a request, oldest first, and whether GRACE_S has passed for each.

    Shared by those of one server.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection."""
        super().connection_made(transport)
        self._n_look = 0
        self._is_new = True
        self._wait()
        while len(self.idle) > MAX_UNUSED:
            next(iter(self.idle))._turn_away()
        self._timer = self.loop.call_later(IDLE_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._timer.cancel()
        self._grace.cancel()
        self.idle.pop(self, None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle the bytes that have arrived."""
        super().handle_events()
        self._note()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._note()

    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _note(self) -> None:
        if self._is_busy:
            self._n_look, self._is_new = 0, False
            self.idle.pop(self, None)
        elif self not in self.idle and not self.transport.is_closing():
            self._grace.cancel()
            self._wait()

    def _wait(self) -> None:
        """Begin to wait for a request."""
        self.idle[self] = False
        self._grace = self.loop.call_later(GRACE_S, self._thin_out)

    def _thin_out(self) -> None:
        """Close the oldest idle connections, if there are too many."""
        # A timer of asyncio may end before its time, by the clock's resolution: 16 ms on Windows.
        if self in self.idle:
            self.idle[self] = True
        while len(self.idle) > MAX_IDLE:
            oldest, is_over = next(iter(self.idle.items()))
            if not is_over:
                break
            oldest._drop()

    def _look(self) -> None:
        self._n_look = 0 if self._is_busy else self._n_look + 1
        if self._n_look > 1:
            self._drop()
        else:
            self._timer = self.loop.call_later(IDLE_S, self._look)

    def _turn_away(self) -> None:
        if self._is_new:
            self.transport.write(_TOO_MANY)
            self.idle.pop(self, None)
            self.transport.close()
        else:  # its last request was answered
            self._drop()

    def _drop(self) -> None:
        self.idle.pop(self, None)
        self.transport.abort()


def listen(app: ASGIApp, stop: Callable[[], None]) -> uvicorn.Server:
    """Return a server, whose run() takes sockets. stop: ends the answers in progress."""
    config = uvicorn.Config(
        app,
        http=type("Connection", (_Connection,), {"idle": {}}),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, stop)


class _Server(uvicorn.Server):
    """A server whose shutdown ends the answers in progress instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop()
        await super().shutdown(sockets)
