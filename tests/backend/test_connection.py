"""The protocol of the worker's pipe alone: no process, and a clock that the tests set."""

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from backend.protocol import connection as protocol
from backend.protocol.chat import Delta, ToolCall
from backend.protocol.connection import Connection, Event
from backend.protocol.messages import (
    EXIT_PROTOCOL,
    FINAL,
    MAX_BYTES,
    READINGS,
    VERSION,
    Decoder,
    encode,
)

HELLO = {"type": "hello", "version": VERSION}
MODEL = {"name": "m", "moe_layers": [1, 2], "n_expert": 4}
CACHE = {"rate": 0.5, "n_slot": 2, "mode": "cached"}
STATS = {"n_token": 3, "layers": [{"layer": 1, "stall_s": 0.5}]}
STATE = {"allowed": True, "share": 0.5}
GARBLED = "The engine sent something that could not be understood."
# Each message, the type of its request, and a sign that it was read.
MESSAGES: list[tuple[dict[str, Any], str, Callable[..., Any]]] = [
    ({"type": "started", "n_prompt": 2}, "generate", lambda: True),
    ({"type": "waits", "n_before": 2}, "generate", lambda n: n == 2),
    ({"type": "loading", "fraction": 0.5, "stage": "é"}, "load", lambda f, s: (f, s) == (0.5, "é")),
    ({"type": "loaded", "model": MODEL, "cache": CACHE}, "load", lambda m, c: c.n_slot == 2),
    ({"type": "configured", "model": MODEL, "cache": CACHE}, "configure", lambda m, c: m.name),
    ({"type": "reloaded", "model": MODEL, "cache": CACHE}, "generate", lambda m, c: c.n_slot == 2),
    ({"type": "cache_changed", "cache": CACHE}, "", lambda c: c.rate == 0.5),
    ({"type": "unloaded"}, "unload", lambda: True),
    ({"type": "prefill", "done": 1, "total": 2}, "generate", lambda d, t: (d, t) == (1, 2)),
    (
        {"type": "text", "text": "naïve 🦊", "reasoning": "so", "tool_calls": [[1, "a", "f", "{"]]},
        "generate",
        lambda d, t: (d, t) == (Delta("so", "", {1: ToolCall("a", "f", "{")}), "naïve 🦊"),
    ),
    (
        {"type": "other_text", "answer": 2, "text": "ü", "content": "u"}, "generate",
        lambda n, d, t: (n, d, t) == (2, Delta(content="u"), "ü"),
    ),
    (
        {"type": "other_done", "answer": 2, "reason": "stop", "stats": STATS}, "generate",
        lambda n, r, s: (n, r) == (2, "stop") and s.n_token == 3,
    ),
    ({"type": "formatted", "prompt": "<s>"}, "format", lambda p: p == "<s>"),
    ({"type": "stats", "stats": STATS}, "generate", lambda s: s.layer_stall_s == {1: 0.5}),
    ({"type": "done", "reason": "stop", "stats": STATS}, "generate", lambda r, s: s.n_token == 3),
    (
        {"type": "residency", "moe_layers": [1, 2], "n_expert": 4, "data": "AAECAwQFBgc="}, "",
        lambda r: r.data == bytes(range(8)),
    ),
    (
        {"type": "moments", "first": 7, "figures": [[1] * 13], "data": "AAE="}, "",
        lambda b: b.first == 7 and b.figures[0].on_host == 1 and b.blob == b"\0\1",
    ),
    ({"type": "advice", "stall_share": 0.25}, "", lambda a: a.stall_share == 0.25),
    ({"type": "learning", "state": STATE}, "learning", lambda s: s.allowed and s.share == 0.5),
    (
        {"type": "devices", "devices": [{"name": "D", "description": "d"}]}, "devices",
        lambda d, m: (d, m) == ([("D", "d")], []),
    ),
    (
        {"type": "devices", "devices": [],
         "modules": [{"file": "f", "backend": "", "trouble": "t"}]}, "devices",
        lambda d, m: (d, m) == ([], [("f", "", "t")]),
    ),
    ({"type": "attaching", "done": 1, "total": 2}, "attach", lambda *v: v == (1, 1, 2)),
    (
        {"type": "attached", "file": {"name": "a", "kind": "pdf", "text": "ü", "n_page": 2}},
        "attach", lambda i, f, r: (i, f.name, f.text, f.n_page, r) == (1, "a", "ü", 2, ""),
    ),
    ({"type": "picture", "width": 1, "height": 1, "rgb": "AAEC"},
        "picture", lambda i, p: (i, p.width, p.height, p.rgb) == (1, 1, 1, b"\0\1\2")),
    ({"type": "picture"}, "picture", lambda i, p: (i, p) == (1, None)),
    ({"type": "attached", "refusal": "No."}, "attach", lambda i, f, r: (f, r) == (None, "No.")),
    ({"type": "counted", "n_token": 3}, "count", lambda i, n: (i, n) == (1, 3)),
    ({"type": "server", "on": True}, "serve", lambda m: m["on"]),
    ({"type": "pong", "n_token": 3}, "ping", lambda: True),
    ({"type": "error", "message": "No."}, "load", lambda r, s: (r, s) == ("load", "No.")),
    ({"type": "from the future", "x": []}, "", lambda: True),
]  # fmt: skip


