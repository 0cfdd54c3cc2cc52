"""The common form of all protocols: a request, the parts of its answer, and refusals.

Each protocol reads its requests into an `Ask` and writes its answers from `Part`s. Fields that are
not known are ignored, and logged once each; a known field of a wrong type is refused by name.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.protocol.attachments import images_of
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.request import Prompt
from backend.protocol.settings import Sampling

Json = dict[str, Any]

MAX_CHOICES = 128
"""Maximum of answers to one request, as in OpenAI's reference."""
MAX_TEXT_CHARS = 4 << 20
"""Maximum of characters of a request without its images: a million tokens of usual text. More would
keep the engine busy for long, only to be told that it does not fit."""
TOO_LONG = "exceed_context_size_error"
"""The kind of the refusal of a prompt that does not fit into the context; llama.cpp's name."""
_NAME_CHARS = 80
_NAMES_KEPT = 1000
_log = logging.getLogger("outrider.server")


class RequestRefused(Exception):
    """A request cannot be served; str() is one sentence. retry_s: when to ask again, or 0.

    kind: the type of the error, where the status does not say it. more: further fields of it.
    """

    def __init__(
        self,
        sentence: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_s: int = 0,
        kind: str = "",
        more: Json | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code, self.retry_s = status, param, code, retry_s
        self.kind, self.more = kind, more or {}


@dataclass(frozen=True)
class Ask:
    """A valid request for `n` answers to `messages`, or to each of `prompts`.

    max_tokens: -1 until the context is full. echo: the answer begins with the prompt. ignored: the
    fields of the request that are not known here.
    """

    sampling: Sampling
    options: ChatOptions = ChatOptions()
    max_tokens: int = -1
    messages: tuple[Json, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    n: int = 1
    model: str = ""
    stream: bool = False
    with_usage: bool = False
    """Whether a stream ends with the numbers of tokens."""
    echo: bool = False
    n_top: int = 0
    """The number of most probable tokens to report, where `sampling.n_probs` is not 0."""
    with_timings: bool = False
    """Whether each part of a stream has the times so far."""
    with_progress: bool = False
    """Whether a stream tells how much of the prompt is read."""
    with_prompt: bool = False
    """Whether the end of an answer has the text of the prompt."""
    ignored: tuple[str, ...] = ()
    asked_s: float = field(default_factory=time.perf_counter, compare=False)
    """When it was read (time.perf_counter)."""

    @property
    def has_images(self) -> bool:
        """Whether a message has an image."""
        return bool(images_of(self.messages))


def check_text(*values: Any) -> None:
    """Raise RequestRefused where texts, or the texts in messages and tools, are too long."""
    if _n_char(values) > MAX_TEXT_CHARS:
        raise RequestRefused(
            f"The request has more than {MAX_TEXT_CHARS:,} characters of text.",
            status=413,
            code="context_length_exceeded",
        )


def _n_char(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 0 if value.get("type") == "image" else sum(map(_n_char, value.values()))
    return sum(map(_n_char, value)) if isinstance(value, list | tuple) else 0


@dataclass(frozen=True)
class Token:
    """The bytes of a token, and the logarithm of its probability.

    top: the most probable tokens at its place. id: its number.
    """

    data: bytes
    logprob: float
    top: tuple[Token, ...] = ()
    id: int = -1


@dataclass(frozen=True)
class Timings:
    """The times of an answer so far, in seconds.

    n_cached: tokens of the prompt that were in the context. n_read, read_s: the others, and the
    time to read them. n_token, wrote_s: tokens of the answer, and the time from the first one on.
    runs: at the end of an answer, how the model runs and why (CacheFacts.runs).
    """

    n_cached: int = 0
    n_read: int = 0
    read_s: float = 0.0
    n_token: int = 0
    wrote_s: float = 0.0
    runs: str = ""

    def to_json(self) -> Json:
        """Return the form of llama.cpp's server. The first token comes from the prompt."""
        read_ms, wrote_ms, n_step = 1e3 * self.read_s, 1e3 * self.wrote_s, max(self.n_token - 1, 0)
        return {
            "cache_n": self.n_cached,
            "prompt_n": self.n_read,
            "prompt_ms": read_ms,
            "prompt_per_token_ms": _ratio(read_ms, self.n_read),
            "prompt_per_second": _ratio(1e3 * self.n_read, read_ms),
            "predicted_n": self.n_token,
            "predicted_ms": wrote_ms,
            "predicted_per_token_ms": _ratio(wrote_ms, n_step),
            "predicted_per_second": _ratio(1e3 * n_step, wrote_ms),
            **({"runs": self.runs} if self.runs else {}),
        }


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0


@dataclass(frozen=True)
class Progress:
    """How much of the prompt of a choice is read: tokens in all, from the context, and so far."""

    choice: int
    n_prompt: int
    n_cached: int
    n_done: int
    timings: Timings

    def to_json(self) -> Json:
        """Return the form of llama.cpp's server."""
        counts = {"total": self.n_prompt, "cache": self.n_cached, "processed": self.n_done}
        return {**counts, "time_ms": round(1e3 * self.timings.read_s)}


@dataclass(frozen=True)
class Wait:
    """News while nothing is answered yet. words: for a comment of the stream, or ""."""

    words: str
    n_before: int = 0
    progress: Progress | None = None


@dataclass(frozen=True)
class Fitted:
    """The conversation was changed for the model's template. changes: words of fitting.REMARKS."""

    changes: tuple[str, ...]


@dataclass(frozen=True)
class Begin:
    """The prompt is known. n_reused: tokens of it that need not be computed."""

    n_prompt: int
    n_reused: int
    model: str


@dataclass(frozen=True)
class Part:
    """The new part of the answer number `choice`.

    tokens: those of the text, where their probabilities were asked for. ids: of the tokens, if the
    text continues a raw prompt. timings: so far, where they were asked for.
    """

    choice: int
    delta: Delta
    tokens: tuple[Token, ...] = ()
    ids: tuple[int, ...] = ()
    timings: Timings | None = None


@dataclass(frozen=True)
class Finish:
    """The end of the answer number `choice`. reason: of Engine.finish_reason.

    n_prompt: tokens of the prompt; 0 for further answers to the same one. n_token: of n_chosen().
    n_reasoning: tokens of the thought. stop: the stop string that ended the answer, or "". prompt:
    its text, where it was asked for.
    """

    choice: int
    reason: str
    n_prompt: int
    n_token: int
    n_reused: int = 0
    n_reasoning: int = 0
    stop: str = ""
    timings: Timings = Timings()
    prompt: str = ""


def n_chosen(n_token: int, reason: str, stop: str) -> int:
    """Return the tokens of an answer with the one that ended it, as OpenAI and llama.cpp count.

    stop: the text that ended it, or "": of the request, or of the model's template.
    """
    return n_token + (reason in ("stop", "tool_calls") and not stop)


Event = tuple[str, Json]
"""An event of a stream: its name, or "", and its data."""


class Writer(ABC):
    """Writes the answer to one request. A protocol has a subclass with the events that it knows.

    end: the line after the last event, or "".
    """

    end = ""

    def opening(self, begin: Begin) -> list[Event]:
        """Return the first events of a stream."""
        return []

    def progress(self, progress: Progress) -> list[Event]:
        """Return the events that tell how much of the prompt is read."""
        return []

    @abstractmethod
    def part(self, part: Part) -> list[Event]:
        """Return the events of a part."""

    @abstractmethod
    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the last events of a stream. `finishes` has the end of each answer."""

    @abstractmethod
    def failed(self, error: RequestRefused) -> list[Event]:
        """Return the last events of a stream that fails after its beginning."""

    @abstractmethod
    def whole(self, parts: list[Part], finishes: list[Finish]) -> Any:
        """Return the answer to a request that does not stream."""


# Reading requests.


@dataclass(frozen=True)
class Kind:
    """The type of a field: a test, and its words."""

    test: Callable[[Any], bool]
    words: str


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind(lambda v: isinstance(v, str), "text")
FLAG = Kind(lambda v: isinstance(v, bool), "true or false")
WHOLE = Kind(_is_whole, "a whole number")
POSITIVE = Kind(lambda v: _is_whole(v) and v > 0, "a positive whole number")
UP_TO_20 = Kind(lambda v: _is_whole(v) and 0 <= v <= 20, "a whole number from 0 to 20")
NUMBER = Kind(lambda v: isinstance(v, float) or _is_whole(v), "a number")
LIST = Kind(lambda v: isinstance(v, list), "a list")
TEXTS = Kind(lambda v: isinstance(v, list) and all(isinstance(t, str) for t in v), "a list of text")
OBJECT = Kind(lambda v: isinstance(v, dict), "an object")
ANY = Kind(lambda _: True, "anything")


def either(*kinds: Kind) -> Kind:
    """Return the kind of a value that is of one of the kinds."""
    return Kind(lambda v: any(k.test(v) for k in kinds), " or ".join(k.words for k in kinds))


class Fields:
    """A JSON object of a request. null counts as absent. `where`: its place, as in "messages.0"."""

    def __init__(self, data: Any, where: str = "") -> None:
        self.where = where
        if not isinstance(data, dict):
            what = where or "The request's body"
            raise RequestRefused(
                f"{what} must be {'an' if where else 'a JSON'} object.", param=where
            )
        self.data: Json = data
        self._known: set[str] = set()

    def get(self, name: str, kind: Kind, default: Any = None) -> Any:
        """Return a field. Raises RequestRefused for one of another kind."""
        self._known.add(name)
        value = self.data.get(name)
        if value is None:
            return default
        if not kind.test(value):
            raise self.refusal(name, f"must be {kind.words}")
        return value

    def need(self, name: str, kind: Kind) -> Any:
        """Return a field that must be there."""
        value = self.get(name, kind)
        if value is None:
            raise self.refusal(name, f"must be {kind.words}, but is missing")
        return value

    def table(self, name: str) -> Fields:
        """Return the fields of an object, or of an empty one."""
        return Fields(self.get(name, OBJECT, {}), self.path(name))

    def tables(self, name: str) -> list[Fields]:
        """Return the fields of each object in a list."""
        path = self.path(name)
        return [Fields(v, f"{path}.{i}") for i, v in enumerate(self.get(name, LIST, []))]

    def path(self, name: str) -> str:
        """Return the place of a field."""
        return f"{self.where}.{name}" if self.where else name

    def refusal(self, name: str, words: str) -> RequestRefused:
        """Return a refusal of one field."""
        path = self.path(name)
        return RequestRefused(f"{path} {words}.", param=path)

    def ignore(self, *names: str) -> None:
        """Pass over fields silently."""
        self._known.update(names)

    def others(self) -> tuple[str, ...]:
        """Return the fields that nobody asked for, and log them."""
        names = tuple(sorted(shown(self.path(name)) for name in self.data.keys() - self._known))
        for name in names:
            log_once(f"The field {name} is not known here and was ignored.")
        return names


_logged: set[str] = set()


def log_once(sentence: str) -> None:
    """Log a sentence, unless it was logged before."""
    if sentence not in _logged and len(_logged) < _NAMES_KEPT:
        _logged.add(sentence)
        _log.warning("%s", sentence)


def shown(name: str) -> str:
    """Return a name from a request for a message, cut if it is long."""
    name = "".join(c if c.isprintable() else "\ufffd" for c in name[: _NAME_CHARS + 1])
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}\u2026"


_KINDS: Mapping[str, Kind] = {
    "number": NUMBER,
    "count": WHOLE,
    "switch": FLAG,
    "texts": TEXTS,
    "names": either(TEXT, TEXTS),
}
_RULES = Sampling.rules()
N_SEED = int(_RULES["seed"].highest) + 1
"""Number of seeds. A request's seed is taken modulo this."""


_CHARS = dict(zip("edskypmxtia", _RULES["samplers"].choices, strict=True))
_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}
for _sampler in _RULES["samplers"].choices:
    _ALIASES |= {_sampler.replace("_", mark): _sampler for mark in ("_", "-", "")}
_OTHER_SAMPLING: Mapping[str, float] = {
    "tfs_z": 1, "top_a": 0, "smoothing_factor": 0, "epsilon_cutoff": 0, "eta_cutoff": 0,
    "penalty_alpha": 0, "guidance_scale": 1, "num_beams": 1, "n_discard": 0, "n_indent": 0,
}  # fmt: skip
"""Sampling fields of other servers, and their values without effect."""


def read_sampling(fields: Fields, n_probs: int = 0) -> Sampling:
    """Read how tokens are sampled; the names are those of OpenAI and llama.cpp."""
    for name, neutral in _OTHER_SAMPLING.items():
        if fields.get(name, NUMBER, neutral) not in (neutral, -1):
            raise fields.refusal(name, "is not possible here; leave it out")
    given: dict[str, Any] = {"logit_bias": _biases(fields), "n_probs": n_probs}
    for name, rule in _RULES.items():
        if name not in given and (value := fields.get(name, _KINDS[rule.kind])) is not None:
            given[name] = tuple(value) if isinstance(value, list) else value
    given.setdefault("repeat_penalty", fields.get("repetition_penalty", NUMBER, 1.0))
    if (seed := given.get("seed")) is not None:
        given["seed"] = None if seed == -1 else seed % N_SEED  # -1 is llama.cpp's random one
    given["top_k"] = max(given.get("top_k", Sampling().top_k), 0)
    if (samplers := given.get("samplers")) is not None:
        given["samplers"] = _samplers(fields, samplers)
    try:
        return Sampling(**given)
    except ValueError as error:
        raise RequestRefused(str(error)) from None


def _samplers(fields: Fields, given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of samplers, or llama.cpp's characters for them."""
    names = []
    for one in given:
        name = _CHARS.get(one) if isinstance(given, str) else _ALIASES.get(one.lower(), one)
        if name not in _RULES["samplers"].choices:
            raise fields.refusal("samplers", f"has {shown(one)}, which is no sampler")
        names.append(name)
    return tuple(names)


def _biases(fields: Fields) -> tuple[tuple[int | str, float], ...]:
    """Read OpenAI's object of biases, or llama.cpp's list of pairs, by token or by text."""
    given = fields.get("logit_bias", either(OBJECT, LIST), {})
    pairs = list(given.items()) if isinstance(given, dict) else given
    biases = []
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not (pair[1] is False or NUMBER.test(pair[1])):
            raise fields.refusal("logit_bias", "must map tokens or texts to numbers or false")
        token, bias = pair
        is_number = isinstance(token, str) and token.isascii() and token.isdigit()
        if isinstance(given, dict) and is_number and len(token) < 10:
            token = int(token)
        if not (isinstance(token, str) or (_is_whole(token) and 0 <= token < 1 << 31)):
            raise fields.refusal("logit_bias", "must map tokens or texts to numbers or false")
        biases.append((token, bias if bias is False else float(bias)))
    return tuple(biases)


def read_stops(fields: Fields, name: str) -> tuple[str, ...]:
    """Read the stop strings. Empty ones stop nothing and are left out."""
    stops = fields.get(name, either(TEXT, TEXTS), [])
    return tuple(dict.fromkeys(s for s in ([stops] if isinstance(stops, str) else stops) if s))


def read_options(**values: Any) -> ChatOptions:
    """Return the options of a conversation. Raises RequestRefused where they contradict."""
    try:
        return ChatOptions(**values)
    except ValueError as error:
        raise RequestRefused(str(error)) from None


# Reading conversations.


def read_tool(fields: Fields, schema: str) -> Json:
    """Read the definition of a function into OpenAI's form. schema: the name of its schema."""
    function: Json = {"name": _name(fields)}
    if description := fields.get("description", TEXT):
        function["description"] = description
    function["parameters"] = fields.get(schema, OBJECT) or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _name(fields: Fields) -> str:
    if not (name := fields.need("name", TEXT)):
        raise fields.refusal("name", "must not be empty")
    return str(name)


_TEXT_PARTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_IMAGE_PARTS = ("image_url", "input_image")


def read_content(fields: Fields, name: str = "content", *, may_lack: bool = False) -> Any:
    """Read text, or parts of text and images, of OpenAI's APIs. Return text or a list of parts."""
    content = fields.get(name, either(TEXT, LIST))
    if content is None and not may_lack:
        raise fields.refusal(name, "must be text or a list of parts")
    if not isinstance(content, list):
        return content or ""
    return joined(
        [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else _part(Fields(part, f"{fields.path(name)}.{i}"))
            for i, part in enumerate(content)
        ]
    )


def _part(part: Fields) -> Json:
    kind = part.need("type", TEXT)
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": part.need("text", TEXT)}
    if kind == "refusal":
        return {"type": "text", "text": part.need("refusal", TEXT)}
    if kind in _IMAGE_PARTS:
        url = part.need("image_url", either(TEXT, OBJECT))
        if isinstance(url, dict):
            url = part.table("image_url").need("url", TEXT)
        return read_image(url, part.where)
    raise unreadable(part, kind)


def unreadable(part: Fields, kind: str) -> RequestRefused:
    """Return a refusal of a part of a kind that this server cannot read."""
    return part.refusal("type", f"is {shown(kind)}, which this server cannot read")


def read_image(url: str, where: str) -> Json:
    """Return the part of a message for an image in a data URL."""
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise RequestRefused(
            f"{where} must be a data URL in base64; this server fetches nothing from the network.",
            param=where,
        )
    return {"type": "image", "data": data}


def joined(parts: list[Json]) -> str | list[Json]:
    """Return parts of a content as lines of one text, unless there is an image among them."""
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


@dataclass
class Conversation:
    """Collects messages in OpenAI's form."""

    messages: list[Json] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)  # of tools, by the id of the call

    def say(self, role: str, content: str | list[Json]) -> None:
        """Add a message."""
        self.messages.append({"role": role, "content": content})

    def assistant(
        self,
        content: str = "",
        reasoning: str = "",
        calls: Sequence[Json] = (),
        *,
        joins: bool = False,
    ) -> None:
        """Add a message of the assistant. joins: add to the last message if it is one."""
        if not joins or not self.messages or self.messages[-1]["role"] != "assistant":
            self.say("assistant", "")
        last = self.messages[-1]
        last["content"] += ("\n" if last["content"] and content else "") + content
        if reasoning:
            last["reasoning_content"] = last.get("reasoning_content", "") + reasoning
        for call in calls:
            last.setdefault("tool_calls", []).append(call)
            self._names[call["id"]] = call["function"]["name"]

    def result(self, call_id: str, content: str | list[Json], name: str = "") -> None:
        """Add what a tool returned. Its name is that of the call, if the request has none."""
        name = name or self._names.get(call_id, "")
        message = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.messages.append({**message, "name": name} if name else message)

    def take(self, message: Json) -> None:
        """Add a message as it is."""
        self.messages.append(message)
        for call in message.get("tool_calls", ()):
            self._names[call["id"]] = call["function"]["name"]

    def done(self, where: str) -> tuple[Json, ...]:
        """Return the messages. Raises RequestRefused where no answer can follow."""
        if not self.messages:
            raise RequestRefused(f"{where} must hold at least one message.", param=where)
        if self.messages[-1].get("tool_calls"):
            raise RequestRefused(
                f"{where} ends with a call of a tool, whose result is missing.", param=where
            )
        return tuple(self.messages)


def call_json(call_id: str, name: str, arguments: str) -> Json:
    """Return a call of a tool in OpenAI's form."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
