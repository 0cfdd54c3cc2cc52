"""Random JSON schemas of bounded depth, random answers to schemas, and a check of answers."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema

from backend.llama.json_matcher import Matcher, Vocabulary
from backend.llama.json_matcher import fault as fault_of
from backend.llama.json_schema import prepared

Json = dict[str, Any]
BYTES = [bytes([i]) for i in range(256)] + [b""]
END = 256
"""The end of an answer in a vocabulary of bytes."""

NAMES = ("a", "name", "two words", "ü", 'quo"te', "n-1", "type", "items")
PATTERNS = (
    "^[A-Z]{2}$",
    "^[^a-z]{1,4}$",
    "[0-9]{3}-[0-9]{2}",
    "^(?:yes|no|may.be)$",
    r"^\d{1,3}(\.\d{1,3}){3}$",
    r"^\w+@\w{2,5}$",
    "^.{2,6}$",
    "a+b?",
    "^{[a-z]+}$",
    "^x}$|^[[&--]$",
)
# What cannot be held. Such a schema must be refused.
REFUSED: tuple[Json, ...] = (
    {"type": "number", "multipleOf": 0.01},
    {"type": "array", "uniqueItems": True},
    {"type": "object", "minProperties": 2},
    {"type": "object", "propertyNames": {"maxLength": 3}},
    {"type": "string", "pattern": "^(?=a)b$"},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    {"not": {"type": "string"}},
    {"type": "array", "contains": {"const": 1}, "maxItems": 3},
)
_USUAL = frozenset(b'"}],:0123456789 abcxyzABZ-_./@{[\\tfn')


class Refusal(Exception):
    """A schema was refused; the text is the sentence."""


def held(schema: Json, vocabulary: Vocabulary) -> tuple[Matcher, list[str]]:
    """Return a matcher for a schema, and what of it is not held. Raises Refusal.

    As ChatFormat does it, without its process.
    """
    reason = ""
    for opened in (False, True):
        try:
            made, not_held = prepared(schema, opened=opened)
        except RuntimeError as error:
            raise Refusal(str(error)) from None
        reason = fault_of(written := json.dumps(made))
        if not reason:
            return vocabulary.matcher(written), not_held
    raise Refusal(reason)


def accepts(matcher: Matcher, data: bytes) -> bool:
    """Return whether a matcher at its beginning takes these bytes, and they are complete."""
    for byte in data:
        if not matcher.fits(byte):
            return False
        matcher.accept(byte)
    return matcher.may_end


def walk(matcher: Matcher, rng: random.Random, n_max: int = 400) -> bytes | None:
    """Write random bytes that a matcher permits; None if they do not end."""
    written = bytearray()
    hurry, is_wild = rng.choice([0.05, 0.3, 0.6]), rng.random() < 0.3
    while len(written) < n_max:
        if matcher.may_end and (matcher.is_complete or rng.random() < 0.5):
            return bytes(written)
        permitted = [i for i, is_permitted in enumerate(matcher.allowed()) if is_permitted]
        if not permitted:
            assert matcher.may_end, f"{bytes(written)!r} cannot be continued"
            return bytes(written)
        ends = [byte for byte in permitted if byte in b'"}]']
        usual = [byte for byte in permitted if byte in _USUAL]
        if rng.random() < hurry:
            permitted = ends or permitted
        elif not is_wild:
            permitted = usual or permitted
        byte = rng.choice(permitted)
        matcher.accept(byte)
        written.append(byte)
    return None


def random_schema(rng: random.Random, *, refusals: bool = False) -> Json:
    """Return a schema; with `refusals`, one in ten may have a part of REFUSED."""
    made = _Maker(rng, refusals and rng.random() < 0.1)
    root = made.node(3)
    return {**root, "$defs": made.definitions} if made.definitions else root


def fault(answer: str, schema: Json) -> str:
    """Return the fault of an answer, or ""."""
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(answer))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


class _Maker:
    def __init__(self, rng: random.Random, has_refusals: bool) -> None:
        self.definitions: Json = {}
        self._rng = rng
        self._has_refusals = has_refusals

    def node(self, depth: int) -> Json:
        rng = self._rng
        if self._has_refusals and rng.random() < 0.3:
            return dict(rng.choice(REFUSED))
        leaves = (
            self._string,
            self._integer,
            self._number,
            self._values,
            self._simple,
            self._types,
        )
        inner = (self._object, self._object, self._array, self._tuple, self._any, self._one)
        inner += (self._all, self._reference)
        return rng.choice(leaves if depth == 0 else leaves + inner * 2)(depth - 1)

    def _string(self, _: int) -> Json:
        rng = self._rng
        kind = rng.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": rng.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid"])}
        low = rng.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(8)}

    def _number(self, _: int) -> Json:
        rng = self._rng
        low = round(rng.uniform(-50, 50), rng.randrange(4))
        words = rng.choice([("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")])
        bounds = {words[0]: low, words[1]: low + rng.choice([0.25, 1, 7.5])}
        return {"type": "number", **{w: bounds[w] for w in bounds if rng.random() < 0.8}}

    def _integer(self, _: int) -> Json:
        rng, schema = self._rng, {"type": "integer"}
        if rng.random() < 0.1:
            return {**schema, "multipleOf": rng.randrange(2, 9)}
        low = rng.randrange(-1200, 1200)
        low_word = rng.choice(["minimum", "exclusiveMinimum"])
        high_word = rng.choice(["maximum", "exclusiveMaximum"])
        bounds = {low_word: low, high_word: low + 2 + rng.randrange(2000)}
        return {**schema, **{w: bounds[w] for w in bounds if rng.random() < 0.8}}

    def _values(self, _: int) -> Json:
        rng = self._rng
        values = ["red", "blue", "ünï", 'say "no"', "a\\b", 3, -1.5, True, None, [1, 2], {"k": []}]
        if rng.random() < 0.3:
            return {"const": rng.choice(values)}
        return {"enum": rng.sample(values, rng.randrange(1, 5))}

    def _simple(self, _: int) -> Json:
        return {"type": self._rng.choice(["boolean", "null", "number", "integer"])}

    def _types(self, _: int) -> Json:
        types = self._rng.sample(["boolean", "null", "integer", "number"], 2)
        return {"type": types, "title": "Either", "description": "One of two types."}

    def _object(self, depth: int) -> Json:
        rng = self._rng
        names = rng.sample(NAMES, rng.randrange(1, 4))
        schema: Json = {"type": "object", "properties": {n: self.node(depth) for n in names}}
        schema["required"] = [n for n in names if rng.random() < 0.7]
        if rng.random() < 0.2:
            schema["additionalProperties"] = self.node(0)
        elif rng.random() < 0.1:
            schema["patternProperties"] = {"^[x-z]{2}$": self.node(0)}
        elif rng.random() < 0.1:
            schema["required"].append("unnamed")
        elif rng.random() < 0.5:
            schema["additionalProperties"] = False
        return schema

    def _array(self, depth: int) -> Json:
        low = self._rng.randrange(3)
        items = self.node(depth)
        high = low + self._rng.randrange(1, 3)
        return {"type": "array", "items": items, "minItems": low, "maxItems": high}

    def _tuple(self, depth: int) -> Json:
        first = [self.node(depth) for _ in range(self._rng.randrange(1, 4))]
        return {"type": "array", "prefixItems": first, "items": False}

    def _any(self, depth: int) -> Json:
        return {"anyOf": [self.node(depth) for _ in range(self._rng.randrange(1, 4))]}

    def _one(self, depth: int) -> Json:
        """Return alternatives of objects, distinguished by a fixed property."""
        parts = []
        for kind in ("cat", "dog"):
            part = self._object(depth)
            part["properties"] = {"kind": {"const": kind}, **part["properties"]}
            parts.append({**part, "required": ["kind", *part["required"]]})
        return {"oneOf": parts}

    def _all(self, depth: int) -> Json:
        parts = [self._object(depth) for _ in range(2)]
        for part in parts:
            part.pop("additionalProperties", None)
        for name in parts[0]["properties"].keys() & parts[1]["properties"].keys():
            parts[1]["properties"][name] = {}
        return {"allOf": parts}

    def _reference(self, depth: int) -> Json:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = {}
        self.definitions[name] = self.node(depth)
        return {"$ref": f"#/$defs/{name}"}
