"""The text of office documents, web pages and electronic books, as Markdown.

The archives are not trusted: members are read up to a limit, and XML that declares entities is
refused, so neither compression nor entities can grow without a bound. Formats: ECMA-376
(WordprocessingML, SpreadsheetML, PresentationML), OpenDocument 1.3, EPUB 3.
"""

from __future__ import annotations

import datetime
import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.parsers import expat

from backend.protocol.attachments import TEXT_CHARS_MAX
from backend.protocol.errors import RequestError
from backend.text import text

MEMBER_BYTES_MAX = 64 << 20
"""Longest member of an archive, unpacked; all that are read have twice as much."""
N_MEMBER_MAX = 5000
N_COLUMN_MAX = 500
HTML_SOURCE_CHARS = 20_000
"""A shorter web page is attached as its source: somebody may have written it."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # formats that are known
_ENDINGS = (".docx", ".docm", ".xlsx", ".xlsm", ".pptx", ".odt", ".ods", ".odp", ".epub")
_OPENDOCUMENT = ("text", "spreadsheet", "presentation")

Attributes = dict[str, str]


class _Damaged(Exception):
    """The document cannot be read."""


_BROKEN = (
    _Damaged, zipfile.BadZipFile, zlib.error, expat.ExpatError, LookupError, ValueError, EOFError,
)  # fmt: skip


def document_text(data: bytes, name: str) -> str | None:
    """Return the text of a document as Markdown; None if the file is none of the known kinds.

    Raises RequestError with one sentence.
    """
    if data.startswith(_OLD_OFFICE):
        raise RequestError(text("attach.old_office", file=name))
    if not data.startswith(b"PK\x03\x04"):
        return None
    try:
        archive = _Archive(data, name)
        read = archive.reader()
        found = None if read is None else read(archive)
    except RequestError:
        raise
    except _BROKEN as error:
        if not name.lower().endswith(_ENDINGS):
            return None
        raise RequestError(text("attach.damaged_document", file=name)) from error
    except (NotImplementedError, RuntimeError) as error:  # an encrypted or unknown compression
        raise RequestError(text("attach.encrypted", file=name)) from error
    if found is not None and not found.strip():
        raise RequestError(text("attach.no_text_inside", file=name))
    return found


class _Archive:
    """The members of an archive, read within limits."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._members = {info.filename: info for info in self._zip.infolist()[:N_MEMBER_MAX]}
        self._left = 2 * MEMBER_BYTES_MAX

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def read(self, member: str) -> bytes:
        """Return a member. Raises KeyError, and RequestError for one that is too long."""
        with self._zip.open(self._members[member]) as file:
            data = file.read(min(MEMBER_BYTES_MAX, self._left) + 1)
        self._left -= len(data)
        if len(data) > MEMBER_BYTES_MAX or self._left < 0:
            raise RequestError(text("attach.too_complex", file=self.name))
        return data

    def reader(self) -> Callable[[_Archive], str] | None:
        """Return what reads this kind of document, by what is in the archive."""
        if "mimetype" in self:
            kind = self.read("mimetype").decode("ascii", "replace").strip()
            if kind == "application/epub+zip":
                return _epub
            if kind.startswith("application/vnd.oasis.opendocument."):
                is_known = kind.rsplit(".", 1)[1].split("-")[0] in _OPENDOCUMENT
                return _opendocument if is_known else None
        for member, read in (
            ("word/document.xml", _docx), ("xl/workbook.xml", _xlsx),
            ("ppt/presentation.xml", _pptx), ("META-INF/container.xml", _epub),
        ):  # fmt: skip
            if member in self:
                return read
        return None

    def relations(self, member: str) -> dict[str, str]:
        """Return the members that another one names, by their ids in it."""
        folder, base = posixpath.split(member)
        beside = f"{folder}/_rels/{base}.rels"
        found: dict[str, str] = {}
        for name, attributes, _ in _elements(self.read(beside)) if beside in self else ():
            if name == "Relationship" and attributes.get("TargetMode") != "External":
                target = attributes["Target"]
                whole = posixpath.normpath(posixpath.join(folder, target))
                found[attributes["Id"]] = target.lstrip("/") if target[:1] == "/" else whole
        return found


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _elements(data: bytes) -> Iterator[tuple[str, Attributes, str]]:
    """Yield (name, attributes, text) of the elements without elements in them, or at their begin.

    For small parts that are lists of elements.
    """
    found: list[tuple[str, Attributes, str]] = []

    def begin(name: str, attributes: Attributes) -> None:
        found.append((_local(name), attributes, ""))

    def characters(words: str) -> None:
        if found:
            name, attributes, before = found[-1]
            found[-1] = name, attributes, before + words

    _parse(data, begin, lambda _: None, characters)
    yield from found


