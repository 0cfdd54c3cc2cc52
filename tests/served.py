"""An engine behind a real server on a free port, for tests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from waiting import WAIT_S, until

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server.application import make_server
from backend.server.engine_host import EngineThread
from backend.server.guard import LOCAL, Access
from backend.server.turns import N_PARALLEL, Turns

KEY = "a-key"


class Served:
    """An engine, or a tiny model, behind a server on a free port."""

    def __init__(
        self,
        engine: Any,
        *,
        key: str = KEY,
        access: Access = LOCAL,
        n_parallel: int = N_PARALLEL,
        **of_host: Any,
    ) -> None:
        if isinstance(engine, Path):
            engine = Engine.open(engine, EngineConfig(cache_rate=0.5, context_length=256))
        self.engine = engine
        self.host = EngineThread(engine, **of_host)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.turns = Turns(self.host, n_parallel=n_parallel)
        self.server = make_server(self.turns, key, access)
        run = lambda: self.server.run(sockets=[listener])  # noqa: E731
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.port}"
        until(lambda: self.server.started)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(WAIT_S)
        self.host.stop()
        self.host.close()

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        given = {"Authorization": f"Bearer {KEY}", **headers}
        return httpx.post(self.url + path, json=body, headers=given, timeout=WAIT_S)


@contextlib.contextmanager
def asked(served: Served, path: str, body: Any) -> Iterator[socket.socket]:
    """Send a request, and leave at the end."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n"
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        yield connection
