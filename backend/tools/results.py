"""Reads what servers of tools answer: keeps what can be read, and names what cannot.

The mcp package checks an answer as a whole: one odd field loses all of it. So each answer is made
valid here before the package sees it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from backend.protocol.chat import Json

_MAGIC = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_KNOWN = ("content", "structuredContent", "isError", "_meta", "resultType")  # of a call's result
_OF_LISTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}  # nothing is cached
_TEXT_CHARS_MAX = 1 << 20  # of a part that is JSON here


def read_line(line: bytes) -> JSONRPCMessage:
    """Return the message of a line, also of one that breaks rules. Raises ValueError for none."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        found = _loaded(line)
    if not isinstance(found, dict):
        raise ValueError("it is no message")
    if "result" in found and not isinstance(found["result"], dict):
        found["result"] = {"content": found["result"]}
    error = found.get("error")
    if error is not None and not isinstance(error, dict):
        found["error"] = {"code": INTERNAL_ERROR, "message": str(error)}
    elif error is not None:
        error["message"] = str(error.get("message") or "")
        error["code"] = error["code"] if type(error.get("code")) is int else INTERNAL_ERROR
    return jsonrpc_message_adapter.validate_python({**found, "jsonrpc": "2.0"}, by_name=False)


def read_lines(line: bytes) -> list[JSONRPCMessage]:
    """Return the messages of a line: one, or those of a list, as one version of MCP permits.

    Raises ValueError if there is none.
    """
    if not line.lstrip().startswith(b"["):
        return [read_line(line)]
    found = _loaded(line)
    read = [read_line(json.dumps(item).encode()) for item in found if isinstance(item, dict)]
    if not read:
        raise ValueError("it is no message")
    return read


def read_body(data: bytes) -> bytes:
    """Return the JSON of a message by HTTP, mended if it breaks rules and can be."""
    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        with contextlib.suppress(ValueError):
            return read_line(data).model_dump_json(by_alias=True, exclude_unset=True).encode()
    return data


def read_event(event: bytes) -> bytes:
    """Return an event of a stream, with the message in it mended as read_body does."""
    lines = event.splitlines()
    said = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if not said:
        return event
    others = [line for line in lines if not line.startswith(b"data:")]
    data = read_body(b"\n".join(said))
    return b"\n".join([*others, *(b"data: " + line for line in data.splitlines())])


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class Asked:
    """The requests under way, so that each answer is read as what was asked for."""

    def __init__(self, streams: tuple[Any, Any]) -> None:
        self._methods: dict[int | str, str] = {}
        self.reading = _Reading(streams[0], self._methods)
        self.writing = _Writing(streams[1], self._methods)


class _Stream:
    def __init__(self, stream: Any, methods: dict[int | str, str]) -> None:
        self._stream, self._methods = stream, methods

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        place: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        is_handled: bool | None = await self._stream.__aexit__(kind, error, place)
        return is_handled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Writing(_Stream):
    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._methods[item.message.id] = item.message.method
        await self._stream.send(item)


