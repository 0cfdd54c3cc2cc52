"""A conversation is fitted to what its template accepts, and nothing in it is lost silently."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

import pytest
from chat_formats import OUTPUTS, TEMPLATES, template  # noqa: F401
from client_requests import conversations

from backend import _chat
from backend.llama.conversation_format import AnswerSplitter, ConversationFormat
from backend.llama.fitting import REMARKS
from backend.llama.guard import tokens_of, unmarked
from backend.protocol.chat import AnswerText

Json = dict[str, Any]

# Templates of this test, as strict as those of some models.
ALTERNATING = """
{%- set shift = 1 if messages[0].role == 'system' else 0 -%}
{%- for m in messages[shift:] -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('must alternate') }}
{%- endif -%}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' -}}
{%- if loop.first and shift -%}{{ messages[0].content + '\n\n' }}{%- endif -%}
{{- m.content | trim + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""
SYSTEM_FIRST = """
{%- set ns = namespace(asked=false) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.asked = true -%}{%- endif -%}
{%- endfor -%}
{%- if not ns.asked -%}{{ raise_exception('no user query') }}{%- endif -%}
{%- if tools -%}{{ '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}{{ raise_exception('system must be first') }}
{%- endif -%}
{{- '<|im_start|>' + m.role + '\n' + m.content -}}
{%- for call in m.tool_calls or [] -%}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' -}}
{{- (call.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
NINE_LETTERS = """
{%- set shift = 1 if messages[0].role == 'system' else 0 -%}
{%- if shift -%}{{ '[SYS]' + messages[0].content + '[/SYS]' }}{%- endif -%}
{%- if tools -%}{{ '[TOOLS]' + (tools | tojson) + '[/TOOLS]' }}{%- endif -%}
{%- set ns = namespace(n=0) -%}
{%- for m in messages[shift:] -%}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
{%- if (m.role == 'user') != (ns.n % 2 == 0) -%}{{ raise_exception('must alternate') }}{%- endif -%}
{%- set ns.n = ns.n + 1 -%}
{%- endif -%}
{%- if m.role == 'user' -%}{{ '[INST]' + m.content + '[/INST]' }}
{%- elif m.tool_calls -%}
{%- if m.tool_calls | length != 1 -%}{{ raise_exception('one call at a time') }}{%- endif -%}
{%- set call = m.tool_calls[0] -%}
{%- if call.id | length != 9 -%}{{ raise_exception('ids have nine letters') }}{%- endif -%}
{{- m.content + '[CALL]' + call.function.name + '[ID]' + call.id + '[ARGS]' -}}
{{- (call.function.arguments | tojson) + '</s>' -}}
{%- elif m.role == 'assistant' -%}{{ m.content + '</s>' }}
{%- elif m.role == 'tool' -%}
{%- if m.tool_call_id | length != 9 -%}{{ raise_exception('ids have nine letters') }}{%- endif -%}
{{- '[RESULT]' + m.tool_call_id + '[CONTENT]' + m.content + '[/RESULT]' -}}
{%- else -%}{{ raise_exception('unknown role') }}{%- endif -%}
{%- endfor -%}
"""
# llama.cpp gives a thought as the first part of the content to templates with these marks, and this
# one writes the first part; as unsloth's for Devstral Small 2507.
FIRST_PART = """
{%- if messages[0].role == 'system' -%}
{{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' -}}
{%- endif -%}
{%- if tools -%}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) }}{%- endif -%}
{%- for m in messages -%}
{%- set said = m.content if m.content is string else m.content[0].text -%}
{%- if m.role == 'user' -%}{{ '[INST]' + said + '[/INST]' }}
{%- elif m.role == 'tool' -%}{{ '[TOOL_RESULTS]' + said + '[/TOOL_RESULTS]' }}
{%- elif m.tool_calls -%}
{%- for call in m.tool_calls -%}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) -}}
{%- endfor -%}{{- '</s>' -}}
{%- elif m.role == 'assistant' -%}{{ said + '</s>' }}
{%- endif -%}
{%- endfor -%}
"""
# The system prompt stands before the last message, if that is the user's; as Mistral Nemo's.
SYSTEM_LAST = """
{%- set shift = 1 if messages[0].role == 'system' else 0 -%}
{%- if tools -%}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) }}{%- endif -%}
{%- for m in messages[shift:] -%}
{%- if m.role == 'user' -%}
{{- '[INST]' + (messages[0].content + '\n\n' if shift and loop.last else '') + m.content -}}
{{- '[/INST]' -}}
{%- elif m.tool_calls -%}
{%- for call in m.tool_calls -%}
{{- m.content + '[CALL]' + call.function.name + '[ID]' + call.id + '[ARGS]' -}}
{{- (call.function.arguments | tojson) + '</s>' -}}
{%- endfor -%}
{%- elif m.role == 'tool' -%}{{ '[RESULT]' + m.tool_call_id + '[CONTENT]' + m.content }}
{%- elif m.role == 'assistant' -%}{{ m.content + '</s>' }}
{%- else -%}{{ raise_exception('unknown role') }}
{%- endif -%}
{%- endfor -%}
"""
STRICT = {
    "alternating": ALTERNATING, "system first": SYSTEM_FIRST, "nine letters": NINE_LETTERS,
    "first part": FIRST_PART, "system last": SYSTEM_LAST,
}  # fmt: skip
CONTROL = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
]
CONTROL += ["[CALL]", "[/INST]"]

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def source(name: str) -> str:
    return STRICT.get(name) or template(name)


@cache
def made(name: str) -> ConversationFormat:
    return ConversationFormat(source(name), "<s>", "</s>", CONTROL)


def render(name: str, messages: list[Json], **options: Any) -> Json:
    return made(name).render(messages, options)


def say(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def call(city: str, call_id: str) -> Json:
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": call_id, "type": "function", "function": function}


def called(*cities: str, ids: str = "call_{}", content: str = "") -> Json:
    calls = [call(city, ids.format(city)) for city in cities]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(city: str, content: str, ids: str = "call_{}") -> Json:
    return {
        "role": "tool",
        "tool_call_id": ids.format(city),
        "name": "get_weather",
        "content": content,
    }


# Every client on every template.


@pytest.mark.parametrize("part", [0.4, pytest.param(1, marks=pytest.mark.night)])
@pytest.mark.parametrize("name", [*STRICT, *TEMPLATES])
def test_each_conversation_of_a_client_is_served(name: str, part: float) -> None:
    """None is refused. Without changes, the real templates refuse 58 of 1,200 requests.

    By day a template meets a part of the conversations, and each of them many templates.
    """
    asked = list(conversations())
    for messages, options in random.Random(name).sample(asked, round(part * len(asked))):
        prompt = made(name).render(messages, options)
        assert prompt["prompt"] and set(prompt["fitted"]) <= set(REMARKS)
        if "left-out" in prompt["fitted"]:
            continue
        for message in messages:
            text = message["content"].strip()
            is_continued = message is messages[-1] and message["role"] == "assistant"
            if isinstance(text, str) and not is_continued and "<think>" not in text:
                assert line(text) in unmarked(prompt["prompt"]), (message["role"], text)


def line(text: str) -> str:
    """Return the longest line of a text that looks the same in JSON."""
    return max(re.split(r'[\n"\\\t]', text), key=len).strip()


ACCEPTED = [say("system", "Be brief."), say("user", "One"), say("assistant", "1")]
ROUND = [say("user", "Paris?"), called("Paris"), result("Paris", "It rains.")]


@pytest.mark.parametrize("name", [*STRICT, *TEMPLATES])
def test_a_conversation_that_is_accepted_has_llama_cpps_prompt(name: str) -> None:
    """Byte for byte, also where only the rest of the conversation would have to change."""
    templates = _chat.Template(source(name), "<s>", "</s>")
    thinks = made(name).facts().thinks_by_default
    several = [*ACCEPTED, say("user", "Two"), say("user", "Three"), say("system", "Shout.")]
    n_same = 0
    for messages in (
        [say("user", "One")],
        [*ACCEPTED, say("user", "Two")],
        [*ACCEPTED[1:], say("user", "Two")],
        several,
        [*ROUND, say("assistant", "Rain."), say("user", "Go on.")],
    ):
        asked: Json = {"messages": messages, "tools": [], "tool_choice": "auto"}
        asked |= {"variables": {}, "thinking": thinks, "parallel_tool_calls": True}
        try:
            prompt = json.loads(templates.render(json.dumps(asked)))["prompt"]
        except (RuntimeError, ValueError):
            continue
        if "LFM2" in name and messages[:3] == ROUND:
            continue  # the table PYTHON_CALLS adds the calls, which the template leaves out
        rendered = render(name, messages)
        texts = [m["content"] for m in messages]
        if not set(rendered["fitted"]) - {"system-in-user"}:
            assert unmarked(rendered["prompt"]) == prompt
            n_same += 1
        else:  # only where the template leaves out a part
            lost = [text for text in texts if text not in prompt]
            assert lost or "get_weather" not in prompt.split("Paris?")[-1]
    assert n_same >= 3


# What strict templates get.


def test_system_messages_are_joined_or_become_text_of_the_user() -> None:
    """As Codex sends them at the beginning, and Claude Code within."""
    first = [say("system", "Be brief."), say("system", "Be kind."), say("user", "One")]
    later = [say("assistant", "1"), say("system", "Shout."), say("user", "Two")]
    rendered = render("system first", [*first, *later])
    assert rendered["fitted"] == ["systems-joined", "system-as-user"]
    assert unmarked(rendered["prompt"]) == (
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nOne<|im_end|>\n"
        "<|im_start|>assistant\n1<|im_end|>\n"
        "<|im_start|>user\nSystem message:\nShout.<|im_end|>\n"
        "<|im_start|>user\nTwo<|im_end|>\n<|im_start|>assistant\n"
    )
    rendered = render("alternating", [*first, *later])
    assert rendered["fitted"] == ["systems-joined", "system-as-user", "neighbours-joined"]
    assert unmarked(rendered["prompt"]) == (
        "<start_of_turn>user\nBe brief.\n\nBe kind.\n\nOne<end_of_turn>\n"
        "<start_of_turn>model\n1<end_of_turn>\n"
        "<start_of_turn>user\nSystem message:\nShout.\n\nTwo<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("system first", [say("system", "Be brief.")]),
        ("system first", [say("system", "Be brief."), say("assistant", "It")]),
        ("alternating", [say("assistant", "Hello."), say("user", "One")]),
        ("nine letters", [say("system", "Be brief."), say("assistant", "Hi"), say("user", "One")]),
    ],
)
def test_a_missing_message_of_the_user_is_supplied(name: str, messages: list[Json]) -> None:
    rendered = render(name, messages)
    assert rendered["fitted"] == ["user-supplied"]
    assert all(text in rendered["prompt"] for text in ("Please continue.", messages[0]["content"]))
    if messages[-1]["role"] == "assistant":
        assert rendered["prompt"].endswith("It")


@pytest.mark.parametrize(("name", "is_ordered"), [("first part", True), ("system last", False)])
def test_results_follow_the_order_of_calls_where_a_template_shows_no_ids(
    name: str, is_ordered: bool
) -> None:
    results = [result("Rome", "Sun"), result("Oslo", "Snow")]
    messages = [say("user", "The weather?"), called("Oslo", "Rome"), *results]
    rendered = render(name, messages, tools=[TOOL])
    assert ("results-ordered" in rendered["fitted"]) == is_ordered
    prompt = unmarked(rendered["prompt"])
    assert (prompt.index("Snow") < prompt.index("Sun")) == is_ordered
    ordered = render(name, [*messages[:2], *reversed(results)], tools=[TOOL])
    assert "results-ordered" not in ordered["fitted"]
    assert (ordered["prompt"] == rendered["prompt"]) == is_ordered


def test_calls_follow_each_other_with_ids_that_a_template_takes() -> None:
    """Two rounds of parallel calls, of which the second repeats ids."""
    messages = [
        say("user", "The weather?"),
        called("Oslo", "Rome", content="I look."),
        result("Rome", "Sun"),
        result("Oslo", "Snow"),
        called("Oslo", "Rome"),
        result("Oslo", "Hail"),
        result("Rome", "Heat"),
        say("user", "Thanks."),
    ]
    rendered = render("nine letters", messages, tools=[TOOL])
    assert rendered["fitted"] == ["calls-in-turns", "ids-rewritten", "answer-supplied"]
    prompt = unmarked(rendered["prompt"]).split("[/TOOLS]")[1]
    ids = re.findall(r"\[ID\](\w{9})\[ARGS\]", prompt)
    assert len(set(ids)) == 4 and ids == re.findall(r"\[RESULT\](\w{9})\[CONTENT\]", prompt)
    assert re.sub("|".join(ids), "#", prompt) == (
        "[INST]The weather?[/INST]"
        'I look.[CALL]get_weather[ID]#[ARGS]{"city": "Oslo"}</s>[RESULT]#[CONTENT]Snow[/RESULT]'
        '[CALL]get_weather[ID]#[ARGS]{"city": "Rome"}</s>[RESULT]#[CONTENT]Sun[/RESULT]'
        '[CALL]get_weather[ID]#[ARGS]{"city": "Oslo"}</s>[RESULT]#[CONTENT]Hail[/RESULT]'
        '[CALL]get_weather[ID]#[ARGS]{"city": "Rome"}</s>[RESULT]#[CONTENT]Heat[/RESULT]'
        "Done.</s>[INST]Thanks.[/INST]"
    )
    assert render("nine letters", messages, tools=[TOOL])["prompt"] == rendered["prompt"]
    kept = [say("user", "?"), called("Oslo", ids="abcd{}1"), result("Oslo", "Snow", "abcd{}1")]
    assert "abcdOslo1" in render("nine letters", kept, tools=[TOOL])["prompt"]
    assert render("nine letters", kept, tools=[TOOL])["fitted"] == []


def test_parts_of_a_message_are_lines() -> None:
    parts = [{"type": "text", "text": text} for text in ("What is", "the best book")]
    for name in ("alternating", "Qwen3.5-4B", "Qwen3-Coder"):
        rendered = render(name, [{"role": "user", "content": parts}])
        assert "What is\nthe best book" in rendered["prompt"] and not rendered["fitted"]


def thought(words: str, message: Json) -> Json:
    return {**message, "reasoning_content": words}


BESIDE = [say("user", "Oslo?"), called("Oslo", content="I look."), result("Oslo", "Snow")]
WITH_SYSTEM = [say("system", "Be brief."), *BESIDE]
LATER = [*BESIDE, say("assistant", "It snows."), say("user", "Rome?")]
AGAIN = [
    *LATER, thought("Well.", called("Rome", content="I look there.")), result("Rome", "Sun"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "messages", "fitted"),
    [
        ("first part", [say("user", "1"), thought("Hm.", say("assistant", "2")), say("user", "3")],
         ["thoughts-left-out"]),
        ("first part", BESIDE, ["text-before-calls"]),
        ("system last", [say("system", "Be brief."), *BESIDE[:1]], []),
        ("system last", WITH_SYSTEM, ["system-in-user"]),
        ("meta-llama-Llama-3.1-8B-Instruct", BESIDE, ["text-before-calls"]),
        ("llama-cpp-deepseek-r1", WITH_SYSTEM, ["text-before-calls"]),
        ("openai-gpt-oss-120b", BESIDE, []),
        ("openai-gpt-oss-120b", LATER, ["text-before-calls"]),
        ("openai-gpt-oss-120b", AGAIN, ["text-before-calls", "text-in-thought"]),
    ],
)  # fmt: skip
def test_what_a_template_would_drop_is_put_where_it_is_shown(
    name: str, messages: list[Json], fitted: list[str]
) -> None:
    """gpt-oss shows a text beside a call until an answer without calls follows."""
    rendered = render(name, messages, tools=[TOOL] if messages[-1]["role"] == "tool" else [])
    prompt = unmarked(rendered["prompt"])
    assert rendered["fitted"] == fitted
    assert [prompt.count(m["content"]) for m in messages if m["content"]] == [1] * sum(
        bool(m["content"]) for m in messages
    )


def test_what_no_way_keeps_is_said() -> None:
    """Mistral's template leaves out what an answer says beside a call."""
    name = "Mistral-Small-3.2-24B-Instruct-2506"
    messages = [say("user", "?"), called("Berlin", content="I look."), result("Berlin", "Snow")]
    rendered = render(name, messages, tools=[TOOL])
    assert "I look." not in rendered["prompt"] and rendered["fitted"] == [
        "ids-rewritten",
        "left-out",
    ]


