"""What the protocols read of a request, field by field, and their defaults."""

from __future__ import annotations

from typing import Any

import pytest

from backend.server.anthropic_messages import MessageWriter, error_json, read_message
from backend.server.ask import Begin, Finish, RequestRefused
from backend.server.openai_chat import read_chat
from backend.server.openai_responses import Kept, read_response

ASKED = [{"role": "user", "content": "a"}]
PICTURE = "data:image/png;base64,QUJD"
IMAGE = {"type": "image", "data": "QUJD"}


def response(**fields: Any) -> Any:
    return read_response({"input": "a", **fields}, Kept())


def message(*blocks: Any, role: str = "user", **more: Any) -> Any:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    last = [] if role == "user" else ASKED
    return read_message({"messages": [{"role": role, "content": content}, *last], **more})


def call(name: str, **more: Any) -> Any:
    function = {"name": name, "arguments": "{}", **more}
    return {"id": "c", "type": "function", "function": function}


def test_what_is_not_given_has_the_default_of_the_protocol() -> None:
    for ask, n_most in (
        (read_message({"messages": ASKED}), 4096), (response(), -1),
        (read_chat({"messages": ASKED}), -1),
    ):  # fmt: skip
        options = ask.options
        assert ask.max_tokens == n_most and ask.model == "" and not ask.stream and ask.n == 1
        assert ask.sampling.n_probs == ask.n_top == 0 and not ask.prompts and not ask.ignored
        assert ask.messages == ({"role": "user", "content": "a"},)
        assert options.thinking is None and options.effort == "" and options.json_schema is None
        assert options.tools == () and options.tool_choice == "none"
        assert options.parallel_tool_calls and options.stops == () and options.variables == {}
        assert not (ask.with_timings or ask.with_progress or ask.with_prompt or ask.with_usage)


def test_probabilities_of_a_response() -> None:
    text = ["message.output_text.logprobs"]
    for fields, found in (
        ({"include": text}, (1, 0)), ({"top_logprobs": 3}, (3, 3)), ({"include": ["x"]}, (0, 0)),
        ({"include": text, "top_logprobs": 0}, (1, 0)), ({"top_logprobs": 1}, (1, 1)),
    ):  # fmt: skip
        ask = response(**fields)
        assert (ask.sampling.n_probs, ask.n_top) == found
    for fields, found in (({"logprobs": True}, (1, 0)), ({"logprobs": False}, (0, 0))):
        ask = read_chat({"messages": ASKED, **fields})
        assert (ask.sampling.n_probs, ask.n_top) == found


def test_fields_of_a_response() -> None:
    schema = {"type": "object", "properties": {}}
    ask = response(
        model="m", max_output_tokens=7, stream=True, instructions="i", temperature=0.25,
        reasoning={"effort": "low"}, text={"format": {"type": "json_schema", "schema": schema}},
        chat_template_kwargs={"x": 1}, timings_per_token=True, store=False, truncation="auto",
    )  # fmt: skip
    assert (ask.model, ask.max_tokens, ask.stream, ask.with_timings) == ("m", 7, True, True)
    assert ask.sampling.temperature == 0.25 and ask.options.effort == "low"
    assert ask.options.json_schema == schema and ask.options.variables == {"x": 1}
    assert [m["role"] for m in ask.messages] == ["system", "user"] and not ask.ignored
    assert response(reasoning={"effort": "none"}).options.thinking is False
    for kind, found in (("text", None), ("json_object", {"type": "object"})):
        assert response(text={"format": {"type": kind}}).options.json_schema == found
    with pytest.raises(RequestRefused, match=r"text\.format\.type must be text, json_object"):
        response(text={"format": {"type": "xml"}})


