r"""MathML as words for a screen reader, without a language.

The words are signs and letters as they are, and names that begin with a backslash: the window says
those in its language. A name may carry numbers: "\matrix 2 3" is one of two rows and three columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

N_WORD_MAX = 400

_POWERS = {"2": "\\squared", "3": "\\cubed"}
_PRIMES = {"′": "\\prime", "′′": "\\prime2", "′′′": "\\prime3"}
_ACCENTS = {
    "ˆ": "\\hat", "\u0302": "\\hat", "¯": "\\bar", "―": "\\bar", "~": "\\tilde",
    "\u0303": "\\tilde",
    "˙": "\\dot", "¨": "\\dot2", "\u20db": "\\dot3", "→": "\\vector", "ˇ": "\\check",
    "˘": "\\breve",
    "´": "\\acute", "`": "\\grave", "˚": "\\ring",
}  # fmt: skip
_LARGE = {
    "∑": "\\sum", "∏": "\\product", "∫": "\\integral", "∬": "\\integral2", "∭": "\\integral3",
    "∮": "\\contour", "⋃": "\\union", "⋂": "\\intersection",
}  # fmt: skip
_SILENT = {"mspace", "mphantom"}


def spoken(tree: Element) -> list[str]:
    """Return the words of a formula, at most N_WORD_MAX."""
    words: list[str] = []
    for word in _words(tree):
        if len(words) == N_WORD_MAX:
            return [*words, "…"]
        words.append(word)
    return words


def _words(part: Element) -> Iterator[str]:
    tag, inner = part.tag, list(part)
    if tag in _SILENT:
        return
    if not inner:
        text = (part.text or "").strip()
        if text:
            yield _LARGE.get(text, text)
    elif tag == "mfrac":
        yield from _fraction(part, inner)
    elif tag in ("msub", "msup", "msubsup", "munder", "mover", "munderover"):
        yield from _scripted(tag, inner)
    elif tag == "msqrt":
        yield from _enclosed("\\root", inner)
    elif tag == "mroot":
        yield "\\root_of"
        yield from _words(inner[1])
        yield from _enclosed("\\taken", inner[:1])
    elif tag == "menclose":
        kind = "\\boxed" if part.get("notation") == "box" else "\\crossed"
        yield kind
        for one in inner:
            yield from _words(one)
        yield "\\end"
    elif tag == "mtable":
        yield from _table(inner)
    elif (pair := _binomial(inner)) is not None:
        above, below = pair
        yield from _words(above)
        yield "\\choose"
        yield from _words(below)
    else:
        for one in inner:
            yield from _words(one)


def _is_short(part: Element) -> bool:
    """Return whether a part is one word, so that its end need not be said."""
    return sum(1 for _ in _words(part)) <= 1


def _enclosed(name: str, inner: list[Element]) -> Iterator[str]:
    yield name
    for one in inner:
        yield from _words(one)
    if len(inner) > 1 or not all(map(_is_short, inner)):
        yield "\\end_root"


def _fraction(part: Element, inner: list[Element]) -> Iterator[str]:
    above, below = inner
    is_short = _is_short(above) and _is_short(below)
    if part.get("linethickness") == "0":
        yield from (*_words(above), "\\choose", *_words(below))
        return
    if not is_short:
        yield "\\fraction"
    yield from (*_words(above), "\\over", *_words(below))
    if not is_short:
        yield "\\end_fraction"


def _binomial(inner: list[Element]) -> tuple[Element, Element] | None:
    """Return what stands above and below in brackets without a line."""
    if len(inner) == 3 and inner[1].tag == "mfrac" and inner[1].get("linethickness") == "0":
        if "".join(inner[0].itertext()) == "(":
            return inner[1][0], inner[1][1]
    return None


def _scripted(tag: str, inner: list[Element]) -> Iterator[str]:
    base, *scripts = inner
    sign = "".join(base.itertext()).strip()
    down = scripts[0] if tag in ("msub", "msubsup", "munder", "munderover") else None
    up = scripts[-1] if tag in ("msup", "msubsup", "mover", "munderover") else None
    mark = "".join(up.itertext()).strip() if up is not None else ""
    if tag == "mover" and mark in _ACCENTS and up is not None and not len(up):
        yield from (*_words(base), _ACCENTS[mark])
        return
    if sign in _LARGE or base.get("movablelimits") is not None:
        yield from _words(base)
        if down is not None:
            yield from ("\\from", *_words(down))
        if up is not None:
            yield from ("\\to", *_words(up))
        yield "\\of"
        return
    yield from _words(base)
    if down is not None and "".join(down.itertext()).strip() not in ("⏟", "―"):
        yield from ("\\below" if tag.startswith("munder") else "\\sub", *_words(down))
        if not _is_short(down):
            yield "\\end_sub"
    if up is None or mark == "⏞":
        return
    if mark in _PRIMES:
        yield _PRIMES[mark]
    elif mark in _POWERS and tag in ("msup", "msubsup"):
        yield _POWERS[mark]
    else:
        yield from ("\\above" if "over" in tag else "\\power", *_words(up))
        if not _is_short(up):
            yield "\\end_power"


def _table(rows: list[Element]) -> Iterator[str]:
    n_column = max((len(row) for row in rows), default=0)
    if n_column > 1 or len(rows) > 1:
        yield f"\\table {len(rows)} {n_column}"
    for number, row in enumerate(rows, 1):
        yield f"\\row {number}"
        for index, cell in enumerate(row):
            if index:
                yield "\\next"
            for one in cell:
                yield from _words(one)
