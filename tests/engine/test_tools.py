"""A tool call with the embedded model: forced by a grammar, run and answered."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import of_chat

from backend.engine.engine import Engine
from backend.llama.chat_format import ChatFormat
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.settings import Sampling
from backend.system.paths import embedded_model

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
ASKED = [{"role": "user", "content": "What is the weather?"}]
# The form of Hermes 2, which many models use.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
Call as <tool_call>
{"name": <name>, "arguments": <object>}
</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' }}
{%- if m.role == 'tool' %}{{ '<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- else %}{{ m.content or '' }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{"name": "' + call.function.name
 + '", "arguments": ' }}{{ call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = (
    tool("weather", city={"enum": ["Oslo", "Rome"]}, days={"type": "integer", "maximum": 9}),
    tool("clock", zone={"enum": ["UTC"]}),
)


def run_tool(name: str, arguments: dict[str, Any]) -> str:
    if name == "clock":
        return f"It is noon in {arguments['zone']}."
    return f"{arguments['days']} days of sun in {arguments['city']}."


@pytest.fixture
def engine(open_engine: OpenEngine) -> Engine:
    engine = open_engine(embedded_model(), context_length=1024)
    engine.loaded.weights.chat_format = ChatFormat("embedded", TEMPLATE, "", "")
    return engine


def ask(engine: Engine, messages: list[Any], n: int = 120, **options: Any) -> AnswerText:
    answer = AnswerText()
    chosen = ChatOptions(tools=TOOLS, **options)
    list(engine.answer(of_chat(messages, GREEDY, n, options=chosen, on_delta=answer.add)))
    return answer


@pytest.mark.parametrize(("choice", "name"), [("required", ""), ("clock", "clock")])
def test_a_forced_call_goes_round(choice: str, name: str, engine: Engine) -> None:
    asked = ask(engine, ASKED, tool_choice=choice, parallel_tool_calls=False)
    assert engine.finish_reason == "tool_calls" and asked.content == ""
    (call,) = asked.tool_calls
    assert call.id and call.name == (name or call.name)
    result = run_tool(call.name, json.loads(call.arguments))
    told = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}
    messages = [*ASKED, asked.to_message(), told]
    answer = ask(engine, messages, 12)
    assert engine.statistics().n_prompt > 60 and (answer.content or answer.tool_calls)
    prompt = engine.prompts.format(messages, ChatOptions(tools=TOOLS))
    assert f'"name": "{call.name}"' in prompt and f"<tool_response>\n{result}" in prompt


def test_a_template_without_tools_can_be_forced(open_engine: OpenEngine) -> None:
    engine = open_engine(embedded_model(), context_length=1024)
    asked = ask(engine, ASKED, tool_choice="clock", parallel_tool_calls=False)
    assert engine.finish_reason == "tool_calls" and engine.last is not None
    assert engine.last.partial.rendered.fitted == ("tools-described",)
    (call,) = asked.tool_calls
    assert call.name == "clock" and isinstance(json.loads(call.arguments), dict)
    told = {"role": "tool", "tool_call_id": call.id, "name": "clock", "content": "Noon."}
    prompt = engine.prompts.format([*ASKED, asked.to_message(), told], ChatOptions(tools=TOOLS))
    assert '{"tool_calls": [{"name": "clock"' in prompt and '"content": "Noon."' in prompt
    assert ask(engine, ASKED, 5).content  # with a free choice there may be no call


@pytest.mark.parametrize(
    ("template", "seed"),
    [("Hermes", 0), ("Qwen3-Coder", 1), ("deepseek-ai-DeepSeek-V3.2", 2), ("LFM2-8B-A1B", 3)],
)
def test_arguments_are_held_to_all_keywords(template: str, seed: int, engine: Engine) -> None:
    """Also to those that llama.cpp's grammar does not know, and in texts without quotes."""
    if template != "Hermes":
        data = zipfile.Path(Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip")
        source = (data / f"{template}.jinja").read_text(encoding="utf-8")
        engine.loaded.weights.chat_format = ChatFormat(template, source, "", "")
    level = tool(
        "set",
        level={"type": "number", "minimum": 3, "maximum": 7},
        code={"type": "string", "pattern": "^x}$"},
    )
    options = ChatOptions(tools=(level,), tool_choice="set", parallel_tool_calls=False)
    answer, sampling = AnswerText(), Sampling(temperature=1.2, seed=seed)
    list(engine.answer(of_chat(ASKED, sampling, 400, options=options, on_delta=answer.add)))
    assert engine.finish_reason == "tool_calls"
    arguments = json.loads(answer.tool_calls[0].arguments)
    if "LFM2" in template:  # calls in Python, which may leave out a parameter
        assert arguments
        arguments = {"level": 3, "code": "x}", **arguments}
    assert 3 <= arguments["level"] <= 7 and arguments["code"] == "x}"
