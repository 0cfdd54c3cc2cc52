"""Queues the requests of many clients for one engine, which answers them in its own thread.

Clients take turns: each client's requests are answered in order of arrival, and clients that wait
get one answer each in rotation. A client is known by its own name (User-Agent). Several answers are
computed jointly; a request joins while others are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from backend.gguf.header import ModelFileError
from backend.protocol.attachments import UNSEEN_IMAGE, images_of, in_words
from backend.protocol.chat import Delta
from backend.protocol.errors import GivenUp, UntrustedError
from backend.protocol.request import GroupAnswer, Handle, Prompt, Request
from backend.protocol.settings import Sampling
from backend.protocol.vectors import Vectors
from backend.server.ask import (
    TOO_LONG,
    Ask,
    Begin,
    Finish,
    Fitted,
    Json,
    Part,
    Progress,
    RequestRefused,
    Timings,
    Token,
    Wait,
    n_chosen,
)
from backend.server.figures import Figures
from backend.server.model_facts import LoadedFacts
from backend.system import faults
from backend.text import Text, without_folders

MAX_WAITING = 64
"""Maximum of waiting requests; more are refused."""
MAX_WAITING_OF_ONE = 32
"""Maximum of one client's waiting requests."""
N_PARALLEL = 4
"""Answers that are computed at once."""
N_LOG = 50
"""The number of requests in Turns.log."""
KEEPS_S = 60.0
"""The time for which a client that has asked keeps others from taking every place."""
RETRY_S = 5

_STOPPED = RequestRefused(
    "The answer was stopped on this side; ask again.", status=503, retry_s=RETRY_S
)

T = TypeVar("T")
Work = Callable[[Any], None]
News = Wait | Fitted | Begin | Part | Finish | RequestRefused


class Own(Protocol):
    """A request of the engine's owner, which is answered beside those of clients."""

    @property
    def requests(self) -> Sequence[Request]:
        """The requests of a group that it consists of."""

    def attach(self, joint: Any) -> None:
        """Note the _Joint that answers it."""

    def fail(self, error: Exception) -> None:
        """Note that nothing more follows, and why."""


class Embedder(Protocol):
    """A small model beside the engine. Use from any thread. Methods raise EngineError."""

    @property
    def name(self) -> str:
        """Its name."""

    def embed(
        self,
        inputs: Sequence[str] | Sequence[Sequence[int]],
        *,
        cuts: bool = False,
        is_gone: Callable[[], bool] = ...,
    ) -> Vectors:
        """Return a vector for each text or list of tokens. cuts: cut those that are too long."""

    def rank(
        self, query: str, documents: Sequence[str], *, is_gone: Callable[[], bool] = ...
    ) -> Vectors:
        """Return the score of each document for a query."""


