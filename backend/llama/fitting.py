"""Fits a conversation to its chat template.

Programs send conversations that strict templates refuse or lose a part of: a system message within
the conversation, two messages of one role, several calls of tools at once. `Fitting` finds out what
a template accepts by rendering small conversations, each once, when a conversation first needs to
know. A conversation that the template accepts stays as it is. In another one, only the parts that
the template refuses are changed; each change has a remark.

Messages are in the form that llama.cpp reads, with the marks of the guard (guard.py). Text of the
system prompt that becomes a user's is marked here. The text added here stands between texts of
others, and has no sign with which they could become a control token.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from backend.llama import generic_calls
from backend.llama.guard import python_value, unmarked
from backend.protocol.chat import Json

REMARKS: Mapping[str, str] = {
    "tools-described": "the tools were described in the system message",
    "calls-as-text": "calls of tools and their results became text",
    "result-as-text": "a tool's result without a call became text of the user",
    "results-ordered": "results of calls at once were put into the order of their calls",
    "images-left-out": "images of the history became text: the model cannot see them",
    "calls-in-turns": "calls at once became one call after the other",
    "ids-rewritten": "ids of tool calls were rewritten",
    "text-in-thought": "text beside calls of tools was put into the thought",
    "text-before-calls": "text beside calls of tools became an answer before them",
    "thoughts-left-out": "the thoughts of earlier answers were left out",
    "systems-joined": "several system messages were joined",
    "system-as-user": "a later system message became text of the user",
    "system-in-user": "the system message was put into the user's message",
    "empty-left-out": "an empty answer was left out",
    "neighbours-joined": "neighbouring messages of one role were joined",
    "user-supplied": "a missing message of the user was supplied",
    "answer-supplied": "an answer was supplied between a tool's result and the user",
    "left-out": "the template leaves out a part of the conversation",
}
"""The sentence for each change of a conversation, by its word in `Rendered.fitted`."""

_SYSTEM = "System message:\n"
_USER, _ANSWER = "Please continue.", "Done."
_GAP = "\n\n"
_SYSTEM_ROLES = ("system", "developer")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_N_SHAPE = 64  # messages that are looked at; a template may take long for more

_PROBES: Mapping[str, Sequence[str]] = {
    "any ids": ("UCT",),
    "nine letters": ("UCT",),
    "orphan": ("UTU",),
    "parallel": ("UDTT",),
    "beside": ("UXT",),
    "beside, answered": ("UXTAU",),
    "beside a thought": ("URT",),
    "before": ("UACT", "UACTAU"),
    "thought": ("UHU",),
    "system": ("SU",),
    "system, result": ("SUCT",),
    "systems": ("SSU",),
    "within": ("SUASU", "UAUS", "USAU"),
    "empty": ("UEU",),
    "neighbours": ("UU", "UAAU"),
    "opening": ("AU",),
    "lone": ("S",),
    "user next": ("UCTU",),
}
"""Conversations that a template must accept and show, by their messages.

