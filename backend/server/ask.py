"""The common form of all protocols: a request, the parts of its answer, and refusals.

Each protocol reads its requests into an `Ask` and writes its answers from `Part`s. Fields that are
not known are ignored, and logged once each; a known field of a wrong type is refused by name.
"""

from __future__ import annotations

import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
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
PING_S = 10.0
TOO_LONG = "exceed_context_size_error"
"""The kind of the refusal of a prompt that does not fit into the context; llama.cpp's name."""
MAX_BREAKERS = 16
"""Maximum of dry_sequence_breakers: llama.cpp compares each with the whole vocabulary, 65 ms of one
of 150,000 tokens."""
MAX_SAMPLERS = 64
"""Maximum of names of samplers."""
MAX_ALTERNATIVES = 500
"""Maximum of alternatives in a grammar. llama.cpp follows them all at once, 2.5 ms each."""
MAX_SCHEMA_VALUES = 4096
"""Maximum of values in the schema of an answer, 0.25 ms each."""
MAX_TEXTS = 1024
"""Maximum of biases by text, and of stops: each is split into tokens, or compared at each token."""
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
    forms: Mapping[str, Any] = field(default_factory=dict)
    """How tools were offered that are no plain functions, as tools.Form, by name."""
    ping_s: float = PING_S
    """Longest silence of a stream of events, after which a comment follows; 0: no comments."""
    asked_s: float = field(default_factory=time.perf_counter, compare=False)
    """When it was read (time.perf_counter)."""

    @property
    def has_images(self) -> bool:
        """Whether a message has an image."""
        return bool(images_of(self.messages))


_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}


def in_line(data: Any, *, allow_nan: bool = True) -> str:
    """Return JSON that stands in one line, also for programs that know other line breaks."""
    return json.dumps(data, ensure_ascii=False, allow_nan=allow_nan).translate(_BREAKS)


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
        }

    def beside(self) -> Json:
        """Return `timings`, which has numbers only, and beside it `runs`, at the end."""
        return {"timings": self.to_json(), **({"runs": self.runs} if self.runs else {})}


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

    def failed(self, error: RequestRefused, form: Json) -> list[Event]:
        """Return the last events of a stream that fails later. `form` is the error as JSON."""
        return [("", form)]

    @abstractmethod
    def whole(self, parts: list[Part], finishes: list[Finish]) -> Any:
        """Return the answer to a request that does not stream."""


# Reading requests.