class Host(Protocol):
    """The owner of an engine."""

    @property
    def embedder(self) -> Embedder | None:
        """The small model beside the engine, or None."""

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that load() accepts."""

    @property
    def unload_after_s(self) -> float | None:
        """The seconds without a request after which the model is freed; None or 0: it is kept."""

    def path_of(self, name: str) -> Path | None:
        """Return the file of a model, or None."""

    @property
    def n_other(self) -> int:
        """The number of requests in the engine's queue that are not this server's.

        Those that are answered beside this server's are not counted.
        """

    def next_own(self, engine: Any) -> Own | None:
        """Return a request that waits and can be answered beside those of clients, if any.

        One at a time: the next one when the last has ended. Called in the engine's thread, between
        two passes.
        """

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
            raise _too_many()
        self._clients.setdefault(turn.client, deque()).append(turn)

    def next(
        self, fits: Callable[[_Turn], bool] = lambda _: True, without: Collection[str] = ()
    ) -> _Turn | None:
        """Remove and return the next request, if it fits. Its client goes to the end.

        without: clients that are passed over.
        """
        client = next((each for each in self._clients if each not in without), None)
        if client is None or not fits(self._clients[client][0]):
            return None
        turns = self._clients.pop(client)
        turn = turns.popleft()
        if turns:
            self._clients[client] = turns
        return turn

    def question(self, engine: Any) -> _Question | None:
        """Remove and return the first question that may be answered between two passes.

        Its client goes to the end.
        """
        for client, turns in self._clients.items():
            for turn in turns:
                if isinstance(turn, _Question) and turn.is_short and turn.has_model(engine):
                    self._clients.move_to_end(client)
                    self.remove(turn)
                    return turn
        return None

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

    changed: called from any thread when a request has arrived or was answered. n_parallel: answers
    that are computed at once.
    """

    def __init__(
        self,
        host: Host,
        changed: Callable[[], None] = lambda: None,
        n_parallel: int = N_PARALLEL,
    ) -> None:
        self.host = host
        self._changed = changed
        self.n_parallel = n_parallel
        self._lock = threading.Lock()  # guards the line and the present turns
        self._line = Line()
        self.present: list[_Turn] = []
        """The requests that are being answered."""
        self._n_free = 0  # requests that may join the present ones
        self._is_paused = False
        self._vectors, self._words = _Beside(), _Beside()
        self._cramped: Any = None  # an engine that had no room for several answers
        self.may_join = False
        """Whether requests are being answered that others may join."""
        self.n_request = 0
        """Number of requests so far."""
        self._open: set[_Turn] = set()
        self._asked_s: dict[str, float] = {}  # when the last two clients asked
        self.figures = Figures()
        """The tokens and times of the server so far."""
        self.last_facts: LoadedFacts | None = None
        """The facts of the model that was loaded last, which may have been freed."""
        self._vocabulary: Any = None  # Words of backend.engine.prompts
        self._noted: str | None = None  # the model that these are of
        self._ended_s = time.time()  # when the last request ended
        self.log: deque[dict[str, Any]] = deque(maxlen=N_LOG)
        """The last requests that have ended: at_s (since 1970), took_s, model, and refusal, one
        sentence or "". No text of a request."""

    def learn(self) -> None:
        """Ask the engine for the facts of its model, which `facts` then has."""
        self.host.submit(self._note)

    def _note(self, engine: Any) -> None:
        """Note the facts of the engine's model. Called in the engine's thread."""
        if engine is None:
            return
        self._noted = self.host.model_name
        try:
            self.last_facts = LoadedFacts(engine.model, engine.vocabulary, engine.cache)
            self._vocabulary = engine.prompts.words
        except Exception as error:  # the requests are answered all the same
            self.last_facts = self._vocabulary = None
            faults.record("facts", error)

    @property
    def facts(self) -> LoadedFacts | None:
        """The facts of the loaded model, if the engine has told them."""
        return self.last_facts if self._noted == self.host.model_name else None

    async def known(self) -> LoadedFacts | None:
        """Return the facts of the loaded model; wait for an engine that has just begun."""
        if self.facts is None and self.host.model_name is not None:
            await self.ask(lambda _: None)  # which the engine does after it has told them
        return self.facts

    @property
    def expires_s(self) -> float | None:
        """When the model is freed if nothing is asked, in seconds since 1970; None: it is kept."""
        after_s = self.host.unload_after_s
        if not after_s:
            return None
        return (time.time() if self._open else self._ended_s) + after_s

    @property
    def n_waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._line)

    @property
    def n_open(self) -> int:
        """Number of requests that wait or are in progress."""
        return len(self._open)

    @property
    def model_names(self) -> list[str]:
        """The names of all models that a request may ask for, the loaded one first."""
        loaded = self.host.model_name
        return list(dict.fromkeys([*([loaded] if loaded else []), *self.host.models]))

    def stop(self) -> None:
        """End the requests in progress, and refuse those that wait: the engine may be busy."""
        with self._lock:
            turns = list(self._open)
            waiting = [turn for turn in turns if turn not in self.present]
        for turn in turns:
            turn.handle.cancel()
        for turn in waiting:
            turn.end(_STOPPED)

    def pause(self) -> None:
        """End the answer in progress and let the others wait for resume()."""
        with self._lock:
            self._is_paused = True
            present = list(self.present)
        for turn in present:
            turn.handle.cancel()

    def resume(self) -> None:
        """Serve the waiting requests again."""
        with self._lock:
            self._is_paused = False
            n = len(self._line)
        for _ in range(n):
            self.host.submit(self._run_next)

    async def answer(self, ask: Ask, client: str = "") -> AsyncGenerator[News]:
        """Yield the news of an answer, with a Finish for each choice at the end.

        Closing the iterator stops the answer. Raises RequestRefused.
        """
        turn = _Answer(ask, client, self.host, asyncio.get_running_loop(), self.figures)
        with self._lock:
            others = [(c, at_s) for c, at_s in self._asked_s.items() if c != client]
            self._asked_s = {**dict(others[-1:]), client: time.monotonic()}
        async for news in self._news(turn):
            yield news

    async def ask(
        self,
        question: Callable[[Any], Any],
        model: str = "",
        client: str = "",
        *,
        is_short: bool = True,
    ) -> Any:
        """Return `question(engine)`, computed in the engine's thread. Raises RequestRefused.

        is_short: also between two passes of answers.
        """
        loop = asyncio.get_running_loop()
        turn = _Question(question, is_short, model, client, self.host, loop)
        async for _ in self._news(turn):
            pass
        return turn.result

    async def vectors(
        self, compute: Callable[[Embedder, Callable[[], bool]], Vectors]
    ) -> tuple[str, Vectors] | None:
        """Return the name and the kind of the small model; None where there is none.

        It waits for other such requests, and not for answers. Raises RequestRefused.
        """
        embedder = self.host.embedder
        if embedder is None:
            return None
        is_gone = threading.Event()
        try:
            async with self._vectors.place():
                found = await asyncio.to_thread(compute, embedder, is_gone.is_set)
        finally:
            is_gone.set()
        return embedder.name, found

    async def words(self, work: Callable[[Any], T], client: str = "") -> T:
        """Return `work(words)` of the loaded model, with Words of backend.engine.prompts.

        It waits for other such requests, and for answers only where a model has to be loaded.
        Raises RequestRefused.
        """
        vocabulary = self._vocabulary if self._noted == self.host.model_name else None
        if vocabulary is not None:
            async with self._words.place():
                if (found := vocabulary.beside(work)) is not None:
                    return cast(T, await asyncio.wrap_future(found))
        return cast(T, await self.ask(lambda engine: work(engine.prompts), client=client))

    async def _news(self, turn: _Turn) -> AsyncGenerator[News]:
        if self.host.model_name is None and not self.host.models:
            raise RequestRefused("No model is loaded.", status=503)
        with self._lock:
            self._line.add(turn)
            self.n_request += 1
            self._open.add(turn)
        self._changed()
        self._tell_positions()
        self.host.submit(self._run_next)
        began_s, model, refusal = time.time(), self.host.model_name or "", ""
        try:
            while (news := await turn.news.get()) is not None:
                if isinstance(news, RequestRefused):
                    refusal = str(news)
                    raise news
                yield news
        finally:
            turn.handle.cancel()
            took_s = round(time.time() - began_s, 3)
            with self._lock:
                self.log.append(
                    {
                        "at_s": began_s, "took_s": took_s, "refusal": refusal,
                        "model": self.host.model_name or model,
                    }
                )  # fmt: skip
                self._line.remove(turn)
                self._open.discard(turn)
                self._ended_s = time.time()
            self._tell_positions()
            self._changed()

    def _run_next(self, engine: Any) -> None:
        """Serve the request whose turn it is, if there is one. Called in the engine's thread."""
        with self._lock:
            turn = None if self._is_paused else self._line.next()
            self.present = [] if turn is None else [turn]
        if turn is None:
            return
        fault: Exception | None = None
        try:
            self._note(engine)
            self._tell_positions()
            engine = turn.loaded(engine)
            if self._noted != self.host.model_name:
                self._note(engine)
            if isinstance(turn, _Answer):
                self._make_room(engine)
                self.answer_jointly(engine, turn)
                turn = None
            else:
                turn.serve(engine)
        except Exception as error:
            fault = error
        with self._lock:
            self.present, self._n_free = [], 0
        if self._noted is not None and self.host.model_name != self._noted:
            self.learn()
        if turn is not None:
            turn.end(fault)  # only now, so that its client's next request finds nobody before it

    def answer_jointly(self, engine: Any, first: _Answer | Own) -> None:
        """Answer this request, and those of clients that wait or arrive meanwhile.

        Call it in the engine's thread. Returns when all are answered.
        """
        self.may_join = True
        try:
            _Joint(self, engine).run(first)
        finally:
            self.may_join = False
        with self._lock:
            self.present, self._n_free = [], 0

    def _make_room(self, engine: Any) -> None:
        """Let several answers be computed at once, if the model and the memory allow it."""
        if engine is self._cramped:
            return
        try:
            engine.make_room(self.n_parallel)
        except Exception as error:
            self._cramped = engine  # they are computed one after the other
            faults.record("several answers", error)

    def next_of(self, engine: Any, n_free: int, without: Collection[str] = ()) -> _Answer | None:
        """Return the request that may join the present ones, of which there is room for n_free.

        without: clients whose further requests wait.
        """
        with self._lock:
            # The owner's own requests wait for the present ones to end.
            self._n_free = 0 if self._is_paused or self.host.n_other else n_free
            if not self._n_free:
                return None
            fits = lambda t: isinstance(t, _Answer) and t.has_model(engine)  # noqa: E731
            turn = self._line.next(fits, without)
            if turn is None:
                return None
            assert isinstance(turn, _Answer)
            self.present.append(turn)
            self._n_free -= 1
        self._tell_positions()
        return turn

    def next_question(self, engine: Any) -> _Question | None:
        """Return a question to be answered between two passes, which is a present request then."""
        with self._lock:
            if self._is_paused or (turn := self._line.question(engine)) is None:
                return None
            self.present.append(turn)
        self._tell_positions()
        return turn

    def has_other(self, client: str) -> bool:
        """Return whether another client has asked for an answer lately."""
        with self._lock:
            since_s = time.monotonic() - KEEPS_S
            return any(c != client and at_s > since_s for c, at_s in self._asked_s.items())

    def left(self, turn: _Turn) -> None:
        """Take a request from the present ones."""
        with self._lock:
            self.present.remove(turn)

    def _tell_positions(self) -> None:
        with self._lock:
            n_before = self.host.n_other + len(self.present) - self._n_free
            for turn, position in self._line.positions():
                turn.tell_position(max(n_before + position, 0))


