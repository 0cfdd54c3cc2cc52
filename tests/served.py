"""An engine behind a real server on a free port, for tests."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import httpx
from waiting import WAIT_S, until

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server.application import make_server
from backend.server.engine_host import EngineThread
from backend.server.turns import Turns

KEY = "a-key"


class Served:
    """An engine, or a tiny model, behind a server on a free port."""

    def __init__(self, engine: Any, *, key: str = KEY, **of_host: Any) -> None:
        if isinstance(engine, Path):
            engine = Engine.open(engine, EngineConfig(cache_rate=0.5, context_length=256))
        self.engine = engine
        self.host = EngineThread(engine, **of_host)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.turns = Turns(self.host)
        self.server = make_server(self.turns, key, self.port)
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
