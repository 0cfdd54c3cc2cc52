"""OpenAI's chat completions.

Source: OpenAI's API reference, and llama.cpp's server for its additions (`reasoning_content`,
`chat_template_kwargs`, `grammar`, `json_schema`). Some clients switch thinking with the fields
`thinking`, `enable_thinking` or `reasoning` of other servers; these are read, too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from backend import __version__
from backend.protocol.chat import AnswerText, Delta, ToolCall
from backend.server.ask import (
    ANY,
    FLAG,
    MAX_CHOICES,
    NUMBER,
    OBJECT,
    PING_S,
    POSITIVE,
    TEXT,
    UP_TO_20,
    WHOLE,
    Ask,
    Begin,
    Conversation,
    Event,
    Fields,
    Finish,
    Json,
    Kind,
    Part,
    Progress,
    RequestRefused,
    Timings,
    Token,
    Writer,
    arguments_text,
    call_json,
    messages_of,
    read_answer,
    read_content,
    read_format,
    read_options,
    read_sampling,
    read_stops,
    role_of,
)
from backend.server.tools import read_tools

# They change no answer of a local model, and are not worth a line in the log.
_WITHOUT_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_prompt",
    "id_slot",
    "n_keep",
    "n_cache_reuse",
    "backend_sampling",
    "reasoning_format",
    "verbosity",
    "modalities",
)
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
FINGERPRINT = f"b-outrider-{__version__}"
"""Names the program that computes, in the form of llama.cpp's server."""
COUNT = Kind(lambda v: WHOLE.test(v) and v >= -1, "a whole number, or -1")


def read_chat(body: Any) -> Ask:
    """Read the body of /v1/chat/completions. Raises RequestRefused."""
    fields = Fields(body)
    common = read_common(fields, -1, "max_completion_tokens", "max_tokens", "n_predict")
    n_top = fields.get("top_logprobs", UP_TO_20, 0)
    if n_top and not fields.get("logprobs", FLAG):
        raise fields.refusal("top_logprobs", "needs logprobs to be true")
    n_probs = max(n_top, 1) if fields.get("logprobs", FLAG) else 0
    tools, forms = read_tools(fields, "function")
    ask = Ask(
        **common,
        forms=forms,
        sampling=read_sampling(fields, n_probs),
        n_top=n_top,
        options=read_options(
            **tools,
            **_thinking(fields),
            **read_format(fields),
            stops=read_stops(fields, "stop"),
            opens=_opens(fields),
        ),
        messages=_messages(fields),
    )
    return replace(ask, ignored=fields.others())


def _opens(fields: Fields) -> bool:
    """Read whether the prompt ends where an answer begins.

    A last message of the assistant is continued, whatever `continue_final_message` says.
    """
    goes_on = fields.get("continue_final_message", FLAG, False)
    opens: bool | None = fields.get("add_generation_prompt", FLAG)
    if goes_on and opens:
        raise fields.refusal("continue_final_message", "contradicts add_generation_prompt")
    return opens is not False


def read_common(fields: Fields, n_default: int, *limits: str) -> Json:
    """Read what chat completions and completions share.

    limits: names of the maximum of tokens; the first that is given counts. n_default: if none is.
    """
    fields.ignore(*_WITHOUT_EFFECT)
    n = fields.get("n", POSITIVE, 1)
    if n > MAX_CHOICES:
        raise fields.refusal("n", f"must be at most {MAX_CHOICES}")
    given = [limit for name in limits if (limit := fields.get(name, COUNT)) is not None]
    return {
        "model": fields.get("model", TEXT, ""),
        "n": n,
        "max_tokens": given[0] if given else n_default,
        "stream": fields.get("stream", FLAG, False),
        "with_usage": fields.table("stream_options").get("include_usage", FLAG, False),
        "with_prompt": fields.get("verbose", FLAG, False),
        **read_telemetry(fields),
    }


def read_telemetry(fields: Fields) -> Json:
    """Read what llama.cpp's server would send with a stream: figures, and how often a comment."""
    return {
        "with_timings": fields.get("timings_per_token", FLAG, False),
        "with_progress": fields.get("return_progress", FLAG, False),
        "ping_s": max(fields.get("sse_ping_interval", NUMBER, PING_S), 0.0),
    }


def _thinking(fields: Fields) -> Json:
    """Read whether and how hard the model thinks, in the forms of several servers."""
    variables = dict(fields.get("chat_template_kwargs", OBJECT, {}))
    kwargs = Fields(variables, "chat_template_kwargs")
    other = fields.table("reasoning")
    efforts = (
        fields.get("reasoning_effort", TEXT),
        kwargs.get("reasoning_effort", TEXT),
        other.get("effort", TEXT),
    )
    effort = next((given for given in efforts if given), "")
    kind = fields.table("thinking").get("type", TEXT)
    switches = (
        kwargs.get("enable_thinking", FLAG),
        fields.get("enable_thinking", FLAG),
        other.get("enabled", FLAG),
        {"enabled": True, "disabled": False}.get(kind or ""),
    )
    thinking = next((given for given in switches if given is not None), None)
    for name in ("reasoning_effort", "enable_thinking"):
        variables.pop(name, None)
    return {**effort_options(effort, thinking), "variables": variables}


