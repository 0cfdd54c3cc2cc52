"""A loaded model's conversation format, in a process that can be killed (format_child.py).

A template comes from a model file. It may hang, grow or crash, even within one operation in C++, so
it never runs in the engine's process. A deadline or Stop kills its process; the next use starts
another.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backend.llama import json_matcher, json_schema
from backend.llama.api import LlamaError
from backend.llama.guard import framing_texts
from backend.protocol.chat import (
    AnswerText,
    ChatFacts,
    ChatOptions,
    Delta,
    Json,
    restricts,
    tool_name,
)
from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system import children, faults
from backend.system.limits import reached_time_limit
from backend.text import text

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
RENDER_LIMIT_S = 3.0
"""The processor time that rendering a short conversation may take."""
_START_S = 60.0  # added for a busy machine, where processor time passes slowly
_N_LONG = 500  # messages; fewer are not shortened when they take too long
_READ_LIMIT_S = 10.0  # processor time for reading a piece of an answer
_SCHEMA_LIMIT_S = 3.0  # processor time for compiling a JSON schema
_N_SCHEMAS_MAX = 1024  # two requests with the most tools
_N_FACTS_MAX = 64
_facts_of: dict[bytes, ChatFacts] = {}
"""The facts of the sources that were asked, by SHA-256: a model that is loaded again has them."""
_ANY_OBJECT = '{"type":"object"}'
_log = logging.getLogger("outrider.schemas")
_NAME_CHARS_MAX = 80
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Trigger:
    """A trigger of a lazy grammar.

    kind: "token" or "word": this text; "pattern": a regular expression that is found in the answer;
    "pattern_full": one that matches the whole answer so far. The grammar begins with the first
    group of a pattern.
    """

    kind: str
    value: str


@dataclass(frozen=True)
class Gap:
    """A place in a grammar where JSON stands.

    number: what stands there in the grammar, as a text. schema: of the JSON, in JSON, prepared for
    llguidance. is_text: a text without quotes stands there; `schema` is json_schema.text_of() its.
    """

    number: int
    schema: str
    is_text: bool = False


@dataclass(frozen=True)
class Rendered:
    """A prompt, and how its answer is sampled and read.

    prompt, begun: with the marks of the guard, which tokens_of() and unmarked() read. grammar:
    GBNF, or "". grammar_lazy: it holds from a trigger on. gaps: where JSON stands in it. preserved:
    texts of tokens that AnswerReader needs although they are control tokens. stops: texts that end
    the answer. thinks: the prompt ends within an opened thought. begun: the part of the prompt that
    begins the answer, which the grammar takes as written. n_left_out: messages left out to shorten
    the conversation. fitted: the conversation's changes, as words of fitting.REMARKS.
    thinking_start, thinking_ends: the text that opens a thought, or "", and those that may end it.
    """

    prompt: str
    grammar: str = ""
    grammar_lazy: bool = False
    triggers: tuple[Trigger, ...] = ()
    gaps: tuple[Gap, ...] = ()
    preserved: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    thinks: bool = False
    begun: str = ""
    n_left_out: int = 0
    fitted: tuple[str, ...] = ()
    thinking_start: str = ""
    thinking_ends: tuple[str, ...] = ()
    parser: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rendered:
        """Read the reply of format_child.py. Raises KeyError, TypeError or ValueError."""
        return cls(
            prompt=data["prompt"],
            grammar=data["grammar"],
            grammar_lazy=data["grammar_lazy"],
            triggers=tuple(Trigger(kind, value) for kind, value in data["triggers"]),
            preserved=tuple(data["preserved"]),
            stops=tuple(data["stops"]),
            thinks=data["thinks"],
            begun=data["begun"],
            n_left_out=data["n_left_out"],
            fitted=tuple(data["fitted"]),
            thinking_start=data["thinking_start"],
            thinking_ends=tuple(data["thinking_ends"]),
            parser=data["parser"],
        )


class ChatFormat:
    """A template, ChatML if it is empty.

    name: the model's, for sentences. bos, eos: the texts of these tokens, or "". control,
    user_defined: the texts of tokens that no text of others may become. Render from one thread; a
    reader may read in another; stop() from any, also from a signal handler. The process starts at
    the first use or at start(), and is kept.
    """

    def __init__(
        self,
        name: str,
        template: str,
        bos: str,
        eos: str,
        control: Sequence[str] = (),
        user_defined: Sequence[str] = (),
    ) -> None:
        self._name = " ".join(name.split())[:_NAME_CHARS_MAX]
        template = template or CHATML
        self._source: Message = {
            "template": template,
            "bos": bos,
            "eos": eos,
            "control": list(control),
            "framing": framing_texts(user_defined, template),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._knows_source = False  # the process has received the template
        self._reads: AnswerReader | None = None  # the reader whose answer the process keeps
        self._is_rendering = False
        self._schemas: dict[str, str] = {}  # prepared and compiled once
        self._sound: set[str] = set()  # prepared, and compiled together with others
        self._free: set[str] = set()  # tools that are known to be held to no schema
        self._lock = threading.RLock()  # one request at a time

    def facts(self) -> ChatFacts:
        """Return the abilities of the template. Raises LlamaError when it fails or takes too long.

        No process is asked again for an answer that a ChatFormat of the same source has received.
        """
        source = hashlib.sha256(json.dumps(self._source).encode()).digest()
        if source not in _facts_of:
            reply = self._ask({"facts": True}, _limit_s(0), bool)
            assert reply is not None  # nothing stops it
            if len(_facts_of) >= _N_FACTS_MAX:
                _facts_of.clear()
            _facts_of[source] = ChatFacts.from_json(reply)
        return _facts_of[source]

    def render(
        self,
        messages: Sequence[Message],
        options: ChatOptions = ChatOptions(),
        is_stopped: Callable[[], bool] = bool,
    ) -> Rendered | None:
        """Return the prompt for an answer, or for the rest of a last message of the assistant.

        Return None when stopped: by stop() while it renders, or where is_stopped() is true when
        it begins. Raises LlamaError when the template fails, or takes too much time or memory,
        and for a JSON schema that cannot be guaranteed.
        """
        self._is_rendering = True  # set before is_stopped() is called, so that no stop is lost
        asked = options
        if options.json_schema is not None:
            self._held(options.json_schema)
            options = replace(options, json_schema={})  # of which the grammar says nothing
        written = {**options.to_json(), "gaps": json_matcher.is_installed()}
        request: Message = {"render": list(messages), "options": written}
        try:
            try:
                reply = self._ask(request, _limit_s(len(messages)), is_stopped)
            except _TooSlow:
                if len(messages) < _N_LONG:
                    raise
                request["options"] = {**written, "shorten": True}
                reply = self._ask(request, _limit_s(0), is_stopped)
        finally:
            self._is_rendering = False
        if reply is None:
            return None
        if not reply["gaps"] and options.json_schema is not None:
            raise LlamaError(text("schema.unused", model=self._name))
        self._note_sound(asked, reply["gaps"])
        gaps = tuple(self._gap(asked, *gap) for gap in reply["gaps"])
        if reply["grammar"] and not gaps and written["gaps"] and not options.grammar:
            self._tell_free(options.tools)
        return replace(Rendered.from_json(reply), gaps=gaps)

    def _tell_free(self, tools: Sequence[Json]) -> None:
        """Log, once for each, the tools whose calls have a form that no schema can be held in."""
        for tool in tools:
            name = ascii(tool_name(tool))[:60]
            properties = (tool["function"].get("parameters") or {}).get("properties")
            is_held = not isinstance(properties, dict) or not any(
                map(restricts, properties.values())
            )
            if not (is_held or name in self._free) and len(self._free) < _N_SCHEMAS_MAX:
                self._free.add(name)
                _log.warning("Not held in the JSON schema of the tool %s: its keywords.", name)

    def _gap(
        self, options: ChatOptions, number: int, tool: str, parameter: str, is_text: bool
    ) -> Gap:
        """Return a gap for the answer's schema, or for the parameters of a tool or one of them."""
        if not tool:
            assert options.json_schema is not None
            return Gap(number, self._held(options.json_schema))
        schema = _parameters(options, tool, parameter)
        other = json_schema.text_of({}) if is_text else "{}" if parameter else _ANY_OBJECT
        return Gap(number, self._held(schema, tool, other, is_text), is_text)

    def _note_sound(self, options: ChatOptions, gaps: Sequence[tuple[int, str, str, bool]]) -> None:
        """Compile the schemas of many tools as one, in a fortieth of the time of each by itself.

        Where that fails, each is compiled by itself.
        """
        for is_text in (False, True):
            places = [gap[1:3] for gap in gaps if gap[1] and gap[3] == is_text]
            found = {
                _prepared(_parameters(options, *place), is_text)
                for place in places[:_N_SCHEMAS_MAX]
                if len(places) > 1
            }
            found = {one for one in found if "$ref" not in one} - self._sound - {""}
            if is_text:
                joint = " | ".join(f"({one})" for one in found)
            else:
                parts = ", ".join(f'"{i}": {one}' for i, one in enumerate(found))
                joint = f'{{"type": "object", "properties": {{{parts}}}}}'
            if len(found) > 1 and not self._fault(joint, is_text):
                self._sound = (self._sound | found) if len(self._sound) < _N_SCHEMAS_MAX else found

    def _held(self, schema: Json, tool: str = "", other: str = "", is_text: bool = False) -> str:
        """Return a schema for llguidance that compiles within the time limit. Raises LlamaError.

        tool: the schema is of its parameters. They are a wish: a part that cannot be held is
        logged; `other` is returned if none can.
        """
        try:
            key = json.dumps([schema, bool(tool), is_text])
        except RecursionError:
            raise LlamaError(text("schema.too_deep")) from None
        if key not in self._schemas:
            found = fault = ""
            not_held: list[str] = []
            for opened in (False, True):
                prepared, not_held = json_schema.prepared(schema, opened=opened, lenient=bool(tool))
                found = json_schema.text_of(prepared) if is_text else json.dumps(prepared)
                fault = self._fault(found, is_text)
                if fault in ("", text("schema.too_complex")):
                    break
            if fault and not tool:
                raise LlamaError(fault)
            if fault:
                found, not_held = other, [fault]
            if not_held:
                of = f" of the tool {ascii(tool)[:60]}" if tool else ""
                _log.warning("Not held in the JSON schema%s: %s.", of, "; ".join(not_held)[:300])
            if len(self._schemas) >= _N_SCHEMAS_MAX:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[key] = found
        return self._schemas[key]

    def _fault(self, schema: str, is_text: bool) -> str:
        """Return why no answer can be held to a prepared schema, or "", within the time limit."""
        if schema in self._sound:
            return ""
        try:
            reply = self._ask({"schema": schema, "is_text": is_text}, _SCHEMA_LIMIT_S, bool)
        except (_TooSlow, _ProcessEnded):
            return str(text("schema.too_complex"))
        return "" if reply is None else str(reply["fault"])

    def reader(self, rendered: Rendered) -> AnswerReader:
        """Return what reads the answer to this prompt."""
        return AnswerReader(self, rendered)

    def start(self) -> None:
        """Start the process, unless it runs, without waiting for it. Raises LlamaError."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            self._knows_source, self._reads = False, None
            try:
                self._process = children.start("backend.llama.format_child")
            except OSError as error:
                reason = text("template.not_started", reason=error.strerror or str(error))
                raise self._refusal(reason) from None

    def stop(self) -> None:
        """End the rendering in progress, if any."""
        process = self._process
        if self._is_rendering and process is not None:
            process.kill()

    def close(self) -> None:
        """End the process. A later use starts another."""
        if (process := self._process) is not None:
            process.kill()  # before the lock, so that a request ends
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _read(self, reader: AnswerReader, text: str, *, is_final: bool) -> Delta | None:
        """Read further text of an answer; None where the process fails."""
        with self._lock:
            self.start()
            request: Message = {"text": text, "final": is_final}
            if self._reads is not reader:
                shown = reader.shown
                request = {
                    "open": dict(reader.rendered.parser),
                    "shown": Delta(
                        shown.reasoning, shown.content, dict(enumerate(shown.tool_calls))
                    ).to_json(),
                    **request,
                    "text": reader.raw,
                }
            try:
                reply = self._ask(request, _READ_LIMIT_S, bool)
            except LlamaError:
                return None
            self._reads = reader
            return None if reply is None else Delta.from_json(reply)

    def _ask(
        self, request: Message, limit_s: float, is_stopped: Callable[[], bool]
    ) -> Message | None:
        """Return the reply to a request; None when stopped. Raises LlamaError."""
        with self._lock:
            self.start()
            was_used = self._knows_source
            try:
                return self._ask_process(request, limit_s, is_stopped)
            except _ProcessEnded:
                if not was_used:
                    raise
            # It may have been killed since its last use. A new one fails only by the template.
            self.start()
            return self._ask_process(request, limit_s, is_stopped)

    def _ask_process(
        self, request: Message, limit_s: float, is_stopped: Callable[[], bool]
    ) -> Message | None:
        process = self._process
        assert process is not None
        if is_stopped():
            return None
        n_reply = 1 if self._knows_source else 2
        try:
            frames = b"" if self._knows_source else encode({**self._source, "limit_s": limit_s})
            frames += encode({**request, "limit_s": limit_s})
        except ProtocolError:
            raise self._refusal(text("template.long_conversation")) from None
        self._knows_source = True
        reply, status, began_s = None, 0, time.monotonic()
        with _deadlines.of(process, limit_s + _START_S) as is_late:
            try:
                reply = _exchange(process, frames, n_reply)
            finally:
                if reply is None:  # it ended, or KeyboardInterrupt left a reply in the pipe
                    process.kill()
                    status = process.wait()
                    self.close()
        if reply is not None:
            if "error" in reply:
                raise self._refusal(reply["error"])
            return reply
        if is_stopped():
            return None
        if is_late() or reached_time_limit(status, time.monotonic() - began_s, limit_s):
            raise _TooSlow(text("template.too_slow", model=self._name))
        reason = faults.of_process(process.pid) or text("template.ended", status=status)
        raise _ProcessEnded(text("template.failed", model=self._name, reason=reason))

    def _refusal(self, reason: str) -> LlamaError:
        return LlamaError(text("template.failed", model=self._name, reason=reason))


def _parameters(options: ChatOptions, tool: str, parameter: str) -> Json:
    """Return the schema of a tool's parameters, or of one of them."""
    wanted = next(one for one in options.tools if tool_name(one) == tool)
    schema: Json = wanted["function"]["parameters"]
    if parameter:
        shared: Json = {n: schema[n] for n in ("$defs", "definitions") if n in schema}
        schema = {**shared, **schema["properties"][parameter]}
    return schema


