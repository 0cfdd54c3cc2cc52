"""Cuts a growing Markdown text into blocks, so that only the last one is ever rendered again."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROSE_CHARS = 1500  # a block of prose ends at the first empty line after this many characters

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")


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
        self._add(line[self._shown :] + "\n", is_code=False)
        if self._open is not None and not line.strip() and len(self._open.text) > PROSE_CHARS:
            self._open = None

    def _show_partial(self) -> None:
        if self._shown < len(self._line):
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
        self._open.text += text


def _closes(line: str, fence: str) -> bool:
    body = line.strip()
    return len(body) >= len(fence) and set(body) == {fence[0]} and not line.startswith("    ")
