"""One answer in the worker: run the engine on a request and pass on its tokens and figures."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.errors import EngineError, RequestError
from backend.protocol.group import Listener, Request
from backend.protocol.messages import N_ANSWER_MAX, Message
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

    def _asked(self) -> tuple[Sampling, int, ChatOptions]:
        request = self._request
        sampling = Sampling.from_message(request["sampling"])
        max_tokens = request["max_tokens"]
        if max_tokens < 1 and max_tokens != -1:
            raise RequestError(
                f"max_tokens must be at least 1, or -1 for no limit, not {max_tokens}."
            )
        self._engine.owner = request.get("owner", "")
        return sampling, max_tokens, ChatOptions.from_message(request.get("options") or {})

    def run_several(self) -> Message:
        """Write the request's `n_answer` answers jointly and return the final message.

        The first is sent as any answer, the others with their numbers; the end of each with its
        number. Raises as run().
        """
        request, engine, outbox = self._request, self._engine, self._outbox
        if not 2 <= request["n_answer"] <= N_ANSWER_MAX or self._is_text:
            raise RequestError(f"n_answer must be 2 to {N_ANSWER_MAX}, of a conversation.")
        sampling, max_tokens, options = self._asked()
        engine.make_room(request["n_answer"])
        if self._is_cancelled():
            return self._done("cancelled", Statistics().to_json())
        listeners = [_Several(self, outbox, i) for i in range(request["n_answer"])]
        requests = [
            Request(
                i, sampling.of_answer(i), max_tokens, request["messages"], None, options, listener
            )
            for i, listener in enumerate(listeners)
        ]
        ends = dict.fromkeys(range(len(requests)), ("cancelled", 0))
        self._scope.watch.clear()
        given = engine.generate_group(requests, lambda _: self._stop_if_asked(), keeps=True)
        outbox.begin_answer(request["id"], self._snapshot)
        try:
            for answer in given:
                if answer.error:
                    raise EngineError(answer.error)
                i = answer.request.key
                ends[i] = answer.finish_reason, answer.n_token
                outbox.settle()
                outbox.send(self._message("other_done", answer=i, **self._end(*ends[i])))
        finally:
            outbox.end_answer()
            for message in self._moments():
                outbox.send(message)
        return self._message("done", **self._end(*ends[0]))

    def _end(self, reason: str, n_token: int) -> dict[str, Any]:
        """Return how one of several answers ended, with its share of the figures."""
        stats = self._engine.statistics().to_json()
        share = n_token / max(stats["n_token"], 1)
        own = {"n_token": n_token, "tokens_per_s": stats["tokens_per_s"] * share}
        own["n_prompt"] = stats["n_prompt"] // self._request["n_answer"]
        return {"reason": reason, "stats": {**stats, **own}}

    @property
    def is_stopped(self) -> bool:
        """Whether the client has stopped it."""
        return self._is_cancelled()

    def show_prefill(self, done: int, total: int) -> None:
        """Tell how much of the prompt is computed."""
        self._on_prefill(done, total)

    def show_start(self) -> None:
        """Tell that the prompt is computed."""
        self._start()

    def _pieces(self) -> Iterator[Piece]:
        request, engine = self._request, self._engine
        sampling, max_tokens, options = self._asked()
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


class _Several(Listener):
    """Passes on one of several answers."""

    def __init__(self, answer: Answer, outbox: Outbox, number: int) -> None:
        self._answer, self._outbox, self._number = answer, outbox, number

    @property
    def is_gone(self) -> bool:
        """Whether the client has stopped them."""
        return self._answer.is_stopped

    def prefilled(self, done: int, total: int) -> None:
        """Tell how much of the prompt is computed."""
        if not self._number:
            self._answer.show_prefill(done, total)

    def began(self, n_prompt: int, n_reused: int) -> None:
        """Tell that the prompt is computed."""
        self._answer.show_start()

    def wrote(self, piece: Piece) -> None:
        """Pass on the raw text."""
        is_token = bool(piece.raw)
        if self._number:
            self._outbox.add_other(self._number, piece.raw, Delta(), is_token=is_token)
        else:
            self._outbox.add_text(piece.raw, piece.token_id if is_token else None)

    def delta(self, delta: Delta) -> None:
        """Pass on what the answer gained."""
        if self._number:
            self._outbox.add_other(self._number, "", delta, is_token=False)
        else:
            self._outbox.add_delta(delta)


def residency(request_id: int, engine: Engine) -> Message:
    """Return the message with a byte for each MoE layer and expert."""
    return {
        "type": "residency",
        "id": request_id,
        "moe_layers": list(engine.model.moe_layers),
        "n_expert": engine.model.n_expert,
        "data": base64.b64encode(engine.residency()).decode("ascii"),
    }
