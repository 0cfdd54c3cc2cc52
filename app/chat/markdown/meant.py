"""Markdown as models write it, for a reader that keeps to the letter of CommonMark. No Qt.

`as_meant` changes the source where CommonMark would show something else than what was meant: bold
beside punctuation, stars of products, tildes, harmless tags and comments, addresses, references,
footnotes, pictures, bullets below numbers, and paths in a line that runs from right to left. What
has no form in Markdown becomes a mark, which `app.chat.text_block` finds in the finished document.
Code stays as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

LINE_SEPARATOR = "\u2028"  # a new line within a paragraph

# Noncharacters, which no text may hold. Qt itself uses the first two of them, FDD0 and FDD1.
FIRST_MARK, LAST_MARK = "\ufdd2", "\ufdef"
JOINT = "\ufdd2"  # stands for nothing, and is no punctuation
TILDE = "\ufdd3"  # a tilde that strikes nothing out
OPENING = {
    "sub": "\ufdd4", "sup": "\ufdd6", "kbd": "\ufdd8", "b": "\ufdda", "i": "\ufddc", "u": "\ufdde",
    "s": "\ufde0", "mark": "\ufde2",
}  # fmt: skip
CLOSING = {name: chr(ord(mark) + 1) for name, mark in OPENING.items()}
FORMULA, FORMULA_END = "\ufde4", "\ufde5"  # around the number of a drawn formula
_SYNONYMS = {
    "strong": "b", "summary": "b", "em": "i", "ins": "u", "del": "s", "strike": "s", "code": "kbd",
    "samp": "kbd", "var": "i", "cite": "i",
}  # fmt: skip
_MARKS = re.compile(f"[\ufdd0-{LAST_MARK}]")

_TICKS = re.compile("`+")
_ADDRESS = re.compile(
    r"(?<=\]\()[^()\n]{0,2000}|\bhttps?://[^\s<>]++|<[A-Za-z][\w+.-]{0,30}:[^<>\s]{0,2000}>"
)
_INDENTED = re.compile(r"(?:\A|\n[ \t]*\n)((?: {4}|\t).*(?:\n(?: {4}|\t).*)*)")
_LIST = re.compile(r"^[ \t]*(?:[-+*]|\d+[.)])[ \t]", re.M)

# A bare address, and what may stand behind it without belonging to it.
_BARE = re.compile(
    r"(?<![A-Za-z0-9_<\[\"'=`])(?<!\]\()https?://[^\s<>`\"\u3000-\u303f\uff00-\uffef]++"
)
_BEHIND = "?!.,:;*_~'\u2019\u201d|"
_REST_OF_LABEL = re.compile(r"[^\[\]\n]{0,500}\]\(")

_DUNDER = re.compile(r"(?<![\w\\])__(?=[a-z][a-z0-9]*(?:_[a-z0-9]+)*__(?!\w))")
_ALERT = re.compile(r"^([ \t]*>[ \t>]*)\[!([A-Za-z]{1,20})\][+-]?[ \t]*(\S.*)?$", re.M)

_BREAK = re.compile(r"<br[ \t]{0,9}/?>[ \t]{0,99}", re.I)
_PAIRED = re.compile(
    r"<(/?)(sub|sup|kbd|b|strong|i|em|u|ins|s|del|strike|mark|code|samp|var|cite|summary)>", re.I
)
_SPAN = re.compile(r"<(/?)(span|font|big|small)(?:[ \t][^<>\n]{0,200})?>", re.I)
_LINK = re.compile(
    r"<a[ \t][^<>\n]{0,200}?\bhref=[\"']?(https?://[^\s\"'<>()]{1,2000})[\"']?[^<>\n]{0,200}>"
    r"([^<>\n\[\]]{1,500})</a>",
    re.I,
)
_TABLE = re.compile(r"<table(?:[ \t][^<>]{0,200})?>", re.I)
_TABLE_END = re.compile("</table>", re.I)
_TABLE_ROW = re.compile(r"<tr(?:[ \t][^<>]{0,200})?>(.*?)(?=</tr>|<tr\b|\Z)", re.I | re.S)
_TABLE_CELL = re.compile(r"<t[hd](?:[ \t][^<>]{0,200})?>(.*?)(?=</t[hd]>|<t[hd]\b|\Z)", re.I | re.S)
_SECTION = re.compile(r"<(/?)(ul|ol|li|h[1-6])>[ \t]*\n?", re.I)
_RULE_BELOW = re.compile(
    r"^(?![ \t]*[-+*>#|\d]).*[.!?:;,)*\u3002\uff01\uff1f\uff1a]\n(?= {0,3}-{3,}[ \t]*$)", re.M
)
_LAYOUT = re.compile(
    r"^[ \t]*</?(?:details|p|div|center)(?:[ \t][^<>\n]{0,200})?>[ \t]*", re.I | re.M
)
_LAYOUT_END = re.compile(r"</(?:details|p|div|center)>[ \t]{0,99}$", re.I | re.M)
_RULE = re.compile(r"^[ \t]*<hr[ \t]*/?>[ \t]*$", re.I | re.M)
_PICTURE = re.compile(
    r"(?<!\\)!\[([^\[\]\n]{0,1000}+)\](\([^()\n]{0,2000}+\)|\[[^\[\]\n]{0,200}+\])"
)
_NOTE = re.compile(r"(?<!\\)\[\^([^\]\s^]{1,40})\](?!\()")
_NOTED = re.compile(r"^ {0,3}\[\^([^\]\s^]{1,40})\]:[ \t]*", re.M)
_DEFINED = re.compile(
    r"^ {0,3}\[([^\[\]\n^][^\[\]\n]{0,80})\]:[ \t]{0,9}<?(https?://[^\s<>()]{1,2000})", re.M
)
_REFERRED = re.compile(r"(?<![!\\\]])\[([^\[\]\n^]{1,300})\](\[[^\[\]\n]{0,80}\])?(?![(\[:])")
_STRUCK = re.compile(r"(?<![~\\])~~(?=[^\s~])([^~\n]{0,999}[^\s~])~~(?!~)")
_NUMBERED = re.compile(r"( {0,9})\d{1,9}[.)][ \t]+")
_BULLET = re.compile(r"( {0,9})[-+*][ \t]")
_STARS = re.compile(r"(?<!\\)\*+")
_SINGLE_TILDE = re.compile(r"(?<![~\\])~(?!~)")
_PATH = re.compile(
    r"(?<![\w/.~-])(?:(?:(?:~|\.{1,2})?/|[A-Za-z]:\\)[\w./\\+@-]*[\w/\\]|--?[A-Za-z][\w-]*)",
    re.ASCII,
)
_RIGHT_TO_LEFT = ("R", "AL")


class _Edit(NamedTuple):
    """Text that takes the place of text[begin:end]."""

    begin: int
    end: int
    new: str


def without_marks(text: str) -> str:
    """Return a text that has none of the marks."""
    return _MARKS.sub("\ufffd", text)


def definitions(text: str) -> dict[str, str]:
    """Return the addresses that a text defines for references, by their labels in lower case."""
    if "]:" not in text:
        return {}
    return {found[1].casefold(): found[2] for found in _DEFINED.finditer(_without_code(text))}


def refers(text: str, labels: Iterable[str]) -> bool:
    """Return whether a text may have a reference with one of these labels."""
    folded = text.casefold()
    return any(f"[{label}]" in folded for label in labels)


def as_meant(text: str, defined: Mapping[str, str] | None = None) -> str:
    """Return Markdown that reads by CommonMark as its writer meant it. Takes linear time.

    defined: addresses that other parts of the same answer define for references.

    REQUIRES: the text has no marks (without_marks()) but those of formulas.
    """
    without_code = _without_code(text)
    if tables := list(_tables(without_code, text)):
        text = _edited(text, tables)
        without_code = _without_code(text)
    edits = [*_addresses(without_code), *_links(without_code)]
    shown = _ADDRESS.sub(lambda found: "`" * len(found[0]), without_code)
    edits += [*_tags(shown), *_pictures(shown, text), *_notes(shown), *_tildes(shown)]
    edits += [
        *_comments(shown),
        *_references(without_code, defined or {}),
        *_nested(shown),
        *_pipes(shown, text),
    ]
    edits += (_Edit(found.start(), found.end(), r"\_\_") for found in _DUNDER.finditer(shown))
    edits += (_Edit(found.end(), found.end(), "\n") for found in _RULE_BELOW.finditer(shown))
    edits += (
        _Edit(*found.span(), f"{found[1]}**{(found[3] or found[2].capitalize()).strip()}**")
        for found in _ALERT.finditer(shown)
    )
    for line in re.finditer(".+", shown):
        if "*" in line[0]:
            edits += _stars(shown, line.start(), line.end())
        if "/" in line[0] or "-" in line[0] or "\\" in line[0]:
            edits += _paths(line[0], line.start())
    return _edited(text, edits)


def _edited(text: str, edits: list[_Edit]) -> str:
    pieces, end = [], 0
    for edit in sorted(edits):
        if edit.begin >= end:  # else it lies in one that is made already
            pieces += [text[end : edit.begin], edit.new]
            end = edit.end
    return "".join([*pieces, text[end:]])


def first_direction(text: str) -> str:
    """Return "R" or "L", as the first letter of a text runs, or "" without a letter."""
    for letter in text:
        direction = unicodedata.bidirectional(letter)
        if direction in _RIGHT_TO_LEFT:
            return "R"
        if direction == "L":
            return "L"
    return ""


def _without_code(text: str) -> str:
    """Return the text with ticks in place of code, at the same places."""
    places: dict[int, list[int]] = {}  # of runs of ticks, by their length, the last one first
    for run in _TICKS.finditer(text):
        places.setdefault(len(run[0]), []).append(run.start())
    for starts in places.values():
        starts.reverse()
    pieces, place = [], 0
    while opening := _TICKS.search(text, place):
        later = places[len(opening[0])]
        while later and later[-1] < opening.end():
            later.pop()
        end = later[-1] + len(opening[0]) if later else opening.end()
        hidden = re.sub("[^\n]", "`", text[opening.start() : end]) if later else opening[0]
        pieces += [text[place : opening.start()], hidden]
        place = end
    shown = "".join([*pieces, text[place:]])
    if not _LIST.search(shown):  # below an item such a line may be text of the item
        shown = _INDENTED.sub(lambda found: re.sub("[^\n]", "`", found[0]), shown)
    return shown


def _addresses(shown: str) -> Iterator[_Edit]:
    """Make links of bare addresses. Qt's reader leaves those with a port, "(", "@" or "#" alone."""
    for found in _BARE.finditer(shown):
        address = found[0]
        depth = 0
        for index, sign in enumerate(address):
            depth += (sign == "(") - (sign == ")")
            if depth < 0:  # this one closes a bracket before the address
                address = address[:index]
                break
        address = address.rstrip(_BEHIND)
        end = found.start() + len(address)
        if not _REST_OF_LABEL.match(shown, end) and not address.endswith("//"):
            yield _Edit(found.start(), end, f"<{address}>")


