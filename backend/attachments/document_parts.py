"""Parts for readers of documents: the members of an archive, XML, and text as Markdown.

The archives are not trusted: members are read up to a limit, and XML that declares entities is
refused, so neither compression nor entities can grow without a bound.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from backend.protocol.attachments import TEXT_CHARS_MAX
from backend.protocol.errors import RequestError
from backend.text import text

MEMBER_BYTES_MAX = 64 << 20
"""Longest member of an archive, unpacked; all that are read have twice as much."""
N_MEMBER_MAX = 5000
N_COLUMN_MAX = 500
LEVEL_MAX = 8  # of lists within lists
INDENT = "   "  # of a list within another, in Markdown
_ITEM = re.compile(r" *(?:-|\d+\.) ")
_WEB = ("http://", "https://", "mailto:")

Attributes = dict[str, str]


class DamagedError(Exception):
    """The document cannot be read."""


class Archive:
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

    def elements(self, member: str) -> Iterator[tuple[str, Attributes, str]]:
        """Yield the elements of a member as `elements` does; none if there is no such member."""
        if member in self:
            yield from elements(self.read(member))

    def relations(self, member: str) -> dict[str, str]:
        """Return the members that another one names, and addresses, by their ids in it."""
        folder, base = posixpath.split(member)
        found: dict[str, str] = {}
        for name, attributes, _ in self.elements(f"{folder}/_rels/{base}.rels"):
            if name == "Relationship":
                target = attributes["Target"]
                whole = posixpath.normpath(posixpath.join(folder, target))
                if attributes.get("TargetMode") == "External":
                    whole = target
                found[attributes["Id"]] = target.lstrip("/") if target[:1] == "/" else whole
        return found


def local(name: str) -> str:
    """Return the name of an element or attribute without its prefix."""
    return name.rpartition(":")[2]


def elements(data: bytes) -> Iterator[tuple[str, Attributes, str]]:
    """Yield (name, attributes, text) of all elements, in the order in which they begin.

    For parts with little nesting: the text is what stands before the next element.
    """
    found: list[tuple[str, Attributes, str]] = []

    def begin(name: str, attributes: Attributes) -> None:
        found.append((local(name), attributes, ""))

    def characters(words: str) -> None:
        if found:
            name, attributes, before = found[-1]
            found[-1] = name, attributes, before + words

    parse(data, begin, lambda _: None, characters)
    yield from found


def parse(
    data: bytes,
    begin: Callable[[str, Attributes], None],
    end: Callable[[str], None],
    characters: Callable[[str], None],
) -> None:
    """Read XML. Raises ExpatError, and DamagedError for one that declares entities."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = characters

    def refuse(*_: object) -> None:
        raise DamagedError

    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)


@dataclass
class _Table:
    """A table as it grows. covered: rows below that a cell of a column still reaches into."""

    rows: list[list[str]] = field(default_factory=list)
    covered: dict[int, int] = field(default_factory=dict)
    n_more: int = 0  # columns that the last cell reaches into

    def fill(self) -> None:
        """Add the cells that others reach into."""
        if not self.rows:
            return
        row = self.rows[-1]
        row += [""] * min(self.n_more, N_COLUMN_MAX - len(row))
        self.n_more = 0
        while self.covered.get(len(row), 0) > 0 and len(row) < N_COLUMN_MAX:
            self.covered[len(row)] -= 1
            row.append("")


class Markdown:
    """Collects paragraphs and tables. Raises RequestError where the text becomes too long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: list[str] = []
        self._line: list[str] = []
        self._tables: list[_Table] = []
        self._n_char = 0
        self._counts: dict[str, list[int]] = {}  # the last number of each level, by list

    def add(self, words: str) -> None:
        """Add words to the paragraph."""
        self._n_char += len(words)
        if self._n_char > TEXT_CHARS_MAX:
            raise RequestError(text("attach.too_long", file=self._name, most=TEXT_CHARS_MAX))
        self._line.append(words)

    @property
    def is_empty(self) -> bool:
        """Return whether the paragraph has no words so far."""
        return not "".join(self._line).strip()

    def add_space(self) -> None:
        """Add a space between words."""
        if self._line and self._line[-1][-1:] not in (" ", "(", "\n", ""):
            self._line.append(" ")

    def add_address(self, address: str) -> None:
        """Add the address of a link behind its words, if they do not say it."""
        if address.startswith(_WEB) and address not in "".join(self._line):
            self.add(f" ({address})")

    def add_picture(self, words: str) -> None:
        """Add what a picture shows, in words."""
        if words := " ".join(words.split()):
            self.add(f"[picture: {words}]")

    def item(self, level: int, numbers: str = "") -> str:
        """Return the mark of an item of a list. numbers: the list, if it counts."""
        level = min(level, LEVEL_MAX)
        if not numbers:
            return INDENT * level + "- "
        counts = self._counts.setdefault(numbers, [])
        del counts[level + 1 :]
        counts += [0] * (level + 1 - len(counts))
        counts[level] += 1
        return f"{INDENT * level}{counts[level]}. "

    def end_paragraph(self, before: str = "") -> None:
        """End the paragraph, which begins with a mark such as "# "."""
        words = "".join(self._line).strip()
        self._line = []
        if not words:
            return
        if self._tables:
            rows = self._tables[-1].rows
            if rows and rows[-1]:
                rows[-1][-1] = f"{rows[-1][-1]} {words}" if rows[-1][-1] else words
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
        self._tables.append(_Table())

    def begin_row(self) -> None:
        """Begin a row of the table."""
        if self._tables:
            self._tables[-1].fill()
            self._tables[-1].rows.append([])

    def begin_cell(self) -> None:
        """Begin a cell of the row."""
        self._line = []
        if self._tables and self._tables[-1].rows:
            self._tables[-1].fill()
            row = self._tables[-1].rows[-1]
            if len(row) < N_COLUMN_MAX:
                row.append("")

    def span(self, n_column: int, n_row: int = 1) -> None:
        """Let the cell reach over columns and rows; the others that it covers are empty."""
        if not self._tables or not self._tables[-1].rows or n_column < 1:
            return
        made = self._tables[-1]
        made.n_more = min(n_column - 1, N_COLUMN_MAX)
        begin = len(made.rows[-1]) - 1
        for column in range(begin, begin + made.n_more + 1) if n_row > 1 else ():
            made.covered[column] = n_row - 1

    def repeat_cell(self, n: int) -> None:
        """Add n cells like the last one."""
        if self._tables and self._tables[-1].rows and self._tables[-1].rows[-1]:
            row = self._tables[-1].rows[-1]
            row += row[-1:] * min(n, N_COLUMN_MAX - len(row))

    def end_table(self) -> None:
        """End the table. One within a cell becomes words of it."""
        self.end_paragraph()
        if not self._tables:
            return
        self._tables[-1].fill()
        rows = self._tables.pop().rows
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
            are_items = _ITEM.match(before) and _ITEM.match(block)
            made += ("\n" if are_items else "\n\n" if made else "") + block
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
