"""Requests in the form of common clients (tests/data/clients) are served or refused sensibly.

In the files, `gives` is the expected result of a request, and `source` is where the client's form
was read, if it was. The contents are made up.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks import server_clients
from chat_formats import template
from fake_engine import FakeEngine
from later import Later
from served import KEY, Served
from waiting import WAIT_S, until

from backend.llama.conversation_format import AnswerSplitter, ConversationFormat
from backend.protocol.chat import ChatOptions, Delta

openai, anthropic = Later("openai"), Later("anthropic")
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "clients"
REQUESTS = [
    pytest.param(request, id=f"{path.stem}: {request['name']}")
    for path in sorted(DATA.glob("*.json"))
    for request in json.loads(path.read_text(encoding="utf-8"))["requests"]
]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    engine = FakeEngine()
    engine.model.context_length = 1000  # requests of real clients have long instructions
    made = Served(engine)
    yield made
    made.close()


def send(served: Served, request: dict[str, Any]) -> httpx.Response:
    given = {"Authorization": "Bearer KEY", **request.get("headers", {})}
    if "x-api-key" in given:
        del given["Authorization"]
    headers = {name: value.replace("KEY", KEY) for name, value in given.items()}
    method = request.get("method", "POST")
    url = served.url + request["path"]
    return httpx.request(method, url, json=request.get("body"), headers=headers, timeout=WAIT_S)


def said(answer: httpx.Response) -> str:
    """Return the kind of an answer, whole or streamed: "text", "call", "json", …"""
    kind = answer.headers["content-type"]
    if kind.startswith("application/x-ndjson"):
        data: Any = [json.loads(line) for line in answer.text.splitlines()]
        assert [line["done"] for line in data] == [False] * (len(data) - 1) + [True]
    elif kind.startswith("text/event-stream"):
        lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        data = [json.loads(line[6:]) for line in lines]
        assert all("error" not in event or event["error"] is None for event in data)
    else:
        data = answer.json()
    text = json.dumps(data)
    if any(word in text for word in ('"tool_use"', '"function_call"', '"tool_calls"')):
        return "call"
    if "sunny." in text:
        return "text"
    return "json" if '"{}"' in text or '"}"' in text else text


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_client_gets_what_it_can_use(served: Served, request_: dict[str, Any]) -> None:
    answer = send(served, request_)
    gives = request_["gives"]
    if gives in ("refused", "unknown"):
        lacks = 501 if request_["path"].endswith(("/embeddings", "/embed")) else 400
        assert answer.status_code == (404 if gives == "unknown" else lacks)
        error = answer.json()["error"]  # Ollama's is the sentence
        sentence = error if request_["path"].startswith("/api/") else error["message"]
        assert sentence.endswith(".") and "Traceback" not in answer.text
        return
    assert answer.status_code == 200, answer.text
    if gives == "tags":
        assert [model["name"] for model in answer.json()["models"]] == ["fake:latest"]
    elif gives == "models":
        assert [model["id"] for model in answer.json()["data"]] == ["fake"]
    elif gives == "count":
        assert answer.json()["input_tokens"] > 0
    else:
        assert said(answer) == gives


def test_eleven_clients_are_recorded() -> None:
    assert len(list(DATA.glob("*.json"))) == 11 and len(REQUESTS) > 30


def test_the_table_of_the_document_has_the_recorded_clients() -> None:
    """tests/benchmarks/client_families.py writes it; a new client needs another run."""
    text = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- clients: .*?-->\n(.*?)<!-- end of clients -->", text, re.S)
    assert found is not None
    _, _, *rows = [line.strip("| ").split("|") for line in found[1].split("\n") if line.strip()]
    served = {client.strip(): {cell.split()[0] for cell in cells[:-1]} for client, *cells in rows}
    n_asked: Counter[str] = Counter()
    for path in sorted(DATA.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        gives = [request["gives"] for request in data["requests"]]
        n_asked[data["client"]] += sum(one not in ("refused", "unknown") for one in gives)
    assert served.keys() == n_asked.keys()
    for client, cells in served.items():
        assert {int(cell.split("/")[1]) for cell in cells} == {n_asked[client]}, client


def test_the_table_of_the_document_has_the_packages_of_the_script() -> None:
    """tests/benchmarks/server_clients.py writes it; another version needs another run."""
    text = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    found = re.search(f"{server_clients.BEGIN}\n(.*?){server_clients.END}", text, re.S)
    assert found is not None
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in found[1].split("\n")
        if line.strip()
    ]
    assert head[2:] == [check.replace("_", " ") for check in server_clients.CHECKS]
    tried = [
        [server_clients.titled(name), api]
        for name, package in server_clients.PACKAGES.items()
        for api in package.clients
    ]
    assert len(tried) > 13 and [row[:2] for row in rows] == tried
    assert {cell for row in rows for cell in row[2:]} <= {"yes", "yes, one", "free", "–"}


def test_what_changes_with_each_request_is_not_in_the_prompt(served: Served) -> None:
    """With Claude Code's first block, the engine would compute the whole prompt each time."""
    data = json.loads((DATA / "claude-code.json").read_text(encoding="utf-8"))
    send(served, data["requests"][0])
    assert served.engine.asked[-1].messages[0]["content"] == "You are a coding agent.\n\nBe brief."


