"""Real chat templates, recorded outputs, and hostile variants of them."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

from backend.llama.chat_format import ChatFormat, Rendered
from backend.protocol.chat import AnswerText, ChatOptions

DATA = zipfile.Path(Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip")
TEMPLATES = sorted(path.stem for path in DATA.iterdir() if path.suffix == ".jinja")
OUTPUTS: list[dict[str, Any]] = json.loads((DATA / "outputs.json").read_text(encoding="utf-8"))

ELSEWISE = {
    14: AnswerText("REASONING", "CONTENT"),
    15: AnswerText("", "CONTENT"),
    46: AnswerText("", "Greet.Hello!"),
}
"""Outputs, by index, that are not split as outputs.json expects, with what they are split into.

14: the file has llama.cpp's expectation, whose test ignores white space around the parts. Its
parser returns "REASONING" and "\\nCONTENT". 15: the file has no content, but llama.cpp's test and
parser have "CONTENT". 46: the marks of the thought are lost, so that nobody can find its end.
"""

_PIECES = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% set n = namespace(x='xy') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{{ range(9999999999) | list }}",
    "{{ messages[99].content.nothing }}",
    "{% set a = namespace(x=1) %}{% set a.x = a %}{{ a | tojson }}",
    "{{ raise_exception('no') }}",
    "{{ 'x' | elephant }}",
    "{{ " + "(" * 99999,
    "{% if",
    "{% endfor %}",
    "{{ 1 // 0 }}{{ 1 % 0 }}",
    "\x00\ud7ff\ue000",
)


def template(name: str) -> str:
    """Return the source of a real template."""
    return (DATA / f"{name}.jinja").read_text(encoding="utf-8")


def open_format(name: str) -> ChatFormat:
    """Return a real template's format. The caller closes it."""
    return ChatFormat(name, template(name), "<s>", "</s>")


def rendered(chat_format: ChatFormat, messages: list[dict[str, Any]], **options: Any) -> Rendered:
    """Render a conversation without a stop."""
    result = chat_format.render(messages, ChatOptions(**options))
    assert result is not None
    return result


def read(chat_format: ChatFormat, prompt: Rendered, output: str, n_step: int) -> AnswerText:
    """Read an output in pieces of n_step letters. Return the sum of the deltas."""
    reader, answer = chat_format.reader(prompt), AnswerText()
    for i in range(0, len(output), n_step):
        answer.add(reader.feed(output[i : i + n_step]))
    answer.add(reader.finish())
    assert reader.shown == answer
    return answer


def mutant(seed: int) -> str:
    """Return a real template with damage: parts cut, doubled or swapped, and hostile pieces."""
    chance = random.Random(seed)
    source = template(chance.choice(TEMPLATES))
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.randrange(len(source) + 1) for _ in range(2))
        source = {
            "cut": source[:at] + source[to:],
            "double": source[:to] + source[at:],
            "insert": source[:at] + chance.choice(_PIECES) + source[at:],
            "letter": source[:at] + chr(chance.randrange(1, 0x3000)) + source[at + 1 :],
        }[chance.choice(("cut", "double", "insert", "letter"))]
    return source