def _parse(
    data: bytes,
    begin: Callable[[str, Attributes], None],
    end: Callable[[str], None],
    characters: Callable[[str], None],
) -> None:
    """Read XML. Raises ExpatError, and _Damaged for one that declares entities."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = characters

    def refuse(*_: object) -> None:
        raise _Damaged

    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)


class Markdown:
    """Collects paragraphs and tables. Raises RequestError where the text becomes too long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: list[str] = []
        self._line: list[str] = []
        self._tables: list[list[list[str]]] = []
        self._n_char = 0

    def add(self, words: str) -> None:
        """Add words to the paragraph."""
        self._n_char += len(words)
        if self._n_char > TEXT_CHARS_MAX:
            raise RequestError(text("attach.too_long", file=self._name, most=TEXT_CHARS_MAX))
        self._line.append(words)

    def end_paragraph(self, before: str = "") -> None:
        """End the paragraph, which begins with a mark such as "# "."""
        words = "".join(self._line).strip()
        self._line = []
        if not words:
            return
        if self._tables:
            if self._tables[-1] and self._tables[-1][-1]:
                cell = self._tables[-1][-1][-1]
                self._tables[-1][-1][-1] = f"{cell} {words}" if cell else words
        else:
            self._blocks.append(before + words)

    def block(self, words: str) -> None:
        """Add words as a block of their own."""
        self.end_paragraph()
        self.add(words)
        self.end_paragraph()

    def begin_table(self) -> None:
        """Begin a table, perhaps in a cell of another."""
        self.end_paragraph()
        self._tables.append([])

    def begin_row(self) -> None:
        """Begin a row of the table."""
        if self._tables:
            self._tables[-1].append([])

    def begin_cell(self) -> None:
        """Begin a cell of the row."""
        self._line = []
        if self._tables and self._tables[-1] and len(self._tables[-1][-1]) < N_COLUMN_MAX:
            self._tables[-1][-1].append("")

    def repeat_cell(self, n: int) -> None:
        """Add n cells like the last one."""
        if self._tables and self._tables[-1] and self._tables[-1][-1]:
            row = self._tables[-1][-1]
            row += row[-1:] * min(n, N_COLUMN_MAX - len(row))

    def end_table(self) -> None:
        """End the table. One within a cell becomes words of it."""
        self.end_paragraph()
        if not self._tables:
            return
        rows = self._tables.pop()
        if self._tables:
            self._line = ["; ".join(", ".join(filter(None, row)) for row in rows)]
            self.end_paragraph()
        elif made := table(rows):
            self.add(made)
            self._line = []
            self._blocks.append(made)

    def whole(self) -> str:
        """Return all of it. Items of a list stand below each other."""
        self.end_paragraph()
        while self._tables:
            self.end_table()
        made = ""
        for before, block in zip(["", *self._blocks], self._blocks, strict=False):
            is_item = before.lstrip().startswith("- ") and block.lstrip().startswith("- ")
            made += ("\n" if is_item else "\n\n" if made else "") + block
        return made


def table(rows: list[list[str]]) -> str:
    """Return rows as a table of Markdown, without empty rows; the first one is its head."""
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    width = max(index + 1 for row in rows for index, cell in enumerate(row) if cell)
    lines = []
    for row in (row[:width] for row in rows):
        cells = [re.sub(r"\s*\n\s*", " ", cell).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells + [''] * (width - len(row)))} |")
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def _docx(archive: _Archive) -> str:
    made = Markdown(archive.name)
    for member in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        if member in archive:
            _read_word(archive.read(member), made)
            made.end_paragraph()
    return made.whole()


