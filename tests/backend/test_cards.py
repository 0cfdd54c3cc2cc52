"""What the hub says of a model becomes a short plain text, whatever a stranger wrote."""

from __future__ import annotations

from typing import Any

import pytest

from backend.downloads.cards import TEXT_CHARS_MAX, Card, card_of, plain

README = """---
license: apache-2.0
language: [en]
---
<div align="center"><img src="https://example.com/x.png"></div>

# Small GGUF
[![badge](https://img.example/x.svg)](https://x) ![pic](y.png)

**Small** is a *mixture-of-experts* model of [30B](https://x.y) weights, with `snake_case` names
&amp; more.

| a table of a row that is long enough to be shown |
|---|

```python
print("a line of code that is long enough to be shown")
```
<!-- a remark that is long enough to be shown -->
- It was trained on <b>many</b> words, and on <script>alert("a longer program")</script>pictures.

[1]: https://example.com/a-target-that-is-long
"""


def test_a_readme_becomes_plain_text() -> None:
    assert plain(README) == (
        "Small is a mixture-of-experts model of 30B weights, with snake_case names & more. "
        "It was trained on many words, and on pictures."
    )
    long = plain("This model knows words. " * 100)
    assert len(long) <= TEXT_CHARS_MAX + 1 and long.endswith("\u2026")


@pytest.mark.parametrize(
    "text",
    ["<", "[", "![", "*", "<a ", "```\n", "<!--", "| ", "- ", "<table", "[a](", "---\n", "&#60;b>",
     "[x]: ", "\u202e", "\x1b]8;;x", "![a][", "<b ", "~~~", "_", "> ", "\n", "&lt;img src=x&gt; "],
)  # fmt: skip
def test_what_never_ends_ends_here(text: str) -> None:
    """Each is a README of 32 kB; a search that goes back again and again would take minutes."""
    shown = plain(text * (32_768 // len(text)) + "\n\nThe end of a text of some length.")
    assert len(shown) <= TEXT_CHARS_MAX + 1 and "\u202e" not in shown and "\x1b" not in shown


def test_a_card() -> None:
    template = "{%- if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking %}"
    about: dict[str, Any] = {
        "tags": ["gguf", "license:mit", 7], "pipeline_tag": "image-text-to-text",
        "cardData": {"license": "other", "license_name": "tiny-licence", "base_model": ["a/b"]},
        "gguf": {"chat_template": template, "architecture": "qwen3moe"},
    }  # fmt: skip
    assert card_of(about, "") == Card("", "tiny-licence", "a/b", True, True, True)
    assert card_of({"tags": ["license:mit"], "gguf": {"chat_template": "{{ x }}"}}, "") == Card(
        licence="mit"
    )


@pytest.mark.parametrize(
    "about",
    [None, [], "x", {"tags": 7, "cardData": [], "gguf": "x"},
     {"cardData": {"license": ["a"], "base_model": {"x": 1}}, "gguf": {"chat_template": ["x"]}},
     {"cardData": {"license": "a\u202eb\nc", "base_model": [7]}}],
)  # fmt: skip
def test_odd_cards(about: Any) -> None:
    card = card_of(about, "\ufffd" * 99)
    assert (card.sees, card.thinks, card.calls_tools, card.base) == (False, False, False, "")
    assert card.licence in ("", "ab c")
