"""What JSON is held to a schema, byte by byte, without a model."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import llguidance
import pytest
from random_schemas import (
    BYTES,
    END,
    REFUSED,
    Refusal,
    accepts,
    fault,
    held,
    random_schema,
    walk,
)

from backend.llama.api import LlamaError
from backend.llama.json_matcher import Matcher, MatcherError, Vocabulary
from backend.llama.json_schema import prepared

Json = dict[str, Any]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(BYTES, [END])


def test_random_answers_to_random_schemas_are_valid(vocabulary: Vocabulary) -> None:
    n_whole = 0
    for seed in range(40):
        rng = random.Random(seed)
        schema = random_schema(rng)
        for _ in range(2):
            matcher, not_held = held(schema, vocabulary)
            assert not_held == []
            if (answer := walk(matcher, rng)) is not None:
                assert fault(answer.decode(), schema) == "", (schema, answer)
                n_whole += 1
    assert n_whole > 60


OPEN = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {}}
CLOSED = {"type": "object", "properties": {"a": {"type": "null"}}}
BRACKETS = "^" + "(" * 101 + "a" + ")" * 101 + "$"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        # A literal brace is no number of repeats.
        ({"type": "string", "pattern": "^{[a-z]+}$"}, '"{ab}"', '"ab"'),
        ({"type": "string", "pattern": "^x}$"}, '"x}"', '"anything"'),
        ({"type": "string", "pattern": "^[[&&]$"}, '"&"', '"]"'),
        ({"type": "string", "pattern": "^a|b$"}, '"ac"', '"ca"'),
        ({"type": "string", "pattern": r"^\u00e9$"}, '"é"', '"e"'),
        ({"type": "string", "pattern": r"^\D$"}, '"é"', '"٣"'),  # a digit in Python
        ({"type": "string", "pattern": r"^[^\W]$"}, '"a"', '" "'),
        ({"type": "string", "pattern": "^a+$", "minLength": 2}, '"aa"', '"a"'),
        # Names have one spelling, and are JSON.
        (OPEN, '{"b":1}', r'{"\":1}'),
        (OPEN, '{"b":1}', '{"b\n":1}'),
        (OPEN, '{"a":null}', r'{"\u0061":1}'),
        (OPEN, '{"a":null,"b":1}', '{"a":1}'),
        (CLOSED, "{}", '{"b":1}'),
        ({"type": "object"}, '{"b":[1]}', "[]"),
        ({"properties": {"a": {}}, "required": ["b"]}, '{"a":1,"b":2}', '{"a":1}'),
        ({"patternProperties": {"^x": {"type": "null"}}}, '{"x":null}', '{"x":1}'),
        # A letter outside of the first plane is one.
        ({"type": "string", "minLength": 2}, '"😀😀"', '"😀"'),
        ({"type": "string", "minLength": 2}, '"ab"', r'"\ud83d\ude00"'),
        ({"type": "string", "maxLength": 1}, r'"\n"', '"ab"'),
        # Numbers are those of floats.
        ({"type": "number", "exclusiveMaximum": 1}, "0.99", "0." + "9" * 20),
        ({"type": "number", "minimum": 0.1}, "0.10", "0.09"),
        ({"type": "number", "exclusiveMinimum": 2, "exclusiveMaximum": 2.25}, "2.1", "2"),
        ({"type": "number", "exclusiveMinimum": -3, "exclusiveMaximum": -2}, "-2.1", "-2"),
        ({"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.01}]}, "0.001", "0"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "0.5", "1"),
        ({"type": "integer", "minimum": 3}, "12", "2"),
        ({"type": "integer", "maximum": 2**63 - 1}, "12", str(2**63)),
        ({"type": "integer", "exclusiveMinimum": True, "minimum": 1}, "2", "1"),
        ({"type": "integer", "multipleOf": 3}, "-6", "4"),
        ({"enum": [1, "a\n", {"b": [None]}]}, '{"b":[null]}', "2"),
        ({"type": "string", "format": "date"}, '"2024-01-31"', '"2023-02-29"'),
        ({"type": "string", "format": "ipv4"}, '"1.2.3.4"', '"1.2.3.256"'),
        # A part of what holds together is closed by the names of all.
        (
            {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"c": {}}}], "$defs": {"a": CLOSED}},
            '{"a":null,"c":1}',
            '{"b":1}',
        ),
        # Alternatives exclude each other as they stand, not as they are closed.
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]}
                    for k in "ab"
                ]
            },
            '{"k":"b"}',
            '{"k":"c"}',
        ),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, "null", "1"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}],
          "additionalItems": False}, "[1]", "[1,2]"),
    ],
    ids=str,
)  # fmt: skip
def test_what_fits_a_schema(schema: Json, good: str, bad: str, vocabulary: Vocabulary) -> None:
    validator = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator
    )(schema)
    assert schema.get("exclusiveMinimum") is True or validator.is_valid(json.loads(good))
    assert accepts(held(schema, vocabulary)[0], good.encode())
    assert not accepts(held(schema, vocabulary)[0], bad.encode())


@pytest.mark.parametrize("schema", REFUSED, ids=str)
def test_what_cannot_be_held_is_refused(schema: Json, vocabulary: Vocabulary) -> None:
    for nested in (schema, {"type": "array", "items": {"anyOf": [schema, {"type": "null"}]}}):
        with pytest.raises(Refusal, match=r"^The JSON schema uses .+, which answers cannot "):
            held(nested, vocabulary)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"enum": [1, 2], "type": "string"}, "No value fits"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "No value fits"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "No value fits"),
        ({"type": "string", "minLength": "x"}, "malformed"),
        ({"type": "string", "const": "\ud800"}, "malformed"),
        ({"items": 3}, "malformed"),
        ({"type": "dog"}, "the type 'dog'"),
        ({"$ref": "http://example.com/x"}, "the reference"),
        ({"$ref": "#/$defs/none"}, "the reference"),
        ({"anyOf": [{"$ref": "#/anyOf/\u00b2"}]}, "the reference"),
        ({"const": "a\x01"}, "control characters"),
        ({"const": 2**53 + 1}, "more than 15 digits"),
        ({"patternProperties": {"^.é$": {}}, "additionalProperties": True}, "patternProperties"),
        # Both alternatives permit {}, though they would not if they were closed.
        (
            {"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            "oneOf",
        ),
        ({"type": "string", "pattern": r"^\bA$"}, "in pattern"),
        ({"type": "string", "pattern": r"\1"}, "in pattern"),
        ({"type": "string", "pattern": "a{,5}"}, "in pattern"),
        ({"type": "string", "pattern": "[]a]"}, "in pattern"),
        ({"type": "string", "pattern": "a++"}, "in pattern"),
        ({"type": "string", "pattern": "^(a|b$)"}, "in pattern"),
        ({"type": "string", "pattern": BRACKETS}, "nested brackets"),
    ],
    ids=str,
)  # fmt: skip
def test_schemas_without_an_answer(schema: Json, sentence: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(Refusal, match=sentence):
        held(schema, vocabulary)


def nested(depth: int) -> Json:
    schema: Json = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until others take its place. Its matchers do not disturb each other."""
    n_made, real = 0, llguidance.LLMatcher

    def made(*args: Any, **options: Any) -> Any:
        nonlocal n_made
        n_made += 1
        return real(*args, **options)

    monkeypatch.setattr(llguidance, "LLMatcher", made)
    vocabulary = Vocabulary(BYTES, [END])
    first, second = (vocabulary.matcher('{"type":"integer"}') for _ in range(2))
    assert n_made == 1
    for byte in b"12":
        first.accept(byte)
    assert first.may_end and not second.may_end and second.fits(ord("3"))
    assert not vocabulary.matcher('{"type":"integer"}').may_end
    for n in range(100):
        vocabulary.matcher(json.dumps({"const": n}))
    vocabulary.matcher('{"const":0}')
    assert n_made == 102