def test_a_long_conversation_keeps_its_system_message() -> None:
    """Also where the template takes none, and the oldest messages are left out."""
    turns = [say(("user", "assistant")[i % 2], f"<{i}>") for i in range(801)]
    messages = [say("system", "Be brief."), *turns]
    rendered = render("google-gemma-2-2b-it", messages, shorten=True)
    assert rendered["n_left_out"] == 576 and rendered["fitted"] == ["system-in-user"]
    assert "Be brief.\n<576>" in unmarked(rendered["prompt"])
    assert "<800>" in unmarked(rendered["prompt"])


# Tools for templates that know none.


@pytest.mark.parametrize(
    "name", ["alternating", "google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct"]
)
def test_tools_are_described_and_calls_are_read(name: str) -> None:
    facts = made(name).facts()
    assert facts.tools and facts.tools_described and facts.parallel_tool_calls
    messages = [say("system", "Be brief."), say("user", "Paris?")]
    rendered = render(name, messages, tools=[TOOL])
    assert "tools-described" in rendered["fitted"] and "get_weather" in rendered["prompt"]
    assert rendered["grammar_lazy"] and "get_weather" in rendered["grammar"]
    output = 'I look.\n\n{"tool_calls": [' + ", ".join(
        f'{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}' for city in ("Oslo", "Rome")
    )
    output += "]}"
    assert any(value in output for kind, value in rendered["triggers"] if kind == "word")
    answers = [split(rendered, output, n) for n in (1, 7, len(output))]
    for answer in answers:
        assert answer.content == "I look."
        assert [(c.name, c.arguments) for c in answer.tool_calls] == [
            ("get_weather", '{"city": "Oslo"}'),
            ("get_weather", '{"city": "Rome"}'),
        ]
    ids = [c.id for answer in answers for c in answer.tool_calls]
    assert len(set(ids)) == 6 and all(ids)
    rounds = [
        answers[0].to_message(),
        *(
            {"role": "tool", "tool_call_id": c.id, "content": f'"{i}" degrees'}
            for i, c in enumerate(answers[0].tool_calls)
        ),
    ]
    again = render(name, [*messages, *rounds, say("user", "Thanks.")], tools=[TOOL])
    assert "calls-as-text" in again["fitted"]
    prompt = unmarked(again["prompt"])
    assert output in prompt
    assert '{"tool": "get_weather", "content": "\\"1\\" degrees"}' in prompt