def _links(shown: str) -> Iterator[_Edit]:
    for found in _LINK.finditer(shown):
        yield _Edit(*found.span(), f"[{found[2]}]({found[1]})")


def _tags(shown: str) -> Iterator[_Edit]:
    """Find harmless tags of HTML. A tag without its partner in the paragraph stays."""
    if "<" not in shown:
        return
    for found in _BREAK.finditer(shown):
        is_last = shown[found.end() : found.end() + 1] in ("\n", "")
        yield _Edit(*found.span(), "" if is_last and "|" not in shown else LINE_SEPARATOR)
    for found in _RULE.finditer(shown):
        yield _Edit(*found.span(), "\n---\n")
    for pattern in (_LAYOUT, _LAYOUT_END):
        for found in pattern.finditer(shown):
            yield _Edit(*found.span(), "")
    yield from _sections(shown)
    begun: list[re.Match[str]] = []
    for found in _SPAN.finditer(shown):
        if not found[1]:
            begun.append(found)
        elif begun and begun[-1][2].lower() == found[2].lower():
            yield _Edit(*begun.pop().span(), "")
            yield _Edit(*found.span(), "")
    begun = []
    paragraph = 0
    for found in _PAIRED.finditer(shown):
        if "\n\n" in shown[paragraph : found.start()]:
            begun.clear()
        paragraph = found.start()
        if not found[1]:
            begun.append(found)
        elif begun and begun[-1][2].lower() == found[2].lower():
            opening, name = begun.pop(), found[2].lower()
            kind = _SYNONYMS.get(name, name)
            yield _Edit(*opening.span(), OPENING[kind])
            yield _Edit(*found.span(), CLOSING[kind] + ("\n\n" if name == "summary" else ""))


