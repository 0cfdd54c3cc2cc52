"""Prepares JSON schemas for llguidance, which holds an answer to them token by token.

llguidance ignores keywords that its draft does not know, and takes numbers as 64-bit floats and
patterns as Rust's. `prepared` returns a schema that is at least as strict as the given one and
whose every keyword counts, or refuses the schema by the keyword. It also decides how an answer is
written: an object that names properties and no `additionalProperties` has no others, because models
end such objects.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from backend.llama.api import LlamaError
from backend.llama.patterns import FORMATS, PatternError, translated
from backend.protocol.chat import Json
from backend.text import text

# Keywords that restrict values of each type, as llguidance knows them.
_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
    ),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_TYPES = (*_OF_TYPE, "integer", "boolean", "null")
_APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf")
_KNOWN = frozenset(
    ("type", "const", "enum", *_APPLICATORS, *(w for words in _OF_TYPE.values() for w in words))
)
_NOT_HELD: Mapping[str, Sequence[Any]] = {
    "$dynamicRef": (),
    "$recursiveRef": (),
    "contains": (),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "disallow": (),
    "divisibleBy": (),
    "extends": (),
    "if": (),
    "not": (False,),
    "propertyNames": (True, {}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}
"""Keywords of any draft that restrict values and cannot be held, with values that do not."""
_OLD_DRAFT = re.compile(r"/draft-0[3-7]/")
_DEPTH_MAX = 100
_NODES_MAX = 20_000
_INTEGER_MAX = 2**53 - 1  # floats have every integer up to here
_TINY = 1e-12
_SHORT = 1e-9
"""Numbers have up to 16 digits before the point and nine behind it, so that models end them."""
_MILLION = 1e6
_COUNT_MAX = 10_000
_LENGTH_MAX = 100_000
_STEPS_MAX = 10_000
_N_COMPARED = 300
_VALUES_COMPARED = 2000
_NAMED_ESCAPES = "\b\t\n\f\r"
_ANY_REFERENCE: Json = {"$ref": "#/$defs/any"}
_ANY: Json = {
    "anyOf": [
        {"type": ["null", "boolean", "string"]},
        {"type": "number", "minimum": -_INTEGER_MAX, "maximum": _INTEGER_MAX, "multipleOf": _SHORT},
        {"type": "array", "items": _ANY_REFERENCE},
        {"type": "object", "additionalProperties": _ANY_REFERENCE},
    ]
}


def prepared(
    schema: Json, *, opened: bool = False, lenient: bool = False
) -> tuple[Json, list[str]]:
    """Return a schema for llguidance, all of whose values are valid for `schema`.

    Also returns the parts that are not held: unknown formats and, with `lenient`, every keyword
    that would be refused. opened: objects that name no `additionalProperties` stay open. Raises
    LlamaError for a schema that cannot be guaranteed.
    """
    try:
        preparation = _Preparation(schema, lenient)
        return preparation.run(opened), list(preparation.not_held)
    except RecursionError:
        raise LlamaError(text("schema.too_deep")) from None
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise LlamaError(text("schema.malformed")) from None


def text_of(schema: Json) -> str:
    """Return a terminal of Lark for a text that is written without quotes, from a prepared schema.

    It has one line and no "<", which begins the mark behind it.
    """
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    patterns = [part["pattern"] for part in (schema, *schema.get("allOf", ())) if "pattern" in part]
    parts = [f"({' | '.join(json.dumps(v, ensure_ascii=False) for v in values)})"] if values else []
    parts += ["/" + pattern[1:-1].replace("/", r"\x2F") + "/" for pattern in patterns]
    if {"minLength", "maxLength"} & schema.keys():
        parts.append(f"/.{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/")
    return " & ".join([*parts, r"/([^\s<]([^\n<]*[^\s<])?)?/"])


class _Preparation:
    def __init__(self, root: Json, lenient: bool) -> None:
        self._root = root
        self._lenient = lenient
        self._is_old = bool(_OLD_DRAFT.search(str(root.get("$schema"))))
        self._names: dict[tuple[str, bool, bool, bool], str] = {}  # of the references, in "$defs"
        self._defs: Json = {}
        self._steps: set[float] = set()  # of multipleOf
        self._n_node = self._n_joint = 0
        self.not_held: dict[str, None] = {}
        written = json.dumps(root, ensure_ascii=False, allow_nan=False)
        written.encode()  # raises for half of a surrogate pair
        self._has_references = '"$ref"' in written
        self._has_steps = '"multipleOf"' in written

    def run(self, opened: bool) -> Json:
        node = self._node(self._root, 0, opened)
        node = node if isinstance(node, dict) else {"allOf": [node]}
        return {**node, "$defs": self._defs} if self._defs else node

    def _refuse(self, word: str) -> None:
        """Refuse the schema, or note the part that is not held."""
        if not self._lenient:
            raise LlamaError(text("schema.unsupported", what=word))
        self.not_held[word] = None

    def _count(self, depth: int) -> None:
        self._n_node += 1
        if depth > _DEPTH_MAX or self._n_node > _NODES_MAX:
            raise LlamaError(text("schema.too_deep"))

    def _node(self, schema: Any, depth: int, opened: bool, joint: bool = False) -> Any:
        """Return a prepared schema.

        opened: no object in it is closed. joint: others restrict the same value, so it is closed
        where they meet.
        """
        self._count(depth)
        closes = not opened and not joint
        if schema is False or (schema is True and not closes):
            return schema
        given: Json = {} if schema is True else self._given(schema)
        kinds = [word for word in given if word in _APPLICATORS]
        self._n_joint += bool(kinds)
        own = self._own(given, depth, opened, bool(kinds))
        self._n_joint -= bool(kinds)
        if not kinds:
            return self._closed(own) if closes else own
        meets = joint or len(kinds) > 1 or "allOf" in kinds or bool(own.keys() - {"type"})
        parts = [own] if own else []
        self._n_joint += meets
        parts += [self._applied(word, given[word], depth, opened, meets) for word in kinds]
        self._n_joint -= meets
        if closes and meets and (names := self._names_of(given, depth)):
            parts.append({"properties": names, "additionalProperties": False})
        return parts[0] if len(parts) == 1 else {"allOf": parts}

    def _given(self, schema: Any) -> Json:
        """Return the keywords that restrict values. Refuse those that cannot be held."""
        if not isinstance(schema, dict):
            raise TypeError
        if self._is_old and "$ref" in schema:
            return {"$ref": schema["$ref"]}
        if schema is not self._root and self._has_references and isinstance(schema.get("$id"), str):
            self._refuse("$id within the schema")
        for word in schema.keys() & _NOT_HELD.keys():
            if word == "if" and not schema.keys() & {"then", "else"}:
                continue
            if not any(schema[word] is v or schema[word] == v == {} for v in _NOT_HELD[word]):
                self._refuse(word)
        for word in ("contentEncoding", "contentMediaType"):
            if word in schema:
                self.not_held[word] = None
        return {word: value for word, value in schema.items() if word in _KNOWN}

    def _applied(self, word: str, value: Any, depth: int, opened: bool, joint: bool) -> Json:
        if word == "$ref":
            return self._reference(value, depth, opened, joint)
        if not isinstance(value, list) or not value:
            raise TypeError
        if word == "oneOf":
            if self._are_disjoint(value):
                word = "anyOf"
            else:  # llguidance finds out, by what the alternatives permit without being closed
                opened = True
        return {word: [self._node(part, depth + 1, opened, joint) for part in value]}

    def _reference(self, ref: Any, depth: int, opened: bool, joint: bool) -> Json:
        """Return a reference to the prepared form of a reference's target."""
        key = (ref, opened, joint, self._n_joint > 0)
        if key not in self._names:
            target = self._resolved(ref)
            self._names[key] = name = f"r{len(self._names)}"  # now, because it may refer to itself
            self._defs[name] = self._node(target, depth + 1, opened, joint)
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _resolved(self, ref: Any) -> Any:
        """Return the schema that a reference names."""
        target: Any = self._root
        own = self._root.get("$id")
        written = ref.removeprefix(own.rstrip("#")) if isinstance(own, str) else ref
        if not re.fullmatch(r"#(/.*)?", written, re.DOTALL):
            self._refuse(f"the reference {ascii(ref)[:60]}")
            return True
        for part in written.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            is_place = re.fullmatch("[0-9]{1,9}", name)
            if isinstance(target, list) and is_place and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, dict) and name in target:
                target = target[name]
            else:
                self._refuse(f"the reference {ascii(ref)[:60]}")
                return True
        return target

    def _closed(self, own: Json) -> Json:
        """Return a schema whose objects have the named properties only, if it names any.

        Values of which it says nothing become those of _ANY.
        """
        if not own:
            return self._any()
        types = own.get("type")
        if "properties" in own and not {"additionalProperties", "patternProperties"} & own.keys():
            names = {name: self._any() for name in own.get("required", ())}
            named = {name: names.get(name) for name in own["properties"]} | names
            own = {**own, "properties": {**named, **own["properties"]}}
            own["additionalProperties"] = False
        for name, word in (("object", "additionalProperties"), ("array", "items")):
            if types == name and word not in own and "patternProperties" not in own:
                own = {**own, word: self._any()}
        return own

    def _any(self) -> Json:
        """Return a schema for any value.

        Without its bounds where several schemas meet: llguidance cannot tell what two recursive
        ones share, and multiplies steps in 32 bits.
        """
        if self._n_joint or self._has_steps:
            return {}
        self._defs["any"] = _ANY
        return _ANY_REFERENCE

    def _own(self, given: Json, depth: int, opened: bool, is_joined: bool) -> Json:
        """Return the keywords of one schema that apply to its types."""
        types = _types(given)
        is_open = opened or is_joined or bool(given.keys() & {"const", "enum"})
        if not types and not is_open:
            # A schema that names no type means that of its keywords.
            types = [name for name, words in _OF_TYPE.items() if given.keys() & {*words}][:1]
        made: Json = {"type": types[0] if len(types) == 1 else types} if types else {}
        for word in ("const", "enum"):
            if word in given:
                made[word] = self._values(given[word], word)
        held = types or _TYPES
        if "object" in held:
            made |= self._object(given, depth, opened)
        if "array" in held:
            made |= self._array(given, depth, opened)
        if "string" in held:
            made |= self._string(given)
        if "number" in held or "integer" in held:
            made |= self._number(given, types)
        return made

    def _values(self, value: Any, word: str) -> Any:
        values = [value] if word == "const" else value
        if not isinstance(values, list):
            raise TypeError
        if not values:
            raise LlamaError(text("schema.impossible"))
        fault = next((fault for one in values for fault in _faults(one, 0)), "")
        if fault:
            self._refuse(fault)
            values = [one for one in values if not next(_faults(one, 0), "")]
        return values[0] if word == "const" and values else values

    def _object(self, given: Json, depth: int, opened: bool) -> Json:
        made: Json = {}
        properties, patterns = given.get("properties", {}), given.get("patternProperties", {})
        required = list(dict.fromkeys(given.get("required", [])))
        if isinstance(given.get("required"), bool):  # a word of draft 3, about this value
            required = []
        if "properties" in given:
            made["properties"] = {
                name: self._node(one, depth + 1, opened) for name, one in properties.items()
            }
        if required:
            made["required"] = required
        if "additionalProperties" in given:
            made["additionalProperties"] = self._node(
                given["additionalProperties"], depth + 1, opened
            )
        if patterns:
            named = (*properties, *required)
            is_plain = all(name.isascii() and name.isprintable() for name in named)
            is_safe = is_plain and given.get("additionalProperties", False) is False
            for pattern, one in patterns.items():
                if regex := self._pattern(pattern, is_safe):
                    made.setdefault("patternProperties", {})[regex] = self._node(
                        one, depth + 1, opened
                    )
        if least := _count_of(given, "minProperties"):
            # Others may have one name twice.
            if least > len(required) + 1:
                self._refuse("minProperties")
            made["minProperties"] = min(least, len(required) + 1)
        if "maxProperties" in given:
            made["maxProperties"] = min(_count_of(given, "maxProperties"), _COUNT_MAX)
        return made

    def _array(self, given: Json, depth: int, opened: bool) -> Json:
        items, first = given.get("items", True), given.get("prefixItems", [])
        if isinstance(items, list):  # the form of older drafts
            items, first = given.get("additionalItems", True), items
        made: Json = {}
        if first:
            made["prefixItems"] = [self._node(one, depth + 1, opened) for one in first]
        if items not in (True, {}):
            made["items"] = self._node(items, depth + 1, opened)
        return made | self._bounds(given, "Items", _COUNT_MAX)

    def _bounds(self, given: Json, of: str, most: int) -> Json:
        """Return the least and the largest count of items or characters."""
        made: Json = {}
        if least := _count_of(given, f"min{of}"):
            if least > most:
                self._refuse(f"min{of} of more than {most:,}")
            made[f"min{of}"] = min(least, most)
        if f"max{of}" in given:
            made[f"max{of}"] = min(_count_of(given, f"max{of}"), most)
        return made

    def _string(self, given: Json) -> Json:
        made: Json = {}
        if "pattern" in given and (regex := self._pattern(given["pattern"], True)):
            made["pattern"] = regex
        if (name := given.get("format")) is not None:
            if name in FORMATS:
                made["allOf"] = [{"pattern": FORMATS[name]}]
            else:
                self.not_held[f"the format {ascii(name)[:40]}"] = None
        return made | self._bounds(given, "Length", _LENGTH_MAX)

    def _pattern(self, pattern: str, may_be_stricter: bool) -> str:
        """Return a pattern for llguidance, or "" for one that is not held."""
        try:
            regex, is_exact = translated(pattern)
        except PatternError as error:
            self._refuse(f"{error} in pattern")
            return ""
        if not is_exact and not may_be_stricter:
            # A name that it misses would count as an additional one.
            self._refuse(f"patternProperties with {ascii(pattern)[:40]}")
        return regex

    def _number(self, given: Json, types: Sequence[str]) -> Json:
        is_integer = "integer" in types and "number" not in types
        is_short = not is_integer and not self._has_steps
        is_bounded = is_integer or (is_short and "number" in types)
        made: Json = {"multipleOf": _SHORT} if is_bounded and not is_integer else {}
        for word, sign in (("minimum", 1), ("maximum", -1)):
            excluding = f"exclusive{word.capitalize()}"
            value, beyond = given.get(word), given.get(excluding)
            if isinstance(beyond, bool):  # the form of draft 4
                value, beyond = (None, value) if beyond else (value, None)
            is_alone = len(given.keys() & {*_OF_TYPE["number"]}) == 1 and not self._n_joint
            if beyond is not None and made and is_alone and _is_plain(beyond):
                # Beside another bound, llguidance permits some numbers that are excluded.
                return {excluding: beyond, "multipleOf": _SHORT}
            if (least := self._least(value, beyond, sign, is_integer)) > -math.inf:
                made[word] = least * sign
            elif is_bounded:
                made[word] = -_INTEGER_MAX * sign
        if (step := given.get("multipleOf")) is not None:
            # Few fractions are floats: by these, 0.07 is no multiple of 0.01. llguidance multiplies
            # the steps of schemas that hold together, in 32 bits.
            self._steps.add(abs(step))
            if not 0 < abs(step) == int(abs(step)) or math.prod(self._steps) > _STEPS_MAX:
                self._refuse(f"multipleOf {step}")
            else:
                made["multipleOf"] = int(abs(step))
        return made

    def _least(self, value: Any, beyond: Any, sign: int, is_integer: bool) -> float:
        """Return the least permitted value of sign * number, or -math.inf."""
        found = [-math.inf]
        for limit, is_excluded in ((value, False), (beyond, True)):
            if limit is None:
                continue
            least = limit * sign
            if is_integer:
                least = math.floor(least) + 1 if is_excluded else math.ceil(least)
            elif is_excluded and _is_plain(least):
                least = round(least + _SHORT, 9)
            elif is_excluded:  # many digits round to the limit itself
                least += max(_SHORT, abs(least) * _TINY)
            if 0 < abs(least) < _TINY:
                least = _TINY if least > 0 else 0
            if least > _INTEGER_MAX:
                self._refuse("numbers of more than 15 digits")
            found.append(max(least, -_INTEGER_MAX))
        return max(found)

    def _names_of(self, given: Json, depth: int) -> Json:
        """Return the properties that the parts of a schema name; none if a part allows others."""
        names: Json = {}
        seen: set[str] = set()

        def visit(part: Any, depth: int) -> bool:
            self._count(depth)
            if not isinstance(part, dict):
                return True
            if part.keys() & {"additionalProperties", "patternProperties"}:
                return False
            names.update(dict.fromkeys(part.get("properties", ()), True))
            for name in part.get("required", ()):
                names.setdefault(name, self._any())
            inner = [one for word in _APPLICATORS[1:] for one in part.get(word, ())]
            if (ref := part.get("$ref")) is not None and ref not in seen:
                seen.add(ref)
                inner.append(self._resolved(ref))
            return all([visit(one, depth + 1) for one in inner])

        return names if visit(given, depth) else {}

    def _are_disjoint(self, parts: Sequence[Any]) -> bool:
        """Return whether no value fits two of the schemas."""
        if len(parts) > _N_COMPARED:
            return False
        try:
            marks = [self._mark(part) for part in parts]
        except _Unclear:
            return False
        if sum(len(m[1] or ()) + sum(map(len, m[2].values())) for m in marks) > _VALUES_COMPARED:
            return False
        return all(_exclude(one, other) for i, one in enumerate(marks) for other in marks[i + 1 :])

    def _mark(self, part: Any) -> tuple[list[str], list[Any] | None, dict[str, list[Any]]]:
        """Return a schema's types, its fixed values, and those of its required properties."""
        merged: Json = {}
        properties: Json = {}
        for piece in self._flat(part, 0):
            properties |= piece.get("properties", {})
            merged = {**piece, **merged}
        named = {name: _fixed(properties.get(name)) for name in merged.get("required", [])}
        fixed = {name: values for name, values in named.items() if values is not None}
        return _types(merged), _fixed(merged), fixed

    def _flat(self, part: Any, depth: int) -> Iterator[Json]:
        """Yield the schemas that hold together in one: itself, its allOf and its reference."""
        self._count(depth)
        if not isinstance(part, dict):
            raise _Unclear
        rest = {word: value for word, value in part.items() if word in _KNOWN}
        inner = rest.pop("allOf", [])
        if "$ref" in rest:
            inner, rest = [*inner, self._resolved(rest["$ref"])], {} if self._is_old else rest
        yield rest
        for one in inner:
            yield from self._flat(one, depth + 1)