S: a system message, U: a user's, A: an answer, H: one with a thought, E: an empty one, C: a call,
D: two calls, X: a call beside text, R: a call beside text and a thought, T: a result.
"""
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look something up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "A word."}},
            "required": ["word"],
        },
    },
}


@dataclass(frozen=True)
class ToolList:
    """How a model reads of its tools where the template leaves that to the system prompt.

    in_template: a mark of the templates that it applies to. tool: with name, description and
    parameters (JSON).
    """

    in_template: str
    start: str
    tool: str
    end: str


TOOL_LISTS: Sequence[ToolList] = (
    ToolList(  # DeepSeek V3.1, as its model card says
        "<｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'",
        "\n\n## Tools\nYou have access to the following tools:\n\n",
        "### {name}\nDescription: {description}\n\nParameters: {parameters}\n\n",
        "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments"
        "<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n"
        "- `tool_call_name` must be an exact match to one of the available tools\n"
        "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters "
        "Schema\n"
        "- For multiple tool calls, chain them directly without separators or spaces",
    ),
)


@dataclass(frozen=True)
class PythonCalls:
    """Marks around calls [name(argument=value), …] that a template drops from the conversation."""

    in_template: str
    start: str
    end: str


PYTHON_CALLS: Sequence[PythonCalls] = (
    PythonCalls("<|tool_response_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),  # LFM2
)

_Row = TypeVar("_Row", ToolList, PythonCalls)


@dataclass(frozen=True)
class Fitted:
    """A conversation for a template. remarks: the changes, as keys of REMARKS.

    describes: the tools stand in the messages, so that the template must get none.
    """

    messages: list[Json]
    remarks: tuple[str, ...] = ()
    describes: bool = False


Takes = Callable[[str], bool]
"""Tells whether a template accepts the messages of a probe."""


class Fitting:
    """The abilities of a template.

    source: the template. caps: llama.cpp's view of it. prompt_of: renders messages with tools,
    faster without all that llama.cpp does for its kind (False), and raises RuntimeError or
    ValueError where the template refuses. marked: puts the marks of a user's text into a text.
    """

    def __init__(
        self,
        source: str,
        caps: Mapping[str, bool],
        prompt_of: Callable[[list[Json], list[Json], bool], str],
        marked: Callable[[str], str],
    ) -> None:
        self._caps, self._prompt_of, self._marked = caps, prompt_of, marked
        self._tool_list = None if caps["supports_tools"] else _of_template(TOOL_LISTS, source)
        self._python_calls = (
            None if caps["supports_tool_calls"] else _of_template(PYTHON_CALLS, source)
        )
        self._found: dict[str, bool] = {}

    @property
    def knows_tools(self) -> bool:
        """Whether the template tells of tools and shows calls, so that the model knows both."""
        is_told = self._caps["supports_tools"] or self._tool_list is not None
        return is_told and (self._caps["supports_tool_calls"] or self._python_calls is not None)

    @property
    def knows_parallel_calls(self) -> bool:
        """Whether there may be several calls at once, in the template's form or the generic one."""
        known = self._caps["supports_parallel_tool_calls"] or self._python_calls is not None
        return known or not self.knows_tools

    def ways(self, messages: list[Json], options: Json) -> Iterator[Fitted]:
        """Yield the conversation as the template accepts it; then ways in case it refuses that.

        options: "tools", "tool_choice" and "parallel_tool_calls". A last answer is to be continued.
        """
        tools: list[Json] = options["tools"]
        describes = bool(tools) and options["tool_choice"] != "none" and not self.knows_tools
        remarks: list[str] = []
        ordered = _results_in_order(messages)
        if ordered != messages and not self._shows_ids:
            messages = ordered
            remarks.append("results-ordered")
        if describes:
            several = options.get("parallel_tool_calls", True)
            told = generic_calls.described(tools, parallel=several)
            messages = with_system(messages, told, _GAP)
            remarks.append("tools-described")
        if self._is_folded(messages):
            remarks.append("system-in-user")
        plain = Fitted(messages, tuple(remarks), describes)
        fitted = self._fit(plain, self._takes)
        if fitted.messages == messages:
            is_lost = not describes and self._texts_before_calls(messages) != messages
            yield replace(fitted, remarks=(*remarks, "left-out")) if is_lost else fitted
        strict = self._fit(plain, lambda _: False)
        if fitted.messages != messages:
            # The rules come from short conversations. This one may be accepted as it is.
            lost = [
                (self._n_lost(_last(way.messages), [] if describes else tools), way)
                for way in (plain, fitted, strict)
            ]
            for n_lost, way in sorted(lost, key=lambda pair: pair[0]):
                yield replace(way, remarks=(*way.remarks, "left-out")) if n_lost else way
        yield strict
        yield self._fit(plain, lambda _: False, as_text=True)

    def told(self, messages: list[Json], options: Json) -> list[Json]:
        """Add to the messages the tools and calls that the template itself does not render."""
        if (marks := self._python_calls) is not None:
            messages = [_with_python_calls(message, marks) for message in messages]
        tools = options["tools"]
        if self._tool_list is None or not tools or options["tool_choice"] == "none":
            return messages
        return with_system(messages, _tools_as_text(tools, self._tool_list))

    # The abilities of a template.

    def _takes(self, name: str) -> bool:
        """Return whether the template accepts the conversations of a probe, and shows them."""
        if name not in self._found:
            form = name if name in _FORMS else self._id_form
            has_tools = [_TOOL] if self.knows_tools else []
            self._found[name] = not any(
                self._n_lost(_conversation(kinds, form), has_tools) for kinds in _PROBES[name]
            )
        return self._found[name]

    @property
    def _id_form(self) -> str:
        """The ids of calls that the template accepts, of _FORMS; "" if it accepts no calls."""
        return next(filter(self._takes, _FORMS), "")

    @property
    def _shows_ids(self) -> bool:
        """Whether a prompt has the ids of calls, so that the model knows the call of a result.

        Also where there are no calls at once.
        """
        if "ids" not in self._found:
            probe, self._found["ids"] = _conversation("UDTT", self._id_form), True
            with contextlib.suppress(RuntimeError, ValueError):
                prompt = self._prompt_of(probe, [_TOOL] if self.knows_tools else [], True)
                self._found["ids"] = all(m.get("tool_call_id", "") in prompt for m in probe)
        return self._found["ids"]

    def _n_lost(self, messages: Sequence[Json], tools: Sequence[Json]) -> float:
        """Return how many texts of a conversation its prompt lacks; infinity if it is refused.

        Short words stand for the texts. A last answer is not rendered, because it is continued.
        """
        if messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        shape, words = _shape(messages)
        # llama.cpp changes calls and thoughts for some kinds of templates.
        has_more = any(m.get("tool_calls") or m.get("reasoning_content") for m in messages)
        for is_exact in (True,) if has_more else (False, True):
            n_lost = float("inf")
            with contextlib.suppress(RuntimeError, ValueError):
                prompt = self._prompt_of(shape, [_TOOL] if tools else [], is_exact)
                n_lost = sum(word not in prompt for word in words)
            if not n_lost:
                break
        return n_lost

    # Changing a conversation.

    def _fit(self, plain: Fitted, takes: Takes, *, as_text: bool = False) -> Fitted:
        """Return the conversation without the parts that the template refuses.

        as_text: also without calls and results. They are in a conversation whose tools are
        described.
        """
        messages, remarks = plain.messages, dict.fromkeys(plain.remarks)

        def change(remark: str, after: list[Json], probe: str = "") -> None:
            nonlocal messages
            if after != messages and not (probe and takes(probe)):
                messages = after
                remarks[remark] = None

        if any(message.get("reasoning_content") for message in messages[:-1]):
            change("thoughts-left-out", _without_thoughts(messages), "thought")
        if any(message.get("tool_calls") or message["role"] == "tool" for message in messages):
            if as_text or plain.describes or not (form := self._id_form):
                change("calls-as-text", _calls_as_text(messages))
            else:
                change("result-as-text", _orphans_as_text(messages), "orphan")
                if self._takes("before"):
                    change("text-before-calls", self._texts_before_calls(messages))
                moved = _texts_in_thoughts(messages)
                if moved != messages and self._takes("beside"):
                    change("text-in-thought", moved, "beside a thought")
                change("calls-in-turns", _calls_in_turns(messages), "parallel")
                if form == "nine letters":
                    change("ids-rewritten", _with_short_ids(messages))
        if any(message["role"] in _SYSTEM_ROLES for message in messages):
            change("systems-joined", _systems_joined(messages), "systems")
            change("system-as-user", self._later_systems_as_user(messages), "within")
            if self._is_folded(messages):
                remarks["system-in-user"] = None
            elif _n_leading(messages) and not self._takes_system(messages):
                change("system-in-user", _system_in_user(_systems_joined(messages)))
        change("empty-left-out", _without_empty(messages), "empty")
        change("neighbours-joined", _neighbours_joined(messages), "neighbours")
        n_system = _n_leading(messages)
        opening = messages[n_system]["role"] if n_system < len(messages) else ""
        has_user = any(message["role"] == "user" for message in messages)
        if opening != "user":
            supplied = [*messages[:n_system], _USER_GOES_ON, *messages[n_system:]]
            if opening:
                change("user-supplied", supplied, "opening")
            if not has_user and messages != supplied:
                change("user-supplied", supplied, "lone")
        change("answer-supplied", _with_answers(messages), "user next")
        return Fitted(messages, tuple(remarks), plain.describes)

    def _is_folded(self, messages: Sequence[Json]) -> bool:
        """Return whether llama.cpp puts the system message into the user's, which is text.

        Then it stays apart until a long conversation has been shortened.
        """
        if self._caps["supports_system_role"] or _n_leading(messages) != 1 or len(messages) < 2:
            return False
        is_text = all(isinstance(message["content"], str) for message in messages[:2])
        return is_text and messages[1]["role"] == "user"

    def _takes_system(self, messages: Sequence[Json]) -> bool:
        has_result = any(message["role"] == "tool" for message in messages)
        takes_it = self._caps["supports_system_role"] and self._takes("system")
        return takes_it and (not has_result or self._takes("system, result"))

    def _texts_before_calls(self, messages: list[Json]) -> list[Json]:
        """Return the messages with texts beside calls as answers before, where they are lost.

        Some templates show such a text until an answer without calls follows.
        """
        if self._takes("beside"):
            last = next((i for i in range(len(messages) - 1, -1, -1) if _is_answer(messages[i])), 0)
            n_lost = 0 if self._takes("beside, answered") else last
        else:
            n_lost = len(messages)
        changed = []
        for message in messages[:n_lost]:
            if message.get("tool_calls") and words_of(message["content"]).strip():
                changed.append({"role": message["role"], "content": message["content"]})
                message = {**message, "content": ""}
            changed.append(message)
        return [*changed, *messages[n_lost:]]

    def _later_systems_as_user(self, messages: list[Json]) -> list[Json]:
        n_system = _n_leading(messages)
        return [
            {**m, "role": "user", "content": _with_texts(m["content"], self._of_system)}
            if i >= n_system and m["role"] in _SYSTEM_ROLES
            else m
            for i, m in enumerate(messages)
        ]

    def _of_system(self, text: str) -> str:
        return self._marked(_SYSTEM + text)


