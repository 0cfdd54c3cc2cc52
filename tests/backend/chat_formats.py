"""Real chat templates, recorded outputs, and hostile variants of them."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import pytest

from backend.llama.chat_format import ChatFormat, Rendered
from backend.llama.format_child import Service
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.messages import Decoder
from backend.system import children

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


def rotating(firsts: Iterable[Any], seconds: Sequence[Any]) -> list[Any]:
    """Return parameters: each first with one of the seconds by day, and with the others at night.

    The seconds take turns, so that each of them meets many firsts.
    """
    return [
        pytest.param(first, second, marks=[pytest.mark.night] * (i % len(seconds) != j))
        for i, first in enumerate(firsts)
        for j, second in enumerate(seconds)
    ]


class WithoutProcess:
    """The service of format_child.py in this process, for templates that are no danger.

    It looks like its process, which takes 0.4 s to start.
    """

    pid = 0

    def __init__(self) -> None:
        self.stdin = self.stdout = self
        self._decoder, self._service = Decoder(), Service()
        self._replies = b""
        self._is_alive = True

    def write(self, frames: bytes) -> int:
        self._replies += b"".join(map(self._service.reply, self._decoder.feed(bytes(frames))))
        return len(frames)

    def read(self, _n_bytes: int) -> bytes:
        replies, self._replies = self._replies, b""
        return replies

    def poll(self) -> int | None:
        return None if self._is_alive else -9

    def kill(self) -> None:
        self._is_alive = False

    def wait(self) -> int:
        return -9

    def close(self) -> None:
        pass


def open_format(name: str) -> ChatFormat:
    """Return a real template's format. The caller closes it.

    It needs no process until close(), after which it starts one.
    """
    chat_format = ChatFormat(name, template(name), "<s>", "</s>")
    with patch.object(children, "start", lambda _: WithoutProcess()):
        chat_format.start()
    return chat_format


_RENDERED: WeakKeyDictionary[ChatFormat, dict[str, Rendered]] = WeakKeyDictionary()


def rendered(chat_format: ChatFormat, messages: list[dict[str, Any]], **options: Any) -> Rendered:
    """Render a conversation without a stop, once for all tests: it takes most of their time."""
    known, asked = _RENDERED.setdefault(chat_format, {}), repr((messages, options))
    if asked not in known:
        result = chat_format.render(messages, ChatOptions(**options))
        assert result is not None
        known[asked] = result
    return known[asked]


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
