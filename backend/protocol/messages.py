"""The messages between the engine's process and its clients.

A message is a 4-byte big-endian length, followed by that number of bytes of UTF-8 JSON: one object
with a text field "type". A backend.text.Text is sent with its id and values, and arrives as a Text.
Everything else arrives as the same JSON, also an object that looks like a Text. Nothing is pickled.
This module depends neither on Qt nor on the engine. The worker (backend/worker/main.py) and its
clients (backend/protocol/connection.py) share it.
docs/howto/message.md adds a message as an example.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from backend.protocol.attachments import Attachment, Picture
from backend.protocol.chat import Delta, is_conversation, is_text
from backend.protocol.errors import RequestError
from backend.protocol.settings import KINDS, EngineConfig, Rule
from backend.protocol.statistics import Batch, Residency, Statistics
from backend.protocol.status import Advice, CacheFacts, LearningFacts, ModelFacts
from backend.text import from_json, to_json

VERSION = 2
"""Version of the messages. A worker and a client of different versions refuse each other."""

MAX_BYTES = 64 * 1024 * 1024
"""Largest body of one message in bytes."""

N_ANSWER_MAX = 8
"""Maximum of answers that one request may have written jointly."""

EXIT_PROTOCOL = 2
"""The worker's exit status after a frame that it cannot trust or a client of another version."""

Message = dict[str, Any]

_HEADER = struct.Struct(">I")


class ProtocolError(ValueError):
    """The stream of bytes is broken; str() is one plain sentence.

    messages: the messages decoded from the same bytes before the fault.
    """

    def __init__(self, sentence: str, messages: list[Message] | None = None) -> None:
        super().__init__(sentence)
        self.messages: list[Message] = messages or []