WORDS = {"type": "string", "pattern": r"^(?:\S+\s+){0,49}\S+$", "maxLength": 500}


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    """Bytes, and words as in a model's vocabulary."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [f" {''.join(rng.choices(letters, k=rng.randrange(1, 12)))}" for _ in range(3000)]
    return Vocabulary([*BYTES, *(piece.encode() for piece in pieces)], [END])


def written(matcher: Matcher, n: int, seed: int) -> None:
    """Write words that fit, without a look at what else does, as a sampler does."""
    rng = random.Random(seed)
    matcher.accept(ord('"'))
    for _ in range(n):
        tokens = (rng.randrange(97, 3257) for _ in range(1000))
        matcher.accept(next(token for token in tokens if matcher.fits(token)))


def test_a_long_answer_and_those_after_it_are_held(words: Vocabulary) -> None:
    """What llguidance may spend on a token does not run out with the tokens."""
    schema = json.dumps(prepared(WORDS)[0])
    for seed in range(3):
        written(words.matcher(schema), 40, seed)


def limit_states(monkeypatch: pytest.MonkeyPatch, n: int) -> list[Any]:
    """Let llguidance keep few states. Return a list of the schemas that are compiled."""
    limits, matcher = llguidance.LLParserLimits, llguidance.LLMatcher
    made: list[Any] = []

    def limited(**options: Any) -> Any:
        return limits(**options, max_lexer_states=n)

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return matcher(*args, **options)

    monkeypatch.setattr(llguidance, "LLParserLimits", limited)
    monkeypatch.setattr(llguidance, "LLMatcher", counted)
    return made


def test_answers_go_on_where_llguidance_reaches_a_limit(
    words: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answers to a schema share what llguidance computes of it, and fail together."""
    made = limit_states(monkeypatch, 1000)
    schema = json.dumps(prepared({**WORDS, "maxLength": 450})[0])
    beside = words.matcher(schema)
    for seed in range(3):
        written(words.matcher(schema), 20, seed)
    written(beside, 20, 7)
    assert len(made) >= 2


def test_a_matcher_that_failed_is_not_kept(
    words: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = json.dumps(prepared({**WORDS, "maxLength": 400})[0])
    with monkeypatch.context() as patch:
        limit_states(patch, 200)
        with pytest.raises(MatcherError, match=r"^The JSON schema is too complex\.$"):
            written(words.matcher(schema), 40, 0)
    written(words.matcher(schema), 40, 0)


def test_deep_and_large_schemas_are_refused() -> None:
    for schema in (
        nested(200),
        {"properties": {f"p{i}": {"type": "null"} for i in range(30_000)}},
        {"$ref": "#/$defs/0", "$defs": {
            str(i): {"allOf": [{"$ref": f"#/$defs/{(i + 1) % 200}"}] * 2} for i in range(200)
        }},
    ):  # fmt: skip
        with pytest.raises(LlamaError, match="deeply"):
            prepared(schema)


def test_what_is_not_held_is_said() -> None:
    schema = {"type": "string", "format": "colour", "contentEncoding": "base64"}
    assert prepared(schema)[1] == ["contentEncoding", "the format 'colour'"]
    lenient = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 3}}}}
    made, not_held = prepared(lenient, lenient=True)
    assert not_held == ["not"] and made["properties"]["a"]["type"] == "integer"
