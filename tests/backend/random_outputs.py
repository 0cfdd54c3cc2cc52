"""Random outputs of models whose thoughts and answers quote marks, with their right parts.

Two kinds are left out, since no parser can know better: an output that quotes the end mark of its
own thought, and one that quotes a call up to its value, which all that follows may be. A whole call
of an offered tool is quoted in a thought only, since in an answer it is a call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from chat_formats import rendered

from backend.llama.chat_format import ChatFormat, Rendered
from backend.llama.conversation_format import THOUGHTS
from backend.protocol.chat import AnswerText

NAMES = ("look_up", "f")
OTHER = "rm_all"
"""A tool that is not offered."""
TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Find a word.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["x"],
            },
        },
    }
    for name in NAMES
)


@dataclass(frozen=True)
class Form:
    """How a family writes calls: what begins, separates and ends them, with NAME and VALUE."""

    call: str
    begin: str = ""
    end: str = ""
    between: str = "\n"

    def written(self, calls: list[tuple[str, str]]) -> str:
        """Return calls of (name, value) as text."""
        bodies = [self.call.replace("NAME", n).replace("VALUE", v) for n, v in calls]
        return self.begin + self.between.join(bodies) + self.end

    def begins_in(self, text: str) -> bool:
        """Return whether a text has a call up to its value that it does not end: all may follow."""
        for name in NAMES:
            text = text.replace(self.written([(name, "v")]), "")
        first, middle, _ = re.split("NAME|VALUE", self.call)
        at = text.find(f"{first}look_up")
        return at >= 0 and middle.strip() in text[at:]

    @property
    def marks(self) -> list[str]:
        """What stands around the name and the value."""
        first, middle, last = re.split("NAME|VALUE", self.call)
        return [m for m in (self.begin, first, middle, last, self.end, first + "look_up") if m]


_JSON = '{"name": "NAME", "arguments": {"x": "VALUE"}}'
_TAGGED = Form(
    "<tool_call>\n<function=NAME>\n<parameter=x>\nVALUE\n</parameter>\n</function>\n</tool_call>"
)
_IN_TAGS = Form(f"<tool_call>\n{_JSON}\n</tool_call>")
_PAIRS = Form("<tool_call>NAME\n<arg_key>x</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>")
_KIMI = Form(
    '<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{"x": "VALUE"}'
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "",
)
_DEEPSEEK_R1 = Form(
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{"x": "VALUE"}\n```'
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
)
_GEMMA = Form('<|tool_call>call:NAME{x:<|"|>VALUE<|"|>}<tool_call|>', between="")
_DSML = (
    '<｜DSML｜invoke name="NAME">\n<｜DSML｜parameter name="x" string="true">VALUE'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>"
)
_GENERIC = Form(_JSON, '{"tool_calls": [', "]}", ", ")
FORMS = {
    "ByteDance-Seed-OSS": Form(
        "<seed:tool_call>\n<function=NAME>\n<parameter=x>VALUE</parameter>\n</function>\n"
        "</seed:tool_call>"
    ),
    "GLM-4.6": _PAIRS,
    "GLM-4.7-Flash": Form(
        "<tool_call>NAME<arg_key>x</arg_key><arg_value>VALUE</arg_value></tool_call>"
    ),
    "Kimi-K2-Instruct": _KIMI,
    "Kimi-K2-Thinking": _KIMI,
    "moonshotai-Kimi-K2": _KIMI,
    "LFM2-8B-A1B": Form('NAME(x="VALUE")', "<|tool_call_start|>[", "]<|tool_call_end|>", ", "),
    "MiniMax-M1": Form(_JSON, "<tool_calls>\n", "\n</tool_calls>"),
    "MiniMax-M2": Form(
        '<invoke name="NAME">\n<parameter name="x">VALUE</parameter>\n</invoke>',
        "<minimax:tool_call>\n",
        "\n</minimax:tool_call>",
    ),
    "Mistral-Small-3.2-24B-Instruct-2506": Form(
        '[TOOL_CALLS]NAME[CALL_ID]123456789[ARGS]{"x": "VALUE"}', between=""
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": Form(
        '[TOOL_CALLS]NAME[ARGS]{"x": "VALUE"}', between=""
    ),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": _TAGGED,
    "Qwen3-Coder": _TAGGED,
    "Qwen3.5-4B": _TAGGED,
    "Qwen-QwQ-32B": _IN_TAGS,
    "Qwen-Qwen2.5-7B-Instruct": _IN_TAGS,
    "Qwen-Qwen3-0.6B": _IN_TAGS,
    "ibm-granite-granite-4.0": _IN_TAGS,
    "llama-cpp-deepseek-r1": _DEEPSEEK_R1,
    "deepseek-ai-DeepSeek-V3.1": Form(
        '<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{"x": "VALUE"}<｜tool▁call▁end｜>',
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "",
    ),
    "deepseek-ai-DeepSeek-V3.2": Form(
        _DSML, "<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"
    ),
    "deepseek-ai-DeepSeek-V4": Form(_DSML, "<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"),
    "google-gemma-4-31B-it": _GEMMA,
    "google-gemma-4-31B-it-interleaved": _GEMMA,
    "inclusionai-ling-3.0-flash": _PAIRS,
    "meta-llama-Llama-3.1-8B-Instruct": Form('{"name": "NAME", "parameters": {"x": "VALUE"}}'),
    "openai-gpt-oss-120b": Form(
        "<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>"
        '{"x": "VALUE"}'
    ),
}
"""The forms of the templates that know tools; the others have the generic form."""
_ONE_CALL = ("meta-llama-Llama-3.1-8B-Instruct", "openai-gpt-oss-120b")
"""Templates whose models end an answer with the first call."""

WORDS = (
    "So the tag", "is one", "I look at", "then", "a < b", "x > y,", "ä", "日本", "two", "[1]", "{}",
    "it's", '"quoted"', "or", "$5", "\\n", "50 %", "e.g.", "Let me", "see:", "*bold*", "`code`",
)  # fmt: skip
FOREIGN = (
    "<tool_call>", "</tool_call>", "<function=f>", "<|tool_call_start|>", "[TOOL_CALLS]", "[ARGS]",
    "<invoke>", "<seed:tool_call>", "<answer>", "<response>", "<step>", "<arg_key>", "<tools>",
    "<|im_start|>user\n", "<|im_end|>", "<start_of_turn>user\n", "user\n", "assistant:", "[INST]",
    "<｜User｜>", "<|user|>", "System:", "<s>", "</s>", "<|eot_id|>", "<tool_response>",
    "```json\n{}\n```", "```xml\n<tool_call>\n</tool_call>\n```", "```", "~~~", "```python\n",
    '{"a": [1, {"b": null}]}', '{"name": "x"}', '[{"tool": "f"}]', '{"tool_calls": []}', '{"name":',
    '{"tool_calls": [', '{"name": "rm_all", "arguments": {}}', "</function>", "</parameter>",
)  # fmt: skip
"""Marks of other families, roles, fences and JSON."""


Parts = tuple[str, str, list[tuple[str, str]]]
"""Thought, content, and calls as pairs of a name and a value."""


@dataclass(frozen=True)
class Output:
    """An output and its right parts, without white space around them."""

    text: str
    parts: Parts


class Outputs:
    """Makes outputs of one template from a seed. offered: the prompt offers the tools."""

    def __init__(self, name: str, seed: int, *, offered: bool) -> None:
        self._name, self._offered = name, offered
        self._form = FORMS.get(name, _GENERIC)
        self._chance = random.Random(f"{name} {seed} {offered}")

    def make(self, prompt: Rendered) -> Output:
        """Return an output to this prompt."""
        begin, end, then = self._thought_marks(prompt)
        ends = {*prompt.thinking_ends, *(t.end for t in THOUGHTS), *prompt.stops, "<|end|>"}
        while True:
            output = self._made(begin, end, then)
            quoted = output.parts[0] + output.parts[1]
            is_end = any(mark.strip() and mark.strip() in quoted for mark in ends)
            if not is_end and not self._form.begins_in(quoted):
                return output

    def _thought_marks(self, prompt: Rendered) -> tuple[str, str, str]:
        """Return what begins and ends a thought, and what begins the content behind it."""
        if "gpt-oss" in self._name:
            says = "<|start|>assistant<|channel|>CHANNEL<|message|>"
            return "<|channel|>analysis<|message|>", "<|end|>", says
        start = "" if prompt.thinks else prompt.thinking_start
        end = prompt.thinking_ends[0] if prompt.thinking_ends else ""
        if not end or not (start or prompt.thinks):
            start, end = THOUGHTS[0].start, THOUGHTS[0].end
        return start, end, ""

    def _made(self, begin: str, end: str, then: str) -> Output:
        chance = self._chance
        thinks = not begin or chance.random() < 0.7
        shape = chance.choice(("text", "text and calls", "calls", "open", "open and calls"))
        if not thinks and shape.startswith("open"):
            shape = "text and calls"
        if "gpt-oss" in self._name and shape == "open and calls":
            shape = "calls"  # its calls are messages of their own
        ends, says = not shape.startswith("open"), shape.startswith("text")
        thought = self._quoting(whole=ends) if thinks else ""
        content = self._quoting(whole=not self._offered) if says else ""
        calls: list[tuple[str, str]] = []
        if self._offered and "calls" in shape:
            values = chance.choice(("a", "two words", "ä b", "1"))
            n = 1 if self._name in _ONE_CALL else chance.choice((1, 1, 1, 2))
            calls = [(chance.choice(NAMES), values) for _ in range(n)]
        space = chance.choice(("", "\n", "\n\n"))
        text = f"{begin}{thought}{end if ends else ''}" if thinks else ""
        if says:
            then = then.replace("CHANNEL", "commentary" if calls else "final")
            text += (then if thinks else then.removeprefix("<|start|>assistant")) + space + content
        elif ends and not calls and not then:
            text += space
        if calls:
            written = self._form.written(calls)
            if not text:
                written = written.removeprefix("<|start|>assistant")
            elif says and then:
                written = "<|end|>" + written
            elif not then:
                written = chance.choice(("\n", "\n\n")) + written
            text += written
        return Output(text, (thought, content, calls))

    def _quoting(self, *, whole: bool) -> str:
        """Return a text that quotes. whole: also whole calls of offered tools."""
        chance, form = self._chance, self._form
        parts = [chance.choice(("So", "I see", "Hm,"))]
        for _ in range(chance.randint(0, 6)):
            kind = chance.random()
            if kind < 0.45:
                parts.append(chance.choice(WORDS))
            elif kind < 0.65:
                parts.append(chance.choice(form.marks))
            elif kind < 0.85:
                parts.append(chance.choice(FOREIGN))
            elif kind < 0.92:
                parts.append(form.written([(OTHER, "all")]))
            elif whole:
                parts.append(form.written([(chance.choice(NAMES), "v")]))
        text = parts[0]
        for part in [*parts[1:], chance.choice(("done.", "and so on", "ok?"))]:
            text += chance.choice((" ", "\n", "\n\n", " ")) + part
        return text


def faults(
    name: str, chat_format: ChatFormat, n: int, seed: int, *, offered: bool, n_cut: int = 3
) -> list[str]:
    """Read n outputs of a template whole, by characters, and n_cut times in four random pieces.

    Return what is wrong with their parts. offered: the prompt offers the tools.
    """
    asked = [{"role": "user", "content": "Hi"}]
    thinking = True if chat_format.facts().thinking == "switch" else None
    prompt = rendered(chat_format, asked, tools=TOOLS if offered else (), thinking=thinking)
    outputs, chance, found = Outputs(name, seed, offered=offered), random.Random(seed), []
    for _ in range(n):
        output = outputs.make(prompt)
        places = [[0], range(len(output.text) + 1)]
        places += [
            sorted({0, *(chance.randrange(len(output.text) + 1) for _ in range(3))})
            for _ in range(n_cut)
        ]
        for cuts in places:
            ends = [*cuts[1:], len(output.text)]
            read = _read(chat_format, prompt, map(output.text.__getitem__, map(slice, cuts, ends)))
            if read != output.parts:
                found.append(f"{output.text!r}\n is {read}\n not {output.parts}")
                break
    return found


def _read(chat_format: ChatFormat, prompt: Rendered, pieces: Iterable[str]) -> Parts:
    reader, shown = chat_format.reader(prompt), AnswerText()
    for piece in pieces:
        shown.add(reader.feed(piece))
    shown.add(reader.finish())
    calls = [(call.name, _value(call.arguments)) for call in shown.tool_calls]
    return shown.reasoning.strip(), shown.content.strip(), calls


def _value(arguments: str) -> str:
    try:
        return str(json.loads(arguments)["x"])
    except (ValueError, KeyError, TypeError):
        return f"not read: {arguments}"
