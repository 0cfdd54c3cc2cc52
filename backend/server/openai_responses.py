"""OpenAI's responses, which Codex uses.

Source: OpenAI's API reference (responses, and its streaming events). A thought is a reasoning item
with the text itself as content, as open models' servers write it.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from backend.server.ask import (
    ANY,
    FLAG,
    LIST,
    OBJECT,
    TEXT,
    TEXTS,
    UP_TO_20,
    Ask,
    Begin,
    Conversation,
    Event,
    Fields,
    Finish,
    Json,
    Part,
    Progress,
    RequestRefused,
    Token,
    Writer,
    arguments_text,
    call_json,
    either,
    in_its_place,
    messages_of,
    read_answer,
    read_content,
    read_format,
    read_options,
    read_sampling,
    role_of,
    shown,
)
from backend.server.openai_chat import (
    COUNT,
    effort_options,
    finish_reason,
    logprobs,
    read_telemetry,
    timed,
    told,
    usage,
)
from backend.server.sections import CLOSE, OPEN, Section, Sections, Step
from backend.server.tools import MAX_TOOLS, Form, arguments_in, flat, read_tools

_WITHOUT_EFFECT = (
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "truncation",
    "stream_options",
    "client_metadata",
)
_KEPT = 64
_KEPT_CHARS = 1 << 24


class Kept:
    """The conversations of the last responses, for `previous_response_id`.

    At most 64, and 16 million characters, are kept in memory. keep() is for one thread, messages()
    for any.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[tuple[Json, ...], int]] = OrderedDict()
        self._items: dict[str, dict[str, Json]] = {}
        self._n_char = 0

    def keep(self, name: str, messages: tuple[Json, ...], items: Sequence[Json] = ()) -> None:
        """Keep a conversation and the items of its last answer.

        Forget the oldest ones where that is too much.
        """
        n_char = len(str(messages)) + len(str(items))
        self._kept[name] = messages, n_char
        self._items[name] = {item["id"]: item for item in items}
        self._n_char += n_char
        while len(self._kept) > _KEPT or self._n_char > _KEPT_CHARS:
            oldest, (_, n_gone) = self._kept.popitem(last=False)
            self._n_char -= n_gone
            del self._items[oldest]

    def item(self, name: str) -> Json | None:
        """Return an item of an answer, or None."""
        return next((items[name] for items in [*self._items.values()] if name in items), None)

    def messages(self, name: str) -> tuple[Json, ...]:
        """Return a conversation. Raises RequestRefused."""
        if (found := self._kept.get(name)) is None:
            raise RequestRefused(
                f"The response {shown(name)} is not kept here any more; send the whole "
                "conversation as input.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return found[0]


def read_response(body: Any, kept: Kept) -> Ask:
    """Read the body of /v1/responses. Raises RequestRefused."""
    fields = Fields(body)
    fields.ignore(*_WITHOUT_EFFECT, "store")
    if fields.get("background", FLAG, False):
        raise fields.refusal("background", "is not possible here; wait for the answer instead")
    if fields.get("conversation", ANY) is not None:
        raise fields.refusal("conversation", "is not kept here; send the whole conversation")
    n_top = fields.get("top_logprobs", UP_TO_20, 0)
    has_probs = n_top or "message.output_text.logprobs" in fields.get("include", TEXTS, [])
    reasoning = fields.table("reasoning")
    fields.table("text").ignore("verbosity")
    effort = reasoning.get("effort", TEXT, "")
    tools, forms = read_tools(fields, more=_found_tools(fields))
    ask = Ask(
        forms=forms,
        model=fields.get("model", TEXT, ""),
        max_tokens=fields.get("max_output_tokens", COUNT, -1),
        stream=fields.get("stream", FLAG, False),
        sampling=read_sampling(fields, max(n_top, 1) if has_probs else 0),
        n_top=n_top,
        options=read_options(
            **tools,
            **effort_options(effort),
            variables=fields.get("chat_template_kwargs", OBJECT, {}),
            **read_format(fields),
        ),
        messages=_messages(fields, kept),
        **read_telemetry(fields),
    )
    return replace(ask, ignored=fields.others())


def _messages(fields: Fields, kept: Kept) -> tuple[Json, ...]:
    talk = Conversation()
    if instructions := fields.get("instructions", TEXT):
        talk.say("system", instructions)
    if previous := fields.get("previous_response_id", TEXT):
        for message in kept.messages(previous):
            talk.take(message)
    given = fields.need("input", either(TEXT, LIST))
    if isinstance(given, str):
        talk.say("user", given)
    else:
        items = messages_of(fields, "input")
        results = {_call_id(i) for i in items if _kind(i).endswith("_output")}
        for item in items:
            if _kind(item) == "item_reference" and (found := kept.item(item.need("id", TEXT))):
                item = Fields(found, item.where, item)
            _add_item(talk, item, results)
    return talk.done("input")


_WITH_TOOLS = ("additional_tools", "tool_search_output")
"""Kinds of items that offer further tools."""
_RESULTS = ("output", "result")
"""The fields of an item that may have the result of a call."""
_SILENT = ("type", "id", "call_id", "status", "caller", "namespace", "execution", "name")
"""Fields of a call that are no arguments."""
_SETTINGS = (
    "compaction_trigger",
    "configuration_update",
    "item_reference",
    "mcp_list_tools",
)
"""Kinds of items that nobody says to the model."""


def _kind(item: Fields) -> str:
    return str(item.get("type", TEXT, "message"))


def _call_id(item: Fields) -> str:
    """Return the id of a call. A few old kinds of results have it as their own."""
    return str(item.get("call_id", TEXT, "") or item.get("id", TEXT, ""))


def _add_item(talk: Conversation, item: Fields, results: set[str]) -> None:
    """Add an item of the input to a conversation. results: the ids of calls that have a result.

    A call of another kind than functions is a call like theirs if its result is there. What else
    cannot be read is an answer with its words, and is named.
    """
    kind = _kind(item)
    if kind == "message":
        role = role_of(item, "system", "developer", "user", "assistant")
        if role == "assistant":
            talk.assistant(*read_answer(item), joins=True)
        else:
            talk.say("user" if role == "user" else "system", read_content(item))
    elif kind == "reasoning":
        thought = read_content(item, may_lack=True) or read_content(item, "summary", may_lack=True)
        if isinstance(thought, str) and thought:
            talk.assistant(reasoning=thought, joins=True)
    elif kind in _WITH_TOOLS:
        names = [tool.need("name", TEXT) for tool in item.tables("tools")]
        item.ignore_all()
        if kind.endswith("_output"):
            talk.result(_call_id(item), f"These tools can be called now: {', '.join(names)}")
    elif kind.endswith("_output"):
        name = next((name for name in _RESULTS if name in item.data), "output")
        talk.result(_call_id(item), read_content(item, name))
    elif kind == "function_call" or _call_id(item) in results:
        talk.assistant(calls=[_call(item, kind)], joins=True)
    else:
        item.ignore_all()
        item.leave("", kind=kind)
        if kind not in _SETTINGS:
            talk.assistant(in_its_place(item, kind)["text"], joins=True)


def _found_tools(fields: Fields) -> list[Fields]:
    """Return the tools that items of the input offer."""
    if not isinstance(fields.data.get("input"), list):
        return []
    items = [i for i in messages_of(fields, "input") if i.data.get("type") in _WITH_TOOLS]
    return [tool for item in items for tool in item.tables("tools")][-MAX_TOOLS:]


def _call(item: Fields, kind: str) -> Json:
    """Read a call of a tool of the client into OpenAI's form of functions."""
    if kind == "function_call":
        given = item.get("arguments", ANY, "{}")
        name = flat(item.get("namespace", TEXT, ""), item.need("name", TEXT))
        return call_json(_call_id(item), name, arguments_text(given))
    item.ignore_all()
    name = item.get("name", TEXT, "") or kind.removesuffix("_call")
    name = flat(item.get("namespace", TEXT, ""), name)
    return call_json(_call_id(item), name, arguments_text(arguments_in(item.data, _SILENT)))


class ResponseWriter(Writer):
    """Writes a response, whole or as events."""

    def __init__(self, ask: Ask, model: str, body: Json, kept: Kept) -> None:
        self._ask, self._kept = ask, kept
        self._store = body.get("store") is not False
        self._id = f"resp_{uuid.uuid4().hex}"
        self._ids: list[str] = []  # of the items
        self._sections = Sections()
        self._tokens: list[Token] = []
        self._n_event = 0
        self._head = {
            "id": self._id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "parallel_tool_calls": ask.options.parallel_tool_calls,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": ask.options.effort or None, "summary": None},
            "store": self._store,
            "temperature": ask.sampling.temperature,
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": ask.sampling.top_p,
            "truncation": "disabled",
        }

    def opening(self, begin: Begin) -> list[Event]:
        """Return the events of the beginning."""
        response = self._response("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def progress(self, progress: Progress) -> list[Event]:
        """Return an event that says how much of the prompt is read."""
        event = self._event("response.in_progress", response=self._response("in_progress"))
        return [told(event, progress, self._ask)]

    def part(self, part: Part) -> list[Event]:
        """Return the events of what the answer gained."""
        steps = self._sections.add(part.delta)
        events = [event for step in steps for event in self._step(step, part.tokens)]
        events = [timed(event, part.timings) for event in events]
        self._tokens += part.tokens if part.delta.content else ()
        return events

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the events of the end."""
        events = [event for step in self._sections.close() for event in self._step(step)]
        response = self._finished(finishes)
        last = self._event(f"response.{response['status']}", response=response)
        return [*events, timed(last, finishes[0].timings)]

    def failed(self, error: RequestRefused, form: Json) -> list[Event]:
        """Return the event of a failure."""
        fault = {"code": error.code or "server_error", "message": str(error)}
        response = {**self._response("failed"), "error": fault}
        return [self._event("response.failed", response=response)]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return the response."""
        for part in parts:
            self.part(part)
        return self._finished(finishes)

    def _finished(self, finishes: list[Finish]) -> Json:
        (finish,) = finishes
        counts = usage(finishes)
        if self._store:
            items = [self._item(section, "completed") for section in self._sections.all]
            self._kept.keep(self._id, self._conversation(), items)
        is_whole = finish_reason(finish) != "length"
        response = self._response("completed" if is_whole else "incomplete")
        if not is_whole:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["usage"] = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": counts["completion_tokens_details"],
            "total_tokens": counts["total_tokens"],
        }
        return response

    def _conversation(self) -> tuple[Json, ...]:
        """Return the messages with the answer, without the instructions."""
        messages = self._ask.messages
        if self._head["instructions"]:
            messages = messages[1:]
        talk = Conversation(list(messages))
        for section in self._sections.all:
            if section.call is not None:
                call = call_json(section.call.id, section.call.name, section.text)
                talk.assistant(calls=[call], joins=True)
            elif section.kind == "thought":
                talk.assistant(reasoning=section.text, joins=True)
            else:
                talk.assistant(section.text, joins=True)
        return tuple(talk.messages)

    def _response(self, status: str) -> Json:
        items = [self._item(section, "completed") for section in self._sections.all]
        return {**self._head, "status": status, "output": items, "usage": None}

    def _event(self, name: str, **data: Any) -> Event:
        self._n_event += 1
        return name, {"type": name, "sequence_number": self._n_event - 1, **data}

    def _step(self, step: Step, tokens: tuple[Token, ...] = ()) -> Iterator[Event]:
        """Yield the events of a step. A text and a thought are a part of their item."""
        section = step.section
        if step.action == OPEN:
            prefix = {"thought": "rs", "text": "msg", "call": "fc"}[section.kind]
            self._ids.append(f"{prefix}_{uuid.uuid4().hex}")
        item_id = self._ids[section.index]
        place: Json = {"item_id": item_id, "output_index": section.index}
        inner = {**place, "content_index": 0}
        form = self._form(section)
        if step.action == OPEN:
            item = self._item(section, "in_progress")
            yield self._event("response.output_item.added", output_index=section.index, item=item)
            if section.kind != "call":
                part = self._content(section)
                yield self._event("response.content_part.added", **inner, part=part)
            return
        texts = {"thought": "response.reasoning_text", "text": "response.output_text"}
        given = section.text
        if form is not None and form.kind == "custom":
            name, more, key = "response.custom_tool_call_input", place, "input"
            given = form.text_input(section.text)
        elif section.kind == "call":
            name, more, key = "response.function_call_arguments", place, "arguments"
        else:
            name, more, key = texts[section.kind], inner, "text"
        if section.kind == "text":
            so_far = self._tokens if step.action == CLOSE else tokens
            more = {**more, "logprobs": self._logprobs(so_far)}
        is_whole = form is not None and (form.kind == "custom" or not form.is_named)
        if step.action != CLOSE:
            if not is_whole:
                yield self._event(f"{name}.delta", **more, delta=step.text)
            return
        if form is None or form.is_named:
            if is_whole:  # its text stands in JSON, which is read at its end
                yield self._event(f"{name}.delta", **more, delta=given)
            yield self._event(f"{name}.done", **more, **{key: given})
        if section.kind != "call":
            part = self._content(section)
            yield self._event("response.content_part.done", **inner, part=part)
        item = self._item(section, "completed")
        yield self._event("response.output_item.done", output_index=section.index, item=item)

    def _form(self, section: Section) -> Form | None:
        """Return how the tool of a call was offered; None for a plain function, or no call."""
        return self._ask.forms.get(section.call.name) if section.call is not None else None

    def _item(self, section: Section, status: str) -> Json:
        """Return an item of the output. It is empty while it is in progress."""
        head = {"id": self._ids[section.index], "status": status}
        if section.call is not None:
            form = self._form(section) or Form("function", section.call.name)
            return {**head, **form.response_item(section.call, section.text)}
        content = [self._content(section)] if status == "completed" else []
        if section.kind == "thought":
            return {**head, "type": "reasoning", "summary": [], "content": content}
        return {**head, "type": "message", "role": "assistant", "content": content}

    def _content(self, section: Section) -> Json:
        if section.kind == "thought":
            return {"type": "reasoning_text", "text": section.text}
        logprobs = self._logprobs(self._tokens) if section.text else []
        return {
            "type": "output_text",
            "text": section.text,
            "annotations": [],
            "logprobs": logprobs,
        }

    def _logprobs(self, tokens: Sequence[Token]) -> list[Json]:
        return logprobs(tokens) if self._ask.sampling.n_probs else []
