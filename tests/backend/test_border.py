"""No text of others changes the number of control tokens of a prompt, in any field or template."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from chat_formats import TEMPLATES, template
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import _chat
from backend.llama.conversation_format import ConversationFormat
from backend.llama.guard import Guard, tokens_of, unmarked

Json = dict[str, Any]

MARK = "\ufdd0"
COMMON = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "[INST]"]
LIKE_CONTROL = re.compile(
    r"<[|｜][^<>|｜'\"\s]+[|｜]?>|<[a-z_]+[|｜]>|<(?:bos|eos|start_of_turn|end_of_turn|role|/role)>"
    r"|\[/?[A-Z_]{3,}\]|<｜[^<>'\"\s]+｜>|\]~[a-z!]*\]|\[e~\[|\]![a-z]~\["
)


@cache
def control_of(name: str) -> tuple[str, ...]:
    """Return texts that are control tokens beside this template."""
    return tuple(sorted({*COMMON, *LIKE_CONTROL.findall(template(name))}))


@cache
def guard_of(name: str) -> Guard:
    return Guard(control_of(name), [], template(name))


@cache
def source(name: str) -> _chat.Template:
    return _chat.Template(template(name), "<s>", "</s>")


@cache
def guarded(name: str) -> ConversationFormat:
    return ConversationFormat(template(name), "<s>", "</s>", control_of(name), [])


@cache
def unguarded(name: str) -> ConversationFormat:
    return ConversationFormat(template(name), "<s>", "</s>")


def n_control(prompt: str, control: Sequence[str]) -> int:
    """Count control tokens in the parts of a prompt as llama.cpp finds them: the longest first."""

    def tokenize(part: str, _: bool) -> list[int]:
        n = 0
        for text in sorted(control, key=len, reverse=True):
            n += part.count(text)
            part = part.replace(text, "\0")
        return [n]

    return sum(tokens_of(prompt, tokenize, False))


def harmless(text: str) -> str:
    """Return a text of the same shape that no token has. JSON stays JSON: templates write keys."""
    with contextlib.suppress(ValueError):
        if isinstance(read := json.loads(text), dict):
            return json.dumps({harmless(key): [harmless(one) for one in read[key]] for key in read})
    return re.sub(r"[^\w\s]", "q", unmarked(text))


# Where others write. Each returns the messages and the tools of a conversation.

CALL_ID = "abcdefghi"


def conversation(
    system: str = "You are a librarian.",
    user: str = "A question",
    user_name: str | None = None,
    answer: str = "An answer",
    reasoning: str = "A thought",
    arguments: str = '{"city": "Paris"}',
    call_id: str = CALL_ID,
    called: str = "get_weather",
    result: str = "It rains.",
    result_name: str = "get_weather",
    name: str = "get_weather",
    description: str = "The weather.",
    parameters: Json | None = None,
    later: str = "A later answer",
) -> tuple[list[Json], list[Json]]:
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": called, "arguments": arguments},
    }
    asked: Json = {"role": "user", "content": user}
    if user_name is not None:
        asked["name"] = user_name
    messages = [
        {"role": "system", "content": system},
        asked,
        {"role": "assistant", "content": answer, "reasoning_content": reasoning},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "name": result_name, "content": result},
        {"role": "assistant", "content": later},
        {"role": "user", "content": "The end"},
    ]
    function = {
        "name": name,
        "description": description,
        "parameters": parameters or {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    return messages, [{"type": "function", "function": function}]


def schema(text: str, **field: Any) -> Json:
    of_city = {"type": "string", **field}
    return {"type": "object", "properties": {"city": of_city}, "required": ["city"]}


PLACES: dict[str, Callable[[str], tuple[list[Json], list[Json]]]] = {
    "user": lambda t: conversation(user=t),
    "user name": lambda t: conversation(user_name=t),
    "answer": lambda t: conversation(answer=t),
    "later answer": lambda t: conversation(later=t),
    "reasoning": lambda t: conversation(reasoning=t),
    "argument": lambda t: conversation(arguments=json.dumps({"city": t})),
    "argument's key": lambda t: conversation(arguments=json.dumps({t: 1}, ensure_ascii=False)),
    "nested argument": lambda t: conversation(arguments=json.dumps({"a": [{t: [t]}, t]})),
    "text of arguments": lambda t: conversation(arguments=t),
    "call id": lambda t: conversation(call_id=t),
    "called": lambda t: conversation(called=t),
    "result": lambda t: conversation(result=t),
    "result in JSON": lambda t: conversation(result=json.dumps({t: [t, {"a": t}]})),
    "result's name": lambda t: conversation(result_name=t),
    "tool": lambda t: conversation(name=t, called=t, result_name=t),
    "description": lambda t: conversation(description=t),
    "parameter": lambda t: conversation(
        parameters={"type": "object", "properties": {t: {"type": "string"}}, "required": [t]}
    ),
    "title": lambda t: conversation(parameters=schema(t, title=t)),
    "described": lambda t: conversation(parameters=schema(t, description=t)),
    "enum": lambda t: conversation(parameters=schema(t, enum=[t, "a", t])),
    "const": lambda t: conversation(parameters=schema(t, const=t)),
    "default": lambda t: conversation(parameters=schema(t, default=t)),
    "examples": lambda t: conversation(parameters=schema(t, examples=[t, [t]])),
    "unknown": lambda t: conversation(parameters=schema(t, **{t: {t: [t]}})),
    "items": lambda t: conversation(
        parameters=schema(
            t, type="array", items={"type": "object", "properties": {t: {"enum": [t], t: t}}}
        )
    ),
}


def shown(guard: Guard, name: str, place: str, text: str) -> str | None:
    """Return the prompt that a template makes of a place; None where it refuses the text."""
    return plain(guard, name, *PLACES[place](text))


def plain(guard: Guard, name: str, messages: list[Json], tools: list[Json]) -> str | None:
    """Render with the template alone, without what llama.cpp finds out about it each time."""
    tools, messages = guard.tools(tools), guard.messages(messages)
    alternating = [m for m in messages if m["role"] in ("user", "assistant")]
    read = [
        {**m, "tool_calls": [as_object(call) for call in m["tool_calls"]]}
        if "tool_calls" in m
        else m
        for m in messages
    ]
    for said in (read, messages, alternating[:3]):
        asked = {"messages": said, "variables": {"tools": tools}}
        with contextlib.suppress(RuntimeError, ValueError):
            prompt = source(name).render_plain(json.dumps(asked, ensure_ascii=False))
            return guard.resolved(prompt)
    return None


def as_object(call: Json) -> Json:
    function = call["function"]
    with contextlib.suppress(ValueError):
        function = {**function, "arguments": json.loads(function["arguments"])}
    return {**call, "function": function}


def changes(name: str, place: str, text: str) -> tuple[int, int] | None:
    """Return the control tokens with a harmless text and with this one, where they differ."""
    control, guard = control_of(name), guard_of(name)
    calm, wild = (shown(guard, name, place, t) for t in (harmless(text), text))
    if calm is None or wild is None:
        return None
    counts = n_control(calm, control), n_control(wild, control)
    return counts if counts[0] != counts[1] else None


def variants(text: str) -> list[str]:
    """Return what may become a token's text within a template, alone or with its neighbours."""
    half = len(text) // 2
    escaped = "".join(f"\\u{ord(c):04x}" for c in text)
    return [
        text,
        f"{text}{text} a{text}\n{text}",
        text[:half] + MARK + text[half:],
        MARK + text[:1] + MARK + text[1:] + MARK,
        escaped,
        f'"{escaped[:6]}{text[1:]}"',
        json.dumps({text: [escaped]}),
        text[1:],
        text[:-1],
        text[1:-1],
        f"  {text[1:]} ",
        text[:-1] + text,
        text.upper(),
        text.swapcase(),
        f"{text[:1]}</think>{text[1:]}",
        f"{text[:half]}/no_think{text[half:]}",
        f"<think>{text}</think>{text}",
        f"'{text}' \"{text}\" \\{text}",
        f"{text}\0",
    ]