def test_items_of_a_response() -> None:
    image = {"type": "input_image", "image_url": PICTURE}
    ask = response(
        input=[
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, image]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "message", "role": "assistant", "content": "b"},
            {"type": "function_call", "call_id": "c", "name": "f"},
            {"type": "odd", "note": "n"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ]
    )
    assert ask.ignored == ("input.6 (odd)",)
    assert ask.messages == (
        {"role": "system", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
        {
            "role": "assistant",
            "content": "b\n[odd: n]",
            "reasoning_content": "st",
            "tool_calls": [call("f")],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r", "name": "f"},
    )
    for item, words in (
        ({"role": "judge", "content": "a"}, "input.0.role must be system, developer, user or"),
        ({"role": "user"}, "input.0.content must be text or a list of parts"),
        ({"role": "user", "content": [{"type": "odd"}]}, "input.0.content.0.type is odd, which"),
    ):
        with pytest.raises(RequestRefused, match=words):
            response(input=[item])


def test_fields_of_a_message() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: 1"},
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
    ]  # fmt: skip
    ask = message(
        "q", system=system, model="m", max_tokens=5, stream=True, top_k=3, stop_sequences=["s"],
        chat_template_kwargs={"x": 1}, output_config={"format": {"schema": {}}},
    )  # fmt: skip
    assert (ask.model, ask.max_tokens, ask.stream, ask.sampling.top_k) == ("m", 5, True, 3)
    assert ask.options.stops == ("s",) and ask.options.variables == {"x": 1}
    assert ask.options.json_schema == {"type": "object"}
    assert ask.messages == (
        {"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "q"},
    )  # fmt: skip
    assert message("q", system="s").messages[0] == {"role": "system", "content": "s"}
    for choice, words in (
        ({"type": "x"}, "must be auto, any, tool or none"),
        ({"type": "tool"}, ""),
    ):
        with pytest.raises(RequestRefused, match=rf"tool_choice\.(type {words}|name must be text)"):
            message("q", tool_choice=choice)


def test_blocks_of_a_message() -> None:
    of_base64 = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    result = {"type": "tool_result", "tool_use_id": "c"}
    inner = [{"type": "text", "text": "r"}, {"type": "image", "source": of_base64}]
    document = {"type": "document", "source": {"type": "text", "data": "d"}}
    said = message(
        "a", {**result, "content": inner}, document, {**result, "content": "s"}, result,
        {"type": "image", "source": {"type": "url", "url": PICTURE}},
    ).messages  # fmt: skip
    assert [m["content"] for m in said] == [
        [{"type": "text", "text": "r"}, IMAGE], "s", "",
        [{"type": "text", "text": "a"}, {"type": "text", "text": "d"}, IMAGE],
    ]  # fmt: skip
    assert [m["role"] for m in said] == ["tool"] * 3 + ["user"]
    use = {"type": "tool_use", "id": "c", "name": "f"}
    thoughts = [{"type": "thinking", "thinking": t} for t in "tu"]
    mine, *_ = message(
        *thoughts, {"type": "redacted_thinking", "data": "x"}, "b", "c", use, role="assistant"
    ).messages
    assert mine == {
        "role": "assistant", "content": "b\nc", "reasoning_content": "tu", "tool_calls": [call("f")]
    }  # fmt: skip
    for role, block, words in (
        ("user", use, "tool_use, which this server cannot read"),
        ("user", {"type": "document", "source": {"type": "base64"}}, "cannot read"),
        ("user", {"type": "image", "source": {"url": "http://x/a.png"}}, "fetches nothing"),
    ):
        with pytest.raises(RequestRefused, match=words):
            message(block, role=role)


def test_tokens_ends_and_errors_of_a_message() -> None:
    def usage(n_input: int, n_read: int, n_output: int) -> Any:
        return {
            "input_tokens": n_input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": n_read, "output_tokens": n_output,
        }  # fmt: skip

    writer = MessageWriter(message("q"), "m")
    ((name, began),) = writer.opening(Begin(9, 4, "m"))
    assert name == "message_start" and began["message"]["usage"] == usage(5, 4, 0)
    for reason, stop, found in (
        ("stop", "", "end_turn"), ("stop", "s", "stop_sequence"), ("tool_calls", "", "tool_use"),
        ("length", "", "max_tokens"), ("context", "", "max_tokens"),
    ):  # fmt: skip
        ends = writer.closing([Finish(0, reason, 9, 7, n_reused=4, stop=stop)])
        (_, data), (last, _) = ends[-2:]
        assert data["delta"] == {"stop_reason": found, "stop_sequence": stop or None}
        assert data["usage"] == usage(5, 4, 7) and last == "message_stop"
    kinds = [
        error_json(RequestRefused("a", status=status))["error"]["type"]
        for status in (400, 401, 403, 404, 413, 418, 429, 500, 503)
    ]
    assert kinds == [
        "invalid_request_error", "authentication_error", "permission_error", "not_found_error",
        "request_too_large", "invalid_request_error", "rate_limit_error", "api_error", "api_error",
    ]  # fmt: skip


def test_parts_of_a_chat() -> None:
    def parts(*content: Any, role: str = "user") -> Any:
        given = [{"role": role, "content": list(content)}, *ASKED]
        return read_chat({"messages": given}).messages[0]["content"]

    assert (
        parts("a", {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "c"}) == "a\nb\nc"
    )
    for url in (PICTURE, {"url": PICTURE}):
        assert parts({"type": "image_url", "image_url": url}) == [IMAGE]
    for odd in ("http://a/b.png", "data:image/png,QUJD", "data:image/png;base64", "x;base64,QUJD"):
        part = {"type": "image_url", "image_url": odd}
        with pytest.raises(RequestRefused, match="must be a data URL in base64"):
            read_chat({"messages": [{"role": "user", "content": [part]}]})
