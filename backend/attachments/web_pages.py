"""Web pages (HTML) and electronic books (EPUB 3)."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from urllib.parse import unquote

from backend.attachments.document_parts import INDENT, LEVEL_MAX, Archive, Markdown, elements

HTML_SOURCE_CHARS = 20_000
"""A shorter web page is attached as its source: somebody may have written it."""


def epub(archive: Archive) -> str:
    """Return the title and the chapters of a book, in their order."""
    made = Markdown(archive.name)
    package = next(
        attributes["full-path"]
        for name, attributes, _ in elements(archive.read("META-INF/container.xml"))
        if name == "rootfile"
    )
    items: dict[str, str] = {}
    for name, attributes, words in elements(archive.read(package)):
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
        self._lists: list[str] = []  # the open ones: what counts their items; "": nothing
        self._n_list = 0

    def read(self, source: str) -> None:
        """Read a whole page."""
        self.feed(source)
        self.close()
        self._made.end_paragraph(self._mark)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._WITHOUT:
            self._skipped += 1
        elif re.fullmatch("h[1-6]", tag) or tag in self._BLOCKS or tag == "title":
            is_begun = self._mark if self._made.is_empty else ""
            self._end()
            if tag in ("ul", "ol"):
                self._n_list += 1
                self._lists.append(f"list {self._n_list}" if tag == "ol" else "")
            elif tag == "li":
                level = max(len(self._lists) - 1, 0)
                self._mark = self._made.item(level, self._lists[-1] if self._lists else "")
            elif self._lists and tag in ("p", "div"):
                self._mark = is_begun or INDENT * min(len(self._lists), LEVEL_MAX)
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
            self._made.span(*(_whole(dict(attrs).get(name)) for name in ("colspan", "rowspan")))

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
            if tag in ("ul", "ol") and self._lists:
                self._lists.pop()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._made.add(data if self._is_code else re.sub(r"\s+", " ", data))

    def _end(self) -> None:
        self._made.end_paragraph(self._mark)
        self._mark = ""


def _whole(value: str | None) -> int:
    """Return the number of columns or rows that a cell reaches over."""
    return min(max(int(value), 1), 1000) if value and value.isdecimal() else 1