@pytest.mark.parametrize(
    ("output", "content", "n_call"),
    [
        ('```json\n{"tool_calls": [{"name": "get_weather", "arguments": {}}]}\n```', "", 1),
        ('{\n  "tool_call": {"name": "get_weather", "parameters": {"city": "["}}\n}', "", 1),
        ('{"tool_calls": [{"name": "get_weather", "arguments": {}}, {"name": "get_w', "", 1),
        ('{"tool_calls": [{"name": "rm", "arguments": {}}]}', None, 0),
        ('{"tool_calls": "none"}', None, 0),
        ('In JSON, {"tool', None, 0),
        ("Use `{` and ```json\n[1]\n``` here.", None, 0),
        ('{"tool_calls": [{"name": "get_weather", "arg', None, 0),
    ],
)
def test_only_calls_of_the_tools_are_calls(output: str, content: str | None, n_call: int) -> None:
    rendered = render("alternating", [say("user", "Paris?")], tools=[TOOL])
    for n_step in (1, len(output)):
        answer = split(rendered, output, n_step)
        assert answer.content == (output if content is None else content)
        assert len(answer.tool_calls) == n_call


def test_a_required_call_and_the_parameters_are_in_the_grammar() -> None:
    rendered = render("alternating", [say("user", "?")], tools=[TOOL], parallel_tool_calls=False)
    assert '\\"city\\"' in rendered["grammar"]
    assert "several objects" not in rendered["prompt"]
    broken = {**TOOL["function"], "parameters": {"type": "object", "$ref": "#/nowhere"}}
    odd = {"type": "function", "function": broken}
    assert "get_weather" in render("alternating", [say("user", "?")], tools=[odd])["grammar"]