class Mended(Json):
    """The body of a request whose halves of characters were replaced."""


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
    """A JSON object of a request. null counts as absent. `where`: its place, as in "messages.0".

    whole: the object that has it. is_past: it belongs to a message of the history, which stays in
    all later requests. A refusal would end the conversation for good, so nothing of it is refused:
    a field of another kind counts as absent, and is named by others().
    """

    def __init__(self, data: Any, where: str = "", whole: Fields | None = None) -> None:
        self.where = where
        if not isinstance(data, dict):
            what = where or "The request's body"
            raise RequestRefused(
                f"{what} must be {'an' if where else 'a JSON'} object.", param=where
            )
        self.data: Json = data
        self.is_past: bool = whole is not None and whole.is_past
        self._known: set[str] = set() if whole is None else {*_HARMLESS_INSIDE}
        self._inner: dict[str, list[Fields]] = {}
        self._left: list[str] = [] if whole is None else whole._left
        if isinstance(data, Mended):
            self._left.append("text (halves of characters)")

    def get(self, name: str, kind: Kind, default: Any = None) -> Any:
        """Return a field. Raises RequestRefused for one of another kind."""
        self._known.add(name)
        value = self.data.get(name)
        if value is None or kind.test(value):
            return default if value is None else value
        if isinstance(value, float) and value.is_integer() and kind.test(int(value)):
            return int(value)  # JSON has one kind of numbers
        if self.is_past:
            self.leave(name)
            return default
        raise self.refusal(name, f"must be {kind.words}")

    def need(self, name: str, kind: Kind) -> Any:
        """Return a field that must be there. In the history it is "" where it is missing."""
        value = self.get(name, kind)
        if value is None:
            if self.is_past:
                return ""
            raise self.refusal(name, f"must be {kind.words}, but is missing")
        return value

    def table(self, name: str) -> Fields:
        """Return the fields of an object, or of an empty one."""
        if name not in self._inner:
            self._inner[name] = [Fields(self.get(name, OBJECT, {}), self.path(name), self)]
        return self._inner[name][0]

    def tables(self, name: str, *, last: bool = False) -> list[Fields]:
        """Return the fields of each object in a list. last: all but the last one are past."""
        if name not in self._inner:
            given = list(enumerate(self.get(name, LIST, [])))
            n_past = len(given) if self.is_past else len(given) - 1 if last else 0
            if gone := [i for i, v in given[:n_past] if not isinstance(v, dict)]:
                self.leave(*(f"{name}.{i}" for i in gone))
                given = [(i, v) for i, v in given if i not in gone]
            path = self.path(name)
            self._inner[name] = [Fields(v, f"{path}.{i}", self) for i, v in given]
        return self._inner[name]

    def parts(self, name: str, *, may_lack: bool = False) -> list[Fields]:
        """Return the parts of a content. A text, or another value in the history, is a part.

        may_lack: the content may be missing, as that of each message in the history.
        """
        self._known.add(name)
        content = self.data.get(name)
        if isinstance(content, dict) and "type" in content:
            content = [content]
        is_text = isinstance(content, str)
        if not (is_text or isinstance(content, list) or self.is_past):
            if content is None and may_lack:
                return []
            raise self.refusal(name, "must be text or a list of parts")
        given = content if isinstance(content, list) else [content]
        found = []
        for i, value in enumerate(given):
            if not isinstance(value, dict) and (self.is_past or isinstance(value, str)):
                if value is None:
                    continue
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                value = {"type": "text", "text": text}
            found.append(Fields(value, f"{self.path(name)}.{i}", self))
        self._inner[name] = found
        return found

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

    def ignore_all(self) -> None:
        """Pass over all fields and inner ones silently."""
        self._known.update(self.data)
        self._inner.clear()

    def leave(self, *names: str, kind: str = "") -> None:
        """Have others() name fields, or parts of a kind, that are left out."""
        of_kind = f" ({shown(kind)})" if kind else ""
        self._left += [shown(self.path(name) if name else self.where) + of_kind for name in names]

    def others(self) -> tuple[str, ...]:
        """Return the fields that nobody asked for, also inner ones, and what was left out.

        Of fields that differ only in the number of their message or part, the first is named. Log
        each name once.
        """
        names: dict[str, str] = {}
        unknown = set(self._unknown())
        for name in [*sorted(unknown), *self._left]:
            names.setdefault(_NUMBER_IN_PATH.sub(".", name), name)
        found = tuple(names.values())[:MAX_NAMED]
        for name in found:
            why = "is not known here" if name in unknown else "cannot be read here"
            log_once(f"The field {name} {why} and was ignored.")
        n_more = len(names) - MAX_NAMED
        return (*found, f"{n_more} more") if n_more > 0 else found

    def _unknown(self) -> Iterator[str]:
        names = (name for name in self.data.keys() - self._known if self.data[name] is not None)
        yield from (shown(self.path(name)) for name in names)
        for inner in self._inner.values():
            for fields in inner:
                yield from fields._unknown()


_HARMLESS_INSIDE = frozenset({
    "type", "id", "index", "status", "cache_control", "annotations", "logprobs", "signature",
    "encrypted_content", "strict", "caller", "citations", "phase", "detail", "title", "context",
    "prompt_cache_breakpoint", "allowed_callers", "defer_loading", "eager_input_streaming",
    "input_examples", "output_schema", "toolset_name", "is_error", "async",
})  # fmt: skip
"""Fields of messages, parts and tools that change nothing for a local model."""
MAX_NAMED = 32
"""Maximum of fields that an answer names as ignored."""
_NUMBER_IN_PATH = re.compile(r"\.\d+(?=\.| |$)")
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
    for name, most in (("dry_sequence_breakers", MAX_BREAKERS), ("samplers", MAX_SAMPLERS)):
        if len(given.get(name, ())) > most:
            raise fields.refusal(name, f"has more than {most} texts")
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
    if sum(isinstance(token, str) for token, _ in biases) > MAX_TEXTS:
        raise fields.refusal("logit_bias", f"has more than {MAX_TEXTS} texts")
    return tuple(biases)


def read_stops(fields: Fields, name: str) -> tuple[str, ...]:
    """Read the stop strings. Empty ones stop nothing and are left out."""
    stops = fields.get(name, either(TEXT, TEXTS), [])
    if not isinstance(stops, str) and len(stops) > MAX_TEXTS:
        raise fields.refusal(name, f"has more than {MAX_TEXTS} texts")
    return tuple(dict.fromkeys(s for s in ([stops] if isinstance(stops, str) else stops) if s))


