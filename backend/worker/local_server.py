"""The worker's local server: messages switch it on and off; it shares the engine with the window.

Starlette and uvicorn are imported when it is first switched on, in a separate thread, so that
neither the reader nor an answer waits for the import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.protocol.errors import EngineError, RequestError
from backend.protocol.messages import Message
from backend.protocol.settings import EngineConfig
from backend.system import faults
from backend.text import text
from backend.worker.request_queue import Work

if TYPE_CHECKING:
    from backend.engine.embedding_model import EmbeddingModel
    from backend.server.running import RunningServer
    from backend.server.turns import Own, Turns

OpenModel = Callable[[Path, EngineConfig | None, Callable[[], bool]], Any]
"""Loads a model with a config, None for the client's, until the last argument returns False."""


_ALL_ADDRESSES = "0.0.0.0"


@dataclass(frozen=True)
class _Place:
    """Where a server runs, and for whom. is_open: other machines may connect."""

    port: int
    key: str
    is_open: bool
    origins: frozenset[str]

    @classmethod
    def of(cls, request: Message) -> _Place:
        """Read the message "serve"."""
        origins = frozenset(request.get("origins", "").lower().split())
        return cls(request["port"], request["key"].strip(), request.get("is_open", False), origins)


class ServerDesk:
    """Owns the server, if there is one, and knows the models that a request may name.

    submit: queues Work for the engine's thread. offer: sends a message; a newer one may replace it
    while it waits. n_other: returns the number of the client's own requests that wait or are in
    progress, without the answer that is computed jointly with programs' answers. loaded: returns
    the path of the loaded model. open_model, next_own: called in the engine's thread; next_own as
    of backend.server.turns.Host.

    Use from any thread; serve() and close() not from the engine's.
    """

    def __init__(
        self,
        submit: Callable[[Work], None],
        offer: Callable[[Message], None],
        n_other: Callable[[], int],
        loaded: Callable[[], Path | None],
        open_model: OpenModel,
        next_own: Callable[[Any], Own | None],
    ) -> None:
        self.submit, self._offer, self._n_other = submit, offer, n_other
        self._loaded, self._open_model = loaded, open_model
        self.next_own = next_own
        self._server: RunningServer | None = None
        self._lock = threading.Lock()  # one change at a time
        self._news = threading.Lock()  # facts are told in the order in which they were taken
        self._request: Message = {}  # the newest
        self._place: _Place | None = None  # of the running server
        self._own: tuple[str, Path] | None = None  # the client's model
        self._paths: dict[str, Path] = {}  # of the models that a request may name
        self._config: EngineConfig | None = None  # of those that are not the client's
        self.embedder: EmbeddingModel | None = None
        """The small model that programs may use beside the loaded one."""
        self.unload_after_s = 0
        """The seconds without work after which a model is freed; 0: it is kept."""
        self.embedding_file = ""
        """Its file, for which the next plan leaves memory; "": there is none."""
        self._last: Path | None = None  # loaded last
        self._gives_way = False  # a model that is being loaded is no longer wanted

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""
        path = self._loaded()
        return next((name for name, other in self._paths.items() if other == path), None)

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that a request may name, the client's own one first."""
        return list(self._paths)

    def path_of(self, name: str) -> Path | None:
        """Return the file of a model, or None."""
        return self._paths.get(name)

    @property
    def n_other(self) -> int:
        """The number of the client's own requests that wait or are in progress."""
        return self._n_other()

    def load(self, name: str) -> Any:
        """Load a model of `models`, or with "" the last one. Call it in the engine's thread."""
        paths = self._paths
        path = paths.get(name) or self._last
        if path is None or path not in paths.values():
            path = next(iter(paths.values()))
        return self._open_model(path, self._config, lambda: not self._gives_way)

    def note_own(self, name: str, path: Path | None) -> None:
        """Note the model that the client has loaded; path None: it has none."""
        self._own = (name, path) if path is not None else None
        self._gather()

    def tell(self) -> None:
        """Tell the client which model is loaded, after a change."""
        self._last = self._loaded() or self._last
        if self._server is not None:
            self._changed()

    def may_free(self, idle_s: float) -> bool:
        """Return whether the loaded model, unused for `idle_s`, is no longer needed."""
        is_known = self._loaded() in self._paths.values()
        return not is_known or 0 < self.unload_after_s <= idle_s

    def _gather(self) -> None:
        """Note the models that a request may name. The client's own has one name, too."""
        models = self._request.get("models") or {} if self._request.get("on") else {}
        named = {name: Path(path) for name, path in models.items()}
        own = {}
        if self._own is not None:
            name, path = self._own
            real = path.resolve()
            same = [other for other, found in named.items() if found.resolve() == real]
            own = {same[0] if same else name: path}
            named = {other: found for other, found in named.items() if other not in same}
        self._paths = own | {name: path for name, path in named.items() if name not in own}

    @property
    def n_open(self) -> int:
        """The number of open requests of other programs."""
        server = self._server
        return server.turns.n_open if server is not None else 0

    @property
    def may_join(self) -> bool:
        """Whether requests of programs are being answered that others may join."""
        server = self._server
        return server is not None and server.turns.may_join

    @property
    def turns(self) -> Turns | None:
        """The requests of programs; None while the server is off."""
        server = self._server
        return server.turns if server is not None else None

    def serve(self, request: Message, reply: Callable[[Message], None]) -> None:
        """Switch the server on or off as the request says, and reply with the result.

        A server that runs with this port and key for the same machines and pages goes on, with
        other models.
        """
        if not 0 <= request["port"] <= 65535:
            raise RequestError(text("server.port_range", port=request["port"]))
        if request["on"] and not request["key"].strip():
            raise RequestError(text("server.no_key"))
        if request.get("unload_after_s", 0) < 0:
            raise RequestError(text("setting.least", name="unload_after_s", low=0, value="-"))
        EngineConfig.from_message(request.get("settings") or {})  # refuses invalid settings
        self._request = request

        def failed(sentence: str) -> None:
            self._say(reply, sentence, id=request["id"])

        faults.Thread("server-switch", self._switch, request, reply, failed=failed).start()

    def stop_answers(self) -> None:
        """End the answers to other programs, because the worker ends."""
        self._gives_way = True
        if (server := self._server) is not None:
            server.turns.stop()

    def pause(self) -> None:
        """End the answer in progress, because the model is about to be closed. The others wait."""
        self._gives_way = True
        if (server := self._server) is not None:
            server.turns.pause()

    def resume(self) -> None:
        """Serve the waiting requests again, with the present model."""
        self._gives_way = False
        if (server := self._server) is not None:
            server.turns.resume()

    def close(self) -> None:
        """Switch the server off."""
        with self._lock:
            self._stop()
            self._take_embedder("")

    def _switch(self, request: Message, reply: Callable[[Message], None]) -> None:
        with self._lock:
            trouble = self._follow(self._request)  # the newest, if several wait
            self._say(reply, trouble, id=request["id"])

    def _follow(self, request: Message) -> str:
        """Do what a request says. Return why that failed, or ""."""
        is_on = request["on"]
        trouble = self._take_embedder(request.get("embedding_model", "") if is_on else "")
        settings = request.get("settings")
        self._config = EngineConfig.from_message(settings) if settings is not None else None
        self._gather()
        place = _Place.of(request) if is_on else None
        if place != self._place:
            self._stop()
            try:
                trouble = (self._start(place) if place is not None else "") or trouble
            except Exception as error:
                trouble = faults.explain("server", error)
        # Without a server no request would load the model again.
        is_served = self._server is not None
        self.unload_after_s = request.get("unload_after_s", 0) if is_served else 0
        return trouble

    def _take_embedder(self, path: str) -> str:
        """Serve embeddings with the model of a file, "": with none. Return why not, or ""."""
        if path == self.embedding_file:
            return ""
        before, self.embedder, self.embedding_file = self.embedder, None, ""
        if before is not None:
            before.close()
        if not path:
            return ""
        from backend.engine.embedding_model import EmbeddingModel  # heavy: llama.cpp, numpy

        try:
            self.embedder = EmbeddingModel(Path(path))
        except EngineError as error:
            return str(error)
        self.embedding_file = path
        return ""

    def _start(self, place: _Place) -> str:
        # Heavy: starlette, uvicorn.
        from backend.server.guard import ADDRESS, Access
        from backend.server.running import RunningServer, ServerError

        access = Access(_ALL_ADDRESSES if place.is_open else ADDRESS, origins=place.origins)
        try:
            self._server = RunningServer(
                self, place.port, place.key, self._changed, access, partial(self._fail, place)
            )
        except ServerError as error:
            return str(error)
        self._place = place
        return ""

    def _fail(self, place: _Place, sentence: str) -> None:
        """Take the end of the server by an error, from its thread."""
        with self._lock:
            if place is not self._place:
                return
            self._stop()
        self._say(self._offer, sentence)

    def _stop(self) -> None:
        self._place = None
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _changed(self) -> None:
        self._say(self._offer, "")

    def _say(self, send: Callable[[Message], None], trouble: str, **fields: int) -> None:
        with self._news:
            send({**self._facts(), "trouble": trouble, **fields})

    def _facts(self) -> Message:
        server = self._server
        return {
            "type": "server",
            "on": server is not None,
            "port": server.port if server is not None else 0,
            "address": server.address if server is not None else "",
            "n_request": server.turns.n_request if server is not None else 0,
            "n_open": self.n_open,
            "log": list(server.turns.log) if server is not None else [],
            "model": self.model_name or "",
            "is_own": self._own is not None and self._loaded() == self._own[1],
        }
