"""The queue of the local server: order, places, limits and the log."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine

from backend.protocol.errors import EngineError, UntrustedError
from backend.server import bodies, guard
from backend.server.ask import (
    ANY,
    MAX_TEXT_CHARS,
    Begin,
    Fields,
    Finish,
    Part,
    RequestRefused,
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
        assert [type(each) for each in news[0]][:2] == [Wait, Begin]
        assert isinstance(news[0][-1], Finish) and tasks[0].done()
        assert [w.n_before for w in news[2]] == [3, 2, 1] or [w.n_before for w in news[2]] == [3, 2]
        host.n_other = 3
        for _ in range(3):
            host.run_one()
            await settle()
        assert all(w.n_before <= 3 for own in news for w in own if isinstance(w, Wait))
        for own in news:
            places = [w.n_before for w in own if isinstance(w, Wait)]
            assert places == sorted(set(places), reverse=True)
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
        turns.stop()
        host.run_one()
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
    chances = [SimpleNamespace(data=bytes([n]), logprob=-n) for n in range(4)]
    token = token_of(chances, 2)
    assert (token.data, token.logprob, token.top) == (b"\0", 0, ((b"\1", -1), (b"\2", -2)))


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
