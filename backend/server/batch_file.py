"""A file of requests that are answered overnight, and the file of their answers.

The requests are JSON lines, CSV or text. JSON lines are OpenAI's batch format (custom_id, url,
body), or objects with `prompt` or `messages`, an optional `id` and `system`, and fields of chat
completions such as `temperature`. A CSV file has a column `prompt`, and may have the same fields as
columns. In a text file, every line is a prompt.

Every answer is one JSON line. It is on the drive before the next one is written. After a kill, the
lines that are there say what need not be asked again.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from backend.protocol.chat import AnswerText, Delta
from backend.server.ask import Ask, Finish, Json, Part, RequestRefused, Token, in_line
from backend.server.bodies import parse_measured
from backend.server.openai_chat import ChatWriter, read_chat
from backend.server.openai_text import TextWriter, read_text
from backend.system.kept_file import finite, sync, sync_folder, whole
from backend.system.paths import exists, is_file
from backend.text import text

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_READERS: dict[str, Callable[[Any], Ask]] = {CHAT: read_chat, TEXT: read_text}
_NUMBERS = ("temperature", "top_p", "min_p", "repeat_penalty")
_COUNTS = ("max_tokens", "top_k", "seed")
_LINE_BYTES_MAX = 64 << 20
_BEGINS = re.compile(r'\s*\{\s*"(custom_id|id)"\s*:\s*("(?:[^"\\]|\\.){0,1000}")')
_FIRST = b'{"id": "'
"""The beginning of every line of answers."""
_BLOCK_BYTES = 512  # the smallest of a drive


class BatchError(ValueError):
    """A file of requests or answers cannot be used. str() is one sentence for the user."""


@dataclass(frozen=True)
class Line:
    """A line of the file of requests. number: from 1. digest: of its content.

    error: why it cannot be answered, or "". url: of the body, or "" outside of OpenAI's format.
    is_named: its id was given, and is not only its number.
    """

    id: str
    number: int
    digest: str
    url: str = ""
    body: Json | None = None
    error: str = ""
    is_named: bool = True

    def ask(self, defaults: Json, system: str | None = None) -> Ask:
        """Return the request. defaults: fields that the body need not have.

        system: the system prompt of a conversation that has none. Raises RequestRefused.
        """
        if self.error:
            raise RequestRefused(self.error)
        given = {**defaults, **{k: v for k, v in (self.body or {}).items() if v is not None}}
        ask = replace(_READERS[self.url or CHAT](given), stream=False)
        if system and ask.messages and ask.messages[0]["role"] != "system":
            return replace(ask, messages=({"role": "system", "content": system}, *ask.messages))
        return ask


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the requests of a file. Raises BatchError for a file that has none.

    Lines are read as they are needed. A bad line, such as one that is not UTF-8, is yielded with
    its error.
    """
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".json", ".ndjson", ".csv", ".txt"):
        raise BatchError(text("batch.kind", file=path.name))
    if exists(path) and not is_file(path):  # a pipe can be read only once
        irregular = text("file.not_regular")
        raise BatchError(text("file.not_read", file=path.name, reason=irregular))
    newline = "" if kind == ".csv" else None
    try:
        # Bytes that are not UTF-8 become lone surrogates, which no other byte becomes.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline=newline) as file:
            if kind == ".csv":
                yield from _csv_lines(path, file)
                return
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                if kind == ".txt":
                    body = {"messages": [{"role": "user", "content": line.strip()}]}
                    yield _checked("", number, _digest(line), body)
                else:
                    yield _json_line(number, line)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BatchError(text("file.not_read", file=path.name, reason=reason)) from None
    except csv.Error as error:
        raise BatchError(text("file.not_read", file=path.name, reason=str(error))) from None


