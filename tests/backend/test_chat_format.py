"""Conversation formats of real models: prompts, and outputs split while they stream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from chat_formats import (
    ELSEWISE,
    OUTPUTS,
    TEMPLATES,
    mutant,
    open_format,
    read,
    rendered,
    rotating,
    template,
)

from backend.cli import main
from backend.llama.api import LlamaError
from backend.llama.chat_format import CHATML, ChatFormat, Deadlines
from backend.protocol.chat import AnswerText, ChatOptions, ToolCall
from backend.system import children

SYSTEM = {"role": "system", "content": "You are a librarian."}
CHAT = [
    SYSTEM,
    {"role": "user", "content": "A first question"},
    {"role": "assistant", "content": "A first answer"},
    {"role": "user", "content": "A second question"},
    {"role": "assistant", "content": "A second answer"},
    {"role": "user", "content": "A third question"},
]
WEATHER = {
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
JSON_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TAGGED_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>"
)
PAIRS_CALL = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
)
CALLS = {
    "Qwen-Qwen3-0.6B": f"<think>\nI look.\n</think>\n\n{JSON_CALL}",
    "Qwen-Qwen2.5-7B-Instruct": JSON_CALL,
    "ibm-granite-granite-4.0": JSON_CALL,
    "Qwen3-Coder": TAGGED_CALL,
    "Qwen3.5-4B": f"I look.\n</think>\n\n{TAGGED_CALL}",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": f"I look.\n</think>\n{TAGGED_CALL}",
    "GLM-4.6": f"\n<think>I look.</think>\n{PAIRS_CALL}",
    "openai-gpt-oss-120b": "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city": "Paris"}',
    "moonshotai-Kimi-K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
    "MiniMax-M2": 'I look.\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
    "Mistral-Small-3.2-24B-Instruct-2506": "[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]"
    '{"city": "Paris"}',
    "mistralai-Ministral-3-14B-Reasoning-2512": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "meta-llama-Llama-3.1-8B-Instruct": '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "ByteDance-Seed-OSS": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris"
    "</parameter>\n</function>\n</seed:tool_call>",
    "deepseek-ai-DeepSeek-V3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "deepseek-ai-DeepSeek-V3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather"
    '<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "LFM2-8B-A1B": '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    "inclusionai-ling-3.0-flash": f"I look.\n</think>\n{PAIRS_CALL}",
    "google-gemma-4-31B-it": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
}


@pytest.fixture(scope="module")
def formats() -> Iterator[dict[str, ChatFormat]]:
    opened = {name: open_format(name) for name in TEMPLATES}
    yield opened
    for chat_format in opened.values():
        chat_format.close()


# Prompts.


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_conversation_is_rendered(name: str, formats: dict[str, ChatFormat]) -> None:
    prompt = rendered(formats[name], CHAT).prompt
    assert [m["content"] for m in CHAT if m["content"] not in prompt] == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_goes_on_behind_its_last_word(name: str, formats: dict[str, ChatFormat]) -> None:
    """Whether it was stopped in the answer, in the answer behind a thought, or in the thought."""
    chat_format = formats[name]
    for reasoning, content in (("", "It was"), ("I see", "It was"), ("I see", "")):
        said = {"role": "assistant", "reasoning_content": reasoning, "content": content}
        prompt = rendered(chat_format, [*CHAT, said])
        assert prompt.prompt.endswith(content or reasoning)
        gained = AnswerText(content=" a fox.") if content else AnswerText(" a fox.")
        assert read(chat_format, prompt, " a fox.", 1) == gained


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_may_end_before_the_answer(name: str, formats: dict[str, ChatFormat]) -> None:
    """As with llama.cpp's add_generation_prompt. A last answer is continued all the same."""
    source = template(name)
    has_none = "set add_generation_prompt = true" in source  # where it is not given, as llama.cpp
    usual, bare = (rendered(formats[name], CHAT, opens=opens) for opens in (True, False))
    assert bare.prompt + usual.begun == usual.prompt
    assert bool(usual.begun) is ("add_generation_prompt" in source and not has_none)
    said = [*CHAT, {"role": "assistant", "content": "It was"}]
    usual, bare = (rendered(formats[name], said, opens=opens) for opens in (True, False))
    assert bare.prompt == usual.prompt