def read_format(fields: Fields) -> Json:
    """Read the form of the answer: the options json_schema and grammar.

    Clients write it in the fields of other protocols and servers, too. What cannot be met is
    refused: an answer in another form would be taken for one in that form.
    """
    places = [fields]
    places += [fields.table(n) for n in ("text", "output_config", "structured_outputs")
               if OBJECT.test(fields.data.get(n))]  # fmt: skip
    schemas: dict[str, Json] = {}
    grammars: dict[str, str] = {}
    for place in places:
        for name in _FORMATS:
            if (given := place.get(name, ANY)) is not None:
                schema = _schema_in(place, name, given)
                if schema is not None:
                    schemas[place.path(name)] = schema
        for name in ("grammar", "guided_grammar"):
            if grammar := place.get(name, TEXT, ""):
                grammars[place.path(name)] = grammar
        for name in _NO_FORMATS if place.where in ("", "structured_outputs") else ():
            if place.get(name, ANY) not in (None, [], "", False):
                words = "is not possible here; send response_format with a JSON schema, or grammar"
                raise place.refusal(name, words)
    for found in (schemas, grammars):
        names, values = list(found), list(found.values())
        for name, value in zip(names[1:], values[1:], strict=True):
            if value != values[0]:
                raise RequestRefused(f"{name} contradicts {names[0]}.", param=name)
    schema = next(iter(schemas.values()), None)
    grammar = next(iter(grammars.values()), "")
    if _n_value(schema) > MAX_SCHEMA_VALUES:
        words = f"{next(iter(schemas))} has a schema of more than {MAX_SCHEMA_VALUES:,} values."
        raise RequestRefused(words, param=next(iter(schemas)))
    if grammar.count("|") >= MAX_ALTERNATIVES:
        words = f"{next(iter(grammars))} has more than {MAX_ALTERNATIVES} alternatives."
        raise RequestRefused(words, param=next(iter(grammars)))
    return {"json_schema": {"type": "object"} if schema == {} else schema, "grammar": grammar}


def _n_value(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_n_value, inner))


_FORMATS = ("response_format", "format", "output_format", "json_schema", "guided_json", "json")
_NO_FORMATS = ("guided_regex", "guided_choice", "guided_decoding", "regex", "choice",
               "structural_tag")  # fmt: skip
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_OF_SCHEMAS = ("properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "$defs")


def _schema_in(place: Fields, name: str, given: Any) -> Json | None:
    """Return the schema in a wish for a form, at whatever level it stands; None for text."""
    if isinstance(given, str) and given in ("", "text", "json", "json_object"):
        return {} if given.startswith("json") else None
    if not isinstance(given, dict):
        raise place.refusal(name, 'must be "json" or an object with a schema')
    kind, schema = given.get("type"), given.get("schema")
    if not isinstance(schema, dict | None):
        raise place.refusal(f"{name}.schema", "must be an object")
    if name in ("json_schema", "guided_json", "json") and not isinstance(schema, dict):
        return given
    if kind == "text":
        return None
    if kind == "json_object":
        return schema or {}
    inner = given.get("json_schema")
    for found in (inner.get("schema") if isinstance(inner, dict) else None, schema):
        if isinstance(found, dict):
            return found
    if isinstance(inner, dict) and _is_schema(inner):
        return inner
    if kind == "json_schema":
        raise place.refusal(name, "has no schema")
    if _is_schema(given) or not given:
        return given
    raise place.table(name).refusal("type", "must be text, json_object or json_schema")


def _is_schema(value: Json) -> bool:
    return value.get("type") in _TYPES or any(name in value for name in _OF_SCHEMAS)


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
_IMAGE_PARTS = ("image_url", "input_image", "computer_screenshot")
_THOUGHT_PARTS = ("thinking", "reasoning")
_OPAQUE = frozenset({
    "type", "id", "call_id", "tool_use_id", "status", "data", "file_data", "file_id", "image_url",
    "signature", "encrypted_content", "encrypted_index", "cache_control", "citations", "caller",
    "container_id", "fingerprint", "media_type", "page_age",
})  # fmt: skip
"""Fields of a foreign part that say nothing to a model."""
_DATA_CHARS = 200  # a longer text without white space is no words


def messages_of(fields: Fields, name: str) -> list[Fields]:
    """Return the messages, or items, of a conversation. All but a last one of the user are past."""
    messages = fields.tables(name, last=True)
    for message in messages:
        is_answer = message.data.get("role") in ("assistant", "tool", "function")
        is_item = message.data.get("type", "message") != "message"
        message.is_past = message is not messages[-1] or is_answer or is_item
    return messages


def role_of(message: Fields, *known: str) -> str:
    """Return the role of a message. One of the history that is not known is the user's."""
    role: str = message.need("role", TEXT)
    if role in known:
        return role
    if not message.is_past:
        raise message.refusal("role", f"must be {', '.join(known[:-1])} or {known[-1]}")
    message.leave("role")
    return "user"


def read_part(part: Fields, read: Callable[[Fields, str], Json | None]) -> Json:
    """Return a part of a message by `read`, which returns None for a kind that it cannot read.

    What cannot be read is refused in the present message. In the history its words stand in its
    place, and it is named.
    """
    kind = part.get("type", TEXT, "text") if "text" in part.data else part.need("type", TEXT)
    try:
        if (found := read(part, kind)) is not None:
            return found
        source = part.data.get("source")
        if isinstance(source, dict) and isinstance(source.get("type"), str):
            words = f"is {shown(source['type'])}, which this server cannot read"
            raise part.refusal("source.type", words)
        raise part.refusal("type", f"is {shown(kind)}, which this server cannot read")
    except RequestRefused:
        if not part.is_past:
            raise
    part.ignore_all()
    if not kind:  # a result of a tool that is no list of parts
        return {"type": "text", "text": json.dumps(part.data, ensure_ascii=False)}
    part.leave("", kind=kind)
    return in_its_place(part, kind)


def in_its_place(part: Fields, kind: str) -> Json:
    """Return a part of text with the words of a foreign part."""
    words = "\n".join(_words(part.data)) or "left out, because it cannot be read here"
    return {"type": "text", "text": f"[{shown(kind)}: {words}]"}


def _words(value: Any) -> Iterator[str]:
    """Yield the texts of a foreign part that a model can read."""
    if isinstance(value, str):
        if value and (len(value) <= _DATA_CHARS or any(map(str.isspace, value))):
            yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _OPAQUE:
                yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)


