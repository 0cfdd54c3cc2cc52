"""Ollama's API: its own client, with a fake engine and with a model, and requests by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from factory import make_tiny
from fake_engine import RUNS, FakeEngine
from later import Later
from served import KEY, Served
from waiting import WAIT_S

from backend.protocol.chat import Delta, ToolCall
from backend.server.ask import RequestRefused
from backend.server.ollama import VERSION, read_chat, read_generate
from backend.system.paths import embedded_model

ollama = Later("ollama")

HELLO = [{"role": "user", "content": "how is the weather"}]
HEADERS = {"Authorization": f"Bearer {KEY}"}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "Look it up.", "parameters": SCHEMA},
}


@pytest.fixture(scope="module")
def fake() -> Iterator[Served]:
    made = Served(FakeEngine())
    yield made
    made.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("ollama") / "m.gguf"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def embedded() -> Iterator[Served]:
    made = Served(embedded_model())
    yield made
    made.close()


def client(served: Served) -> Any:
    return ollama.Client(host=served.url, headers=HEADERS)


def lines(served: Served, path: str, body: Any) -> list[Any]:
    answer = served.post(path, body)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


# Ollama's client.


def test_a_chat_is_answered_whole_and_streamed(fake: Served) -> None:
    whole = client(fake).chat("any", HELLO)
    assert (whole.message.thinking, whole.message.content) == ("Easy.", "It is sunny.")
    assert whole.done and whole.done_reason == "stop" and whole.model == "fake:latest"
    assert (whole.prompt_eval_count, whole.eval_count) == (4, 4)  # with the token that ended it
    pieces = list(client(fake).chat("any", HELLO, stream=True))
    assert [piece.message.content for piece in pieces] == ["", "It is ", "sunny.", ""]
    assert [piece.message.thinking for piece in pieces] == ["Easy.", None, None, None]
    assert [piece.done for piece in pieces] == [False, False, False, True]
    assert pieces[-1].eval_count == whole.eval_count
    said = fake.post("/api/chat", {"messages": HELLO, "stream": False}).json()
    assert said["runs"] == RUNS
    assert pieces[-1].total_duration >= pieces[-1].eval_duration >= 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_read(fake: Served, stream: bool) -> None:
    def ask(messages: list[Any]) -> Any:
        answer = client(fake).chat("any", messages, tools=[TOOL], stream=stream)
        pieces = list(answer) if stream else [answer]
        return [piece.message for piece in pieces if piece.message.tool_calls or not stream]

    (said,) = ask(HELLO)
    (call,) = said.tool_calls
    assert call.function.name == "weather" and call.function.arguments == {"place": "Oslo"}
    result = {"role": "tool", "tool_name": "weather", "content": "sun"}
    ask([*HELLO, said, result])
    sent = fake.engine.asked[-1].messages
    assert sent[1]["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"place": "Oslo"}',
    }
    assert sent[2] == {
        "role": "tool",
        "tool_call_id": sent[1]["tool_calls"][0]["id"],
        "content": "sun",
        "name": "weather",
    }
    assert fake.engine.asked[-1].options.tools == (TOOL,)


def test_a_text_is_continued_and_a_prompt_is_a_question(fake: Served) -> None:
    answer = client(fake).generate("any", "why", system="Be brief.", think=False)
    assert (answer.thinking, answer.response) == ("Easy.", "It is sunny.")
    asked = fake.engine.asked[-1]
    assert [m["role"] for m in asked.messages] == ["system", "user"]
    assert asked.options.thinking is False
    pieces = list(client(fake).generate("any", "<s>why", raw=True, stream=True))
    assert fake.engine.asked[-1].prompt == "<s>why"
    assert "".join(p.response for p in pieces) == "Easy.It is sunny." and pieces[-1].done


def test_options_reach_the_engine(fake: Served) -> None:
    given = {
        "num_predict": 2, "temperature": 0.25, "top_k": 7, "top_p": 0.5, "min_p": 0.125, "seed": 3,
        "repeat_penalty": 1.5, "num_ctx": 4096, "num_gpu": 1, "stop": ["x", "y"],
    }  # fmt: skip
    answer = client(fake).chat("any", HELLO, options=given, format=SCHEMA, keep_alive="5m")
    assert answer.done_reason == "stop" and answer.message.content == "{}"
    asked = fake.engine.asked[-1]
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.25, 7, 0.5)
    assert (sampling.min_p, sampling.seed, sampling.repeat_penalty) == (0.125, 3, 1.5)
    assert asked.max_tokens == 2 and asked.options.stops == ("x", "y")
    assert asked.options.json_schema == SCHEMA
    cut = client(fake).chat("any", HELLO, options={"num_predict": 1})
    assert cut.done_reason == "length" and cut.eval_count == 1
    for limit in (-1, -2, 0):
        assert read_chat({"messages": HELLO, "options": {"num_predict": limit}}).max_tokens == -1


def test_images_are_refused_where_the_model_cannot_see(fake: Served) -> None:
    with pytest.raises(ollama.ResponseError, match="cannot see images") as refused:
        client(fake).generate("any", "what is it", images=[b"\x89PNG"])
    assert refused.value.status_code == 400
    message = {"role": "user", "content": "what", "images": ["QUJD", "data:image/png;base64,REVG"]}
    (read,) = read_chat({"messages": [message]}).messages
    assert [part.get("data") for part in read["content"]] == ["QUJD", "REVG", None]


def test_the_models_are_told(tiny: Served) -> None:
    to = client(tiny)
    (listed,) = to.list().models
    assert listed.model == f"{tiny.host.model_name}:latest"
    assert listed.size == Path(tiny.engine.model.path).stat().st_size
    assert listed.details.quantization_level == "Q8_0" and listed.details.family == "qwen3moe"
    (running,) = to.ps().models
    assert running.model == listed.model
    for name in (listed.model, tiny.host.model_name):
        shown = to.show(name)
        assert shown.modelinfo["general.architecture"] == "qwen3moe"
        assert "completion" in shown.capabilities and shown.details.format == "gguf"
    with pytest.raises(ollama.ResponseError, match="model 'other' not found") as refused:
        to.show("other")
    assert refused.value.status_code == 404
    version = httpx.get(tiny.url + "/api/version", headers=HEADERS).json()
    assert version == {"version": VERSION}


def test_a_model_answers_by_its_name_and_by_any(embedded: Served) -> None:
    name = embedded.host.model_name
    texts = {
        to: client(embedded).generate(to, "The fox", options={"num_predict": 8, "temperature": 0})
        for to in (f"{name}:latest", name, "llama3.2")
    }
    assert len({answer.response for answer in texts.values()}) == 1
    assert {answer.model for answer in texts.values()} == {f"{name}:latest"}
    answer = texts[name]
    assert 0 < answer.eval_count <= 8 and answer.prompt_eval_count > 0
    parts = answer.load_duration + answer.prompt_eval_duration + answer.eval_duration
    assert answer.prompt_eval_duration > 0 and abs(parts - answer.total_duration) <= 2


def test_probabilities_are_told(tiny: Served) -> None:
    body = {"prompt": "the of", "logprobs": True, "top_logprobs": 2, "options": {"num_predict": 3}}
    whole = tiny.post("/api/generate", {**body, "stream": False}).json()
    assert len(whole["logprobs"]) == whole["eval_count"] - (whole["done_reason"] == "stop")
    assert all(len(token["top_logprobs"]) == 2 for token in whole["logprobs"])
    told = [t for line in lines(tiny, "/api/generate", body) for t in line.get("logprobs", ())]
    assert len(told) == len(whole["logprobs"])


# By hand.


def test_nothing_asked_loads_the_model(fake: Served) -> None:
    n_before = len(fake.engine.asked)
    for path, body in (("/api/chat", {"messages": []}), ("/api/generate", {"keep_alive": 0})):
        said = fake.post(path, {"model": "fake", **body}).json()
        assert said["done"] and said["done_reason"] == "load" and said["model"] == "fake:latest"
    assert len(fake.engine.asked) == n_before


def test_calls_without_ids_belong_to_the_results_that_follow() -> None:
    def call(name: str, **more: Any) -> Any:
        return {"function": {"name": name, "arguments": {}}, **more}

    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call("f"), call("g"), call("f", id="mine")]},
        {"role": "tool", "tool_name": "g", "content": "of g"},
        {"role": "tool", "content": "of f"},
        {"role": "tool", "tool_call_id": "mine", "content": "of mine"},
    ]
    read = read_chat({"messages": messages}).messages
    ids = [call["id"] for call in read[1]["tool_calls"]]
    assert len(set(ids)) == 3 and ids[2] == "mine"
    assert [m["tool_call_id"] for m in read[2:]] == [ids[1], ids[0], "mine"]
    assert [m["name"] for m in read[2:]] == ["g", "f", "f"]


@pytest.mark.parametrize(
    ("think", "thinking", "effort"),
    [(None, None, ""), (True, True, ""), (False, False, ""), ("high", True, "high")],
)
def test_thinking_is_switched(think: Any, thinking: bool | None, effort: str) -> None:
    options = read_chat({"messages": HELLO, "think": think}).options
    assert (options.thinking, options.effort) == (thinking, effort)


@pytest.mark.parametrize(
    ("wanted", "schema"), [("", None), ("json", {"type": "object"}), (SCHEMA, SCHEMA)]
)
def test_a_format_is_a_schema(wanted: Any, schema: Any) -> None:
    assert read_chat({"messages": HELLO, "format": wanted}).options.json_schema == schema


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/chat", {"messages": [{"role": "robot", "content": "a"}]}, "messages.0.role"),
        ("/api/chat", {"messages": [{"content": "a"}]}, "messages.0.role"),
        ("/api/chat", {"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
        ("/api/chat", {"messages": HELLO, "format": "yaml"}, "format"),
        ("/api/chat", {"messages": HELLO, "options": {"temperature": "hot"}}, "temperature"),
        ("/api/chat", {"messages": HELLO, "options": [1]}, "options"),
        ("/api/chat", {"messages": HELLO, "keep_alive": []}, "keep_alive"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("/api/generate", {"prompt": "a", "context": [1]}, "context"),
        ("/api/generate", {"prompt": "a", "template": "b"}, "template"),
        ("/api/generate", {"prompt": "a", "raw": True, "images": ["QUJD"]}, "images"),
        ("/api/generate", [], "JSON object"),
        ("/api/embed", {"input": "a"}, "--embedding-model"),
        ("/api/show", {"model": 1}, "model"),
        ("/api/pull", {"model": "a"}, "Not Found"),
    ],
)
def test_what_cannot_be_served_is_refused_in_ollamas_form(
    fake: Served, path: str, body: Any, words: str
) -> None:
    answer = fake.post(path, body)
    assert answer.status_code in (400, 404, 501)
    assert list(answer.json()) == ["error"] and words in answer.json()["error"]


def test_who_has_no_key_is_refused_in_ollamas_form(fake: Served) -> None:
    with pytest.raises(ollama.ResponseError, match="key is missing") as refused:
        ollama.Client(host=fake.url).list()
    assert refused.value.status_code == 401


def test_a_stream_that_fails_ends_with_its_error() -> None:
    def fails(_: Any, __: Any) -> Any:
        yield Delta(content="It ")
        raise RequestRefused("It broke.", status=500)

    served = Served(FakeEngine(fails))
    try:
        said = lines(served, "/api/chat", {"messages": HELLO})
        assert said[0]["message"]["content"] == "It " and said[-1] == {"error": "It broke."}
    finally:
        served.close()


def test_arguments_that_are_no_object_are_an_empty_one() -> None:
    calls = [Delta(tool_calls={0: ToolCall("a", "f", '{"x": ')}), Delta(content="cut")]
    served = Served(FakeEngine(lambda _, __: calls))
    try:
        said = served.post("/api/chat", {"messages": HELLO, "stream": False}).json()
        (call,) = said["message"]["tool_calls"]
        assert call["function"] == {"index": 0, "name": "f", "arguments": {}}
    finally:
        served.close()


def test_a_prompt_with_nothing_asks_nothing() -> None:
    ask = read_generate({"model": "m:latest", "system": "Be brief."})
    assert not ask.messages and not ask.prompts and ask.model == "m"
    assert WAIT_S > 0