class _Reading(_Stream):
    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        async for item in self._stream:
            yield self._mended(item)

    async def receive(self) -> SessionMessage | Exception:
        return self._mended(await self._stream.receive())

    def _mended(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        message = item.message if isinstance(item, SessionMessage) else None
        number = getattr(message, "id", None)
        if number is not None and not isinstance(message, JSONRPCRequest):
            method = self._methods.pop(number, "")
            if isinstance(message, JSONRPCResponse):
                message.result = mended(method, message.result)
        return item


def mended(method: str, result: Json) -> Json:
    """Return a valid answer to a request with what can be read of a server's answer."""
    if method == "tools/call" and result.get("resultType") != "input_required":
        return {"resultType": "complete", **_call_result(result)}
    if method == "tools/list":
        tools = result.get("tools", 0)
        if isinstance(tools, dict):
            tools = [
                {"name": name, **tool} for name, tool in tools.items() if isinstance(tool, dict)
            ]
        if not isinstance(tools, list | None):
            return result  # it says nothing of tools: not that there are none
        found = [_tool(item) for item in tools or ()]
        return {
            **_kept(result, nextCursor=str), **_OF_LISTS,
            "tools": [tool for tool in found if tool is not None],
        }  # fmt: skip
    if method == "initialize":
        capabilities, info = result.get("capabilities"), result.get("serverInfo")
        tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
        has_tools = not isinstance(capabilities, dict) or "tools" in capabilities
        changes = isinstance(tools, dict) and tools.get("listChanged") is True
        name, version = (_word(info, key) for key in ("name", "version"))
        return {
            **_kept(result, protocolVersion=str),
            "capabilities": {"tools": {"listChanged": changes}} if has_tools else {},
            "serverInfo": {"name": name, "version": version},
        }
    return result


def _kept(result: Json, **kinds: type) -> Json:
    """Return the fields that are of these types."""
    return {name: result[name] for name, kind in kinds.items() if type(result.get(name)) is kind}


def _word(value: Any, key: str) -> str:
    """Return a text of an object that may be none; "" if it has no such text."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _tool(item: Any) -> Json | None:
    """Return a tool of a list with the fields that are used; None if it has no name."""
    if not _word(item, "name"):
        return None
    schema = item.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    return {
        "name": item["name"],
        "description": _word(item, "description"),
        "inputSchema": {**schema, "type": "object"},
    }


def _call_result(result: Json) -> Json:
    content, structured = result.get("content"), result.get("structuredContent")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    read = [_part(part) for part in parts]
    if structured is not None and not isinstance(structured, dict):
        read.append(_text(_json(structured)))
        structured = None
    others = {name: value for name, value in result.items() if name not in _KNOWN}
    if others and not read and structured is None:  # "toolResult" is the oldest form
        old = others.get("toolResult")
        read.append(_text(old if isinstance(old, str) else _json(others)))
    made: Json = {"content": read, "isError": result.get("isError") in (True, "true", 1)}
    return made if structured is None else {**made, "structuredContent": structured}


def _text(said: str) -> Json:
    return {"type": "text", "text": said}


def _json(value: Any) -> str:
    try:
        written = json.dumps(value, ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return "[structured content that is nested too deeply]"
    return written[:_TEXT_CHARS_MAX]


def _part(part: Any) -> Json:
    """Return a valid part. One that cannot be read becomes a text that names it."""
    if isinstance(part, str):
        return _text(part)
    fields = part if isinstance(part, dict) else {}
    kind, data, mime = (_word(part, key) for key in ("type", "data", "mimeType"))
    if kind == "text" and isinstance(fields.get("text"), str | int | float):
        return _text(str(part["text"]))
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        mime = mime or head[5:].partition(";")[0]
    if kind in ("image", "audio") and data:
        mime = mime or next((m for head, m in _MAGIC.items() if data.startswith(head)), "")
        return {"type": kind, "data": data, "mimeType": mime or f"{kind}/unknown"}
    if kind == "resource_link" and _word(part, "uri"):
        return {"type": kind, "uri": part["uri"], "name": _word(part, "name") or part["uri"]}
    resource = fields.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        for name in ("text", "blob"):
            if isinstance(resource.get(name), str):
                kept = {"uri": _word(resource, "uri") or "unknown:", name: resource[name]}
                if _word(resource, "mimeType"):
                    kept["mimeType"] = resource["mimeType"]
                return {"type": kind, "resource": kept}
    said = next((_word(part, key) for key in ("text", "title", "name") if _word(part, key)), "")
    about = [kind and f"kind {kind!r}", mime, f"{n_byte(data):,} bytes" if data else ""]
    words = ", ".join(word for word in about if word) or f"JSON {_json(part)[:200]}"
    return _text(f"[a part that cannot be shown: {words}]" + (f"\n{said}" if said else ""))


def n_byte(data: str) -> int:
    """Return the bytes of base64 text."""
    return len(data) * 3 // 4 - data[-2:].count("=")
