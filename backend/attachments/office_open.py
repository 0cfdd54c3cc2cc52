"""Documents of Office Open XML (ECMA-376): WordprocessingML, SpreadsheetML, PresentationML."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from backend.attachments.document_parts import (
    N_COLUMN_MAX,
    Archive,
    Attributes,
    Markdown,
    local,
    parse,
)

_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # formats that are known
_PERCENT = {9, 10}
_HOURS = {46}  # hours beyond a day
_HEADING = re.compile(r"heading (\d)")
_NOTES = ("footnotes", "endnotes", "comments")


def docx(archive: Archive) -> str:
    """Return the text of a Word document; notes and comments stand where they are referred to."""
    made = Markdown(archive.name)
    _Story(archive, "word/document.xml", made).read()
    return made.whole()


def pptx(archive: Archive) -> str:
    """Return the text of a presentation, slide by slide, with the speaker's notes."""
    made = Markdown(archive.name)
    relations = archive.relations("ppt/presentation.xml")
    order = [
        relations[next(v for k, v in attributes.items() if k.endswith(":id"))]
        for name, attributes, _ in archive.elements("ppt/presentation.xml")
        if name == "sldId"
    ]
    for number, member in enumerate(order, 1):
        made.block(f"## {number}")
        _Story(archive, member, made).read()
        for beside in archive.relations(member).values():
            if "notesSlide" in beside and beside in archive:
                _Story(archive, beside, made, "> ").read()
    return made.whole()


class _Lists:
    """The lists and styles of a Word document: which style is a heading, which list counts."""

    def __init__(self, archive: Archive) -> None:
        self.headings: dict[str, str] = {}  # the mark, by the id of the style
        self.items: dict[str, tuple[str, int]] = {}  # (list, level), by the id of the style
        self._formats: dict[tuple[str, int], str] = {}  # of a kind of list and its level
        self._kinds: dict[str, str] = {}  # of lists
        style = kind = number = ""
        level = 0
        for name, attributes, _ in archive.elements("word/styles.xml"):
            value = _of(attributes, "val")
            if name == "style":
                style = _of(attributes, "styleId")
            elif name == "name" and (found := _HEADING.fullmatch(value.lower())):
                self.headings[style] = "#" * min(int(found[1]), 6) + " "
            elif name == "name" and value.lower() == "title":
                self.headings[style] = "# "
            elif name == "ilvl":
                level = _whole(value)
            elif name == "numId":
                self.items[style] = value, level
                level = 0
        for name, attributes, _ in archive.elements("word/numbering.xml"):
            value = _of(attributes, "val")
            if name == "abstractNum":
                kind, number = _of(attributes, "abstractNumId"), ""
            elif name == "num":
                number = _of(attributes, "numId")
            elif name == "abstractNumId" and number:
                self._kinds[number] = value
            elif name == "lvl":
                level = _whole(_of(attributes, "ilvl"))
            elif name == "numFmt" and not number:
                self._formats[kind, level] = value

    def heading(self, style: str) -> str:
        """Return the mark of a heading, or "". Documents without styles have ids in English."""
        if (found := re.fullmatch(r"(?:Heading|berschrift)(\d)", style)) and not self.headings:
            return "#" * min(int(found[1]), 6) + " "
        return self.headings.get(style, "# " if style == "Title" else "")

    def mark(self, made: Markdown, number: str, level: int) -> str:
        """Return the mark of an item. number: its list; "0": none."""
        shape = self._formats.get((self._kinds.get(number, ""), level), "bullet")
        if number == "0" or shape == "none":
            return ""
        return made.item(level, "" if shape == "bullet" else number)


