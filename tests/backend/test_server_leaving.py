"""A request ends when its client leaves: in the queue, in its prompt and in its answer, at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import pytest
from fake_engine import FakeEngine
from served import KEY, Served, asked
from waiting import until

from backend.protocol.chat import Delta
from backend.server.application import make_application
from backend.server.engine_host import EngineThread
from backend.server.turns import Turns

HELLO = [{"role": "user", "content": "hello there"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "a", "max_tokens": -1},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 1 << 30},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "a"},
}


class Endless(FakeEngine):
    """Writes a hundred tokens a second until it is stopped. begun: one was written."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()
        super().__init__(lambda _, __: self._words())

    def _words(self) -> Any:
        for _ in itertools.count():
            yield Delta(content="word ")
            self.begun.set()
            self.stopped.wait(0.01)

    def stop(self) -> None:
        super().stop()
        self.stopped.set()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_an_answer_that_is_being_written_ends(path: str, stream: bool) -> None:
    engine = Endless()
    served = Served(engine)
    try:
        with asked(served, path, {**BODIES[path], "stream": stream}):
            assert engine.begun.wait(60)
            assert served.turns.n_open == 1
        until(lambda: served.turns.n_open == 0)
        assert engine.stopped.wait(60)
        until(lambda: engine.reason == "cancelled")
    finally:
        served.close()


@pytest.mark.parametrize("stream", [False, True])
def test_one_whose_prompt_is_being_read_ends(stream: bool) -> None:
    gate = threading.Event()  # opened when the engine is told to stop
    engine = FakeEngine(gate=gate)
    served = Served(engine)
    try:
        with asked(served, "/v1/chat/completions", {"messages": HELLO, "stream": stream}):
            assert engine.reading.wait(60) and not gate.is_set()
        assert gate.wait(60)
        until(lambda: served.turns.n_open == 0)
        assert engine.reason == "cancelled" and engine.statistics().n_token == 0
    finally:
        served.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HELLO}),
        ("/v1/chat/completions", {"messages": HELLO, "stream": True}),
        ("/v1/messages/count_tokens", {"messages": HELLO}),
        ("/apply-template", {"messages": HELLO}),
    ],
)
def test_one_that_waits_leaves_the_queue_and_the_answer_before_it_alone(
    path: str, body: Any
) -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    served = Served(engine)
    try:
        with asked(served, "/v1/completions", {"prompt": "first", "max_tokens": 9}) as first:
            assert engine.reading.wait(60)
            with asked(served, path, body):
                until(lambda: served.turns.n_open == 2)
            until(lambda: served.turns.n_open == 1)
            assert not gate.is_set()
            gate.set()
            said = first.recv(1 << 16)
        assert said.startswith(b"HTTP/1.1 200 ") and len(engine.asked) == 1
    finally:
        gate.set()
        served.close()


def test_a_stream_that_nobody_reads_ends_when_its_client_leaves() -> None:
    """Its text fills the connection, so that the server waits to send more."""

    engine = Endless()
    engine._answer = lambda _, __: itertools.repeat(Delta(content="x" * 100_000))
    served = Served(engine)
    try:
        body = {"messages": HELLO, "stream": True}
        with asked(served, "/v1/chat/completions", body) as connection:
            assert connection.recv(1)
        until(lambda: served.turns.n_open == 0)
    finally:
        served.close()


def test_the_application_says_nothing_more_to_one_that_has_left() -> None:
    """With the messages of ASGI: no answer begins, and the request's task is not cancelled."""
    engine = Endless()
    host = EngineThread(engine)
    turns = Turns(host)
    app, said = make_application(turns, KEY), []

    async def ask() -> None:
        body = json.dumps({"messages": HELLO}).encode()
        incoming: asyncio.Queue[Any] = asyncio.Queue()
        incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        headers = [(b"host", b"localhost"), (b"x-api-key", KEY.encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers,
            "raw_path": b"", "query_string": b"", "root_path": "", "scheme": "http",
            "server": ("127.0.0.1", 1), "client": ("1", 1), "http_version": "1.1",
        }  # fmt: skip

        async def send(message: Any) -> None:
            said.append(message)

        task = asyncio.ensure_future(app(scope, incoming.get, send))
        await asyncio.to_thread(engine.begun.wait, 60)
        incoming.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(task, 60)
        assert not task.cancelled() and turns.n_open == 0

    asyncio.run(ask())
    host.close()
    assert said == [] and engine.reason == "cancelled"
