"""One answer in the worker: run the engine on a request and pass on its tokens and figures."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.chat import Delta
from backend.protocol.errors import RequestError
from backend.protocol.messages import N_ANSWER_MAX, Message
from backend.protocol.request import GroupAnswer, Handle, Request
from backend.worker.outbox import Outbox

if TYPE_CHECKING:
    from backend.engine.engine import Engine, Piece


SCOPES = ("nothing", "map", "all")


class WatchScope:
    """The data that the client wants beside the text (the request "watch").

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
            raise RequestError(f"There is nothing called {scope[:40]!a} to watch.")
        self.scope = scope
        if engine is not None:
            self.attach(engine)

    def attach(self, engine: Engine) -> None:
        """Watch an engine in this scope."""
        engine.watch(self.watch if self.all else None)


class Answer:
    """Answers the request "generate", also with several answers. Make it where the request arrives.

    The first answer is sent as any answer, the others with their numbers; the end of each of
    several with its number. requests: those of the engine. handle: cancels them. join() follows in
    the engine's thread; then it is a backend.server.turns.Own, or run() computes it alone. Raises
    RequestError for settings out of range.
    """

    def __init__(self, message: Message, outbox: Outbox, scope: WatchScope) -> None:
        n_answer: int = message.get("n_answer", 1)
        if not 1 <= n_answer <= N_ANSWER_MAX or (n_answer > 1 and "prompt" in message):
            raise RequestError(f"n_answer must be 1 to {N_ANSWER_MAX}, of a conversation.")
        self.handle = Handle()
        self._id: int = message["id"]
        self._outbox, self._scope = outbox, scope
        self._parts = [_Part(self, outbox, i) for i in range(n_answer)]
        first = Request.from_message(message, self._parts[0])
        others = [
            replace(
                first, sampling=first.sampling.of_answer(i), priority="program", is_further=True,
                handle=self._parts[i],
            )
            for i in range(1, n_answer)
        ]  # fmt: skip
        self.requests = [first, *others]
        self._engine: Engine | None = None
        self._on_end: Callable[[Message | Exception], None] = lambda _: None
        self._joint: Any = None
        self._has_started = self._is_over = False
        self._ends: dict[int, str] = {}  # reason by answer

    def run(self, on_step: Callable[[], None]) -> None:
        """Submit the requests, and no others, until all have ended.

        on_step: called between two steps of the engine.
        """
        engine = self._engine
        assert engine is not None
        try:
            if len(self.requests) > 1:
                engine.make_room(len(self.requests))
            for request in self.requests:
                engine.submit(request)
            while engine.step():
                on_step()
        except Exception as error:
            self.fail(error)
            while engine.step():  # its other answers leave
                pass

    def join(self, engine: Engine, on_end: Callable[[Message | Exception], None]) -> None:
        """Let the requests be submitted from now on. Until all have ended, others may run, too.

        on_end: receives the final message, or why there is none.
        """
        self._engine, self._on_end = engine, on_end
        self._scope.watch.clear()
        self._outbox.begin_answer(self._id, self._snapshot)

    def attach(self, joint: Any) -> None:
        """Note who answers it jointly with other requests."""
        self._joint = joint

    @property
    def is_asked(self) -> bool:
        """Whether it is an answer of a chat that a person waits for."""
        return self.requests[0].priority == "person"

    @property
    def is_shared(self) -> bool:
        """Whether passes had tokens of others."""
        return len(self.requests) > 1 or (self._joint is not None and self._joint.is_shared)

    def take(self, given: GroupAnswer, number: int) -> None:
        """Take the end of one of its answers."""
        if self._is_over:
            return
        if isinstance(given.fault, Exception):
            self.fail(given.fault)
            return
        self._ends[number] = given.finish_reason
        if len(self.requests) > 1:
            self._outbox.send(self._message("other_done", answer=number, **self._end(number)))
        if len(self._ends) == len(self.requests):
            self._close()
            self._on_end(self._message("done", **self._end(0)))

    def fail(self, error: Exception) -> None:
        """Note that nothing more follows, and why."""
        if self._is_over:
            return
        was_cancelled = self.handle.is_cancelled
        self.handle.cancel()  # its other answers go
        self._close()
        self._on_end(self._message("done", **self._end(0)) if was_cancelled else error)

    def show_prefill(self, done: int, total: int) -> None:
        """Tell how much of the prompt is computed."""
        self.show_start()
        self._outbox.offer(self._message("prefill", done=done, total=total))

    def show_start(self) -> None:
        """Tell once the length of the prompt."""
        if not self._has_started:
            stats = self._stats()
            self._outbox.send(
                self._message("started", n_prompt=stats["n_prompt"], n_reused=stats["n_reused"])
            )
            self._has_started = True

    def _close(self) -> None:
        self._is_over = True
        self._outbox.end_answer()
        for message in self._moments():
            self._outbox.send(message)

    def _end(self, number: int) -> dict[str, Any]:
        """Return how an answer ended, with its own speed and the costs of all."""
        reason = self._ends.get(number, "cancelled")
        return {"reason": reason, "stats": self._stats(number)}

    def _stats(self, number: int = 0) -> dict[str, Any]:
        """Return the fields of Statistics so far."""
        assert self._engine is not None
        return {**self._engine.statistics().to_json(), **self._parts[number].figures()}

    def _snapshot(self) -> list[Message]:
        """Return the current map and figures. Called from the outbox's thread."""
        assert self._engine is not None
        messages = []
        if self._has_started and (prefilled := self._engine.prefilled()):
            done, total = prefilled
            self._outbox.offer(self._message("prefill", done=done, total=total))
        if self._scope.map:
            messages.append(residency(self._id, self._engine))
        if self._has_started:  # before that the figures belong to the previous answer
            messages.append(self._message("stats", stats=self._stats()))
        return messages + self._moments()

    def _moments(self) -> list[Message]:
        """Return every pass that was not sent yet, if the client watches passes."""
        messages = []
        while (batch := self._scope.watch.take()) is not None:
            messages.append(self._message("moments", **batch))
        return messages

    def _message(self, kind: str, **fields: Any) -> Message:
        return {"type": kind, "id": self._id, **fields}