_FORMS = ("any ids", "nine letters")
_OF_CALLS = ("tool_calls", "tool_call_id", "name")
_USER_GOES_ON: Json = {"role": "user", "content": _USER}


# Conversations to find out what a template accepts.


def _last(messages: Sequence[Json]) -> list[Json]:
    """Return the system messages at the beginning and the last others, from a user's on."""
    n_system = _n_leading(messages)
    first = max(len(messages) - _N_SHAPE, n_system)
    while n_system < first < len(messages) - 1 and messages[first]["role"] != "user":
        first += 1
    return [*messages[:n_system], *messages[first:]]


def _conversation(kinds: str, form: str) -> list[Json]:
    """Return the conversation of a probe, with ids of a form."""
    messages: list[Json] = []
    ids: list[str] = []
    n_call = 0
    for kind in kinds:
        if kind in "SU":
            messages.append({"role": "system" if kind == "S" else "user", "content": "text"})
            continue
        if kind == "T":
            call_id = ids.pop(0) if ids else _id_of(form, n_call)
            result = {"tool_call_id": call_id, "name": "look_up", "content": "text"}
            messages.append({"role": "tool", **result})
            continue
        answer: Json = {"role": "assistant", "content": "text" if kind in "AHXR" else ""}
        if kind in "HR":
            answer["reasoning_content"] = "thought"
        if n := {"C": 1, "D": 2, "X": 1, "R": 1}.get(kind, 0):
            ids = [_id_of(form, n_call + i) for i in range(n)]
            n_call += n
            function = {"name": "look_up", "arguments": '{"word": "text"}'}
            answer["tool_calls"] = [
                {"id": call_id, "type": "function", "function": function} for call_id in ids
            ]
        messages.append(answer)
    return messages