class _Story:
    """Reads paragraphs and tables; Word and slides name most of their elements alike.

    before: what each paragraph begins with.
    """

    def __init__(self, archive: Archive, member: str, made: Markdown, before: str = "") -> None:
        self._data, self._made, self._before = archive.read(member), made, before
        self._relations = archive.relations(member)
        is_word = member.startswith("word/")
        self._lists = _Lists(archive) if is_word else None
        self._notes = _notes(archive) if is_word else {}
        self._paragraphs: list[tuple[str, str, int]] = []  # (style, list, level) of open ones
        self._skipped = 0  # open elements that repeat others for older programs
        self._is_text = False
        self._place = ""  # of a slide: title, body, ...
        self._n_shape = 0
        self._address = ""

    def read(self) -> None:
        """Read all of it."""
        parse(self._data, self._begin, self._end, self._characters)
        self._made.end_paragraph()

    def _characters(self, words: str) -> None:
        if self._is_text:
            self._made.add(words)

    def _begin(self, name: str, attributes: Attributes) -> None:
        name, value, made = local(name), _of(attributes, "val"), self._made
        style, number, level = self._paragraphs[-1] if self._paragraphs else ("", "", 0)
        if name == "Fallback":
            self._skipped += 1
        elif self._skipped:
            return
        elif name == "p":
            is_listed = self._place in ("body", "obj")
            self._paragraphs.append(("", "-" if is_listed else "", 0))
        elif name == "pPr" and "lvl" in attributes:
            self._paragraphs[-1:] = [(style, number, _whole(attributes["lvl"]))]
        elif name in ("pStyle", "numId", "ilvl", "buNone", "buChar", "buAutoNum"):
            if name == "pStyle":
                style = value
            elif name == "ilvl":
                level = _whole(value)
            else:
                counted = f"shape {self._n_shape}"
                number = {"buNone": "", "buChar": "-", "buAutoNum": counted}.get(name, value)
            self._paragraphs[-1:] = [(style, number, level)]
        elif name == "numPr" and not number:
            self._paragraphs[-1:] = [(style, "-", level)]
        elif name == "t":
            self._is_text = self._place not in ("sldNum", "dt", "ftr")
        elif name in ("tab", "br", "cr"):
            made.add(" " if name == "tab" else "\n")
        elif name in ("hyperlink", "hlinkClick"):
            self._address = self._relations.get(_of(attributes, "id"), "")
        elif name.endswith("Reference") and (note := self._notes.get(
            (name.removesuffix("Reference"), _of(attributes, "id"))
        )):  # fmt: skip
            made.add(note)
        elif name == ("cNvPr" if self._lists is None else "docPr"):
            made.add_picture(_of(attributes, "descr"))
        else:
            self._begin_shape(name, attributes)

    def _begin_shape(self, name: str, attributes: Attributes) -> None:
        """Begin a table or a part of it, or a shape of a slide."""
        made = self._made
        if name == "sp":
            self._place = ""
            self._n_shape += 1
        elif name == "ph":
            self._place = attributes.get("type", "obj")
        elif name == "tbl":
            made.begin_table()
        elif name == "tr":
            made.begin_row()
        elif name == "tc":
            made.begin_cell()
        elif name == "gridSpan":  # slides have a cell of their own for each column
            made.span(_whole(_of(attributes, "val")))

    def _end(self, name: str) -> None:
        name = local(name)
        if name == "Fallback":
            self._skipped -= 1
        elif self._skipped:
            return
        elif name == "t":
            self._is_text = False
        elif name in ("hyperlink", "r"):
            is_over = name == "hyperlink" or self._lists is None
            if is_over and self._address:
                self._made.add_address(self._address)
                self._address = ""
        elif name == "p":
            one = self._paragraphs.pop() if self._paragraphs else ("", "", 0)
            self._made.end_paragraph(self._before or self._mark(*one))
        elif name == "tbl":
            self._made.end_table()
        elif name in ("sp", "pic") and self._lists is None:
            self._made.end_paragraph()
            self._place = ""

    def _mark(self, style: str, number: str, level: int) -> str:
        if self._made.is_empty:
            return ""  # it counts in no list
        if self._lists is None:
            if self._place in ("title", "ctrTitle"):
                return "### "
            return self._made.item(level, number.strip("-")) if number else ""
        if heading := self._lists.heading(style):
            return heading
        if not number:
            number, level = self._lists.items.get(style, ("0", 0))
        return self._lists.mark(self._made, number, level)


def _of(attributes: Attributes, name: str) -> str:
    """Return an attribute, whatever its prefix; "" if there is none."""
    return next((value for key, value in attributes.items() if local(key) == name), "")


def _whole(value: str) -> int:
    return min(int(value), 1000) if value.isdecimal() else 0


def _notes(archive: Archive) -> dict[tuple[str, str], str]:
    """Return notes and comments as they are shown, by (kind, id)."""
    found: dict[tuple[str, str], str] = {}
    for part in _NOTES:
        key, who, words = ("", ""), "", ""
        for name, attributes, content in archive.elements(f"word/{part}.xml"):
            if name == part[:-1]:
                key, who, words = (name, _of(attributes, "id")), _of(attributes, "author"), ""
            elif name == "p" and words:
                words += " "
            elif name == "t" and key[0]:
                words += content
                is_comment = part == "comments"
                shown = f" [comment by {who}: {words}]" if is_comment else f" ({words.strip()})"
                found[key] = shown
    return found


def xlsx(archive: Archive) -> str:
    """Return the sheets of a workbook as tables, with the values that Excel computed last."""
    made = Markdown(archive.name)
    relations = archive.relations("xl/workbook.xml")
    workbook = list(archive.elements("xl/workbook.xml"))
    begins_1904 = any(
        a.get("date1904") in ("1", "true") for n, a, _ in workbook if n == "workbookPr"
    )
    shared = _shared(archive)
    styles = _styles(archive)
    for name, attributes, _ in workbook:
        member = relations.get(
            next((v for k, v in attributes.items() if k.endswith(":id")), ""), ""
        )
        if name == "sheet" and member in archive and "worksheet" in member:
            rows = _read_sheet(archive.read(member), shared, styles, begins_1904)
            is_hidden = attributes.get("state", "visible") != "visible"
            if rows:
                made.block(f"## {attributes.get('name', '')}{' (hidden)' if is_hidden else ''}")
            made.begin_table()
            columns = sorted({column for row in rows for column in row})[:N_COLUMN_MAX]
            for row in rows:
                made.begin_row()
                for column in columns:
                    made.begin_cell()
                    made.add(row.get(column, ""))
                    made.end_paragraph()
            made.end_table()
    return made.whole()


