"""One answer in the worker: run the engine on a request and pass on its tokens and figures."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.chat import Delta
from backend.protocol.errors import EngineError, RequestError
from backend.protocol.group import GroupAnswer, Handle, Listener, Request
from backend.protocol.messages import N_ANSWER_MAX, Message
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
    """Answers the request "generate", unless its handle is cancelled. Use from the engine's thread.

    on_step: called between two steps of the engine. scope: how much the client watches.
    """

    def __init__(
        self,
        message: Message,
        handle: Handle,
        engine: Engine,
        outbox: Outbox,
        on_step: Callable[[], None],
        scope: WatchScope,
    ) -> None:
        self._asked = message
        self._handle = handle
        self._engine = engine
        self._outbox = outbox
        self._on_step = on_step
        self._scope = scope
        self._started = False
        self._is_text = "prompt" in message

    def run(self) -> Message:
        """Answer the request and return the final message.

        Raises RequestError for settings out of range, and the engine's errors.
        """
        self._on_step()
        if self._handle.is_cancelled:
            return self._done("cancelled", Statistics().to_json())
        self._scope.watch.clear()
        request = Request.from_message(self._asked, self._handle)
        pieces = self._engine.answer(request, self._on_prefill, on_delta=self._outbox.add_delta)
        self._outbox.begin_answer(self._asked["id"], self._snapshot)
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
                self._on_step()
            if rest := self._engine.raw[n_raw:]:  # of the token that ended the answer
                self._outbox.add_text(rest, None)
        finally:
            self._outbox.end_answer()
            for message in self._moments():
                self._outbox.send(message)
        return self._done(self._engine.finish_reason, self._engine.statistics().to_json())

    def _on_prefill(self, done: int, total: int) -> None:
        self._start()
        self._outbox.offer(self._message("prefill", done=done, total=total))
        self._on_step()

    def _start(self) -> None:
        if not self._started:
            stats = self._stats()
            self._outbox.send(
                self._message("started", n_prompt=stats["n_prompt"], n_reused=stats["n_reused"])
            )
            self._started = True

    def _stats(self) -> dict[str, Any]:
        """Return the fields of Statistics so far."""
        return self._engine.statistics().to_json()

    def _snapshot(self) -> list[Message]:
        """Return the current map and figures. Called from the outbox's thread."""
        messages = []
        if self._started and (prefilled := self._engine.prefilled()):
            done, total = prefilled
            self._outbox.offer(self._message("prefill", done=done, total=total))
        if self._scope.map:
            messages.append(residency(self._asked["id"], self._engine))
        if self._started:  # before that the figures belong to the previous answer
            messages.append(self._message("stats", stats=self._stats()))
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
        return {"type": kind, "id": self._asked["id"], **fields}