def _id_of(form: str, n: int) -> str:
    """Return an example of an id."""
    return f"abcd{n:05}" if form == "nine letters" else f"call_0123456789abcdef{n}"


def _shape(messages: Sequence[Json]) -> tuple[list[Json], list[str]]:
    """Return the messages with a word in the place of each text, and the words."""
    words: list[str] = []

    def word(text: str) -> str:
        if not text.strip():
            return text
        words.append(f"zq{len(words)}x")
        return words[-1]

    def call_of(call: Json) -> Json:
        function = {"name": word("name"), "arguments": json.dumps({"word": word("value")})}
        return {**call, "function": function}

    shape = []
    for message in messages:
        short = {**message, "content": _with_texts(message["content"], word)}
        if "reasoning_content" in short:
            short["reasoning_content"] = "thought"
        if calls := message.get("tool_calls"):
            short["tool_calls"] = [call_of(call) for call in calls]
        shape.append(short)
    return shape, words


# Texts and contents.


def words_of(content: Any) -> str:
    """Return the texts of a content as one."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))


def _with_texts(content: Any, change: Callable[[str], str]) -> Any:
    """Return a content with its texts changed; images stay."""
    if isinstance(content, list):
        return [
            {**part, "text": change(part["text"])} if part.get("type") == "text" else part
            for part in content
        ]
    return change(content)


def _plus(first: Any, second: Any, gap: str) -> Any:
    """Return two contents as one, with a gap between two texts."""
    if isinstance(first, str) and isinstance(second, str):
        return first + (gap if first and second else "") + second
    parts: list[Json] = []
    for content in filter(None, (first, second)):
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return texts_joined(parts, gap)


def texts_joined(parts: Sequence[Json], gap: str = "\n") -> list[Json]:
    """Return the parts of a content with a gap instead of the border between two texts."""
    joined: list[Json] = []
    for part in parts:
        if joined and part.get("type") == joined[-1].get("type") == "text":
            part = {**part, "text": f"{joined.pop()['text']}{gap}{part['text']}"}
        joined.append(part)
    return joined


def with_system(messages: Sequence[Json], words: str, gap: str = "\n") -> list[Json]:
    """Return the messages with words at the end of the system prompt."""
    if messages and messages[0]["role"] in _SYSTEM_ROLES:
        first, *rest = messages
        gap = "" if words.startswith("\n") else gap
        return [{**first, "content": words_of(first["content"]) + gap + words}, *rest]
    return [{"role": "system", "content": words}, *messages]


# Tools and calls.


def _of_template(rows: Sequence[_Row], template: str) -> _Row | None:
    return next((row for row in rows if row.in_template in template), None)


def _tools_as_text(tools: Sequence[Json], row: ToolList) -> str:
    words = row.start
    for tool in tools:
        function = tool["function"]
        words += row.tool.format(
            name=function["name"],
            description=function.get("description", ""),
            parameters=json.dumps(function.get("parameters", {}), ensure_ascii=False),
        )
    return words + row.end


def _without(message: Json, *names: str, **more: Any) -> Json:
    """Return a message without some of its fields, and with others."""
    return {**{name: v for name, v in message.items() if name not in names}, **more}


def _with_python_calls(message: Json, marks: PythonCalls) -> Json:
    """Return a readable message whose calls stand in its content."""
    calls = []
    for call in message.get("tool_calls", ()):
        values = [
            f"{k}={json.dumps(v, ensure_ascii=False) if isinstance(v, str) else python_value(v)}"
            for k, v in json.loads(call["function"]["arguments"]).items()
        ]
        calls.append(f"{call['function']['name']}({', '.join(values)})")
    if not calls:
        return message
    content = words_of(message["content"]) + marks.start + f"[{', '.join(calls)}]" + marks.end
    return _without(message, "tool_calls", content=content)


def _calls_as_text(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with calls and results in llama.cpp's generic form."""
    text = []
    names: dict[str, str] = {}  # of the tools, by the ids of calls
    for message in messages:
        if calls := message.get("tool_calls"):
            names |= {call.get("id", ""): call["function"]["name"] for call in calls}
            said = generic_calls.written(calls)
            content = _plus(message["content"], said, _GAP)
            message = _without(message, *_OF_CALLS, content=content)
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id", ""), "")
            message = _result_as_text({"name": name, **message})
        text.append(message)
    return text


