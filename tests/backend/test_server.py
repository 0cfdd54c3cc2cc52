"""The local server: OpenAI's own client against the embedded model, and everything it refuses."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from factory import make_tiny, spoil

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server.application import make_server
from backend.server.protocol import Ask, RequestRefused, StopFilter, read_chat, read_text
from backend.server.turns import MAX_WAITING, EngineThread, Turns

KEY = "a-key"
HELLO = [{"role": "user", "content": "hello there"}]


class Served:
    """A tiny model behind a server on a free port."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine.open(path, EngineConfig(cache_rate=0.5, context_length=256))
        self.host = EngineThread(self.engine)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server = make_server(Turns(self.host), KEY, self.port)
        run = lambda: self.server.run(sockets=[listener])  # noqa: E731
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.port}"
        while not self.server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.host.close()
        self.engine.close()

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        given = {"Authorization": f"Bearer {KEY}", **headers}
        return httpx.post(self.url + path, json=body, headers=given, timeout=30)


class Endless:
    """An engine that writes until it is stopped."""

    finish_reason = "cancelled"

    def __init__(self) -> None:
        self.model = SimpleNamespace(name="endless")
        self.stopped = threading.Event()

    def generate_text(self, *_asked: Any) -> Iterator[Any]:
        while not self.stopped.is_set():
            yield SimpleNamespace(text="x")

    def statistics(self) -> Any:
        return SimpleNamespace(n_prompt=1, n_token=1)

    def stop(self) -> None:
        self.stopped.set()

    def idle(self) -> None:
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served") / "m.gguf"
    server = Served(make_tiny("qwen3moe", "Q8_0", path))
    yield server
    server.close()


@pytest.fixture
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=served.url + "/v1", api_key=KEY, max_retries=0)


def name_of(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


# OpenAI's client.


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (listed,) = client.models.list().data
    assert client.models.retrieve(listed.id).id == listed.id
    with pytest.raises(openai.NotFoundError, match="no model other"):
        client.models.retrieve("other")


def test_a_chat_is_answered_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=name_of(client), messages=HELLO, max_tokens=8, temperature=0
    )
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("length", "stop")
    usage = answer.usage
    assert usage is not None and 0 < usage.completion_tokens <= 8
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return client.chat.completions.create(
            model="any", messages=HELLO, max_completion_tokens=12, seed=5, **more
        )

    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    whole = ask()
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_text_is_continued(client: openai.OpenAI) -> None:
    first = client.completions.create(model="any", prompt="the of", max_tokens=6, temperature=0)
    stream = client.completions.create(
        model="any", prompt="the of", max_tokens=6, temperature=0, stream=True
    )
    assert "".join(c.choices[0].text for c in stream) == first.choices[0].text


def test_stop_strings_end_an_answer(client: openai.OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return client.completions.create(
            model="any", prompt="the of", max_tokens=40, temperature=0, **more
        )

    text = ask().choices[0].text
    stop = text[len(text) // 2 :][:3]
    cut = ask(stop=[stop, "never said"]).choices[0]
    assert cut.text == text[: text.index(stop)] and cut.finish_reason == "stop"


def test_a_prompt_that_is_too_long_is_said_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"context holds only 256") as refused:
        client.completions.create(model="any", prompt="the of and " * 300)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="any", prompt="the of and " * 300, stream=True)


def test_an_answer_that_nobody_hears_is_stopped() -> None:
    engine = Endless()
    host = EngineThread(engine)

    async def leave() -> None:
        said = Turns(host).answer(read_text({"prompt": "a", "max_tokens": 5}))
        assert await anext(said) == "x"
        await said.aclose()

    asyncio.run(leave())
    host.close()  # waits for what was begun
    assert engine.stopped.is_set()