def _read_word(data: bytes, made: Markdown) -> None:
    mark, skipped, is_text = "", 0, False

    def begin(name: str, attributes: Attributes) -> None:
        nonlocal mark, skipped, is_text
        name = _local(name)
        value = next((v for k, v in attributes.items() if _local(k) == "val"), "")
        if name == "Fallback":  # the same again, for older programs
            skipped += 1
        elif name == "p":
            mark = ""
        elif name == "pStyle" and (found := re.fullmatch(r"(?:Heading|berschrift)(\d)", value)):
            mark = "#" * min(int(found[1]), 6) + " "
        elif name == "pStyle" and value == "Title":
            mark = "# "
        elif name == "numPr" and not mark:
            mark = "- "
        elif name == "t":
            is_text = not skipped
        elif name in ("tab", "br", "cr") and not skipped:
            made.add(" " if name == "tab" else "\n")
        elif name == "tbl":
            made.begin_table()
        elif name == "tr":
            made.begin_row()
        elif name == "tc":
            made.begin_cell()

    def end(name: str) -> None:
        nonlocal skipped, is_text
        name = _local(name)
        if name == "Fallback":
            skipped -= 1
        elif name == "t":
            is_text = False
        elif name == "p":
            made.end_paragraph(mark)
        elif name == "tbl":
            made.end_table()

    _parse(data, begin, end, lambda words: made.add(words) if is_text else None)


def _pptx(archive: _Archive) -> str:
    made = Markdown(archive.name)
    relations = archive.relations("ppt/presentation.xml")
    order = [
        relations[next(v for k, v in attributes.items() if k.endswith(":id"))]
        for name, attributes, _ in _elements(archive.read("ppt/presentation.xml"))
        if name == "sldId"
    ]
    for number, member in enumerate(order, 1):
        made.block(f"## {number}")
        _read_slide(archive.read(member), made)
        for beside in archive.relations(member).values():
            if "notesSlide" in beside and beside in archive:
                _read_slide(archive.read(beside), made, "> ")
    return made.whole()


def _read_slide(data: bytes, made: Markdown, before: str = "") -> None:
    is_text = is_number = False

    def begin(name: str, attributes: Attributes) -> None:
        nonlocal is_text, is_number
        name = _local(name)
        if name == "ph":
            is_number = attributes.get("type") in ("sldNum", "dt", "ftr")
        elif name == "sp":
            is_number = False
        elif name == "t":
            is_text = not is_number
        elif name == "br":
            made.add("\n")
        elif name == "tbl":
            made.begin_table()
        elif name == "tr":
            made.begin_row()
        elif name == "tc":
            made.begin_cell()

    def end(name: str) -> None:
        nonlocal is_text
        name = _local(name)
        if name == "t":
            is_text = False
        elif name == "p":
            made.end_paragraph(before)
        elif name == "tbl":
            made.end_table()

    _parse(data, begin, end, lambda words: made.add(words) if is_text else None)


def _xlsx(archive: _Archive) -> str:
    made = Markdown(archive.name)
    relations = archive.relations("xl/workbook.xml")
    workbook = list(_elements(archive.read("xl/workbook.xml")))
    begins_1904 = any(
        a.get("date1904") in ("1", "true") for n, a, _ in workbook if n == "workbookPr"
    )
    shared = _shared(archive)
    dates = _date_styles(archive)
    for name, attributes, _ in workbook:
        member = relations.get(
            next((v for k, v in attributes.items() if k.endswith(":id")), ""), ""
        )
        if name == "sheet" and member in archive and "worksheet" in member:
            rows = _read_sheet(archive.read(member), shared, dates, begins_1904)
            if rows:
                made.block(f"## {attributes.get('name', '')}")
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


def _shared(archive: _Archive) -> list[str]:
    """Return the texts that cells name by their number, without readings of Japanese."""
    found: list[str] = []
    if "xl/sharedStrings.xml" not in archive:
        return found
    parts: list[str] = []
    is_text, reading = False, 0

    def begin(name: str, _: Attributes) -> None:
        nonlocal is_text, reading
        reading += _local(name) == "rPh"
        is_text = _local(name) == "t" and not reading

    def end(name: str) -> None:
        nonlocal is_text, reading
        reading -= _local(name) == "rPh"
        is_text = False
        if _local(name) == "si":
            found.append("".join(parts))
            parts.clear()

    data = archive.read("xl/sharedStrings.xml")
    _parse(data, begin, end, lambda words: parts.append(words) if is_text else None)
    return found


