"""What a conversation may hold without ending it: each kind of part that clients' packages know.

The kinds come from the types of the packages openai, anthropic and ollama.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import typing_extensions
from fake_engine import FakeEngine
from later import Later
from served import Served

from backend.protocol.chat import Delta, is_conversation
from backend.server import turns
from backend.server.anthropic_messages import read_message
from backend.server.ask import Ask, Finish, Part, RequestRefused
from backend.server.openai_chat import read_chat
from backend.server.openai_responses import Kept, ResponseWriter, read_response

ollama = Later("ollama")
anthropic, anthropic_beta = Later("anthropic.types"), Later("anthropic.types.beta")
openai_chat, openai_responses = Later("openai.types.chat"), Later("openai.types.responses")

LAST = {"role": "user", "content": "go on"}
PNG = "iVBORw0KGgo="
IMAGE_URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def members(kind: Any) -> Iterator[Any]:
    """Yield the members of a union."""
    kind = kind.__value__ if hasattr(kind, "__value__") else kind
    origin = typing.get_origin(kind)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        yield from members(typing.get_args(kind)[0])
    elif origin is typing.Union or str(origin) == "<class 'types.UnionType'>":
        for member in typing.get_args(kind):
            yield from members(member)
    else:
        yield kind


def examples(kind: Any, depth: int = 0) -> list[Any]:
    """Return an example of each member of a type, with all its fields."""
    found: list[Any] = []
    for member in members(kind):
        origin, inner = typing.get_origin(member), typing.get_args(member)
        if origin is typing.Literal:
            found += inner[:1] if depth else inner
        elif typing_extensions.is_typeddict(member):
            hints = (
                {} if depth > 4 else typing_extensions.get_type_hints(member, include_extras=True)
            )
            found.append({n: (examples(h, depth + 1) or [None])[0] for n, h in hints.items()})
        elif origin is not None and str(origin).rpartition(".")[2].startswith(("list", "Iterable")):
            found.append(examples(inner[0], depth + 1) if depth < 4 else [])
        elif member in (str, int, float, bool):
            found.append({str: "words", int: 1, float: 0.5, bool: True}[member])
        elif origin is dict or member is object:
            found.append({"a": "b"})
    return found


ODD = (None, [], 5, {}, [None, 3, {}], {"type": "odd"})


def spoiled(part: Any, values: Sequence[Any] = ODD) -> Iterator[Any]:
    """Yield a part, and the part with each of its fields spoiled in several ways."""
    yield part
    for name in part:
        for value in values:
            yield {**part, name: value}
        yield {n: v for n, v in part.items() if n != name}


def chats(message: Any) -> Ask:
    return read_chat({"messages": [message, LAST]})


def messages(message: Any) -> Ask:
    return read_message({"messages": [message, LAST]})


def responses(item: Any) -> Ask:
    return read_response({"input": [item, LAST]}, Kept())


def of_ollama(message: Any) -> Ask:
    from backend.server.ollama import read_chat as read

    return read({"messages": [message, LAST]})


def in_roles(kind: Any) -> Iterator[Any]:
    """Yield each message of a type, and one for each of its parts in each of its roles."""
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    parts = [e for example in examples(hints["content"]) if isinstance(example, list)
             for e in example if isinstance(e, dict)]  # fmt: skip
    for role in examples(hints["role"]):
        yield {**examples(kind)[0], "role": role}
        for part in {json.dumps(part): part for part in parts}.values():
            yield {"role": role, "content": [part]}
            result = {"type": "tool_result", "tool_use_id": "c", "content": [part]}
            yield {"role": role, "content": [result]}


@functools.cache
def histories() -> list[tuple[Callable[[Any], Ask], Any]]:
    """Return how a message is read, and the message, for all kinds."""
    of_anthropic = anthropic.MessageParam | anthropic_beta.BetaMessageParam
    of_openai = openai_chat.ChatCompletionMessageParam
    inputs = examples(openai_responses.ResponseInputItemParam)
    fields = dict.fromkeys(ollama.Message.model_fields, "words")
    return [
        *((chats, m) for kind in members(of_openai) for m in in_roles(kind)),
        *((messages, m) for kind in members(of_anthropic) for m in in_roles(kind)),
        *((responses, item) for item in inputs),
        *((of_ollama, {**m, "role": role})
          for role in ("system", "user", "assistant", "tool", "odd")
          for m in (fields, {"images": [PNG]}, {})),
    ]  # fmt: skip


def test_the_packages_know_many_kinds() -> None:
    kinds = {json.dumps(m).count('"type"') and json.dumps(m) for _, m in histories()}
    assert len(kinds) > 100


@pytest.mark.parametrize("read", [chats, messages, responses, of_ollama])
def test_no_kind_of_part_ends_a_conversation(read: Callable[[Any], Ask]) -> None:
    for _, message in (pair for pair in histories() if pair[0] is read):
        for one in spoiled(message):
            ask = read(one)
            assert is_conversation(list(ask.messages)), one
            assert ask.messages[-1]["content"].endswith("go on")
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            for other in spoiled(part, (None, 5)) if isinstance(part, dict) else ():
                ask = read({**message, "content": [other]})
                assert is_conversation(list(ask.messages)), other


def test_a_reference_to_a_tool_names_the_tool() -> None:
    inner = [{"type": "tool_reference", "tool_name": "Read"}]
    ask = messages({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": inner}
    ]})  # fmt: skip
    assert ask.messages[0]["role"] == "tool" and "Read" in ask.messages[0]["content"]
    assert ask.ignored == chats({"role": "tool", "content": inner}).ignored == ()


def test_the_words_of_a_foreign_part_reach_the_model_and_it_is_named() -> None:
    found = {"type": "web_search_result", "title": "A page", "encrypted_content": "x" * 999}
    ask = messages({"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "cats"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]},
        {"type": "text", "text": "Cats."},
    ]})  # fmt: skip
    assert ask.messages[0]["content"] == (
        "[server_tool_use: web_search\ncats]\n[web_search_tool_result: A page]\nCats."
    )
    assert ask.ignored == (
        "messages.0.content.0 (server_tool_use)", "messages.0.content.1 (web_search_tool_result)"
    )  # fmt: skip


def test_a_part_that_is_left_out_is_named_once_and_not_by_its_fields() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    ask = messages({"role": "user", "content": [{"type": "document", "source": source}]})
    assert ask.ignored == ("messages.0.content.0 (document)",)
    assert "JVBE" not in str(ask.messages)


def test_documents_search_results_and_summaries_are_read() -> None:
    text = [{"type": "text", "text": "w"}]
    for block, found in (
        ({"type": "document", "title": "t", "source": {"type": "content", "content": text}},
         "t\nw"),
        ({"type": "document", "source": {"type": "content", "content": "w"}}, "w"),
        ({"type": "search_result", "title": "t", "source": "s", "content": text}, "t\ns\nw"),
        ({"type": "compaction", "content": "w"}, "w"),
        ({"type": "text", "text": None}, ""),
    ):  # fmt: skip
        ask = messages({"role": "user", "content": [block]})
        assert ask.messages[0] == {"role": "user", "content": found} and ask.ignored == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "Two and two."},
        {"type": "thinking", "thinking": [{"type": "text", "text": "Two and two."}]},
        {"type": "reasoning", "text": "Two and two."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Two and two."}]},
        {"type": "reasoning", "content": "Two and two."},
    ],
)
def test_a_thought_among_the_parts_of_an_answer_is_its_thought(part: Any) -> None:
    ask = chats({"role": "assistant", "content": [part, {"type": "text", "text": "4"}]})
    assert ask.messages[0] == {
        "role": "assistant", "content": "4", "reasoning_content": "Two and two."
    }  # fmt: skip


def test_a_result_of_nothing_is_empty_and_one_of_values_is_json() -> None:
    for content, found in (
        (None, ""), ([], ""), (3, "3"), ({"a": [1]}, '{"a": [1]}'), ([{"a": 1}], '{"a": 1}'),
        ([None, "a", 2], "a\n2"), (False, "false"),
    ):  # fmt: skip
        tool = {"role": "tool", "tool_call_id": "c", "content": content}
        assert chats(tool).messages[0]["content"] == found
        item = {"type": "function_call_output", "call_id": "c", "output": content}
        assert responses(item).messages[0]["content"] == found
        block = {"type": "tool_result", "tool_use_id": "c", "content": content}
        assert messages({"role": "user", "content": [block]}).messages[0]["content"] == found
        assert of_ollama({"role": "tool", "content": content}).messages[0]["content"] == found


def test_calls_of_other_forms_are_calls() -> None:
    def called(ask: Ask) -> Any:
        call = ask.messages[0]["tool_calls"][0]
        return call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"]

    old = chats({"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}})
    assert called(old) == ("f", {"a": 1}, "call_f")
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "words"}}
    assert called(chats({"role": "assistant", "tool_calls": [custom]})) == (
        "f", {"input": "words"}, "c"
    )  # fmt: skip
    for item, found in (
        ({"type": "custom_tool_call", "name": "f", "input": "w"}, ("f", {"input": "w"}, "c")),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}},
         ("local_shell", {"command": ["ls"]}, "c")),
        ({"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
         ("apply_patch", {"type": "delete_file", "path": "a"}, "c")),
        ({"type": "program", "code": "1"}, ("program", {"code": "1"}, "c")),
    ):  # fmt: skip
        output = {"type": f"{item['type']}_output", "call_id": "c", "output": "done"}
        ask = read_response({"input": [{**item, "call_id": "c"}, output, LAST]}, Kept())
        assert called(ask) == found and ask.ignored == ()
        assert ask.messages[1]["content"] == "done" and ask.messages[1]["name"] == found[0]


def test_a_result_of_the_old_form_belongs_to_its_call() -> None:
    ask = read_chat({"messages": [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
    ]})  # fmt: skip
    assert ask.messages[1]["tool_call_id"] == ask.messages[0]["tool_calls"][0]["id"]


@pytest.mark.parametrize("kind", ["odd", "input_audio", "file", "video_url"])
def test_what_the_user_asks_about_now_is_refused_by_its_place(kind: str) -> None:
    said = {"role": "user", "content": ["a", {"type": kind, kind: {}}]}
    for read in (read_chat, read_message):
        with pytest.raises(RequestRefused, match=rf"messages\.0\.content\.1\.type is {kind}, wh"):
            read({"messages": [said]})
    with pytest.raises(RequestRefused, match=rf"input\.0\.content\.1\.type is {kind}, which"):
        read_response({"input": [said]}, Kept())


def test_what_is_no_message_is_left_out_of_the_history_and_named() -> None:
    now = {"role": "user", "content": "b"}
    for odd in (None, "a", 5, [now]):
        ask = read_chat({"messages": [odd, now]})
        assert [m["content"] for m in ask.messages] == ["b"] and ask.ignored == ("messages.0",)
        for read in (read_chat, read_message):
            with pytest.raises(RequestRefused, match=r"messages\.1 must be an object"):
                read({"messages": [now, odd]})


def test_a_source_that_cannot_be_read_is_refused_by_its_place() -> None:
    part = {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}}
    with pytest.raises(RequestRefused, match=r"content\.0\.source\.type is url, which"):
        read_message({"messages": [{"role": "user", "content": [part]}]})


@pytest.mark.parametrize("start", ["UklGRgAA", "R0lGODlh"])
def test_an_image_of_another_form_is_refused_now_and_left_out_later(start: str) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/x;base64,{start}"}}
    with pytest.raises(RequestRefused, match="image; send PNG or JPEG"):
        read_chat({"messages": [{"role": "user", "content": [part]}]})
    ask = chats({"role": "user", "content": ["a", part]})
    assert ask.messages[0]["content"].startswith("a\n[image_url: ") and ask.ignored


def blind(*conversation: Any) -> Any:
    engine = SimpleNamespace(model=SimpleNamespace(chat=SimpleNamespace(images=False)))
    return turns.visible(engine, conversation)


def test_an_image_of_the_history_becomes_words_for_a_model_that_cannot_see() -> None:
    image = {"type": "image", "data": PNG}
    text = {"type": "text", "text": "a.png"}
    before = {"role": "user", "content": "read"}
    for role in ("tool", "user"):
        content = blind(before, {"role": role, "content": [text, image]}, before)[1]["content"]
        assert content == "a.png\n[An image was here. The loaded model cannot see images.]"
    assert blind(before, {"role": "tool", "content": [image]})[1]["content"].startswith("[An image")
    with pytest.raises(RequestRefused, match="cannot see images"):
        blind(before, {"role": "user", "content": [image]})


def test_an_agent_goes_on_after_an_image_in_a_result() -> None:
    engine = FakeEngine()
    engine.fitted = ("neighbours-joined",)
    served = Served(engine)
    use = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}
    body = {"max_tokens": 5, "messages": [
        LAST, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}
    ]}  # fmt: skip
    try:
        answer = served.post("/v1/messages", body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-outrider-fitted"] == "images-left-out, neighbours-joined"
        assert "image" in engine.asked[-1].messages[-1]["content"]
        for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens"):
            given = body if "messages" in path else {"input": [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
                ]},
            ]}  # fmt: skip
            assert served.post(path, given).status_code == 200
        told = [*body["messages"][:1], {"role": "tool", "content": [IMAGE_URL]}]
        assert served.post("/apply-template", {"messages": told}).status_code == 200
        odd = [{"role": "user", "content": [{"type": "odd"}]}, LAST]
        counted = served.post("/v1/messages/count_tokens", {"messages": odd})
        assert counted.headers["x-ignored-fields"] == "messages.0.content.0 (odd)"
    finally:
        served.close()


def test_inner_fields_that_are_not_known_are_named_once() -> None:
    parts = [{"type": "text", "text": "a", "odd": 1}] * 100
    ask = read_chat({
        "messages": [{"role": "user", "content": parts}], "stream_options": {"wide": True},
        "tools": [{"type": "function", "function": {"name": "f"}, "images": []}],
    })  # fmt: skip
    assert ask.ignored == ("messages.0.content.0.odd", "stream_options.wide", "tools.0.images")
    many = read_chat({"messages": [LAST], **{f"x{i}": 1 for i in range(500)}}).ignored
    assert len(many) == 33 and many[-1] == "468 more"


def test_a_reference_to_an_item_of_a_kept_answer_is_the_item() -> None:
    kept = Kept()
    ask = read_response({"input": "hi"}, kept)
    parts = [Part(0, Delta(reasoning="Hm.")), Part(0, Delta(content="Yes."))]
    whole = ResponseWriter(ask, "m", {}, kept).whole(parts, [Finish(0, "stop", 9, 7)])
    items = [{"type": "item_reference", "id": item["id"]} for item in whole["output"]]
    again = read_response({"input": [{"role": "user", "content": "hi"}, *items, LAST]}, kept)
    answer = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    assert again.messages[1] == answer and again.ignored == ()
    gone = read_response({"input": [{"type": "item_reference", "id": "x"}, LAST]}, kept)
    assert gone.messages == (LAST,) and gone.ignored == ("input.0 (item_reference)",)