def _sections(shown: str) -> Iterator[_Edit]:
    """Turn lists and headings of HTML into Markdown's."""
    lists: list[str] = []
    for found in _SECTION.finditer(shown):
        name = found[2].lower()
        new = "\n"
        if name in ("ul", "ol"):
            if not found[1]:
                lists.append("- " if name == "ul" else "1. ")
            elif lists:
                lists.pop()
            else:
                continue
            new = "\n" if lists else "\n\n"
        elif name == "li":
            if not lists:
                continue
            new = "" if found[1] else "\n" + "   " * min(len(lists) - 1, 8) + lists[-1]
        else:
            new = "\n\n" if found[1] else "\n\n" + "#" * int(name[1]) + " "
        yield _Edit(*found.span(), new)


def _tables(shown: str, text: str) -> Iterator[_Edit]:
    """Turn tables of HTML into Markdown's. A cell over several columns stands in its first one."""
    place = 0
    while (begin := _TABLE.search(shown, place)) and (end := _TABLE_END.search(shown, begin.end())):
        place = end.end()
        inner = text[begin.end() : end.start()]
        rows = [_TABLE_CELL.findall(row) for row in _TABLE_ROW.findall(inner)]
        rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows if row]
        if not rows:
            continue
        n_column = max(map(len, rows))
        rows.insert(1, ["---"] * n_column)
        lines = ("| " + " | ".join(row + [""] * (n_column - len(row))) + " |" for row in rows)
        yield _Edit(begin.start(), place, "\n\n" + "\n".join(lines) + "\n\n")


