"""A thought that quotes the mark of a call, by a model that writes it, over each protocol."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reciter import make_reciter, with_template
from served import Served

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig

TEMPLATES = zipfile.Path(Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip")
MARK = "<tool_call>"
THOUGHT, ANSWER = f"Dux:{MARK}&y", "Wsp"
FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
ASKED = [{"role": "user", "content": "Hi"}]
Parts = tuple[str, str, int]
"""The thought, the answer, and the number of calls."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a model with Qwen 3.5's template, which quotes its mark of a call in the thought."""
    yield from serving(tmp_path_factory.mktemp("quoted"), f"{THOUGHT}</think>{ANSWER}")


def serving(folder: Path, said: str) -> Iterator[Served]:
    bare = make_reciter(folder / "bare.gguf", said, word=MARK, n_ctx=4096)
    template = (TEMPLATES / "Qwen3.5-4B.jinja").read_text(encoding="utf-8")
    model = with_template(bare, folder / "m.gguf", template, word=MARK)
    server = Served(Engine.open(model, EngineConfig.of(context_length=4096, n_thread=1)))
    yield server
    server.close()


def events(text: str) -> list[Any]:
    """Return the objects of a stream, of server-sent events or of lines."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def chat(served: Served, *, streams: bool, tools: bool) -> Parts:
    body = {"messages": ASKED, "stream": streams, "max_tokens": 60, "temperature": 0}
    reply = served.post("/v1/chat/completions", {**body, "tools": [TOOL] if tools else []})
    replies = events(reply.text) if streams else [reply.json()]
    said = [c["delta" if streams else "message"] for r in replies for c in r["choices"]]
    return (
        "".join(one.get("reasoning_content") or "" for one in said),
        "".join(one.get("content") or "" for one in said),
        sum(len(one.get("tool_calls") or ()) for one in said),
    )


def messages(served: Served, *, streams: bool, tools: bool) -> Parts:
    tool = {"name": "f", "input_schema": FUNCTION["parameters"]}
    body = {"messages": ASKED, "stream": streams, "max_tokens": 60, "temperature": 0, "model": "m"}
    reply = served.post("/v1/messages", {**body, "tools": [tool] if tools else []})
    if streams:
        all_events = events(reply.text)
        said = [e["delta"] for e in all_events if e["type"] == "content_block_delta"]
        said += [e["content_block"] for e in all_events if e["type"] == "content_block_start"]
    else:
        said = reply.json()["content"]
    return (
        "".join(one.get("thinking", "") for one in said),
        "".join(one.get("text", "") for one in said),
        sum(one["type"] == "tool_use" for one in said),
    )


def ollama(served: Served, *, streams: bool, tools: bool) -> Parts:
    options = {"num_predict": 60, "temperature": 0}
    body = {"model": "m", "messages": ASKED, "stream": streams, "options": options}
    reply = served.post("/api/chat", {**body, "tools": [TOOL] if tools else []})
    said = [one["message"] for one in events(reply.text)]
    return (
        "".join(one.get("thinking") or "" for one in said),
        "".join(one.get("content") or "" for one in said),
        sum(len(one.get("tool_calls") or ()) for one in said),
    )


def responses(served: Served, *, streams: bool, tools: bool) -> Parts:
    tool = {"type": "function", **FUNCTION}
    body = {"input": "Hi", "stream": streams, "max_output_tokens": 60, "temperature": 0}
    reply = served.post("/v1/responses", {**body, "tools": [tool] if tools else []})
    if streams:
        items = [e["item"] for e in events(reply.text) if e["type"] == "response.output_item.done"]
    else:
        items = reply.json()["output"]
    texts = {
        kind: "".join(part["text"] for i in items if i["type"] == kind for part in i["content"])
        for kind in ("reasoning", "message")
    }
    calls = [item for item in items if item["type"] == "function_call"]
    return texts["reasoning"], texts["message"], len(calls)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", [chat, messages, ollama, responses])
def test_a_thought_may_quote_the_mark_of_a_call(
    protocol: Any, streams: bool, served: Served
) -> None:
    """The grammar of calls does not begin there, and nothing is lost."""
    assert protocol(served, streams=streams, tools=True) == (THOUGHT, ANSWER, 0)


def test_a_thought_may_quote_it_without_tools(served: Served) -> None:
    assert chat(served, streams=True, tools=False) == (THOUGHT, ANSWER, 0)


@pytest.mark.parametrize("behind", ["&y", ' "b', "z"])
def test_an_answer_may_quote_it(behind: str, tmp_path: Path) -> None:
    """Text behind the mark goes on with it as text; a line break or a bracket begins a call."""
    for server in serving(tmp_path, f"Dux</think>W:{MARK}{behind}"):
        assert chat(server, streams=False, tools=True) == ("Dux", f"W:{MARK}{behind}", 0)