def greeted(*requests: str) -> Connection:
    """Return a connection that was greeted at 0 s and has sent these requests."""
    connection = Connection(0.0)
    assert [e.kind for e in connection.receive(encode(HELLO), 0.0)] == ["hello"]
    for kind in requests:
        connection.request(kind, 0.0)
    connection.take_output()
    return connection


def written(connection: Connection) -> list[dict[str, Any]]:
    return Decoder().feed(connection.take_output())


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def test_the_greeting_goes_out_first_and_requests_are_numbered() -> None:
    connection = Connection(0.0)
    numbers = [connection.request(kind, 0.0, x=1) for kind in ("load", "devices", "generate")]
    connection.stop()
    assert written(connection) == [
        HELLO,
        {"type": "load", "id": numbers[0], "x": 1},
        {"type": "devices", "id": numbers[1], "x": 1},
        {"type": "generate", "id": numbers[2], "x": 1},
        {"type": "stop", "id": numbers[0]},
        {"type": "stop", "id": numbers[2]},
    ]
    assert len(set(numbers)) == 3 and written(connection) == []


@pytest.mark.parametrize(
    ("message", "request_kind", "is_read"),
    MESSAGES,
    ids=lambda x: x["type"] if isinstance(x, dict) else x if isinstance(x, str) else "",
)
def test_every_message_is_read_however_it_is_split(
    message: dict[str, Any], request_kind: str, is_read: Callable[..., Any]
) -> None:
    data = encode({**message, "id": 1 if request_kind else None})
    for cut in range(len(data)):
        connection = greeted(*([request_kind] if request_kind else []))
        events = connection.receive(data[:cut], 1.0)
        assert events == []
        (event,) = connection.receive(data[cut:], 1.0)
        assert event.kind == message["type"] and is_read(*event.values)
        assert event.message is not None and event.message.items() >= message.items()
        # The watch ends with the request.
        is_open = bool(request_kind) and message["type"] not in FINAL
        assert (connection.deadline_s is not None) == is_open
    assert {kind["type"] for kind, _, _ in MESSAGES} >= READINGS.keys()


@pytest.mark.parametrize(
    "garbage",
    [
        b"Segmentation fault\n",
        struct.pack(">I", MAX_BYTES + 1),
        frame(b"?"),
        frame(b"[]"),
        frame(b"{}"),
        frame(b'{"type":["text"]}'),
        frame(b'{"type":"died"}'),
        frame(b'{"type":"text"}'),
        frame(b'{"type":"prefill","done":1e999,"total":2}'),
        frame(b'{"type":"loading","fraction":"half","stage":""}'),
        frame(b'{"type":"stats","stats":[]}'),
        frame(b'{"type":"devices","devices":[1]}'),
        frame(b'{"type":"residency","moe_layers":[1],"n_expert":4,"data":"AAEC"}'),
        frame(b'{"type":"residency","moe_layers":[1],"n_expert":4,"data":"!"}'),
        frame(b'{"type":"moments","first":0,"figures":[],"data":""}'),
        frame(b'{"type":"moments","first":0,"figures":[[1]],"data":""}'),
    ],
)
def test_garbage_ends_it_after_what_was_good(garbage: bytes) -> None:
    connection = greeted("generate")
    one, two, late = (encode({"type": "text", "id": 1, "text": text}) for text in "abc")
    events = connection.receive(one + two + garbage + late, 1.0)
    assert [e[:2] for e in events] == [
        ("text", (Delta(), "a")),
        ("text", (Delta(), "b")),
        ("died", (GARBLED,)),
    ]
    assert connection.is_over and connection.receive(encode(HELLO), 1.0) == []


def test_what_came_before_garbage_is_not_lost() -> None:
    """Messages that were read together with garbage still arrive."""
    connection = Connection(0.0)
    number = connection.request("generate", 0.0)
    said = [{"type": "text", "id": number, "text": piece} for piece in "ab"]
    data = b"".join(encode(message) for message in [HELLO, *said]) + b"Bus error"
    events = connection.receive(data, 1.0)
    assert [event.kind for event in events] == ["hello", "text", "text", "died"]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({"type": "hello", "version": VERSION + 1}, "another version"),
        ({"type": "hello", "version": str(VERSION)}, "another version"),
        ({"type": "hello"}, "could not be understood"),
        ({"type": "text", "text": "a"}, "could not be understood"),
    ],
)
def test_the_first_message_must_be_a_greeting_of_this_version(
    first: dict[str, Any], words: str
) -> None:
    (event,) = Connection(0.0).receive(encode(first) + encode(HELLO), 0.0)
    assert event.kind == "died" and words in event.values[0]


