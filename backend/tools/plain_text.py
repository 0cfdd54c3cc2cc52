"""Turns text from servers and models into plain text, in which nothing is hidden.

A tool's output is data from anywhere. Terminal escapes, controls that reorder text, and invisible
characters could show a person other text than the model reads.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from backend.protocol.chat import Json
from backend.system.kept_file import finite, is_deeper

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|\Z)"  # OSC (links, titles) and others
    r"|\x1b[ -/]*[0-~]"  # other sequences
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one character
)
# Invisible letters and signs that Unicode does not class as controls or formats.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\ufe00-\ufe0d"
_TAGS = "\U000e0000-\U000e0fff"  # copies of ASCII, and variation selectors, none visible
_CANDIDATES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    f"\ufeff\ufff9-\ufffb\ud800-\udfff\ufdd0-\ufdef{_FILLERS}{_TAGS}]"
)
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji need them
_NESTING_MAX = 32  # of a schema
_ARGUMENTS_NESTING_MAX = 128


def clean(text: str) -> str:
    """Return text without terminal escapes, controls and invisible characters.

    Keeps line breaks and tabs, and joiners between characters that are not ASCII. Lone surrogates
    become U+FFFD. Ordinary text comes back unchanged.
    """
    if _CANDIDATES.search(text) is None:
        return text
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CANDIDATES.sub(_cleaned, text)


def revealed(text: str) -> str:
    """Return text with every character that `clean` would remove written as its number."""
    return _CANDIDATES.sub(_revealed, text)


def shorten(text: str, n_max: int) -> str:
    """Return at most about n_max characters: the beginning, a line about the gap, and the end."""
    if len(text) <= n_max:
        return text
    n_end = n_max // 4
    n_begin = n_max - n_end
    gap = f"\n[... {len(text) - n_max:,} of {len(text):,} characters are left out here ...]\n"
    return text[:n_begin] + gap + text[len(text) - n_end :]


def clean_json(value: Any, n_left: int = _NESTING_MAX) -> Any:
    """Return JSON whose texts went through `clean`. Raises ValueError where it nests too deeply."""
    if n_left == 0:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item, n_left - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item, n_left - 1) for item in value]
    return value


def arguments_shown(arguments: str) -> str:
    """Return a call's arguments for people: JSON on several lines, with nothing hidden.

    Text that is not JSON comes back as it is, revealed.
    """
    try:
        value = json.loads(arguments)
        written = json.dumps(value, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        written = arguments
    return revealed(written)


def read_arguments(arguments: str) -> Json:
    """Return a call's arguments, an object. Raises ValueError with half a sentence.

    JSON has no NaN and no infinity, although models write them.
    """
    try:
        value = (
            json.loads(arguments, parse_float=finite, parse_constant=finite)
            if arguments.strip()
            else {}
        )
    except (ValueError, RecursionError):
        raise ValueError("the arguments are not valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the arguments are not a JSON object")
    if is_deeper(value, _ARGUMENTS_NESTING_MAX):
        raise ValueError("the arguments are nested too deeply")
    return value


def _cleaned(match: re.Match[str]) -> str:
    character = match.group()
    if character in _JOINERS:
        begin, end = match.span()
        around = match.string[max(begin - 1, 0) : begin], match.string[end : end + 1]
        return character if all(c > "\x7f" and c not in _JOINERS for c in around) else ""
    if character == "\r" or unicodedata.category(character) in ("Zl", "Zp"):
        return "\n"
    return "\ufffd" if "\ud800" <= character <= "\udfff" else ""


def _revealed(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
