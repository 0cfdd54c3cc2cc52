"""Answers under a JSON schema."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import of_chat
from random_schemas import REFUSED, fault, random_schema
from reciter import make_reciter
from served import Served

from backend.engine.engine import Engine, EngineError
from backend.llama import chat_format
from backend.llama.chat_format import Gap, Rendered
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.settings import EngineConfig, Sampling

ASKED = [{"role": "user", "content": "Describe a river."}]
OpenEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def tiny_chat(tiny: Path) -> Any:
    engine = Engine.open(tiny, EngineConfig(n_thread=1, context_length=1024))
    yield engine
    engine.close()


def test_answers_to_random_schemas_are_valid(tiny_chat: Engine) -> None:
    n_whole = 0
    for seed in range(20):
        schema = random_schema(random.Random(seed))
        sampling = Sampling(temperature=1.0, seed=seed, top_k=0, min_p=0)
        answer, options = AnswerText(), ChatOptions(json_schema=schema)
        list(tiny_chat.answer(of_chat(ASKED, sampling, 300, options=options, on_delta=answer.add)))
        if tiny_chat.finish_reason == "stop":
            assert fault(answer.content, schema) == "", (schema, answer)
            n_whole += 1
    assert n_whole > 10


def test_an_answer_goes_on_from_its_beginning(tiny_chat: Engine) -> None:
    """The beginning ends within the JSON."""
    schema = {"type": "object", "properties": {"ab": {"enum": [10, 12]}}, "required": ["ab"]}
    begun = [*ASKED, {"role": "assistant", "content": '{"a'}]
    answer, options = AnswerText(), ChatOptions(json_schema=schema)
    list(
        tiny_chat.answer(of_chat(begun, Sampling(seed=1), 60, options=options, on_delta=answer.add))
    )
    assert re.fullmatch(r'b":1[02]}\s*', answer.content)


def test_a_pattern_of_many_words_is_held_again_and_again(tiny: Path) -> None:
    """By a real server; each answer spends some of what llguidance may spend on a schema."""
    words = {"type": "string", "pattern": r"^(?:\S+\s+){0,49}\S+$", "maxLength": 500}
    served = Served(tiny)
    try:
        for schema in (words, words, {"const": 5}, words):
            wanted = {"type": "json_schema", "json_schema": {"name": "any", "schema": schema}}
            body = {"messages": ASKED, "response_format": wanted, "max_tokens": 60, "seed": 1}
            reply = served.post("/v1/chat/completions", body)
            assert reply.status_code == 200, reply.text
            (choice,) = reply.json()["choices"]
            if choice["finish_reason"] == "stop":
                assert fault(choice["message"]["content"], schema) == ""
    finally:
        served.close()


def test_a_schema_is_refused_before_the_answer(tiny_chat: Engine) -> None:
    nested: dict[str, Any] = {"type": "null"}
    for _ in range(40_000):
        nested = {"items": nested}
    for schema, sentence in ((REFUSED[0], "multipleOf 0.01"), (nested, "nested too deeply")):
        with pytest.raises(EngineError, match=sentence):
            tiny_chat.answer(of_chat(ASKED, Sampling(), 9, options=ChatOptions(json_schema=schema)))


def test_a_schema_that_takes_too_long_is_refused(
    tiny_chat: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_format, "_SCHEMA_LIMIT_S", 0.001)
    schema = {"type": "object", "properties": {f"p{i}": {"enum": [i]} for i in range(3000)}}
    with pytest.raises(EngineError, match=r"^The JSON schema is too complex\.$"):
        tiny_chat.answer(of_chat(ASKED, Sampling(), 9, options=ChatOptions(json_schema=schema)))


def test_without_llguidance_a_schema_is_refused(
    tiny_chat: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_format.ChatFormat, "_fault", lambda *_: "")
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    monkeypatch.setattr(tiny_chat.loaded.llama, "_json_vocabulary", None)
    with pytest.raises(EngineError, match="need the package llguidance, which is missing"):
        tiny_chat.answer(
            of_chat(ASKED, Sampling(), 9, options=ChatOptions(json_schema={"const": 7}))
        )


NUMBER = 770_077_007_700_000
LETTERS = {"type": "string", "pattern": "^[a-z]{2}$"}


@pytest.mark.parametrize(
    ("grammar", "schema", "text"),
    [
        ('root ::= "ab" "770077007700000" ">"', LETTERS, r'ab"[a-z]{2}">'),
        # A number may go on, and so may what follows.
        ('root ::= "a" "770077007700000" "0"? "."', {"enum": [1, 10]}, r"a100?\.|a1\."),
        # What the grammar permits comes first: the JSON begins after the thought.
        ('root ::= [^d]* "d" "770077007700000" "."', {"const": "a"}, r'abc<d"a"\.'),
        ('root ::= ("[" "770077007700000" "]" ","?){2}', {"type": "null"}, r"\[null\],?\[null\],?"),
    ],
)  # fmt: skip
def test_json_stands_in_the_gap_of_a_grammar(
    grammar: str, schema: Any, text: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    class Format:
        def render(self, *_: Any) -> Rendered:
            gap = Gap(NUMBER, json.dumps(schema))
            return replace(Rendered("\n"), grammar=grammar, gaps=(gap,))

        def stop(self) -> None:
            """Do nothing."""

        close = stop

    engine = open_engine(make_reciter(tmp_path / "m.gguf", "abc<def>ghijk"))
    engine.loaded.weights.chat_format = Format()
    pieces = engine.answer(of_chat(ASKED, Sampling(temperature=0), 60))
    assert re.fullmatch(text, "".join(piece.text for piece in pieces))
