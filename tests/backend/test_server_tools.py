"""Tools of all forms are offered as functions, and their calls come back in the client's form."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
import typing_extensions
from later import Later

from backend.protocol.chat import Delta, ToolCall, tool_name
from backend.server.anthropic_messages import read_message
from backend.server.ask import Ask, Finish, Part, RequestRefused
from backend.server.ollama import read_chat as read_ollama
from backend.server.openai_chat import ChatWriter, read_chat
from backend.server.openai_responses import Kept, ResponseWriter, read_response

anthropic, openai = Later("anthropic.types.beta"), Later("openai.types.responses")

HELLO = [{"role": "user", "content": "hi"}]
SEARCH = {"type": "function", "name": "search", "parameters": {"type": "object"}}
TICKETS = {"type": "namespace", "name": "mcp__tickets", "description": "Tickets", "tools": [SEARCH]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
CUSTOM = {"type": "custom", "name": "patch", "description": "Patch", "format": GRAMMAR}


def response(*tools: Any, **more: Any) -> Ask:
    return read_response({"input": "hi", "tools": list(tools), **more}, Kept())


def chat(*tools: Any, **more: Any) -> Ask:
    return read_chat({"messages": HELLO, "tools": list(tools), **more})


def message(*tools: Any, **more: Any) -> Ask:
    return read_message({"messages": HELLO, "tools": list(tools), **more})


def offered(ask: Ask) -> list[str]:
    return [tool_name(tool) for tool in ask.options.tools]


def parts(name: str, arguments: str) -> list[Part]:
    calls = [ToolCall("c1", name, ""), *(ToolCall("", "", a) for a in arguments)]
    return [Part(0, Delta(tool_calls={0: call})) for call in calls]


ENDS = [Finish(0, "tool_calls", 9, 7)]


def item(ask: Ask, name: str, arguments: str) -> Any:
    """Return the item of a call. It is the same in a stream."""
    whole = ResponseWriter(ask, "m", {}, Kept()).whole(parts(name, arguments), ENDS)["output"][0]
    writer = ResponseWriter(ask, "m", {}, Kept())
    events = [e for part in parts(name, arguments) for e in writer.part(part)]
    events += writer.closing(ENDS)
    ends = [data["item"] for kind, data in events if kind == "response.output_item.done"]
    begun = [data["item"] for kind, data in events if kind == "response.output_item.added"]
    assert [{**one, "id": ""} for one in ends] == [{**whole, "id": ""}]
    assert begun[0]["type"] == whole["type"]
    texts = [data["delta"] for kind, data in events if kind.endswith(".delta")]
    told = whole.get("arguments", whole.get("input", ""))
    assert "".join(texts) == (told if isinstance(told, str) else "")
    return {k: v for k, v in whole.items() if k not in ("id", "status")}


def test_tools_of_a_namespace_are_flat_for_the_model_and_apart_for_the_client() -> None:
    ask = response(TICKETS, tool_choice="required")
    assert offered(ask) == ["mcp__tickets__search"] and ask.options.tool_choice == "required"
    assert ask.options.tools[0]["function"]["description"] == "Tickets"
    call = item(ask, "mcp__tickets__search", '{"a": 1}')
    assert call == {
        "type": "function_call", "call_id": "c1", "namespace": "mcp__tickets", "name": "search",
        "arguments": '{"a": 1}',
    }  # fmt: skip
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    back = response(TICKETS, input=[call, output]).messages
    assert back[0]["tool_calls"][0]["function"]["name"] == back[1]["name"] == offered(ask)[0]
    named = {"type": "function", "namespace": "mcp__tickets", "name": "search"}
    assert response(TICKETS, tool_choice=named).options.tool_choice == offered(ask)[0]


def test_a_tool_that_takes_a_text_has_the_text_alone() -> None:
    ask = response(CUSTOM)
    function = ask.options.tools[0]["function"]
    assert function["parameters"]["required"] == ["input"] and 'start: "a"' in str(function)
    call = item(ask, "patch", json.dumps({"input": "*** Begin"}))
    assert call == {
        "type": "custom_tool_call", "name": "patch", "call_id": "c1", "input": "*** Begin"
    }  # fmt: skip
    ask = chat({"type": "custom", "custom": {k: v for k, v in CUSTOM.items() if k != "type"}})
    found = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "w"}}
    given = parts("patch", '{"input": "w"}')
    whole = ChatWriter(ask, "m").whole(given, ENDS)["choices"][0]
    assert whole["message"]["tool_calls"] == [found] and whole["finish_reason"] == "tool_calls"
    writer = ChatWriter(ask, "m")
    events = [e for part in given for e in writer.part(part)] + writer.closing(ENDS)
    deltas = [e["choices"][0]["delta"].get("tool_calls") for _, e in events]
    assert [d for d in deltas if d] == [[{"index": 0, **found}]]


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("shell", {"commands": ["ls"]}, {"type": "shell_call", "action": {"commands": ["ls"]}}),
        ("local_shell", {"command": ["ls"]}, {
            "type": "local_shell_call", "action": {"type": "exec", "env": {}, "command": ["ls"]}}),
        ("apply_patch", {"type": "delete_file", "path": "a"}, {
            "type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}),
        ("computer", {"type": "wait"}, {
            "type": "computer_call", "action": {"type": "wait"}, "pending_safety_checks": []}),
    ],
)  # fmt: skip
def test_tools_that_openais_clients_run_are_called_in_their_form(
    tool: str, arguments: Any, found: Any
) -> None:
    ask = response({"type": tool}, tool_choice={"type": tool})
    assert offered(ask) == [tool] == [ask.options.tool_choice] and ask.ignored == ()
    call = item(ask, tool, json.dumps(arguments))
    assert call == {"call_id": "c1", **found}
    output = {"type": f"{tool}_call_output", "call_id": "c1", "output": "r"}
    back = response({"type": tool}, input=[call, output]).messages
    assert back[0]["tool_calls"][0]["function"]["name"] == back[1]["name"] == tool
    assert (
        arguments.items() <= json.loads(back[0]["tool_calls"][0]["function"]["arguments"]).items()
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [("bash_20250124", "bash"), ("text_editor_20250728", "str_replace_based_edit_tool"),
     ("computer_20251124", "computer"), ("memory_20250818", "memory")],
)  # fmt: skip
def test_tools_that_anthropics_clients_run_are_functions(kind: str, name: str) -> None:
    tool = {"type": kind, "name": name, "display_width_px": 9, "display_height_px": 8}
    ask = message(tool, tool_choice={"type": "tool", "name": name})
    assert offered(ask) == [name] == [ask.options.tool_choice] and ask.ignored == ()
    assert ask.options.tools[0]["function"]["parameters"]["properties"]


def test_the_old_form_of_functions_is_answered_in_it() -> None:
    ask = read_chat(
        {"messages": HELLO, "functions": [{"name": "f"}], "function_call": {"name": "f"}}
    )
    assert offered(ask) == ["f"] and ask.options.tool_choice == "f" and ask.ignored == ()
    choice = ChatWriter(ask, "m").whole(parts("f", "{}"), ENDS)["choices"][0]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]


def test_a_servers_own_tools_are_left_out_and_named() -> None:
    n_kind = 0
    for read, kinds in ((response, typing.get_args(openai.ToolParam)),
                        (message, typing.get_args(anthropic.BetaToolUnionParam))):  # fmt: skip
        for kind in kinds:
            hint = typing_extensions.get_type_hints(kind)["type"]
            inner = [typing.get_args(each) or (each,) for each in typing.get_args(hint)]
            for word in {w for words in inner for w in words if isinstance(w, str)}:
                given = {"type": word, "name": "f", "input_schema": {}, "tools": [SEARCH]}
                ask = read(given)
                is_named = f"tools.0 ({word})" in ask.ignored
                assert bool(offered(ask)) != is_named, word
                n_kind += 1
    assert n_kind > 40
    assert response({"type": "mcp"}).ignored == ("tools.0 (mcp)",)
    assert response({"type": "shell", "environment": {"type": "container_auto"}}).ignored


@pytest.mark.parametrize("tools", [[], [{"type": "mcp"}], [{"type": "web_search"}]])
def test_a_demanded_call_without_a_tool_is_refused(tools: Any) -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"name": "f"}]}
    named = {"type": "function", "name": "f"}
    for choice in ("required", "any", "f", named, {"type": "mcp"}, allowed):
        for read in (chat, response, lambda *t, **m: read_ollama({"tools": [*t], **m})):
            with pytest.raises(RequestRefused, match="demands a call"):
                read(*tools, tool_choice=choice)
    for choice in ({"type": "any"}, {"type": "tool", "name": "f"}):
        with pytest.raises(RequestRefused, match="demands a call"):
            message(tool_choice=choice)
    for choice in ("auto", "none", None):
        assert chat(*tools, tool_choice=choice).options.tool_choice == "none"
    with pytest.raises(RequestRefused, match="cannot be called here"):
        response(SEARCH, tool_choice={"type": "web_search_preview"})


def test_a_tools_environment_may_be_a_word() -> None:
    screen = {"type": "computer_use_preview", "display_width": 9, "display_height": 9}
    assert offered(response({**screen, "environment": "browser"})) == ["computer"]


def test_a_tool_that_is_allowed_and_not_offered_is_told() -> None:
    choice = {"type": "allowed_tools", "mode": "auto"}
    for kind in ("function", "custom"):
        with pytest.raises(RequestRefused, match=r"tools\.0\.name is no tool of this request"):
            response(SEARCH, tool_choice={**choice, "tools": [{"type": kind, "name": "other"}]})
    hosted = {**choice, "tools": [{"type": "web_search"}, SEARCH]}
    ask = response(SEARCH, {"type": "web_search"}, tool_choice=hosted)
    assert "tool_choice.tools.0 (web_search)" in ask.ignored and offered(ask) == ["search"]


def test_tools_that_a_search_has_found_can_be_called() -> None:
    search = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
    ask = response(search)
    assert offered(ask) == ["tool_search"]
    call = item(ask, "tool_search", '{"goal": "tickets"}')
    assert call == {
        "type": "tool_search_call", "call_id": "c1", "execution": "client",
        "arguments": {"goal": "tickets"},
    }  # fmt: skip
    output = {"type": "tool_search_output", "call_id": "c1", "tools": [TICKETS]}
    more = {"type": "additional_tools", "tools": [SEARCH, CUSTOM]}
    ask = response(search, SEARCH, input=[call, output, more, *HELLO])
    assert offered(ask) == ["tool_search", "search", "mcp__tickets__search", "patch"]
    assert "mcp__tickets" in ask.messages[1]["content"] and ask.ignored == ()
    assert ask.messages[0]["tool_calls"][0]["function"]["arguments"] == '{"goal": "tickets"}'