def read_content(fields: Fields, name: str = "content", *, may_lack: bool = False) -> Any:
    """Read text, or parts of text and images, of OpenAI's APIs. Return text or a list of parts."""
    return joined([read_part(part, _part) for part in fields.parts(name, may_lack=may_lack)])


def read_answer(message: Fields) -> tuple[str, str]:
    """Read the content of an answer in the history. Return its text and its thought."""
    parts = [read_part(part, _answer_part) for part in message.parts("content")]
    texts, thoughts = (
        [part["text"] for part in parts if part["type"] == kind] for kind in ("text", "thought")
    )
    return "\n".join(texts), "\n".join(thoughts)


def _answer_part(part: Fields, kind: str) -> Json | None:
    if kind in _THOUGHT_PARTS:
        inner = next((n for n in (kind, "text", "content", "summary") if n in part.data), "text")
        thought = read_content(part, inner, may_lack=True)
        return {"type": "thought", "text": thought if isinstance(thought, str) else ""}
    return None if kind in _IMAGE_PARTS else _part(part, kind)


def tool_reference(part: Fields) -> Json:
    """Return the words for a tool that a search has found."""
    return {"type": "text", "text": f"The tool {part.need('tool_name', TEXT)} can be called."}


def _part(part: Fields, kind: str) -> Json | None:
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text", TEXT, "")}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal", TEXT, "")}
    if kind == "tool_reference":
        return tool_reference(part)
    if kind in _IMAGE_PARTS:
        url = part.need("image_url", either(TEXT, OBJECT))
        if isinstance(url, dict):
            url = part.table("image_url").need("url", TEXT)
        return read_image(url, part.where)
    return None


def read_image(url: str, where: str) -> Json:
    """Return the part of a message for an image in a data URL."""
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise RequestRefused(
            f"{where} must be a data URL in base64; this server fetches nothing from the network.",
            param=where,
        )
    if kind := next((kind for kind, start in _OTHER_IMAGES.items() if data.startswith(start)), ""):
        raise RequestRefused(f"{where} is a {kind} image; send PNG or JPEG.", param=where)
    return {"type": "image", "data": data}


_OTHER_IMAGES = {"WebP": "UklGR", "GIF": "R0lGOD"}
"""How files begin in base64 that the reader of images does not know."""


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


def arguments_text(given: Any) -> str:
    """Return the arguments of a call as JSON, which may have come as text already."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def call_json(call_id: str, name: str, arguments: str) -> Json:
    """Return a call of a tool in OpenAI's form."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
