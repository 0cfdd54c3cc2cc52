"""Cuts a growing Markdown text into blocks, so that only the last one is ever rendered again."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROSE_CHARS = 1500  # a block of prose ends at the first empty line after this many characters
PROSE_LINES = 40  # and after so many lines in any case, where the next one is not indented
LONG_CHARS = 4000  # and after so many characters, at the end of a line
CUT_CHARS = 8000  # and after so many within a line, at the next space
MOST_CHARS = 16_000  # and after so many anywhere, so that a block is always quickly rendered
LINE_CHARS = 1000  # a longer line is no fence and no row of a table: only its beginning is kept

# Possessive, so that a line of any text takes linear time.
_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+$")
_TABLE_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(\|\s*+:?-++:?\s*+)++\|?\s*+$")


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
        self._line = ""  # the beginning of the last line, which is unfinished
        self._held = ""  # of that line, what is in no block yet
        self._is_shown = False  # of that line, something is in a block
        self._n_line = 0  # of the open block of prose
        self._table = ""  # the head of the table that the open block is in
        self._last_line = ""

    def append(self, text: str) -> int:
        """Add text. Returns the index of the first block that changed or is new."""
        first = max(len(self.blocks) - 1, 0)
        *lines, rest = text.split("\n")
        for line in lines:
            self._take(line)
            self._end_line()
        self._take(rest)
        if not self._could_be_fence():
            self._show_partial()
        return first

    def finish(self) -> int:
        """Show what was held back; no more text comes."""
        first = max(len(self.blocks) - 1, 0)
        if self._line and self._fence and _closes(self._line, self._fence):
            self._open = None
        else:
            self._show_partial(is_last=True)
        return first

    def _take(self, text: str) -> None:
        self._line += text[: LINE_CHARS - len(self._line)]
        self._held += text

    def _end_line(self) -> None:
        line, text, is_shown = self._line, self._held + "\n", self._is_shown
        self._line, self._held, self._is_shown = "", "", False
        if self._fence:
            if len(line) < LINE_CHARS and _closes(line, self._fence):
                self._fence, self._open = "", None
            else:
                self._add(text, is_code=True)
            return
        fence = _FENCE.match(line) if len(line) < LINE_CHARS else None
        if fence and not is_shown:
            self._fence = fence[1]
            self._open = Block(is_code=True, language=fence[2])
            self.blocks.append(self._open)
            return
        if self._open is not None and not is_shown and self._must_end(line):
            self._open = None
            if self._table and "|" in line:
                self._add(self._table, is_code=False)  # a long table has its head again
        self._note_table(line)
        self._add(text, is_code=False)
        self._n_line += 1
        if self._open is not None and not line.strip() and len(self._open.text) > PROSE_CHARS:
            self._open = None

    def _must_end(self, line: str) -> bool:
        """Whether a block that is long by now ends before this line."""
        if self._open is None or self._open.is_code or line[:1].isspace():
            return False
        return self._n_line >= PROSE_LINES or len(self._open.text) > LONG_CHARS

    def _note_table(self, line: str) -> None:
        if len(line) == LINE_CHARS:
            self._table = self._last_line = ""
            return
        if "|" in self._last_line and _TABLE_RULE.match(line):
            self._table = f"{self._last_line}\n{line}\n"
        elif "|" not in line:
            self._table = ""
        self._last_line = line

    def _show_partial(self, is_last: bool = False) -> None:
        if not self._held:
            return
        if not self._fence and not self._is_shown and self._must_end(self._line):
            may_be_row = self._table or self._line[0] in "|#>-+*0123456789"
            if may_be_row and len(self._line) < LINE_CHARS and not is_last:
                return  # wait for the whole line
            self._open = None
        self._add(self._held, is_code=bool(self._fence))
        self._held, self._is_shown = "", True

    def _could_be_fence(self) -> bool:
        """Whether the unfinished line may still turn out to open or close a fence."""
        line = self._line
        if len(line) == LINE_CHARS:
            return False
        start = line.lstrip(" ")
        if self._fence:
            return self._fence.startswith(start.rstrip()) or _closes(line, self._fence)
        if self._is_shown:
            return False
        return not start or start[:3] in ("`" * min(len(start), 3), "~" * min(len(start), 3))

    def _add(self, text: str, is_code: bool) -> None:
        if self._open is None or self._open.is_code != is_code:
            if not text.strip() and not is_code:
                return
            self._begin(is_code)
        assert self._open is not None
        place = 0
        while not is_code and len(self._open.text) + len(text) - place > CUT_CHARS:
            begin = place - len(self._open.text)  # where the block would begin in the text
            cut = text.find(" ", max(begin + CUT_CHARS, place), begin + MOST_CHARS)
            if cut < 0 and len(text) <= begin + MOST_CHARS:
                break
            cut = cut if cut >= 0 else max(begin + MOST_CHARS, place)
            self._open.text += text[place:cut]
            place = cut
            self._begin(is_code)
        self._open.text += text[place:]

    def _begin(self, is_code: bool) -> None:
        self._open = Block(is_code)
        self.blocks.append(self._open)
        self._n_line = 0


def _closes(line: str, fence: str) -> bool:
    body = line.strip()
    is_run = len(body) >= len(fence) and body == fence[0] * len(body)
    return is_run and not line.startswith("    ")