def _pictures(shown: str, text: str) -> Iterator[_Edit]:
    """Show a picture as a link that has its words. No picture is loaded."""
    for found in _PICTURE.finditer(shown):
        words = found[1].strip() or "\u25a2"
        address = text[found.start(2) + 1 : found.end(2) - 1]
        is_inner = shown[found.start() - 1 : found.start()] == "["
        if is_inner or (found[2][0] == "(" and not address.startswith(("http://", "https://"))):
            yield _Edit(*found.span(), words)
        else:
            yield _Edit(found.start(), found.end(1), f"[{words}")


def _notes(shown: str) -> Iterator[_Edit]:
    """Show footnotes and their marks with the mark raised."""
    defined = {found.start(1): found for found in _NOTED.finditer(shown)}
    for found in _NOTE.finditer(shown):
        whole = defined.get(found.start(1))
        gap = "" if whole is None else "\u2002"
        yield _Edit(*(whole or found).span(), f"{OPENING['sup']}{found[1]}{CLOSING['sup']}{gap}")


def _comments(shown: str) -> Iterator[_Edit]:
    """Leave out comments of HTML."""
    end = 0
    while (begin := shown.find("<!--", end)) >= 0 and (close := shown.find("-->", begin + 4)) >= 0:
        end = close + 3
        yield _Edit(begin, end, "")


def _references(shown: str, others: Mapping[str, str]) -> Iterator[_Edit]:
    """Make links of references whose addresses stand in lines of their own, and leave the lines.

    Qt's reader knows only a definition that stands alone; such lines are a list of sources, too.
    """
    own = {found[1].casefold(): found[2] for found in _DEFINED.finditer(shown)}
    defined = {**others, **own}
    for found in _REFERRED.finditer(shown) if defined else ():
        label = (found[2] or "")[1:-1] or found[1]
        if address := defined.get(label.casefold()):
            yield _Edit(found.end(1) + 1, found.end(), f"({address})")


def _nested(shown: str) -> Iterator[_Edit]:
    """Indent bullets below an item with a number as far as its text, so that they belong to it."""
    outer, inner, text_at = -1, 0, 0  # indents of the item, of its bullets, and of its text
    shift = place = 0
    for line in shown.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if line.strip():
            if indent <= outer:
                outer, shift = -1, 0
            elif shift and indent < inner:
                shift = 0
            if outer >= 0 and not shift and indent < text_at and _BULLET.match(line):
                inner, shift = indent, text_at - indent
            if shift:
                yield _Edit(place, place, " " * shift)
            elif outer < 0 and (found := _NUMBERED.match(line)):
                outer, text_at = len(found[1]), min(found.end(), indent + 5)
        place += len(line) + 1


