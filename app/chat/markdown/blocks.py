"""Split a growing Markdown text into blocks, so that only the last one is rendered again."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROSE_CHARS = 1500  # a block of prose ends at the first empty line after this many characters
PROSE_LINES = 40  # or after this many lines, if the next line is not indented
LONG_CHARS = 4000  # or after this many characters, at the end of a line
CUT_CHARS = 8000  # or after this many within a line, at the next space
MOST_CHARS = 16_000  # or after this many anywhere, to bound the time of rendering
LINE_CHARS = 1000  # a longer line is neither fence nor table row; only its beginning is kept

# Possessive quantifiers, so that matching takes linear time.
_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+$")
_TABLE_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(\|\s*+:?-++:?\s*+)++\|?\s*+$")


@dataclass
class Block:
    """A part of the prose in Markdown, or the content of a code fence."""

    is_code: bool
    text: str = ""
    language: str = ""


class BlockSplitter:
    """Receives text in pieces. `blocks` are the blocks so far; only the last can grow."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._open: Block | None = None
        self._fence = ""
        self._line = ""  # the beginning of the unfinished last line
        self._held = ""  # the part of that line that is in no block yet
        self._is_shown = False  # a part of that line is in a block
        self._n_line = 0  # lines of the open block of prose
        self._table = ""  # the head of the table in the open block
        self._last_line = ""

    def append(self, text: str) -> int:
        """Append text. Return the index of the first changed or new block."""
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
        """Show the text that was held back; the text is complete."""
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
                self._add(self._table, is_code=False)  # repeat the head of a long table
        self._note_table(line)
        self._add(text, is_code=False)
        self._n_line += 1
        if self._open is not None and not line.strip() and len(self._open.text) > PROSE_CHARS:
            self._open = None

    def _must_end(self, line: str) -> bool:
        """Return whether a long block has to end before this line."""
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
        """Return whether the unfinished line may still become a fence."""
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
            begin = place - len(self._open.text)  # index of the block's start in the text
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