@pytest.mark.parametrize("n_text", [2, pytest.param(4, marks=pytest.mark.night)])
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_field_changes_the_control_tokens(name: str, n_text: int) -> None:
    """By day each field gets two of four texts."""
    control = control_of(name)
    chance = random.Random(name)
    joined = " ".join(control), "".join(text[:-1] + text for text in control)
    for place in PLACES:
        forms = [chance.choice(variants(chance.choice(control))) for _ in range(2)]
        for text in chance.sample([*joined, *forms], n_text):
            assert changes(name, place, text) is None, (place, text)
    naked = [shown(Guard(), name, place, joined[0]) for place in ("user", "answer")]
    calm = shown(Guard(), name, "user", "quiet")
    assert calm is not None and any(
        n_control(prompt, control) > n_control(calm, control) for prompt in naked if prompt
    )


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(TEMPLATES),
    place=st.sampled_from(sorted(PLACES)),
    pieces=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=3),
)
def test_no_text_in_any_field_changes_the_control_tokens(
    name: str, place: str, pieces: list[tuple[int, int]]
) -> None:
    control = control_of(name)
    text = ""
    for of_control, of_form in pieces:
        forms = variants(control[of_control % len(control)])
        text += forms[of_form % len(forms)]
    assert changes(name, place, text) is None


WHOLE = (  # each is rendered in another way by llama.cpp
    "Qwen3-Coder",
    "google-gemma-4-31B-it",
    "openai-gpt-oss-120b",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "LFM2-8B-A1B",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "Kimi-K2-Thinking",
)


@pytest.mark.parametrize("name", WHOLE)
def test_no_text_changes_the_control_tokens_of_a_prompt(name: str) -> None:
    """In every field at once."""
    control = control_of(name)
    calm = n_control(everywhere(guarded(name), "quiet"), control)
    joined = " ".join(control)
    for text in (joined, *variants(control[0])[2:6:3], control[-1][1:-1]):
        assert n_control(everywhere(guarded(name), text), control) == calm, text
    assert n_control(everywhere(unguarded(name), joined), control) > calm


