"""Queues the requests of many clients for one engine, which answers them in its own thread.

Clients take turns: each client's requests are answered in order of arrival, and clients that wait
get one answer each in rotation. A client is what it calls itself (User-Agent).
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from backend.protocol.chat import Delta
from backend.protocol.errors import UntrustedError
from backend.protocol.settings import Sampling
from backend.server.ask import (
    N_SEED,
    Ask,
    Begin,
    Finish,
    Part,
    RequestRefused,
    Token,
    Wait,
    log_once,
)
from backend.text import Text

MAX_WAITING = 64
"""Maximum of waiting requests; more are refused."""
MAX_WAITING_OF_ONE = 32
"""Maximum of one client's waiting requests."""
N_LOG = 50
"""The number of requests in Turns.log."""
RETRY_S = 5

_STOPPED = RequestRefused(
    "The answer was stopped on this side; ask again.", status=503, retry_s=RETRY_S
)

Work = Callable[[Any], None]
News = Wait | Begin | Part | Finish | RequestRefused


class Host(Protocol):
    """The owner of an engine."""

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that load() accepts."""

    @property
    def n_other(self) -> int:
        """The number of requests in the engine's queue that are not this server's."""

    def submit(self, work: Work) -> None:
        """Queue `work(engine)` for the engine's thread. engine: None if no model is loaded."""

    def load(self, name: str) -> Any:
        """Load a model of `models`, or with "" the last one, and return the engine.

        Call it in the engine's thread. Raises an error of backend.
        """


class Line:
    """The waiting requests. Not safe for threads."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[_Turn]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def add(self, turn: _Turn) -> None:
        """Add a request behind those of its client. Raises RequestRefused if too many wait."""
        own = self._clients.get(turn.client, ())
        if len(self) >= MAX_WAITING or len(own) >= MAX_WAITING_OF_ONE:
            sentence = "Too many requests wait already."
            raise RequestRefused(sentence, status=429, code="rate_limit_exceeded", retry_s=RETRY_S)
        self._clients.setdefault(turn.client, deque()).append(turn)

    def next(self) -> _Turn | None:
        """Remove and return the request whose turn it is. Its client goes to the end."""
        if not self._clients:
            return None
        client, turns = self._clients.popitem(last=False)
        turn = turns.popleft()
        if turns:
            self._clients[client] = turns
        return turn

    def remove(self, turn: _Turn) -> None:
        """Remove a request, if it still waits."""
        turns = self._clients.get(turn.client)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._clients[turn.client]

    def positions(self) -> list[tuple[_Turn, int]]:
        """Return the waiting requests with the number of those before them."""
        longest = max(map(len, self._clients.values()), default=0)
        rounds = [t[i] for i in range(longest) for t in self._clients.values() if i < len(t)]
        return [(turn, n_before) for n_before, turn in enumerate(rounds)]


class Turns:
    """Has a host answer requests, and passes the news of each answer to its client.

    changed: called from any thread when a request has arrived or was answered.
    """

    def __init__(self, host: Host, changed: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._changed = changed
        self._lock = threading.Lock()  # guards the line and the present turn
        self._line = Line()
        self._present: _Turn | None = None
        self._is_paused = False
        self.n_request = 0
        """Number of requests so far."""
        self._open: set[_Turn] = set()
        self.log: deque[dict[str, Any]] = deque(maxlen=N_LOG)
        """The last requests that have ended: at_s (since 1970), took_s, model, and refusal, one
        sentence or "". Nothing of what was asked."""

    @property
    def n_open(self) -> int:
        """Number of requests that wait or are in progress."""
        return len(self._open)

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""
        return self._host.model_name

    @property
    def model_names(self) -> list[str]:
        """The names of all models that a request may ask for, the loaded one first."""
        loaded = self._host.model_name
        return list(dict.fromkeys([*([loaded] if loaded else []), *self._host.models]))

    def stop(self) -> None:
        """End all waiting answers and the one in progress."""
        with self._lock:
            turns = list(self._open)
        for turn in turns:
            turn.cancel()

    def pause(self) -> None:
        """End the answer in progress and let the others wait for resume()."""
        with self._lock:
            self._is_paused = True
            present = self._present
        if present is not None:
            present.cancel()

    def resume(self) -> None:
        """Serve the waiting requests again."""
        with self._lock:
            self._is_paused = False
            n = len(self._line)
        for _ in range(n):
            self._host.submit(self._run_next)

    async def answer(self, ask: Ask, client: str = "") -> AsyncGenerator[News]:
        """Yield the news of an answer, with a Finish for each choice at the end.

        Closing the iterator stops the answer. Raises RequestRefused.
        """
        turn = _Answer(ask, client, self._host, asyncio.get_running_loop())
        async for news in self._news(turn):
            yield news

    async def ask(self, question: Callable[[Any], Any], model: str = "", client: str = "") -> Any:
        """Return `question(engine)`, computed in the engine's thread. Raises RequestRefused."""
        turn = _Question(question, model, client, self._host, asyncio.get_running_loop())
        async for _ in self._news(turn):
            pass
        return turn.result

    async def _news(self, turn: _Turn) -> AsyncGenerator[News]:
        if self._host.model_name is None and not self._host.models:
            raise RequestRefused("No model is loaded.", status=503)
        with self._lock:
            self._line.add(turn)
            self.n_request += 1
            self._open.add(turn)
        self._changed()
        self._tell_positions()
        self._host.submit(self._run_next)
        began_s, model, refusal = time.time(), self._host.model_name or "", ""
        try:
            while (news := await turn.news.get()) is not None:
                if isinstance(news, RequestRefused):
                    refusal = str(news)
                    raise news
                yield news
        finally:
            turn.cancel()
            took_s = round(time.time() - began_s, 3)
            with self._lock:
                self.log.append(
                    {
                        "at_s": began_s, "took_s": took_s, "refusal": refusal,
                        "model": self._host.model_name or model,
                    }
                )  # fmt: skip
                self._line.remove(turn)
                self._open.discard(turn)
            self._tell_positions()
            self._changed()

    def _run_next(self, engine: Any) -> None:
        """Serve the request whose turn it is, if there is one. Called in the engine's thread."""
        with self._lock:
            turn = self._present = None if self._is_paused else self._line.next()
        if turn is not None:
            self._tell_positions()
            turn.run(engine)
            with self._lock:
                self._present = None

    def _tell_positions(self) -> None:
        with self._lock:
            n_before = self._host.n_other + (self._present is not None)
            for turn, position in self._line.positions():
                turn.tell_position(n_before + position)


