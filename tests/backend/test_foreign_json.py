"""JSON from tools and clients is the same at the other end of the pipe, whatever its keys are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.protocol.messages import Decoder, ProtocolError, encode
from backend.system.kept_file import an_object, parse_json, read_json, write_json
from backend.text import Text, text
from backend.tools.plain_text import read_arguments
from backend.tools.tool import Tool

LIKE_A_TEXT = {"text_id": "tools.ended", "values": {}, "text": "It is another one."}
LIKE_PAIRS = {"text_id": None, "pairs": [["a", 1]]}
HOSTILE: list[Any] = [
    LIKE_A_TEXT,
    LIKE_PAIRS,
    {"text_id": LIKE_A_TEXT, "values": LIKE_PAIRS, "text": [LIKE_A_TEXT]},
    {"text_id": "", "values": {"parts": [1, "x"]}, "text": ""},
    {"text_id": 7, "values": [], "text": None},
    {"text_id": None, "pairs": 5},
    {"text_id": 1},
]

names = st.sampled_from(["text_id", "values", "text", "pairs", "id", "type", ""]) | st.text()
numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text() | st.sampled_from(["tools.ended", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=25,
)


def types_of(value: Any) -> Any:
    """Return the types of a value's parts. Equality alone does not tell a Text from text."""
    if isinstance(value, dict):
        return {name: types_of(item) for name, item in value.items()}
    if isinstance(value, list):
        return [types_of(item) for item in value]
    return type(value)


@settings(max_examples=50)
@given(json_values)
@example(HOSTILE)
def test_any_json_is_the_same_behind_the_pipe(value: Any) -> None:
    sent = {"type": "call", "arguments": value, "said": text("tools.ended")}
    [message] = Decoder().feed(encode(sent))
    assert message["arguments"] == value
    assert types_of(message["arguments"]) == types_of(value)
    assert isinstance(message["said"], Text) and message["said"].id == "tools.ended"


@pytest.mark.parametrize("value", HOSTILE)
def test_objects_like_a_text_arrive_as_they_were_sent(value: Any) -> None:
    [message] = Decoder().feed(encode({"type": "call", "arguments": {"deep": [value]}}))
    assert message["arguments"] == {"deep": [value]}
    assert types_of(message) == types_of({"type": "call", "arguments": {"deep": [value]}})


def test_what_no_pipe_wrote_is_refused() -> None:
    for pairs in (b"5", b"[5]", b'[["a"]]', b"[[1,2]]", b'[["a",1,2]]'):
        body = b'{"type":"x","a":{"text_id":null,"pairs":' + pairs + b"}}"
        with pytest.raises(ProtocolError):
            Decoder().feed(len(body).to_bytes(4, "big") + body)


def test_a_message_that_is_nested_too_deeply_is_refused_by_its_sender() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ProtocolError, match="nested too deeply"):
        encode({"type": "call", "arguments": value})


def test_foreign_json_is_parsed_as_it_is() -> None:
    for value in HOSTILE:
        read = parse_json(json.dumps({"a": value}))
        assert read == {"a": value} and types_of(read) == types_of({"a": value})


def test_a_kept_file_tells_texts_from_objects_like_them(tmp_path: Path) -> None:
    kept = {"servers": HOSTILE, "note": text("tools.ended")}
    write_json(tmp_path / "kept.json", kept)
    read = read_json(tmp_path / "kept.json", an_object)
    assert read == {**kept, "servers": HOSTILE} and types_of(read) == types_of(kept)


@settings(max_examples=50)
@given(st.dictionaries(names, json_values, max_size=5))
@example({"arguments": HOSTILE})
def test_arguments_arrive_as_they_were_approved(arguments: dict[str, Any]) -> None:
    approved = read_arguments(json.dumps(arguments))
    assert approved == arguments
    [message] = Decoder().feed(encode({"type": "call", "arguments": approved}))
    assert message["arguments"] == arguments and types_of(message["arguments"]) == types_of(
        arguments
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": NaN}', "not valid JSON"),
        ('{"a": [-Infinity]}', "not valid JSON"),
        ('{"a": 1e999}', "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a":' + "[" * 129 + "]" * 129 + "}", "too deeply"),
        ('{"a":' + "[" * 900 + "]" * 900 + "}", "too deeply"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "not valid JSON"),
    ],
)
def test_arguments_that_no_pipe_can_carry_are_not_run(arguments: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_arguments(arguments)


@settings(max_examples=50)
@given(
    st.dictionaries(names, json_values, max_size=5),
    st.text(),
)
def test_a_tool_arrives_as_it_was_described(schema: dict[str, Any], description: str) -> None:
    tool = Tool.read("server", "name", description, schema)
    [message] = Decoder().feed(encode({"type": "server", "tools": [tool.to_json()]}))
    arrived = Tool.from_json(message["tools"][0])
    assert arrived == tool and arrived.fingerprint == tool.fingerprint
    assert types_of(arrived.schema) == types_of(tool.schema)


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), 10**5000], ids=["nan", "inf", "big"]
)
def test_a_tool_with_a_number_that_json_cannot_say_is_not_offered(number: float) -> None:
    tool = Tool.read("server", "name", "", {"default": number})
    assert tool.fault == text("tools.odd_number") and tool.schema == {}
    assert Decoder().feed(encode({"type": "server", "tools": [tool.to_json()]}))
