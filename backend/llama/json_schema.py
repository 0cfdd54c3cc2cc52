"""Rewrites JSON schemas so that llama.cpp's grammars guarantee them.

llama.cpp (common/json-schema.cpp) ignores keywords that it does not know, and siblings of others.
An answer could then violate its schema. `prepared` returns a schema that is at least as strict and
whose every keyword counts, or refuses the schema by the keyword.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from backend.llama.api import LlamaError
from backend.protocol.chat import Json
from backend.text import text

# Keywords that restrict values of each type.
_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
    ),
    "array": (
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
    ),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_OF_TYPE = {**_OF_TYPE, "integer": _OF_TYPE["number"], "boolean": (), "null": ()}
_OF_ANY = ("not", "if", "then", "else", "$dynamicRef", "$recursiveRef")
_CHOICES = ("$ref", "allOf", "anyOf", "oneOf", "const", "enum")
_RESTRICTS = frozenset(
    ("type", *_OF_ANY, *_CHOICES, *(word for words in _OF_TYPE.values() for word in words))
)
_FORMATS = frozenset(("date", "time", "date-time", "uuid"))
_DEPTH_MAX = 100
_INTEGER_MAX = 10**15 - 1
_CLASS = re.compile(r"\[\^?(?:[^\]\\]|\\.)+\]")


def prepared(schema: Json) -> Json:
    """Return a schema for llama.cpp, all of whose values are valid for `schema`.

    Raises LlamaError for a schema that llama.cpp cannot guarantee.
    """
    try:
        return _Preparation(schema).run()
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise LlamaError(text("schema.malformed")) from None


class _Preparation:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._names: dict[str, str] = {}  # of the references, in "$defs"
        self._defs: Json = {}

    def run(self) -> Json:
        prepared = self._node(self._root, 0)
        return {**prepared, "$defs": self._defs} if self._defs else prepared

    def _node(self, schema: Any, depth: int) -> Json:
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise _refusal("false" if schema is False else "a schema that is no object")
        if depth > _DEPTH_MAX:
            raise LlamaError(text("schema.too_deep"))
        given = {word: value for word, value in schema.items() if word in _RESTRICTS}
        for word in _OF_ANY:
            if word in given:
                raise _refusal(word)
        chosen = [word for word in _CHOICES if word in given]
        if chosen:
            return self._choice(chosen, given, depth)
        types = _types(given)
        if len(types) == 1:
            return self._typed(types[0], given, depth)
        if not types:
            words = {word for word in given if word != "type"}
            if not words:
                return {}
            # llama.cpp takes the words for those of one type, which is stricter.
            types = [name for name in ("object", "array", "string") if words & {*_OF_TYPE[name]}]
            return self._typed((types or ["integer"])[0], given, depth)
        return {"anyOf": [self._typed(name, given, depth) for name in types]}

    def _choice(self, chosen: Sequence[str], given: Json, depth: int) -> Json:
        """Return a node of a reference, alternatives or fixed values, with no word beside it."""
        word = "const" if "const" in chosen else "enum" if "enum" in chosen else chosen[0]
        siblings = {name: value for name, value in given.items() if name != word}
        value = given[word]
        if word in ("const", "enum"):
            return self._values([value] if word == "const" else value, siblings)
        if word == "allOf":
            return self._merged(value, siblings, depth)
        if word in ("anyOf", "oneOf") and siblings.keys() == {"type"}:
            # The type holds for each alternative.
            value = [
                {"type": siblings["type"], **part}
                if isinstance(part, dict) and not {"type", *_CHOICES} & part.keys()
                else {"allOf": [part, siblings]}
                for part in _parts(word, value)
            ]
        elif siblings:
            raise _refusal(f"{next(iter(siblings))} beside {word}")
        if word == "$ref":
            return {"$ref": self._reference(value)}
        parts = _parts(word, value)
        if word == "oneOf" and not self._are_disjoint(parts):
            raise _refusal("oneOf with alternatives that overlap")
        return {"anyOf": [self._node(part, depth + 1) for part in parts]}

    def _reference(self, ref: Any) -> str:
        """Return a reference to the prepared form of a reference's target."""
        if ref not in self._names:
            target = self._resolved(ref)
            self._names[ref] = name = f"r{len(self._names)}"  # now, because it may refer to itself
            self._defs[name] = self._node(target, 0)
        return f"#/$defs/{self._names[ref]}"

    def _resolved(self, ref: Any) -> Any:
        """Return the schema that a reference names."""
        if not isinstance(ref, str) or not re.fullmatch(r"#(/[^~%]*)?", ref):
            raise _refusal(f"the reference {ascii(ref)[:60]}")
        target: Any = self._root
        for name in ref.split("/")[1:]:
            is_place = re.fullmatch("[0-9]{1,9}", name)
            if isinstance(target, list) and is_place and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, dict) and name in target:
                target = target[name]
            else:
                raise _refusal(f"the reference {ascii(ref)[:60]}")
        return target

    def _values(self, values: Any, siblings: Json) -> Json:
        """Return a node of fixed values, without those that a type beside it excludes."""
        others = siblings.keys() - {"type"}
        if others:
            raise _refusal(f"{min(others)} beside fixed values")
        if not isinstance(values, list):
            raise _refusal("enum that is no list")
        types = _types(siblings)
        kept = [value for value in values if not types or _has_type(value, types)]
        if not kept:
            raise LlamaError(text("schema.impossible"))
        return {"enum": kept}

    def _merged(self, value: Any, siblings: Json, depth: int) -> Json:
        """Return a node for schemas that hold together."""
        parts = self._flat([*_parts("allOf", value), siblings], depth)
        if len(parts) == 1:
            return self._node(parts[0], depth + 1)
        merged: Json = {}
        for part in parts:
            for word, own in part.items():
                if word == "required":
                    merged[word] = [*merged.get(word, []), *own]
                elif word == "properties":
                    merged[word] = self._together(merged.get(word, {}), own)
                elif word in ("additionalProperties", "unevaluatedProperties"):
                    if own not in (True, {}):
                        raise _refusal(f"{word} within allOf")
                elif merged.setdefault(word, own) != own:
                    raise _refusal(f"two of {word} within allOf")
        return self._node(merged, depth + 1)

    def _flat(self, parts: Sequence[Any], depth: int) -> list[Json]:
        """Return the parts of an allOf, with references resolved and inner ones flattened."""
        if depth > _DEPTH_MAX:
            raise LlamaError(text("schema.too_deep"))
        flat: list[Json] = []
        for part in parts:
            if part is True:
                continue
            if not isinstance(part, dict):
                raise _refusal("false within allOf")
            rest = {word: value for word, value in part.items() if word in _RESTRICTS}
            inner = rest.pop("allOf", [])
            if "$ref" in rest:
                inner = [*inner, self._resolved(rest.pop("$ref"))]
            flat += self._flat(inner, depth + 1) if inner else []
            if rest:
                flat.append(rest)
        return flat

    def _together(self, first: Json, second: Json) -> Json:
        """Return properties of which those of the same name hold together."""
        both = {n: {"allOf": [first[n], second[n]]} for n in first.keys() & second.keys()}
        return {**first, **second, **both}

    def _are_disjoint(self, parts: Sequence[Any]) -> bool:
        marks = [self._mark(part) for part in parts]
        return all(_exclude(one, other) for i, one in enumerate(marks) for other in marks[i + 1 :])

    def _mark(self, part: Any) -> tuple[list[str], list[Any] | None, dict[str, list[Any]]]:
        """Return a schema's types, its fixed values, and those of its required properties."""
        merged: Json = {}
        properties: Json = {}
        for piece in self._flat([part], 0):
            properties |= piece.get("properties", {})
            merged = {**piece, **merged}
        named = {name: _fixed(properties.get(name)) for name in merged.get("required", [])}
        fixed = {name: values for name, values in named.items() if values is not None}
        return _types(merged), _fixed(merged), fixed

    def _typed(self, name: str, given: Json, depth: int) -> Json:
        """Return a node of one type."""
        own = {word: value for word, value in given.items() if word in _OF_TYPE[name]}
        if name == "object":
            return self._object(own, depth)
        if name == "array":
            return self._array(own, depth)
        if name == "string":
            return _string(own)
        if name == "integer":
            return _integer(own)
        for word in own:  # a grammar of numbers knows no bounds
            raise _refusal(f"{word} of a {name}")
        return {"type": name}

    def _object(self, own: Json, depth: int) -> Json:
        known = {"properties", "required", "additionalProperties", "minProperties"}
        properties, required = own.get("properties", {}), own.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _refusal("properties" if isinstance(required, list) else "required")
        if own.get("minProperties", 0) > len(set(required)):
            raise _refusal("minProperties")
        for word in own.keys() - known:
            raise _refusal(word)
        others = own.get("additionalProperties", True)
        if isinstance(others, dict):
            others = self._node(others, depth + 1)
        kept = {}
        for name, schema in properties.items():
            if schema is False and name not in required:
                raise _refusal("a property that is false")
            kept[name] = self._node(schema, depth + 1)
        for name in required:
            if name not in kept:
                if others is False:
                    raise LlamaError(text("schema.impossible"))
                kept[name] = others if isinstance(others, dict) else {}
        node: Json = {"type": "object"}
        if kept or others is False:
            node |= {"properties": kept, "required": list(dict.fromkeys(required))}
        if "additionalProperties" in own:
            node["additionalProperties"] = others
        return node

    def _array(self, own: Json, depth: int) -> Json:
        items, first = own.get("items", True), own.get("prefixItems")
        if isinstance(items, list):  # the form of older drafts
            items, first = own.get("additionalItems", True), items
        low, high = own.get("minItems", 0), own.get("maxItems", math.inf)
        known = {"items", "prefixItems", "additionalItems", "minItems", "maxItems"}
        for word in own.keys() - known:
            if word != "uniqueItems" or own[word] is not False:
                raise _refusal(word)
        if low > high:
            raise LlamaError(text("schema.impossible"))
        if first:
            # llama.cpp makes exactly these items.
            if not low <= len(first) <= high:
                raise _refusal("minItems or maxItems beside prefixItems")
            return {"type": "array", "prefixItems": [self._node(s, depth + 1) for s in first]}
        if items is False or high == 0:
            return {"enum": [[]]}
        node: Json = {"type": "array", "items": self._node(items, depth + 1)}
        if low:
            node["minItems"] = low
        if high < math.inf:
            node["maxItems"] = high
        return node