@pytest.mark.parametrize("name", TEMPLATES)
def test_thinking_is_switched(name: str, formats: dict[str, ChatFormat]) -> None:
    chat_format, facts = formats[name], formats[name].facts()
    messages = CHAT[1:]  # Granite 3.3 asks for thoughts in a system prompt, unless there is one
    on, off, default = (
        rendered(chat_format, messages, thinking=thinking).prompt
        for thinking in (True, False, None)
    )
    assert (on != off) is (facts.thinking == "switch")
    assert default == (on if facts.thinks_by_default else off)


def test_a_template_is_asked_once_for_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    source = CHATML + "{# asked once #}"
    asked, again = (ChatFormat("m", source, "<s>", "</s>") for _ in range(2))
    facts = asked.facts()
    asked.close()

    def refuse(module: str) -> None:
        raise OSError(f"no process runs {module}")

    monkeypatch.setattr(children, "start", refuse)
    assert again.facts() == facts
    for other in (("m", source + " ", "<s>", "</s>"), ("m", source, "<t>", "</s>")):
        with pytest.raises(LlamaError, match="no process"):
            ChatFormat(*other).facts()


def test_words_switch_thinking_where_a_template_reads_them() -> None:
    """As Nemotron Nano v2's does."""
    source = (
        "{% set ns = namespace(on=true) %}{% for m in messages %}"
        "{% if '/no_think' in m.content %}{% set ns.on = false %}{% endif %}"
        "<{{ m.role }}>{{ m.content | replace('/no_think', '') | replace('/think', '') }}"
        "{% endfor %}{% if add_generation_prompt %}<assistant><think>"
        "{% if not ns.on %}</think>{% endif %}{% endif %}"
    )
    chat_format = ChatFormat("m", source, "", "")
    facts = chat_format.facts()
    assert facts.thinking == "switch" and facts.thinks_by_default
    prompts = [rendered(chat_format, CHAT, thinking=on).prompt for on in (None, True, False)]
    assert [prompt.endswith("</think>") for prompt in prompts] == [False, False, True]
    chat_format.close()


def test_efforts_are_found(formats: dict[str, ChatFormat]) -> None:
    found = {name: f.facts().efforts for name, f in formats.items() if f.facts().efforts}
    assert found == {
        "openai-gpt-oss-120b": ("low", "medium", "high"),
        "deepseek-ai-DeepSeek-V4": ("max",),
    }
    low = rendered(formats["openai-gpt-oss-120b"], CHAT, effort="low").prompt
    assert "Reasoning: low" in low


LOOKS_BACK = (
    "{% for m in messages %}{% for n in messages %}{% if n.role == m.role %}{% endif %}"
    "{% endfor %}{{ m.role ~ m.content }}{% endfor %}"
)
SLOW = (
    "{% if messages | length > 300 %}{% for a in range(9999) %}{% for b in range(9999) %}"
    "{% endfor %}{% endfor %}{% endif %}{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}"
)


