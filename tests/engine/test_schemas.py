"""Answers under a JSON schema."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from random_schemas import REFUSED, fault, random_schema

from backend.engine.engine import Engine, EngineError
from backend.llama.api import LlamaError
from backend.llama.json_schema import prepared
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.settings import Sampling

ASKED = [{"role": "user", "content": "Describe a river."}]


def test_answers_to_random_schemas_are_valid(tiny_chat: Engine) -> None:
    n_whole = 0
    for seed in range(20):
        schema = random_schema(random.Random(seed))
        sampling = Sampling(temperature=1.0, seed=seed, top_k=0, min_p=0)
        answer, options = AnswerText(), ChatOptions(json_schema=schema)
        list(tiny_chat.generate(ASKED, sampling, 300, options=options, on_delta=answer.add))
        # Otherwise the answer is cut, or random tokens end within a character.
        if tiny_chat.finish_reason == "stop" and "\ufffd" not in answer.content:
            assert fault(answer.content, schema) == "", (schema, answer)
            n_whole += 1
    assert n_whole > 10


@pytest.fixture(scope="module")
def tiny_chat(tiny: Path) -> Any:
    from backend.protocol.settings import EngineConfig

    engine = Engine.open(tiny, EngineConfig(n_thread=1, context_length=1024))
    yield engine
    engine.close()


@pytest.mark.parametrize("schema", REFUSED, ids=str)
def test_what_cannot_be_held_is_refused(schema: dict[str, Any], tiny_chat: Engine) -> None:
    for nested in (schema, {"type": "array", "items": {"anyOf": [schema, {"type": "null"}]}}):
        with pytest.raises(EngineError, match=r"^The JSON schema uses .+, which answers cannot "):
            tiny_chat.generate(ASKED, Sampling(), 9, options=ChatOptions(json_schema=nested))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"enum": [1, 2], "type": "string"}, "No value fits"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "No value fits"),
        ({"required": ["a"], "additionalProperties": False}, "No value fits"),
        ({"type": "string", "minLength": "x"}, "malformed"),
        ({"type": "dog"}, "the type 'dog'"),
        ({"$ref": "http://example.com/x"}, "the reference"),
        ({"$ref": "#/$defs/none"}, "the reference"),
        ({"anyOf": [{"$ref": "#/anyOf/\u00b2"}]}, "the reference"),
        ({"type": "string", "pattern": "^(?=a)b$"}, "in pattern"),
        ({"type": "string", "pattern": r"^\bA$"}, "in pattern"),
    ],
)  # fmt: skip
def test_schemas_without_an_answer(schema: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LlamaError, match=sentence):
        prepared(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_deep_schemas_are_refused() -> None:
    for depth in (200, 100_000):
        with pytest.raises(LlamaError, match="deep"):
            prepared(nested(depth))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"required": ["a"]}, {"a": 1}, {}),
        ({"allOf": [{"$ref": "#/$defs/s"}], "$defs": {"s": {"type": "string"}}}, "x", 1),
        ({"type": ["string", "null"], "enum": ["a", 1, None]}, None, 1),
        ({"type": "string", "anyOf": [{"minLength": 2}, {"maxLength": 0}]}, "ab", "a"),
        ({"items": [{"type": "null"}], "additionalItems": False}, [None], [1]),
        ({"exclusiveMinimum": 1.5, "maximum": 2.5}, 2, 3),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}]}, {"a": 1}, {}),
    ],
)  # fmt: skip
def test_a_prepared_schema_is_as_strict(schema: dict[str, Any], good: Any, bad: Any) -> None:
    validator = jsonschema.Draft202012Validator(prepared(schema))
    assert validator.is_valid(good) and not validator.is_valid(bad)