def test_a_stream_that_is_left_makes_room_for_the_next(client: openai.OpenAI) -> None:
    stream = client.completions.create(model="any", prompt="the", max_tokens=200, stream=True)
    next(iter(stream))
    stream.close()
    answer = client.completions.create(model="any", prompt="of", max_tokens=1, temperature=0)
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_many_ask_at_once_and_each_gets_its_own(client: openai.OpenAI) -> None:
    prompts = ["the of", "and to", "in is it", "that for was"]
    alone = [
        client.completions.create(model="any", prompt=p, max_tokens=9, temperature=0)
        for p in prompts
    ]
    together: dict[int, str] = {}

    def ask(i: int) -> None:
        answer = client.completions.create(
            model="any", prompt=prompts[i], max_tokens=9, temperature=0
        )
        together[i] = answer.choices[0].text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [together[i] for i in range(len(prompts))] == [a.choices[0].text for a in alone]


# Who may ask.


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic a-key", f"Bearer {KEY}x"])
def test_without_the_key_nothing_is_said(served: Served, given: str) -> None:
    for path in ("/v1/models", "/v1/chat/completions", "/nowhere"):
        answer = httpx.get(served.url + path, headers={"Authorization": given})
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_names_for_this_machine_are_refused(served: Served, host: str) -> None:
    answer = served.post("/v1/completions", {"prompt": "a"}, Host=host)
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:{}", "LOCALHOST", "[::1]:{}"])
def test_this_machines_names_are_not(served: Served, host: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Host": host.format(served.port)}
    assert httpx.get(served.url + "/v1/models", headers=headers).status_code == 200


def test_no_other_origin_may_read(served: Served) -> None:
    answer = served.post(
        "/v1/completions", {"prompt": "a", "max_tokens": 1}, Origin="http://x.example"
    )
    assert not [h for h in answer.headers if h.lower().startswith("access-control")]
    assert httpx.options(served.url + "/v1/completions").status_code == 401


# What is refused.


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "JSON object"),
        ({}, "messages must be"),
        ({"messages": []}, "at least one"),
        ({"messages": ["a"]}, "messages.0 must be an object"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "role must be one of"),
        ({"messages": [{"role": "user"}]}, "content must be text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text only"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature must be a number"),
        ({"messages": HELLO, "temperature": -1}, "temperature"),
        ({"messages": HELLO, "top_p": 2}, "top_p"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": True}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": 1.5}, "max_tokens"),
        ({"messages": HELLO, "seed": "a"}, "seed must be a whole number"),
        ({"messages": HELLO, "stream": 3}, "stream must be true or false"),
        ({"messages": HELLO, "stream_options": 3}, "stream_options"),
        ({"messages": HELLO, "stop": ["a"] * 5}, "at most 4"),
        ({"messages": HELLO, "stop": [""]}, "none of them empty"),
        ({"messages": HELLO, "n": 2}, "cannot do what n asks"),
        ({"messages": HELLO, "tools": [{}]}, "cannot do what tools asks"),
        ({"messages": HELLO, "presence_penalty": 1}, "presence_penalty"),
        ({"messages": HELLO, "frobnicate": 1}, "frobnicate is not known"),
    ],
)
def test_a_chat_that_cannot_be_served_is_refused_by_name(body: Any, words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        read_chat(body)


@pytest.mark.parametrize("prompt", [3, ["a", "b"], [1, 2], {}])
def test_a_prompt_must_be_one_text(prompt: Any) -> None:
    with pytest.raises(RequestRefused, match="one string"):
        read_text({"prompt": prompt})


def test_what_changes_nothing_is_passed_over() -> None:
    ask = read_chat(
        {"messages": HELLO, "user": "u", "n": 1, "logprobs": False, "tools": [], "top_p": None}
    )
    assert ask.max_tokens == -1 and not ask.stream
    assert read_text({"prompt": ["one"]}).prompt == "one"


def test_parts_of_text_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ask = read_chat({"messages": [{"role": "developer", "content": parts}]})
    assert ask.messages == ({"role": "system", "content": "ab"},)


def test_what_is_no_json_is_refused(served: Served) -> None:
    for data in (b"", b"{", b"[" * 100_000, b"\xff"):
        answer = httpx.post(
            served.url + "/v1/completions",
            content=data,
            headers={"Authorization": f"Bearer {KEY}"},
        )
        assert answer.status_code == 400 and "error" in answer.json()
    assert served.post("/v1/nothing", {}).status_code == 404


@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1e999", "1e309", "NaN", '"\\ud800"'])
@pytest.mark.parametrize("name", ["prompt", "max_tokens", "temperature", "top_k", "seed", "n", "x"])
def test_what_does_not_fit_is_refused(served: Served, name: str, value: str) -> None:
    body = {"prompt": "a", "max_tokens": 1, name: "HERE"}
    answer = httpx.post(
        served.url + "/v1/completions",
        content=json.dumps(body).replace('"HERE"', value),
        headers={"Authorization": f"Bearer {KEY}"},
    )
    assert answer.status_code == 400 and answer.json()["error"]["message"].endswith(".")


def test_long_names_are_cut(served: Served) -> None:
    answer = served.post("/v1/completions", {"prompt": "a", "x" * 200_000: 1})
    assert answer.status_code == 400 and len(answer.content) < 500
    key = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.get(f"{served.url}/v1/models/{'x' * 20_000}", headers=key)
    assert answer.status_code == 404 and len(answer.content) < 500
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(served.url + "/v1/completions", headers=headers).status_code == 405


def test_too_many_waiting_are_refused() -> None:
    class Stuck:
        model_name = "stuck"

        def submit(self, work: Any) -> None:
            pass

    turns = Turns(Stuck())
    ask = read_text({"prompt": "a"})

    async def crowd() -> None:
        waiting = [asyncio.ensure_future(anext(turns.answer(ask))) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(RequestRefused, match="Too many"):
            await anext(turns.answer(ask))
        for task in waiting:
            task.cancel()

    asyncio.run(crowd())


def test_values_that_are_not_finite_are_no_answer(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=2)
    server = Served(spoil(path, "blk.1.ffn_down_exps.weight"))
    try:
        said = server.post("/v1/completions", {"prompt": "the", "max_tokens": 4})
    finally:
        server.close()
    assert said.status_code == 500
    assert "NaN or infinite values" in said.json()["error"]["message"]


def test_without_a_model_there_is_an_error() -> None:
    class Empty:
        model_name = None

        def submit(self, work: Any) -> None:
            work(None)

    async def ask() -> None:
        await anext(Turns(Empty()).answer(read_text({"prompt": "a"})))

    with pytest.raises(RequestRefused, match="No model"):
        asyncio.run(ask())


# Stop strings.


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "stopped"),
    [
        (["ab", "cd"], [], "abcd", False),
        (["ab", "cd"], ["bc"], "a", True),
        (["ab", "cd"], ["x"], "abcd", False),
        (["a", "a", "b"], ["ab"], "a", True),
        (["xy", "z"], ["yzw"], "xyz", False),
        (["one two"], ["two", "one"], "", True),
        (["aaab"], ["aab"], "a", True),
    ],
)
def test_stop_strings_are_found_across_pieces(
    pieces: list[str], stops: list[str], shown: str, stopped: bool
) -> None:
    filtered = StopFilter(stops)
    text = "".join([*map(filtered.feed, pieces), filtered.rest()])
    assert (text, filtered.stopped) == (shown, stopped)


def test_what_cannot_begin_a_stop_is_shown_at_once() -> None:
    filtered = StopFilter(["END"])
    assert [filtered.feed(t) for t in ("a", "E", "N", "x")] == ["a", "", "", "ENx"]


def test_an_ask_is_plain_data() -> None:
    ask = read_chat({"messages": HELLO, "stop": "x", "stream": True, "max_tokens": 3})
    assert isinstance(ask, Ask) and ask.stops == ("x",) and ask.stream
    assert json.dumps(ask.messages)
