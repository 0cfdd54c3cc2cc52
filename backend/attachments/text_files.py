"""The text of a file in an unknown encoding."""

from __future__ import annotations

import codecs
import re
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
    UTF-8 if it is valid, else Windows' extension of Latin-1. Raises RequestError for binary data.
    """
    found = _unicode(data)
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
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