def _pipes(shown: str, text: str) -> Iterator[_Edit]:
    """Show an escaped "|" of code in a table without the backslash, as GitHub does."""
    for line in re.finditer(r"^[ \t]*\|.*", shown, re.M) if "\\|" in text else ():
        place = line.start()
        while (place := text.find("\\|", place, line.end())) >= 0:
            if shown[place : place + 2] == "``":
                yield _Edit(place, place + 2, "|")
            place += 2


def _tildes(shown: str) -> Iterator[_Edit]:
    """Find single tildes, which say "about" or "home", where two could strike out a text."""
    found = [tilde.start() for tilde in _SINGLE_TILDE.finditer(shown)]
    if len(found) > 1:
        for place in found:
            yield _Edit(place, place + 1, TILDE)
    for struck in _STRUCK.finditer(shown):  # also where a letter follows at once
        yield _Edit(struck.start(), struck.start() + 2, OPENING["s"])
        yield _Edit(struck.end() - 2, struck.end(), CLOSING["s"])


class _Run(NamedTuple):
    """Stars in a row, and what stands beside them."""

    begin: int
    end: int
    before: str
    after: str

    @property
    def opens(self) -> bool:
        """Return whether it can begin an emphasis by CommonMark."""
        beside = self.before.isspace() or _is_punctuation(self.before)
        return not self.after.isspace() and (not _is_punctuation(self.after) or beside)

    @property
    def closes(self) -> bool:
        """Return whether it can end an emphasis by CommonMark."""
        beside = self.after.isspace() or _is_punctuation(self.after)
        return not self.before.isspace() and (not _is_punctuation(self.before) or beside)

    @property
    def is_product(self) -> bool:
        """Return whether it stands between two letters or digits, as in 2*3."""
        return (
            self.end - self.begin == 1
            and (self.before + self.after).isascii()
            and (
                (self.before.isalnum() or self.before in ")]")
                and (self.after.isalnum() or self.after in "([")
            )
        )

    @property
    def is_eastern(self) -> bool:
        """Return whether a script without spaces is beside it."""
        return any(unicodedata.east_asian_width(sign) in "WF" for sign in self.before + self.after)


def _stars(shown: str, begin: int, end: int) -> Iterator[_Edit]:
    """Pair the stars of a line that CommonMark leaves alone, and set them apart."""
    runs: dict[int, list[_Run]] = {}
    for found in _STARS.finditer(shown, begin, end):
        at, to = found.span()
        if to - at <= 3:
            before = shown[at - 1] if at > begin else " "
            after = shown[to] if to < end else " "
            runs.setdefault(to - at, []).append(_Run(at, to, before, after))
    is_open, singles = False, runs.pop(1, [])
    for run in singles:
        if run.is_product and not is_open:
            yield _Edit(run.begin, run.begin, "\\")
        else:
            is_open = run.opens and not is_open
            runs.setdefault(1, []).append(run)
    for length, found_runs in runs.items():
        if _all_paired(found_runs):
            continue
        opening: _Run | None = None
        for run in found_runs:
            may_close = run.closes or length > 1 or run.is_eastern
            if opening is not None and not run.before.isspace() and may_close:
                if not opening.opens:
                    yield _Edit(opening.end, opening.end, JOINT)
                if not run.closes:
                    yield _Edit(run.begin, run.begin, JOINT)
                opening = None
            elif opening is None and (run.opens or (run.is_eastern and not run.after.isspace())):
                opening = run


def _all_paired(runs: list[_Run]) -> bool:
    n_open = 0
    for run in runs:
        if run.closes and n_open:
            n_open -= 1
        elif run.opens:
            n_open += 1
        elif not (run.before.isspace() and run.after.isspace()):
            return False
    return not n_open


def _paths(line: str, begin: int) -> Iterator[_Edit]:
    """Let paths and options keep their direction in a line from right to left."""
    if not any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in line):
        return
    for found in _PATH.finditer(line):
        at, to = begin + found.start(), begin + found.end()
        yield _Edit(at, at, "\u2066")
        yield _Edit(to, to, "\u2069")


def _is_punctuation(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "PS"
