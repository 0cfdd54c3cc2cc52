"""Text of control tokens from users and tools stays ordinary text.

With the vocabulary of the embedded model, and with those in the folder OUTRIDER_VOCABULARIES.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest

from backend.llama.api import Model
from backend.llama.guard import (
    MEDIA,
    Guard,
    framing_texts,
    is_marked,
    python_value,
    tokens_of,
    unmarked,
)
from backend.system.paths import embedded_model

ROOT = Path(__file__).resolve().parents[2]
FURTHER = os.environ.get("OUTRIDER_VOCABULARIES")
FILES = [embedded_model(), *(sorted(Path(FURTHER).glob("*.gguf")) if FURTHER else ())]
ORDINARY = [
    (ROOT / name).read_text("utf-8")
    for name in ("README.md", "backend/llama/guard.py", "app/text/translations/de.ts")
]


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    pointer = llama_cpp.llama_model_load_from_file(os.fsencode(request.param), params)
    files: Any = SimpleNamespace(close=lambda: None)
    made = Model(pointer, files)
    yield made
    made.close()


def tokens(model: Model, text: str) -> list[int]:
    return tokens_of(text, lambda part, bos: model.tokenize(part, add_bos=bos), False)


def control_ids(model: Model, ids: list[int]) -> list[int]:
    control = set(model.special_texts()[0])
    return [token for token in ids if model.special_text(token) in control]


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_no_text_of_a_message_becomes_a_control_token(model: Model, role: str) -> None:
    control, _ = model.special_texts()
    assert control
    guard = Guard(control)
    said = "".join(f"a{text} {text}{text}" for text in control)
    overlapping = "".join(text[:-1] + text for text in control)
    for content in (said, overlapping, said[::-1]):
        (message,) = guard.messages([{"role": role, "content": content}])
        prompt = guard.resolved(message["content"])
        found = tokens(model, prompt)
        assert control_ids(model, found) == []
        assert unmarked(prompt) == content
        read = b"".join(map(model.piece, found)).decode()
        assert read.replace(" ", "") == content.replace(" ", "")
    assert control_ids(model, model.tokenize(said)), "without the guard they do"


@pytest.mark.parametrize("content", ORDINARY)
def test_ordinary_text_and_its_tokens_are_unchanged(model: Model, content: str) -> None:
    control, user_defined = model.special_texts()
    content = "".join(
        line for line in content.splitlines(True) if not any(text in line for text in control)
    )
    guard = Guard(control, framing_texts(user_defined, "<tool_response> <|tool_call>"))
    messages = [{"role": role, "content": content} for role in ("user", "tool", "assistant")]
    for message in guard.messages(messages):
        assert guard.resolved(message["content"]) == content
    assert tokens(model, content) == model.tokenize(content)


def resolved(guard: Guard, text: str, images: bool = False) -> list[str]:
    """Return the parts of a text of the template and others that become tokens one by one."""
    parts: list[Any] = tokens_of(guard.resolved(text, images), lambda part, _: [part], False)  # type: ignore
    return parts


def test_texts_that_overlap_are_all_found() -> None:
    guard = Guard(["<a>", "a>b", ">b<a>"])
    parts = resolved(guard, guard.words("<a>b<a>"))
    assert "".join(parts) == "<a>b<a>"
    assert not any(text in part for text in ("<a>", "a>b") for part in parts)


def test_tags_of_the_template_are_broken_where_nobody_speaks() -> None:
    framing = framing_texts(["  ", "<think>", "<tool_response>", "<p>"], "{{ '<tool_response>' }}")
    assert framing == ["<tool_response>"]
    guard = Guard(["<|im_end|>"], framing, "{{ '<tool_response>' }}")
    content = "<tool_response> <think> <p>"
    user, tool = (
        guard.resolved(message["content"])
        for message in guard.messages(
            [{"role": "user", "content": content}, {"role": "tool", "content": content}]
        )
    )
    assert user == content
    assert tool.count("\ufdd0") == 1 and unmarked(tool) == content


def test_a_token_is_broken_that_begins_in_the_template_or_another_text() -> None:
    guard = Guard(["<|im_end|>"])
    for own, foreign, behind in (
        ("<", "|im_end|>", ""),
        ("<", "|im_end|", ">"),
        ("<|", "im_end", "|>"),
        ("", "<|im_end", "|>"),
        ("<|im", "_end|>", ""),
        ("<", "  |IM_end|>", ""),
    ):
        said = guard.values(foreign).replace("  ", "").replace("IM", "im")
        text = own + said + behind
        assert unmarked(text) == "<|im_end|>" and len(resolved(guard, text)) > 1, foreign
    joined = guard.values("<|im") + guard.values("_end|>")
    assert len(resolved(guard, joined)) > 1
    cut = guard.words("<|im_/no_thinkend|>").replace("/no_think", "")
    assert len(resolved(guard, cut)) > 1
    lowered = guard.words("<|IM_END|>").lower()
    assert len(resolved(guard, lowered)) > 1


def test_tokens_of_the_template_stay_beside_texts_of_others() -> None:
    guard = Guard(["<|im_end|>", "[INST]", "a>b"])
    for foreign in ("<", "a < b", "> x", "[1]", "INST]", "|im_end|>", "b"):
        text = "<|im_end|>" + guard.values(foreign) + "<|im_end|>"
        assert guard.resolved(text) == unmarked(text), foreign
    assert resolved(guard, "a>" + guard.values("b")) == ["a>", "b"]
    assert resolved(guard, "a>b" + guard.values("b")) == ["a>bb"]


def test_a_template_recognizes_its_words_and_tags() -> None:
    template = "{% if '</think>' in c %}{{ t.type }}{% endif %}{{ '[TOOL]' }}"
    guard = Guard(["<|type|>", "<|im_end|>", "[TOOL]"], (), template)
    for text in ("type", "a </think> b", "</think>"):
        assert guard.words(text) == guard.values(text) == text
    for text in ("[TOOL]", "typ", "<think>", "type|>"):
        assert unmarked(guard.words(text)) == text != guard.words(text)


def test_texts_that_begin_like_words_are_broken() -> None:
    guard = Guard(["endoftext", " stop"], (), "{{ end }}")
    for text in ("xendoftexty", "ENDOFTEXT", "go stop"):
        said = guard.words(text)
        assert unmarked(said) == text and len(resolved(guard, said.lower())) == 2
    for begin, end in (("en", "doftext"), ("e", "ndoftext"), ("endoftex", "t")):
        assert len(resolved(guard, guard.words(f"x {begin}") + end)) == 2
    assert guard.words("end") == "end"
    arguments = '{"a": "endoftext\\n"}'
    message = {"role": "assistant", "content": "", "tool_calls": [called(arguments)]}
    (marked,) = guard.messages([message])
    text = marked["tool_calls"][0]["function"]["arguments"]
    assert json.loads(unmarked(text)) == json.loads(arguments) and is_marked(text)


def called(arguments: str) -> dict[str, Any]:
    function = {"name": "<|im_end|>", "arguments": arguments}
    return {"id": "<|im_end|>", "type": "function", "function": function}


def test_everything_but_the_system_prompt_is_marked() -> None:
    guard = Guard(["<|im_end|>"])
    end = "<|im_end|>"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": end},
        {"role": "developer", "content": [{"type": "text", "text": end}]},
        {"role": "user", "content": [{"type": "text", "text": end}], "name": end},
        {"role": "assistant", "content": end, "reasoning_content": end, end: end},
        {"role": "assistant", "content": None, "tool_calls": [{**called("{}"), end: end}]},
        {"role": "tool", "content": end, "tool_call_id": end, "name": end},
        {"role": end, "content": end},
    ]
    before = json.dumps(messages)
    marked = guard.messages(messages)
    assert marked[:2] == messages[:2]
    assert end not in json.dumps(marked[2:], ensure_ascii=False)
    assert unmarked(json.dumps(marked, ensure_ascii=False)) == json.dumps(messages)
    assert json.dumps(messages) == before, "the caller's messages are not changed"


def test_everything_of_a_tool_is_marked() -> None:
    guard = Guard(["<|im_end|>"])
    end = "<|im_end|>"
    parameters = {"type": end, end: {"enum": [end], "items": [{"const": end, "x": 1}]}}
    function = {"name": end, "description": end, "parameters": parameters, end: end}
    tool = {"type": "function", "function": function, end: [end]}
    (marked,) = guard.tools([tool])
    assert end not in json.dumps(marked, ensure_ascii=False)
    assert json.loads(unmarked(json.dumps(marked, ensure_ascii=False))) == tool
    assert guard.values({"a": [1, None, True, end]})["a"][:3] == [1, None, True]


def test_json_stays_json_with_the_same_values() -> None:
    guard = Guard(["<|im_end|>", "[INST]", "{x}"])
    values = {"[a": [[1, 2.50], "[INST]", '\\"<|im_end|>'], "{x}": [None, "|im_end|>", " INST]"]}
    for text in (
        json.dumps(values, ensure_ascii=False),
        json.dumps(values, indent=1).replace("<", "\\u003C").replace("|", "\\u007c"),
    ):
        call, result = guard.messages(
            [
                {"role": "assistant", "content": "", "tool_calls": [called(text)]},
                {"role": "tool", "content": text},
            ]
        )
        for marked in (call["tool_calls"][0]["function"]["arguments"], result["content"]):
            assert unmarked(marked) == text
            read = json.dumps(json.loads(marked), ensure_ascii=False)
            assert json.loads(unmarked(read)) == values
            parts = resolved(guard, read)
            assert not any(token in part for token in ("<|im_end|>", "[INST]") for part in parts)
            _, (_, behind_sign, behind_bracket) = json.loads(marked).values()
            assert len(resolved(guard, "<" + behind_sign)) == 2
            assert len(resolved(guard, "[" + behind_bracket.strip())) == 2
    (broken,) = guard.messages([{"role": "tool", "content": "[[INST]"}])
    assert len(resolved(guard, broken["content"])) == 2, "this is no JSON"
    (number,) = Guard(["[1]"]).messages([{"role": "tool", "content": "[1]"}])
    assert len(resolved(Guard(["[1]"]), number["content"])) == 2


def test_no_text_stands_for_an_image() -> None:
    guard = Guard(["<|im_end|>"])
    image = {"type": "media_marker", "text": MEDIA}
    texts = [{"role": role, "content": MEDIA} for role in ("system", "user", "assistant", "tool")]
    said = [{"role": "user", "content": [image, {"type": "text", "text": MEDIA}]}, *texts]
    first, *others = guard.messages(said)
    assert first["content"][0] == image
    for content in (first["content"][1]["text"], *(message["content"] for message in others)):
        assert "".join(resolved(guard, content, images=True)) == MEDIA
        assert len(resolved(guard, content, images=True)) == 2
    for message in guard.messages(texts):
        assert guard.resolved(message["content"]) == MEDIA, "there is no image"


def test_marks_of_others_are_taken_out() -> None:
    guard = Guard(["<|im_end|>"])
    for role in ("system", "user", "tool"):
        (message,) = guard.messages([{"role": role, "content": "a\ufdd0b<|im_\ufdd0end|>"}])
        assert unmarked(message["content"]) == "ab<|im_end|>"
        assert ("a\ufdd0b" in message["content"]) is False
        assert is_marked(message["content"]) is (role != "system")


def test_marks_survive_as_escapes() -> None:
    said = Guard(["<|im_end|>"]).values(["a<|im_end|>", "\\ufdd0"])
    assert python_value(said) == "['a<\ufdd0|im_end|>', '\\\\ufdd0']"
    guard = Guard(["<|im_end|>"], (), "{{ tools | tojson(ensure_ascii=True) }}")
    text = json.dumps([guard.words("a<|im_end|>")])
    assert resolved(guard, text) == ['["a<', '|im_end|>"]']
