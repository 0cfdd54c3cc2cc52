"""A conversation and an answer: the forms that the window, the terminal and the server share.

Messages are dicts in OpenAI's format: "role" (system, user, assistant, tool) and "content" (text,
or parts {"type": "text", "text"}, {"type": "image", "data"} and {"type": "file", "name", "text"});
those of the assistant may have "reasoning_content" and "tool_calls", those of a tool "tool_call_id"
and "name".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from backend.protocol.attachments import PARTS
from backend.protocol.errors import RequestError

Json = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")
TOOL_CHOICES = ("auto", "required", "none")


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for. arguments: JSON in text, as the model wrote it."""

    id: str
    name: str
    arguments: str

    def then(self, gained: ToolCall) -> ToolCall:
        """Return the call with a later piece added. id and name come whole."""
        arguments = self.arguments + gained.arguments
        return ToolCall(gained.id or self.id, gained.name or self.name, arguments)

    def to_json(self) -> Json:
        """Return OpenAI's form."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read OpenAI's form. Raises KeyError or TypeError."""
        function = data["function"]
        return cls(str(data.get("id") or ""), str(function["name"]), str(function["arguments"]))


@dataclass(frozen=True)
class Delta:
    """The new part of an answer. tool_calls: by index; id and name come whole, arguments in pieces.

    n_read: characters of the answer as the model wrote it that were read for it and before; 0 where
    nobody counts them.
    """

    reasoning: str = ""
    content: str = ""
    tool_calls: Mapping[int, ToolCall] = field(default_factory=dict)
    n_read: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.tool_calls)

    def then(self, later: Delta) -> Delta:
        """Return the sum of this delta and a later one."""
        calls = dict(self.tool_calls)
        for index, gained in later.tool_calls.items():
            calls[index] = calls[index].then(gained) if index in calls else gained
        return Delta(self.reasoning + later.reasoning, self.content + later.content, calls)

    def to_json(self) -> Json:
        """Return a plain dict; see from_json."""
        calls = [[i, c.id, c.name, c.arguments] for i, c in sorted(self.tool_calls.items())]
        return {"reasoning": self.reasoning, "content": self.content, "tool_calls": calls}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields of a message "text". Raises TypeError or ValueError."""
        calls = {
            int(index): ToolCall(str(call_id), str(name), str(arguments))
            for index, call_id, name, arguments in data.get("tool_calls") or ()
        }
        return cls(str(data.get("reasoning") or ""), str(data.get("content") or ""), calls)


@dataclass
class AnswerText:
    """An answer, split into the model's thought, its text and its calls."""

    reasoning: str = ""
    content: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        """Add what the answer gained."""
        self.reasoning += delta.reasoning
        self.content += delta.content
        for index, gained in sorted(delta.tool_calls.items()):
            if index == len(self.tool_calls):
                self.tool_calls.append(gained)
                continue
            self.tool_calls[index] = self.tool_calls[index].then(gained)

    def to_message(self) -> Json:
        """Return the answer as a message of a conversation."""
        message: Json = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_json() for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class ChatOptions:
    """How a conversation is rendered and its answer read. Raises ValueError, one sentence.

    tools: in OpenAI's form. tool_choice: of TOOL_CHOICES, or the name of a tool. thinking: None
    leaves it to the template. effort: the template variable reasoning_effort, or "". variables:
    further variables of the template. json_schema: None, or the schema of the answer's content.
    grammar: GBNF of the answer, or "". stops: texts that end the answer and are not in it.
    opens: the prompt ends with what the template writes before a new answer.
    """

    tools: tuple[Json, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    thinking: bool | None = None
    effort: str = ""
    variables: Json = field(default_factory=dict)
    json_schema: Json | None = None
    grammar: str = ""
    stops: tuple[str, ...] = ()
    opens: bool = True

    def __post_init__(self) -> None:
        if self.grammar and (self.json_schema is not None or self.tools):
            raise ValueError("A grammar cannot be combined with a JSON schema or with tools.")
        names = [tool_name(tool) for tool in self.tools]
        if self.tool_choice not in (*TOOL_CHOICES, *names):
            raise ValueError(f"There is no tool called {self.tool_choice[:40]!a}.")

    def to_json(self) -> Json:
        """Return the options that differ from the defaults."""
        default = ChatOptions()
        changed = {
            name: value for name, value in vars(self).items() if value != getattr(default, name)
        }
        return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items()}

    @classmethod
    def from_message(cls, data: Mapping[str, Any]) -> Self:
        """Read the field `options` of a request. Raises RequestError."""
        for name, value in data.items():
            test = _OPTIONS.get(name)
            if test is None or not test(value):
                raise RequestError(f"The option {name[:40]!a} of a conversation is invalid.")
        lists: Json = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        try:
            return cls(**lists)
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(str(error)) from None