def effort_options(effort: str, thinking: bool | None = None) -> Json:
    """Return the options for an effort, where "none" means not to think."""
    if effort == "none":
        return {"thinking": False, "effort": ""}
    return {"thinking": thinking, "effort": effort}


def _messages(fields: Fields) -> tuple[Json, ...]:
    talk = Conversation()
    for message in messages_of(fields, "messages"):
        role = role_of(message, "system", "developer", "user", "assistant", "tool", "function")
        name = message.get("name", TEXT, "")
        if role in ("system", "developer", "user"):
            talk.say("user" if role == "user" else "system", read_content(message))
        elif role == "assistant":
            content, thought = read_answer(message)
            content = content or message.get("refusal", TEXT, "")
            thoughts = [message.get(n, TEXT) for n in ("reasoning_content", "reasoning")]
            thought = next(filter(None, thoughts), thought)
            talk.assistant(content, thought, list(_calls(message)))
        else:
            call_id = message.get("tool_call_id", TEXT) or f"{_OLD_CALL}{name}"
            talk.result(call_id, read_content(message), name)
    return talk.done("messages")


_OLD_CALL = "call_"
"""Begins the id of a call of the old form, which has none; its name follows."""


def _calls(message: Fields) -> Iterator[Json]:
    """Yield the calls of an answer, also in the old form, and of tools that take a text."""
    for call in message.tables("tool_calls"):
        inner = "custom" if "custom" in call.data else "function"
        function = call.table(inner)
        given = function.get("arguments", ANY, "{}")
        if inner == "custom":
            given = {"input": function.get("input", TEXT, "")}
        call_id, name = call.get("id", TEXT, ""), function.need("name", TEXT)
        yield call_json(call_id, name, arguments_text(given))
    if message.get("function_call", ANY):
        function = message.table("function_call")
        name = function.need("name", TEXT)
        given = function.get("arguments", ANY, "{}")
        yield call_json(f"{_OLD_CALL}{name}", name, arguments_text(given))


class ChatWriter(Writer):
    """Writes chat completions, whole or in pieces."""

    end = "data: [DONE]\n\n"

    def __init__(self, ask: Ask, model: str) -> None:
        self._ask = ask
        self._head = head("chatcmpl", model)
        self._held = [AnswerText() for _ in range(ask.n)]
        """The calls of tools that are no plain functions: they follow at the end, whole."""

    def opening(self, begin: Begin) -> list[Event]:
        """Return the first piece of each answer, which has the role."""
        first = {"role": "assistant", "content": None}  # as llama.cpp's server
        return [self._piece(i, first) for i in range(self._ask.n)]

    def progress(self, progress: Progress) -> list[Event]:
        """Return a piece that says how much of the prompt is read."""
        return [told(self._piece(progress.choice, {}), progress, self._ask)]

    def part(self, part: Part) -> list[Event]:
        """Return a piece with what the answer gained."""
        delta: Json = {}
        if part.delta.reasoning:
            delta["reasoning_content"] = part.delta.reasoning
        if part.delta.content:
            delta["content"] = part.delta.content
        if part.delta.tool_calls and self._ask.forms:
            self._held[part.choice].add(Delta(tool_calls=part.delta.tool_calls))
        elif part.delta.tool_calls:
            delta["tool_calls"] = _gained_calls(part.delta)
        return [timed(self._piece(part.choice, delta, tokens=part.tokens), part.timings)]

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the reason of each end, and the numbers of tokens if they were asked for."""
        events = []
        for f in finishes:
            if calls := _calls_json(self._held[f.choice].tool_calls, self._ask):
                numbered = enumerate(calls.get("tool_calls", ()))
                if "tool_calls" in calls:
                    calls["tool_calls"] = [{"index": i, **call} for i, call in numbered]
                events.append(self._piece(f.choice, calls))
            events.append(self._piece(f.choice, {}, self._reason(f)))
        if self._ask.with_usage:
            total = {"object": "chat.completion.chunk", "choices": [], "usage": usage(finishes)}
            events.append(("", {**self._head, **total}))
        return [*events[:-1], timed(events[-1], _sum(finishes))]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return all answers."""
        answers = [AnswerText() for _ in finishes]
        tokens: list[list[Token]] = [[] for _ in finishes]
        for part in parts:
            answers[part.choice].add(part.delta)
            tokens[part.choice].extend(part.tokens)
        choices = [
            {
                "index": f.choice,
                "message": {**_message(answers[f.choice], self._ask), "refusal": None},
                "logprobs": self._logprobs(tokens[f.choice]),
                "finish_reason": self._reason(f),
            }
            for f in finishes
        ]
        answer = {"object": "chat.completion", "choices": choices, "usage": usage(finishes)}
        whole = {**self._head, **answer, **_sum(finishes).beside()}
        return {**whole, **verbose(self._ask, finishes)}

    def _piece(
        self, choice: int, delta: Json, reason: str | None = None, tokens: tuple[Token, ...] = ()
    ) -> Event:
        piece = {
            "index": choice,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if delta and "role" not in delta else None,
            "finish_reason": reason,
        }
        return "", {**self._head, "object": "chat.completion.chunk", "choices": [piece]}

    def _reason(self, finish: Finish) -> str:
        """Return the reason of an end, which is another one for the old form of calls."""
        reason, kinds = finish_reason(finish), {form.kind for form in self._ask.forms.values()}
        return "function_call" if reason == "tool_calls" and "old" in kinds else reason

    def _logprobs(self, tokens: Sequence[Token]) -> Json | None:
        if not self._ask.sampling.n_probs:
            return None
        return {"content": logprobs(tokens), "refusal": None}


