"""What the local server takes of requests: one body, all bodies together, and time to arrive."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from hypothesis import example, given, settings
from hypothesis import strategies as st
from served import KEY, Served

from backend.server import ask, bodies
from backend.server.ask import Fields, RequestRefused
from backend.server.llama_native import check_split
from backend.server.openai_chat import read_chat
from backend.server.openai_text import read_text
from backend.server.vectors import read_openai

CHAT = "/v1/chat/completions"
HEADERS = {"Authorization": f"Bearer {KEY}"}
KIB = 1 << 10


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(FakeEngine())
    yield made
    made.close()


def chat(n_byte: int = 0) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x" * n_byte}], "max_tokens": 1}


def is_well(served: Served) -> bool:
    return httpx.get(served.url + "/health", headers=HEADERS, timeout=30).status_code == 200


class Half:
    """A request whose body has not arrived whole."""

    def __init__(self, served: Served, n_byte: int, n_sent: int, path: str = CHAT) -> None:
        self.connection = socket.create_connection(("127.0.0.1", served.port), timeout=30)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n"
        self.connection.sendall(f"{head}Content-Length: {n_byte}\r\n\r\n".encode())
        self.connection.sendall(b'"'.ljust(n_sent, b"x"))

    def answer(self) -> str:
        """Wait for the answer and return it."""
        said = b""
        while b"\r\n\r\n" not in said and (data := self.connection.recv(KIB)):
            said += data
        return said.decode()

    def close(self) -> None:
        self.connection.close()


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never became so")


def test_half_sent_bodies_together_have_a_limit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 1200 * KIB)
    monkeypatch.setattr(bodies, "FREE_BYTES", 100 * KIB)
    rooms: list[bodies.Room] = []

    class Room(bodies.Room):
        def __init__(self, of: bodies.Bodies) -> None:
            super().__init__(of)
            rooms.append(self)

    monkeypatch.setattr(bodies, "Room", Room)
    halves = [Half(served, 1000 * KIB, 500 * KIB) for _ in range(3)]  # 400 KiB of each count
    until(lambda: sum(room.n_held for room in rooms) == 1200 * KIB)  # all have arrived
    assert served.post(CHAT, chat(200 * KIB)).status_code == 503
    refused = [Half(served, 1000 * KIB, 500 * KIB) for _ in range(5)]
    try:
        for half in refused:
            half.connection.sendall(b"x" * 500 * KIB)  # the rest; the answer follows it
            said = half.answer()
            assert said.startswith("HTTP/1.1 503 ") and "retry-after: 5" in said.lower()
        assert served.post(CHAT, chat(50 * KIB)).status_code == 200, "small ones still pass"
        assert served.post(CHAT, chat(500 * KIB)).status_code == 503
    finally:
        for half in halves:
            half.close()
    until(lambda: served.post(CHAT, chat(500 * KIB)).status_code == 200)
    for _ in range(5):  # what an answered request held is free
        assert served.post(CHAT, chat(900 * KIB)).status_code == 200
    for half in refused:
        half.close()


def test_a_body_counts_as_long_as_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 600 * KIB)
    monkeypatch.setattr(bodies, "FREE_BYTES", 0)
    gate = threading.Event()
    served = Served(engine := FakeEngine(gate=gate))
    found: list[int] = []
    asks = threading.Thread(
        target=lambda: found.append(served.post(CHAT, chat(500 * KIB)).status_code)
    )
    try:
        asks.start()
        assert engine.reading.wait(30)
        assert served.post(CHAT, chat(500 * KIB)).status_code == 503
        gate.set()
        asks.join(30)
        assert found == [200]
        assert served.post(CHAT, chat(500 * KIB)).status_code == 200
    finally:
        gate.set()
        served.close()


@pytest.mark.parametrize("n_mib", [20, 33])
def test_all_of_a_large_body_is_given_back(n_mib: int) -> None:
    """When its request is answered. One that is refused holds nothing, and gives back nothing."""
    found, is_taken = bodies.Bodies(), n_mib << 20 < bodies.MAX_BODY_BYTES

    async def pieces() -> AsyncIterator[bytes]:
        yield b'"'
        for _ in range(n_mib):
            yield b"x" * (KIB * KIB)
        yield b'"'

    async def take() -> int:
        with found.room() as room:
            with contextlib.nullcontext() if is_taken else pytest.raises(RequestRefused):
                assert len(await room.read(pieces(), {}, str)) == n_mib << 20
            return found.n_held

    n_held = asyncio.run(take())
    assert n_held == ((n_mib << 20) + 2 - bodies.FREE_BYTES if is_taken else 0)
    assert found.n_held == found.n_arriving == 0


def test_bodies_that_arrive_at_once_have_a_limit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_ARRIVING", 2)
    halves = [Half(served, 100, 10) for _ in range(2)]
    try:
        until(lambda: served.post(CHAT, chat()).status_code == 503)
        assert is_well(served), "a request without a body is answered"
    finally:
        for half in halves:
            half.close()
    until(lambda: served.post(CHAT, chat()).status_code == 200)


def test_a_body_that_does_not_arrive_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.3)
    half = Half(served, 100, 10)
    assert half.answer().startswith("HTTP/1.1 408 ")
    half.close()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_and_its_client_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_chunked: bool
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 1000 * KIB)
    body = json.dumps(chat(3000 * KIB)).encode()

    def pieces() -> Iterator[bytes]:
        for begin in range(0, len(body), 50 * KIB):
            yield body[begin : begin + 50 * KIB]

    content = pieces() if is_chunked else body
    answer = httpx.post(served.url + CHAT, content=content, headers=HEADERS, timeout=30)
    assert answer.status_code == 413 and "larger than" in answer.json()["error"]["message"]
    body = json.dumps(chat(1000 * KIB - len(json.dumps(chat())))).encode()
    assert len(body) == 1000 * KIB
    assert httpx.post(served.url + CHAT, content=body, headers=HEADERS).status_code == 200
    assert httpx.post(served.url + CHAT, content=body + b" ", headers=HEADERS).status_code == 413


def test_values_and_levels_are_limited_before_they_are_parsed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "parse", lambda _: pytest.fail("it was parsed"))
    many = b'{"x":[' + b"[]," * bodies.MAX_VALUES + b"[]]}"
    deep = b'{"x":' + b"[" * bodies.MAX_DEPTH + b"]" * bodies.MAX_DEPTH + b"}"
    for content, status, words in ((many, 413, "values"), (deep, 400, "levels")):
        answer = httpx.post(served.url + CHAT, content=content, headers=HEADERS, timeout=30)
        assert answer.status_code == status and words in answer.text


def test_text_is_limited_and_images_are_not_text(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "MAX_TEXT_CHARS", 100)
    messages = [{"role": "user", "content": "x" * 96}]  # and "user"
    longer = [{"role": "user", "content": "x" * 97}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 100}}
    parts = [{"role": "user", "content": [image, {"type": "text", "text": "x" * 90}]}]
    tool = {"type": "function", "function": {"name": "f", "description": "x" * 100}}
    for path, body, status in (
        (CHAT, {"messages": messages, "max_tokens": 1}, 200),
        (CHAT, {"messages": longer, "max_tokens": 1}, 413),
        (CHAT, {"messages": parts}, 400),  # the model cannot see
        (CHAT, {"messages": messages, "tools": [tool]}, 413),
        ("/v1/completions", {"prompt": ["x" * 50] * 2, "max_tokens": 1}, 200),
        ("/v1/completions", {"prompt": ["x" * 50, "x" * 51], "max_tokens": 1}, 413),
        ("/v1/messages/count_tokens", {"messages": messages}, 200),
        ("/v1/messages/count_tokens", {"messages": longer}, 413),
        ("/tokenize", {"content": "x" * 100}, 200),
        ("/tokenize", {"content": "x" * 101}, 413),
    ):
        assert served.post(path, body).status_code == status, (path, body)


def test_others_are_served_while_a_large_body_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, is_reading, parse = threading.Event(), threading.Event(), bodies.parse

    def waits(data: bytearray) -> Any:
        if len(data) > 200 * KIB:
            is_reading.set()
            assert goes_on.wait(60)
        return parse(data)

    monkeypatch.setattr(bodies, "parse", waits)
    found: list[int] = []
    asks = threading.Thread(
        target=lambda: found.append(served.post(CHAT, chat(300 * KIB)).status_code)
    )
    asks.start()
    assert is_reading.wait(30)
    assert is_well(served) and served.post(CHAT, chat()).status_code == 200
    goes_on.set()
    asks.join(30)
    assert found == [200]


def test_large_bodies_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once would take the memory of both."""
    found, data = bodies.Bodies(), b'"' + b"x" * (100 * KIB) + b'"'

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    async def take() -> bool:
        with found.room() as room:
            return await room.read(pieces(), {}, lambda _: found.parsing.locked())

    async def both() -> list[bool]:
        return await asyncio.gather(take(), take())

    assert asyncio.run(both()) == [True, True]


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "\\udc00\\ud800", "a\\uD83Db"])
def test_half_a_character_is_replaced_and_named(half: str) -> None:
    """It could be neither tokenised nor sent back, and a client may keep it in its history."""
    body = bodies.parse_measured(f'{{"{half}": ["{half}"]}}'.encode())
    n = half.count("\\u")
    ((name, (text,)),) = body.items()
    assert name == text and text.strip("ab") == "\ufffd" * n
    assert "text (halves of characters)" in Fields(body).others()
    assert bodies.parse_measured(b'["\\ud83d\\ude00"]') == ["\U0001f600"]