def _json_line(number: int, line: str) -> Line:
    digest = _digest(line)
    try:
        if len(line) > _LINE_BYTES_MAX:
            raise RequestRefused(text("batch.long_line", most=_LINE_BYTES_MAX))
        data = parse_measured(line.encode("utf-8", "surrogateescape"))
        if not isinstance(data, dict):
            raise RequestRefused(text("batch.no_object"))
    except RequestRefused as refused:
        known = _known_id(line)
        url = CHAT if "custom_id" in known else ""
        return _named(next(iter(known.values()), ""), number, digest, url, error=str(refused))
    name = next((str(data[k]) for k in ("custom_id", "id") if data.get(k) is not None), "")
    if "body" not in data and "custom_id" not in data:
        return _named(name, number, digest, body=_plain_body(data))
    url, body = data.get("url", CHAT), data.get("body")
    if not isinstance(url, str) or url not in _READERS:
        return _named(name, number, digest, CHAT, error=text("batch.url", url=repr(url)[:200]))
    if not isinstance(body, dict):
        return _named(name, number, digest, url, error=text("batch.no_body"))
    return _named(name, number, digest, url, body)


def _named(
    name: str, number: int, digest: str, url: str = "", body: Json | None = None, error: str = ""
) -> Line:
    """Return a line. One without a name is known by its number."""
    return Line(name or str(number), number, digest, url, body, error, is_named=bool(name))


def _known_id(line: str) -> dict[str, str]:
    """Return what names a request that cannot be read, with its field, if that can be read."""
    try:
        ignore = lambda _: None  # noqa: E731
        data = json.loads(line, parse_int=str, parse_float=ignore, parse_constant=ignore)
    except (ValueError, RecursionError):
        found = _BEGINS.match(line)
        try:
            data = {found[1]: json.loads(found[2])} if found else {}
        except ValueError:
            data = {}
    for name in ("custom_id", "id"):
        known = data.get(name) if isinstance(data, dict) else None
        if isinstance(known, str) and known == _written(known):
            return {name: known}
    return {}


def _written(name: str) -> str:
    """Return a name as the file of answers can hold it."""
    return name.encode("utf-8", "replace").decode()


def _plain_body(data: Json) -> Json:
    """Return the body of a chat completion for an object with `prompt` or `messages`."""
    body = {k: v for k, v in data.items() if k not in ("id", "prompt", "system")}
    if "messages" not in body:
        body["messages"] = [{"role": "user", "content": data.get("prompt")}]
    if data.get("system") is not None and isinstance(body["messages"], list):
        body["messages"] = [{"role": "system", "content": data["system"]}, *body["messages"]]
    return body


def _csv_lines(path: Path, file: IO[str]) -> Iterator[Line]:
    csv.field_size_limit(_LINE_BYTES_MAX)
    rows = csv.DictReader(file)
    if "prompt" not in (rows.fieldnames or ()):
        raise BatchError(text("batch.no_column", file=path.name))
    for index, row in enumerate(rows, 1):
        data: Json = {k: v for k, v in row.items() if k and v}
        digest, name = _digest(json.dumps(data)), data.pop("custom_id", None) or data.get("id", "")
        if name != _written(name):
            name = ""
        try:
            data |= {k: finite(data[k]) for k in _NUMBERS if k in data}
            data |= {k: whole(data[k]) for k in _COUNTS if k in data}
        except ValueError:
            yield _named(name, index, digest, error=text("batch.no_number"))
            continue
        yield _checked(name, index, digest, _plain_body(data))


def _checked(name: str, number: int, digest: str, body: Json) -> Line:
    """Return a line whose text is UTF-8, or its error."""
    try:
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return _named(name, number, digest, error=text("batch.not_utf8"))
    return _named(name, number, digest, body=body)


def _digest(line: str) -> str:
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Choice:
    """One answer to a request. tokens: with their probabilities, if these were asked for."""

    answer: AnswerText
    finish: Finish
    tokens: tuple[Token, ...] = ()


def answer_line(line: Line, ask: Ask, model: str, choices: Sequence[Choice]) -> Json:
    """Return the line that answers a request, in OpenAI's batch format if the request is."""
    if line.url:
        writer = (ChatWriter if line.url == CHAT else TextWriter)(ask, model)
        parts = [Part(c.finish.choice, _delta(c.answer), c.tokens) for c in choices]
        body = writer.whole(parts, [c.finish for c in choices])
        response = {"status_code": 200, "request_id": uuid.uuid4().hex, "body": body}
        return {**_head(line), "response": response, "error": None}
    first = choices[0]
    found: Json = {**_head(line), "answer": first.answer.content}
    if first.answer.reasoning:
        found["reasoning"] = first.answer.reasoning
    if first.answer.tool_calls:
        found["tool_calls"] = [call.to_json() for call in first.answer.tool_calls]
    if len(choices) > 1:
        found["answers"] = [c.answer.content for c in choices]
    return {
        **found,
        "finish_reason": first.finish.reason,
        "prompt_tokens": sum(c.finish.n_prompt for c in choices),
        "completion_tokens": sum(c.finish.n_token for c in choices),
    }