class _Unclear(Exception):
    """Nothing is known of what a schema excludes."""


def _is_plain(limit: float) -> bool:
    """Return whether numbers with nine digits after the point differ from a limit as floats."""
    return limit == 0 or _TINY <= abs(limit) <= _MILLION


def _types(given: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names; none if it names none."""
    named = given.get("type", [])
    types = [named] if isinstance(named, str) else list(named)
    for name in types:
        if name not in _TYPES:
            raise LlamaError(text("schema.unsupported", what=f"the type {ascii(name)[:40]}"))
    return types


def _count_of(given: Json, word: str) -> int:
    value = given.get(word, 0)
    if isinstance(value, bool) or value != int(value) or value < 0:
        raise ValueError
    return int(value)


def _faults(value: Any, depth: int) -> Iterator[str]:
    """Yield why a fixed value cannot be written exactly."""
    if depth > _DEPTH_MAX:
        raise LlamaError(text("schema.too_deep"))
    if isinstance(value, str):
        if any((c < " " and c not in _NAMED_ESCAPES) or c == "\x7f" for c in value):
            yield "fixed values with control characters"
    elif isinstance(value, float | int) and not isinstance(value, bool):
        if abs(value) > _INTEGER_MAX or 0 < abs(value) < _TINY:
            yield "numbers of more than 15 digits"
    elif isinstance(value, list | dict):
        for one in (*value, *(value.values() if isinstance(value, dict) else ())):
            yield from _faults(one, depth + 1)


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
