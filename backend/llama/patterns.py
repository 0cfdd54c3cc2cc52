"""Translates regular expressions of JSON schemas into those of llguidance, which are Rust's.

A schema means ECMAScript's, many validators use Python's, and the three differ. A translation
matches only texts that both of the others match, or the expression is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_Ranges = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
_REPEATS_MAX = 10_000
_CHARS_MAX = 20_000
_DEPTH_MAX = 100
_QUANTIFIER = re.compile(r"\{(\d+)(,(\d*))?\}")
_ANY = "(?s:.*)"
_ESCAPES = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}


def _complement(ranges: Iterable[tuple[int, int]]) -> _Ranges:
    made, begin = [], 0
    for low, high in sorted(ranges):
        if low > begin:
            made.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*made, (begin, _LAST)) if begin <= _LAST else tuple(made)


_ASCII_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES = (
    *((9, 13), (28, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
    *((0x2000, 0x200F), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
    (0xFEFF, 0xFEFF),
)
# The common part of ECMAScript and Python: Python's digits and words are those of all scripts. The
# next digit after "9" is U+0660, and there is none from U+1C5A to U+A61F.
_CLASSES: dict[str, _Ranges] = {
    "d": ((48, 57),),
    "D": ((0, 47), (58, 0x65F), (0x2000, 0xA61F)),
    "w": _ASCII_WORD,
    "W": tuple((low, min(high, 127)) for low, high in _complement(_ASCII_WORD) if low < 128),
    "s": ((9, 13), (32, 32)),
    "S": _complement(_SPACES),
}
_DOT = _complement(((10, 10), (13, 13), (0x2028, 0x2029)))

_N = "[0-9]{1,6}"
_TIME_PART = rf"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_DATE_PART = rf"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"
_DATE = (
    r"[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,29}"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_GROUP = "[0-9a-fA-F]{1,4}"
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_IPV6 = "|".join(
    [f"(?:{_GROUP}:){{7}}{_GROUP}"]
    + [
        f"{f'{_GROUP}(?::{_GROUP}){{0,{n - 1}}}' if n else ''}::"
        f"{f'(?:{_GROUP}(?::{_GROUP}){{0,{5 - n}}})?' if n < 6 else ''}"
        for n in range(7)
    ]
)
_POINTER = "(?:/(?:[^/~]|~[01])*)*"
_URI = (
    rf"[A-Za-z][A-Za-z0-9+.-]{{0,30}}:(?://{_HOST}(?::[0-9]{{1,4}})?(?:/{_PCHAR}*)*"
    rf"|{_PCHAR}+(?:/{_PCHAR}*)*)(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
)
_PART = "[A-Za-z0-9._~-]+"
_PATH = rf"/?(?:{_PART}/)*{_PART}(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_NAME = "[A-Za-z0-9_]{1,30}"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOST}"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|{_N}W)",
    "email": _EMAIL,
    "hostname": _HOST,
    "idn-email": _EMAIL,
    "idn-hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": _IPV6,
    "iri": _URI,
    "iri-reference": f"{_URI}|{_PATH}",
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]{{0,5}})(?:#|{_POINTER})",
    "uri": _URI,
    "uri-reference": f"{_URI}|{_PATH}",
    "uri-template": rf"(?:{_PCHAR}|[/?#]|\{{{_NAME}(?:,{_NAME})*\}})*",
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
}
FORMATS = {name: f"^(?:{regex})$" for name, regex in _FORMATS.items()}
"""Regular expressions for llguidance. Each matches only what the format permits: no 29 February."""


class PatternError(ValueError):
    """An expression cannot be translated; the text is the piece of it."""


def translated(pattern: str) -> tuple[str, bool]:
    """Return an expression that matches a whole string where the pattern matches within it.

    Also returns whether it matches all such strings; otherwise some outside of ASCII are missing.
    Raises PatternError.
    """
    if len(pattern) > _CHARS_MAX:
        raise PatternError("a length of more than 20,000")
    reader = _Reader(pattern)
    regex = reader.alternatives(0)
    return f"^(?:{regex})$", reader.is_exact


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.is_exact = True
        self._pattern = pattern
        self._at = 0

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _fault(self, n: int = 3) -> PatternError:
        return PatternError(ascii(self._pattern[self._at : self._at + n]))

    def alternatives(self, depth: int) -> str:
        """Read up to the end or a closing bracket."""
        if depth > _DEPTH_MAX:
            raise PatternError("more than 100 nested brackets")
        made = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            made.append(self._sequence(depth))
        if depth == 0 and self._at < len(self._pattern):
            raise self._fault()
        return "|".join(made)

    def _sequence(self, depth: int) -> str:
        is_begun = is_ended = False
        if depth == 0 and self._next() == "^":
            is_begun = True
            self._at += 1
        made = ""
        while (letter := self._next()) and letter not in "|)":
            if letter == "$" and depth == 0 and self._pattern[self._at + 1 :][:1] in ("", "|"):
                is_ended = True
                self._at += 1
                break
            made += self._atom(letter, depth) + self._quantifier()
        if depth:
            return made
        return ("" if is_begun else _ANY) + made + ("" if is_ended else _ANY)

    def _atom(self, letter: str, depth: int) -> str:
        if letter == "(":
            return self._group(depth)
        if letter in "^$*+?":
            raise self._fault()
        if letter == "{" and (_QUANTIFIER.match(self._pattern, self._at) or self._is_open()):
            raise self._fault()
        if letter == "[":
            return self._class()
        if letter == "\\":
            return _as_class(self._escape())
        self._at += 1
        if letter == ".":
            self.is_exact = False
            return _as_class(_DOT)
        return _as_class(((ord(letter), ord(letter)),))

    def _is_open(self) -> bool:
        """Return whether Python takes "{,5}" for a number of repeats and ECMAScript does not."""
        return re.compile(r"\{,\d*\}").match(self._pattern, self._at) is not None

    def _group(self, depth: int) -> str:
        head = re.compile(r"\((\?:|\?<[A-Za-z_]\w*>|(?!\?))", re.ASCII).match(
            self._pattern, self._at
        )
        if head is None:
            raise self._fault()
        self._at = head.end()
        inner = self.alternatives(depth + 1)
        if self._next() != ")":
            raise PatternError("a bracket that is not closed")
        self._at += 1
        return f"(?:{inner})"

    def _quantifier(self) -> str:
        letter, made = self._next(), ""
        if letter and letter in "*+?":
            made = letter
            self._at += 1
        elif letter == "{":
            if self._is_open():
                raise self._fault(5)
            if (counts := _QUANTIFIER.match(self._pattern, self._at)) is None:
                return ""
            low, high = int(counts[1]), int(counts[3] or counts[1])
            if not low <= high <= _REPEATS_MAX:
                raise self._fault(12)
            made = counts[0]
            self._at = counts.end()
        if made and self._next() == "?":  # a lazy match of the whole is a match
            self._at += 1
        if made and self._next() and self._next() in "*+?":
            raise self._fault()
        return made

    def _escape(self) -> _Ranges:
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter in _CLASSES:
            self.is_exact = False
            self._at += 2
            return _CLASSES[letter]
        code = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))").match(
            self._pattern, self._at
        )
        if code is not None:
            point = int(code[1] or code[2], 16)
            self._at = code.end()
        elif letter in _ESCAPES and not self._pattern[self._at + 2 : self._at + 3].isdigit():
            point = _ESCAPES[letter]
            self._at += 2
        elif letter and letter.isascii() and not letter.isalnum() and letter.isprintable():
            point = ord(letter)
            self._at += 2
        else:
            raise self._fault()
        if 0xD800 <= point < 0xE000:
            raise PatternError("half of a surrogate pair")
        return ((point, point),)

    def _class(self) -> str:
        self._at += 1
        is_negated = self._next() == "^"
        self._at += is_negated
        if self._next() == "]":  # empty in ECMAScript, a letter in Python
            raise self._fault()
        found: list[tuple[int, int]] = []
        while (letter := self._next()) != "]":
            if not letter:
                raise PatternError("a class that is not closed")
            name = self._pattern[self._at + 1 : self._at + 2] if letter == "\\" else ""
            item = self._class_item(letter)
            if self._next() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._class_item(self._next())
                if name in _CLASSES or len(item) != 1 or len(end) != 1 or end[0][0] != end[0][1]:
                    raise PatternError("a class within a range")
                item = ((item[0][0], end[0][0]),)
                if item[0][0] > item[0][1]:
                    raise PatternError("a range that ends before it begins")
            elif is_negated and name in _CLASSES:
                # The opposite, so that the negation is what both languages exclude.
                item = _complement(_CLASSES[name.swapcase()])
            found += item
        self._at += 1
        return _as_class(_complement(found) if is_negated else found)

    def _class_item(self, letter: str) -> _Ranges:
        if letter == "\\":
            return self._escape()
        self._at += 1
        return ((ord(letter), ord(letter)),)


def _as_class(ranges: Iterable[tuple[int, int]]) -> str:
    """Return a class of characters. Raises PatternError where it is empty."""
    pairs = [
        (0xE000 if 0xD800 <= low < 0xE000 else low, 0xD7FF if 0xD800 <= high < 0xE000 else high)
        for low, high in sorted(ranges)
    ]
    pairs = [(low, high) for low, high in pairs if low <= high]
    if not pairs:
        raise PatternError("a class without characters")
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in pairs) + "]"