def is_conversation(value: object) -> bool:
    """Return whether a value from JSON is a list of messages."""
    return isinstance(value, list) and all(map(_is_message, value))


def restricts(schema: Any) -> bool:
    """Return whether the JSON schema of a parameter says more of it than its type."""
    words = {"type", "description", "title", "default", "examples"}
    return isinstance(schema, dict) and bool(schema.keys() - words)


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool in OpenAI's form. Raises KeyError or TypeError."""
    return str(tool["function"]["name"])


def is_text(value: object) -> bool:
    """Return whether a value from JSON is a text without half characters."""
    try:
        return isinstance(value, str) and value.encode("utf-8") is not None
    except UnicodeEncodeError:
        return False


def _is_message(turn: object) -> bool:
    if not isinstance(turn, dict) or turn.get("role") not in ROLES:
        return False
    content, calls = turn.get("content"), turn.get("tool_calls")
    of_assistant = turn["role"] == "assistant"
    texts = (turn.get(name) for name in ("reasoning_content", "tool_call_id", "name"))
    return (
        (
            is_text(content)
            or (isinstance(content, list) and all(map(_is_part, content)))
            or (content is None and of_assistant)
        )
        and (
            calls is None
            or (of_assistant and isinstance(calls, list) and all(map(_is_call, calls)))
        )
        and all(value is None or is_text(value) for value in texts)
    )


def _is_part(part: object) -> bool:
    if not isinstance(part, dict) or part.get("type") not in PARTS:
        return False
    return all(is_text(part.get(name)) for name in PARTS[part["type"]])


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and all(
        is_text(function.get(name)) for name in ("name", "arguments")
    )


def _is_tool(value: object) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


_OPTIONS: Mapping[str, Any] = {
    "tools": lambda v: isinstance(v, list) and all(map(_is_tool, v)),
    "tool_choice": is_text,
    "parallel_tool_calls": lambda v: isinstance(v, bool),
    "thinking": lambda v: v is None or isinstance(v, bool),
    "effort": is_text,
    "variables": lambda v: isinstance(v, dict),
    "json_schema": lambda v: v is None or isinstance(v, dict),
    "grammar": is_text,
    "stops": lambda v: isinstance(v, list) and all(isinstance(s, str) and s for s in v),
    "opens": lambda v: isinstance(v, bool),
}


@dataclass(frozen=True)
class ChatFacts:
    """The abilities of a model's chat template.

    thinking: "none", "switch" (on or off), or "always". efforts: values of reasoning_effort that
    the template names, weakest first. tools_described: the template knows no tools; they are
    described in the system message. images: whether the loaded model sees images.
    """

    thinking: str = "none"
    thinks_by_default: bool = False
    efforts: tuple[str, ...] = ()
    tools: bool = False
    tools_described: bool = False
    parallel_tool_calls: bool = False
    system: bool = True
    images: bool = False

    def to_json(self) -> Json:
        """Return a plain dict."""
        return {**vars(self), "efforts": list(self.efforts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the `chat` object of a model's facts. Absent fields take their default."""
        default = cls()
        values = {name: type(value)(data.get(name, value)) for name, value in vars(default).items()}
        return cls(**values)
