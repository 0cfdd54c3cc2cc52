"""OpenAI's requests and answers, as far as one local model can serve them.

Source: the public API reference of OpenAI (chat completions, completions, models). What a request
asks for and cannot have is refused by name; nothing is silently ignored but `user`, `metadata` and
`store`, which change no answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.protocol.settings import Sampling

Json = dict[str, Any]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_WITHOUT_EFFECT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier"})
_OF_BOTH = frozenset(
    {
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repeat_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
    }
)
_OF_CHAT = _OF_BOTH | {"messages", "max_completion_tokens"}
_OF_TEXT = _OF_BOTH | {"prompt"}
# What may be said as long as it asks for nothing.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
_DEFAULT_TOKENS_OF_TEXT = 16  # as the reference says of /v1/completions
_MAX_STOPS = 4
_NAME_CHARS = 80


class RequestRefused(Exception):
    """A request that cannot be served; str() is one sentence."""

    def __init__(
        self,
        sentence: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code

    def to_json(self) -> Json:
        """The error as OpenAI words it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


@dataclass(frozen=True)
class Ask:
    """A request that was understood. Either `messages` or `prompt` is given."""

    sampling: Sampling
    max_tokens: int
    """-1: until the context is full."""
    stops: tuple[str, ...]
    stream: bool
    with_usage: bool
    """Whether a stream ends with the numbers of tokens."""
    messages: tuple[dict[str, str], ...] = ()
    prompt: str = ""


def read_chat(body: Any) -> Ask:
    """Read the body of /v1/chat/completions. Raises RequestRefused."""
    body = _object(body)
    _refuse_unknown(body, _OF_CHAT)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("messages must be a list of at least one message.", param="messages")
    read = tuple(_message(message, f"messages.{i}") for i, message in enumerate(messages))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return Ask(**_common(body, -1 if limit is None else limit), messages=read)


def read_text(body: Any) -> Ask:
    """Read the body of /v1/completions. Raises RequestRefused."""
    body = _object(body)
    _refuse_unknown(body, _OF_TEXT)
    prompt = body.get("prompt", "")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise RequestRefused("prompt must be one string.", param="prompt")
    limit = body.get("max_tokens")
    return Ask(**_common(body, _DEFAULT_TOKENS_OF_TEXT if limit is None else limit), prompt=prompt)


def _object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise RequestRefused("The request's body must be a JSON object.")
    return body


def _refuse_unknown(body: Json, known: frozenset[str]) -> None:
    for name, value in body.items():
        if name in known or name in _WITHOUT_EFFECT or value is None:
            continue
        if name not in _ONLY:
            raise RequestRefused(
                f"The parameter {shown(name)} is not known here.", param=shown(name)
            )
        if value not in _ONLY[name]:
            raise RequestRefused(f"This server cannot do what {name} asks for.", param=name)


def shown(name: str) -> str:
    """Return a name from a request as a message may repeat it: cut where it is long."""
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}\u2026"


def _common(body: Json, max_tokens: Any) -> Json:
    if not _is_whole(max_tokens) or (max_tokens < 1 and max_tokens != -1):
        raise RequestRefused("max_tokens must be a positive whole number.", param="max_tokens")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise RequestRefused("stream_options must be an object.", param="stream_options")
    return {
        "sampling": _sampling(body),
        "max_tokens": max_tokens,
        "stops": _stops(body.get("stop")),
        "stream": _flag(body, "stream"),
        "with_usage": _flag(options, "include_usage"),
    }


def _sampling(body: Json) -> Sampling:
    values: Json = {}
    for name in ("temperature", "top_p", "min_p", "repeat_penalty", "top_k", "seed"):
        value = body.get(name)
        if value is None:
            continue
        whole = name in ("top_k", "seed")
        if not (_is_whole(value) if whole else _is_number(value)):
            kind = "a whole number" if whole else "a number"
            raise RequestRefused(f"{name} must be {kind}.", param=name)
        values[name] = value % (2**32 - 1) if name == "seed" else value
    try:
        return Sampling(**values)
    except ValueError as error:
        raise RequestRefused(str(error)) from None


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    strings = isinstance(stops, list) and all(isinstance(s, str) and s for s in stops)
    if not strings or len(stops) > _MAX_STOPS:
        raise RequestRefused(
            f"stop must be a string, or at most {_MAX_STOPS} strings, none of them empty.",
            param="stop",
        )
    return tuple(stops)


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise RequestRefused(f"{where} must be an object.", param=where)
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise RequestRefused(f"{where}.role must be one of {', '.join(_ROLES)}.", param=where)
    content = message.get("content")
    if isinstance(content, list):
        texts = [p.get("text") if isinstance(p, dict) else None for p in content]
        if not all(isinstance(text, str) for text in texts):
            raise RequestRefused(f"{where}.content may hold text only.", param=where)
        content = "".join(str(text) for text in texts)
    if not isinstance(content, str):
        raise RequestRefused(f"{where}.content must be text.", param=where)
    return {"role": role, "content": content}


def _flag(body: Json, name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise RequestRefused(f"{name} must be true or false.", param=name)
    return bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Finish:
    """How an answer ended. reason: "stop" or "length"."""

    reason: str
    n_prompt: int
    n_token: int

    @property
    def usage(self) -> Json:
        """The numbers of tokens, as OpenAI words them."""
        return {
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_token,
            "total_tokens": self.n_prompt + self.n_token,
        }


class Writer:
    """Writes one answer, whole or in pieces, for chat completions or for completions."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._chat = chat
        self._kind = "chat.completion" if chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, finish: Finish) -> Json:
        """The answer to a request that does not stream."""
        said: Json = (
            {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish.reason}
        return {**self._head, "object": self._kind, "choices": [choice], "usage": finish.usage}

    def opening(self) -> Json | None:
        """What a stream of a chat begins with: the role."""
        return self._piece({"role": "assistant", "content": ""}, None) if self._chat else None

    def piece(self, text: str) -> Json:
        """Some text of a stream."""
        return self._piece({"content": text}, None) if self._chat else self._text(text, None)

    def closing(self, finish: Finish) -> Json:
        """The end of a stream."""
        return self._piece({}, finish.reason) if self._chat else self._text("", finish.reason)

    def usage(self, finish: Finish) -> Json:
        """The numbers of tokens, after the end of a stream."""
        return {**self._head, "object": self._chunk, "choices": [], "usage": finish.usage}

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._chat else self._kind

    def _piece(self, delta: Json, reason: str | None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": self._chunk, "choices": [choice]}

    def _text(self, text: str, reason: str | None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": self._chunk, "choices": [choice]}


def list_models(names: Sequence[str], created: int) -> Json:
    """The answer of /v1/models."""
    return {"object": "list", "data": [model(name, created) for name in names]}


def model(name: str, created: int) -> Json:
    """The answer of /v1/models/NAME."""
    return {"id": name, "object": "model", "created": created, "owned_by": "local"}


class StopFilter:
    """Lets text through up to the first of some strings, and holds back what may begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Text that may be shown now."""
        if self.stopped:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        n_kept = max((self._overlap(stop) for stop in self._stops), default=0)
        shown, self._held = self._split(n_kept)
        return shown

    def rest(self) -> str:
        """What was held back, when the answer has ended."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """How many characters at the end are the beginning of `stop`."""
        for n in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:n]):
                return n
        return 0

    def _split(self, n_kept: int) -> tuple[str, str]:
        cut = len(self._held) - n_kept
        return self._held[:cut], self._held[cut:]
