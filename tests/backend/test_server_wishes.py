"""A wish that cannot be met is refused. It is never answered as if it were."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from served import KEY, Served

from backend.protocol.chat import Delta
from backend.server.anthropic_messages import read_message
from backend.server.ask import RequestRefused
from backend.server.ollama import read_chat as read_ollama
from backend.server.ollama import read_generate
from backend.server.openai_chat import read_chat
from backend.server.openai_responses import Kept, read_response
from backend.server.openai_text import read_text
from backend.server.tools import arguments_of

HELLO = [{"role": "user", "content": "hi"}]
S = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}}
OF_CHATS = {"type": "json_schema", "json_schema": {"name": "c", "strict": "true", "schema": S}}
READERS = {
    "chat": lambda **more: read_chat({"messages": HELLO, **more}),
    "responses": lambda **more: read_response({"input": "hi", **more}, Kept()),
    "messages": lambda **more: read_message({"messages": HELLO, **more}),
    "ollama": lambda **more: read_ollama({"messages": HELLO, **more}),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_schema_is_found_wherever_clients_write_it(read: Any) -> None:
    for wish in (
        {"response_format": OF_CHATS},
        {"response_format": {"type": "json_schema", "schema": S}},
        {"response_format": {"type": "json_schema", "json_schema": S}},
        {"response_format": S},
        {"text": {"format": OF_CHATS}},
        {"text": {"format": {"type": "json_schema", "name": "c", "schema": S}}},
        {"output_config": {"format": {"type": "json_schema", "schema": S}}},
        {"output_format": {"type": "json_schema", "schema": S}},
        {"format": S}, {"json_schema": S}, {"guided_json": S}, {"structured_outputs": {"json": S}},
        {"json_schema": {"name": "c", "schema": S}},
    ):  # fmt: skip
        ask = read(**wish)
        assert ask.options.json_schema == S and ask.ignored == (), wish
    for wish in ({"response_format": "json"}, {"response_format": {"type": "json_object"}},
                 {"format": "json"}, {"json_schema": {}}):  # fmt: skip
        assert read(**wish).options.json_schema == {"type": "object"}, wish
    for wish in (
        {"grammar": "g"},
        {"guided_grammar": "g"},
        {"structured_outputs": {"grammar": "g"}},
    ):
        assert read(**wish).options.grammar == "g"
    for wish in ({}, {"response_format": {"type": "text"}}, {"text": {"verbosity": "low"}}):
        assert read(**wish).options.json_schema is None


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format has no schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "has no schema"),
        ({"text": {"format": {"type": "json_schema", "name": "c"}}}, "text.format has no schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type must be"),
        ({"response_format": 5}, "response_format must be"),
        ({"response_format": {"type": "json_object", "schema": 5}}, "schema must be an object"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "has no schema"),
        ({"guided_regex": "a+"}, "guided_regex is not possible here"),
        ({"guided_choice": ["a"]}, "guided_choice is not possible here"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex is not possible"),
        ({"json_schema": S, "response_format": {"type": "json_object"}}, "contradicts"),
    ],
)
def test_a_form_that_cannot_be_kept_is_refused(read: Any, wish: Any, words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        read(**wish)


def test_a_raw_prompt_has_no_schema_and_no_values_of_its_own() -> None:
    for wish in ({"response_format": OF_CHATS}, {"json_schema": S}, {"guided_json": S}):
        with pytest.raises(RequestRefused, match="possible in a chat only"):
            read_text({"prompt": "a", **wish})
    with pytest.raises(RequestRefused, match="format needs a template"):
        read_generate({"prompt": "a", "raw": True, "format": "json"})
    for n_token in (0, 1):
        body = {"prompt": "The dog", "echo": True, "logprobs": 1, "max_tokens": n_token}
        with pytest.raises(RequestRefused, match="echo and logprobs do not go together"):
            read_text(body)
    assert read_text({"prompt": "a", "suffix": "b", "best_of": 2}).ignored == ("best_of", "suffix")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HELLO}), ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": HELLO}), ("/completion", {"prompt": "hi"}),
    ],
)  # fmt: skip
def test_a_stream_has_no_comments_where_they_are_switched_off(path: str, body: Any) -> None:
    served = Served(FakeEngine())
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        for seconds, has_comments in ((0, False), (-1, False), (30, True)):
            given = {**body, "stream": True, "sse_ping_interval": seconds}
            answer = httpx.post(served.url + path, json=given, headers=headers)
            assert answer.status_code == 200 and "x-ignored-fields" not in answer.headers
            lines = [line for line in answer.text.splitlines() if line]
            assert any(line.startswith(": ") for line in lines) == has_comments
            assert all(line.startswith((": ", "data: ", "event: ")) for line in lines)
    finally:
        served.close()


def test_numbers_without_a_fraction_are_whole() -> None:
    ask = read_chat({"messages": HELLO, "max_tokens": 3.0, "top_k": 40.0, "seed": 1.0, "n": 2.0})
    assert (ask.max_tokens, ask.sampling.top_k, ask.sampling.seed, ask.n) == (3, 40, 1, 2)
    assert read_ollama({"messages": HELLO, "options": {"num_predict": 3.0}}).max_tokens == 3
    with pytest.raises(RequestRefused, match="max_tokens must be a whole number"):
        read_chat({"messages": HELLO, "max_tokens": 1.5})


SEPARATORS = "a\x85b\u2028c\u2029d"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HELLO}), ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": HELLO}), ("/completion", {"prompt": "hi"}),
        ("/api/chat", {"messages": HELLO}),
    ],
)  # fmt: skip
def test_each_event_stands_in_one_line_whatever_a_program_calls_a_line(
    path: str, body: Any
) -> None:
    served = Served(FakeEngine(lambda *_: [Delta(content=SEPARATORS)]))
    try:
        text = served.post(path, {**body, "stream": True}).text
        assert text.splitlines() == text.split("\n")[:-1]
        lines = [line.removeprefix("data: ") for line in text.split("\n") if "d" in line]
        assert any(SEPARATORS in str(json.loads(line)) or SEPARATORS in line.encode().decode(
            "unicode_escape") for line in lines if line.startswith("{"))  # fmt: skip
    finally:
        served.close()


def test_small_wishes_of_clients_are_met() -> None:
    served = Served(FakeEngine())
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        assert httpx.get(served.url + "/").text == "Outrider is running"
        assert httpx.head(served.url + "/").status_code == 200
        body = json.dumps({"messages": HELLO}).encode()
        path = served.url + "/v1/chat/completions"
        answer = httpx.post(path, content=b"\xef\xbb\xbf" + body, headers=headers)
        assert answer.status_code == 200
        zipped = {**headers, "Content-Encoding": "gzip"}
        answer = httpx.post(path, content=gzip.compress(body), headers=zipped)
        assert answer.status_code == 415 and "Content-Encoding" in answer.text
        of_anthropic = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        answer = httpx.get(served.url + "/v1/models/none", headers=of_anthropic)
        assert answer.status_code == 404 and answer.json()["type"] == "error"
        answer = httpx.get(served.url + "/v1/models/none", headers=headers)
        assert answer.json()["error"]["code"] == "model_not_found"
    finally:
        served.close()


@pytest.mark.parametrize("key", ["  a key ", "a key\n", "schl\u00fcssel-\u20ac"])
def test_a_key_of_any_letters_opens(key: str) -> None:
    served = Served(FakeEngine(), key=key)
    try:
        sent = f"Bearer {key.strip()}".encode()
        answer = httpx.get(served.url + "/v1/models", headers={"Authorization": sent})
        assert answer.status_code == 200
        answer = httpx.get(served.url + "/v1/models", headers={"Authorization": b"Bearer x"})
        assert answer.status_code == 401
    finally:
        served.close()


def test_the_body_of_a_stranger_is_read_on_no_path() -> None:
    served = Served(FakeEngine())
    try:
        for path in ("/", "/health"):
            assert httpx.request("GET", served.url + path, content=b"x").status_code == 401
            assert httpx.get(served.url + path).status_code == 200
    finally:
        served.close()


def test_numbers_beyond_all_bounds_stay_json_in_a_call() -> None:
    assert arguments_of('{"a": 1e999, "b": NaN, "c": 1.5}') == {"a": "1e999", "b": "NaN", "c": 1.5}