class JointAnswer(Answer):
    """Answers the request "generate" jointly: with several answers, or beside other requests.

    The first answer is sent as any answer, the others with their numbers; the end of each with its
    number. on_end: receives the final message, or why there is none. Beside others it is a
    backend.server.turns.Own.
    """

    def __init__(self, *args: Any, on_end: Callable[[Message | Exception], None]) -> None:
        super().__init__(*args)
        self._n_answer: int = self._asked.get("n_answer", 1)
        self._on_end = on_end
        self._joint: Any = None
        self._listeners: list[_Several] = []
        self._requests: list[Request] = []
        self._ends: dict[int, str] = {}  # reason by answer

    def run(self) -> Message:
        """Answer the request and return the final message. Raises as Answer.run()."""
        asked = iter(self.requests())
        try:
            self._engine.make_room(self._n_answer)
            for given in self._engine.generate_group(
                [], lambda _: self._on_step(), keeps=True, urgent=lambda: next(asked, None)
            ):
                self._take(given)
        finally:
            self._close()
        return self._final()

    def requests(self) -> list[Request]:
        """Return the requests of a group. take() or fail() follows. Raises as Answer.run()."""
        if self._listeners:
            return self._requests
        if not 1 <= self._n_answer <= N_ANSWER_MAX or self._is_text:
            raise RequestError(f"n_answer must be 1 to {N_ANSWER_MAX}, of a conversation.")
        request = Request.from_message(self._asked, self._handle)
        self._listeners = [_Several(self, self._outbox, i) for i in range(self._n_answer)]
        self._requests = [
            replace(
                request,
                key=listener,
                sampling=request.sampling.of_answer(i),
                listener=listener,
                priority=request.priority if i == 0 else "program",
                owner=request.owner if i == 0 else "",
            )
            for i, listener in enumerate(self._listeners)
        ]
        self._scope.watch.clear()
        self._outbox.begin_answer(self._asked["id"], self._snapshot)
        return self._requests

    def attach(self, joint: Any) -> None:
        """Note what answers it together with others."""
        self._joint = joint

    @property
    def is_shared(self) -> bool:
        """Whether passes had tokens of others."""
        return self._n_answer > 1 or (self._joint is not None and self._joint.is_shared)

    def take(self, given: GroupAnswer) -> bool:
        """Take the answer to one of its requests. Return whether it needs no other."""
        if given.request.key not in self._listeners:
            return False  # of one before, which has failed
        try:
            is_last = self._take(given)
        except EngineError as error:
            self.fail(error)
            return True
        if is_last:
            self._close()
            self._on_end(self._final())
        return is_last

    def fail(self, error: Exception) -> None:
        """Note that nothing more follows, and why."""
        was_cancelled = self._handle.is_cancelled
        self._handle.cancel()  # its other answers go
        self._close()
        self._on_end(self._final() if was_cancelled else error)

    def _take(self, given: GroupAnswer) -> bool:
        if given.error:
            raise EngineError(given.error)
        number: int = given.request.key.number
        self._ends[number] = given.finish_reason
        if self._n_answer > 1:
            self._outbox.settle()
            self._outbox.send(self._message("other_done", answer=number, **self._end(number)))
        return len(self._ends) == self._n_answer

    def _close(self) -> None:
        self._outbox.end_answer()
        for message in self._moments():
            self._outbox.send(message)

    def _final(self) -> Message:
        return self._message("done", **self._end(0))

    def _end(self, number: int) -> dict[str, Any]:
        """Return how an answer ended, with its own speed and the costs of all."""
        reason = self._ends.get(number, "cancelled")
        return {"reason": reason, "stats": self._stats(number)}

    def _stats(self, number: int = 0) -> dict[str, Any]:
        return {**super()._stats(), **self._listeners[number].figures()}

    def show_prefill(self, done: int, total: int) -> None:
        """Tell how much of the prompt is computed."""
        self._on_prefill(done, total)

    def show_start(self) -> None:
        """Tell that the prompt is computed."""
        self._start()


class _Several(Listener):
    """Passes on one of several answers. Its times are those of perf_counter()."""

    def __init__(self, answer: JointAnswer, outbox: Outbox, number: int) -> None:
        self.number = number
        self._answer, self._outbox = answer, outbox
        self._n_prompt = self._n_reused = self._n_token = 0
        self._asked_s = self._first_s = self._last_s = time.perf_counter()

    def prefilled(self, done: int, total: int) -> None:
        """Tell how much of the prompt is computed."""
        if not self.number:
            self._answer.show_prefill(done, total)

    def began(self, n_prompt: int, n_reused: int) -> None:
        """Tell that the prompt is computed."""
        self._n_prompt, self._n_reused = n_prompt, n_reused
        self._first_s = time.perf_counter()
        if not self.number:
            self._answer.show_start()

    def figures(self) -> dict[str, Any]:
        """Return the fields of Statistics that this answer has of its own."""
        took_s = self._last_s - self._first_s
        return {
            "n_prompt": self._n_prompt,
            "n_reused": self._n_reused,
            "n_token": self._n_token,
            "ttft_s": self._first_s - self._asked_s,
            "tokens_per_s": self._n_token / took_s if took_s > 0 else 0.0,
        }

    def wrote(self, piece: Piece) -> None:
        """Pass on the raw text."""
        # The rest of the text comes without a token, or as a piece without raw text.
        is_token = piece.token_id >= 0 and bool(piece.raw or not piece.text)
        token_id = piece.token_id if is_token else None
        self._n_token += is_token
        self._last_s = time.perf_counter()
        if self.number:
            self._outbox.add_other(self.number, piece.raw, Delta(), is_token=is_token)
        else:
            self._outbox.add_text(piece.raw, token_id)

    def delta(self, delta: Delta) -> None:
        """Pass on what the answer gained."""
        if self.number:
            self._outbox.add_other(self.number, "", delta, is_token=False)
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
