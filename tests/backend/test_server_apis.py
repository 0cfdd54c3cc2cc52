"""The protocols of the local server: the official clients with a fake engine.

The tests check what reaches the engine and what returns, whole and streamed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from later import Later
from served import KEY, Served
from waiting import WAIT_S, until

from backend.protocol.chat import ChatFacts, Delta, ToolCall
from backend.protocol.errors import EngineError, UntrustedError
from backend.server.ask import PING_S, RequestRefused
from backend.server.openai_chat import read_chat
from backend.server.openai_responses import Kept

anthropic, openai = Later("anthropic"), Later("openai")

HELLO = [{"role": "user", "content": "how is the weather"}]
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "Look it up.", "parameters": SCHEMA},
}


class Rig:
    """A server with a fake engine, and its clients."""

    def __init__(self) -> None:
        self._open: list[Served] = []

    def __call__(self, **of_engine: Any) -> SimpleNamespace:
        served = Served(FakeEngine(**of_engine))
        self._open.append(served)
        return SimpleNamespace(
            served=served,
            engine=served.engine,
            openai=openai.OpenAI(base_url=served.url + "/v1", api_key=KEY, max_retries=0),
            anthropic=anthropic.Anthropic(base_url=served.url, api_key=KEY, max_retries=0),
        )

    def close(self) -> None:
        for served in self._open:
            served.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.fixture(scope="module")
def to(rig: Rig) -> SimpleNamespace:
    return rig()


def asked(to: SimpleNamespace) -> SimpleNamespace:
    """Return the last request to the engine."""
    return to.engine.asked[-1]


# Chat completions.


def chat(to: SimpleNamespace, **more: Any) -> Any:
    return to.openai.chat.completions.create(
        **{"model": "fake", "messages": HELLO, "tools": [TOOL], **more}
    )


def test_a_tool_is_called_and_its_result_answered(to: SimpleNamespace) -> None:
    whole = chat(to)
    message = whole.choices[0].message
    (call,) = message.tool_calls
    assert (message.content, message.reasoning_content) == (None, "I need a tool.")
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"place": "Oslo"},
    )
    assert whole.choices[0].finish_reason == "tool_calls"
    assert asked(to).options.tools == (TOOL,)
    turn = message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    after = chat(to, messages=[*HELLO, {**turn, "content": None}, result])
    assert after.choices[0].message.content == "It is sunny."
    assert after.choices[0].finish_reason == "stop"
    assert asked(to).messages[1:] == (
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "I need a tool.",
            "tool_calls": [call.model_dump()],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "sunny", "name": "weather"},
    )


def arguments(choice: Any) -> list[tuple[str, str]]:
    calls = choice.message.tool_calls or []
    return [(call.function.name, call.function.arguments) for call in calls]


def test_a_streamed_chat_adds_up_to_the_whole_one(to: SimpleNamespace) -> None:
    for more in ({}, {"tool_choice": "none"}):
        with to.openai.chat.completions.stream(
            model="fake", messages=HELLO, tools=[TOOL], **more
        ) as stream:
            chunks = [e.chunk for e in stream if e.type == "chunk"]
            streamed = stream.get_final_completion().choices[0]
        whole = chat(to, **more).choices[0]
        assert streamed.finish_reason == whole.finish_reason
        assert streamed.message.content == whole.message.content
        assert arguments(streamed) == arguments(whole)
        thought = "".join(getattr(c.choices[0].delta, "reasoning_content", "") for c in chunks)
        assert thought == whole.message.reasoning_content


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "function": {"name": "weather"}}, "weather"),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [TOOL]},
            },
            "required",
        ),
    ],
)
def test_the_choice_of_a_tool_reaches_the_engine(
    to: SimpleNamespace, given: Any, choice: str
) -> None:
    chat(to, tool_choice=given, parallel_tool_calls=False)
    options = asked(to).options
    assert (options.tool_choice, options.parallel_tool_calls) == (choice, False)


@pytest.mark.parametrize(
    ("extra", "thinking", "effort", "variables"),
    [
        ({}, None, "", {}),
        ({"reasoning_effort": "high"}, None, "high", {}),
        ({"reasoning_effort": "none"}, False, "", {}),
        (
            {"chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "low", "x": 1}},
            False,
            "low",
            {"x": 1},
        ),
        ({"enable_thinking": True}, True, "", {}),
        ({"thinking": {"type": "disabled"}}, False, "", {}),
        ({"reasoning": {"effort": "medium", "enabled": True}}, True, "medium", {}),
    ],
)
def test_thinking_is_switched_in_every_form(
    to: SimpleNamespace, extra: Any, thinking: bool | None, effort: str, variables: Any
) -> None:
    chat(to, extra_body=extra)
    options = asked(to).options
    assert (options.thinking, options.effort) == (thinking, effort)
    assert options.variables == variables


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}, SCHEMA),
    ],
)
def test_the_form_of_the_answer_reaches_the_engine(
    to: SimpleNamespace, form: Any, schema: Any
) -> None:
    chat(to, tools=[], response_format=form)
    assert asked(to).options.json_schema == schema


def test_sampling_reaches_the_engine(to: SimpleNamespace) -> None:
    chat(
        to,
        temperature=0.5,
        top_p=0.5,
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias={"7": -100},
        seed=-1,
        stop=["a", "b", ""],
        max_completion_tokens=99,
        max_tokens=5,
    )
    sampling = asked(to).sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.5, None)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert sampling.logit_bias == ((7, -100.0),)
    assert (asked(to).options.stops, asked(to).max_tokens) == (("a", "b"), 99)


def test_several_answers_have_seeds_of_their_own(to: SimpleNamespace) -> None:
    before = len(to.engine.asked)
    whole = chat(to, n=3, seed=5, tools=[])
    assert [c.index for c in whole.choices] == [0, 1, 2]
    assert [a.sampling.seed for a in to.engine.asked[before:]] == [5, 6, 7]
    assert whole.usage.prompt_tokens == 4  # once
    assert whole.usage.completion_tokens == 12  # with the token that ends each
    stream = chat(to, n=2, stream=True, tools=[])
    texts = ["", ""]
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == ["It is sunny."] * 2


def test_probabilities_are_told(to: SimpleNamespace) -> None:
    whole = chat(to, tools=[], logprobs=True, top_logprobs=2).choices[0]
    assert asked(to).sampling.n_probs == 2
    found = whole.logprobs.content
    assert [t.token for t in found] == ["Easy.", "It is ", "sunny."]
    assert bytes(found[2].bytes) == b"sunny." and len(found[2].top_logprobs) == 2
    stream = chat(to, tools=[], logprobs=True, stream=True)
    tokens = [t for c in stream if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [t.token for t in tokens] == ["Easy.", "It is ", "sunny."]
    assert not tokens[0].top_logprobs


def test_a_model_that_is_blind_says_so(to: SimpleNamespace) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError, match="image input is not supported"):
        chat(to, messages=[{"role": "user", "content": [image]}])
    to.engine.model.chat = ChatFacts(tools=True, images=True)
    chat(to, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, image]}])
    assert asked(to).messages[0]["content"][1] == {"type": "image", "data": "AAAA"}


# Completions.


def test_several_texts_are_continued(to: SimpleNamespace) -> None:
    ask = {"model": "fake", "prompt": ["one", "two"], "n": 2, "echo": True}
    said = [c.text for c in to.openai.completions.create(**ask).choices]
    assert said == ["oneEasy.It is sunny."] * 2 + ["twoEasy.It is sunny."] * 2
    probs = to.openai.completions.create(**ask | {"echo": False}, logprobs=1).choices[0].logprobs
    assert (probs.tokens, probs.text_offset) == (["Easy.", "It is ", "sunny."], [0, 5, 11])
    assert probs.top_logprobs[0] == {"Easy.": -0.5}
    texts = [""] * 4
    for chunk in to.openai.completions.create(**ask, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == said


# Responses.

RESPONSE_TOOL: Any = {"type": "function", "strict": False, **TOOL["function"]}


def test_a_response_goes_round(to: SimpleNamespace) -> None:
    first = to.openai.responses.create(
        model="fake", input="how is the weather", instructions="Be brief.", tools=[RESPONSE_TOOL]
    )
    thought, call = first.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "I need a tool.")
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "weather",
        '{"place": "Oslo"}',
    )
    assert asked(to).messages[0] == {"role": "system", "content": "Be brief."}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    items = [{"role": "user", "content": "how is the weather"}, *first.output, result]
    second = to.openai.responses.create(model="fake", input=items, tools=[RESPONSE_TOOL])
    assert (second.status, second.output_text) == ("completed", "It is sunny.")
    sent = asked(to).messages
    assert sent[1]["reasoning_content"] == "I need a tool." and len(sent[1]["tool_calls"]) == 1
    assert sent[2] == {
        "role": "tool",
        "tool_call_id": call.call_id,
        "content": "sunny",
        "name": "weather",
    }
    # The same with the id of the response before, whose instructions no longer count.
    again = to.openai.responses.create(
        model="fake", input=[result], previous_response_id=first.id, tools=[RESPONSE_TOOL]
    )
    assert again.output_text == "It is sunny." and asked(to).messages == sent


def test_a_streamed_response_has_all_events(to: SimpleNamespace) -> None:
    for tools in ([RESPONSE_TOOL], []):
        with to.openai.responses.stream(model="fake", input="hi", tools=tools) as stream:
            events = list(stream)
            final = stream.get_final_response()
        assert [e.sequence_number for e in events] == list(range(len(events)))
        kinds = [e.type for e in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        for section in ("output_item", "content_part"):
            assert kinds.count(f"response.{section}.added") == kinds.count(
                f"response.{section}.done"
            )
        for e in events:
            if e.type == "response.output_item.done":
                item = final.output[e.output_index]
                assert (item.id, item.type) == (e.item.id, e.item.type)
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        calls = [e for e in events if e.type == "response.function_call_arguments.done"]
        if tools:
            assert [c.arguments for c in calls] == ['{"place": "Oslo"}'] and not text
            assert final.output[1].arguments == '{"place": "Oslo"}'
        else:
            assert text == final.output_text == "It is sunny."


def test_a_response_that_is_cut_is_incomplete(to: SimpleNamespace) -> None:
    cut = to.openai.responses.create(model="fake", input="hi", max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.output_text == "It is "


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": "a", "previous_response_id": "resp_x"}, "not kept here"),
        ({"input": "a", "background": True}, "background is not possible"),
        ({"input": "a", "conversation": "c"}, "conversation is not kept"),
        ({"input": []}, "input must hold"),
        ({}, "input must be text or a list"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "cannot read"),
    ],
)
def test_a_response_that_is_impossible_is_refused(
    to: SimpleNamespace, body: Any, words: str
) -> None:
    said = to.served.post("/v1/responses", body)
    assert said.status_code == 400 and words in said.json()["error"]["message"]


def test_only_the_last_responses_are_kept(to: SimpleNamespace) -> None:
    unkept = to.openai.responses.create(model="fake", input="a", store=False)
    with pytest.raises(openai.BadRequestError, match="not kept"):
        to.openai.responses.create(model="fake", input="b", previous_response_id=unkept.id)
    kept = Kept()
    turns = tuple(HELLO)
    for i in range(65):
        kept.keep(str(i), turns)
    assert kept.messages("1") == turns
    with pytest.raises(RequestRefused):
        kept.messages("0")
    large = ({"role": "user", "content": "x" * 9_000_000},)
    kept.keep("large", large)
    kept.keep("larger", large)
    assert kept.messages("larger") == large
    with pytest.raises(RequestRefused):
        kept.messages("large")


# Messages.

MESSAGE_TOOL: Any = {"name": "weather", "description": "Look it up.", "input_schema": SCHEMA}


def message(to: SimpleNamespace, **more: Any) -> Any:
    return to.anthropic.messages.create(
        **{"model": "fake", "max_tokens": 99, "messages": HELLO, "tools": [MESSAGE_TOOL], **more}
    )


def test_a_message_goes_round(to: SimpleNamespace) -> None:
    first = message(to, system=[{"type": "text", "text": "Be brief."}])
    thought, call = first.content
    assert (thought.type, thought.thinking) == ("thinking", "I need a tool.")
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"place": "Oslo"})
    assert (first.stop_reason, first.model) == ("tool_use", "fake")
    assert asked(to).messages[0] == {"role": "system", "content": "Be brief."}
    assert asked(to).options.tools == (TOOL,)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    more = {"type": "text", "text": "go on"}
    turns = [*HELLO, first.to_param(), {"role": "user", "content": [result, more]}]
    second = message(to, messages=turns, tool_choice={"type": "none"})
    assert second.content[-1].text == "It is sunny." and second.stop_reason == "end_turn"
    _, mine, tool, user = asked(to).messages
    assert mine["reasoning_content"] == "I need a tool."
    assert json.loads(mine["tool_calls"][0]["function"]["arguments"]) == {"place": "Oslo"}
    assert tool == {
        "role": "tool",
        "tool_call_id": call.id,
        "content": "sunny",
        "name": "weather",
    }
    assert user == {"role": "user", "content": "go on"}


def test_a_streamed_message_adds_up_to_the_whole_one(to: SimpleNamespace) -> None:
    for tools in ([MESSAGE_TOOL], []):
        with to.anthropic.messages.stream(
            model="fake", max_tokens=99, messages=HELLO, tools=tools
        ) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_message()
        whole = message(to, tools=tools)
        assert streamed.model_dump()["content"] == whole.model_dump()["content"]
        assert streamed.stop_reason == whole.stop_reason
        assert streamed.usage.output_tokens == whole.usage.output_tokens
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
        assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"thinking": False}),
        ({"thinking": {"type": "adaptive"}}, {"thinking": None}),
        ({"output_config": {"effort": "low"}}, {"effort": "low"}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "tool", "name": "weather"}}, {"tool_choice": "weather"}),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"parallel_tool_calls": False},
        ),
        ({"stop_sequences": ["a"]}, {"stops": ("a",)}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {"json_schema": SCHEMA},
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools": ()}),
    ],
)
def test_the_options_of_a_message_reach_the_engine(
    to: SimpleNamespace, more: Any, found: Any
) -> None:
    message(to, **more)
    assert {name: getattr(asked(to).options, name) for name in found} == found


def test_the_tokens_of_a_message_are_counted(to: SimpleNamespace) -> None:
    count = to.anthropic.messages.count_tokens(model="fake", messages=HELLO, system="Be brief.")
    assert count.input_tokens == 6


def test_a_message_is_refused_in_its_own_form(to: SimpleNamespace) -> None:
    with pytest.raises(anthropic.BadRequestError, match="role must be user, assistant or") as error:
        message(to, messages=[{"role": "judge", "content": "a"}])
    assert error.value.body["error"]["type"] == "invalid_request_error"
    stranger = anthropic.Anthropic(base_url=to.served.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        stranger.messages.create(model="m", max_tokens=1, messages=HELLO)
    assert refused.value.body["error"]["type"] == "authentication_error"


# The rest.


def test_models_are_listed_for_both(to: SimpleNamespace) -> None:
    assert [m.id for m in to.openai.models.list()] == ["fake"]
    assert [m.id for m in to.anthropic.models.list()] == ["fake"]
    assert to.anthropic.models.retrieve("fake").display_name == "fake"


def test_text_is_split_into_tokens_and_joined(to: SimpleNamespace) -> None:
    said = to.served.post("/tokenize", {"content": "a bb ccc", "add_special": True}).json()
    assert said == {"tokens": [0, 1, 2, 3]}
    assert to.served.post("/detokenize", {"tokens": [1, 2]}).json() == {"content": "x xx"}
    wrong = to.served.post("/detokenize", {"tokens": [-1]})
    assert wrong.status_code == 400 and "no such token" in wrong.text
    for bad in (True, 1.0, "1", None):
        wrong = to.served.post("/detokenize", {"tokens": [1, bad]})
        assert wrong.status_code == 400 and "whole numbers" in wrong.text, bad
    assert to.served.post("/tokenize", {"content": "a"}).json() == {"tokens": [1]}
    assert to.served.post("/tokenize", {}).json() == {"tokens": []}


def test_control_tokens_of_a_text_count_unless_it_is_asked_otherwise(
    to: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def tokenize(text: str, *, special: bool, add_bos: bool) -> list[int]:
        found.append(special)
        return []

    monkeypatch.setattr(to.engine, "tokenize", tokenize)
    for body in ({}, {"parse_special": True}, {"parse_special": False}):
        assert to.served.post("/tokenize", {"content": "a", **body}).status_code == 200
    assert found == [True, True, False]


def test_a_model_is_described_in_both_forms(to: SimpleNamespace) -> None:
    headers = {"x-api-key": KEY}
    listed = httpx.get(to.served.url + "/v1/models", headers=headers).json()
    one = httpx.get(to.served.url + "/v1/models/fake", headers=headers).json()
    assert listed["object"] == "list" and listed["data"] == [one]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("fake", "fake", False)
    kinds = {name: one[name] for name in ("id", "object", "owned_by", "type", "display_name")}
    assert kinds == {
        "id": "fake", "object": "model", "owned_by": "local", "type": "model",
        "display_name": "fake",
    }  # fmt: skip
    at = datetime.strptime(one["created_at"], "%Y-%m-%dT%H:%M:%S%z")
    assert at.timestamp() == one["created"] > 1_700_000_000
    other = httpx.get(to.served.url + "/v1/models/other/one", headers=headers)
    error = other.json()["error"]
    assert (other.status_code, error["code"]) == (404, "model_not_found")
    assert "other/one" in error["message"]


def test_a_path_that_is_not_there_is_refused_in_a_sentence(to: SimpleNamespace) -> None:
    said = httpx.get(to.served.url + "/v1/nothing", headers={"x-api-key": KEY})
    assert said.status_code == 404 and said.json()["error"]["message"] == "Not Found."


def test_embeddings_are_refused_and_not_tried_again(to: SimpleNamespace) -> None:
    n_before = to.served.turns.n_request
    patient = to.openai.with_options(max_retries=3)
    with pytest.raises(openai.InternalServerError, match="has no model for it") as refused:
        patient.embeddings.create(model="fake", input="a")
    assert refused.value.status_code == 501 and refused.value.type == "not_supported_error"
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert to.served.turns.n_request == n_before


def test_the_server_tells_that_it_runs(to: SimpleNamespace) -> None:
    headers = {"x-api-key": KEY}
    assert httpx.get(to.served.url + "/health", headers=headers).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (EngineError("The template refuses this."), 400, "The template refuses this."),
        (UntrustedError("The file has changed."), 500, "The file has changed."),
        (EngineError("Not read: /home/a b/m.gguf."), 400, "Not read: m.gguf."),
        (KeyError("secret"), 500, "Something unexpected failed"),
    ],
)
def test_what_fails_before_the_answer_has_its_own_status(
    rig: Rig, fault: Exception, status: int, words: str
) -> None:
    to = rig(fault=fault)
    for body in ({"messages": HELLO}, {"messages": HELLO, "stream": True}):
        said = to.served.post("/v1/chat/completions", body)
        assert said.status_code == status and words in said.json()["error"]["message"]


def test_what_fails_within_the_answer_ends_the_stream_with_a_sentence(rig: Rig) -> None:
    def answer(*_: Any) -> Iterator[Delta]:
        yield Delta(content="It is ")
        raise EngineError("The drive is gone: /mnt/x.")

    class Broken(list[Delta]):
        def __iter__(self) -> Iterator[Delta]:
            return answer()

    to = rig(answer=lambda *_: Broken())
    with pytest.raises(openai.APIError, match="The drive is gone: x"):
        list(chat(to, stream=True))
    with pytest.raises(anthropic.APIError, match="The drive is gone: x"):
        with to.anthropic.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
            stream.get_final_message()
    events = list(to.openai.responses.create(model="m", input="a", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.message == "The drive is gone: x."


def test_calls_in_parallel_are_kept_apart(rig: Rig) -> None:
    calls = [ToolCall("a", "weather", '{"place": 1}'), ToolCall("b", "weather", '{"place": 2}')]
    to = rig(answer=lambda *_: [Delta(tool_calls={i: call}) for i, call in enumerate(calls)])
    assert [c.id for c in chat(to).choices[0].message.tool_calls] == ["a", "b"]
    assert [b.input for b in message(to).content] == [{"place": 1}, {"place": 2}]
    with to.anthropic.messages.stream(
        model="m", max_tokens=9, messages=HELLO, tools=[MESSAGE_TOOL]
    ) as stream:
        assert [b.input for b in stream.get_final_message().content] == [{"place": 1}, {"place": 2}]
    response = to.openai.responses.create(model="m", input="a", tools=[RESPONSE_TOOL])
    assert [item.call_id for item in response.output] == ["a", "b"]


# Waiting.


def test_who_waits_is_told_how_many_are_before_it(rig: Rig) -> None:
    gate = threading.Event()
    to = rig(gate=gate)
    headers = {"Authorization": f"Bearer {KEY}"}
    url = to.served.url + "/v1/chat/completions"
    body = {"messages": HELLO, "stream": True, "sse_ping_interval": 0.02}
    with httpx.stream("POST", url, json=body, headers=headers) as first:
        assert first.headers["x-queue-position"] == "0"
        assert to.engine.reading.wait(WAIT_S)
        with httpx.stream("POST", url, json=body, headers=headers) as second:
            assert second.headers["x-queue-position"] == "1"
            lines = second.iter_lines()
            assert next(lines) == ": waiting, 1 before"
            gate.set()
            rest = list(lines)
        assert ": reading the prompt, 4 of 4 tokens" in rest
        assert [line for line in rest if line][-1] == "data: [DONE]"
        assert [line for line in first.iter_lines() if line][-1] == "data: [DONE]"


def test_a_silent_stream_repeats_its_last_comment(rig: Rig) -> None:
    """Of one that is answered, and of one that waits. Then both go on."""
    assert PING_S == 10 == read_chat({"messages": HELLO}).ping_s
    gate = threading.Event()
    to = rig(gate=gate)
    headers = {"Authorization": f"Bearer {KEY}"}
    url = to.served.url + "/v1/chat/completions"
    body = {"messages": HELLO, "stream": True, "sse_ping_interval": 0.02}
    with httpx.stream("POST", url, json=body, headers=headers) as first:
        assert first.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in first.iter_lines() if line)
        reads = ": reading the prompt, 4 of 4 tokens"
        while (line := next(lines)) != reads:
            assert line.startswith("data: ")
        with httpx.stream("POST", url, json=body, headers=headers) as second:
            others = (line for line in second.iter_lines() if line)
            assert [next(others) for _ in range(3)] == [": waiting, 1 before"] * 3
            assert [next(lines) for _ in range(3)] == [reads] * 3
            gate.set()
            assert [*lines][-1] == [*others][-1] == "data: [DONE]"


def test_clients_take_turns(rig: Rig) -> None:
    gate = threading.Event()
    to = rig(gate=gate)
    served: list[str] = []

    def ask(client: str, text: str) -> None:
        body = {"messages": [{"role": "user", "content": text}]}
        to.served.post("/v1/chat/completions", body, **{"User-Agent": client})

    threads = []
    for client, text in [("a", "a0"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")]:
        threads.append(threading.Thread(target=ask, args=(client, text)))
        threads[-1].start()
        n_open = len(threads)
        turns = to.served.turns
        until(lambda n=n_open: turns.n_open >= n)
        assert to.engine.reading.wait(WAIT_S)
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    served = [asked.messages[0]["content"] for asked in to.engine.asked]
    assert served == ["a0", "a1", "b1", "c1", "a2"]


def test_who_waits_while_the_model_changes_is_not_lost(rig: Rig) -> None:
    gate = threading.Event()
    to = rig(gate=gate)
    turns, served = to.served.turns, to.served
    answers: dict[int, httpx.Response] = {}

    def ask(i: int) -> None:
        answers[i] = served.post("/v1/chat/completions", {"messages": HELLO})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for n, thread in enumerate(threads, 1):
        thread.start()
        until(lambda n=n: turns.n_open >= n)
        assert to.engine.reading.wait(WAIT_S)
    turns.pause()
    threads[0].join(WAIT_S)
    assert answers[0].status_code == 503 and int(answers[0].headers["retry-after"]) > 0
    assert answers.keys() == {0}
    turns.resume()
    for thread in threads:
        thread.join(WAIT_S)
    assert [answers[i].status_code for i in (1, 2)] == [200, 200]