def _prepared(schema: Json, is_text: bool) -> str:
    """Return a tool's schema for llguidance, as it is tried first; "" where it is too deep."""
    try:
        prepared, _ = json_schema.prepared(schema, opened=False, lenient=True)
    except RecursionError:
        return ""
    return json_schema.text_of(prepared) if is_text else json.dumps(prepared)


class _TooSlow(LlamaError):
    """The process reached its deadline."""


class _ProcessEnded(LlamaError):
    """The process ended, for no reason that is known."""


class AnswerReader:
    """Splits one answer into thought, content and tool calls while it is written.

    Text that it has returned is never taken back. Use from one thread. rendered: the prompt's. raw:
    the answer's text so far. shown: the sum of the returned deltas.
    """

    def __init__(self, chat_format: ChatFormat, rendered: Rendered) -> None:
        self.rendered = rendered
        self.raw = ""
        self.shown = AnswerText()
        self._format = chat_format
        self._is_plain = False  # the process failed twice; the rest is content

    def feed(self, text: str) -> Delta:
        """Add text and return what the answer gained. Text that may become a mark is held back."""
        return self._add(text, is_final=False)

    def finish(self) -> Delta:
        """Return the rest of the answer, which is complete."""
        return self._add("", is_final=True)

    def _add(self, text: str, *, is_final: bool) -> Delta:
        self.raw += text
        delta = None
        if not self._is_plain:
            delta = self._format._read(self, text, is_final=is_final)
            if delta is None:  # a process may have been killed; another gets the whole answer
                delta = self._format._read(self, text, is_final=is_final)
        if delta is None:
            delta = Delta(content=text if self._is_plain else self._unread())
            self._is_plain = True
        self.shown.add(delta)
        return delta

    def _unread(self) -> str:
        """Return the text that follows the text shown last."""
        shown = self.shown.content or self.shown.reasoning
        return self.raw[self.raw.rfind(shown) + len(shown) :] if shown in self.raw else self.raw


