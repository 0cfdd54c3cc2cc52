"""One answer in the worker: run the engine on a request and pass on its tokens and figures."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.protocol.settings import Sampling
from backend.protocol.statistics import Statistics
from backend.worker.outbox import Outbox

if TYPE_CHECKING:
    from backend.engine.engine import Engine, Piece


SCOPES = ("nothing", "map", "all")


class WatchScope:
    """What the client wants to see beside the text (the request "watch").

    "map": the map, some times a second; the default for a new client. "all": also every pass
    (backend.engine.moments), and advice after the answer.
    """

    def __init__(self) -> None:
        self.watch = Watch()
        self.scope = "map"

    @property
    def map(self) -> bool:
        """Whether the map is wanted."""
        return self.scope != "nothing"

    @property
    def all(self) -> bool:
        """Whether every pass is wanted."""
        return self.scope == "all"

    def set(self, scope: str, engine: Engine | None) -> None:
        """Change the scope. From any thread. Raises RequestError."""
        if scope not in SCOPES:
            raise RequestError(f"There is nothing called {ascii(scope[:40])} to watch.")
        self.scope = scope
        if engine is not None:
            self.attach(engine)

    def attach(self, engine: Engine) -> None:
        """Watch an engine in this scope."""
        engine.watch(self.watch if self.all else None)


class Answer:
    """Answers the request "generate". Use from the engine's thread.

    `is_cancelled` is asked between two steps of the engine. It repeats a stop that came before the
    engine had begun, so that no stop is lost. `scope`: how much the client watches.
    """

    def __init__(
        self,
        request: Message,
        engine: Engine,
        outbox: Outbox,
        is_cancelled: Callable[[], bool],
        scope: WatchScope,
    ) -> None:
        self._request = request
        self._engine = engine
        self._outbox = outbox
        self._is_cancelled = is_cancelled
        self._scope = scope
        self._started = False
        self._is_text = "prompt" in request

    def run(self) -> Message:
        """Answer the request and return the final message.

        Raises RequestError for settings out of range, and the engine's errors.
        """
        if self._is_cancelled():
            return self._done("cancelled", Statistics().to_json())
        self._scope.watch.clear()
        pieces = self._pieces()
        self._outbox.begin_answer(self._request["id"], self._snapshot)
        n_raw = 0
        try:
            for piece in pieces:
                self._start()
                # The rest of an incomplete character comes without a token.
                is_token = self._engine.statistics().n_token > self._outbox.n_token
                self._outbox.add_text(piece.raw, piece.token_id if is_token else None)
                n_raw += len(piece.raw)
                if self._is_text:
                    self._outbox.add_delta(Delta(content=piece.text))
                self._stop_if_asked()
            if rest := self._engine.raw[n_raw:]:  # of the token that ended the answer
                self._outbox.add_text(rest, None)
        finally:
            self._outbox.end_answer()
            for message in self._moments():
                self._outbox.send(message)
        return self._done(self._engine.finish_reason, self._engine.statistics().to_json())

    def _pieces(self) -> Iterator[Piece]:
        request, engine = self._request, self._engine
        sampling = Sampling.from_message(request["sampling"])
        max_tokens = request["max_tokens"]
        if max_tokens < 1 and max_tokens != -1:
            raise RequestError(
                f"max_tokens must be at least 1, or -1 for no limit, not {max_tokens}."
            )
        options = ChatOptions.from_message(request.get("options") or {})
        engine.owner = request.get("owner", "")
        if self._is_text:
            return engine.generate_text(
                request["prompt"],
                sampling,
                max_tokens,
                on_prefill=self._on_prefill,
                stops=options.stops,
                grammar=options.grammar,
            )
        return engine.generate(
            request["messages"],
            sampling,
            max_tokens,
            on_prefill=self._on_prefill,
            on_begin=self._stop_if_asked,
            options=options,
            on_delta=self._outbox.add_delta,
        )

    def _on_prefill(self, done: int, total: int) -> None:
        self._start()
        self._outbox.offer(self._message("prefill", done=done, total=total))
        self._stop_if_asked()

    def _start(self) -> None:
        if not self._started:
            stats = self._engine.statistics()
            self._outbox.send(
                self._message("started", n_prompt=stats.n_prompt, n_reused=stats.n_reused)
            )
            self._started = True

    def _stop_if_asked(self) -> None:
        if self._is_cancelled():
            self._engine.stop()

    def _snapshot(self) -> list[Message]:
        """Return the current map and figures. Called from the outbox's thread."""
        messages = []
        if self._started and (prefilled := self._engine.prefilled()):
            done, total = prefilled
            self._outbox.offer(self._message("prefill", done=done, total=total))
        if self._scope.map:
            messages.append(residency(self._request["id"], self._engine))
        if self._started:  # before that the figures belong to the previous answer
            messages.append(self._message("stats", stats=self._engine.statistics().to_json()))
        return messages + self._moments()

    def _moments(self) -> list[Message]:
        """Return every pass that was not sent yet, if the client watches passes."""
        messages = []
        while (batch := self._scope.watch.take()) is not None:
            messages.append(self._message("moments", **batch))
        return messages

    def _done(self, reason: str, stats: dict[str, Any]) -> Message:
        return self._message("done", reason=reason, stats=stats)

    def _message(self, kind: str, **fields: Any) -> Message:
        return {"type": kind, "id": self._request["id"], **fields}


def residency(request_id: int, engine: Engine) -> Message:
    """Return the message with a byte for each MoE layer and expert."""
    return {
        "type": "residency",
        "id": request_id,
        "moe_layers": list(engine.model.moe_layers),
        "n_expert": engine.model.n_expert,
        "data": base64.b64encode(engine.residency()).decode("ascii"),
    }