def test_a_change_of_the_conversation_is_in_a_header_or_a_comment() -> None:
    """A stream that has begun to wait has its headers; a comment says it there."""
    gate = threading.Event()
    made = Served(FakeEngine(gate=gate))
    made.engine.fitted = ("systems-joined", "ids-rewritten")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    try:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(made.post, "/v1/chat/completions", body)
            until(made.engine.reading.is_set)
            second = pool.submit(made.post, "/v1/chat/completions", {**body, "stream": True})
            until(lambda: made.turns.n_open == 2)
            gate.set()
            assert first.result().headers["x-outrider-fitted"] == "systems-joined, ids-rewritten"
            waited = second.result()
        assert waited.headers["x-queue-position"] == "1"
        assert ": fitted to the template: systems-joined, ids-rewritten\n" in waited.text
        streamed = made.post("/v1/messages", {**body, "stream": True})
        assert streamed.headers["x-outrider-fitted"] == "systems-joined, ids-rewritten"
        made.engine.fitted = ()
        assert "x-outrider-fitted" not in made.post("/v1/messages", body).headers
    finally:
        made.close()


CALL = '<tool_call>\n{{"name": "look_up", "arguments": {{"word": "{}"}}}}\n</tool_call>\n'
LOOK_UP = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
}


def call_twice(messages: Any, options: ChatOptions) -> list[Delta]:
    """Call two tools at once, as Qwen 2.5 does, and again after the first results."""
    chat_format = ConversationFormat(template("Qwen-Qwen2.5-7B-Instruct"), "", "")
    rendered = chat_format.render(messages, options.to_json())
    splitter = AnswerSplitter(rendered["parser"], Delta().to_json())
    n_result = sum(message["role"] == "tool" for message in messages)
    output = "".join(map(CALL.format, ("fox", "hen"))) if n_result < 4 else "A fox and a hen."
    pieces = [output[i : i + 7] for i in range(0, len(output), 7)]
    deltas = [splitter.feed(piece, is_final=False) for piece in pieces]
    return [*deltas, splitter.feed("", is_final=True)]


@pytest.mark.parametrize("streams", [False, True])
def test_two_rounds_of_parallel_calls(streams: bool) -> None:
    """Through both clients: all ids differ, and the arguments are whole."""
    made = Served(FakeEngine(answer=call_twice))
    words = ['{"word": "fox"}', '{"word": "hen"}']
    try:
        by_openai = openai.OpenAI(base_url=made.url + "/v1", api_key=KEY, max_retries=0)
        tool = {"type": "function", "function": {"name": "look_up", "parameters": LOOK_UP}}
        talk: list[Any] = [{"role": "user", "content": "Fox and hen?"}]
        ids: list[str] = []
        for _ in range(2):
            asked: Any = {"model": "m", "messages": talk, "tools": [tool]}
            if streams:
                with by_openai.chat.completions.stream(**asked) as stream:
                    said = stream.get_final_completion().choices[0].message
            else:
                said = by_openai.chat.completions.create(**asked).choices[0].message
            assert [call.function.arguments for call in said.tool_calls] == words
            ids += [call.id for call in said.tool_calls]
            talk.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
            talk += [{"role": "tool", "tool_call_id": i, "content": "Yes."} for i in ids[-2:]]
        assert len(set(ids)) == 4
        last = by_openai.chat.completions.create(model="m", messages=talk, tools=[tool])
        assert last.choices[0].message.content == "A fox and a hen."

        by_anthropic = anthropic.Anthropic(base_url=made.url, api_key=KEY, max_retries=0)
        talk, ids = talk[:1], []
        for _ in range(2):
            asked = {"model": "m", "messages": talk, "max_tokens": 99}
            asked["tools"] = [{"name": "look_up", "input_schema": LOOK_UP}]
            if streams:
                with by_anthropic.messages.stream(**asked) as events:
                    message = events.get_final_message()
            else:
                message = by_anthropic.messages.create(**asked)
            calls: list[Any] = [block for block in message.content if block.type == "tool_use"]
            assert [call.input for call in calls] == [json.loads(word) for word in words]
            ids += [call.id for call in calls]
            talk.append({"role": "assistant", "content": message.content})
            results = [{"type": "tool_result", "tool_use_id": call.id} for call in calls]
            talk.append({"role": "user", "content": [{**r, "content": "Yes."} for r in results]})
        assert len(set(ids)) == 4
    finally:
        made.close()