def _date_styles(archive: _Archive) -> set[str]:
    """Return the numbers of the styles of cells that show dates or times."""
    dates, found, is_cell, number = set(_DATES), set(), False, 0
    for name, attributes, _ in (
        _elements(archive.read("xl/styles.xml")) if "xl/styles.xml" in archive else ()
    ):
        if name == "numFmt":
            code = re.sub(r'"[^"]*"|\\.|\[[^\]]*\]', "", attributes.get("formatCode", "")).lower()
            if re.search("[dmyhs]", code.replace("general", "")):
                dates.add(int(attributes["numFmtId"]))
        elif name in ("cellXfs", "cellStyles", "dxfs"):
            is_cell = name == "cellXfs"
        elif name == "xf" and is_cell:
            if int(attributes.get("numFmtId", "0")) in dates:
                found.add(str(number))
            number += 1
    return found


def _read_sheet(
    data: bytes, shared: list[str], dates: set[str], begins_1904: bool
) -> list[dict[int, str]]:
    """Return the rows with something in them; of each the cells by their columns."""
    rows: list[dict[int, str]] = []
    cell: Attributes = {}
    parts: list[str] = []
    is_value = False

    def begin(name: str, attributes: Attributes) -> None:
        nonlocal cell, is_value
        name = _local(name)
        if name == "row":
            rows.append({})
        elif name == "c":
            cell = attributes
            parts.clear()
        is_value = name in ("v", "t")

    def end(name: str) -> None:
        nonlocal is_value
        is_value = False
        if _local(name) != "c" or not (value := "".join(parts)) or not rows:
            return
        if cell.get("t") == "s":
            value = shared[int(value)] if 0 <= int(value) < len(shared) else ""
        elif cell.get("t") == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif cell.get("t", "n") == "n" and cell.get("s", "") in dates:
            value = _date(value, begins_1904)
        if not value:
            return
        place = _column(cell["r"]) if "r" in cell else max(rows[-1], default=-1) + 1
        rows[-1][place] = value

    _parse(data, begin, end, lambda words: parts.append(words) if is_value else None)
    return [row for row in rows if row]


def _column(place: str) -> int:
    """Return the number of a column from a cell's place such as "AB12"."""
    column = 0
    for letter in re.match("[A-Z]*", place)[0][:3]:  # type: ignore[index]
        column = column * 26 + ord(letter) - 64
    return column - 1


def _date(value: str, begins_1904: bool) -> str:
    """Return a day or a time from the number that a sheet has for it."""
    try:
        days = float(value)
        begin = datetime.datetime(1904, 1, 1) if begins_1904 else datetime.datetime(1899, 12, 30)
        moment = begin + datetime.timedelta(seconds=round(days * 86400))
    except (ValueError, OverflowError):
        return value
    if 0 <= days < 1:
        return f"{moment:%H:%M:%S}"
    return (
        f"{moment:%Y-%m-%d}" if moment.time() == datetime.time() else f"{moment:%Y-%m-%d %H:%M:%S}"
    )


def _opendocument(archive: _Archive) -> str:
    made = Markdown(archive.name)
    is_sheet = b"opendocument.spreadsheet" in archive.read("mimetype")
    mark, skipped, n_list, n_paragraph, repeated = "", 0, 0, 0, 1
    without = ("office:annotation", "text:tracked-changes", "draw:object", "text:note-citation")

    def begin(name: str, attributes: Attributes) -> None:
        nonlocal mark, skipped, n_list, n_paragraph, repeated
        skipped += name in without
        if name in ("text:h", "text:p"):
            if not n_paragraph:
                level = attributes.get("text:outline-level", "1")
                n = min(int(level), 6) if level.isdecimal() else 1
                mark = "#" * n + " " if name == "text:h" else "- " if n_list else ""
            n_paragraph += 1
        elif name == "text:list":
            n_list += 1
        elif name == "text:note-body":
            made.add(" (")
        elif name in ("text:s", "text:tab", "text:line-break") and not skipped:
            made.add("\n" if name == "text:line-break" else " ")
        elif name == "draw:page":
            made.block(f"## {attributes.get('draw:name', '')}")
        elif name == "table:table":
            if is_sheet:
                made.block(f"## {attributes.get('table:name', '')}")
            made.begin_table()
        elif name == "table:table-row":
            made.begin_row()
        elif name in ("table:table-cell", "table:covered-table-cell"):
            made.begin_cell()
            count = attributes.get("table:number-columns-repeated", "1")
            repeated = int(count) if count.isdecimal() else 1

    def end(name: str) -> None:
        nonlocal skipped, n_list, n_paragraph
        skipped -= name in without
        if name in ("text:h", "text:p"):
            n_paragraph -= 1
            if not n_paragraph:
                made.end_paragraph(mark)
        elif name == "text:list":
            n_list -= 1
        elif name == "text:note-body":
            made.add(")")
        elif name in ("table:table-cell", "table:covered-table-cell"):
            made.repeat_cell(repeated - 1)
        elif name == "table:table":
            made.end_table()

    def characters(words: str) -> None:
        if n_paragraph and not skipped:
            made.add(words)

    _parse(archive.read("content.xml"), begin, end, characters)
    return made.whole()


