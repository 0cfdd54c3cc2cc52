"""Streamed Markdown becomes the same blocks, wherever the pieces are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.markdown.blocks import PROSE_CHARS, Block, BlockSplitter

TEXT = """Before the code:

```python
def f():
    return "``"
```

Between.

~~~
plain ``` inside
~~~
After `inline` code."""


def split(pieces: list[str]) -> list[Block]:
    splitter = BlockSplitter()
    for piece in pieces:
        splitter.append(piece)
    splitter.finish()
    return splitter.blocks


def test_code_and_prose_are_told_apart() -> None:
    blocks = split([TEXT])
    assert [block.is_code for block in blocks] == [False, True, False, True, False]
    assert blocks[1].language == "python"
    assert blocks[1].text == 'def f():\n    return "``"\n'
    assert blocks[3].text == "plain ``` inside\n"
    assert blocks[4].text.strip() == "After `inline` code."


def test_a_fence_of_mathematics_is_a_formula_once_it_is_complete() -> None:
    splitter = BlockSplitter()
    splitter.append("So:\n```math\nx^2 \\\\\ny\n")
    assert splitter.blocks[-1].is_code
    splitter.append("```\nEnd")
    splitter.finish()
    assert [block.is_code for block in splitter.blocks] == [False, False, False]
    assert splitter.blocks[1].text == "$$\nx^2 \\\\\ny\n$$\n"
    assert splitter.blocks[2].text == "End"


@given(st.lists(st.integers(0, len(TEXT)), max_size=40))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    places = sorted({0, len(TEXT), *cuts})
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(places)]
    assert split(pieces) == split([TEXT])


@given(st.text(alphabet="`~ \nab", max_size=60), st.integers(0, 60))
def test_nothing_but_fences_is_lost(text: str, cut: int) -> None:
    whole, parts = split([text]), split([text[:cut], text[cut:]])
    assert whole == parts
    kept = "".join(block.text for block in whole)
    assert kept.count("a") + kept.count("b") >= sum(
        line.count("a") + line.count("b")
        for line in text.split("\n")
        if not line.lstrip().startswith(("```", "~~~"))
    )


def test_a_fence_is_not_shown_before_it_is_known() -> None:
    splitter = BlockSplitter()
    splitter.append("Look:\n")
    splitter.append("``")
    assert splitter.blocks[-1].text == "Look:\n"
    splitter.append("`py\nx = 1\n``")
    assert splitter.blocks[-1] == Block(is_code=True, text="x = 1\n", language="py")


def test_only_the_last_block_changes() -> None:
    splitter = BlockSplitter()
    paragraph = "word " * 100 + "\n\n"
    n_changed = []
    for _ in range(60):
        first = splitter.append(paragraph)
        n_changed.append(len(splitter.blocks) - first)
    assert len(splitter.blocks) > 10
    assert max(n_changed) <= 2
    assert max(len(block.text) for block in splitter.blocks) < PROSE_CHARS + 2 * len(paragraph)


@pytest.mark.parametrize("text", ["", "\n\n\n", "   "])
def test_empty_text_has_no_blocks_to_speak_of(text: str) -> None:
    assert not "".join(block.text for block in split([text])).strip()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- ```py\n  x\n    y\n  ```\n  more\n- next", ["py|x\n  y\n", "more\n- next"]),
        ("1. a\n   ```sh\n   ls\n   ```\n   - b\n2. c", ["1. a\n", "sh|ls\n", "- b\n2. c"]),
        ("> a\n> ```js\n> a > b\n>   c\n> ```\n> d", ["> a\n", "js|a > b\n  c\n", "> d"]),
        ("> ```\n> open\nend", ["|open\n", "end"]),
        ("Code: ```python\nx\n```\nAfter", ["Code: ", "python|x\n", "After"]),
        ("      ```c\n      int x;\n      ```\nz", ["c|int x;\n", "z"]),
        ("\t- ```\n\t  x\n\t  ```\nz", ["|x\n", "z"]),
        ("```md\n# T\n```py\nx\n```\nend\n```\nz", ["md|# T\n```py\nx\n```\nend\n", "z"]),
        ("~~~\na\n    ~~~\n~~~\nb", ["|a\n    ~~~\n", "b"]),
        ("Use ```\nas fence", ["Use ```\nas fence"]),
        ("so `x` and ```y``` z", ["so `x` and ```y``` z"]),
        ("i\n| a | b |\n|-|:-:|\n| 1 | 2 |\no", ["i\n", "T|| a | b |\n|-|:-:|\n| 1 | 2 |\n", "o"]),
        ("a | b\n--|--\n1 | 2\n\nz", ["T|a | b\n--|--\n1 | 2\n", "z"]),
        ("- x\n  | p |\n  |---|\n  | 1 |\n- y", ["- x\n", "T|| p |\n|---|\n| 1 |\n", "- y"]),
        ("| a | b |\n|---|", ["| a | b |\n|---|"]),
        ("> | a |\n> |---|\n> | 1 |", ["> | a |\n> |---|\n> | 1 |"]),
        ("a | b\n\nx\n---\ny", ["a | b\n\nx\n---\ny"]),
    ],
)  # fmt: skip
def test_fences_and_tables_anywhere_are_blocks_of_their_own(text: str, shown: list[str]) -> None:
    for pieces in ([text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)]):
        found = []
        for block in split(pieces):
            kind = f"{block.language}|" if block.is_code else "T|" if block.is_table else ""
            found.append(kind + block.text)
        assert found == shown


@given(st.text(alphabet="`|-> \n1.a", max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_cuts_do_not_matter_for_lists_quotations_and_tables(text: str, a: int, b: int) -> None:
    a, b = min(a, b), max(a, b)
    assert split([text[:a], text[a:b], text[b:]]) == split([text])


@pytest.mark.parametrize(
    ("text", "code", "after"),
    [
        ("````md\n```py\na\n```\n````\nend", "```py\na\n```\n", "end"),
        ("```md\n```py\na\n```\nb\n```\nend", "```py\na\n```\nb\n", "end"),
        ("```md\n```py\na\n```\nend", "```py\na\n", "end"),  # its own end is missing
        ("~~~md\n```py\na\n~~~\nend", "```py\na\n", "end"),
        ("```md\n````py\na\n````\n```\nend", "````py\na\n````\n", "end"),
        ("```md\n```py\na", "```py\na", ""),
    ],
)
def test_nothing_behind_fences_within_markdown_becomes_code(
    text: str, code: str, after: str
) -> None:
    for n in (1, 4, len(text)):
        blocks = split([text[i : i + n] for i in range(0, len(text), n)])
        assert blocks[0] == Block(is_code=True, text=code, language="md")
        assert "".join(block.text for block in blocks[1:]) == after
