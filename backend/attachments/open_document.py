"""Documents of OpenDocument 1.3: texts, spreadsheets and presentations."""

from __future__ import annotations

from backend.attachments.document_parts import INDENT, Archive, Attributes, Markdown, parse

_WITHOUT = ("text:tracked-changes", "draw:object", "text:note-citation", "svg:title", "dc:date")
_CELLS = ("table:table-cell", "table:covered-table-cell")


def read(archive: Archive) -> str:
    """Return the text of a document; notes and comments stand where they are referred to."""
    made = Markdown(archive.name)
    reader = _Reader(made, b"opendocument.spreadsheet" in archive.read("mimetype"))
    for member in ("styles.xml", "content.xml"):
        if member in archive:
            reader.read(archive.read(member))
    return made.whole()


class _Reader:
    """Reads the styles of a document, and then its contents."""

    def __init__(self, made: Markdown, is_sheet: bool) -> None:
        self._made, self._is_sheet = made, is_sheet
        self._style = ""  # whose definition is being read
        self._parents: dict[str, str] = {}  # of styles
        self._hidden: set[str] = set()  # styles of sheets that are not shown
        self._counting: set[tuple[str, int]] = set()  # (list style, level) with numbers
        self._lists: list[str] = []  # the styles of the open ones
        self._n_list = 0  # lists so far that lie in no other
        self._is_first = False  # paragraph of an item
        self._mark = ""
        self._is_inside, self._skipped, self._n_paragraph, self._repeated = False, 0, 0, 1
        self._n_notes = 0  # open notes of a speaker
        self._addresses: list[str] = []

    def read(self, data: bytes) -> None:
        """Read a member."""
        parse(data, self._begin, self._end, self._characters)

    def _characters(self, words: str) -> None:
        if self._n_paragraph and not self._skipped:
            self._made.add(words)

    def _begin(self, name: str, attributes: Attributes) -> None:
        if name == "office:body":
            self._is_inside = True
        elif not self._is_inside:
            self._define(name, attributes)
            return
        self._skipped += name in _WITHOUT
        if self._skipped:
            return
        if name in ("text:h", "text:p", "dc:creator"):
            if not self._n_paragraph:
                self._mark = self._mark_of(name, attributes)
            else:
                self._made.add_space()
                self._made.add("by " if name == "dc:creator" else "")
            self._n_paragraph += 1
        elif name == "text:list":
            self._n_list += not self._lists
            outer = self._lists[-1] if self._lists else ""
            self._lists.append(attributes.get("text:style-name", outer))
        elif name == "text:list-item":
            self._is_first = True
        elif name in ("text:note-body", "office:annotation"):
            self._n_paragraph += name == "office:annotation"
            self._made.add_space()
            self._made.add("(" if name == "text:note-body" else "[comment")
        elif name in ("text:s", "text:tab", "text:line-break"):
            self._made.add("\n" if name == "text:line-break" else " ")
        elif name == "text:a":
            self._addresses.append(attributes.get("xlink:href", ""))
        elif name == "svg:desc":
            self._n_paragraph += 1
            self._made.add("[picture: ")
        elif name == "draw:page":
            self._made.block(f"## {attributes.get('draw:name', '')}")
        elif name == "presentation:notes":
            self._made.end_paragraph()
            self._n_notes += 1
        else:
            self._begin_table(name, attributes)

    def _begin_table(self, name: str, attributes: Attributes) -> None:
        if name == "table:table":
            if self._is_sheet:
                is_hidden = attributes.get("table:style-name") in self._hidden
                title = attributes.get("table:name", "")
                self._made.block(f"## {title}{' (hidden)' if is_hidden else ''}")
            self._made.begin_table()
        elif name == "table:table-row":
            self._made.begin_row()
        elif name in _CELLS:
            self._made.begin_cell()
            count = attributes.get("table:number-columns-repeated", "1")
            self._repeated = int(count) if count.isdecimal() else 1

    def _define(self, name: str, attributes: Attributes) -> None:
        """Note a style."""
        if name in ("style:style", "text:list-style"):
            self._style = attributes.get("style:name", "")
            self._parents[self._style] = attributes.get("style:parent-style-name", "")
        elif name == "text:list-level-style-number" and attributes.get("style:num-format"):
            level = attributes.get("text:level", "1")
            self._counting.add((self._style, int(level) if level.isdecimal() else 1))
        elif name == "style:table-properties" and attributes.get("table:display") == "false":
            self._hidden.add(self._style)

    def _mark_of(self, name: str, attributes: Attributes) -> str:
        """Return what a paragraph begins with."""
        style = attributes.get("text:style-name", "")
        if self._n_notes:
            return "> "
        if name == "text:h":
            outline = attributes.get("text:outline-level", "1")
            return "#" * min(int(outline) if outline.isdecimal() else 1, 6) + " "
        if "Title" in (style, self._parents.get(style)):
            return "# "
        if not self._lists:
            return ""
        level, is_first = len(self._lists) - 1, self._is_first
        self._is_first = False
        if not is_first:
            return INDENT * (level + 1)
        counts = (self._lists[-1], level + 1) in self._counting
        return self._made.item(level, f"list {self._n_list}" if counts else "")

    def _end(self, name: str) -> None:
        if not self._is_inside:
            return
        if self._skipped:
            self._skipped -= name in _WITHOUT
            return
        if name in ("text:h", "text:p", "dc:creator"):
            self._n_paragraph -= 1
            if name == "dc:creator":
                self._made.add(":")
            elif not self._n_paragraph:
                self._made.end_paragraph(self._mark)
        elif name == "text:list" and self._lists:
            self._lists.pop()
        elif name == "text:note-body":
            self._made.add(")")
        elif name in ("office:annotation", "svg:desc"):
            self._n_paragraph -= 1
            self._made.add("]" if name == "svg:desc" else "] ")
        elif name == "text:a" and self._addresses:
            self._made.add_address(self._addresses.pop())
        elif name == "presentation:notes":
            self._made.end_paragraph("> ")
            self._n_notes -= 1
        elif name in _CELLS:
            self._made.repeat_cell(self._repeated - 1)
        elif name == "table:table":
            self._made.end_table()
