"""One answer in the worker: run the engine on a request and pass on its tokens and figures."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.moments import Watch
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.errors import EngineError, RequestError
from backend.protocol.group import GroupAnswer, Listener, Request
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
            stats = self._stats()
            self._outbox.send(
                self._message("started", n_prompt=stats["n_prompt"], n_reused=stats["n_reused"])
            )
            self._started = True

    def _stop_if_asked(self) -> None:
        if self._is_cancelled():
            self._engine.stop()

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
            messages.append(residency(self._request["id"], self._engine))
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
        return {"type": kind, "id": self._request["id"], **fields}


class JointAnswer(Answer):
    """Answers the request "generate" jointly: with several answers, or beside other requests.

    The first answer is sent as any answer, the others with their numbers; the end of each with its
    number. on_end: receives the final message, or why there is none. Beside others it is a
    backend.server.turns.Own.
    """

    def __init__(self, *args: Any, on_end: Callable[[Message | Exception], None]) -> None:
        super().__init__(*args)
        self._n_answer: int = self._request.get("n_answer", 1)
        self._on_end = on_end
        self._joint: Any = None
        self._listeners: list[_Several] = []
        self._requests: list[Request] = []
        self._ends: dict[int, str] = {}  # reason by answer
        self._is_over = False

    def run(self) -> Message:
        """Answer the request and return the final message. Raises as Answer.run()."""
        asked = iter(self.requests())
        try:
            self._engine.make_room(self._n_answer)
            for given in self._engine.generate_group(
                [], lambda _: self._stop_if_asked(), keeps=True, urgent=lambda: next(asked, None)
            ):
                self._take(given)
        finally:
            self._close()
        return self._final()

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._is_over or self._is_cancelled()

    def requests(self) -> list[Request]:
        """Return the requests of a group. take() or fail() follows. Raises as Answer.run()."""
        if self._listeners:
            return self._requests
        if not 1 <= self._n_answer <= N_ANSWER_MAX or self._is_text:
            raise RequestError(f"n_answer must be 1 to {N_ANSWER_MAX}, of a conversation.")
        sampling, max_tokens, options = self._asked()
        owner, self._engine.owner = self._engine.owner, ""
        is_read = not self._request.get("aside", False)
        self._listeners = [_Several(self, self._outbox, i) for i in range(self._n_answer)]
        self._requests = [
            Request(
                listener, sampling.of_answer(i), max_tokens, self._request["messages"], None,
                options, listener, precedes=is_read and i == 0, owner=owner if i == 0 else "",
            )
            for i, listener in enumerate(self._listeners)
        ]  # fmt: skip
        self._scope.watch.clear()
        self._outbox.begin_answer(self._request["id"], self._snapshot)
        return self._requests

    def attach(self, joint: Any) -> None:
        """Note what answers it together with others."""
        self._joint = joint

    @property
    def is_shared(self) -> bool:
        """Whether passes had tokens of others."""
        return self._n_answer > 1 or (self._joint is not None and self._joint.is_shared)

    def stop(self) -> None:
        """Stop it. From any thread."""
        if self._joint is not None:
            self._joint.stop()

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
        was_cancelled = self._is_cancelled()
        self._is_over = True  # its other answers go
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

    @property
    def is_gone(self) -> bool:
        """Whether the client has stopped them."""
        return self._answer.is_cancelled

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
