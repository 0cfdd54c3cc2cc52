"""The local server: OpenAI's client with the embedded model, and all refusals."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from factory import make_tiny, spoil
from fake_engine import FakeEngine
from later import Later
from served import KEY, Served

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server.ask import RequestRefused, Wait
from backend.server.engine_host import EngineThread
from backend.server.openai_chat import read_chat
from backend.server.openai_text import read_text
from backend.server.running import ServerError, listen
from backend.server.turns import MAX_WAITING_OF_ONE, Turns
from backend.system.paths import embedded_model

anthropic, openai = Later("anthropic"), Later("openai")

IMAGE_ELSEWHERE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}
HELLO = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module")
def fake() -> Iterator[Served]:
    server = Served(FakeEngine())
    yield server
    server.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served") / "m.gguf"
    server = Served(make_tiny("qwen3moe", "Q8_0", path))
    yield server
    server.close()


@pytest.fixture(scope="module")
def embedded() -> Iterator[Served]:
    server = Served(embedded_model())
    yield server
    server.close()


@pytest.fixture
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=served.url + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def sure_client(embedded: Served) -> openai.OpenAI:
    """Return a client of trained weights, for tests that compare answers.

    With random weights, rounding changes an answer when its cells are elsewhere.
    """
    return openai.OpenAI(base_url=embedded.url + "/v1", api_key=KEY, max_retries=0)


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


def test_a_stream_says_the_same(sure_client: openai.OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return sure_client.chat.completions.create(
            model="any", messages=HELLO, max_completion_tokens=12, temperature=0, **more
        )

    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    whole = ask()
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    # A prompt as short as this one is read again where another answer has left its sequence.
    usages = [
        one.usage.model_dump(exclude={"prompt_tokens_details"}) for one in (chunks[-1], whole)
    ]
    assert usages[0] == usages[1] and usages[0]["completion_tokens"] > 0
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_text_is_continued(sure_client: openai.OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return sure_client.completions.create(
            model="any", prompt="The fox", max_tokens=6, temperature=0, **more
        )

    assert "".join(c.choices[0].text for c in ask(stream=True)) == ask().choices[0].text


def test_stop_strings_end_an_answer(sure_client: openai.OpenAI) -> None:
    def ask(**more: Any) -> Any:
        return sure_client.completions.create(
            model="any", prompt="The fox", max_tokens=40, temperature=0, **more
        )

    text = ask().choices[0].text
    stop = text[len(text) // 2 :][:3]
    cut = ask(stop=[stop, "never said"]).choices[0]
    assert cut.text == text[: text.index(stop)] and cut.finish_reason == "stop"


def test_a_prompt_that_is_too_long_is_said_so(client: openai.OpenAI) -> None:
    with pytest.raises(
        openai.BadRequestError, match=r"available context size \(256 tokens\)"
    ) as refused:
        client.completions.create(model="any", prompt="the of and " * 300)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.type == "exceed_context_size_error"
    assert refused.value.body["n_ctx"] == 256 < refused.value.body["n_prompt_tokens"]
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="any", prompt="the of and " * 300, stream=True)


class SlowLoop(asyncio.SelectorEventLoop):
    """A loop whose other threads go on only after the loop has acted on what they said."""

    def call_soon_threadsafe(self, *args: Any, **more: Any) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(*args, **more)
        time.sleep(0.02)
        return handle


def test_a_request_that_has_ended_is_not_before_the_next() -> None:
    host = EngineThread(FakeEngine())
    turns = Turns(host)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    image = [{"role": "user", "content": [part]}]

    async def ask() -> None:
        for _ in range(3):
            with pytest.raises(RequestRefused, match="cannot see"):
                raise AssertionError(await anext(turns.answer(read_chat({"messages": image}))))

    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        runner.run(ask())
    host.close()


def test_an_answer_that_nobody_hears_is_stopped() -> None:
    engine = FakeEngine(gate=threading.Event())
    host = EngineThread(engine)

    async def leave() -> None:
        news = Turns(host).answer(read_text({"prompt": "a", "max_tokens": 5}))
        assert isinstance(await anext(news), Wait)
        await news.aclose()

    asyncio.run(leave())
    host.close()  # waits for what was begun
    assert engine.reason == "cancelled" and engine.statistics().n_token == 0


def test_a_stream_that_is_left_makes_room_for_the_next(client: openai.OpenAI) -> None:
    stream = client.completions.create(model="any", prompt="the", max_tokens=200, stream=True)
    next(iter(stream))
    stream.close()
    answer = client.completions.create(model="any", prompt="of", max_tokens=1, temperature=0)
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_many_ask_at_once_and_each_gets_its_own(sure_client: openai.OpenAI) -> None:
    prompts = ["The fox", "A crow", "In the winter", "Once there was"]
    alone = [
        sure_client.completions.create(model="any", prompt=p, max_tokens=9, temperature=0)
        for p in prompts
    ]
    together: dict[int, str] = {}

    def ask(i: int) -> None:
        answer = sure_client.completions.create(
            model="any", prompt=prompts[i], max_tokens=9, temperature=0
        )
        together[i] = answer.choices[0].text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [together[i] for i in range(len(prompts))] == [a.choices[0].text for a in alone]


# The embedded model, through every protocol.


def test_the_protocols_agree_about_an_answer(embedded: Served) -> None:
    ask = [{"role": "user", "content": "What is a fox?"}]
    url = embedded.url
    by_openai = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
    by_anthropic = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    chat = by_openai.chat.completions.create(model="m", messages=ask, temperature=0, max_tokens=40)
    text = chat.choices[0].message.content
    assert text and chat.usage
    response = by_openai.responses.create(model="m", input=ask, temperature=0, max_output_tokens=40)
    assert response.output_text == text
    more: Any = {"temperature": 0}
    with by_anthropic.messages.stream(
        model="m", messages=ask, max_tokens=40, extra_body=more
    ) as stream:
        streamed = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert streamed == text and message.usage.output_tokens == chat.usage.completion_tokens
    count = by_anthropic.messages.count_tokens(model="m", messages=ask)
    usage = message.usage
    n_prompt = usage.input_tokens + usage.cache_read_input_tokens
    assert count.input_tokens == n_prompt == chat.usage.prompt_tokens
    stop = text[len(text) // 2 :][:3]
    cut = by_anthropic.messages.create(
        model="m", messages=ask, max_tokens=40, stop_sequences=[stop], extra_body=more
    )
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert cut.content[0].text == text[: text.index(stop)]


def test_an_answer_is_continued(embedded: Served) -> None:
    ask = [{"role": "user", "content": "What is a fox?"}]
    body = {"messages": ask, "temperature": 0, "max_tokens": 40}
    whole = embedded.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    begun = {"role": "assistant", "content": whole[:15]}
    rest = embedded.post("/v1/chat/completions", {**body, "messages": [*ask, begun]}).json()
    assert rest["choices"][0]["message"]["content"]
    assert not rest["choices"][0]["message"]["content"].startswith(whole[:15])


def test_a_schema_binds_the_answer(embedded: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "name": {"enum": ["fox", "hen"]}},
        "required": ["n", "name"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"messages": HELLO, "response_format": form, "seed": 1, "max_tokens": 100}
    said = embedded.post("/v1/chat/completions", body).json()["choices"][0]
    found = json.loads(said["message"]["content"])
    assert found["name"] in ("fox", "hen") and type(found["n"]) is int


def test_a_model_whose_template_knows_no_tools_can_be_made_to_call_one() -> None:
    """Twice, whole and streamed; the header says that the conversation was changed."""
    config = EngineConfig(cache_rate=0.5, context_length=1024)
    embedded = Served(Engine.open(embedded_model(), config))
    city = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": city}}
    body: dict[str, Any] = {"messages": HELLO, "tools": [tool], "tool_choice": "required"}
    body |= {"max_tokens": 120, "temperature": 0, "parallel_tool_calls": False}
    ids = []
    for _ in range(2):
        answer = embedded.post("/v1/chat/completions", body)
        assert answer.headers["x-outrider-fitted"].startswith("tools-described")
        said = answer.json()["choices"][0]
        (call,) = said["message"]["tool_calls"]
        assert said["finish_reason"] == "tool_calls" and json.loads(call["function"]["arguments"])
        streamed = embedded.post("/v1/chat/completions", {**body, "stream": True})
        assert streamed.headers["x-outrider-fitted"] == answer.headers["x-outrider-fitted"]
        lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        calls = [one for delta in deltas for one in delta.get("tool_calls", ())]
        assert (
            "".join(one["function"]["arguments"] for one in calls)
            == (call["function"]["arguments"])
        )
        ids += [call["id"], calls[0]["id"]]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "Snow."}
        body["messages"] = [*body["messages"], said["message"], result]
    assert len(set(ids)) == 4
    plain = embedded.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1})
    assert "x-outrider-fitted" not in plain.headers
    embedded.close()


def test_text_becomes_tokens_and_text_again(embedded: Served) -> None:
    tokens = embedded.post("/tokenize", {"content": "a small fox"}).json()["tokens"]
    assert embedded.post("/detokenize", {"tokens": tokens}).json()["content"] == "a small fox"


# Refusals.


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "JSON object"),
        ({}, "messages must hold"),
        ({"messages": []}, "at least one"),
        ({"messages": ["a"]}, "messages.0 must be an object"),
        ({"messages": [{"role": "judge", "content": "a"}]}, "role must be system, developer, user"),
        ({"messages": [{"role": "user"}]}, "content must be text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url must be"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "cannot read"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
            "messages.0.content.0.text must be text",
        ),
        ({"messages": [IMAGE_ELSEWHERE]}, "fetches nothing from the network"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "result is missing"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature must be a number"),
        ({"messages": HELLO, "temperature": -1}, "temperature"),
        ({"messages": HELLO, "top_p": 2}, "top_p"),
        ({"messages": HELLO, "max_tokens": -2}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": True}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": 1.5}, "max_tokens"),
        ({"messages": HELLO, "seed": "a"}, "seed must be a whole number"),
        ({"messages": HELLO, "stream": 3}, "stream must be true or false"),
        ({"messages": HELLO, "stream_options": 3}, "stream_options"),
        ({"messages": HELLO, "stop": [1]}, "stop must be text or a list of text"),
        ({"messages": HELLO, "n": 0}, "n must be a positive"),
        ({"messages": HELLO, "n": 1000}, "n must be at most 128"),
        ({"messages": HELLO, "tools": [{}]}, "tools.0.function.name must be text"),
        ({"messages": HELLO, "tools": [TOOL], "tool_choice": "g"}, "no tool called 'g'"),
        ({"messages": HELLO, "tools": [TOOL], "grammar": "root ::= x"}, "cannot be combined"),
        ({"messages": HELLO, "presence_penalty": 3}, "presence_penalty must be -2 to 2"),
        ({"messages": HELLO, "logit_bias": {"a": "b"}}, "must map tokens or texts"),
        ({"messages": HELLO, "logit_bias": {"1": 1000}}, "from -100 to 100"),
        ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, "from 0 to 20"),
        ({"messages": HELLO, "top_logprobs": 2}, "needs logprobs"),
        ({"messages": HELLO, "response_format": {"type": "xml"}}, "text, json_object or json_sch"),
    ],
)
def test_a_chat_that_cannot_be_served_is_refused_by_name(body: Any, words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        read_chat(body)


@pytest.mark.parametrize("prompt", [3, [[1.5]], [[-1]], [[["a"]]], {}, [], ["a"] * 129])
def test_a_prompt_must_be_text_or_tokens(prompt: Any) -> None:
    with pytest.raises(RequestRefused, match="prompt.* (must be text|and n must ask)"):
        read_text({"prompt": prompt})


def test_unknown_fields_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        ask = read_chat({"messages": HELLO, "frobnicate_47": 1, "user": "u", "top_p": None})
    assert ask.max_tokens == -1 and not ask.stream
    assert [r.getMessage() for r in caplog.records] == [
        "The field frobnicate_47 is not known here and was ignored."
    ]


def test_parts_of_text_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ask = read_chat({"messages": [{"role": "developer", "content": parts}]})
    assert ask.messages == ({"role": "system", "content": "a\nb"},)


def test_what_is_no_json_is_refused(fake: Served) -> None:
    for data in (b"", b"{", b"[" * 100_000, b"\xff"):
        answer = httpx.post(
            fake.url + "/v1/completions",
            content=data,
            headers={"Authorization": f"Bearer {KEY}"},
        )
        assert answer.status_code == 400 and "error" in answer.json()
    assert fake.post("/v1/nothing", {}).status_code == 404


@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1e999", "1e309", "NaN"])
@pytest.mark.parametrize("name", ["prompt", "temperature", "seed", "x"])
def test_what_does_not_fit_is_refused(fake: Served, name: str, value: str) -> None:
    body = {"prompt": "a", "max_tokens": 1, name: "HERE"}
    answer = httpx.post(
        fake.url + "/v1/completions",
        content=json.dumps(body).replace('"HERE"', value),
        headers={"Authorization": f"Bearer {KEY}"},
    )
    assert answer.status_code == 400 and answer.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize(("n", "status"), [(125, 200), (150, 400), (900, 400)])
def test_what_is_nested_too_deeply_is_refused(fake: Served, n: int, status: int) -> None:
    schema: Any = {}
    for _ in range(n // 2):
        schema = {"items": [schema]}
    answer = fake.post("/v1/chat/completions", {"messages": HELLO, "metadata": schema})
    assert answer.status_code == status and (status == 200 or "nested" in answer.text)


def test_long_names_are_cut(fake: Served) -> None:
    messages = [{"role": "user", "content": [{"type": "x" * 200_000}]}]
    answer = fake.post("/v1/chat/completions", {"messages": messages})
    assert answer.status_code == 400 and len(answer.content) < 500
    key = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.get(f"{fake.url}/v1/models/{'x' * 20_000}", headers=key)
    assert answer.status_code == 404 and len(answer.content) < 500
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(fake.url + "/v1/completions", headers=headers).status_code == 405


class Stuck:
    """A host whose engine never has time."""

    model_name, models, n_other = "stuck", (), 0

    def submit(self, work: Any) -> None:
        pass


def test_too_many_waiting_are_refused() -> None:
    turns = Turns(Stuck())
    ask = read_text({"prompt": "a"})

    async def crowd() -> None:
        waiting = [
            asyncio.ensure_future(anext(turns.answer(ask, "greedy")))
            for _ in range(MAX_WAITING_OF_ONE)
        ]
        await asyncio.wait(waiting[1:])  # each learns its place in the queue
        with pytest.raises(RequestRefused, match="Too many") as refused:
            await anext(turns.answer(ask, "greedy"))
        assert refused.value.status == 429 and refused.value.retry_s > 0
        other = await anext(turns.answer(ask, "modest"))  # another client may still wait
        assert isinstance(other, Wait)
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
    class Empty(Stuck):
        model_name = None

    async def ask() -> None:
        await anext(Turns(Empty()).answer(read_text({"prompt": "a"})))

    with pytest.raises(RequestRefused, match="No model"):
        asyncio.run(ask())


def test_pieces_of_an_answer_are_sent_at_once() -> None:
    """Without the protocol asyncio leaves Nagle's algorithm on, and a piece waits 40 ms."""
    with listen(0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with pytest.raises(ServerError, match="cannot be used"):
            listen(listener.getsockname()[1])


def test_no_other_program_takes_the_port() -> None:
    with listen(0) as listener, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError):
            other.bind(listener.getsockname())
            other.listen()
