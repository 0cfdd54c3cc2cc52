"""Anthropic's messages, which Claude Code uses.

Source: Anthropic's API reference (messages, streaming, count_tokens). Thoughts are not signed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backend.server.ask import (
    ANY,
    FLAG,
    LIST,
    OBJECT,
    TEXT,
    TOO_LONG,
    Ask,
    Begin,
    Conversation,
    Event,
    Fields,
    Finish,
    Json,
    Part,
    RequestRefused,
    Writer,
    arguments_text,
    call_json,
    either,
    joined,
    messages_of,
    read_format,
    read_image,
    read_options,
    read_part,
    read_sampling,
    read_stops,
    role_of,
    tool_reference,
)
from backend.server.openai_chat import COUNT, effort_options, read_telemetry
from backend.server.sections import CLOSE, OPEN, Section, Sections, Step
from backend.server.tools import Offered, arguments_of, options_of, tools_in

_WITHOUT_EFFECT = (
    "metadata",
    "service_tier",
    "container",
    "context_management",
    "cache_control",
    "betas",
    "inference_geo",
    "speed",
    "diagnostics",
    "user_profile_id",
    "workspace_id",
)
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use"}
_DEFAULT_TOKENS = 4096  # as llama.cpp's server; the reference demands the field
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def read_message(body: Any) -> Ask:
    """Read the body of /v1/messages and of /v1/messages/count_tokens. Raises RequestRefused."""
    fields = Fields(body)
    fields.ignore(*_WITHOUT_EFFECT)
    thinking = fields.table("thinking").get("type", TEXT, "")
    output = fields.table("output_config")
    ask = Ask(
        model=fields.get("model", TEXT, ""),
        max_tokens=fields.get("max_tokens", COUNT, _DEFAULT_TOKENS),
        stream=fields.get("stream", FLAG, False),
        sampling=read_sampling(fields),
        **read_telemetry(fields),
        options=read_options(
            **_tools(fields),
            **effort_options(
                output.get("effort", TEXT, ""),
                {"enabled": True, "disabled": False}.get(thinking),
            ),
            variables=fields.get("chat_template_kwargs", OBJECT, {}),
            **read_format(fields),
            stops=read_stops(fields, "stop_sequences"),
        ),
        messages=_messages(fields),
    )
    return replace(ask, ignored=fields.others())


def _tools(fields: Fields) -> Json:
    offered = Offered()
    for tool in tools_in(fields):
        offered.add_anthropic(tool)
    choice = fields.table("tool_choice")
    kind = choice.get("type", TEXT, "auto")
    if kind != "tool" and kind not in _CHOICES:
        raise choice.refusal("type", "must be auto, any, tool or none")
    name = choice.need("name", TEXT) if kind == "tool" else _CHOICES[kind]
    parallel = not choice.get("disable_parallel_tool_use", FLAG, False)
    return options_of(fields, offered.tools, name, parallel)


def _messages(fields: Fields) -> tuple[Json, ...]:
    talk = Conversation()
    system = fields.get("system", either(TEXT, LIST), "")
    if isinstance(system, list):
        texts = [b.need("text", TEXT) for b in fields.tables("system")]
        # Claude Code's first block names its version and changes with each request, so that no
        # prompt could be reused.
        system = "\n\n".join(t for t in texts if not t.startswith("x-anthropic-billing-header"))
    if system:
        talk.say("system", system)
    for message in messages_of(fields, "messages"):
        _add_blocks(talk, role_of(message, "user", "assistant", "system"), message)
    return talk.done("messages")


def _add_blocks(talk: Conversation, role: str, message: Fields) -> None:
    """Add a message of content blocks. Results of tools come first, each as its own message."""
    parts: list[Json] = []
    calls: list[Json] = []
    thought, has_result = "", False
    for block in message.parts("content"):
        kind = block.data.get("type")
        if kind == "tool_use" and role == "assistant":
            arguments = arguments_text(block.get("input", ANY, {}))
            calls.append(call_json(block.need("id", TEXT), block.need("name", TEXT), arguments))
        elif kind == "tool_result" and role == "user":
            block.is_past = has_result = True  # no person has sent it now
            inner = [read_part(part, _part) for part in block.parts("content")]
            talk.result(block.need("tool_use_id", TEXT), joined(inner))
        elif kind == "thinking" and role == "assistant":
            thought += block.get("thinking", TEXT, "")
        elif kind != "redacted_thinking":
            block.is_past = block.is_past or kind in _OF_SERVERS
            parts.append(read_part(block, _answer_part if role == "assistant" else _part))
    if role == "assistant":
        talk.assistant("\n".join(part["text"] for part in parts), thought, calls)
    elif parts or not has_result:
        talk.say(role, joined(parts))


_OF_SERVERS = ("container_upload", "tool_addition", "tool_removal", "mcp_tool_listing")
"""Kinds of blocks beside a user's words that concern a provider's own servers."""


def _answer_part(block: Fields, kind: str) -> Json | None:
    return None if kind == "image" else _part(block, kind)


def _part(block: Fields, kind: str) -> Json | None:
    if kind == "text":
        return {"type": "text", "text": block.get("text", TEXT, "")}
    if kind == "tool_reference":
        return tool_reference(block)
    if kind == "compaction" or (kind == "search_result" and "content" in block.data):
        head = [block.get(name, TEXT, "") for name in ("title", "source")]
        return _with_head(head, [read_part(part, _part) for part in block.parts("content")])
    if kind not in ("image", "document"):
        return None
    source = block.table("source")
    form = source.get("type", TEXT)
    if kind == "image":
        url = source.get("url", TEXT, "")
        if form == "base64":
            url = f"data:{source.get('media_type', TEXT, '')};base64,{source.need('data', TEXT)}"
        return read_image(url, block.where)
    if form not in ("text", "content"):
        return None
    head = [block.get(name, TEXT, "") for name in ("title", "context")]
    inner = source.parts("data" if form == "text" else "content")
    return _with_head(head, [read_part(part, _part) for part in inner])


def _with_head(head: list[str], parts: list[Json]) -> Json | None:
    """Return a part with the text of some parts below a title; None if one of them is no text."""
    if any(part["type"] != "text" for part in parts):
        return None
    texts = [*head, *(part["text"] for part in parts)]
    return {"type": "text", "text": "\n".join(filter(None, texts))}


class MessageWriter(Writer):
    """Writes a message, whole or as events."""

    def __init__(self, ask: Ask, model: str) -> None:
        self._head = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._sections = Sections()

    def opening(self, begin: Begin) -> list[Event]:
        """Return the beginning of the message."""
        message: Json = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(begin.n_prompt, begin.n_reused, 0),
        }
        return [_event("message_start", message=message)]

    def part(self, part: Part) -> list[Event]:
        """Return the events of what the answer gained."""
        return self._events(self._sections.add(part.delta))

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the events of the end."""
        (finish,) = finishes
        usage = _usage(finish.n_prompt, finish.n_reused, finish.n_token)
        return [
            *self._events(self._sections.close()),
            _event("message_delta", delta=_stop(finish), usage=usage),
            _event("message_stop"),
        ]

    def failed(self, error: RequestRefused, form: Json) -> list[Event]:
        """Return the error."""
        return [("error", form)]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return the message."""
        (finish,) = finishes
        for part in parts:
            self.part(part)
        return {
            **self._head,
            "content": [_block(section, section.text) for section in self._sections.all],
            **_stop(finish),
            "usage": _usage(finish.n_prompt, finish.n_reused, finish.n_token),
        }

    def _events(self, steps: Iterator[Step]) -> list[Event]:
        return [event for step in steps for event in self._step(step)]

    def _step(self, step: Step) -> Iterator[Event]:
        section = step.section
        if step.action == OPEN:
            block = _block(section, "")
            yield _event("content_block_start", index=section.index, content_block=block)
        elif step.action == CLOSE:
            if section.kind == "thought":
                yield _delta(section, "signature_delta", "signature", "")
            yield _event("content_block_stop", index=section.index)
        elif section.kind == "thought":
            yield _delta(section, "thinking_delta", "thinking", step.text)
        elif section.kind == "text":
            yield _delta(section, "text_delta", "text", step.text)
        else:
            yield _delta(section, "input_json_delta", "partial_json", step.text)


def _event(name: str, **data: Any) -> Event:
    return name, {"type": name, **data}


def _delta(section: Section, kind: str, name: str, text: str) -> Event:
    return _event("content_block_delta", index=section.index, delta={"type": kind, name: text})


def _block(section: Section, text: str) -> Json:
    """Return a content block with a text."""
    if section.call is not None:
        call = {"id": section.call.id, "name": section.call.name, "input": arguments_of(text)}
        return {"type": "tool_use", **call}
    if section.kind == "thought":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}


def _stop(finish: Finish) -> Json:
    reason = _STOP_REASONS.get(finish.reason, "max_tokens")
    if reason == "end_turn" and finish.stop:
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": finish.stop or None}


def _usage(n_prompt: int, n_reused: int, n_token: int) -> Json:
    return {
        "input_tokens": n_prompt - n_reused,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_reused,
        "output_tokens": n_token,
    }


def error_json(error: RequestRefused) -> Json:
    """Return a refusal in Anthropic's form."""
    default = "invalid_request_error" if error.status < 500 else "api_error"
    kind, words = _ERRORS.get(error.status, default), str(error)
    if error.kind == TOO_LONG:  # in Anthropic's words, which agents look for
        n, n_most = error.more["n_prompt_tokens"], error.more["n_ctx"]
        words = f"prompt is too long: {n} tokens > {n_most} maximum. {words}"
    return {"type": "error", "error": {"type": kind, "message": words}}