def everywhere(made: ConversationFormat, text: str) -> str:
    """Return the prompt of a conversation that has this text in every field at once."""
    several = {text: text, "a": [text, {text: text}]}
    parameters = {
        "type": "object",
        "properties": {
            text: {"type": "string", "description": text, "default": text, "title": text},
            "b": {"type": "string", "enum": [text, "b"], "const": text, text: [several]},
            "c": {"type": "array", "items": {"type": "object", "properties": {text: several}}},
        },
        "required": [text],
    }
    messages, tools = conversation(
        user=f"a {text}",
        answer=f"a {text}",
        reasoning=f"a {text}",
        arguments=json.dumps(several),
        called=text,
        result=text,
        result_name=text,
        name=text,
        description=text,
        parameters=parameters,
        later=f"a {text}",
    )
    prompt: str = made.render(messages, {"tools": tools})["prompt"]
    return prompt


@pytest.mark.parametrize("name", ["Qwen3-Coder", "google-gemma-4-31B-it", "GLM-4.6", "LFM2-8B-A1B"])
def test_grammar_and_parser_have_the_true_names(name: str) -> None:
    """Marks are only in the prompt, where a part of the text would be a control token."""
    messages, tools = PLACES["parameter"]("<|im_end|>")
    for choice in ("auto", "required"):
        asked = {"tools": tools, "tool_choice": choice, "json_schema": {"enum": ["<|im_end|>"]}}
        wild, plain = (made(name).render(messages, asked) for made in (guarded, unguarded))
        assert MARK in wild["prompt"]
        assert MARK not in json.dumps({**wild, "prompt": "", "begun": ""}, ensure_ascii=False)
        assert {**wild, "prompt": unmarked(wild["prompt"])} == plain


@pytest.mark.parametrize("name", TEMPLATES)
def test_harmless_text_is_rendered_as_before(name: str) -> None:
    """Also where it has signs of control tokens, and white space that templates remove."""
    code = 'if a < b and c[0] > d: <div>[x]</div> {"k": [1, 2]}'
    for text in (code, f" \n{code}\n ", "> [1] <", "user"):
        messages, tools = conversation(
            user=text,
            answer=text,
            reasoning=text,
            arguments=json.dumps({"city": text, "n": [1.50, None]}),
            result=json.dumps({"a<b": [text]}),
            description=text,
            parameters=schema(text, description=text, enum=[text, "<b"]),
            later=f"<think>\n{text}\n</think>\n\n{text}",
        )
        as_before = plain(Guard(), name, messages, tools)
        assert as_before is not None and plain(guard_of(name), name, messages, tools) == as_before
        if name in WHOLE and text == code:
            asked = {"tools": tools}
            assert guarded(name).render(messages, asked) == unguarded(name).render(messages, asked)


def test_a_thought_in_an_answer_is_cut_out_although_its_tags_are_control_tokens() -> None:
    name = "Qwen-QwQ-32B"
    said = "<think>\nI see <|im_end|>.\n</think>\n\nYes."
    messages, _ = conversation(answer=said, reasoning="")
    tags = ["<think>", "</think>", "<|im_end|>"]
    made = ConversationFormat(template(name), "<s>", "</s>", tags)
    prompt = made.render(messages, {})["prompt"]
    assert prompt == unguarded(name).render(messages, {})["prompt"]
    assert "I see" not in prompt and "Yes." in prompt
    messages, _ = conversation(answer=f"A tool said: {said}", reasoning="")
    shown = made.render(messages, {})["prompt"]
    assert "I see" in shown and n_control(shown, tags) == n_control(prompt, tags)


@pytest.mark.parametrize("name", ["Qwen3.5-4B", "openai-gpt-oss-120b", "Qwen-Qwen2.5-7B-Instruct"])
def test_an_answer_goes_on_behind_what_it_copied(name: str) -> None:
    control = control_of(name)
    made = guarded(name)
    for reasoning, content in (("", "It {}"), ("I {}", "It {}"), ("I {}", "")):
        prompts = [
            made.render(
                [
                    {"role": "user", "content": "A question"},
                    {
                        "role": "assistant",
                        "reasoning_content": reasoning.format(text),
                        "content": content.format(text),
                    },
                ],
                {},
            )
            for text in ("quiet", control[-1], control[0])
        ]
        counts = {n_control(rendered["prompt"], control) for rendered in prompts}
        assert len(counts) == 1
        last = unmarked(prompts[-1]["prompt"])
        assert last.endswith((content or reasoning).format(control[0]))
        assert MARK in prompts[-1]["begun"] and last.endswith(unmarked(prompts[-1]["begun"]))
        kept = [*prompts[-1]["parser"].items(), *prompts[-1]["parser"]["continued"].items()]
        assert not any(MARK in str(value) for _, value in kept)
