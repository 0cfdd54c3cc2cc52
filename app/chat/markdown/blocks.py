"""Split a growing Markdown text into blocks, so that only the last one is rendered again.

A fence of code is one wherever it begins: at any indentation, in a quotation, on the line of a list
item, or behind words that lead to it. Its content loses the indentation of the fence. A fence of
"math", as GitHub has it, is a formula once it is complete.
"""

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
_CONTAINER = re.compile(r"[ \t]*+(?:(?:[-+*]|\d{1,9}[.)])[ \t]++|>[ \t]?+)*+")
_UNFINISHED_CONTAINER = re.compile(r"[-+*]|\d{1,9}[.)]?")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+$")
_FENCE_BEHIND_WORDS = re.compile(r"(?:[^`]*+)(?:(?<=\S)|(?<=[ \t]))(`{3,}+)([\w+#.-]++)[ \t]*+$")
_QUOTED = re.compile(r".*>[ \t]?")
_QUOTE_MARK = re.compile(r" {0,3}>[ \t]?")
_TABLE_RULE = re.compile(
    r"\s*+(?:\|\s*+:?-++:?\s*+\|?|\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)++\|?)\s*+$"
)
_MARKDOWN = ("markdown", "md", "mdx")  # code in which fences stand within fences


@dataclass
class Block:
    """A part of the prose in Markdown, the content of a code fence, or the lines of a table."""

    is_code: bool
    text: str = ""
    language: str = ""
    is_table: bool = False


