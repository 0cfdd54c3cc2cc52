"""One answer in the worker: starts the engine on a request and passes its tokens and figures on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.protocol.settings import Sampling
from backend.protocol.statistics import Statistics
from backend.worker.outbox import Outbox

if TYPE_CHECKING:
    from backend.engine.engine import Engine, Piece


SCOPES = ("nothing", "map", "all")


class Gaze:
    """What the other side wants to see beside the text (the request "watch").

    "map": the map some times a second, which is what a new client gets. "all": also every pass
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
        """Look at more or less of it; from any thread. Raises RequestError."""
        if scope not in SCOPES:
            raise RequestError(f"There is nothing called {ascii(scope[:40])} to watch.")
        self.scope = scope
        if engine is not None:
            self.attach(engine)

    def attach(self, engine: Engine) -> None:
        """Look at an engine."""
        engine.watch(self.watch if self.all else None)


class Answer:
    """Answers the request "generate"; used from the engine's thread.

    `is_cancelled` is asked between two steps of the engine: a stop that came before the engine
    had begun is repeated then, so that none is lost. `gaze`: how much of it somebody watches.
    """

    def __init__(
        self,
        request: Message,
        engine: Engine,
        outbox: Outbox,
        is_cancelled: Callable[[], bool],
        gaze: Gaze,
    ) -> None:
        self._request = request
        self._engine = engine
        self._outbox = outbox
        self._is_cancelled = is_cancelled
        self._gaze = gaze
        self._started = False

    def run(self) -> Message:
        """Answer to the end and return the final message.

        Raises RequestError for settings out of range, and the engine's errors.
        """
        if self._is_cancelled():
            return self._done("cancelled", Statistics().to_json())
        self._gaze.watch.clear()
        pieces = self._pieces()
        self._outbox.begin_answer(self._request["id"], self._snapshot)
        try:
            for piece in pieces:
                self._start()
                # The end of a character that no token completed comes without a token.
                is_token = self._engine.statistics().n_token > self._outbox.n_token
                self._outbox.add_text(piece.text, piece.token_id if is_token else None)
                self._stop_if_asked()
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
        if "prompt" in request:
            return engine.generate_text(
                request["prompt"], sampling, max_tokens, on_prefill=self._on_prefill
            )
        return engine.generate(
            request["messages"],
            sampling,
            max_tokens,
            on_prefill=self._on_prefill,
            on_begin=self._stop_if_asked,
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
        """Return the map and the figures of this moment; called from the outbox's thread."""
        messages = []
        if self._started and (prefilled := self._engine.prefilled()):
            done, total = prefilled
            self._outbox.offer(self._message("prefill", done=done, total=total))
        if self._gaze.map:
            messages.append(residency(self._request["id"], self._engine))
        if self._started:  # until then the figures are those of the answer before
            messages.append(self._message("stats", stats=self._engine.statistics().to_json()))
        return messages + self._moments()

    def _moments(self) -> list[Message]:
        """Return every pass that has not been told of yet, if anybody wants to know."""
        messages = []
        while (batch := self._gaze.watch.take()) is not None:
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
