"""Queues the requests of many clients for one engine, which answers them in its own thread."""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from backend.server.protocol import Ask, Finish, RequestRefused, StopFilter
from backend.text import Text

MAX_WAITING = 32
"""Maximum of waiting requests; more are refused."""

Work = Callable[[Any], None]


class Host(Protocol):
    """The owner of an engine."""

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""

    def submit(self, work: Work) -> None:
        """Queue `work(engine)` for the engine's thread. engine: None if no model is loaded."""


class EngineThread:
    """A host with a thread that runs the queued work for an engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model."""
        return str(self._engine.model.name)

    def submit(self, work: Work) -> None:
        """Queue `work(engine)`."""
        self._work.put(work)

    def close(self) -> None:
        """Finish the queued work and end the thread. The engine stays open."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work(self._engine)
                if self._work.empty():
                    self._engine.idle()
            except Exception:
                traceback.print_exc()  # the client has received the errors of its request


class Turns:
    """Has a host answer requests, and passes the pieces of each answer to its client.

    changed: called from any thread when a request has arrived or was answered.
    """

    def __init__(self, host: Host, changed: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._changed = changed
        self._lock = threading.Lock()
        self._n_waiting = 0
        self.n_request = 0
        """Number of requests so far."""
        self._turns: set[_Turn] = set()

    @property
    def n_open(self) -> int:
        """Number of requests that wait or are in progress."""
        return len(self._turns)

    def stop(self) -> None:
        """End all waiting answers and those in progress."""
        for turn in list(self._turns):
            turn.cancel()

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""
        return self._host.model_name

    async def answer(self, ask: Ask) -> AsyncGenerator[str | Finish]:
        """Yield pieces of text, and a Finish at the end. Closing the iterator stops the answer.

        Raises RequestRefused.
        """
        with self._lock:
            if self._n_waiting >= MAX_WAITING:
                raise RequestRefused("Too many requests wait already.", status=503)
            self._n_waiting += 1
            self.n_request += 1
        turn = _Turn(ask, asyncio.get_running_loop(), self._begun)
        self._turns.add(turn)
        self._changed()
        self._host.submit(turn.run)
        try:
            while True:
                piece = await turn.pieces.get()
                if isinstance(piece, RequestRefused):
                    raise piece
                yield piece
                if isinstance(piece, Finish):
                    return
        finally:
            turn.cancel()
            self._turns.discard(turn)
            self._changed()

    def _begun(self) -> None:
        with self._lock:
            self._n_waiting -= 1


class _Turn:
    """One request in the engine's thread."""

    def __init__(
        self, ask: Ask, loop: asyncio.AbstractEventLoop, begun: Callable[[], None]
    ) -> None:
        self.pieces: asyncio.Queue[str | Finish | RequestRefused] = asyncio.Queue()
        self._ask, self._loop, self._begun = ask, loop, begun
        self._lock = threading.Lock()  # guards _cancelled and _engine
        self._cancelled = False
        self._engine: Any = None  # set while it answers

    def cancel(self) -> None:
        """Stop the answer, whose client is gone."""
        with self._lock:
            self._cancelled = True
            if self._engine is not None:
                self._engine.stop()

    def run(self, engine: Any) -> None:
        """Answer the request. Called in the engine's thread."""
        self._begun()
        if self._cancelled:
            return
        if engine is None:
            self._send(RequestRefused("No model is loaded.", status=503))
            return
        try:
            self._answer(engine)
        except Exception as error:
            if not type(error).__module__.startswith("backend."):
                traceback.print_exc()
            sentence = str(error)
            is_too_long = isinstance(sentence, Text) and sentence.id == "engine.prompt_too_long"
            status, code = (400, "context_length_exceeded") if is_too_long else (500, None)
            self._send(RequestRefused(sentence, status=status, code=code))
        finally:
            with self._lock:
                self._engine = None

    def _answer(self, engine: Any) -> None:
        ask, filtered = self._ask, StopFilter(self._ask.stops)

        def listen(*_progress: int) -> None:
            """Let cancel() reach the engine from now on, because it forgets earlier stops."""
            with self._lock:
                self._engine = engine
                if self._cancelled:
                    engine.stop()

        if ask.messages:
            pieces = engine.generate(ask.messages, ask.sampling, ask.max_tokens, listen, listen)
        else:
            pieces = engine.generate_text(ask.prompt, ask.sampling, ask.max_tokens, listen)
        for piece in pieces:
            listen()
            if text := filtered.feed(piece.text):
                self._send(text)
            if filtered.stopped:
                break
        pieces.close()
        if text := filtered.rest():
            self._send(text)
        stats = engine.statistics()
        ended = filtered.stopped or engine.finish_reason == "stop"
        self._send(Finish("stop" if ended else "length", stats.n_prompt, stats.n_token))

    def _send(self, piece: str | Finish | RequestRefused) -> None:
        try:
            self._loop.call_soon_threadsafe(self.pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: the server has ended
            self._cancelled = True
