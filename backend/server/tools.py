"""The tools that a client offers, in all its forms, and their calls in the same forms.

A model knows functions only. So a tool in a namespace, one that takes a text, and those that a
client runs by a published form (shells, editors, patches, the screen) become functions. Tools that
only a provider's own servers can run are left out, and named.

Source: the API references of OpenAI (functions, custom tools, namespaces, shell, apply_patch,
computer use, tool search) and of Anthropic (bash, text editor, computer use, memory).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.protocol.chat import ToolCall, tool_name
from backend.server.ask import FLAG, OBJECT, TEXT, Fields, Json, RequestRefused, either, read_tool

MAX_TOOLS = 512
"""Maximum of tools of a request, and of those of a namespace."""
MAX_ALL_TOOLS = 1024
"""Maximum of tools with those of all namespaces. A tool_choice is compared with each."""
_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_POINT: Json = {"type": "array", "items": _WHOLE, "minItems": 2, "maxItems": 2}


def _one_of(words: str) -> Json:
    return {"type": "string", "enum": words.split()}


def _object(required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required.split()}


_EDIT: Mapping[str, Json] = {
    "path": _TEXT,
    "file_text": _TEXT,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "insert_line": _WHOLE,
    "insert_text": _TEXT,
    "view_range": _POINT,
}
_BASH = _object("", command=_TEXT, restart={"type": "boolean"})
_CLICKS = (
    "key type mouse_move left_click left_click_drag right_click middle_click double_click "
    "screenshot cursor_position left_mouse_down left_mouse_up scroll hold_key wait triple_click"
)
_OF_ANTHROPIC: Mapping[str, tuple[str, Json]] = {
    "bash": ("Run a command in a shell that stays open.", _BASH),
    "text_editor": (
        "View, create and edit files.",
        _object("command path", command=_one_of("view create str_replace insert"), **_EDIT),
    ),
    "memory": (
        "Keep and read files of notes.",
        _object(
            "command",
            command=_one_of("view create str_replace insert delete rename"),
            **_EDIT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
    "computer": (
        "Use the mouse and the keyboard, and look at the screen.",
        _object(
            "action",
            action=_one_of(_CLICKS),
            coordinate=_POINT,
            start_coordinate=_POINT,
            text=_TEXT,
            scroll_direction=_one_of("up down left right"),
            scroll_amount=_WHOLE,
            duration={"type": "number"},
        ),
    ),
}
"""The description and the schema of these tools, by their type without its date."""
_SCREEN = _object(
    "type",
    type=_one_of("click double_click drag keypress move screenshot scroll type wait"),
    x=_WHOLE, y=_WHOLE, button=_one_of("left right wheel back forward"), text=_TEXT,
    keys={"type": "array", "items": _TEXT}, scroll_x=_WHOLE, scroll_y=_WHOLE,
    path={"type": "array", "items": _object("x y", x=_WHOLE, y=_WHOLE)},
)  # fmt: skip
_COMMANDS: Json = {"type": "array", "items": _TEXT}
_OF_OPENAI: Mapping[str, tuple[str, Json]] = {
    "shell": (
        "Run commands in a shell.",
        _object("commands", commands=_COMMANDS, timeout_ms=_WHOLE, max_output_length=_WHOLE),
    ),
    "local_shell": (
        "Run a program.",
        _object("command", command=_COMMANDS, working_directory=_TEXT, timeout_ms=_WHOLE),
    ),
    "apply_patch": (
        "Create, change or delete a file by a patch.",
        _object(
            "type path",
            type=_one_of("create_file update_file delete_file"),
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
    "computer": ("Use the mouse and the keyboard, and look at the screen.", _SCREEN),
    "computer_use_preview": ("Use the mouse and the keyboard, and look at the screen.", _SCREEN),
}
_ACTIONS: Mapping[str, str] = {
    "shell": "action",
    "local_shell": "action",
    "apply_patch": "operation",
    "computer": "action",
    "computer_use_preview": "action",
    "tool_search": "arguments",
}
"""The field of a call that has the arguments of such a tool."""
_INPUT = _object("input", input=_TEXT)


@dataclass(frozen=True)
class Form:
    """How a client offered a tool: its type, name and namespace there. kind "old": `functions`."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def is_named(self) -> bool:
        """Whether a call of it has a name and a text: a function, or a tool that takes a text."""
        return self.kind not in _ACTIONS

    def text_input(self, arguments: str) -> str:
        """Return the text of a call of a tool that takes one."""
        value = arguments_of(arguments).get("input", "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def response_item(self, call: ToolCall, arguments: str) -> Json:
        """Return a call as an item of OpenAI's responses, without its id and status."""
        named: Json = {"name": self.name, "call_id": call.id}
        if self.namespace:
            named["namespace"] = self.namespace
        if self.kind == "custom":
            return {"type": "custom_tool_call", **named, "input": self.text_input(arguments)}
        if self.is_named:
            return {"type": "function_call", **named, "arguments": arguments}
        given = arguments_of(arguments)
        item = {"call_id": call.id, _ACTIONS[self.kind]: given}
        if self.kind == "local_shell":
            item["action"] = {"type": "exec", "env": {}, **given}
        elif self.kind == "tool_search":
            item["execution"] = "client"
        elif self.kind.startswith("computer"):
            item["pending_safety_checks"] = []
        kind = "computer" if self.kind.startswith("computer") else self.kind
        return {"type": f"{kind}_call", **item}


def arguments_of(text: str) -> Json:
    """Return the arguments of a call as an object. An answer that was cut gives an empty one."""
    try:
        # A number beyond all bounds would be no JSON.
        read = json.loads(text or "{}", parse_float=_finite, parse_constant=str)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _finite(text: str) -> float | str:
    return value if math.isfinite(value := float(text)) else text


def flat(namespace: str, name: str) -> str:
    """Return the name by which a model calls a tool of a namespace."""
    return f"{namespace.rstrip('_')}__{name}" if namespace else name


def arguments_in(item: Json, silent: tuple[str, ...]) -> Any:
    """Return the arguments in an item of a call that is no function's."""
    for name in ("action", "operation", "arguments"):
        if isinstance(item.get(name), dict):
            return item[name]
    return {name: value for name, value in item.items() if name not in silent}


@dataclass
class Offered:
    """The tools of a request, as functions, and the forms of those that are none, by name."""

    tools: list[Json] = field(default_factory=list)
    forms: dict[str, Form] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def add(self, tool: Fields, inner: str = "", namespace: str = "", about: str = "") -> None:
        """Add a tool in OpenAI's form. inner: the field that has a function."""
        kind = tool.get("type", TEXT, "function")
        if kind == "function":
            function = read_tool(tool.table(inner) if inner else tool, "parameters")
            self._take(function, Form(kind, tool_name(function), namespace), about)
        elif kind == "namespace":
            name = tool.need("name", TEXT)
            for each in tools_in(tool):
                self.add(each, inner, name, tool.get("description", TEXT, ""))
        elif kind == "custom":
            given = tool.table("custom") if "custom" in tool.data else tool
            form = given.table("format")
            grammar = form.table("grammar") if "grammar" in form.data else form
            syntax = grammar.get("syntax", TEXT, "")
            held = grammar.get("definition", TEXT, "")
            words = [given.get("description", TEXT, "")]
            words += [f"The input follows this {syntax} grammar:\n{held}"] if held else []
            name = given.need("name", TEXT)
            self._take(_function(name, "\n".join(filter(None, words)), _INPUT),
                       Form(kind, name, namespace), about)  # fmt: skip
        elif kind == "tool_search" and tool.get("execution", TEXT) == "client":
            schema = tool.get("parameters", OBJECT) or _object("")
            words = tool.get("description", TEXT, "")
            self._take(_function(kind, words, schema), Form(kind, kind))
        elif kind in _OF_OPENAI and _is_of_client(tool):
            name = "computer" if kind.startswith("computer") else kind
            tool.ignore_all()
            self._take(_function(name, *_OF_OPENAI[kind]), Form(kind, name))
        else:
            tool.ignore_all()
            tool.leave("", kind=kind)

    def add_anthropic(self, tool: Fields) -> None:
        """Add a tool in Anthropic's form."""
        kind = tool.get("type", TEXT, "custom")
        base, _, date = kind.rpartition("_")
        if kind == "custom":
            self.tools.append(read_tool(tool, "input_schema"))
        elif base in _OF_ANTHROPIC and date.isdigit():
            words, schema = _OF_ANTHROPIC[base]
            size = [tool.data.get(f"display_{side}_px") for side in ("width", "height")]
            if all(isinstance(n, int) for n in size):
                words += f" It has {size[0]} x {size[1]} pixels."
            tool.ignore_all()
            self.tools.append(_function(tool.get("name", TEXT) or base, words, schema))
        else:
            tool.ignore_all()
            tool.leave("", kind=kind)

    def _take(self, function: Json, form: Form, about: str = "") -> None:
        name = flat(form.namespace, form.name)
        if name != form.name or form.kind != "function":
            self.forms[name] = form
        inner = {**function["function"], "name": name}
        if words := ": ".join(filter(None, (about, inner.get("description", "")))):
            inner["description"] = words
        if name not in self._names:
            if len(self._names) >= MAX_ALL_TOOLS:
                raise RequestRefused(f"tools has more than {MAX_ALL_TOOLS} tools.", param="tools")
            self._names.add(name)
            self.tools.append({**function, "function": inner})

    def chosen(self, entry: Fields) -> list[str]:
        """Return the names of the tools that an entry of a tool_choice names."""
        named = next((entry.table(n) for n in ("function", "custom") if n in entry.data), entry)
        kind, name = entry.get("type", TEXT, "function"), named.get("name", TEXT, "")
        wanted = flat(entry.get("namespace", TEXT, ""), name)
        found = []
        for full in map(tool_name, self.tools):
            form = self.forms.get(full) or Form("function", full)
            names = (full, form.name, form.namespace)
            if wanted in names if name else form.kind.partition("_")[0] == kind.partition("_")[0]:
                found.append(full)
        return found


def _is_of_client(tool: Fields) -> bool:
    """Return whether a tool of OpenAI's runs where the client is. A screen's place is a word."""
    if not isinstance(tool.get("environment", either(TEXT, OBJECT), {}), dict):
        return True
    return bool(tool.table("environment").get("type", TEXT, "local") == "local")


def _function(name: str, description: str, parameters: Json) -> Json:
    about = {"description": description} if description else {}
    return {"type": "function", "function": {"name": name, **about, "parameters": parameters}}


_WORDS = {"any": "required"}  # as Mistral's clients say it


def read_tools(
    fields: Fields, inner: str = "", more: Sequence[Fields] = ()
) -> tuple[Json, Mapping[str, Form]]:
    """Read the tools and which of them may be called. inner: the field that has a function.

    more: tools that the conversation offers. Of tools of one name the first counts. Return the
    options of a conversation, and the forms of tools that are no plain functions.
    """
    offered = Offered()
    for tool in tools_in(fields):
        offered.add(tool, inner)
    for tool in more:
        try:
            offered.add(tool, inner)
        except RequestRefused:  # the history ends no conversation
            tool.leave("", kind="tool")
    choice = fields.get("tool_choice", either(TEXT, OBJECT), "auto")
    if not offered.tools and fields.data.get("functions"):
        for old in fields.tables("functions"):
            offered.tools.append(read_tool(old, "parameters"))
        names = map(tool_name, offered.tools)
        offered.forms = {name: Form("old", name) for name in names}
        choice = fields.get("function_call", either(TEXT, OBJECT), "auto")
    entry = "function_call" if "old" in {f.kind for f in offered.forms.values()} else "tool_choice"
    tools = offered.tools
    if isinstance(choice, dict):
        tools, choice = _chosen(fields.table(entry), offered)
    forms = offered.forms
    parallel = fields.get("parallel_tool_calls", FLAG, True) and entry == "tool_choice"
    return options_of(fields, tools, _WORDS.get(choice, choice), parallel), forms


def tools_in(fields: Fields) -> list[Fields]:
    """Return the tools of a request, or of a namespace. Raises RequestRefused for too many."""
    tools = fields.tables("tools")
    if len(tools) > MAX_TOOLS:
        raise fields.refusal("tools", f"has more than {MAX_TOOLS} tools")
    return tools


def options_of(fields: Fields, tools: list[Json], choice: str, parallel: bool) -> Json:
    """Return the options of a conversation for its tools.

    Raises RequestRefused where a call is demanded and no tool is left.
    """
    if not tools and choice not in ("auto", "none"):
        raise fields.refusal("tool_choice", "demands a call, but there is no tool to call here")
    return {
        "tools": tuple(tools),
        "tool_choice": choice if tools else "none",
        "parallel_tool_calls": parallel,
    }


def _chosen(choice: Fields, offered: Offered) -> tuple[list[Json], str]:
    """Return the tools that a tool_choice allows, and the choice among them."""
    if choice.get("type", TEXT, "function") == "allowed_tools":
        allowed = choice.table("allowed_tools") if "allowed_tools" in choice.data else choice
        names: set[str] = set()
        for entry in tools_in(allowed):
            names.update(found := offered.chosen(entry))
            if not found and offered.tools:
                if (kind := entry.get("type", TEXT, "function")) in ("function", "custom"):
                    raise entry.refusal("name", "is no tool of this request")
                entry.leave("", kind=kind)
        kept = [tool for tool in offered.tools if tool_name(tool) in names]
        return kept, allowed.get("mode", TEXT, "auto")
    if not offered.tools:
        return [], "required"
    found = offered.chosen(choice)
    named = next((choice.table(n) for n in ("function", "custom") if n in choice.data), choice)
    if len(found) == 1:
        return offered.tools, found[0]
    if found and not named.get("name", TEXT):
        return [tool for tool in offered.tools if tool_name(tool) in found], "required"
    if choice.get("type", TEXT, "function") in ("function", "custom") or found:
        return offered.tools, named.need("name", TEXT)
    raise choice.refusal("type", "is a tool that cannot be called here")