def split(rendered: Json, output: str, n_step: int) -> AnswerText:
    splitter = AnswerSplitter(
        rendered["parser"], {"reasoning": "", "content": "", "tool_calls": []}
    )
    answer = AnswerText()
    for i in range(0, len(output), n_step):
        answer.add(splitter.feed(output[i : i + n_step], is_final=False))
    answer.add(splitter.feed("", is_final=True))
    return answer


# Ids of calls in answers.


def test_ids_of_calls_are_new_in_the_conversation() -> None:
    """Also where a model counts its calls in each answer, or repeats an id."""
    name, section = "moonshotai-Kimi-K2", "<|tool_calls_section_{}|>"
    one = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "A"}'
    output = section.format("begin") + (one + "<|tool_call_end|>") * 2 + section.format("end")
    messages = [say("user", "?")]
    seen: list[str] = []
    for _ in range(2):
        answer = split(render(name, messages, tools=[TOOL]), output, 5)
        seen += [c.id for c in answer.tool_calls]
        messages.append(answer.to_message())
        messages += [{"role": "tool", "tool_call_id": i, "content": "Sun"} for i in seen[-2:]]
    assert seen == [f"functions.get_weather:{i}" for i in range(4)]


# The border.


@pytest.mark.parametrize("name", STRICT)
def test_text_that_is_moved_makes_no_control_tokens(name: str) -> None:
    def prompt(text: str) -> str:
        messages = [
            say("system", "Be brief."),
            say("user", f"a {text}"),
            say("assistant", f"b {text}"),
            say("system", text),
            called("Oslo", "Rome", ids=text + "{}", content=text),
            result("Oslo", text, ids=text + "{}"),
            result("Rome", json.dumps({text: [text]}), ids=text + "{}"),
            say("user", text),
            say("user", text),
            result("Orphan", text),
        ]
        function = {**TOOL["function"], "name": f"x{text}", "description": text}
        tools = [{"type": "function", "function": function}]
        rendered = render(name, messages, tools=tools)
        assert rendered["fitted"]
        return str(rendered["prompt"])

    calm = n_control(prompt("quiet"))
    for text in (" ".join(CONTROL), "".join(c[:-1] + c for c in CONTROL), CONTROL[2][1:]):
        assert n_control(prompt(text)) == calm


def n_control(prompt: str) -> int:
    def count(part: str, _: bool) -> list[int]:
        return [0] * sum(part.count(text) for text in CONTROL)

    return len(tokens_of(prompt, count, False))


@pytest.mark.parametrize("thinks", [False, True])
def test_a_call_behind_a_result_is_read_as_one_behind_a_question(thinks: bool) -> None:
    """Its prompt ends otherwise, in which llama.cpp's parser of DeepSeek V3.2 reads no call."""
    made = ConversationFormat(template("deepseek-ai-DeepSeek-V3.2"), "<s>", "</s>")
    function = {"name": "f", "arguments": '{"a": "b"}'}
    call = {"id": "c1", "type": "function", "function": function}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "b"},
    ]
    said = (
        'I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter '
        'name="a" string="true">c</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    )
    options = {"tools": [tool], "tool_choice": "auto", "thinking": thinks}
    for sent in (messages[:1], messages):
        rendered = made.render(sent, options)
        answer = split(rendered, "So.</think>" * thinks + said, 9)
        assert (answer.reasoning, answer.content) == ("So." * thinks, "I look.")
        assert [(c.name, c.arguments) for c in answer.tool_calls] == [("f", '{"a":"c"}')]