class _Turn:
    """One request in the engine's thread."""

    def __init__(
        self, model: str, client: str, host: Host, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.client = client
        self.news: asyncio.Queue[News | None] = asyncio.Queue()
        self._model, self._host, self._loop = model, host, loop
        self._n_before = -1
        self._lock = threading.Lock()  # guards _cancelled and _engine
        self._cancelled = False
        self._engine: Any = None  # set while it answers

    def tell_position(self, n_before: int) -> None:
        """Tell the client how many requests are before its own, if that has changed."""
        if self._n_before < 0 or n_before < self._n_before:
            self._n_before = n_before
            if n_before:
                self._send(Wait(f"waiting, {n_before} before", n_before))

    def cancel(self) -> None:
        """Stop the answer, whose client is gone."""
        with self._lock:
            self._cancelled = True
            if self._engine is not None:
                self._engine.stop()

    def run(self, engine: Any) -> None:
        """Serve the request."""
        try:
            if self._cancelled:
                raise _STOPPED
            self._serve(self._loaded(engine))
        except RequestRefused as error:
            self._send(error)
        except Exception as error:
            self._send(_refusal(error))
        finally:
            with self._lock:
                self._engine = None
            self._send(None)

    def _serve(self, engine: Any) -> None:
        raise NotImplementedError

    def _loaded(self, engine: Any) -> Any:
        """Return the engine with the model that the request names, or with the loaded one."""
        wanted = self._model if self._model in self._host.models else ""
        if engine is not None and wanted in ("", self._host.model_name):
            return engine
        if engine is None and not self._host.models:
            raise RequestRefused("No model is loaded.", status=503)
        self._send(Wait(f"loading the model {wanted}".rstrip()))
        try:
            return self._host.load(wanted)
        except Exception as error:
            refused = _refusal(error)
            raise RequestRefused(str(refused), status=503) from error

    def _attach(self, engine: Any) -> None:
        """Let cancel() reach the engine from now on, because it forgets earlier stops."""
        with self._lock:
            self._engine = engine
            if self._cancelled:
                engine.stop()

    def _send(self, news: News | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self.news.put_nowait, news)
        except RuntimeError:  # the loop is closed: the server has ended
            self._cancelled = True


class _Question(_Turn):
    """Something to compute that is no answer."""

    result: Any = None

    def __init__(self, question: Callable[[Any], Any], *place: Any) -> None:
        super().__init__(*place)
        self._question = question

    def _serve(self, engine: Any) -> None:
        try:
            self.result = self._question(engine)
        except Exception as error:
            raise _refusal(error, before_answer=True) from error


class _Answer(_Turn):
    """The answers to one request, one after the other."""

    def __init__(self, ask: Ask, client: str, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(ask.model, client, host, loop)
        self._ask = ask
        self._tokens: list[Token] = []  # not sent yet
        self._token_lock = threading.Lock()
        self._has_begun = False

    def _serve(self, engine: Any) -> None:
        ask = self._ask
        if ask.has_images and not engine.model.chat.images:
            raise RequestRefused("The loaded model cannot see images.", param="messages")
        if ask.options.tools and not engine.model.chat.tools:
            if ask.options.tool_choice not in ("auto", "none"):
                raise RequestRefused(
                    "The loaded model knows no tools, so it cannot be made to call one.",
                    param="tool_choice",
                )
            log_once("A request has tools, but the loaded model knows none.")
        choice = 0
        for prompt in ask.prompts or (None,):
            for i in range(ask.n):
                self._answer(engine, choice, prompt, seeded(ask.sampling, i), i == 0)
                choice += 1

    def _answer(
        self, engine: Any, choice: int, prompt: str | None, sampling: Sampling, is_first: bool
    ) -> None:
        ask = self._ask
        reasoning: list[str] = []

        def on_begin() -> None:
            self._attach(engine)

        def on_prefill(done: int, total: int) -> None:
            self._attach(engine)
            self._begin(engine)
            self._send(Wait(f"reading the prompt, {done} of {total} tokens"))

        def on_delta(delta: Delta) -> None:
            with self._token_lock:
                tokens, self._tokens = tuple(self._tokens), []
            if delta.reasoning:
                reasoning.append(delta.reasoning)
            self._send(Part(choice, delta, tokens))

        engine.owner = "server"
        try:
            if prompt is None:
                pieces = engine.generate(
                    ask.messages,
                    sampling,
                    ask.max_tokens,
                    on_prefill,
                    on_begin,
                    options=ask.options,
                    on_delta=on_delta,
                )
            else:
                pieces = engine.generate_text(
                    prompt,
                    sampling,
                    ask.max_tokens,
                    on_prefill,
                    stops=ask.options.stops,
                    grammar=ask.options.grammar,
                )
        except Exception as error:
            raise _refusal(error, before_answer=True) from error
        for piece in pieces:
            self._attach(engine)
            self._begin(engine)
            if piece.chances:
                with self._token_lock:
                    self._tokens.append(token_of(piece.chances, ask.n_top))
            if prompt is not None and piece.text:
                on_delta(Delta(content=piece.text))
        if engine.finish_reason == "cancelled":
            raise _STOPPED
        self._begin(engine)
        if self._tokens:
            on_delta(Delta())
        stats = engine.statistics()
        self._send(
            Finish(
                choice,
                engine.finish_reason,
                n_prompt=stats.n_prompt if is_first else 0,
                n_token=stats.n_token,
                n_reused=stats.n_reused if is_first else 0,
                n_reasoning=len(engine.tokenize("".join(reasoning))) if reasoning else 0,
                stop=engine.stop_text if engine.stop_text in ask.options.stops else "",
            )
        )

    def _begin(self, engine: Any) -> None:
        """Tell once that the prompt is known."""
        if not self._has_begun:
            self._has_begun = True
            stats = engine.statistics()
            model = self._host.model_name or engine.model.name
            self._send(Begin(stats.n_prompt, stats.n_reused, model))


def seeded(sampling: Sampling, i: int) -> Sampling:
    """Return the sampling of the answer number i; each has a seed of its own."""
    if sampling.seed is None or not i:
        return sampling
    return replace(sampling, seed=(sampling.seed + i) % N_SEED)


def token_of(chances: Sequence[Any], n_top: int) -> Token:
    """Return a token from its chances, the chosen one first, with the n_top most probable."""
    chosen, *top = chances
    return Token(chosen.data, chosen.logprob, tuple((c.data, c.logprob) for c in top[:n_top]))


def _refusal(error: Exception, *, before_answer: bool = False) -> RequestRefused:
    """Return an error of the engine as a refusal.

    What fails before the answer begins is the request's fault (its length, a conversation that the
    template refuses), unless nothing can be answered any more.
    """
    if isinstance(error, RequestRefused):
        return error
    if not type(error).__module__.startswith("backend."):
        traceback.print_exc()
        return RequestRefused("Something unexpected failed in the engine.", status=500)
    sentence = str(error)
    is_too_long = isinstance(sentence, Text) and sentence.id == "engine.prompt_too_long"
    is_ours = not before_answer or isinstance(error, UntrustedError)
    code = "context_length_exceeded" if is_too_long else None
    return RequestRefused(sentence, status=500 if is_ours else 400, code=code)