def logprobs(tokens: Sequence[Token]) -> list[Json]:
    """Return the logarithms of probabilities of tokens."""
    return [
        {**_logprob(token), "top_logprobs": [_logprob(top) for top in token.top]}
        for token in tokens
    ]


def _logprob(token: Token) -> Json:
    shown = token.data.decode("utf-8", "replace")
    return {"id": token.id, "token": shown, "logprob": token.logprob, "bytes": list(token.data)}


def _message(answer: AnswerText, ask: Ask) -> Json:
    calls = _calls_json(answer.tool_calls, ask)
    message = {**answer.to_message(), **calls}
    if "function_call" in message:
        message.pop("tool_calls")
    return {**message, "content": message["content"] or (None if answer.tool_calls else "")}


def _calls_json(calls: Sequence[ToolCall], ask: Ask) -> Json:
    """Return the field of a message with calls, in the forms in which the tools were offered."""
    found = []
    for call in calls:
        form = ask.forms.get(call.name)
        if form is None:
            found.append(call.to_json())
        elif form.kind == "old":
            return {"function_call": {"name": call.name, "arguments": call.arguments}}
        elif form.kind == "custom":
            custom = {"name": form.name, "input": form.text_input(call.arguments)}
            found.append({"id": call.id, "type": "custom", "custom": custom})
        else:
            function = {"name": form.name, "arguments": call.arguments}
            space = {"namespace": form.namespace} if form.namespace else {}
            found.append({"id": call.id, "type": "function", "function": {**function, **space}})
    return {"tool_calls": found} if found else {}


def _gained_calls(delta: Delta) -> list[Json]:
    calls = []
    for index, call in sorted(delta.tool_calls.items()):
        function: Json = {"arguments": call.arguments}
        gained: Json = {"index": index, "function": function}
        if call.name:
            gained |= {"id": call.id, "type": "function"}
            function["name"] = call.name
        calls.append(gained)
    return calls


# Shared with completions.


def head(prefix: str, model: str) -> Json:
    """Return what every piece of an answer begins with."""
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }


def told(event: Event, progress: Progress, ask: Ask) -> Event:
    """Return an event with how much of the prompt is read, and the times if asked for."""
    name, data = event
    times = {"timings": progress.timings.to_json()} if ask.with_timings else {}
    return name, {**data, "prompt_progress": progress.to_json(), **times}


def timed(event: Event, timings: Timings | None) -> Event:
    """Return an event with the times so far, if there are any."""
    name, data = event
    return event if timings is None else (name, {**data, **timings.beside()})


def _sum(finishes: list[Finish]) -> Timings:
    """Return the times of the first answer, as llama.cpp's server gives them."""
    return finishes[0].timings if finishes else Timings()


def verbose(ask: Ask, finishes: list[Finish]) -> Json:
    """Return the prompt for `verbose`, in the place where llama.cpp's server has it."""
    if not ask.with_prompt:
        return {}
    return {"__verbose": {"prompt": finishes[0].prompt, "timings": _sum(finishes).to_json()}}


def finish_reason(finish: Finish) -> str:
    """Return OpenAI's reason for the end of an answer."""
    return finish.reason if finish.reason in ("stop", "tool_calls") else "length"


def usage(finishes: list[Finish]) -> Json:
    """Return the numbers of tokens. A prompt with several answers counts once."""
    n_prompt = sum(f.n_prompt for f in finishes)
    n_token = sum(f.n_token for f in finishes)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_token,
        "total_tokens": n_prompt + n_token,
        "prompt_tokens_details": {"cached_tokens": sum(f.n_reused for f in finishes)},
        "completion_tokens_details": {"reasoning_tokens": sum(f.n_reasoning for f in finishes)},
    }


def error_json(error: RequestRefused) -> Json:
    """Return a refusal in OpenAI's form."""
    fields = {"message": str(error), "type": error_kind(error), "param": error.param}
    return {"error": {**fields, "code": error.code, **error.more}}


def error_kind(error: RequestRefused) -> str:
    """Return the type of an error, as OpenAI and llama.cpp's server name it."""
    default = "invalid_request_error" if error.status < 500 else "server_error"
    return error.kind or _KINDS.get(error.status, default)
