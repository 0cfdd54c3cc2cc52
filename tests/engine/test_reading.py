"""Answers that are split while they stream, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import of_chat
from reciter import make_reciter
from waiting import WAIT_S

from backend.engine.engine import Engine, EngineError, Piece
from backend.llama.api import LlamaError
from backend.llama.chat_format import Rendered
from backend.protocol.chat import AnswerText, ChatOptions, Delta, ToolCall
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
ASKED = [{"role": "user", "content": "?"}]
TEXT = "abc<def>[ghi]jk"


class Reader:
    """Letters up to "c" are thought, those from "[" on are a call, the rest is content.

    It waits for `may_read` before it reads, and fails at a letter of `fails_at`.
    """

    def __init__(self, may_read: threading.Event, fails_at: str) -> None:
        self._may_read, self._fails_at = may_read, fails_at
        self._has_call = False

    def feed(self, text: str) -> Delta:
        self._may_read.wait(WAIT_S)
        delta = Delta()
        for letter in text:
            if letter in self._fails_at:
                raise LlamaError("The reader failed.")
            if letter in "abc":
                delta = delta.then(Delta(reasoning=letter))
            elif letter == "[" or self._has_call:
                call = ToolCall("", "", letter) if self._has_call else ToolCall("id", "f", letter)
                delta = delta.then(Delta(tool_calls={0: call}))
                self._has_call = True
            else:
                delta = delta.then(Delta(content=letter))
        return delta

    def finish(self) -> Delta:
        return Delta(content="." if not self._has_call else "")


class Format:
    """Renders every conversation as a line break, and reads with Reader."""

    def __init__(self) -> None:
        self.may_read = threading.Event()
        self.may_read.set()
        self.fails_at = ""

    def render(self, messages: Any, *_: Any) -> Rendered:
        return Rendered("\n", stops=("jk",))

    def reader(self, _: Rendered) -> Reader:
        return Reader(self.may_read, self.fails_at)

    def stop(self) -> None:
        """Do nothing."""

    close = stop


@pytest.fixture
def engine(open_engine: OpenEngine, tmp_path: Path) -> Engine:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", TEXT))
    engine.loaded.weights.chat_format = Format()
    return engine


def ask(engine: Engine, n: int = -1, **more: Any) -> tuple[list[Piece], AnswerText]:
    answer = AnswerText()
    messages = more.pop("messages", ASKED)
    pieces = list(engine.answer(of_chat(messages, GREEDY, n, on_delta=answer.add, **more)))
    return pieces, answer


def raw_of(engine: Engine) -> str:
    assert engine.last is not None
    return "".join(engine.last.raw)


def test_an_answer_is_split_and_cut_at_a_stop(engine: Engine) -> None:
    pieces, answer = ask(engine)
    assert "".join(p.text for p in pieces) == "abc<def>[ghi]"
    assert raw_of(engine) == TEXT and len(pieces) == len(TEXT)
    assert answer == AnswerText("abc", "<def>", [ToolCall("id", "f", "[ghi]")])
    assert engine.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("stop", "text"), [("f>[g", "abc<de"), ("zz", "abc<def>[ghi]"), ("i]j", "abc<def>[gh")]
)
def test_stops_are_cut_within_the_engine(stop: str, text: str, engine: Engine) -> None:
    options = ChatOptions(stops=(stop,))
    pieces, answer = ask(engine, options=options)
    assert "".join(p.text for p in pieces) == text
    assert answer.reasoning + answer.content.rstrip(".") == text.partition("[")[0]
    assert engine.finish_reason == ("tool_calls" if "[" in text else "stop")
    assert engine.last is not None and raw_of(engine).startswith(text)
    assert engine.last.stop_text == ("jk" if stop == "zz" else stop)


def test_what_was_held_back_comes_at_the_end(engine: Engine) -> None:
    """The limit comes after "j", which may begin the stop "jk"."""
    pieces, answer = ask(engine, len(TEXT) - 1)
    assert "".join(p.text for p in pieces) == TEXT[:-1] and engine.finish_reason == "length"
    assert answer.tool_calls == [ToolCall("id", "f", "[ghi]j")]


def test_a_slow_reader_does_not_hold_up_decoding(engine: Engine) -> None:
    chat_format: Any = engine.loaded.weights.chat_format
    chat_format.may_read.clear()
    deltas: list[Delta] = []
    pieces = engine.answer(of_chat(ASKED, GREEDY, 10, on_delta=deltas.append))
    for _ in range(9):
        next(pieces)
    assert deltas == []
    chat_format.may_read.set()
    list(pieces)
    assert sum(len(d.reasoning + d.content) for d in deltas) == len("abc<def>")


@pytest.mark.parametrize("n", [1, 3, 6])
def test_closing_an_answer_delivers_what_was_made(n: int, engine: Engine) -> None:
    answer = AnswerText()
    pieces = engine.answer(of_chat(ASKED, GREEDY, -1, on_delta=answer.add))
    for _ in range(n):
        next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert answer.reasoning + answer.content == TEXT[:n] + "."
    assert engine.finish_reason == "cancelled"
    assert not any(thread.name == "answer reader" for thread in threading.enumerate())


def test_a_stopped_answer_delivers_what_was_made(engine: Engine) -> None:
    answer = AnswerText()
    pieces = engine.answer(of_chat(ASKED, GREEDY, -1, on_delta=answer.add))
    next(pieces)
    engine.stop()
    list(pieces)
    assert answer == AnswerText("a", ".") and engine.finish_reason == "cancelled"


def test_a_reader_that_fails_ends_the_answer(engine: Engine) -> None:
    chat_format: Any = engine.loaded.weights.chat_format
    chat_format.fails_at = "d"
    with pytest.raises(EngineError, match="^The reader failed.$"):
        ask(engine)
    chat_format.fails_at = ""
    assert ask(engine)[1].reasoning == "abc"


def test_a_listener_that_fails_ends_the_answer(engine: Engine) -> None:
    def listen(delta: Delta) -> None:
        raise KeyError("listener")

    with pytest.raises(KeyError, match="listener"):
        list(engine.answer(of_chat(ASKED, GREEDY, -1, on_delta=listen)))
    assert ask(engine)[1].reasoning == "abc"


@pytest.mark.parametrize("n", range(1, 9))
def test_an_answer_goes_on_with_its_reader_where_it_was_cut(n: int, engine: Engine) -> None:
    """Thought, content and call; what finish() added at the cut is not said again."""
    _, whole = ask(engine)
    _, first = ask(engine, n)
    messages = [*ASKED, first.to_message()]
    _, second = ask(engine, messages=messages)
    assert first.reasoning + second.reasoning == whole.reasoning
    assert (first.content + second.content).replace(".", "") == whole.content
    assert second.tool_calls == whole.tool_calls
