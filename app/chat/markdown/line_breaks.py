"""Line breaks as models mean them, for a reader that joins lines as CommonMark does. No Qt."""

from __future__ import annotations

import re

from app.chat.markdown import meant

# Lines with a meaning in Markdown: lists, quotes, headings, code, and tables where there is one.
_STRUCTURE = re.compile(
    r"[ \t]{4}|\s*([-+*](\s|$)|>|#{1,6}(\s|$)|={2,}|-{2,}|"
    r"~~~|```|\d+[.)]\s|(?:[*_][ \t]*){3,}$|$)"
)
_ROW = re.compile(rf".*\||{_STRUCTURE.pattern}")
_TABLE = re.compile(r"^[\s>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[-:| \t]*)?$", re.M)
_QUOTED = re.compile(r" {0,3}((?:>[ \t]?)+)(.*)")
_ITEM = re.compile(r"\s*(?:[-+*]|\d+[.)])\s+\S")
_HARD_BREAK = re.compile(r"(?<!\\)\\$")
_LATER_ITEM = re.compile(r" {0,3}(?!1[.)])\d{1,9}[.)]\s")
_DRAWN = re.compile(r".*[\u2500-\u259f]|\s*(?:\+[-=+]{2,}|\|.*\|)\s*$")
_ENDS_IN_ADDRESS = re.compile(r"(?:https?://|www\.)\S*\s*$")


def keep_breaks(text: str) -> str:
    """Keep single line breaks between plain lines; Markdown would turn them into spaces.

    Two lines that run in different directions become two paragraphs. A list may begin with any
    number. Two lines drawn with letters, as of a tree of folders, keep their spaces.
    """
    lines = text.split("\n")
    structure = _ROW if "|" in text and _TABLE.search(text) else _STRUCTURE
    if structure is _STRUCTURE:
        lines = _with_drawn_spaces(lines)
    plain = [structure.match(line) is None for line in lines]
    pieces = []
    is_joined = False
    for index, line in enumerate(lines):
        quoted = _QUOTED.match(line)
        own = line
        if is_joined:
            own = quoted[2] if quoted else line.lstrip(" \t")
        following = lines[index + 1] if index + 1 < len(lines) else ""
        next_quoted = _QUOTED.match(following)
        if quoted and next_quoted:
            is_joined = quoted[1].count(">") == next_quoted[1].count(">") and not (
                structure.match(quoted[2]) or structure.match(next_quoted[2])
            )
        else:
            is_plain = plain[index] or _ITEM.match(line) is not None
            is_joined = index + 1 < len(lines) and is_plain and plain[index + 1]
        if not is_joined:
            begins = plain[index] and line.strip() and _LATER_ITEM.match(following)
            pieces.append(own + ("\n\n" if begins else "\n"))
        elif plain[index] and {meant.first_direction(line), meant.first_direction(following)} == {
            "L", "R",
        }:  # fmt: skip
            pieces.append(own + "\n\n")
            is_joined = False
        else:
            gap = " " if _ENDS_IN_ADDRESS.search(own) else ""  # else the address would go on
            pieces.append(_HARD_BREAK.sub("", own.rstrip()) + gap + meant.LINE_SEPARATOR)
    return "".join(pieces).removesuffix("\n")


def _with_drawn_spaces(lines: list[str]) -> list[str]:
    """Return the lines; those of a drawing have spaces that Markdown leaves alone."""
    return [
        line.replace("\t", "    ").replace(" ", "\u00a0") if is_drawn else line
        for line, is_drawn in zip(lines, drawn_lines(lines), strict=True)
    ]


def drawn_lines(lines: list[str]) -> list[bool]:
    """Return which lines are parts of a drawing of at least two."""
    found = [False, *(_DRAWN.match(line) is not None for line in lines), False]
    return [found[i] and (found[i - 1] or found[i + 1]) for i in range(1, len(found) - 1)]
