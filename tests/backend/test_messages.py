"""Frames: encoding, decoding in pieces, and what is refused."""

import json
import struct
from dataclasses import replace

import pytest

from backend.protocol.errors import RequestError
from backend.protocol.messages import MAX_BYTES, Decoder, ProtocolError, check_request, encode
from backend.protocol.settings import EngineConfig, Setup
from backend.text import joined, text


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def test_frame_is_big_endian_length_and_json() -> None:
    data = encode({"type": "ping", "id": 7})
    assert data[:4] == (len(data) - 4).to_bytes(4, "big")
    assert json.loads(data[4:]) == {"type": "ping", "id": 7}


@pytest.mark.parametrize("step", [1, 3, 5, 1000])
def test_round_trip_in_pieces_of_any_size(step: int) -> None:
    messages = [
        {"type": "text", "text": "naïve 🦊 雪\x00\n"},
        {"type": "load", "path": "model-\udcff.gguf"},
        {"type": "text", "text": ""},
    ]
    data = b"".join(encode(message) for message in messages)
    decoder = Decoder()
    decoded = []
    for start in range(0, len(data), step):
        decoded += decoder.feed(data[start : start + step])
    assert decoded == messages


def test_oversized_length_is_refused_before_its_body_comes() -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError, match="more than the 67108864 allowed"):
        decoder.feed(struct.pack(">I", MAX_BYTES + 1))
    with pytest.raises(ProtocolError):
        decoder.feed(encode({"type": "ping"}))


def test_largest_body_passes_and_one_more_byte_does_not() -> None:
    room = MAX_BYTES - len(json.dumps({"type": "text", "text": ""}, separators=(",", ":")))
    data = encode({"type": "text", "text": "x" * room})
    assert len(data) == MAX_BYTES + 4
    assert len(Decoder().feed(data)) == 1
    with pytest.raises(ProtocolError):
        encode({"type": "text", "text": "x" * (room + 1)})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"hello",
        b"[1]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":{"text_id":1,"values":{},"text":""}}',
        b'{"text_id":"no.such","values":{},"text":"x"}',
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Decoder().feed(frame(body))


def test_a_text_keeps_its_id_on_both_sides() -> None:
    slots = text("memory.fewer_slots", free=3 << 30, n=12, all=128, wanted=64)
    sent = {"type": "loaded", "cache": {"reason": joined(slots, "x")}}
    [message] = Decoder().feed(encode(sent))
    assert message == sent
    first, second = message["cache"]["reason"].values["parts"]
    assert (first.id, first.values, second) == (slots.id, slots.values, "x")


def test_messages_before_a_bad_frame_are_not_lost() -> None:
    with pytest.raises(ProtocolError) as caught:
        Decoder().feed(encode({"type": "ping", "id": 1}) + frame(b"?"))
    assert caught.value.messages == [{"type": "ping", "id": 1}]


def test_numbers_that_json_cannot_say_are_refused() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            encode({"type": "stats", "value": value})


LOAD = {
    "type": "load",
    "id": 1,
    "path": "m.gguf",
    "cache_rate": 0.25,
    "method": "promoe",
    "context_length": 4096,
    "n_thread": 0,
}
GENERATE = {
    "type": "generate",
    "id": 2,
    "messages": [{"role": "user", "content": "hello"}],
    "sampling": {},
    "max_tokens": -1,
}


CALL = {"type": "function", "id": "a", "function": {"name": "f", "arguments": "{}"}}
TURNS = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "image", "data": "AAAA"}]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "7", "tool_call_id": "a", "name": "f"},
]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "hello", "version": 1},
        LOAD,
        {**LOAD, "cache_rate": 1, "from_the_future": []},
        GENERATE,
        {**GENERATE, "messages": TURNS, "options": {}},
        {"type": "format", "id": 3, "messages": TURNS},
        {**{k: v for k, v in GENERATE.items() if k != "messages"}, "prompt": "raw"},
        {"type": "stop", "id": 3},
        {"type": "unload", "id": 5},
        {"type": "ping", "id": 6},
        {"type": "shutdown"},
    ],
)
def test_good_requests_pass(message: dict) -> None:
    check_request(message)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({}, "type"),
        ({"type": 3}, "type"),
        ({"type": "dance", "id": 1}, "'dance'"),
        ({"type": "hello"}, '"version"'),
        ({"type": "hello", "version": "1"}, '"version"'),
        ({"type": "ping"}, '"id"'),
        ({"type": "ping", "id": True}, '"id"'),
        ({"type": "ping", "id": 1.0}, '"id"'),
        ({**LOAD, "path": ""}, '"path"'),
        ({**LOAD, "path": "a\0b"}, '"path"'),
        ({**LOAD, "cache_rate": "0.5"}, '"cache_rate"'),
        ({**LOAD, "context_length": None}, '"context_length"'),
        ({**GENERATE, "messages": "hello"}, '"messages"'),
        ({**GENERATE, "messages": [{"role": "user"}]}, '"messages"'),
        ({**GENERATE, "messages": [{"role": "user", "content": "\ud800"}]}, '"messages"'),
        *(
            ({**GENERATE, "messages": [message]}, '"messages"')
            for message in (
                {"role": "wizard", "content": ""},
                {"role": "user", "content": None},
                {"role": "user", "content": [{"type": "text"}]},
                {"role": "user", "content": [{"type": "sound", "data": ""}]},
                {"role": "user", "content": "", "tool_calls": [CALL]},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
                {"role": "assistant", "content": "", "tool_calls": {}},
                {"role": "assistant", "content": "", "reasoning_content": 1},
                {"role": "tool", "content": "", "tool_call_id": "\ud800"},
            )
        ),
        ({**GENERATE, "options": []}, '"options"'),
        ({**GENERATE, "prompt": "both"}, "either"),
        ({**GENERATE, "sampling": []}, '"sampling"'),
    ],
)
def test_bad_requests_name_the_field(message: dict, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        check_request(message)


def test_a_client_does_not_decide_what_the_program_does() -> None:
    config = EngineConfig.of(n_sequence=3, kv_on_drive=True, mmproj="m.gguf", cache_rate=0.5)
    assert config.setup == Setup(n_sequence=3, kv_on_drive=True, mmproj="m.gguf")
    changed = config.changed(n_sequence=4, hybrid="auto")
    assert changed.setup == replace(config.setup, n_sequence=4) and changed.hybrid == "auto"
    sent = EngineConfig.from_message({**config.to_json(), "n_sequence": 3, "kv_on_drive": True})
    assert sent.setup == Setup(mmproj="m.gguf") and sent.to_json() == config.to_json()
