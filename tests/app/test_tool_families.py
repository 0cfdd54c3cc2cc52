"""A tool call with real models' templates: requested, parsed, run and answered.

The outputs have the form of these models. llama.cpp's chat layer renders and parses.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from test_tool_calls import ASKED, DONE, SERVER, results, wait_end, wait_states
from window_samples import WAIT_MS, Model, Opener

from backend.tools.settings import Server

TEMPLATES = Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip"
JSON = '{"text": "two words"}'
HERMES = '<tool_call>\n{"name": "files__echo", "arguments": ' + JSON + "}\n</tool_call>"
XML = (
    "<tool_call>\n<function=files__echo>\n<parameter=text>\ntwo words\n</parameter>\n</function>\n"
    "</tool_call>"
)
# The template, an output with a call, and the text that the model writes before its answer.
FAMILIES = {
    "Qwen-Qwen3-0.6B": ("<think>\nHm.\n</think>\n\n" + HERMES, "<think>\nSo.\n</think>\n\n"),
    "Qwen3-Coder": (XML, ""),
    "Qwen3.5-4B": ("Hm.\n</think>\n\n" + XML, "So.\n</think>\n\n"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("Hm.\n</think>\n" + XML, "So.\n</think>\n"),
    "GLM-4.6": (
        "\n<think>Hm.</think>\n<tool_call>files__echo\n<arg_key>text</arg_key>\n"
        "<arg_value>two words</arg_value>\n</tool_call>",
        "\n<think>So.</think>\n",
    ),
    "openai-gpt-oss-120b": (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.files__echo <|constrain|>json<|message|>" + JSON,
        "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "deepseek-ai-DeepSeek-V3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="files__echo">\n'
        '<｜DSML｜parameter name="text" string="true">two words</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "",
    ),
    "moonshotai-Kimi-K2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.files__echo:0"
        "<|tool_call_argument_begin|>" + JSON + "<|tool_call_end|><|tool_calls_section_end|>",
        "",
    ),
    "MiniMax-M2": (
        'Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name="files__echo">\n'
        '<parameter name="text">two words</parameter>\n</invoke>\n</minimax:tool_call>',
        "So.\n</think>\n\n",
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": (
        "[THINK]Hm.[/THINK][TOOL_CALLS]files__echo[ARGS]" + JSON, "[THINK]So.[/THINK]",
    ),
    "ibm-granite-granite-4.0": (HERMES, ""),
    "ByteDance-Seed-OSS": (
        "<seed:think>Hm.</seed:think><seed:tool_call>\n<function=files__echo>\n"
        "<parameter=text>two words</parameter>\n</function>\n</seed:tool_call>",
        "<seed:think>So.</seed:think>",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "families",
    [
        ("Qwen3.5-4B", "openai-gpt-oss-120b", "moonshotai-Kimi-K2", "ByteDance-Seed-OSS"),
        pytest.param(tuple(FAMILIES), marks=pytest.mark.night),
    ],
    ids=["some", "all"],
)
def test_a_call_goes_round(
    families: tuple[str, ...], open_window: Opener, model: Model, tmp_path: Path
) -> None:
    """Every family's call is split by day in tests/backend/test_chat_format.py."""
    window = open_window()
    archive = zipfile.ZipFile(TEMPLATES)
    servers = window.calls.servers
    servers.put(Server("files", sys.executable, (str(SERVER), "plain"), is_on=True))
    window.qtbot.waitUntil(lambda: len(servers.tools()) > 0, timeout=WAIT_MS)
    chat: dict[str, Any] = {"tools": True}
    for family in families:
        call, thought = FAMILIES[family]
        outputs = [call, thought + "It said two words."]
        template = archive.extract(f"{family}.jinja", tmp_path)
        path = model(family, template=template, outputs=outputs, chat=chat, token_s=0.0)
        window.open_model(path)
        window.qtbot.waitUntil(lambda: window.session.can_send, timeout=WAIT_MS)
        window.session.new_chat()
        window.ask("Say it.")
        wait_states(window, ASKED)
        window.press("Allow once")
        wait_end(window)
        asked = window.session.conversation.messages[1]
        assert json.loads(asked.tool_calls[0].arguments) == {"text": "two words"}, family
        assert asked.content.strip() == "" and asked.reasoning.strip() in ("", "Hm."), family
        assert [(m.content, m.call_state) for m in results(window)] == [("two words", DONE)]
        assert window.answer.content.strip() == "It said two words.", family
        prompts: list[str] = []
        window.session.ask_prompt(3, lambda prompt, _: prompts.append(prompt))
        window.qtbot.waitUntil(lambda: prompts != [], timeout=WAIT_MS)
        assert prompts[0].count("two words") >= 2 and "files__echo" in prompts[0], family
    servers.shut_down()
