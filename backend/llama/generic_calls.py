"""Calls of tools for models whose chat template knows none: llama.cpp's generic form.

The tools are described in the system message. A call is JSON at the end of an answer,

    {"tool_calls": [{"name": "look_up", "arguments": {"word": "fox"}}]}

and its result is the user's next message, {"tool_response": {"tool": "look_up", "content": "…"}}.
llama.cpp had this form until 2026, and no longer describes tools to such models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from backend.protocol.chat import Json, ToolCall

_TOOLS = (
    "You can call tools. These are the tools, in JSON:\n\n{tools}\n\n"
    "To call a tool, end your answer with one JSON object of this form, without a code fence:\n\n"
    '{{"tool_calls": [{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}]}}\n\n'
    "NAME is the name of a tool, and the arguments follow its parameters. {several}Then stop: the "
    'result comes as an object with "tool_response". Where no tool is needed, answer in plain text.'
)
_SEVERAL = "For several calls at once, put several objects into the list. "
_STARTS = ('{"tool_calls"', '{ "tool_calls"')
_START = re.compile(r'(?:```(?:json)?\s*)?\{\s*"tool_calls?"\s*:\s*(?=[\[{])')
_FORMS = [
    fence + start
    for fence in ("", "```", "```json")
    for start in ('{"tool_calls":', '{"tool_call":')
]
_NO_SPACE = re.compile(r"\s+")
_NEXT = re.compile(r"[\s,]*")
_N_ESCAPE = len("\\ud83d\\ude00")
"""A parser stops so far before the end of JSON that is cut."""
_END = re.compile(r"[\s\]}]*(?:```)?\s*")


def described(tools: Sequence[Json], *, parallel: bool) -> str:
    """Return what a system message says of tools in OpenAI's form."""
    functions = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return _TOOLS.format(tools="\n".join(functions), several=_SEVERAL if parallel else "")


def schema(tools: Sequence[Json], *, parallel: bool) -> Json:
    """Return the JSON schema of calls."""
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                "arguments": tool["function"].get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    several = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    return {
        "type": "object",
        "properties": {"tool_calls": several if parallel else {**several, "maxItems": 1}},
        "required": ["tool_calls"],
        "additionalProperties": False,
    }


def triggers() -> list[list[str]]:
    """Return what begins calls, as triggers of a lazy grammar."""
    return [["word", start] for start in _STARTS]


def written(calls: Sequence[Json]) -> str:
    """Return calls in OpenAI's form as text."""
    objects = [
        f'{{"name": {json.dumps(call["function"]["name"], ensure_ascii=False)}, '
        f'"arguments": {call["function"]["arguments"]}}}'
        for call in calls
    ]
    return f'{{"tool_calls": [{", ".join(objects)}]}}'


def result(name: str, content: str) -> str:
    """Return the result of a tool as text. name: the tool's, or ""."""
    said = {"tool": name, "content": content} if name else {"content": content}
    return json.dumps({"tool_response": said}, ensure_ascii=False)


def read(
    text: str, names: Sequence[str], *, is_final: bool, at_end: bool = False
) -> tuple[str, list[ToolCall]]:
    """Return the text of an answer without calls, and its calls of tools of these names.

    A call is returned when it is complete. Unless is_final, text that may become calls is held
    back. Text that has the form of calls but calls no tool is text. at_end: calls that text follows
    are text, too.
    """
    for found in _START.finditer(text):
        calls, at, is_cut = _calls(text, found.end(), names)
        before, end = text[: found.start()].rstrip(), _END.match(text, at)
        after = text[end.end() :] if end is not None else text[at:]
        if calls and not (at_end and after):
            is_begun = after.startswith((",", "{"))  # the answer ended within a further call
            return before + ("" if is_begun or not is_final else after), calls
        if is_cut and not is_final:
            return before, []
    return (text if is_final else text[: _n_certain(text)].rstrip()), []


def _calls(text: str, at: int, names: Sequence[str]) -> tuple[list[ToolCall], int, bool]:
    """Return the complete calls from a place on, where they end, and whether the text is cut."""
    decoder = json.JSONDecoder()
    calls: list[ToolCall] = []
    if text[at] == "[":
        at += 1
    while True:
        gap = _NEXT.match(text, at)
        begin = gap.end() if gap is not None else at
        try:
            call, end = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            is_cut = error.pos >= len(text) - _N_ESCAPE or "Unterminated" in error.msg
            return calls, at, is_cut
        except RecursionError:
            return calls, at, False
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or name not in names:
            return calls, at, False
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call_id = call.get("id")
        calls.append(ToolCall(call_id if isinstance(call_id, str) else "", name, arguments))
        at = end


def _n_certain(text: str) -> int:
    """Return how much of a text cannot become the beginning of calls."""
    for sign in ("```", "{"):
        at = text.rfind(sign)
        tail = _NO_SPACE.sub("", text[at:])
        if at >= 0 and any(form.startswith(tail) for form in _FORMS):
            return at
    return len(text.rstrip("`"))
