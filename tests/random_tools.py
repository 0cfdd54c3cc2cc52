"""A server of tools that does anything, by chance, in a time that does not pass.

Its host runs in the test's process, on an event loop whose clock jumps to the next event. So two
thousand servers with waits of minutes are tried in a minute or two.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from backend.protocol.messages import Message
from backend.tools import host as host_module
from backend.tools import transports

START_S = 60.0
FAULTS = ("hang", "late", "error", "odd", "twice", "other", "die", "die before", "garbage", "asks",
          "progress", "changes", "cut", "status", "lost", "silent end", "empty")  # fmt: skip
ODD: tuple[Any, ...] = (None, [], "x", 7, {"content": None}, {"content": "text"}, {"content": [7]},
                        {"isError": "yes"}, {"content": [{"type": "video", "data": "AA"}]},
                        {"structuredContent": [1]}, {"content": {"type": "text"}})  # fmt: skip


class Clock(selectors.DefaultSelector):
    """Waits for nothing: the time jumps instead."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout is None:
            raise AssertionError("everything waits for ever")
        if not found:
            self.now_s += timeout or 0.0
        return found


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s


class Stand:
    """The server. `ran`: how often each call ran, by its text; `odd`: calls answered oddly."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.is_well = self.is_up = True
        self.tools = ["echo"]
        self.sessions: set[str] = set()
        self.n_session = 0
        self.ran: dict[str, int] = {}
        self.odd: set[str] = set()

    def fault(self, method: str) -> str:
        often = 0.5 if method == "tools/call" else 0.1
        return "" if self.is_well or self.chance.random() > often else self.chance.choice(FAULTS)

    def result(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                    "serverInfo": {"name": "stand", "version": "1"}}  # fmt: skip
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {}} for name in self.tools]}
        if method == "tools/call":
            said = params["arguments"]["text"]
            self.ran[said] = self.ran.get(said, 0) + 1
            return {"content": [{"type": "text", "text": said}]}
        return {}

    async def answers(self, asked: dict[str, Any]) -> AsyncIterator[dict[str, Any] | str]:
        """Yield what is sent after a request: messages, "die", or other words."""
        method, number, params = asked["method"], asked.get("id"), asked.get("params") or {}
        if number is None:
            return
        known = ("initialize", "tools/list", "tools/call", "ping")
        if method not in known:
            yield {"id": number, "error": {"code": -32601, "message": "Method not found"}}
            return
        fault = self.fault(method)
        said = params.get("arguments", {}).get("text", "")
        if fault in ("odd", "error", "garbage", "other", "empty"):
            self.odd.add(said)
        if fault == "die before":
            yield "die"
            return
        if fault in ("status", "lost"):
            yield fault
            return
        if fault == "error":
            yield {
                "id": number,
                "error": self.chance.choice(
                    ({"code": -32000, "message": "no"}, {"message": None}, "no", {"code": "x"})
                ),
            }
            return  # fmt: skip
        result = self.result(method, params)
        if fault == "late":
            await asyncio.sleep(self.chance.choice((0.5, 4.0, 20.0, 90.0)))
        if fault == "hang":
            await asyncio.sleep(1e6)
        if fault == "asks":
            for name in ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "x"):
                yield {"id": f"s{number}", "method": name, "params": {}}
        if fault == "progress":
            token = params.get("_meta", {}).get("progressToken")
            for share in (0.1, None, "x", 2):
                about = {"progressToken": token, "progress": share, "total": 1}
                yield {"method": "notifications/progress", "params": about}
        if fault == "changes":
            self.tools = ["echo", *(f"t{n}" for n in range(self.chance.randint(0, 3)))]
            yield {"method": "notifications/tools/list_changed"}
        if fault in ("die", "cut", "silent end"):
            yield fault
            return
        if fault == "garbage":
            yield "garbage"
            return
        if fault == "other":
            yield {"id": 4711, "result": result}
        if fault == "odd":
            result = self.chance.choice(ODD)
        if fault == "empty":
            result = {}
        for _ in range(2 if fault == "twice" else 1):
            yield {"id": number, "result": result}


class FakeProcess:
    """What `Program` uses of a process: three streams and an end."""

    pid = 1

    def __init__(self, stand: Stand) -> None:
        self.stand, self.returncode = stand, None
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.stdin, self._line = self, b""
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if self.returncode is None and "method" in (asked := json.loads(line)):
                task = asyncio.ensure_future(self._answer(asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        if self.returncode is not None:
            raise BrokenPipeError

    def close(self) -> None:
        self.end()

    def end(self) -> None:
        if self.returncode is None:
            self.returncode = 1  # type: ignore[assignment]
            self.stdout.feed_eof()
            self.stderr.feed_eof()
            for task in self._tasks:
                task.cancel()

    async def _answer(self, asked: dict[str, Any]) -> None:
        async for said in self.stand.answers(asked):
            if self.returncode is not None:
                return
            if isinstance(said, dict):
                self.stdout.feed_data(json.dumps({"jsonrpc": "2.0", **said}).encode() + b"\n")
            elif said == "garbage":
                self.stdout.feed_data(b'Hello {"jsonrpc"\n')
                self.stdout.feed_data(b'{"jsonrpc":"2.0","id":%d,"result":{"a":]}\n' % asked["id"])
            elif said != "silent end":
                self.end()


class FakeProgram(transports.Program):
    stand: Stand

    async def _started(self) -> Any:
        if not self.stand.is_up:
            raise transports.ServerFault("It does not start.")
        return FakeProcess(self.stand)

    def _signal(self, number: int) -> None:
        self._process.end()  # type: ignore[union-attr]


def web_answer(stand: Stand) -> Any:
    """Return a handler of HTTP requests. It answers in JSON or as a stream of events."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if not stand.is_up:
            raise httpx2.ConnectError("refused", request=request)
        if request.method != "POST":
            return httpx2.Response(405)
        asked = json.loads(request.content)
        session = request.headers.get("mcp-session-id", "")
        if asked.get("method") == "initialize":
            stand.n_session += 1
            session = f"s{stand.n_session}"
            stand.sessions.add(session)
        elif session not in stand.sessions:
            return httpx2.Response(404)
        if "id" not in asked or "method" not in asked:
            return httpx2.Response(202)
        fields = {"mcp-session-id": session}
        items = stand.answers(asked)
        first = await anext(items, "silent end")
        if first == "die":
            stand.sessions.clear()
            raise httpx2.ReadError("reset", request=request)
        if first == "lost":
            stand.sessions.clear()
            return httpx2.Response(404)
        if first == "status":
            return httpx2.Response(stand.chance.choice((429, 500, 502, 503)), text="<p>no")
        if first == "garbage":
            return httpx2.Response(200, headers={**fields, "content-type": "application/json"},
                                   text='{"jsonrpc": ]')  # fmt: skip
        is_answer = isinstance(first, dict) and first.get("id") == asked["id"]
        if is_answer and stand.chance.random() < 0.5:
            kind = {**fields, "content-type": "application/json"}
            return httpx2.Response(200, headers=kind, json={"jsonrpc": "2.0", **first})  # type: ignore[dict-item]

        async def events() -> AsyncIterator[bytes]:
            said: Any = first
            while isinstance(said, dict):
                yield f"data: {json.dumps({'jsonrpc': '2.0', **said})}\n\n".encode()
                said = await anext(items, None)
            if said == "cut":
                yield b"data: {"
                raise httpx2.ReadError("cut", request=request)
            if said == "die":
                stand.sessions.clear()

        kind = {**fields, "content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, content=events())

    return answer


@contextmanager
def installed(stand: Stand) -> Iterator[None]:
    """Put the stand-in in the place of processes and of the network."""
    FakeProgram.stand = stand
    real = transports._WebClient

    def client(**options: Any) -> Any:
        return real(transport=httpx2.MockTransport(web_answer(stand)), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_module, "Program", FakeProgram)
        patch.setattr(transports, "_WebClient", client)
        yield


async def tried(seed: int, stand: Stand) -> None:
    """Use a server of chance, let it become well, and use it again. Asserts what has to hold."""
    said = list[Message]()
    chance = random.Random(-seed)
    host = host_module.Host(said.append, START_S)
    where = {"url": "http://stand/mcp"} if seed % 2 else {"command": "stand"}

    def start() -> None:
        host.take({"type": "start", "server": "s", "config": where})

    def call(number: int, limit_s: float) -> None:
        host.take({"type": "call", "id": number, "server": "s", "tool": "echo", "limit_s": limit_s,
                   "arguments": {"text": f"said {number}"}, "result_chars": 1000})  # fmt: skip

    def state() -> Message:
        return [m for m in said if m["type"] == "server"][-1]

    stand.is_well = chance.random() < 0.7  # a bad start is for some
    start()
    await asyncio.sleep(chance.choice((0.0, 1.0, 70.0)))
    stand.is_well, stopped = False, set[int]()
    n_call = chance.randint(2, 8)
    for number in range(n_call):
        call(number, chance.choice((1.0, 10.0, 60.0)))
        if chance.random() < 0.1:
            stand.is_up = not stand.is_up
        if chance.random() < 0.1:
            stand.sessions.clear()
        if chance.random() < 0.1:
            host.take({"type": "cancel", "id": number})
            stopped.add(number)
        if chance.random() < 0.05:
            start()
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.5, 5.0, 40.0)))
    await asyncio.sleep(70.0)
    results = [m for m in said if m["type"] == "result"]
    assert sorted(m["id"] for m in results) == list(range(n_call)), "one result for each call"
    for result in results:
        words, text = f"said {result['id']}", result["text"]
        n_run = stand.ran.get(words, 0)
        assert n_run <= 1, f"{words} ran {n_run} times"
        assert text or not result["is_error"]
        assert "Error" not in text and "Traceback" not in text, text
        is_known = words in stand.odd or result["id"] in stopped
        assert is_known or not result["is_error"] or result["is_unsure"] or not n_run, result
        assert result["is_error"] or is_known or text == words, result
    stand.is_well = stand.is_up = True
    await asyncio.sleep(10 * START_S)
    now = state()
    assert now["state"] in ("ready", "failed"), now
    if now["state"] == "failed":
        assert str(now["sentence"]).endswith("."), now
        start()
        await asyncio.sleep(START_S)
    assert state()["state"] == "ready", state()
    assert [tool["name"] for tool in state()["tools"]] == stand.tools, state()
    call(1000, 60.0)
    await asyncio.sleep(61.0)
    last = next(m for m in said if m["type"] == "result" and m["id"] == 1000)
    assert (last["text"], last["is_error"]) == ("said 1000", False), last
    host.take({"type": "stop", "server": "s"})
    await asyncio.sleep(5.0)
    assert state()["state"] == "off", state()


def try_seed(seed: int) -> None:
    """Try one server. The host measures some durations by the real clock, which stands still."""
    loop = Loop()
    stand = Stand(seed)
    try:
        with installed(stand), pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_module.time, "monotonic", loop.time)
            loop.run_until_complete(tried(seed, stand))
    finally:
        loop.close()