@pytest.mark.usefixtures("started_children")
@pytest.mark.parametrize(
    ("source", "n_left_out"),
    [
        ("{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}", 0),
        (LOOKS_BACK, 576),
        (template("google-gemma-4-31B-it"), 576),
        (SLOW, 576),
    ],
    ids=["plain", "looks back", "Gemma 4", "too slow"],
)
def test_an_endless_chat_is_rendered_or_shortened(
    source: str, n_left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template that looks back at all messages from each gets the last ones, on any machine."""
    if source == SLOW:  # of processor time, until it is shortened
        monkeypatch.setattr("backend.llama.chat_format.RENDER_LIMIT_S", 1.0)
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": f"<{i}>"} for i in range(801)]
    chat_format = ChatFormat("m", source, "", "")
    prompt = rendered(chat_format, [SYSTEM, *turns])
    chat_format.close()
    assert prompt.n_left_out == n_left_out
    assert SYSTEM["content"] in prompt.prompt and "<800>" in prompt.prompt
    assert [i for i in range(801) if f"<{i}>" in prompt.prompt] == list(range(n_left_out, 801))


@pytest.mark.skipif(os.name == "nt", reason="nothing suspends a process there")
@pytest.mark.usefixtures("started_children")
def test_a_process_that_hangs_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    chat_format = ChatFormat("m", CHATML, "", "")
    prompt = chat_format.render(CHAT, ChatOptions())
    for child in psutil.Process().children():
        if any("format_child" in word for word in child.cmdline()):
            child.suspend()
    with monkeypatch.context() as soon, pytest.raises(LlamaError, match="takes too long"):
        soon.setattr("backend.llama.chat_format.RENDER_LIMIT_S", 0.1)
        soon.setattr("backend.llama.chat_format._START_S", 0.1)
        soon.setattr("backend.llama.chat_format._deadlines", Deadlines())
        chat_format.render(CHAT, ChatOptions())
    assert chat_format.render(CHAT, ChatOptions()) == prompt  # by another process
    chat_format.close()


# Outputs.


@pytest.mark.parametrize(("index", "by_letter"), rotating(range(len(OUTPUTS)), (False, True)))
def test_an_output_is_split(index: int, by_letter: bool, formats: dict[str, ChatFormat]) -> None:
    case = OUTPUTS[index]
    chat_format = formats[case["template"].removesuffix(".jinja")]
    prompt = rendered(chat_format, CHAT, thinking=case.get("enable_thinking"))
    answer = read(chat_format, prompt, case["output"], 1 if by_letter else len(case["output"]))
    assert answer == ELSEWISE.get(index, AnswerText(case["reasoning"], case["content"]))


@pytest.mark.parametrize(("name", "n_step"), rotating(CALLS, (1, 1000)))
def test_a_tool_is_called(name: str, n_step: int, formats: dict[str, ChatFormat]) -> None:
    """Asked, parsed, run and answered."""
    chat_format = formats[name]
    assert chat_format.facts().tools
    ask = [{"role": "user", "content": "The weather in Paris?"}]
    prompt = rendered(chat_format, ask, tools=(WEATHER,))
    assert "get_weather" in prompt.prompt
    if "Llama-3.1" not in name:  # its calls have no mark with which a grammar could begin
        assert prompt.grammar and prompt.grammar_lazy and prompt.triggers
    answer = read(chat_format, prompt, CALLS[name], n_step)
    (call,) = answer.tool_calls
    assert (
        call.id and call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    )
    assert answer.content == ""
    assert answer.reasoning == ("I look." if "I look." in CALLS[name] else "")
    result = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "It rains."}
    again = rendered(chat_format, [*ask, answer.to_message(), result], tools=(WEATHER,)).prompt
    assert "Paris" in again and "It rains." in again


# Calls that are quoted. A thought ends at its first end mark, and a call counts only outside of it.

# The template, what begins and ends a thought, and a call.
QUOTING = {
    "Qwen3.5-4B": ("", "\n</think>\n\n", TAGGED_CALL),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("", "\n</think>\n", TAGGED_CALL),
    "Qwen-Qwen3-0.6B": ("<think>\n", "\n</think>\n\n", JSON_CALL),
    "GLM-4.6": ("\n<think>", "</think>\n", PAIRS_CALL),
    "inclusionai-ling-3.0-flash": ("", "\n</think>\n", PAIRS_CALL),
    "Kimi-K2-Thinking": ("<think>", "</think>", CALLS["moonshotai-Kimi-K2"]),
    "MiniMax-M2": ("", "\n</think>\n\n", CALLS["MiniMax-M2"].partition("</think>\n\n")[2]),
    "mistralai-Ministral-3-14B-Reasoning-2512": (
        "[THINK]",
        "[/THINK]",
        CALLS["mistralai-Ministral-3-14B-Reasoning-2512"],
    ),
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>\n", CALLS["ByteDance-Seed-OSS"]),
    "deepseek-ai-DeepSeek-V3.1": ("", "</think>", CALLS["deepseek-ai-DeepSeek-V3.1"]),
    "deepseek-ai-DeepSeek-V3.2": ("", "</think>", CALLS["deepseek-ai-DeepSeek-V3.2"]),
    "google-gemma-4-31B-it": (
        "<|channel>thought\n",
        "<channel|>",
        CALLS["google-gemma-4-31B-it"],
    ),
    "LFM2-8B-A1B": ("<think>", "</think>", CALLS["LFM2-8B-A1B"]),
    "openai-gpt-oss-120b": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        CALLS["openai-gpt-oss-120b"].partition("<|start|>assistant")[2],
    ),
}
QUOTES = "Marks: {mark}, <tool_call> or <function=f>, or even <think>. A whole one:\n{call}\nSo."


def said_of(
    name: str, formats: dict[str, ChatFormat], output: str, n_step: int, *tools: Any
) -> tuple[str, str, list[str]]:
    """Return thought, content and names of calls of an output of a model that thinks."""
    prompt = rendered(formats[name], CHAT, tools=tools, thinking=True)
    answer = read(formats[name], prompt, output, n_step)
    return answer.reasoning, answer.content, [call.name for call in answer.tool_calls]


@pytest.mark.parametrize(("name", "n_step"), rotating(QUOTING, (3, 1000)))
def test_a_call_that_a_thought_quotes_is_none(
    name: str, n_step: int, formats: dict[str, ChatFormat]
) -> None:
    begin, end, call = QUOTING[name]
    quotes = QUOTES.format(mark=call[: call.find(">") + 1], call=call)
    output = begin + quotes + end
    for tools in ((), (WEATHER,)):
        said = said_of(name, formats, f"{output}Hello.", n_step, *tools)
        assert said == (quotes, "Hello.", [])
    if "gpt-oss" in name:
        output = output.removesuffix("<|channel|>final<|message|>")
    said = said_of(name, formats, output + call, n_step, WEATHER)
    assert said == (quotes, "", ["get_weather"])


# gpt-oss has no thought without an end: its calls are messages of their own.
OPEN = [name for name in QUOTING if "gpt-oss" not in name]


@pytest.mark.parametrize(("name", "n_step"), rotating(OPEN, (3, 1000)))
def test_a_whole_call_may_end_a_thought(
    name: str, n_step: int, formats: dict[str, ChatFormat]
) -> None:
    """Some models leave a thought open before a call. Text behind the call makes it a quotation."""
    begin, _end, call = QUOTING[name]
    for behind, calls in (("", ["get_weather"]), ("\n", ["get_weather"]), (" is a call.", [])):
        thought = "I look." if calls else f"I look.\n{call}{behind}"
        output = f"{begin}I look.\n{call}{behind}"
        assert said_of(name, formats, output, n_step, WEATHER) == (thought, "", calls)
    cut = f"I look.\n{call[:-9]}"
    for thought, tools in ((cut, [WEATHER]), (f"I look.\n{call}", [])):
        assert said_of(name, formats, begin + thought, n_step, *tools) == (thought, "", [])


def test_a_call_in_an_open_thought_is_held_back(formats: dict[str, ChatFormat]) -> None:
    """What was shown is never taken back, whether the thought ends behind the call or not."""
    chat_format = formats["Qwen3.5-4B"]
    reader = chat_format.reader(rendered(chat_format, CHAT, tools=(WEATHER,), thinking=True))
    reader.feed(f"I look: {TAGGED_CALL}")
    assert reader.shown == AnswerText("I look:")
    assert reader.feed(" is a call.").reasoning.endswith(f"{TAGGED_CALL} is a call.")
    reader.feed(f"\n{TAGGED_CALL}")
    reader.feed("\n</think>\n\nHello.")
    reader.finish()
    thought = f"I look: {TAGGED_CALL} is a call.\n{TAGGED_CALL}"
    assert reader.shown == AnswerText(thought, "Hello.")


@pytest.mark.parametrize(("name", "n_step"), rotating(QUOTING, (3, 1000)))
def test_what_the_parser_cannot_read_is_text(
    name: str, n_step: int, formats: dict[str, ChatFormat]
) -> None:
    """A mark that begins no call, also at the end and before a call, and text behind a call."""
    begin, end, call = QUOTING[name]
    mark = call[: call.find(">") + 1] or call[: call.find("]") + 1]
    think = f"{begin}Hm.{end}"
    if "gpt-oss" in name:
        texts, call = ("The tag <|end is one.",), ""
    else:
        texts = (f"The tag {mark} starts a call.", f"The tag {mark}")
    for text in texts:
        assert said_of(name, formats, think + text, n_step, WEATHER)[:2] == ("Hm.", text)
    if call and "ling" not in name:  # Ling's form takes any text behind a mark that is no call
        output = f"{think}{texts[0]}\n{call}"
        said = said_of(name, formats, output, n_step, WEATHER)
        assert (said[1].strip(), said[2]) == (texts[0], ["get_weather"])
    if call:
        said = said_of(name, formats, f"{think}{call}\nBye.", n_step, WEATHER)
        assert (said[1].strip(), said[2]) == ("Bye.", ["get_weather"])


@pytest.mark.parametrize("n_step", [1, 1000])
def test_a_quoted_name_is_no_call(n_step: int, formats: dict[str, ChatFormat]) -> None:
    text = 'In JSON: {"name": "x"}, {"name": "get_weather"} and {}.'
    said = said_of("meta-llama-Llama-3.1-8B-Instruct", formats, text, n_step, WEATHER)
    assert said == ("", text, [])
    text = "<tool_call>\n<function=get_weather>\nis how a call begins."
    said = said_of("Qwen3.5-4B", formats, f"Hm.\n</think>\n\n{text}", n_step, WEATHER)
    assert said == ("Hm.", text, [])


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_mark_of_a_call_ends_a_thought(name: str, formats: dict[str, ChatFormat]) -> None:
    """Otherwise the grammar of calls would begin in a thought that quotes it."""
    prompt = rendered(formats[name], CHAT, tools=(WEATHER,))
    words = [trigger.value.strip() for trigger in prompt.triggers]
    assert [end for end in prompt.thinking_ends if end.strip() in words] == []


def test_a_tool_can_be_required_or_named(formats: dict[str, ChatFormat]) -> None:
    other = {"type": "function", "function": {**WEATHER["function"], "name": "get_time"}}
    for choice in ("required", "get_weather"):
        prompt = rendered(formats["Qwen3-Coder"], CHAT, tools=(WEATHER, other), tool_choice=choice)
        assert prompt.grammar and not prompt.grammar_lazy
        assert ("get_time" in prompt.grammar) is (choice == "required")


def test_a_schema_and_a_grammar_reach_the_sampler(formats: dict[str, ChatFormat]) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}}
    chat_format = formats["Qwen-Qwen2.5-7B-Instruct"]
    prompt = rendered(chat_format, CHAT, json_schema=schema)
    (gap,) = prompt.gaps
    assert "colour" in gap.schema and f'"{gap.number}"' in prompt.grammar
    assert not prompt.grammar_lazy
    assert read(chat_format, prompt, '{"colour": "red"}', 1).content == '{"colour": "red"}'
    assert rendered(chat_format, CHAT, grammar='root ::= "yes"').grammar == 'root ::= "yes"'


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", ['"minimum": 3']),
        ("openai-gpt-oss-120b", ['"minimum": 3']),
        # Each parameter by itself, and texts without quotes.
        ("Qwen3-Coder", ['"minimum": 3', '"low" | "high"']),
        # Says beside each whether it is text.
        ("deepseek-ai-DeepSeek-V3.2", ['"minimum": 3', '"low" | "high"']),
        ("LFM2-8B-A1B", ['"minimum": 3', '"enum": ["low", "high"]']),  # calls in Python
        ("google-gemma-4-31B-it", []),  # a form of its own
    ],
)
def test_parameters_of_a_tool_have_gaps(
    name: str,
    held: list[str],
    formats: dict[str, ChatFormat],
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {
        "level": {"type": "number", "minimum": 3},
        "kind": {"type": "string", "enum": ["low", "high"]},
        "name": {"type": "string"},
    }
    parameters = {"type": "object", "properties": properties, "not": {"required": ["x"]}}
    function = {"name": "set_level", "description": "", "parameters": parameters}
    prompt = rendered(formats[name], CHAT, tools=({"type": "function", "function": function},))
    assert len(prompt.gaps) == len(held)
    for gap, words in zip(prompt.gaps, held, strict=True):
        assert words in gap.schema and f'"{gap.number}"' in prompt.grammar
    assert ("tool 'set_level': its keywords" in caplog.text) is (not held)


@pytest.mark.parametrize("name", ["Qwen3.5-4B", "openai-gpt-oss-120b", "google-gemma-4-31B-it"])
def test_the_end_of_an_answer_is_not_lost(name: str, formats: dict[str, ChatFormat]) -> None:
    """What could have become a mark is held back, and then it is text."""
    chat_format = formats[name]
    prompt = rendered(chat_format, CHAT, thinking=False)
    start = "<|channel|>final<|message|>" if "gpt-oss" in name else ""
    for text in ("a < b, 1 <", "an <|", "a [", "\n\nHello", "ends\n"):
        assert read(chat_format, prompt, start + text, 1).content == text.lstrip("\n")


def test_reading_goes_on_in_another_process(formats: dict[str, ChatFormat]) -> None:
    chat_format = formats["Qwen3.5-4B"]
    prompt = rendered(chat_format, CHAT, tools=(WEATHER,))
    reader, answer = chat_format.reader(prompt), AnswerText()
    for i, letter in enumerate(CALLS["Qwen3.5-4B"]):
        if i % 20 == 10:
            chat_format.close()
        answer.add(reader.feed(letter))
    answer.add(reader.finish())
    assert (answer.reasoning, answer.content) == ("I look.", "")
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        ("get_weather", {"city": "Paris"})
    ]


def test_two_answers_are_read_by_turns(formats: dict[str, ChatFormat]) -> None:
    chat_format = formats["Qwen-Qwen3-0.6B"]
    prompt = rendered(chat_format, CHAT)
    readers, answers = [chat_format.reader(prompt) for _ in range(2)], [AnswerText(), AnswerText()]
    for letter in "<think>I</think>a":
        for reader, answer in zip(readers, answers, strict=True):
            answer.add(reader.feed(letter))
    for reader, answer in zip(readers, answers, strict=True):
        answer.add(reader.finish())
    assert answers == [AnswerText("I", "a")] * 2


def test_a_call_with_broken_arguments_can_be_sent_back(formats: dict[str, ChatFormat]) -> None:
    call = ToolCall("1", "get_weather", '{"city": ')
    said = AnswerText(tool_calls=[call]).to_message()
    result = {"role": "tool", "tool_call_id": "1", "content": "No."}
    assert "No." in rendered(formats["Qwen3-Coder"], [*CHAT, said, result], tools=(WEATHER,)).prompt


N_DAMAGED = 8  # by day; each takes a process


# Templates that are damaged or hostile. tests/benchmarks/hostile_templates.py has 1,000.


@pytest.mark.parametrize(
    "seed", [pytest.param(i, marks=[pytest.mark.night] * (i >= N_DAMAGED)) for i in range(24)]
)
def test_a_damaged_template_renders_or_is_refused(seed: int) -> None:
    chat_format = ChatFormat("m", mutant(seed), "<s>", "</s>")
    try:
        rendered(chat_format, CHAT)
    except LlamaError as error:
        sentence = str(error)
        assert sentence.startswith("The chat template of m ") and sentence.endswith(".")
        assert "\n" not in sentence and "Traceback" not in sentence
    finally:
        chat_format.close()


# The command.


def test_the_command_shows_prompt_and_parts(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(template("Qwen3.5-4B"), encoding="utf-8")
    (tmp_path / "m.json").write_text(json.dumps(CHAT), encoding="utf-8")
    (tmp_path / "tools.json").write_text(json.dumps([WEATHER]), encoding="utf-8")
    (tmp_path / "o.txt").write_text(CALLS["Qwen3.5-4B"], encoding="utf-8", newline="\n")
    words = ["format", path, "--messages", tmp_path / "m.json", "--output", tmp_path / "o.txt"]
    words += ["--tools", tmp_path / "tools.json", "--json"]
    assert main([str(word) for word in words]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["thinking"] == "switch" and shown["tools"] and shown["thinks"]
    assert "A third question" in shown["prompt"] and shown["prompt"].endswith("<think>\n")
    assert (shown["reasoning"], shown["content"]) == ("I look.", "")
    assert shown["tool_calls"][0]["function"]["name"] == "get_weather"
    (tmp_path / "o.txt").write_text("I see.</think>\n\nIt was", encoding="utf-8")
    assert main([str(word) for word in [*words, "--continue"]]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"].endswith("It was")


def test_the_command_reads_no_weights(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The header has the template and the texts of the tokens; the file ends behind it."""
    from factory import make_tiny

    model = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf")
    assert main(["format", str(model), "--json"]) == 0
    assert "Hello" in json.loads(capsys.readouterr().out)["prompt"]
    path = tmp_path / "bad.jinja"
    path.write_bytes(b"\xff{{ 1 }}")
    assert main(["format", str(path)]) == 1
    assert capsys.readouterr().err == "outrider: bad.jinja is not text in UTF-8.\n"