def test_a_worker_that_never_greets_is_given_up() -> None:
    connection = Connection(10.0)
    assert connection.deadline_s == 10.0 + protocol.HELLO_LIMIT_S
    assert connection.tick(connection.deadline_s - 0.1) == []
    (event,) = connection.tick(connection.deadline_s)
    assert event.kind == "died" and "does not answer" in event.values[0]
    assert connection.deadline_s is None


def run_until(connection: Connection, until_s: float, n_token: int | None) -> list[Event]:
    """Tick at each deadline. Answer pings with `n_token`, or not at all."""
    events = []
    while (now_s := connection.deadline_s) is not None and now_s <= until_s:
        events += connection.tick(now_s)
        for ping in written(connection):
            if ping["type"] == "ping" and n_token is not None:
                pong = {"type": "pong", "id": ping["id"], "n_token": n_token}
                events += connection.receive(encode(pong), now_s)
    return events


def test_a_worker_that_does_not_answer_pings_hangs_and_may_recover() -> None:
    connection = greeted("generate")
    events = run_until(connection, 60.0, n_token=None)
    assert [event[:2] for event in events] == [
        ("hangs", ("The engine has not answered for 30 seconds.",))
    ]
    done = {"type": "done", "id": 1, "reason": "stop", "stats": {}}
    events = connection.receive(encode(done), 61.0)
    assert [event.kind for event in events] == ["recovered", "done"]
    assert connection.deadline_s is None


def test_a_worker_without_progress_hangs_until_a_token_comes() -> None:
    connection = greeted("generate")
    assert run_until(connection, protocol.PROGRESS_LIMIT_S, n_token=0) == []
    connection.request("learning", 121.0)  # another request is no progress
    events = run_until(connection, 130.0, n_token=0)
    assert [event.kind for event in events] == ["hangs"]
    assert "no progress for 2 minutes" in events[0].values[0]
    assert [e.kind for e in run_until(connection, 140.0, n_token=1)] == ["recovered"]


def test_the_time_between_requests_does_not_count() -> None:
    connection = greeted("generate")
    connection.tick(protocol.PING_S)  # this ping is never answered
    connection.receive(encode({"type": "done", "id": 1, "reason": "stop", "stats": {}}), 6.0)
    assert connection.deadline_s is None
    connection.request("generate", 1000.0)
    assert connection.deadline_s == 1000.0 + protocol.PING_S
    assert connection.tick(1000.0 + protocol.PING_S) == []


STATES: dict[str, Callable[[], Connection]] = {
    "greeting": lambda: Connection(0.0),
    "idle": greeted,
    "loading": lambda: greeted("load"),
    "changing": lambda: greeted("configure"),
    "answering": lambda: greeted("generate"),
    "several": lambda: greeted("generate", "learning", "devices"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("way", ["killed", "refused", "closed its pipe", "cut off", "hangs"])
def test_death_in_every_state_is_one_sentence_and_the_end(state: str, way: str) -> None:
    connection = STATES[state]()
    connection.receive_stderr(b"x" * 100_000 + b"\nlast \xff words")
    assert len(connection.last_words) < 20_000 and connection.last_words.endswith(" words")
    if way == "hangs":
        run_until(connection, 100.0, n_token=None)
    if way == "refused" and state != "greeting":
        said = {"type": "error", "id": None, "message": "I speak another version."}
        assert connection.receive(encode(said), 1.0)[0].values == ("", said["message"])
    if way == "cut off":
        assert connection.receive(encode(HELLO)[:-1], 1.0) == []
    returncode = {"refused": EXIT_PROTOCOL, "closed its pipe": None}.get(way, -9)
    (event,) = connection.process_ended(returncode)
    killed = "killed" if os.name == "posix" else "(signal 9)"  # which Windows never says
    words = {"refused": "another version", "closed its pipe": "closed its pipe"}.get(way, killed)
    if way == "refused" and state == "greeting":
        words = "status 2"
    assert event.kind == "died" and words in event.values[0] and event.values[0].endswith(".")
    # No message follows, and no request is sent.
    connection.take_output()
    connection.request("load", 1.0)
    connection.stop()
    assert connection.is_over and connection.deadline_s is None
    assert connection.take_output() == b"" and connection.tick(1e9) == []
    assert connection.process_ended(0) == connection.receive(json.dumps(HELLO).encode(), 2.0) == []


@pytest.mark.parametrize("reason", ["", "No such file or directory"])
def test_a_program_that_cannot_be_started_is_said(reason: str) -> None:
    (event,) = Connection(0.0).process_failed_to_start(reason)
    assert event.values[0].startswith("The engine could not be started") and reason in event[1][0]