def error_line(line: Line, reason: str) -> Json:
    """Return the line for a request that cannot be answered."""
    if not line.url:
        return {**_head(line), "error": reason}
    return {**_head(line), "response": None, "error": {"code": "failed", "message": reason}}


def _head(line: Line) -> Json:
    named: Json = {"id": line.id}
    if line.url:
        named = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": line.id}
    return {**named, "digest": line.digest}


def _delta(answer: AnswerText) -> Delta:
    return Delta(answer.reasoning, answer.content, dict(enumerate(answer.tool_calls)))


def regular(path: Path) -> Path:
    """Return the path of a file of answers. Raises BatchError for a device, a pipe or a folder."""
    if exists(path) and not is_file(path):
        reason = text("file.not_regular")
        raise BatchError(text("file.not_written", file=path.name, reason=reason))
    return path


class AnswerFile:
    """The file of answers. Whatever add() has written survives a kill and a loss of power.

    done: the digest of each request that has a line, by its id. failed: the ids of those whose line
    is an error. A last line that a kill or a loss of power has damaged is removed. Raises
    BatchError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, str] = {}
        self.failed: set[str] = set()
        regular(path)
        try:
            self._file = open(path, "a+b")  # noqa: SIM115 (closed by close())
            sync_folder(path.absolute().parent)  # a run that was killed may have made the file
            self._lock()
            self._recover()
        except OSError as error:
            reason = error.strerror or str(error)
            raise BatchError(text("file.not_written", file=path.name, reason=reason)) from None

    def _lock(self) -> None:
        """Lock the opened file: a hard link leads to it by another name. Raises BatchError."""
        if sys.platform != "win32":
            import fcntl  # not on Windows

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise BatchError(f"Another outrider batch is writing {self.path}.") from None

    def _recover(self) -> None:
        n_whole, n_file = 0, self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            is_last = n_whole + len(line) == n_file
            if is_last and (not line.endswith(b"\n") or b"\0" in line):  # \0: it was never written
                self._check_cut(number, line, is_first=n_whole == 0)
                break
            n_whole += len(line)
            if not line.strip():
                continue
            try:
                data = json.loads(line)
                name = str(data["custom_id"] if "custom_id" in data else data["id"])
                self.note(name, str(data["digest"]), is_failed=bool(data.get("error")))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise self._foreign(number) from None
        self._file.truncate(n_whole)

    def _check_cut(self, number: int, line: bytes, *, is_first: bool) -> None:
        """Raise BatchError where a damaged line was not written here.

        A loss of power leaves zeros in place of blocks of the drive that were not written.
        """
        if line.startswith(b"\0"):
            block, rest = line[:_BLOCK_BYTES], line.replace(b"\0", b"").rstrip(b"\r\n")
            is_text = all(byte >= ord(" ") for byte in rest)
            if not is_first or not rest or (is_text and not block.strip(b"\0")):
                return
        begun = line.strip(b"\0 \r\n")
        if begun and not (begun.startswith(_FIRST) or _FIRST.startswith(begun)):
            raise self._foreign(number)

    def _foreign(self, number: int) -> BatchError:
        self.close()
        return BatchError(text("batch.other_file", file=self.path.name, line=number))

    def note(self, name: str, digest: str, *, is_failed: bool) -> None:
        """Note that a request has a line."""
        self.done[name] = digest
        if is_failed:
            self.failed.add(name)

    def add(self, line: Json) -> None:
        """Append a line. Return when it is on the drive. Raises BatchError."""
        data = in_line(line, allow_nan=False) + "\n"
        try:
            self._file.write(data.encode("utf-8", "replace"))
            self._file.flush()
            sync(self._file.fileno())
        except OSError as error:
            reason = error.strerror or str(error)
            raise BatchError(text("file.not_written", file=self.path.name, reason=reason)) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