def _epub(archive: _Archive) -> str:
    made = Markdown(archive.name)
    package = next(
        attributes["full-path"]
        for name, attributes, _ in _elements(archive.read("META-INF/container.xml"))
        if name == "rootfile"
    )
    items: dict[str, str] = {}
    for name, attributes, words in _elements(archive.read(package)):
        if name == "title" and words.strip():
            made.block(f"# {words.strip()}")
        elif name == "item":
            items[attributes["id"]] = unquote(attributes["href"])
        elif name == "itemref" and attributes.get("linear") != "no":
            beside = posixpath.dirname(package)
            member = posixpath.normpath(posixpath.join(beside, items[attributes["idref"]]))
            if member in archive:
                _Page(made).read(archive.read(member).decode("utf-8", "replace"))
    return made.whole()


def page_text(source: str, name: str) -> str:
    """Return the text of a web page as Markdown. Raises RequestError if it is too long."""
    made = Markdown(name)
    _Page(made).read(source)
    return made.whole()


class _Page(HTMLParser):
    """Reads HTML. Nothing that it names is loaded."""

    _WITHOUT = ("script", "style", "template", "noscript", "svg")
    _BLOCKS = (
        "p", "div", "section", "article", "li", "dt", "dd", "blockquote", "figcaption", "ul", "ol",
        "dl", "header", "footer", "main", "nav", "aside", "form", "tr", "hr",
    )  # fmt: skip

    def __init__(self, made: Markdown) -> None:
        super().__init__(convert_charrefs=True)
        self._made, self._skipped, self._is_code, self._mark = made, 0, False, ""

    def read(self, source: str) -> None:
        """Read a whole page."""
        self.feed(source)
        self.close()
        self._made.end_paragraph(self._mark)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._WITHOUT:
            self._skipped += 1
        elif re.fullmatch("h[1-6]", tag) or tag in self._BLOCKS or tag == "title":
            before = self._mark
            self._end()
            if tag == "li" or (before == "- " and tag in ("p", "div")):
                self._mark = "- "
            elif tag[0] == "h" and tag[1].isdigit():
                self._mark = "#" * int(tag[1]) + " "
        elif tag == "br":
            self._made.add("\n")
        elif tag == "img":
            alt = dict(attrs).get("alt") or ""
            self._made.add(alt if not self._skipped else "")
        elif tag == "pre":
            self._end()
            self._is_code = True
            self._made.add("```\n")
        if tag == "table":
            self._end()
            self._made.begin_table()
        elif tag == "tr":
            self._made.begin_row()
        elif tag in ("td", "th"):
            self._end()
            self._made.begin_cell()

    def handle_endtag(self, tag: str) -> None:
        if tag in self._WITHOUT:
            self._skipped = max(self._skipped - 1, 0)
        elif tag == "pre" and self._is_code:
            self._made.add("\n```")
            self._end()
            self._is_code = False
        elif tag == "table":
            self._end()
            self._made.end_table()
        elif re.fullmatch("h[1-6]", tag) or tag in (*self._BLOCKS, "title", "td", "th"):
            self._end()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._made.add(data if self._is_code else re.sub(r"\s+", " ", data))

    def _end(self) -> None:
        self._made.end_paragraph(self._mark)
        self._mark = ""