def _string(own: Json) -> Json:
    lengths: Json = {word: own[word] for word in ("minLength", "maxLength") if word in own}
    pattern, kind = own.get("pattern"), own.get("format")
    if own.get("minLength", 0) > own.get("maxLength", math.inf):
        raise LlamaError(text("schema.impossible"))
    if kind in _FORMATS:
        if pattern is not None or lengths:
            raise _refusal(f"{'pattern' if pattern is not None else min(lengths)} beside format")
        return {"type": "string", "format": kind}
    if pattern is None:
        return {"type": "string", **lengths}
    if lengths:
        raise _refusal(f"{min(lengths)} beside pattern")
    return {"type": "string", "pattern": _pattern(pattern)}


def _pattern(pattern: Any) -> str:
    """Return a regular expression whose matches need no escapes in JSON, from end to end."""
    if not isinstance(pattern, str):
        raise _refusal("pattern")
    begin = 1 if pattern.startswith("^") else 0
    end = len(pattern) - (pattern.endswith("$") and not pattern.endswith("\\$"))
    made, i = "", begin
    while i < end:
        made_now, i = _pattern_piece(pattern, i)
        made += made_now
    # A match of the whole is stricter than a match somewhere within.
    return f"^({made})$"


def _pattern_piece(pattern: str, i: int) -> tuple[str, int]:
    """Return the next piece of a pattern in a form that llama.cpp knows, and where it ends."""
    letter, following = pattern[i], pattern[i + 1 : i + 2]
    if letter == ".":
        return _class(r"[^\n\r]"), i + 1
    if letter == "[":
        if (match := _CLASS.match(pattern, i)) is None:
            raise _refusal("a class of this kind in pattern")
        return _class(match[0]), match.end()
    if letter == "\\":
        if following and following in "dDwWsS":
            return _class(f"[{letter}{following}]"), i + 2
        if following and following in "^$.[](){}|*+?-/":
            return following if following in "-/" else letter + following, i + 2
    elif letter == "(" and following == "?" and pattern[i + 2 : i + 3] == ":":
        return "(", i + 3
    elif letter in "*+?}" and following and following in "?+":
        return letter, i + 2  # lazy or possessive: a full match stays one
    elif letter not in '^$"' and letter.isprintable() and (letter, following) != ("(", "?"):
        return letter, i + 1
    raise _refusal(f"{ascii(pattern[i : i + 3])} in pattern")