class PlainReader:
    """Reads the answer to a raw prompt, which is all content. As AnswerReader."""

    def __init__(self) -> None:
        self.shown = AnswerText()

    def feed(self, text: str) -> Delta:
        """Add text and return what the answer gained."""
        delta = Delta(content=text)
        self.shown.add(delta)
        return delta

    def finish(self) -> Delta:
        """Return the rest of the answer, which is empty."""
        return Delta()


def _limit_s(n_message: int) -> float:
    """Return the processor time that rendering may take, in seconds.

    conversation_format.py leaves out the oldest messages where a template looks back at all. Where
    rendering takes too long nonetheless, they are left out in another process.
    """
    return RENDER_LIMIT_S + n_message / 2000


class Deadlines:
    """Kills processes that are late with a reply, from one thread while replies are awaited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._awaited: dict[threading.Event, tuple[float, subprocess.Popen[bytes]]] = {}
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def of(self, process: subprocess.Popen[bytes], limit_s: float) -> Iterator[Callable[[], bool]]:
        """Kill the process after limit_s, _START_S or more. Yields what tells whether it was."""
        is_late = threading.Event()
        with self._lock:
            self._awaited[is_late] = time.monotonic() + limit_s, process
            if self._thread is None or not self._thread.is_alive():
                self._thread = faults.Thread(
                    "template deadlines", self._run, failed=faults.no_place
                )
                self._thread.start()
        try:
            yield is_late.is_set
        finally:
            with self._lock:
                self._awaited.pop(is_late, None)

    def _run(self) -> None:
        """Look whenever one may be late. A reply that is asked for meanwhile is due after that."""
        while True:
            with self._lock:
                now_s = time.monotonic()
                for is_late, (until_s, process) in [*self._awaited.items()]:
                    if until_s <= now_s:
                        is_late.set()
                        process.kill()
                        del self._awaited[is_late]
                if not self._awaited:
                    self._thread = None
                    return
                until_s = min(until_s for until_s, _ in self._awaited.values())
            time.sleep(min(until_s - now_s, _START_S))


_deadlines = Deadlines()


def _exchange(process: subprocess.Popen[bytes], frames: bytes, n_reply: int) -> Message | None:
    """Send frames and return the last reply; None if the process ended or sent rubbish."""
    assert process.stdin is not None and process.stdout is not None
    decoder = Decoder()
    replies: list[Json] = []
    try:
        rest = memoryview(frames)
        while rest:
            rest = rest[process.stdin.write(rest) :]
        while data := process.stdout.read(_READ_BYTES):
            replies += decoder.feed(data)
            if len(replies) >= n_reply:
                return replies[-1]
    except (OSError, ProtocolError):
        pass
    return None