class _Part(Handle):
    """Passes on one of several answers."""

    splits = "live"

    def __init__(self, answer: Answer, outbox: Outbox, number: int) -> None:
        super().__init__(answer.handle)
        self.number = number
        self._answer, self._outbox = answer, outbox

    def prefilled(self) -> None:
        """Tell how much of the prompt is computed."""
        if not self.number:
            self._answer.show_prefill(self.follow.n_done, self.follow.n_prompt)

    def began(self) -> None:
        """Tell that the prompt is computed."""
        if not self.number:
            self._answer.show_start()

    def figures(self) -> dict[str, Any]:
        """Return the fields of Statistics that this answer has of its own."""
        names = ("n_prompt", "n_reused", "n_token", "ttft_s", "tokens_per_s")
        return {name: getattr(self.follow, name) for name in names}

    def wrote(self, piece: Piece) -> None:
        """Pass on the raw text, and the text of a raw answer."""
        is_raw = self._answer.requests[0].prompt is not None
        delta = Delta(content=piece.text if is_raw else "")
        token = piece.token_id if piece.token_id >= 0 else None
        self._outbox.add(self.number, piece.raw, delta, token)

    def ended(self, given: GroupAnswer) -> None:
        """Pass on the end of the answer."""
        self._answer.take(given, self.number)

    def delta(self, delta: Delta) -> None:
        """Pass on what the answer gained."""
        self._outbox.add(self.number, delta=delta)


def residency(request_id: int, engine: Engine) -> Message:
    """Return the message with a byte for each MoE layer and expert."""
    return {
        "type": "residency",
        "id": request_id,
        "moe_layers": list(engine.model.moe_layers),
        "n_expert": engine.model.n_expert,
        "data": base64.b64encode(engine.residency()).decode("ascii"),
    }