def _shared(archive: Archive) -> list[str]:
    """Return the texts that cells name by their number, without readings of Japanese."""
    found: list[str] = []
    if "xl/sharedStrings.xml" not in archive:
        return found
    parts: list[str] = []
    is_text, reading = False, 0

    def begin(name: str, _: Attributes) -> None:
        nonlocal is_text, reading
        reading += local(name) == "rPh"
        is_text = local(name) == "t" and not reading

    def end(name: str) -> None:
        nonlocal is_text, reading
        reading -= local(name) == "rPh"
        is_text = False
        if local(name) == "si":
            found.append("".join(parts))
            parts.clear()

    data = archive.read("xl/sharedStrings.xml")
    parse(data, begin, end, lambda words: parts.append(words) if is_text else None)
    return found


def _styles(archive: Archive) -> dict[str, str]:
    """Return the kind of number that a style of cells shows, by its number in the file.

    Kinds: "date", "hours" (that may be more than a day), "percent", or the sign of a currency.
    """
    kinds = dict.fromkeys(_DATES, "date")
    kinds |= dict.fromkeys(_PERCENT, "percent") | dict.fromkeys(_HOURS, "hours")
    found: dict[str, str] = {}
    is_cell, number = False, 0
    for name, attributes, _ in archive.elements("xl/styles.xml"):
        if name == "numFmt":
            code = attributes.get("formatCode", "")
            kinds[_whole(attributes.get("numFmtId", ""))] = _kind(code)
        elif name in ("cellXfs", "cellStyles", "dxfs"):
            is_cell = name == "cellXfs"
        elif name == "xf" and is_cell:
            if kind := kinds.get(_whole(attributes.get("numFmtId", "0"))):
                found[str(number)] = kind
            number += 1
    return found


def _kind(code: str) -> str:
    """Return the kind of number that a format such as "#,##0.00 [$€-407]" shows."""
    if money := re.search(r"\[\$([^\]\-]+)|([$€£¥])", code):
        return money[1] or money[2]
    plain = re.sub(r'"[^"]*"|\\.', "", code).lower().replace("general", "")
    if re.search(r"\[[hms]+\]", plain):
        return "hours"
    plain = re.sub(r"\[[^\]]*\]", "", plain)
    return "percent" if "%" in plain else "date" if re.search("[dmyhs]", plain) else ""


def _read_sheet(
    data: bytes, shared: list[str], styles: Mapping[str, str], begins_1904: bool
) -> list[dict[int, str]]:
    """Return the rows with something in them; of each the cells by their columns."""
    rows: list[dict[int, str]] = []
    cell: Attributes = {}
    parts: list[str] = []
    is_value = False

    def begin(name: str, attributes: Attributes) -> None:
        nonlocal cell, is_value
        name = local(name)
        if name == "row":
            rows.append({})
        elif name == "c":
            cell = attributes
            parts.clear()
        is_value = name in ("v", "t")

    def end(name: str) -> None:
        nonlocal is_value
        is_value = False
        if local(name) != "c" or not (value := "".join(parts)) or not rows:
            return
        if cell.get("t") == "s":
            value = shared[int(value)] if 0 <= int(value) < len(shared) else ""
        elif cell.get("t") == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif cell.get("t", "n") == "n":
            value = _number(value, styles.get(cell.get("s", ""), ""), begins_1904)
        if not value:
            return
        place = _column(cell["r"]) if "r" in cell else max(rows[-1], default=-1) + 1
        rows[-1][place] = value

    parse(data, begin, end, lambda words: parts.append(words) if is_value else None)
    return [row for row in rows if row]


def _column(place: str) -> int:
    """Return the number of a column from a cell's place such as "AB12"."""
    column = 0
    for letter in re.match("[A-Z]*", place)[0][:3]:  # type: ignore[index]
        column = column * 26 + ord(letter) - 64
    return column - 1


def _number(value: str, kind: str, begins_1904: bool) -> str:
    """Return a number of a cell as Excel shows it, with at most 15 digits."""
    try:
        number = float(value)
        if kind == "percent":
            return f"{100 * number:.15g}%"
        if kind == "hours":
            seconds = round(number * 86400)
            return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if kind == "date":
            return _date(number, begins_1904)
    except (ValueError, OverflowError):
        return value
    return f"{number:.15g} {kind}".rstrip()


def _date(days: float, begins_1904: bool) -> str:
    """Return a day or a time from the number that a sheet has for it. Raises OverflowError."""
    begin = datetime.datetime(1904, 1, 1) if begins_1904 else datetime.datetime(1899, 12, 30)
    moment = begin + datetime.timedelta(seconds=round(days * 86400))
    if 0 <= days < 1:
        return f"{moment:%H:%M:%S}"
    return (
        f"{moment:%Y-%m-%d}" if moment.time() == datetime.time() else f"{moment:%Y-%m-%d %H:%M:%S}"
    )
