"""Cuts a growing Markdown text into blocks, so that only the last one is ever rendered again."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROSE_CHARS = 1500  # a block of prose ends at the first empty line after this many characters
PROSE_LINES = 40  # and after so many lines in any case, where the next one is not indented
LONG_CHARS = 4000  # and after so many characters, at the end of a word

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$")


@dataclass
class Block:
    """A run of prose in Markdown, or the inside of a code fence."""

    is_code: bool
    text: str = ""
    language: str = ""


class BlockSplitter:
    """Takes text in pieces. `blocks` is what is known so far; only the last of them can grow."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._open: Block | None = None
        self._fence = ""
        self._line = ""  # an unfinished last line
        self._shown = 0  # how much of that line is in the open block already
        self._n_line = 0  # of the open block of prose
        self._table = ""  # the head of the table that the open block is in
        self._last_line = ""

    def append(self, text: str) -> int:
        """Add text. Returns the index of the first block that changed or is new."""
        first = max(len(self.blocks) - 1, 0)
        *lines, rest = text.split("\n")
        for line in lines:
            self._whole_line(self._line + line)
            self._line, self._shown = "", 0
        self._line += rest
        if not self._could_be_fence(self._line):
            self._show_partial()
        return first

    def finish(self) -> int:
        """Show what was held back; no more text comes."""
        first = max(len(self.blocks) - 1, 0)
        if self._line and self._fence and _closes(self._line, self._fence):
            self._open = None
        elif self._line:
            self._show_partial()
        return first

    def _whole_line(self, line: str) -> None:
        if self._fence:
            if _closes(line, self._fence):
                self._fence, self._open = "", None
            else:
                self._add(line[self._shown :] + "\n", is_code=True)
            return
        fence = _FENCE.match(line)
        if fence and not self._shown:
            self._fence = fence[1]
            self._open = Block(is_code=True, language=fence[2])
            self.blocks.append(self._open)
            return
        if self._open is not None and not self._shown and self._must_end(line):
            self._open = None
            if self._table and "|" in line:
                self._add(self._table, is_code=False)  # a long table has its head again
        self._note_table(line)
        self._add(line[self._shown :] + "\n", is_code=False)
        self._n_line += 1
        if self._open is not None and not line.strip() and len(self._open.text) > PROSE_CHARS:
            self._open = None

    def _must_end(self, line: str) -> bool:
        """Whether a block that is long by now ends before this line."""
        if self._open is None or self._open.is_code or line[:1].isspace():
            return False
        return self._n_line >= PROSE_LINES or len(self._open.text) > LONG_CHARS

    def _note_table(self, line: str) -> None:
        if _TABLE_RULE.match(line) and "|" in self._last_line:
            self._table = f"{self._last_line}\n{line}\n"
        elif "|" not in line:
            self._table = ""
        self._last_line = line

    def _show_partial(self) -> None:
        if self._shown < len(self._line):
            if not self._fence and self._line[self._shown :][:1] == " ":
                if self._open is not None and len(self._open.text) > 2 * LONG_CHARS:
                    self._open = None
            if not self._fence and not self._shown and self._must_end(self._line):
                if self._table or self._line[0] in "|#>-+*0123456789":
                    return  # wait for the whole line
                self._open = None
            self._add(self._line[self._shown :], is_code=bool(self._fence))
            self._shown = len(self._line)

    def _could_be_fence(self, line: str) -> bool:
        """Whether an unfinished line may still turn out to open or close a fence."""
        start = line.lstrip(" ")
        if self._fence:
            return self._fence.startswith(start.rstrip()) or _closes(line, self._fence)
        if self._shown:
            return False
        if not start:
            return True
        return start[0] in "`~" and (start[:3] == start[0] * min(len(start), 3))

    def _add(self, text: str, is_code: bool) -> None:
        if self._open is None or self._open.is_code != is_code:
            if not text.strip() and not is_code:
                return
            self._open = Block(is_code)
            self.blocks.append(self._open)
            self._n_line = 0
        self._open.text += text


def _closes(line: str, fence: str) -> bool:
    body = line.strip()
    return len(body) >= len(fence) and set(body) == {fence[0]} and not line.startswith("    ")
