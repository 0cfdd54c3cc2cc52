"""The text of a file in an unknown encoding."""

from __future__ import annotations

import codecs
import re
import unicodedata
from pathlib import PurePath

from backend.protocol.errors import RequestError
from backend.text import text

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the first half of it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT_BYTES = 1 << 16
_BROKEN_SHARE = 0.05  # of the signs beyond ASCII, at most
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_ACCENTED = re.compile(
    rb"(?<![\x80-\xff])(?:[\x80\x85\x91-\x97\xa0-\xff](?![\x80-\xff])"
    rb"|[\xc0-\xff]{2}(?=[A-Za-z])|(?<=[A-Za-z])[\xc0-\xff]{2}(?![\x80-\xff]))"
)
"""A sign of Western Europe that stands alone, or two letters in a word with letters of ASCII."""
_BEYOND_MIN = 8  # bytes beyond ASCII that show an encoding without Latin letters
_KOREAN = ("cp949", "euc_kr", "johab")
_USUAL_KOREAN = frozenset("이다는을가에의로하고은지한도니사를서기해어나요리인아들자과대그")
_CONTROL = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # not what logs and terminals contain
_CONTROL_SHARE = 0.002  # of a text's characters, at most
_PLAIN = frozenset(("", ".txt", ".text", ".log", ".csv", ".tsv", ".rst", ".srt", ".vtt"))
_MARKDOWN = frozenset((".md", ".markdown", ".mdown", ".mkd"))


def kind_of(name: str) -> str:
    """Return the kind of a text file by its name: "text", "markdown" or "code"."""
    suffix = PurePath(name).suffix.lower()
    return "text" if suffix in _PLAIN else "markdown" if suffix in _MARKDOWN else "code"


def decoded(data: bytes, name: str) -> str:
    """Return the text of a file, with line feeds as line ends.

    The encoding is that of the byte order mark, else UTF-16 if half of the bytes are zeros, else
    UTF-8 if most of it is valid, else that of a writing without Latin letters if it looks like one,
    else Windows' extension of Latin-1. Raises RequestError for binary data.
    """
    found = _unicode(data)
    if found is None:
        found = _not_latin(data)
    if found is None:
        try:
            found = data.decode("cp1252")
        except UnicodeDecodeError:
            found = data.decode("latin-1")
            if re.search(r"[\x80-\x9f]", found):
                raise RequestError(text("attach.binary", file=name)) from None
    n_control = len(_CONTROL.findall(found))
    if "\0" in found or n_control > max(_CONTROL_SHARE * len(found), 2):
        raise RequestError(text("attach.binary", file=name))
    return found.replace("\r\n", "\n").replace("\r", "\n")


def _unicode(data: bytes) -> str | None:
    """Decode UTF-8, UTF-16 or UTF-32; None if it is none of them."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace")
    head = data[:_LOOKED_AT_BYTES]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, others = head[first::2], head[1 - first :: 2]
        if zeros.count(0) > 0.4 * len(zeros) > 0 and others.count(0) == 0:
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                return None
    return _mostly(data, "utf-8")


def _mostly(data: bytes, encoding: str) -> str | None:
    """Decode data of which little is broken, such as the end of a log that was cut; else None."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        found = data.decode(encoding, "replace")
    n_beyond = len(found) - sum(map(str.isascii, found))
    return found if found.count("\ufffd") <= _BROKEN_SHARE * n_beyond else None


def _not_latin(data: bytes) -> str | None:
    """Decode an old encoding of China, Japan, Korea, Russia and the like; None if it is none."""
    head = data[:_LOOKED_AT_BYTES]
    head = head[: head.rfind(b"\n") + 1] or head  # it may end within a sign
    n_beyond = len(_BEYOND_ASCII.findall(head))
    if n_beyond < _BEYOND_MIN or 2 * sum(map(len, _ACCENTED.findall(head))) > n_beyond:
        return None
    from charset_normalizer import from_bytes  # takes some milliseconds, and few files need it

    best = from_bytes(head).best()
    if best is None:
        return None
    letters = [sign for sign in str(best) if not sign.isascii() and sign.isalpha()]
    n_latin = sum(unicodedata.name(sign, "").startswith("LATIN") for sign in letters)
    if 2 * n_latin >= len(letters):
        return None
    # A short Chinese text is taken for a Korean one, of syllables that Korean hardly has.
    n_korean = sum(map(_USUAL_KOREAN.__contains__, letters))
    is_chinese = best.encoding in _KOREAN and 10 * n_korean < len(letters)
    return _mostly(data, "gb18030" if is_chinese else best.encoding)
