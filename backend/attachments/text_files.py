"""The text of a file in an unknown encoding."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
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
_LETTER = rb"[A-Za-z\x8a\x8c-\x8f\x9a\x9c-\x9f\xa1-\xff]"
_IN_WORDS = re.compile(
    rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff]"
    rb"|(?<=%(letter)s)[\x8d\x8f\x9d\xa1-\xac\xae-\xb6\xb8-\xbf](?=%(letter)s)"
    rb"|(?<![A-Za-z0-9])[\xa3\xaa\xaf\xb3\xb6\xb9\xba\xbf](?=%(letter)s{2})" % {b"letter": _LETTER}
)
"""Letters of cp1252, and other signs of it that stand where letters do."""
_LATIN = (
    # German, French, Spanish, Portuguese, Nordic, Icelandic, Italian, Catalan, Dutch, Finnish
    ("cp1252", "äöüß éèêëàâçîïôûùœæÿ ñáéíóúü¿ªº ãõáâàéêíóôúç åäöéæø ðþáéíóúýæö àèéìíîòóùú "
               "çàèéíïòóúü ëïéèöüáíóú äöåšž"),
    # Polish, Czech, Slovak, Hungarian, Croatian, Romanian
    ("cp1250", _CENTRAL := "ąćęłńóśźż áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž áéíóöőúüű čćđšž ăâîşţ"),
    ("iso8859_2", _CENTRAL),
    ("cp1254", "çğıiöşüâîû"),
    # Lithuanian, Latvian, Estonian
    ("cp1257", "ąčęėįšųūž āčēģīķļņšūž äõöüšž"),
)  # fmt: skip
"""Encodings of Latin letters, the usual one first, with the letters of their languages."""
_LATIN_MIN = 6  # letters that show another one than the usual
_OTHERS_MIN = 3  # the same, where some would be no letters in the usual one
_LATIN_SHARE = 0.95  # of them, that are letters of one language
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
    else the one in which the accented letters are those of one language, else Windows' extension of
    Latin-1. Raises RequestError for binary data.
    """
    found = _unicode(data)
    if found is None:
        found = _not_latin(data)
    if found is None:
        try:
            found = data.decode(_latin(data))
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


def _latin(data: bytes) -> str:
    """Return the first encoding in which nearly all accented letters are those of one language."""
    counts = Counter(_IN_WORDS.findall(data[:_LOOKED_AT_BYTES]))
    enough = _LATIN_SHARE * counts.total()
    usual = _LATIN[0][0]
    kinds = {unicodedata.category(sign.decode(usual, "replace")) for sign in counts}
    has_others = not kinds <= {"Lu", "Ll"}
    is_sure = counts.total() >= (_OTHERS_MIN if has_others else _LATIN_MIN) and len(counts) > 1
    for encoding, languages in _LATIN:
        letters = {sign: sign.decode(encoding, "replace").lower()[0] for sign in counts}
        for language in languages.split():
            if sum(n for sign, n in counts.items() if letters[sign] in language) >= enough:
                return encoding if is_sure else usual
    return usual


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