class _Beside:
    """Requests that are computed beside answers, one after the other."""

    def __init__(self) -> None:
        self._n, self._lock = 0, asyncio.Lock()

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for the others. Raises RequestRefused: if too many wait, or for an error within."""
        if self._n >= MAX_WAITING:
            raise _too_many()
        self._n += 1
        try:
            async with self._lock:
                yield
        except Exception as error:
            raise _refusal(error, before_answer=True) from error
        finally:
            self._n -= 1


class _Turn:
    """One request in the engine's thread."""

    def __init__(
        self, model: str, client: str, host: Host, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.client = client
        self.news: asyncio.Queue[News | None] = asyncio.Queue()
        self._model, self._host, self._loop = model, host, loop
        self.handle = Handle()
        self._n_before = -1

    def tell_position(self, n_before: int) -> None:
        """Tell the client how many requests are before its own, if that has changed."""
        if self._n_before < 0 or n_before < self._n_before:
            self._n_before = n_before
            if n_before:
                self.tell(Wait(f"waiting, {n_before} before", n_before))

    def end(self, error: Exception | None = None) -> None:
        """Tell the client that nothing follows, or why there is no answer."""
        if error is not None:
            self.tell(_refusal(error))
        self.tell(None)

    def serve(self, engine: Any) -> None:
        """Serve the request. The caller calls end()."""
        raise NotImplementedError

    def has_model(self, engine: Any) -> bool:
        """Whether the model that the request names is loaded, or any if it names none."""
        wanted = self._model if self._model in self._host.models else ""
        return engine is not None and wanted in ("", self._host.model_name)

    def loaded(self, engine: Any) -> Any:
        """Return the engine with the model that the request names, or with the loaded one.

        Raises RequestRefused, also where the request was cancelled.
        """
        if self.handle.is_cancelled:
            raise _STOPPED
        wanted = self._model if self._model in self._host.models else ""
        if self.has_model(engine):
            return engine
        if engine is None and not self._host.models:
            raise RequestRefused("No model is loaded.", status=503)
        self.tell(Wait(f"loading the model {wanted}".rstrip()))
        try:
            return self._host.load(wanted)
        except Exception as error:
            # A file that can never be loaded is not asked for again; a lack of memory may pass.
            status = 400 if isinstance(error, ModelFileError) else 503
            raise RequestRefused(str(_refusal(error)), status=status, param="model") from error

    def tell(self, news: News | None) -> None:
        """Send news to the client; None: nothing follows."""
        try:
            self._loop.call_soon_threadsafe(self.news.put_nowait, news)
        except RuntimeError:  # the loop is closed: the server has ended
            self.handle.cancel()


class _Question(_Turn):
    """Something to compute that is no answer. is_short: also between two passes of answers."""

    result: Any = None

    def __init__(self, question: Callable[[Any], Any], is_short: bool, *place: Any) -> None:
        super().__init__(*place)
        self._question, self.is_short = question, is_short

    def serve(self, engine: Any) -> None:
        try:
            with engine.prompts.serves(self.handle):
                self.result = self._question(engine)
        except Exception as error:
            raise _refusal(error, before_answer=True) from error


class _Answer(_Turn):
    """The answers to one request, its choices."""

    def __init__(
        self,
        ask: Ask,
        client: str,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        figures: Figures,
    ) -> None:
        super().__init__(ask.model, client, host, loop)
        self.ask, self.figures = ask, figures
        self._has_begun = False
        self._changes: tuple[str, ...] = ()
        self.messages = ask.messages
        """The conversation as the engine gets it."""
        self._choices = [
            _Choice(self, number * ask.n + i, prompt, ask.sampling.of_answer(i), i)
            for number, prompt in enumerate(ask.prompts or (None,))
            for i in range(ask.n)
        ]
        self._n_left = len(self._choices)

    def choices(self, engine: Any) -> Iterator[_Choice]:
        """Yield the requests to answer. Raises RequestRefused."""
        with engine.prompts.serves(self.handle):
            check_fits(engine, self.ask)
        self.messages = visible(engine, self.ask.messages)
        if self.messages is not self.ask.messages:
            self.fitted(["images-left-out"])
        for choice in self._choices:
            choice.engine = engine
            choice.request = replace(choice.request, messages=self.messages)
            yield choice

    def begin(self, engine: Any, n_prompt: int, n_reused: int) -> None:
        """Tell once that the prompt is known."""
        if not self._has_begun:
            self._has_begun = True
            self.tell(Begin(n_prompt, n_reused, self._host.model_name or engine.model.name))

    def fitted(self, changes: Sequence[str]) -> None:
        """Tell which changes the conversation needed, with those that were told before."""
        every = tuple(dict.fromkeys([*self._changes, *changes]))
        if every != self._changes:
            self._changes = every
            self.tell(Fitted(every))

    def finish(self, choice: Finish) -> bool:
        """Tell that a choice is complete. Return whether all are."""
        self._n_left -= 1
        self.tell(choice)
        return not self._n_left


class _Choice(Handle):
    """One answer to a request. engine: answers it, once it has begun. on_end: receives its end."""

    splits = "live"

    def __init__(
        self,
        turn: _Answer,
        number: int,
        prompt: Prompt | None,
        sampling: Sampling,
        i_same: int,
    ) -> None:
        super().__init__(turn.handle)
        self.turn, self._number = turn, number
        self.engine: Any = None
        self.on_end: Callable[[_Choice, GroupAnswer], None] = lambda _choice, _given: None
        self._prompt, self._is_first = prompt, not i_same
        ask = turn.ask
        self.request = Request(
            None, sampling, ask.max_tokens, ask.messages, prompt, ask.options,
            owner="server", handle=self,
        )  # fmt: skip
        """The request that the engine answers with it."""
        self._tokens: deque[tuple[int, Token]] = deque()  # not sent yet; where their texts end
        self._ids: list[int] = []  # not sent yet
        self._n_told = -1  # tokens of the prompt, in the last progress
        self._reasoning: list[str] = []

    def fitted(self, changes: Sequence[str]) -> None:
        """Tell which changes the template needed in the conversation."""
        self.turn.fitted(changes)

    def joined(self) -> None:
        """Tell that the prompt is going to be read."""
        self._show_progress()

    def prefilled(self) -> None:
        """Tell how much of the prompt is read."""
        follow = self.follow
        words = f"reading the prompt, {follow.n_done} of {follow.n_prompt} tokens"
        self.turn.tell(Wait(words, progress=self._progress()))

    def began(self) -> None:
        """Tell that the prompt is read."""
        self._show_progress()
        self.turn.begin(self.engine, self.follow.n_prompt, self.follow.n_reused)

    def _show_progress(self) -> None:
        if (progress := self._progress()) is not None:
            self.turn.tell(Wait("", progress=progress))

    def _progress(self) -> Progress | None:
        """Return how much of the prompt is read, if it was asked for and not told yet."""
        follow, n_done = self.follow, self.follow.n_done
        if not self.turn.ask.with_progress or n_done <= self._n_told:
            return None
        self._n_told = n_done
        n_read = n_done - follow.n_reused
        timings = replace(self.timings, n_read=n_read) if n_read else Timings(follow.n_reused)
        return Progress(self._number, follow.n_prompt, follow.n_reused, n_done, timings)

    @property
    def timings(self) -> Timings:
        """The times so far."""
        follow, now_s = self.follow, time.perf_counter()
        if not follow.began_s:
            return Timings(follow.n_reused, 0, now_s - follow.joined_s)
        n_read, read_s = follow.n_prompt - follow.n_reused, follow.began_s - follow.joined_s
        return Timings(follow.n_reused, n_read, read_s, follow.n_token, now_s - follow.began_s)

    def wrote(self, piece: Any) -> None:
        """Keep a token for the delta with its text; send the text itself of a raw answer."""
        n_char = self.follow.n_char
        if piece.token_id >= 0:
            self._ids.append(piece.token_id)
        if piece.chances:
            self._tokens.append((n_char, token_of(piece.chances, self.turn.ask.n_top)))
        if self._prompt is not None and piece.text:
            self.delta(Delta(content=piece.text, n_read=n_char))

    def delta(self, delta: Delta) -> None:
        """Send the new text of the answer, with the tokens that were read for it."""
        tokens = []
        while self._tokens and (not delta.n_read or self._tokens[0][0] <= delta.n_read):
            tokens.append(self._tokens.popleft()[1])
        ids: tuple[int, ...] = ()
        if self._prompt is not None:
            ids, self._ids = tuple(self._ids), []
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        timings = self.timings if self.turn.ask.with_timings else None
        self.turn.tell(Part(self._number, delta, tuple(tokens), ids, timings))

    def finish(self, given: GroupAnswer) -> bool:
        """Tell that the answer is complete. Return whether the request has all its answers."""
        reason, n_token, stop = given.finish_reason, given.n_token, given.stop
        timings = replace(
            self.timings, n_token=n_token, runs=without_folders(self.engine.cache.runs)
        )
        if self._tokens or (self._prompt is not None and self._ids):
            self.delta(Delta())
        reasoning, engine = "".join(self._reasoning), self.engine
        n_reasoning = len(engine.prompts.tokenize(reasoning)) if reasoning else 0
        self.turn.figures.add(timings, self.follow.n_prompt + n_token)
        return self.turn.finish(
            Finish(
                self._number,
                reason,
                n_prompt=given.n_prompt if self._is_first else 0,
                n_token=n_chosen(n_token, reason, stop),
                n_reused=given.n_reused if self._is_first else 0,
                n_reasoning=min(
                    n_reasoning, n_token
                ),  # broken UTF-8 has more when it is read again
                stop=stop if stop in self.turn.ask.options.stops else "",
                timings=timings,
                prompt=self._text_of_prompt() if self.turn.ask.with_prompt else "",
            )
        )

    def _text_of_prompt(self) -> str:
        ask, engine, prompt = self.turn.ask, self.engine, self._prompt
        if prompt is None:
            return str(engine.prompts.format(self.turn.messages, ask.options))
        return str(engine.prompts.detokenize(engine.prompts.prompt_tokens(prompt)))

    def ended(self, given: GroupAnswer) -> None:
        """Pass on the end of the answer."""
        self.on_end(self, given)


class _Joint:
    """Answers requests jointly, and those that arrive meanwhile, as long as there are any."""

    def __init__(self, turns: Turns, engine: Any) -> None:
        self._turns, self._engine = turns, engine
        self._begun: deque[list[_Choice]] = deque()  # requests, with what was not submitted
        self._running: list[_Choice] = []  # submitted, and not ended
        self._has_joined = False  # in the place that was given last
        self._asks_s = 0.0  # when the next question may be answered
        self.is_shared = False
        """Whether a client's request has taken part."""

    def run(self, first: _Answer | Own) -> None:
        """Answer a request and all that join it."""
        if isinstance(first, _Answer):
            self._has_joined = self._begin(first)
        else:
            self._submit_own(first)
        fault: Exception = _STOPPED
        try:
            while True:
                self._submit()
                if not self._engine.step():
                    break
                self._count(self._engine.runner)
        except Exception as error:
            fault = error
            self._leave()
        for turn in list(self._turns.present):
            self._end(turn, fault)

    def _leave(self) -> None:
        """Let the engine end its open answers."""
        for turn in self._turns.present:
            turn.handle.cancel()
        with contextlib.suppress(Exception):
            while self._engine.step():
                pass

    def _count(self, runner: Any) -> None:
        """Count the pass, but for the one that ended the last answer."""
        if not runner.n_running:
            return
        self._turns.figures.count_pass(runner.n_running)
        if runner.n_drafted:
            self._turns.figures.add_drafts(1, runner.n_drafted, runner.n_right)

    def _submit(self) -> None:
        """Submit the owner's next request, and those for which there is room."""
        self._answer_question()
        if (own := self._turns.host.next_own(self._engine)) is not None:
            self._submit_own(own)
        while self._engine.n_wanted and (choice := self._next_choice()) is not None:
            if choice.turn.handle.is_cancelled:
                self._end(choice.turn, _STOPPED)
                continue
            choice.on_end = self._take
            self._running.append(choice)
            try:
                self._engine.submit(choice.request)
            except Exception as error:
                self._running = [each for each in self._running if each is not choice]
                self._end(choice.turn, _refusal(error, before_answer=True))

    def _answer_question(self) -> None:
        """Answer a question that waits; answers then have a multiple of its time before another."""
        began_s = time.monotonic()
        if began_s < self._asks_s or (turn := self._turns.next_question(self._engine)) is None:
            return
        fault: Exception | None = None
        try:
            turn.serve(self._engine)
        except Exception as error:
            fault = error
        self._end(turn, fault)
        self._asks_s = time.monotonic() + _REST * (time.monotonic() - began_s)

    def _submit_own(self, own: Own) -> None:
        own.attach(self)
        try:
            for request in own.requests:
                self._engine.submit(request)
        except Exception as error:
            own.fail(error)

    def _next_choice(self) -> _Choice | None:
        """Return the next answer to compute: of a request that joins, or of each begun one in turn.

        Both alternate, so that a request for many answers delays no other client by all of them.
        Nor does one client take every place where another has asked lately.
        """
        engine, present, greedy = self._engine, self._turns.present, self._greedy()
        is_new = False
        while True:
            self._begun = deque(each for each in self._begun if each[0].turn in present)
            if not is_new and not (self._begun and self._has_joined):
                n_free = max(engine.n_sequence - engine.n_open, 0)
                clients = {choices[0].turn.client for choices in self._begun}
                turn = self._turns.next_of(engine, n_free, clients | greedy)
                if turn is not None:
                    is_new = self._begin(turn)
                    continue
            self._has_joined = is_new
            found = next((c for c in self._begun if c[0].turn.client not in greedy), None)
            if found is None:
                return None
            self._begun.remove(found)
            choice, *others = found
            if others:
                self._begun.append(others)
            return choice

    def _greedy(self) -> set[str]:
        """Return the client that has every place but the last, if another has asked lately."""
        clients = {choice.turn.client for choice in self._running}
        if len(clients) != 1 or self._engine.n_sequence - self._engine.n_open > 1:
            return set()
        return clients if self._turns.has_other(*clients) else set()

    def _begin(self, turn: _Answer) -> bool:
        """Have a request precede those that were begun. Return whether there is one to answer."""
        self.is_shared = True
        try:
            self._begun.appendleft(list(turn.choices(self._engine)))
        except Exception as error:
            self._end(turn, _refusal(error, before_answer=True))
            return False
        return True

    def _take(self, choice: _Choice, given: GroupAnswer) -> None:
        """Take the end of an answer."""
        self._running = [each for each in self._running if each is not choice]
        turn = choice.turn
        if turn not in self._turns.present:
            return  # another choice of it has failed
        if isinstance(given.fault, Exception):
            self._end(turn, given.fault)
        elif given.finish_reason == "cancelled":
            self._end(turn, _STOPPED)
        elif choice.finish(given):
            self._end(turn)

    def _end(self, turn: _Turn, error: Exception | None = None) -> None:
        self._turns.left(turn)
        turn.end(error)


_REST = 3
"""The time for answers after a question, in multiples of its own."""
_PIECE_CHARS = 1 << 14
_CHARS_OF_TOKEN = 4  # a usual text has more in a token


def check_fits(engine: Any, ask: Ask) -> None:
    """Raise RequestRefused if a text is surely too long, without splitting all of it into tokens.

    Splitting cannot be ended, and others wait for it. So only as many pieces are split as exceed
    the context. A piece has about the tokens that it has within the whole.
    """
    n_context: int = engine.model.context_length
    for prompt in ask.prompts or (ask.messages,):
        text = "\n".join(_texts(prompt))
        if len(text) <= _CHARS_OF_TOKEN * n_context:
            continue
        n = 0
        for start in range(0, len(text), _PIECE_CHARS):
            n += max(len(engine.prompts.tokenize(text[start : start + _PIECE_CHARS])) - 1, 0)
            if n >= n_context:
                raise _too_long(n * len(text) // min(start + _PIECE_CHARS, len(text)), n_context)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a prompt, or of the contents of messages."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict) and value.get("type") != "image":
        yield from _texts(value.get("text", value.get("content", "")))


def visible(engine: Any, messages: tuple[Json, ...]) -> tuple[Json, ...]:
    """Return the messages with words for the images of the history, if the model cannot see.

    Raises RequestRefused for an image in the user's last message. One of a tool, or of an earlier
    turn, would else end the conversation for good.
    """
    if not images_of(messages) or engine.model.chat.images:
        return messages
    if messages[-1]["role"] == "user" and images_of(messages[-1:]):
        raise RequestRefused(
            "The loaded model cannot see images: image input is not supported without its "
            "mmproj file.",
            param="messages",
        )
    return tuple(in_words(message, UNSEEN_IMAGE) for message in messages)


def _too_many() -> RequestRefused:
    sentence = "Too many requests wait already."
    return RequestRefused(sentence, status=429, code="rate_limit_exceeded", retry_s=RETRY_S)


def token_of(chances: Sequence[Any], n_top: int) -> Token:
    """Return a token from its chances, the chosen one first, with the n_top most probable."""
    chosen, *top = (Token(c.data, c.logprob, id=c.token_id) for c in chances)
    return replace(chosen, top=tuple(top[:n_top]))


def _refusal(error: Exception, *, before_answer: bool = False) -> RequestRefused:
    """Return an error of the engine as a refusal, whose sentence names files without folders.

    A failure before the answer begins is the request's fault (its length, a conversation that the
    template refuses), unless nothing can be answered any more.
    """
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, GivenUp):
        return _STOPPED
    if not faults.is_expected(error):
        faults.record("request", error)  # its words may be of another request
        return RequestRefused("Something unexpected failed in the engine.", status=500)
    sentence = str(error)
    if isinstance(sentence, Text) and sentence.id == "engine.prompt_too_long":
        return _too_long(int(sentence.values["n"]), int(sentence.values["n_context"]))
    is_ours = not before_answer or isinstance(error, UntrustedError)
    return RequestRefused(without_folders(sentence), status=500 if is_ours else 400)


def _too_long(n: int, n_context: int) -> RequestRefused:
    """Return a refusal in the words of llama.cpp and of OpenAI, which agents look for."""
    return RequestRefused(
        f"The request ({n} tokens) exceeds the available context size ({n_context} tokens), try "
        f"increasing it. This model's maximum context length is {n_context} tokens; please reduce "
        "the length of the messages.",
        code="context_length_exceeded",
        kind=TOO_LONG,
        more={"n_prompt_tokens": n, "n_ctx": n_context},
    )
