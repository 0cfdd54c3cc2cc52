"""Text of control tokens from users and tools stays ordinary text.

With the vocabulary of the embedded model, and with those in the folder OUTRIDER_VOCABULARIES.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest

from backend.llama.api import Model
from backend.llama.guard import Guard, framing_texts, tokens_of, unmarked
from backend.protocol.chat import ChatOptions
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


@pytest.mark.parametrize("role", ["user", "tool"])
def test_no_text_of_a_message_becomes_a_control_token(model: Model, role: str) -> None:
    control, _ = model.special_texts()
    assert control
    guard = Guard(control)
    said = "".join(f"a{text} {text}{text}" for text in control)
    overlapping = "".join(text[:-1] + text for text in control)
    for content in (said, overlapping, said[::-1]):
        (message,) = guard.messages([{"role": role, "content": content}])
        found = tokens(model, message["content"])
        assert control_ids(model, found) == []
        assert unmarked(message["content"]) == content
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
    assert guard.messages(messages) == messages
    assert tokens(model, content) == model.tokenize(content)


def test_texts_that_overlap_are_all_found() -> None:
    guard = Guard(["<a>", "a>b", ">b<a>"])
    (message,) = guard.messages([{"role": "user", "content": "<a>b<a>"}])
    parts: list[str] = []
    tokens_of(message["content"], lambda part, _: parts.append(part) or [], False)
    assert "".join(parts) == "<a>b<a>"
    assert not any(text in part for text in ("<a>", "a>b") for part in parts)


def test_tags_of_the_template_are_broken_in_tools_results_only() -> None:
    framing = framing_texts(["  ", "<think>", "<tool_response>", "<p>"], "{{ '<tool_response>' }}")
    assert framing == ["<tool_response>"]
    guard = Guard(["<|im_end|>"], framing)
    content = "<tool_response> <think> <p>"
    user, tool = guard.messages(
        [{"role": "user", "content": content}, {"role": "tool", "content": content}]
    )
    assert user["content"] == content
    assert tool["content"] != content and unmarked(tool["content"]) == content


def test_system_prompts_answers_and_parts_that_are_no_text_stay() -> None:
    guard = Guard(["<|im_end|>"])
    picture = {"type": "image", "data": "<|im_end|>"}
    text = {"type": "text", "text": "<|im_end|>"}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "<|im_end|>"},
        {"role": "assistant", "content": "<|im_end|>", "reasoning_content": "<|im_end|>"},
        {"role": "user", "content": [picture, text]},
    ]
    marked = guard.messages(messages)
    assert marked[:2] == messages[:2]
    assert marked[2]["content"][0] == picture and marked[2]["content"][1] != text
    assert messages[2]["content"][1] == text, "the caller's messages are not changed"


def test_descriptions_of_tools_are_marked() -> None:
    guard = Guard(["<|im_end|>"])
    parameters = {"type": "object", "properties": {"a": {"description": "x<|im_end|>"}}}
    tool = {"function": {"name": "f", "description": "<|im_end|>", "parameters": parameters}}
    (marked,) = guard.options(ChatOptions(tools=(tool,))).tools
    function = marked["function"]
    assert unmarked(function["description"]) == "<|im_end|>" != function["description"]
    inner = function["parameters"]["properties"]["a"]["description"]
    assert unmarked(inner) == "x<|im_end|>" != inner