def encode(message: Mapping[str, Any]) -> bytes:
    """Return `message` as one frame.

    Raises ProtocolError where it is longer than MAX_BYTES or nested too deeply, and ValueError or
    TypeError where it holds a value that JSON does not have (NaN, infinity, bytes).
    """
    try:
        # In ASCII, a lone surrogate (an undecodable byte of a path) survives the round trip.
        body = json.dumps(to_json(message), allow_nan=False, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ProtocolError("A message is nested too deeply.") from None
    if len(body) > MAX_BYTES:
        raise ProtocolError(
            f"A message of {len(body)} bytes is longer than the {MAX_BYTES} bytes allowed."
        )
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Turns bytes, in pieces of any size, into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken: str | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Add `data` and return the messages that are now complete, oldest first.

        Raises ProtocolError at an oversized or malformed frame, and at every later call.
        """
        if self._broken is not None:
            raise ProtocolError(self._broken)
        self._buffer += data
        messages: list[Message] = []
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, start)
                if length > MAX_BYTES:
                    raise ProtocolError(
                        f"A message claims {length} bytes, more than the {MAX_BYTES} allowed."
                    )
                end = start + _HEADER.size + length
                if len(self._buffer) < end:
                    break
                messages.append(_parse(bytes(self._buffer[start + _HEADER.size : end])))
                start = end
        except ProtocolError as error:
            self._broken = str(error)
            self._buffer.clear()
            raise ProtocolError(self._broken, messages) from None
        del self._buffer[:start]
        return messages


def _parse(body: bytes) -> Message:
    """Return the JSON object in `body`. Raises ProtocolError."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=refuse, object_hook=from_json)
    except (ValueError, RecursionError):
        raise ProtocolError("A message is not valid JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise ProtocolError("A message is not a JSON object.")
    return value


# The requests of a client. Each field has a test, and words for the value that it must have.


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


_Test = tuple[Callable[[object], bool], str]


def _test_of(rule: Rule) -> _Test:
    return rule.has_type, KINDS[rule.kind].words


_BOOL: _Test = _test_of(Rule("switch"))
_INT: _Test = _test_of(Rule("count"))
_TEXT: _Test = (is_text, "text")
_PATH: _Test = (_is_path, "a path")
_OWNER: _Test = (
    lambda value: isinstance(value, str) and re.fullmatch(r"[a-z0-9-]{1,40}", value) is not None,
    "a name of at most 40 letters, digits and hyphens",
)
"""Who keeps the state of a conversation on the drive: the name of a folder."""
_OBJECT: _Test = (lambda value: isinstance(value, dict), "an object")
_PATHS: _Test = (
    lambda value: isinstance(value, dict) and all(map(_is_path, value.values())),
    "an object with a path for each name",
)
_CONVERSATION: _Test = (is_conversation, 'a list of objects with a known "role" and "content"')

_Fields = dict[str, tuple[_Test, bool]]  # name -> (test, whether it is required)
_ID: _Fields = {"id": (_INT, True)}
_SETTINGS: _Fields = {
    name: (_test_of(rule), rule.required)
    for name, rule in EngineConfig.rules().items()
    if rule.in_message
}

REQUESTS: Mapping[str, _Fields] = {
    "hello": {"version": (_INT, True)},
    "load": {**_ID, "path": (_PATH, True), **_SETTINGS},
    "configure": {**_ID, **_SETTINGS},
    "generate": {
        **_ID,
        "messages": (_CONVERSATION, False),
        "prompt": (_TEXT, False),
        "options": (_OBJECT, False),
        "sampling": (_OBJECT, True),
        "max_tokens": (_INT, True),
        "owner": (_OWNER, False),
        "n_answer": (_INT, False),
        "aside": (_BOOL, False),
    },
    "format": {**_ID, "messages": (_CONVERSATION, True), "options": (_OBJECT, False)},
    "stop": _ID,
    "attach": {**_ID, "path": (_PATH, True)},
    "picture": {**_ID, "data": (_TEXT, True), "side": (_INT, True)},
    "count": {**_ID, "text": (_TEXT, True), "data": (_TEXT, False)},
    "serve": {
        **_ID,
        "on": (_BOOL, True),
        "port": (_INT, True),
        "key": (_TEXT, True),
        "models": (_PATHS, False),
        "settings": (_OBJECT, False),
        "unload_after_s": (_INT, False),
        "embedding_model": (_TEXT, False),
        "is_open": (_BOOL, False),
        "origins": (_TEXT, False),
    },
    "devices": {**_ID, "details": (_BOOL, False)},
    "unload": _ID,
    "ping": _ID,
    "forget": {"owner": (_OWNER, True)},
    "warm": {"owner": (_OWNER, True)},
    "watch": {"scope": (_TEXT, True)},
    "learning": {**_ID, "action": (_TEXT, True)},
    "shutdown": {},
}
"""The messages of clients, with their fields."""


class Reading(NamedTuple):
    """How a client takes one kind of message from the worker.

    read: returns its values. It may raise _UNREADABLE of connection.py. is_final: it ends its
    request. is_progress: it shows that the worker gets on with a request.
    """

    read: Callable[[Message], tuple[Any, ...]] = lambda _: ()
    is_final: bool = False
    is_progress: bool = False


def _in_force(message: Message) -> tuple[ModelFacts, CacheFacts]:
    return ModelFacts.from_json(message["model"]), CacheFacts.from_json(message["cache"])


def _attached(message: Message) -> tuple[int, Attachment | None, str]:
    """Return the id of the request, and the file or the sentence that refuses it."""
    file = message.get("file")
    return (
        int(message["id"]),
        Attachment.from_json(file) if file is not None else None,
        message.get("refusal") or "",
    )


def _picture(message: Message) -> tuple[int, Picture | None]:
    """Return the id of the request, and the picture; None: it cannot be shown."""
    if "rgb" not in message:
        return int(message["id"]), None
    width, height = int(message["width"]), int(message["height"])
    rgb = base64.b64decode(message["rgb"])
    if min(width, height) < 1 or len(rgb) != 3 * width * height:
        raise ValueError("a picture has another size than its pixels")
    return int(message["id"]), Picture(width, height, rgb)


READINGS: Mapping[str, Reading] = {
    "advice": Reading(lambda m: (Advice.from_json(m),)),
    "attached": Reading(_attached, is_final=True, is_progress=True),
    "attaching": Reading(
        lambda m: (int(m["id"]), int(m["done"]), int(m["total"])), is_progress=True
    ),
    "cache_changed": Reading(lambda m: (CacheFacts.from_json(m["cache"]),)),
    "configured": Reading(_in_force, is_final=True, is_progress=True),
    "counted": Reading(lambda m: (int(m["id"]), int(m["n_token"])), is_final=True),
    "devices": Reading(
        lambda m: (
            [(str(d["name"]), str(d["description"])) for d in m["devices"]],
            [(str(d["file"]), str(d["backend"]), str(d["trouble"])) for d in m.get("modules", [])],
        ),
        is_final=True,
    ),
    "done": Reading(
        lambda m: (str(m["reason"]), Statistics.from_json(m["stats"])),
        is_final=True,
        is_progress=True,
    ),
    "error": Reading(lambda m: (str(m["message"]),), is_final=True),
    "formatted": Reading(lambda m: (str(m["prompt"]),), is_final=True),
    "learning": Reading(lambda m: (LearningFacts.from_json(m["state"]),), is_final=True),
    "loaded": Reading(_in_force, is_final=True, is_progress=True),
    "loading": Reading(lambda m: (float(m["fraction"]), str(m["stage"])), is_progress=True),
    "moments": Reading(lambda m: (Batch.from_json(m),)),
    "other_done": Reading(
        lambda m: (int(m["answer"]), str(m["reason"]), Statistics.from_json(m["stats"])),
        is_progress=True,
    ),
    "other_text": Reading(
        lambda m: (int(m["answer"]), Delta.from_json(m), str(m["text"])), is_progress=True
    ),
    "pong": Reading(is_final=True),
    "picture": Reading(_picture, is_final=True, is_progress=True),
    "prefill": Reading(lambda m: (int(m["done"]), int(m["total"])), is_progress=True),
    "reloaded": Reading(_in_force, is_progress=True),
    "residency": Reading(lambda m: (Residency.from_json(m),)),
    "server": Reading(lambda m: (m,), is_final=True),
    "stats": Reading(lambda m: (Statistics.from_json(m["stats"]),)),
    "text": Reading(lambda m: (Delta.from_json(m), str(m["text"])), is_progress=True),
    "unloaded": Reading(is_final=True),
    "waits": Reading(lambda m: (int(m["n_before"]),), is_progress=True),
}
"""The messages of the worker. Other kinds have no values."""

FINAL = frozenset(kind for kind, reading in READINGS.items() if reading.is_final)
"""The types of message that end a request."""


def check_request(message: Mapping[str, Any]) -> None:
    """Check the type and the fields of a client's message. Ignore unknown fields.

    Raises RequestError, which names the field.
    """
    kind = message.get("type")
    if not isinstance(kind, str):
        raise RequestError('A message has no text field "type".')
    fields = REQUESTS.get(kind)
    if fields is None:
        raise RequestError(f"Unknown message type {kind[:40]!a}.")
    for name, ((test, words), required) in fields.items():
        if name not in message:
            if required:
                raise RequestError(f'The message "{kind}" has no field "{name}".')
        elif not test(message[name]):
            raise RequestError(f'The field "{name}" of the message "{kind}" must be {words}.')
    if kind == "generate" and ("messages" in message) == ("prompt" in message):
        raise RequestError('The message "generate" needs either "messages" or "prompt".')


def request_id(message: Mapping[str, Any]) -> int | None:
    """Return the id of a message, or None where it has none that is an integer."""
    value = message.get("id")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
