"""A server in a separate thread, beside the owner of the engine."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable

from backend.server.application import make_server
from backend.server.guard import ADDRESS, KEY_CHARS_MIN, LOCAL, Access, is_origin
from backend.server.turns import Host, Turns
from backend.system import faults
from backend.text import text

_JOIN_S = 3.0
_ELSEWHERE = "192.0.2.1", 9
"""An address that no machine has (RFC 5737)."""


class ServerError(OSError):
    """The server cannot listen; str() is one plain sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


def listen(port: int, address: str = ADDRESS) -> socket.socket:
    """Return a socket where programs may connect from now on.

    port 0: any free port. address: of this machine. Raises ServerError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sends small pieces at once only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform == "win32":  # there SO_REUSEADDR lets another program take the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise ServerError(text("server.no_port", port=port, reason=reason)) from None
    return listener


def own_address() -> str:
    """Return the address by which other machines reach this one; ADDRESS without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(_ELSEWHERE)  # chooses a route and sends nothing
            return str(asking.getsockname()[0])
        except OSError:
            return ADDRESS


class RunningServer:
    """Serves `host` until stop(). Raises ServerError.

    port 0: any free port; the attribute `port` is the one in use. changed: called from any thread
    when a request has arrived or was answered. failed: gets the sentence about an error that ended
    it.
    """

    def __init__(
        self,
        host: Host,
        port: int,
        key: str,
        changed: Callable[[], None],
        access: Access = LOCAL,
        failed: faults.Failed = faults.no_place,
    ) -> None:
        if strange := sorted(origin for origin in access.origins if not is_origin(origin)):
            raise ServerError(text("server.no_origin", origin=strange[0]))
        if access.is_open and len(key) < KEY_CHARS_MIN:
            raise ServerError(text("server.short_key", n=KEY_CHARS_MIN))
        self.turns = Turns(host, changed)
        self._is_open = access.is_open
        self._listener = listen(port, access.address)
        self.port: int = self._listener.getsockname()[1]
        self._server = make_server(self.turns, key, access)
        self._thread = faults.Thread("server", self._run, failed=failed)
        self._thread.start()

    @property
    def address(self) -> str:
        """The base URL for programs on this machine, and on others where those may connect."""
        return f"http://{own_address() if self._is_open else ADDRESS}:{self.port}/v1"

    def stop(self) -> None:
        """Accept no more requests, end those in progress, and close the port."""
        self.turns.stop()
        self._server.should_exit = True
        if self._thread is not threading.current_thread():  # it tells of its own end
            self._thread.join(_JOIN_S)
        self._listener.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])