def _class(written: str) -> str:
    """Return a class of characters without those that JSON would escape in a string."""
    try:
        regex = re.compile(written, re.ASCII)
    except re.error:
        raise _refusal(f"{ascii(written)[:40]} in pattern") from None
    plain = [c for c in map(chr, range(0x20, 0x7F)) if c not in '"\\' and regex.fullmatch(c)]
    others = r"\u00A1-\uD7FF" if all(map(regex.fullmatch, map(chr, range(0xA1, 0xD800)))) else ""
    if not plain and not others:
        raise _refusal(f"{ascii(written)[:40]} in pattern")
    return "[" + "".join(rf"\x{ord(c):02X}" for c in plain) + others + "]"


def _integer(own: Json) -> Json:
    if "multipleOf" in own and own["multipleOf"] != 1:
        raise _refusal("multipleOf")
    if any(isinstance(value, bool) for value in own.values()):  # the form of an older draft
        raise _refusal("exclusiveMinimum or exclusiveMaximum that is no number")
    lows = [math.ceil(own["minimum"])] if "minimum" in own else []
    lows += [math.floor(own["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in own else []
    highs = [math.floor(own["maximum"])] if "maximum" in own else []
    highs += [math.ceil(own["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in own else []
    if not lows and not highs:
        return {"type": "integer"}
    # With one bound, llama.cpp's rules allow numbers beyond it: 1000 for a minimum of 1065.
    low, high = max(lows, default=-_INTEGER_MAX), min(highs, default=_INTEGER_MAX)
    if low > high:
        raise LlamaError(text("schema.impossible"))
    return {"type": "integer", "minimum": low, "maximum": high}


def _types(given: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names; none if it names none."""
    named = given.get("type", [])
    types = [named] if isinstance(named, str) else named
    for name in types:
        if name not in _OF_TYPE:
            raise _refusal(f"the type {ascii(name)[:40]}")
    return list(types)


def _has_type(value: Any, types: Sequence[str]) -> bool:
    names = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
    if (name := names.get(type(value))) is not None:
        return name in types
    return "number" in types or ("integer" in types and value == int(value))


def _fixed(schema: Any) -> list[Any] | None:
    """Return the only values of a schema; None if it names none."""
    if not isinstance(schema, dict):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _exclude(one: Any, other: Any) -> bool:
    """Return whether no value can have both marks."""
    types = [{"number" if t == "integer" else t for t in mark[0]} for mark in (one, other)]
    if all(types) and not types[0] & types[1]:
        return True
    if one[1] is not None and other[1] is not None:
        return not any(value in other[1] for value in one[1])
    names = one[2].keys() & other[2].keys()
    return any(not any(v in other[2][name] for v in one[2][name]) for name in names)


def _parts(word: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _refusal(f"{word} that is no list")
    return value


def _refusal(word: str) -> LlamaError:
    return LlamaError(text("schema.unsupported", what=word))
