"""The code that handles a model's output takes time linear in the output's length.

Each check runs in a process whose processor time is limited to about ten times the time of linear
work. Quadratic work takes at least a hundred times as long.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from app.chat.markdown.blocks import MOST_CHARS, BlockSplitter

CHECK = """
from app.chat.markdown.blocks import BlockSplitter
from app.chat.markdown.latex import readable, replace_math
from app.chat.markdown.meant import as_meant
from backend.system.limits import time_limit

N = 100_000
UNITS = [
    r"\\(", r"\\[", r"\\(a\\) ", "`", "``a", "$", "$$", "$a", "[", "<", "*", "|", "#", "x", " ",
    "~", "> ", "- ", "<think>", "```\\n", "x\\n", "| a |\\n|---|\\n", "{", r"\\frac{",
    "^{", "_", "a_", r"\\begin{align}", r"\\left(", "x'", "\\n> $$ x",
    "<b>", "</b>", "<br>", "<p ", "**a", "a**", "[^a]", "\\n[^a]: ", "![a](b)", "![",
    "[![a](b)](c)", "\u0627 /a", "    x\\n\\n", "](http://", "<http:", "-a/", "-\u0627 ",
]
TEXTS = [unit * (N // len(unit)) for unit in UNITS]
TEXTS += ["~" * N + "`", "```\\n" + " " * N, "```\\n" + "x" * N, "`" * N + "\\n"]
TEXTS += ["|" + "-|" * N + "x"]

def split(text, n_char):
    splitter = BlockSplitter()
    for i in range(0, len(text), n_char):
        splitter.append(text[i : i + n_char])
    splitter.finish()

def whole(text):
    split(text, N)
    split(text + "\\n", 2 * N)

def streamed(text):
    split(text, 3)

with time_limit(20.0):
    for text in TEXTS:
        FUNCTION(text)
"""


@pytest.mark.skipif(os.name == "nt", reason="processor time cannot be limited")
@pytest.mark.parametrize("function", ["replace_math", "readable", "as_meant", "whole", "streamed"])
def test_long_outputs_take_linear_time(function: str) -> None:
    code = CHECK.replace("FUNCTION", function)
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("n_char", [1, 1000, 100_000])
@pytest.mark.parametrize("line", ["x", "word ", "    indented\n"])
def test_a_block_never_grows_without_end(line: str, n_char: int) -> None:
    text = line * (100_000 // len(line))
    splitter = BlockSplitter()
    for i in range(0, len(text), n_char):
        splitter.append(text[i : i + n_char])
    splitter.finish()
    assert max(len(block.text) for block in splitter.blocks) <= MOST_CHARS
    assert "".join(block.text for block in splitter.blocks).rstrip("\n") == text.rstrip("\n")


def test_the_last_line_of_a_long_list_is_shown() -> None:
    splitter = BlockSplitter()
    splitter.append("".join(f"{n}. x\n" for n in range(1, 41)) + "41. the last")
    splitter.finish()
    assert splitter.blocks[-1].text.endswith("41. the last")
