"""The worker's local server: messages switch it on and off; it shares the engine with the window.

Starlette and uvicorn are imported when it is first switched on, in a separate thread, so that
neither the reader nor an answer waits for the import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.text import text

if TYPE_CHECKING:
    from backend.server.running import RunningServer

Work = Callable[[Any], None]
"""A function to run in the engine's thread. Its argument is the engine, or None."""


class ServerDesk:
    """Owns the server, if there is one. Use from any thread except the engine's.

    submit: queues Work for the engine's thread. offer: sends a message; a newer one may replace it
    while it waits. model_name: returns the name of the loaded model. n_other: returns the number of
    the client's own requests that wait or are in progress.
    """

    def __init__(
        self,
        submit: Callable[[Work], None],
        offer: Callable[[Message], None],
        model_name: Callable[[], str | None],
        n_other: Callable[[], int],
    ) -> None:
        self._submit, self._offer, self._model_name = submit, offer, model_name
        self._n_other = n_other
        self._server: RunningServer | None = None
        self._lock = threading.Lock()  # one change at a time

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""
        return self._model_name()

    @property
    def models(self) -> tuple[str, ...]:
        """Return no models: the window decides which one is loaded."""
        return ()

    @property
    def n_other(self) -> int:
        """The number of the client's own requests that wait or are in progress."""
        return self._n_other()

    def load(self, name: str) -> Any:
        """Refuse; see models."""
        raise RequestError(text("engine.no_model"))

    def submit(self, work: Work) -> None:
        """Queue `work(engine)` for the engine's thread."""
        self._submit(work)

    @property
    def n_open(self) -> int:
        """The number of open requests of other programs."""
        server = self._server
        return server.turns.n_open if server is not None else 0

    def serve(self, request: Message, reply: Callable[[Message], None]) -> None:
        """Switch the server on or off as the request says, and reply with the result."""
        if not 0 <= request["port"] <= 65535:
            raise RequestError(text("server.port_range", port=request["port"]))
        if request["on"] and not request["key"].strip():
            raise RequestError(text("server.no_key"))
        thread = threading.Thread(
            target=self._switch, args=(request, reply), name="server-switch", daemon=True
        )
        thread.start()

    def stop_answers(self) -> None:
        """End the answers to other programs, because the worker ends."""
        if (server := self._server) is not None:
            server.turns.stop()

    def pause(self) -> None:
        """End the answer in progress, because the model is about to be closed. The others wait."""
        if (server := self._server) is not None:
            server.turns.pause()

    def resume(self) -> None:
        """Serve the waiting requests again, with the present model."""
        if (server := self._server) is not None:
            server.turns.resume()

    def close(self) -> None:
        """Switch the server off."""
        with self._lock:
            self._stop()

    def _switch(self, request: Message, reply: Callable[[Message], None]) -> None:
        trouble = ""
        with self._lock:
            self._stop()
            if request["on"]:
                try:
                    trouble = self._start(request["port"], request["key"].strip())
                except Exception as error:
                    trouble = text("server.not_started", reason=str(error))
            reply({**self._facts(), "id": request["id"], "trouble": trouble})

    def _start(self, port: int, key: str) -> str:
        from backend.server.running import RunningServer, ServerError  # heavy: starlette, uvicorn

        try:
            self._server = RunningServer(self, port, key, self._changed)
        except ServerError as error:
            return str(error)
        return ""

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _changed(self) -> None:
        self._offer({**self._facts(), "trouble": ""})

    def _facts(self) -> Message:
        server = self._server
        return {
            "type": "server",
            "on": server is not None,
            "port": server.port if server is not None else 0,
            "address": server.address if server is not None else "",
            "n_request": server.turns.n_request if server is not None else 0,
            "n_open": self.n_open,
        }