def _result_as_text(message: Json) -> Json:
    content = message["content"]
    is_list = isinstance(content, list)
    images = [part for part in content if part["type"] != "text"] if is_list else ""
    said = generic_calls.result(message.get("name", ""), words_of(content))
    return _without(message, *_OF_CALLS, role="user", content=_plus(said, images, ""))


def _texts_in_thoughts(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with the text beside a call and a thought as the end of the thought."""
    return [
        {
            **message,
            "reasoning_content": message["reasoning_content"] + _GAP + words_of(message["content"]),
            "content": "",
        }
        if message.get("tool_calls")
        and message.get("reasoning_content")
        and words_of(message["content"])
        else message
        for message in messages
    ]


def _is_answer(message: Json) -> bool:
    return bool(message["role"] == "assistant" and not message.get("tool_calls"))


def _without_thoughts(messages: Sequence[Json]) -> list[Json]:
    """Return the messages without thoughts, but that of the last, which may be continued."""
    kept = [_without(message, "reasoning_content") for message in messages[:-1]]
    return [*kept, *messages[-1:]]


def _orphans_as_text(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with results as text where no call stands before them."""
    changed, has_call = [], False
    for message in messages:
        if message["role"] == "tool":
            message = message if has_call else _result_as_text(message)
        else:
            has_call = bool(message.get("tool_calls"))
        changed.append(message)
    return changed


def _results_in_order(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with the results that follow calls in the order of these."""
    changed: list[Json] = []
    place: dict[str, int] = {}
    for is_result, group in itertools.groupby(messages, lambda message: message["role"] == "tool"):
        run = list(group)
        if is_result and all(result.get("tool_call_id") in place for result in run):
            run.sort(key=lambda result: place[result["tool_call_id"]])
        elif not is_result:
            place = {call.get("id", ""): i for i, call in enumerate(run[-1].get("tool_calls", ()))}
        changed += run
    return changed


def _calls_in_turns(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with one call in each, before its results."""
    changed: list[Json] = []
    begin = 0
    while begin < len(messages):
        message = messages[begin]
        begin += 1
        calls = message.get("tool_calls", ())
        if len(calls) < 2:
            changed.append(message)
            continue
        rest = itertools.islice(messages, begin, None)
        results = list(itertools.takewhile(lambda m: m["role"] == "tool", rest))
        begin += len(results)
        places: dict[Any, int] = {}
        for i, call in enumerate(calls):
            places.setdefault(call.get("id"), i)
        of_calls: list[list[Json]] = [[] for _ in calls]
        for i, result in enumerate(results):
            of_calls[places.get(result.get("tool_call_id"), min(i, len(calls) - 1))].append(result)
        for i, (call, own) in enumerate(zip(calls, of_calls, strict=True)):
            asked = {**message, "tool_calls": [call]}
            if i:
                asked = {"role": message["role"], "content": "", "tool_calls": [call]}
            changed += [asked, *own]
    return changed


def _with_short_ids(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with ids of nine letters and digits. Such an id is kept if it is new."""
    used: set[str] = set()
    now: dict[str, str] = {}  # the new id of the last call with an old one

    def renew(old: str) -> str:
        new, seeds = old, (f"{unmarked(old)}/{i}" for i in itertools.count())
        while new in used or not _NINE.fullmatch(new):
            new = hashlib.sha256(next(seeds).encode()).hexdigest()[:9]
        used.add(new)
        now[old] = new
        return new

    changed = []
    for message in messages:
        if calls := message.get("tool_calls"):
            calls = [{**call, "id": renew(call.get("id", ""))} for call in calls]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            old = message.get("tool_call_id", "")
            message = {**message, "tool_call_id": now[old] if old in now else renew(old)}
        changed.append(message)
    return changed


# Roles.


def _n_leading(messages: Sequence[Json]) -> int:
    """Return the number of system messages at the beginning."""
    others = (i for i, m in enumerate(messages) if m["role"] not in _SYSTEM_ROLES)
    return next(others, len(messages))


def _systems_joined(messages: Sequence[Json]) -> list[Json]:
    n_system = _n_leading(messages)
    if n_system < 2:
        return list(messages)
    first = {**messages[0], "role": "system"}
    for message in messages[1:n_system]:
        first["content"] = _plus(first["content"], message["content"], _GAP)
    return [first, *messages[n_system:]]


def _system_in_user(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with the first one, a system message, before the user's text."""
    system, *rest = messages
    if rest and rest[0]["role"] == "user":
        content = _plus(system["content"], rest[0]["content"], "\n")
        return [{**rest[0], "content": content}, *rest[1:]]
    return [{**system, "role": "user"}, *rest]


def _without_empty(messages: Sequence[Json]) -> list[Json]:
    """Return the messages without answers that have nothing, but with the last message."""
    names = ("content", "reasoning_content", "tool_calls")
    return [
        message
        for i, message in enumerate(messages)
        if message["role"] != "assistant"
        or i == len(messages) - 1
        or any(message.get(name) for name in names)
    ]


def _are_neighbours(first: Json, second: Json) -> bool:
    return first["role"] == second["role"] and first["role"] in ("user", "assistant")


def _neighbours_joined(messages: Sequence[Json]) -> list[Json]:
    joined: list[Json] = []
    for message in messages:
        if joined and _are_neighbours(joined[-1], message):
            before = joined.pop()
            both = {**before, **message}
            both["content"] = _plus(before["content"], message["content"], _GAP)
            for name, gap in (("reasoning_content", _GAP), ("tool_calls", [])):
                if before.get(name) and message.get(name):
                    both[name] = before[name] + gap + message[name]
            message = both
        joined.append(message)
    return joined


def _with_answers(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with an answer between each result of a tool and the user."""
    changed = list(messages[:1])
    for before, message in itertools.pairwise(messages):
        if before["role"] == "tool" and message["role"] == "user":
            changed.append({"role": "assistant", "content": _ANSWER})
        changed.append(message)
    return changed