class BlockSplitter:
    """Receives text in pieces. `blocks` are the blocks so far; only the last can grow."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._open: Block | None = None
        self._fence = ""
        self._n_quote = 0  # marks of quotations before each line of the fence
        self._indent = 0  # columns before the fence; text of the same list item has them, too
        self._n_inner = 0  # fences that are open within a fence of Markdown
        self._line = ""  # the beginning of the unfinished last line
        self._held = ""  # the part of that line that is in no block yet
        self._is_shown = False  # a part of that line is in a block
        self._n_line = 0  # lines of the open block of prose
        self._last_line = ""  # it may be the head of a table

    def append(self, text: str) -> int:
        """Append text. Return the index of the first changed or new block."""
        first = max(len(self.blocks) - 1, 0)
        *lines, rest = text.split("\n")
        for line in lines:
            self._take(line)
            self._end_line()
        self._take(rest)
        if not self._must_wait():
            self._show_partial()
        return first

    def finish(self) -> int:
        """Show the text that was held back; the text is complete."""
        first = max(len(self.blocks) - 1, 0)
        if self._line and self._fence and self._closes(self._line):
            self._end_line()
        elif self._begins_table(self._line) or (self._is_in_table and "|" in self._line):
            self._end_line()
        else:
            self._show_partial()
        if self._fence:
            self._end_at_first_fence()
        return first

    def _end_at_first_fence(self) -> None:
        """Let a fence that has no end stop at the first line that could have been its end.

        There is one only where fences stand within a fence of Markdown.
        """
        assert self._open is not None
        lines = self._open.text.split("\n")
        end = next((i for i, line in enumerate(lines) if self._closes(line)), -1)
        if end < 0:
            return
        self._open.text = "".join(f"{line}\n" for line in lines[:end])
        self._fence, self._open, self._line, self._n_inner = "", None, "", 0
        self._held, self._is_shown = "", False
        self.append("\n".join(lines[end + 1 :]))
        self.finish()

    def _take(self, text: str) -> None:
        self._line += text[: LINE_CHARS - len(self._line)]
        self._held += text

    def _end_line(self) -> None:
        line, text, is_shown = self._line, self._held + "\n", self._is_shown
        self._line, self._held, self._is_shown = "", "", False
        if self._fence and not self._has_left_quotation(line):
            self._end_line_of_code(line, text if is_shown else self._own(text))
            return
        if not is_shown:
            text = self._own(text)
        n_char = len(line)
        if n_char < LINE_CHARS and self._begin_fence(line, text, is_shown):
            return
        if self._begins_table(line):
            self._begin_table(line, text, is_shown)
        elif self._is_in_table and "|" in line:
            self._add(text.lstrip(" \t"))
        else:
            if self._is_in_table or (not is_shown and self._must_end(line)):
                self._open = None
            self._add(text)
            self._n_line += 1
            if self._open is not None and not line.strip() and len(self._open.text) > PROSE_CHARS:
                self._open = None
        self._last_line = line if n_char < LINE_CHARS else ""

    def _end_line_of_code(self, line: str, text: str) -> None:
        if len(line) < LINE_CHARS and self._closes(line):
            if self._n_inner:
                self._n_inner -= 1
            else:
                if self._open is not None and self._open.language.lower() == "math":
                    self._open.is_code, self._open.text = False, f"$$\n{self._open.text}$$\n"
                self._fence, self._open, self._last_line = "", None, ""
                self._indent = 0 if self._n_quote else self._indent
                return
        elif self._open is not None and self._open.language.lower() in _MARKDOWN:
            inner = _FENCE.match(line.strip())
            may_close = inner is not None and inner[1].startswith(self._fence)
            self._n_inner += bool(may_close and inner and inner[2])
        self._add(text, is_code=True)

    def _begin_fence(self, line: str, text: str, is_shown: bool) -> bool:
        """Begin a fence on a complete line, if there is one."""
        container = _CONTAINER.match(line)
        assert container is not None
        if not is_shown and (fence := _FENCE.match(line, container.end())):
            self._n_quote = container[0].count(">")
            self._indent = len(_QUOTED.sub("", container[0]))
        elif fence := _FENCE_BEHIND_WORDS.match(line):
            words = len(text) - 1 - (len(line) - fence.start(1))  # of them, not shown yet
            if words >= 0:
                self._add(text[:words])
            elif self._open is not None:
                self._open.text = self._open.text[:words]
            self._n_quote = self._indent = 0
        else:
            return False
        self._fence, self._n_inner = fence[1], 0
        self._begin(Block(is_code=True, language=fence[2]))
        return True

    def _closes(self, line: str) -> bool:
        """Return whether a line ends the fence: a run of its sign, indented hardly more than it."""
        inner = self._without_quotation(line)
        body = inner.strip()
        n_space = len(inner) - len(inner.lstrip())
        is_run = len(body) >= len(self._fence) and body == self._fence[0] * len(body)
        return is_run and n_space < self._indent + 4

    def _without_quotation(self, text: str) -> str:
        for _ in range(self._n_quote):
            mark = _QUOTE_MARK.match(text)
            text = text[mark.end() :] if mark else text
        return text

    def _has_left_quotation(self, line: str) -> bool:
        """End a fence at a line without the mark of its quotation. Return whether it ended."""
        if not self._n_quote or _QUOTE_MARK.match(line):
            return False
        self._fence, self._open, self._n_quote, self._indent = "", None, 0, 0
        return True

    def _own(self, text: str) -> str:
        """Return the beginning of a line without the marks and columns before its fence."""
        if self._fence:
            text = self._without_quotation(text)
        n_space = len(text) - len(text.lstrip(" \t"))
        if not self._fence and n_space < self._indent and text.strip():
            self._indent = 0  # the item has ended
        return text[min(n_space, self._indent) :]

    @property
    def _is_in_table(self) -> bool:
        return self._open is not None and self._open.is_table

    def _begins_table(self, line: str) -> bool:
        """Return whether a line is the rule below the head of a table."""
        head = self._last_line.lstrip()
        if "|" not in head or head[0] == ">" or self._fence or self._is_in_table:
            return False
        return _TABLE_RULE.match(line) is not None and _n_cell(line) == _n_cell(head)

    def _begin_table(self, line: str, text: str, is_shown: bool) -> None:
        """Make a block of the head, which is shown as prose already, and the rule below it."""
        assert self._open is not None
        n_shown = len(line) - (len(text) - 1) if is_shown else 0
        kept = self._open.text[: len(self._open.text) - n_shown].rstrip("\n")
        before, _, head = kept.rpartition("\n")
        table = f"{head.strip()}\n{line.strip()}\n"
        if before.strip():
            self._open.text = before + "\n"
            self._begin(Block(is_code=False, text=table, is_table=True))
        else:
            self._open.text, self._open.is_table = table, True

    def _must_end(self, line: str) -> bool:
        """Return whether a long block has to end before this line."""
        if self._open is None or self._open.is_code or line[:1].isspace():
            return False
        return self._n_line >= PROSE_LINES or len(self._open.text) > LONG_CHARS

    def _show_partial(self) -> None:
        if not self._held:
            return
        if self._fence:
            self._has_left_quotation(self._line)
        if not self._is_shown:
            self._held = self._own(self._held)
            if not self._fence and (self._is_in_table or self._must_end(self._line)):
                self._open = None
        self._add(self._held, is_code=bool(self._fence))
        self._held, self._is_shown = "", True

    def _must_wait(self) -> bool:
        """Return whether the unfinished line may still become a fence, or a row of a table."""
        line = self._line
        if len(line) == LINE_CHARS or self._is_shown:
            return False
        if self._fence:
            start = line.lstrip(" \t")
            if self._n_quote and start.startswith(">"):
                start = self._without_quotation(line).lstrip(" \t")
            return self._fence.startswith(start.rstrip()) or self._closes(line)
        if self._is_in_table:
            return True
        container = _CONTAINER.match(line)
        assert container is not None
        start = line[container.end() :]
        may_be_rule = "|" in self._last_line and not start.strip("|:- \t")
        is_mark = _UNFINISHED_CONTAINER.fullmatch(start) is not None
        signs = "`" * min(len(start), 3), "~" * min(len(start), 3)
        return may_be_rule or is_mark or start[:3] in signs

    def _add(self, text: str, is_code: bool = False) -> None:
        if self._open is None or self._open.is_code != is_code:
            if not text.strip() and not is_code:
                return
            self._begin(Block(is_code))
        assert self._open is not None
        place = 0
        is_prose = not is_code and not self._open.is_table
        while is_prose and len(self._open.text) + len(text) - place > CUT_CHARS:
            begin = place - len(self._open.text)  # index of the block's start in the text
            cut = text.find(" ", max(begin + CUT_CHARS, place), begin + MOST_CHARS)
            if cut < 0 and len(text) <= begin + MOST_CHARS:
                break
            cut = cut if cut >= 0 else max(begin + MOST_CHARS, place)
            self._open.text += text[place:cut]
            place = cut
            self._begin(Block(is_code))
        self._open.text += text[place:]

    def _begin(self, block: Block) -> None:
        self._open = block
        self.blocks.append(block)
        self._n_line = 0


def _n_cell(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))) + 1