# Measuring.

values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a"\\[]{},:\n é')),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.sampled_from('k"\\[,')), inner, max_size=4)
    ),
    max_leaves=20,
)


def n_value(value: Any) -> int:
    """Return the number of objects, lists, and of their values after the first one."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values() if isinstance(value, dict) else value)
    return 1 + max(len(inner) - 1, 0) + sum(map(n_value, inner))


def n_level(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(n_level, value.values() if isinstance(value, dict) else value), default=0)


@settings(max_examples=60, deadline=None)
@given(values, st.integers(1, 7), st.booleans())
@example(['\\"[', {'"\\\\': ["\\", '"']}], 1, False)
def test_text_counts_for_nothing(value: Any, step: int, is_ascii: bool) -> None:
    data = json.dumps([value], ensure_ascii=is_ascii).encode()

    def passes(most_values: int, most_levels: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bodies, "MAX_VALUES", most_values)
            patch.setattr(bodies, "MAX_DEPTH", most_levels)
            measure = bodies.Measure()
            try:
                for begin in range(0, len(data), step):
                    measure.add(data[begin : begin + step])
            except RequestRefused:
                return False
            return True

    n, deep = n_value([value]), n_level([value])
    assert passes(n, deep)
    assert not passes(n - 1, deep)
    assert not passes(n, deep - 1)


def test_a_text_that_cannot_fit_is_refused_without_splitting_all_of_it() -> None:
    engine = FakeEngine()
    n_split: list[int] = []
    tokenize = engine.tokenize
    engine.tokenize = lambda text, **more: n_split.append(len(text)) or tokenize(text, **more)
    served = Served(engine)
    long = "word " * 400_000
    try:
        for path, body in (
            ("/v1/completions", {"prompt": long}),
            ("/completion", {"prompt": ["a", 5, long]}),
            (CHAT, {"messages": [{"role": "user", "content": long}]}),
            (CHAT, {"messages": [{"role": "user", "content": "Hi"}] * 20_000}),
            ("/v1/messages", {"messages": [{"role": "user", "content": [
                {"type": "text", "text": long}]}]}),
        ):  # fmt: skip
            n_split.clear()
            answer = served.post(path, body)
            assert answer.status_code == 400 and "context" in answer.text, answer.text[:200]
            assert sum(n_split) <= 1 << 14 and not engine.asked
        answer = served.post("/tokenize", {"content": long})
        assert answer.status_code == 413 and "send it in parts" in answer.text
    finally:
        served.close()


# The table of amounts in docs/server.md, walked.

HI = [{"role": "user", "content": "a"}]
ROW = re.compile(r"^\| ([^|]+) \| ([\d,]+) \| `(\w+)\.(\w+)` \|", re.MULTILINE)
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "server.md"
AMOUNTS = [
    (name.strip(), int(most.replace(",", "")), module, constant)
    for name, most, module, constant in ROW.findall(GUIDE.read_text(encoding="utf-8"))
]


def tool(i: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"f{i}"}}


def chat_with(**fields: Any) -> Any:
    return read_chat({"messages": HI, **fields})


def namespaces(n: int) -> list[Any]:
    """Return n tools in namespaces of 512."""
    parts = [range(i, min(i + 512, n)) for i in range(0, n, 512)]
    return [
        {"type": "namespace", "name": f"n{part.start}", "tools": [tool(i) for i in part]}
        for part in parts
    ]


OF: dict[str, Callable[[int], Any]] = {
    "bytes of a body": lambda n: asyncio.run(body_of(n)),
    "values in a body": lambda n: bodies.parse_measured(b"[" + b"0," * (n - 1) + b"0]"),
    "levels in a body": lambda n: bodies.parse_measured(b"[" * n + b"]" * n),
    "characters of text": lambda n: ask.check_text("a" * n),
    "tools, also of a namespace": lambda n: chat_with(tools=[tool(i) for i in range(n)]),
    "tools of all namespaces": lambda n: chat_with(tools=namespaces(n)),
    "choices": lambda n: chat_with(n=n),
    "prompts": lambda n: read_text({"prompt": ["a"] * n}),
    "alternatives in a grammar": lambda n: chat_with(grammar="root ::= a" + " | a" * (n - 1)),
    "values in an answer's schema": lambda n: chat_with(json_schema={"enum": ["a"] * (n - 2)}),
    "`dry_sequence_breakers`": lambda n: chat_with(dry_sequence_breakers=["a"] * n),
    "`samplers`": lambda n: chat_with(samplers=["top_k"] * n),
    "texts in `stop`": lambda n: chat_with(stop=["a"] * n),
    "texts in `logit_bias`": lambda n: chat_with(logit_bias=[["a", 1]] * n),
    "bytes of `/tokenize`": lambda n: check_split("ä" * (n // 2) + "a" * (n % 2)),
    "texts to embed or to rank": lambda n: read_openai({"input": ["a"] * n}),
}
"""What reads each amount of the table."""


async def body_of(n: int) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'"' + b"x" * (n - 2) + b'"'

    with bodies.Bodies().room() as room:
        await room.read(pieces(), {}, str)


@pytest.mark.parametrize(("amount", "most", "module", "constant"), AMOUNTS)
def test_what_a_request_may_hold_is_what_the_table_says(
    amount: str, most: int, module: str, constant: str
) -> None:
    assert getattr(importlib.import_module(f"backend.server.{module}"), constant) == most
    OF[amount](most)
    with pytest.raises(RequestRefused):
        OF[amount](most + 1)


def test_the_table_has_every_amount() -> None:
    assert [amount for amount, *_ in AMOUNTS] == list(OF)


def test_what_is_ignored_is_named_within_a_limit() -> None:
    ignored = chat_with(**{f"x{i}": 1 for i in range(2000)}).ignored
    assert len(ignored) == ask.MAX_NAMED + 1 and ignored[-1] == f"{2000 - ask.MAX_NAMED} more"
