"""The queue of the local server: order, places, limits and the log."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine
from waiting import WAIT_S, until

from backend.protocol.chat import AnswerText
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer, Handle, Request
from backend.protocol.settings import Sampling
from backend.server import bodies, guard
from backend.server.ask import (
    ANY,
    MAX_TEXT_CHARS,
    Begin,
    Fields,
    Finish,
    Part,
    RequestRefused,
    Token,
    Wait,
    read_image,
    shown,
)
from backend.server.openai_chat import read_chat
from backend.server.openai_text import read_text
from backend.server.turns import (
    MAX_WAITING,
    MAX_WAITING_OF_ONE,
    N_LOG,
    N_PARALLEL,
    RETRY_S,
    Line,
    Turns,
    token_of,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
HELLO = [{"role": "user", "content": "hello there"}]


class Host:
    """A host whose engine works when it is told to."""

    def __init__(self, engine: Any = None) -> None:
        self.engine = engine or FakeEngine()
        self.model_name: str | None = self.engine.model.name
        self.models: tuple[str, ...] = ()
        self.n_other = 0
        self.work: list[Callable[[Any], None]] = []

    def submit(self, work: Callable[[Any], None]) -> None:
        self.work.append(work)

    def next_own(self, engine: Any) -> None:
        return None

    def run_one(self) -> None:
        self.work.pop(0)(self.engine)


class Waiting:
    """What a line needs of a request."""

    def __init__(self, client: str) -> None:
        self.client = client


def turn(client: str) -> Any:
    return Waiting(client)


def test_clients_take_turns() -> None:
    line = Line()
    a1, a2, a3, b1, c1 = map(turn, "aaabc")
    for each in (a1, a2, a3, b1, c1):
        line.add(each)
    assert [t for t, _ in line.positions()] == [a1, b1, c1, a2, a3]
    assert [n for _, n in line.positions()] == [0, 1, 2, 3, 4]
    assert line.next(lambda t: t is not a1) is None and len(line) == 5
    assert line.next() is a1 and line.next() is b1
    line.add(b2 := turn("b"))
    line.remove(a2)
    line.remove(a2)
    line.remove(turn("nobody"))
    assert [line.next() for _ in range(4)] == [c1, a3, b2, None] and len(line) == 0


def test_a_line_is_full() -> None:
    line = Line()
    for n in range(MAX_WAITING):
        line.add(turn(f"client {n % 3}"))
    with pytest.raises(RequestRefused) as refused:
        line.add(turn("another"))
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert refused.value.retry_s == RETRY_S > 0
    line.next()
    line.add(turn("another"))
    one = Line()
    for _ in range(MAX_WAITING_OF_ONE):
        one.add(turn("greedy"))
    with pytest.raises(RequestRefused):
        one.add(turn("greedy"))
    one.add(turn("modest"))


async def take(asked: Any, news: list[Any]) -> None:
    with contextlib.suppress(RequestRefused):
        async for each in asked:
            news.append(each)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_places_are_told_and_only_fall() -> None:
    def places(news: list[Any]) -> list[int]:
        return [w.n_before for w in news if isinstance(w, Wait) and w.n_before]

    host, changes = Host(), []
    turns = Turns(host, lambda: changes.append(turns.n_open))

    async def queue() -> None:
        host.n_other = 1
        news: list[list[Any]] = [[], [], []]
        tasks = []
        for n, own in enumerate(news):
            asked = turns.answer(read_text({"prompt": "a", "max_tokens": 5}), f"client {n}")
            tasks.append(asyncio.ensure_future(take(asked, own)))
            await settle()
        assert [[w.n_before for w in own] for own in news] == [[1], [2], [3]]
        assert news[2][0].words == "waiting, 3 before"
        host.n_other = 5  # the owner's requests came before: nobody is told of it
        turns.resume()
        late = asyncio.ensure_future(take(turns.answer(read_text({"prompt": "b"}), "x"), []))
        await settle()
        assert [len(own) for own in news] == [1, 1, 1]
        host.n_other = 0
        host.run_one()
        await settle()
        assert [type(each) for each in news[0]][:3] == [Wait, Wait, Begin]  # its turn, its prompt
        assert isinstance(news[0][-1], Finish) and tasks[0].done()
        assert places(news[2]) == [3, 2, 1]
        host.n_other = 3
        for _ in range(3):
            host.run_one()
            await settle()
        assert all(w.n_before <= 3 for own in news for w in own if isinstance(w, Wait))
        for own in news:
            assert places(own) == sorted(set(places(own)), reverse=True)
        await asyncio.gather(*tasks, late)
        assert turns.n_request == 4 and turns.n_open == 0
        assert max(changes) == 4 and changes[-1] == 0

    asyncio.run(queue())


def test_the_first_in_line_is_told_of_no_place() -> None:
    host = Host()
    turns = Turns(host)

    async def queue() -> None:
        news: list[Any] = []
        first = asyncio.ensure_future(take(turns.answer(read_text({"prompt": "a"}), "a"), news))
        await settle()
        host.n_other = 4  # the owner's request goes first after all
        other = asyncio.ensure_future(take(turns.answer(read_text({"prompt": "b"}), "b"), []))
        await settle()
        assert news == []
        for task in (first, other):
            host.run_one()
            await task

    asyncio.run(queue())


def test_the_log_has_what_ended_and_nothing_that_was_asked() -> None:
    host = Host(FakeEngine(fault=EngineError("It cannot be done.")))
    turns = Turns(host)

    def body(n: int) -> Any:
        return read_chat({"messages": [{"role": "user", "content": f"secret {n}"}]})

    async def ask() -> None:
        for n in range(N_LOG + 3):
            if n == N_LOG + 2:
                host.engine = FakeEngine()
            own: list[Any] = []
            asked = turns.answer(body(n), "secret")
            task = asyncio.ensure_future(take(asked, own))
            await settle()
            host.run_one()
            await task

    asyncio.run(ask())
    assert len(turns.log) == N_LOG and turns.n_request == N_LOG + 3
    assert "secret" not in str(turns.log)
    assert [entry["refusal"] for entry in turns.log] == ["It cannot be done."] * (N_LOG - 1) + [""]
    assert all(entry["model"] == "fake" and entry["took_s"] >= 0 for entry in turns.log)


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (EngineError("The request is odd."), 400, "The request is odd."),
        (UntrustedError("The values are not finite."), 500, "The values are not finite."),
        (RequestRefused("No.", status=404), 404, "No."),
        (RuntimeError("secret"), 500, "Something unexpected failed in the engine."),
    ],
)
def test_a_fault_before_the_answer_has_its_status(
    fault: Exception, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(FakeEngine(fault=fault))
    turns = Turns(host)

    async def ask() -> None:
        asked = asyncio.ensure_future(anext(turns.answer(read_chat({"messages": HELLO}))))
        await settle()
        host.run_one()
        with pytest.raises(RequestRefused) as refused:
            await asked
        assert (refused.value.status, str(refused.value)) == (status, words)

    asyncio.run(ask())
    assert ("secret" in capsys.readouterr().err) == (words.startswith("Something"))


def test_a_paused_queue_waits_and_a_stopped_one_ends() -> None:
    host = Host()
    turns = Turns(host)

    async def ask() -> None:
        news: list[Any] = []
        asked = turns.answer(read_text({"prompt": "a", "max_tokens": 5}))
        task = asyncio.ensure_future(take(asked, news))
        await settle()
        turns.pause()
        host.run_one()
        await settle()
        assert not news and not task.done() and not host.work
        turns.resume()
        assert len(host.work) == 1
        host.run_one()
        await task
        assert isinstance(news[-1], Finish)
        stopped = asyncio.ensure_future(anext(turns.answer(read_text({"prompt": "a"}))))
        await settle()
        turns.stop()  # and the engine is busy
        with pytest.raises(RequestRefused, match="stopped on this side") as refused:
            await stopped
        assert (refused.value.status, refused.value.retry_s) == (503, RETRY_S)

    asyncio.run(ask())


def test_the_loaded_model_is_listed_first_and_once() -> None:
    host = Host()
    host.models = ("a", "fake", "b")
    assert Turns(host).model_names == ["fake", "a", "b"]
    host.model_name = None
    assert Turns(host).model_names == ["a", "fake", "b"]


def test_choices_share_a_prompt_and_count_it_once() -> None:
    host = Host()
    turns = Turns(host)

    async def ask() -> None:
        news: list[Any] = []
        body = {"prompt": ["a b", "c"], "n": 2, "max_tokens": 9, "seed": 5, "logprobs": 2}
        task = asyncio.ensure_future(take(turns.answer(read_text(body)), news))
        await settle()
        host.run_one()
        await task
        assert sum(isinstance(each, Begin) for each in news) == 1
        finishes = [each for each in news if isinstance(each, Finish)]
        assert [f.choice for f in finishes] == [0, 1, 2, 3]
        assert [f.n_prompt for f in finishes] == [2, 0, 1, 0]
        assert [f.n_reused for f in finishes] == [1, 0, 1, 0]
        assert [asked.prompt for asked in host.engine.asked] == ["a b", "a b", "c", "c"]
        seeds = [asked.sampling.seed for asked in host.engine.asked]
        assert seeds[0] == seeds[2] == 5 and seeds[1] == seeds[3] != 5
        tokens = [token for part in news if isinstance(part, Part) for token in part.tokens]
        assert tokens and all(len(token.top) == 2 for token in tokens)

    asyncio.run(ask())


def test_a_token_has_its_chance_and_the_best() -> None:
    chances = [SimpleNamespace(token_id=n + 5, data=bytes([n]), logprob=-n) for n in range(4)]
    first, *others = (Token(bytes([n]), -n, id=n + 5) for n in range(3))
    assert token_of(chances, 2) == replace(first, top=tuple(others))


def test_names_and_fields_at_their_limits() -> None:
    assert shown("x" * 80) == "x" * 80 and shown("x" * 81) == "x" * 80 + "\u2026"
    assert shown("a\nb\x1b") == "a\ufffdb\ufffd"
    fields = Fields({"a": {"b": None}, "n": 0}, "body")
    assert fields.path("a") == "body.a" and Fields({}).path("a") == "a"
    assert fields.table("a").get("b", ANY, 7) == 7
    with pytest.raises(RequestRefused, match=r"^body\.a\.b must be anything, but is missing\.$"):
        fields.table("a").need("b", ANY)
    with pytest.raises(RequestRefused, match=r"^x must be an object\.$"):
        Fields([], "x")
    with pytest.raises(RequestRefused, match=r"^The request's body must be a JSON object\.$"):
        Fields([])
    good = read_image("data:image/png;base64,QUJD", "x")
    assert good == {"type": "image", "data": "QUJD"}
    for bad in ("http://x/data:image/png;base64,", "data:image/png,QUJD", "data:;base64", ""):
        with pytest.raises(RequestRefused, match="fetches nothing"):
            read_image(bad, "x")


def test_the_limits_are_those_of_the_documents() -> None:
    """They bind what clients and people rely on; a change of one is a change of both."""
    server = " ".join((DOCS / "server.md").read_text("utf-8").split())
    for words in (
        f"may have {bodies.MAX_BODY_BYTES / (1 << 20):g} MiB",
        f"{bodies.MAX_VALUES:,} values and {bodies.MAX_DEPTH} levels",
        f"within {bodies.BODY_S:g} seconds",
        f"{MAX_TEXT_CHARS:,} characters of text",
        f"At most {bodies.MAX_ARRIVING} bodies",
        f"hold {bodies.MAX_HELD_BYTES / (1 << 20):g} MiB together",
        f"first {bodies.FREE_BYTES / (1 << 10):g} KiB",
        f"after {guard.IDLE_S:g} to {2 * guard.IDLE_S:g} seconds; from {guard.MAX_IDLE + 1} on",
        f"From {guard.MAX_UNUSED + 1} on",
        f"More than {MAX_WAITING} waiting requests, or {MAX_WAITING_OF_ONE} of one client",
    ):
        assert words in server, words
    assert guard.GRACE_S == 1 and re.search("have waited for a second", server)
    assert N_PARALLEL == 4 and "Up to four answers" in server
    batch = " ".join((DOCS / "batch.md").read_text("utf-8").split())
    assert f"{bodies.MAX_DEPTH} levels or {bodies.MAX_VALUES:,} values" in batch


# Joint answers.


class JointEngine(FakeEngine):
    """Answers one of the requests in a step; `between` is called before.

    cramped: it has no room for several. given: what differs in the answers to a prompt, the error
    of submit(), or the fault that ends all.
    """

    def __init__(self, *, cramped: bool = False, **given: Any) -> None:
        super().__init__()
        self.rooms: list[int] = []
        self.n_group, self._has_group = 0, False
        self.running: list[Request] = []
        self.texts_asked: list[str | None] = []
        self.owners: set[str] = set()
        self.between: Callable[[], None] = lambda: None
        self._cramped, self._given = cramped, given

    def make_room(self, n_sequence: int) -> None:
        self.rooms.append(n_sequence)
        if self._cramped:
            raise EngineError("There is no memory.")
        self.n_sequence = n_sequence

    @property
    def n_open(self) -> int:
        return len(self.running)

    @property
    def n_wanted(self) -> int:
        return max(self.n_sequence - len(self.running), 0)

    def submit(self, request: Request) -> Handle:
        given = self._given.get(request.prompt or "", {})
        if isinstance(given, dict) and "error" in given:
            raise EngineError(given["error"])
        self.n_group += not self._has_group
        self._has_group = True
        self.running.append(request)
        return request.handle

    def step(self) -> bool:
        if not self.running:
            self._has_group = False
            return False
        self.between()
        for gone in [r for r in self.running if r.handle.is_cancelled]:
            self.running.remove(gone)
            gone.handle.ended(GroupAnswer(gone, finish_reason="cancelled"))
        if self.running:
            self._answer_next()
        return True

    def _answer_next(self) -> None:
        request = self.running[0]
        given = self._given.get(request.prompt or "", {})
        if isinstance(given, Exception):
            ended, self.running = self.running, []
            for each in ended:
                each.handle.ended(GroupAnswer(each, fault=given))
            raise given
        self.running.remove(request)
        self.texts_asked.append(request.prompt)
        self.owners.add(request.owner)
        chance = SimpleNamespace(token_id=1, data=b"x", logprob=-0.5)
        follow = request.handle.follow
        follow.joined(7, 3)
        follow.began()
        chances = (chance, chance) if request.sampling.n_probs else ()
        for text in ("x", "") if chances else ("x",):  # "" is within a character
            follow.wrote(SimpleNamespace(token_id=1, text=text, chances=chances))
        answer = GroupAnswer(request, AnswerText(), (), "stop", "", 7, 1, 3)
        request.handle.ended(replace(answer, **given))


class Told(Handle):
    """Notes the keys of the requests that have ended."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self._keys = keys

    def ended(self, given: GroupAnswer) -> None:
        self._keys.append(given.request.key)


class Owned:
    """A request of the owner."""

    def __init__(self, *prompts: str) -> None:
        self.joint: Any = None
        self.taken: list[str] = []
        self.faults: list[Exception] = []
        self._prompts = prompts

    @property
    def requests(self) -> list[Request]:
        return [
            Request(p, Sampling(), prompt=p, priority="person", handle=Told(self.taken))
            for p in self._prompts
        ]

    def attach(self, joint: Any) -> None:
        self.joint = joint

    def fail(self, error: Exception) -> None:
        self.faults.append(error)


def jointly(engine: FakeEngine, *prompts: str, n_run: int | None = None, **more: Any) -> Jointly:
    made = Jointly(engine, **more)
    asyncio.run(made.run(prompts, len(prompts) if n_run is None else n_run))
    return made


class Jointly:
    """Has prompts of as many clients wait, and then the engine work."""

    def __init__(self, engine: FakeEngine, **body: Any) -> None:
        self.host = Host(engine)
        self.turns = Turns(self.host)
        self.news: dict[str, list[Any]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._body = body

    async def ask(self, prompt: str) -> None:
        asked = self.turns.answer(read_text({"prompt": prompt, **self._body}), prompt)
        self.news[prompt] = []
        self.tasks[prompt] = asyncio.ensure_future(self._take(asked, self.news[prompt]))
        await settle()

    @staticmethod
    async def _take(asked: Any, news: list[Any]) -> None:
        try:
            async for each in asked:
                news.append(each)
        except RequestRefused as refused:
            news.append(refused)

    async def run(self, prompts: Sequence[str], n_run: int) -> None:
        for prompt in prompts:
            await self.ask(prompt)
        for _ in range(n_run):
            self.host.run_one()
            await settle()
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def kinds(self, prompt: str) -> list[Any]:
        return [type(each) for each in self.news[prompt] if not isinstance(each, Wait)]


def test_all_that_wait_are_answered_in_one_group() -> None:
    engine = JointEngine()
    counts = []
    engine.between = lambda: counts.append((len(engine.running), found.turns.may_join))
    found = Jointly(engine)
    asyncio.run(found.run([*"abcdef"], 1))
    assert engine.texts_asked == [*"abcdef"] and engine.n_group == 1 and engine.owners == {"server"}
    assert engine.rooms == [N_PARALLEL]
    assert counts == [(4, True), (4, True), (4, True), (3, True), (2, True), (1, True)]
    assert not found.turns.may_join and found.turns.n_open == 0
    for prompt in "abcdef":
        assert found.kinds(prompt) == [Begin, Part, Finish]
        finish = found.news[prompt][-1]
        assert (finish.n_prompt, finish.n_token, finish.n_reused) == (7, 2, 3)  # one is the end's
    places = [[w.n_before for w in found.news[p] if isinstance(w, Wait)] for p in "abcdef"]
    assert places == [[], [1], [2], [3, 1], [4, 2], [5, 3]]
    assert all(own == sorted(set(own), reverse=True) for own in places)


def test_what_was_answered_counts_no_more_among_those_before() -> None:
    async def ask() -> None:
        for engine in (JointEngine(), FakeEngine()):
            found = Jointly(engine)
            await found.ask("a")
            found.host.run_one()
            await settle()
            for prompt in "bcd":
                await found.ask(prompt)
            places = [[w.n_before for w in found.news[p] if isinstance(w, Wait)] for p in "bcd"]
            assert places == [[], [1], [2]] and found.turns.present == []
            await found.run((), 3)

    asyncio.run(ask())


class EndedLoop(asyncio.SelectorEventLoop):
    """Takes nothing from other threads, as one that is closed, while `has_ended`."""

    has_ended = False

    def call_soon_threadsafe(self, *args: Any, **more: Any) -> asyncio.Handle:
        if self.has_ended:
            raise RuntimeError("Event loop is closed")
        return super().call_soon_threadsafe(*args, **more)


def test_nothing_more_is_computed_for_a_server_that_has_ended() -> None:
    engine, gone = JointEngine(), []
    engine.between = lambda: gone.append([r.handle.is_cancelled for r in engine.running])

    async def ask() -> None:
        found = Jointly(engine, n=2)
        loop: Any = asyncio.get_running_loop()
        await found.ask("a")
        loop.has_ended = True
        found.host.run_one()
        loop.has_ended = False
        await found.run((), 0)

    with asyncio.Runner(loop_factory=EndedLoop) as runner:
        runner.run(ask())
    assert gone[:2] == [[False, False], [True]]


def test_an_engine_without_room_is_asked_once_and_answers_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = JointEngine(cramped=True)
    found = jointly(engine, "a", "b")
    assert engine.rooms == [N_PARALLEL] and engine.n_group == 1
    assert engine.texts_asked == ["a", "b"]
    assert [found.kinds(prompt)[-1] for prompt in "ab"] == [Finish, Finish]
    assert "There is no memory." in capsys.readouterr().err


@pytest.mark.parametrize("why", ["other", "question"])
def test_nobody_joins_who_must_wait(why: str) -> None:
    """The owner's own requests come first, and a long question is no answer."""
    engine, counts = JointEngine(), []

    async def ask() -> None:
        found = Jointly(engine)

        engine.between = lambda: counts.append(len(engine.running))
        await found.ask("a")
        question = None
        if why == "question":
            asked = found.turns.ask(lambda e: e.model.name, is_short=False)
            question = asyncio.ensure_future(asked)
            await settle()
        await found.ask("b")
        found.host.n_other = int(why == "other")
        found.host.run_one()
        await settle()
        assert counts == [1] and found.kinds("b") == []
        found.host.n_other = 0
        while found.host.work:
            found.host.run_one()
            await settle()
        assert found.kinds("b")[-1:] == [Finish]
        if question is not None:
            assert await question == "fake"

    asyncio.run(ask())


@pytest.mark.parametrize("rest", [0, 1e9])
def test_short_questions_are_answered_between_passes_if_answers_had_their_time(
    rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.server.turns._REST", rest)
    engine = JointEngine()

    def fails(engine: Any) -> None:
        raise EngineError(f"It is {len(engine.running)}.")

    async def ask() -> None:
        found = Jointly(engine)
        for prompt in "abc":
            await found.ask(prompt)
        asked = [(fails, "d"), (lambda e: e.model.name, "e"), (lambda _: "last", "a")]
        questions = [
            asyncio.ensure_future(found.turns.ask(one, client=client)) for one, client in asked
        ]
        await settle()
        found.host.run_one()
        await settle()
        assert [each.done() for each in questions] == [True, not rest, not rest]
        assert str(questions[0].exception()) == "It is 0."
        assert found.kinds("a") == found.kinds("c") == [Begin, Part, Finish]
        while found.host.work:
            found.host.run_one()
            await settle()
        assert [await questions[1], await questions[2]] == ["fake", "last"]
        assert not found.turns.present and not found.turns.n_open

    asyncio.run(ask())


def test_nobody_joins_while_the_queue_is_paused() -> None:
    engine = JointEngine()

    async def paused() -> None:
        found = Jointly(engine)
        for prompt in "abcde":
            await found.ask(prompt)
        engine.between = found.turns.pause
        for _ in range(3):
            found.host.run_one()
            await settle()
        assert [found.kinds(prompt) for prompt in "abcde"] == [[RequestRefused]] * 4 + [[]]
        assert engine.texts_asked == []
        engine.between = lambda: None
        found.turns.resume()
        await found.run((), 1)
        assert found.kinds("e")[-1] is Finish

    asyncio.run(paused())


def test_one_that_fails_leaves_the_others_alone() -> None:
    odd, broken = {"error": "It is odd."}, {"fault": EngineError("The drive fails.")}
    engine = JointEngine(a=odd, b={"finish_reason": "cancelled"}, d=broken)

    def tokenize(_text: str, **_more: Any) -> list[int]:
        raise EngineError("It has no tokens.")

    engine.tokenize = tokenize  # type: ignore[method-assign]
    found = jointly(engine, *"abcd", long := "e" * 500, n_run=1)
    assert (found.news[long][-1].status, str(found.news[long][-1])) == (400, "It has no tokens.")
    refused, stopped = found.news["a"][-1], found.news["b"][-1]
    assert (refused.status, str(refused)) == (400, "It is odd.")
    assert (found.news["d"][-1].status, str(found.news["d"][-1])) == (500, "The drive fails.")
    assert (stopped.status, stopped.retry_s) == (503, RETRY_S)
    assert found.kinds("c") == [Begin, Part, Finish] and found.turns.n_open == 0


def test_what_ends_the_group_is_told_to_all() -> None:
    found = jointly(JointEngine(b=EngineError("The drive is gone.")), *"abc", n_run=1)
    assert found.kinds("a")[-1] is Finish
    for prompt in "bc":
        refused = found.news[prompt][-1]
        assert (refused.status, str(refused)) == (500, "The drive is gone.")
    assert found.turns.n_open == 0


def test_tokens_stand_with_their_text_or_before_the_end() -> None:
    found = jointly(JointEngine(), "a", logprobs=1)
    parts = [each for each in found.news["a"] if isinstance(each, Part)]
    assert [(part.delta.content, len(part.tokens)) for part in parts] == [("x", 1), ("", 1)]
    assert parts[1].tokens[0].top == (Token(b"x", -0.5, id=1),)


@pytest.mark.parametrize(("stops", "told"), [(["no", "so"], "so"), (["no"], "")])
def test_only_a_stop_of_the_request_is_told(stops: list[str], told: str) -> None:
    found = jointly(JointEngine(a={"stop": "so"}), "a", stop=stops)
    assert found.news["a"][-1].stop == told


def test_the_choices_of_a_request_end_together() -> None:
    engine = JointEngine()
    counts = []
    engine.between = lambda: counts.append(len(engine.running))
    found = jointly(engine, "a", "b", n=3, n_run=1)
    assert counts[:2] == [4, 4] and engine.texts_asked == [*"ababab"]
    assert [each.choice for each in found.news["b"] if isinstance(each, Finish)] == [0, 1, 2]
    assert sum(isinstance(each, Begin) for each in found.news["b"]) == 1
    assert [f.n_prompt for f in found.news["a"] if isinstance(f, Finish)] == [7, 0, 0]
    assert found.turns.n_open == 0


def test_a_request_for_many_answers_lets_other_clients_in() -> None:
    engine = JointEngine()
    found = Jointly(engine, n=6)
    asyncio.run(found.run("ab", 1))
    assert engine.texts_asked == ["a", "b"] * 6
    assert [found.kinds(p)[-1] for p in "ab"] == [Finish, Finish]

    async def later() -> None:
        """Let others come while the last room is taken; one client's second request waits."""
        found = Jointly(engine, n=1)
        many = found.turns.answer(read_text({"prompt": ["m"] * 9}), "m")
        second = found.turns.answer(read_text({"prompt": "second"}), "m")
        tasks = [asyncio.ensure_future(found._take(each, [])) for each in (many, second)]
        await settle()
        await found.run("xyz", 1)
        await asyncio.gather(*tasks)

    engine.texts_asked.clear()
    asyncio.run(later())
    assert "".join(engine.texts_asked[:7]) == "mxmymzm" and engine.texts_asked[-1] == "second"


@pytest.mark.parametrize("keeps_s", [0, 1e9])
@pytest.mark.parametrize("n", [1, 6])
def test_a_client_leaves_a_place_to_one_that_has_asked_lately(
    n: int, keeps_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it by one request for many answers, or by many requests."""
    monkeypatch.setattr("backend.server.turns.KEEPS_S", keeps_s)
    engine = JointEngine()
    found, n_running = Jointly(engine, n=n), list[int]()

    async def ask() -> None:
        await found.ask("before")
        found.host.run_one()
        await settle()
        engine.between = lambda: n_running.append(len(engine.running))
        for i in range(6 // n):
            asked = found.turns.answer(read_text({"prompt": "a", "n": n}), "greedy")
            found.tasks[str(i)] = asyncio.ensure_future(found._take(asked, []))
            await settle()
        await found.run((), 1)

    asyncio.run(ask())
    assert max(n_running) == (3 if keeps_s else 4) and len(n_running) == 6


@pytest.mark.parametrize("leaves", ["b", "ab"])
def test_who_leaves_is_not_answered_and_another_takes_the_place(leaves: str) -> None:
    engine = JointEngine()

    async def ask() -> None:
        found, loop = Jointly(engine), asyncio.get_running_loop()

        def between() -> None:
            if len(engine.running) == 2:
                for n_left, prompt in enumerate(leaves, 1):
                    loop.call_soon_threadsafe(found.tasks[prompt].cancel)
                    until(lambda n=n_left: found.turns.n_open == 2 - n)
                asyncio.run_coroutine_threadsafe(found.ask("c"), loop).result(WAIT_S)

        engine.between = between
        await found.ask("a")
        await found.ask("b")
        await asyncio.to_thread(found.host.run_one)
        await settle()
        assert found.kinds("c")[-1] is Finish and found.turns.n_open == 0
        await found.run((), 0)

    asyncio.run(ask())
    assert engine.texts_asked == (["c"] if leaves == "ab" else ["a", "c"])
    assert engine.n_group == 1


def test_the_owners_request_and_those_of_clients_are_answered_together() -> None:
    engine, own = JointEngine(), Owned("mine", "mine too")

    async def ask() -> None:
        found = Jointly(engine)
        engine.n_sequence = 4
        await found.ask("a")
        found.turns.answer_jointly(engine, own)
        await settle()
        assert found.kinds("a") == [Begin, Part, Finish]
        await found.ask("b")  # nothing of the group is before it
        await found.ask("c")
        assert found.news["b"] == [] and [w.n_before for w in found.news["c"]] == [1]
        await found.run((), 3)

    asyncio.run(ask())
    assert engine.texts_asked == ["mine", "mine too", "a", "b", "c"] and engine.n_group == 2
    assert own.taken == ["mine", "mine too"] and own.faults == []
    assert own.joint.is_shared


def test_one_joins_in_the_place_of_one_that_left() -> None:
    engine, counts = JointEngine(), []

    async def ask() -> None:
        found, loop = Jointly(engine), asyncio.get_running_loop()

        def between() -> None:
            if not engine.texts_asked:
                loop.call_soon_threadsafe(found.tasks["b"].cancel)
                until(lambda: found.turns.n_open == 2)
                asyncio.run_coroutine_threadsafe(found.ask("d"), loop).result(WAIT_S)
            counts.append([request.prompt for request in engine.running])

        engine.between = between
        for prompt in "abc":
            await found.ask(prompt)
        await asyncio.to_thread(found.host.run_one)
        await found.run((), 0)

    asyncio.run(ask())
    assert counts == [[*"abc"], [*"cd"], ["d"]] and engine.n_group == 1


def test_one_joins_when_another_was_answered_and_has_left() -> None:
    engine, counts = JointEngine(), []

    async def ask() -> None:
        found, loop = Jointly(engine), asyncio.get_running_loop()

        def between() -> None:
            if engine.texts_asked == ["a"]:
                until(lambda: found.turns.n_open == 1)
                asyncio.run_coroutine_threadsafe(found.ask("c"), loop).result(WAIT_S)
            counts.append([request.prompt for request in engine.running])

        engine.between = between
        await found.ask("a")
        await found.ask("b")
        await asyncio.to_thread(found.host.run_one)
        await settle()
        assert found.kinds("c")[-1] is Finish and found.turns.n_open == 0
        await found.run((), 0)

    asyncio.run(ask())
    assert counts == [[*"ab"], ["b"], ["c"]] and engine.n_group == 1


def test_nobody_joins_the_owner_while_the_queue_is_paused() -> None:
    engine, own = JointEngine(), Owned("mine", "more")

    async def ask() -> None:
        found = Jointly(engine)
        engine.n_sequence = 4
        await found.ask("a")
        found.turns.pause()
        found.turns.answer_jointly(engine, own)
        assert engine.texts_asked == ["mine", "more"] == own.taken and found.kinds("a") == []
        found.turns.resume()
        found.turns.answer_jointly(engine, Owned("again"))
        assert engine.texts_asked[2:] == ["again", "a"]
        await found.run((), 0)

    asyncio.run(ask())


def test_the_owners_requests_take_room_of_the_group() -> None:
    engine, own = JointEngine(), Owned("mine", "mine too")

    async def ask() -> Jointly:
        found = Jointly(engine)
        engine.n_sequence = 4
        for prompt in "abcd":
            await found.ask(prompt)
        found.turns.answer_jointly(engine, own)
        await settle()
        await found.run((), 0)
        return found

    found = asyncio.run(ask())
    places = [[w.n_before for w in found.news[p] if isinstance(w, Wait)] for p in "abcd"]
    assert places == [[], [1], [2, 1], [3, 2]]


def test_the_owner_is_told_what_ended_its_request() -> None:
    engine, own = JointEngine(mine=EngineError("It is gone.")), Owned("mine", "more")
    turns = Turns(Host(engine))
    turns.answer_jointly(engine, own)
    assert own.taken == ["mine", "more"] and not own.joint.is_shared and not turns.may_join
    refused = Owned("fine", "odd")
    turns.answer_jointly(JointEngine(odd={"error": "It is odd."}), refused)
    assert list(map(str, refused.faults)) == ["It is odd."]


class Counting(FakeEngine):
    """Counts its stops. leave: called when the prompt was read."""

    n_stop = 0
    leave: Callable[[], None] | None = None

    def stop(self) -> None:
        self.n_stop += 1
        super().stop()

    def step(self) -> bool:
        goes_on = super().step()
        if self.reading.is_set() and self.leave is not None:
            leave, self.leave = self.leave, None
            leave()
        return goes_on


@pytest.mark.parametrize("leaves", [False, True])
def test_an_answer_alone_is_stopped_when_its_client_leaves_and_not_at_its_end(leaves: bool) -> None:
    engine = Counting()

    async def ask() -> None:
        found, loop = Jointly(engine), asyncio.get_running_loop()

        def leave() -> None:
            loop.call_soon_threadsafe(found.tasks["a"].cancel)
            until(lambda: found.turns.n_open == 0)

        engine.leave = leave if leaves else None
        await found.ask("a")
        await asyncio.to_thread(found.host.run_one)
        await settle()
        assert (Finish in found.kinds("a")) == (not leaves)
        await found.run((), 0)

    asyncio.run(ask())
    assert (engine.n_stop > 0) == leaves
    assert [request.owner for request in engine.asked] == ["server"]


def test_every_request_that_waited_is_served_after_a_pause() -> None:
    async def ask() -> None:
        found = Jointly(FakeEngine())
        await found.ask("a")
        await found.ask("b")
        found.turns.pause()
        while found.host.work:
            found.host.run_one()
        found.turns.resume()
        assert len(found.host.work) == 2
        await found.run((), 2)
        assert [found.kinds(prompt)[-1] for prompt in "ab"] == [Finish, Finish]

    asyncio.run(ask())


def test_the_time_to_ask_again_and_the_length_of_the_log_are_chosen() -> None:
    assert (RETRY_S, N_LOG) == (5, 50)


class LateLoop(asyncio.SelectorEventLoop):
    """The engine's thread goes on only when the client that was told of the end has left."""

    turns: Turns | None = None

    def call_soon_threadsafe(self, *args: Any, **more: Any) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(*args, **more)
        if any(isinstance(each, Finish) for each in args):
            until(lambda: self.turns is None or self.turns.n_open == 0)
        return handle


def test_who_leaves_with_the_whole_answer_stops_nothing() -> None:
    engine = Counting()

    async def ask() -> None:
        host = Host(engine)
        loop: Any = asyncio.get_running_loop()
        loop.turns = turns = Turns(host)

        async def whole() -> None:
            news = turns.answer(read_text({"prompt": "a"}))
            while not isinstance(await anext(news), Finish):
                pass
            await news.aclose()

        task = asyncio.ensure_future(whole())
        await settle()
        await asyncio.to_thread(host.run_one)
        await task

    with asyncio.Runner(loop_factory=LateLoop) as runner:
        runner.run(ask())
    assert engine.n_stop == 0
