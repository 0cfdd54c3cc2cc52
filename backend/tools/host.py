"""The process that runs the servers of tools: a child of the window.

The mcp package takes a second and 65 MB to import, and servers are not trusted. In a process of its
own they can hang it, crash it or fill its memory, and the window and the engine go on: the window
kills this process and starts another.

The window writes requests to standard input and reads news from standard output, framed as in
backend/protocol/messages.py:

    {"type": "start", "server", "config"}          starts a server, in place of one of this name
    {"type": "stop", "server"}                     ends it
    {"type": "call", "id", "server", "tool",       calls a tool; answered by one "result"
     "arguments", "limit_s", "result_chars"}
    {"type": "cancel", "id"}                       ends a call; its result says so
    {"type": "ping", "id"}                         answered by "pong": the process is not stuck

    {"type": "server", "server", "state",          the state of a server: "starting", "ready",
     "sentence", "last_words", "tools", "pid"}     "failed" or "off"
    {"type": "progress", "id", "share", "words"}   share: 0 to 1, or null
    {"type": "result", "id", "is_error", "text",   text: cleaned; n_char: its length before it was
     "n_char", "is_unsure", "files"}               shortened to result_chars; is_unsure: it is not
                                                   known whether the call ran to its end; files: its
                                                   pictures (Attachment.to_json)
    {"type": "pong", "id"}

The process and all servers end when its input ends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from mcp import types
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from backend import __version__
from backend.attachments.reading import FileReading
from backend.protocol.attachments import Attachment, plain_name
from backend.protocol.errors import RequestError
from backend.protocol.messages import Decoder, Message, encode
from backend.system import faults
from backend.system.pipes import private_pipes
from backend.text import Text, text
from backend.tools.plain_text import clean, shorten
from backend.tools.results import Asked, n_byte
from backend.tools.settings import Server
from backend.tools.tool import Tool
from backend.tools.transports import GONE, NO_SESSION, Program, ServerFault, Streams, web

START_S = 60.0
"""Time for a server to start; the first start of some downloads them."""
_N_TOOL_MAX = 256
_N_PAGE_MAX = 20
_N_PICTURE_MAX = 4  # of a result
_CLEANED_CHARS_MAX = 1 << 20  # of a result, before it is cleaned
_SENTENCE_CHARS_MAX = 300
_WORDS_CHARS_MAX = 200
_N_LAST_LINE = 3  # of standard error, told when a server fails
_READ_BYTES = 1 << 16
_END_S = 0.5  # time to end all servers when the window is gone
_PROGRESS_S = 0.1  # at most ten messages about progress in a second

_AGAIN_S = 0.5  # before the second try to reach a lost server; four and nine times as long later
_AGAIN_MAX_S = 10.0
_BROKEN = re.compile("Connection closed|SSE stream ended")  # the mcp package's words
_CALL_WAITS_S = 5.0  # for a server that is begun again
_STEADY_S = 1.0  # a server that was ready for this time is tried again at once

Tell = Callable[[Message], None]


class MayHaveRun(ServerFault):
    """The connection broke after a call was sent."""


class _Connection:
    """A server: its task lives as long as the connection."""

    def __init__(self, server: Server, tell: Tell, start_s: float) -> None:
        self._server, self._tell, self._start_s = server, tell, start_s
        self._program = None if server.url else Program(server)
        self._changed = asyncio.Event()  # the server's list of tools has changed
        self._lost = asyncio.Event()  # the session has ended; the server may be there
        self._settled = asyncio.Event()  # it is ready, or has failed
        self._ready_s = 0.0
        self._is_stopped = False
        self.client: Client | None = None  # once it is ready
        self.n_call = 0  # under way
        self.task = faults.task("tool server", self._run(), lambda said: self.say("failed", said))

    async def stop(self) -> None:
        """End the server and wait for that."""
        self._is_stopped = True
        self.task.cancel()
        await asyncio.wait({self.task})  # it tells of its own error

    def kill(self) -> None:
        """End the server's processes at once. Call from any thread."""
        if self._program is not None:
            self._program.kill()

    async def _run(self) -> None:
        """Keep the connection. Begin again with a server at an address that was lost."""
        sentence, is_lost, n_try, lost_s = "", False, 0, 0.0
        self.say("starting")
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._live(stack)
            except asyncio.CancelledError:
                break
            except BaseException as error:  # groups of exceptions, too
                sentence = self._sentence(error)
                is_lost = self._program is None and not _is_within(error, ServerFault)
            if self._is_stopped:  # the end of a session may fail, and hide that it was cancelled
                break
            now_s = time.monotonic()
            if self.client is not None:
                n_try, lost_s = (n_try if now_s - self._ready_s < _STEADY_S else 0), now_s
                self.client = None
            if not is_lost or not lost_s or now_s - lost_s > self._start_s:
                self._settled.set()
                self.say("failed", sentence or text("tools.ended"))
                return
            self._settled.clear()
            self.say("starting")
            await asyncio.sleep(min(_AGAIN_S * n_try**2, _AGAIN_MAX_S))
            n_try += 1
        self.client = None
        self._settled.set()

    async def _live(self, stack: contextlib.AsyncExitStack) -> None:
        """Connect, list the tools, and list them again whenever they change.

        List the tools of a server at an address from time to time: it may have been restarted.
        """
        streams = self._program.streams() if self._program else web(self._server)
        try:
            async with asyncio.timeout(self._start_s):
                client = await stack.enter_async_context(
                    Client(
                        _Given(streams),
                        message_handler=self._heard,
                        client_info=types.Implementation(name="outrider", version=__version__),
                        cache=None,
                    )
                )
                tools = await self._tools(client)
        except TimeoutError:
            raise ServerFault(text("tools.start_too_slow", seconds=round(self._start_s))) from None
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            listening = faults.task("tool changes", self._listen(client), faults.no_place)
            stack.callback(listening.cancel)
        self.client, self._ready_s = client, time.monotonic()
        self._lost.clear()
        self._settled.set()
        said: list[Tool] | None = None
        while True:
            if tools != said:
                self.say("ready", tools=[tool.to_json() for tool in tools])
                said = tools
            await self._wait()
            self._changed.clear()
            async with asyncio.timeout(self._start_s):
                tools = await self._tools(client)

    @property
    def was_ready(self) -> bool:
        """Whether it is ready, or was; it may be begun again then."""
        return self._ready_s > 0

    async def ready(self) -> Client | None:
        """Return the client once the server is ready; None if it failed, or takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CALL_WAITS_S):
                await self._settled.wait()
        return self.client

    def begin_again(self, client: Client) -> None:
        """Begin a new session in place of this one, unless that has begun."""
        if self.client is client:
            self._settled.clear()
            self._lost.set()

    async def _wait(self) -> None:
        """Wait until the tools change. Raises ServerFault if the server is gone."""
        waits = [asyncio.create_task(event.wait()) for event in (self._changed, self._lost)]
        if self._program is not None:
            waits.append(asyncio.create_task(self._program.ended.wait()))
        try:
            every_s = self._start_s / 2 if self._program is None else None
            is_over = False
            while not is_over:  # a server that is busy with a call need not answer another request
                done, _ = await asyncio.wait(
                    waits, timeout=every_s, return_when=asyncio.FIRST_COMPLETED
                )
                is_over = bool(done) or not self.n_call
        finally:
            for task in waits:
                task.cancel()
        if self._lost.is_set():
            raise ConnectionError(text("tools.ended"))
        if self._program is not None and self._program.ended.is_set():
            raise ServerFault(self._program.fault)

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of tools (newest protocol). Older servers notify without it.

        Some servers refuse it.
        """
        with contextlib.suppress(MCPError, *GONE):
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()

    async def _tools(self, client: Client) -> list[Tool]:
        found: dict[str, Tool] = {}
        cursor: str | None = None
        if client.server_capabilities.tools is None:
            return []
        for _ in range(_N_PAGE_MAX):
            try:
                page = await client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.error.code == types.METHOD_NOT_FOUND:
                    break  # it has none, whatever it said of itself
                raise
            for tool in page.tools[: _N_TOOL_MAX - len(found)]:
                read = Tool.read(
                    self._server.name, tool.name, tool.description or "", tool.input_schema
                )
                found.setdefault(read.name, read)
            cursor = page.next_cursor
            if cursor is None or len(found) >= _N_TOOL_MAX:
                break
        return list(found.values())

    def say(self, state: str, sentence: str = "", tools: list[Any] | None = None) -> None:
        """Report the state."""
        program = self._program
        lines = clean(program.last_words).split("\n") if program else []
        words = "\n".join([line for line in lines if line.strip()][-_N_LAST_LINE:])
        self._tell(
            {
                "type": "server",
                "server": self._server.name,
                "state": state,
                "sentence": sentence,
                "last_words": words[-_SENTENCE_CHARS_MAX:] if state == "failed" else "",
                "tools": tools or [],
                "pid": program.pid if program else 0,
            }
        )

    def _sentence(self, error: BaseException) -> str:
        if self._program is not None and self._program.fault:
            return self._program.fault
        reason = why(error)
        if isinstance(reason, Text):
            return reason
        return text("tools.server_failed", reason=f"{reason.rstrip('.')}.")


class _Given:
    """Streams that the mcp package takes as a transport."""

    def __init__(self, streams: contextlib.AbstractAsyncContextManager[Any]) -> None:
        self._streams = streams

    async def __aenter__(self) -> Streams:
        asked = Asked(await self._streams.__aenter__())
        return asked.reading, asked.writing

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._streams.__aexit__(*error)


class Host:
    """The servers and the calls in progress. Everything runs on one event loop."""

    def __init__(self, tell: Tell, start_s: float) -> None:
        self._tell, self._start_s = tell, start_s
        self._connections: dict[str, _Connection] = {}
        self._changes: dict[str, asyncio.Task[None]] = {}  # the last start or stop by name
        self._calls: dict[int, asyncio.Task[None]] = {}

    def take(self, request: Message) -> None:
        """Begin a request, or say why that is not possible."""
        try:
            self._take(request)
        except Exception as error:
            sentence = faults.explain("tool request", error)
            if request.get("type") in ("start", "stop"):
                self._fail(str(request.get("server")), sentence)
            elif isinstance(number := request.get("id"), int):
                self._answer(number, sentence, is_error=True)

    def _take(self, request: Message) -> None:
        kind = request["type"]
        if kind == "start":
            server = Server.from_json(str(request["server"]), request["config"])
            self._change(server.name, server)
        elif kind == "stop":
            self._change(str(request["server"]), None)
        elif kind == "call":
            number = int(request["id"])

            def failed(sentence: str) -> None:
                self._answer(number, sentence, is_error=True)

            def done(_: object) -> None:
                if self._calls.pop(number, None) is not None:  # it was cancelled before it began
                    self._answer(number, text("tools.call_stopped"), is_error=True)

            task = faults.task("tool call", self._call(number, request), failed)
            self._calls[number] = task
            task.add_done_callback(done)
        elif kind == "cancel":
            if task_or_none := self._calls.get(int(request["id"])):
                task_or_none.cancel()
        elif kind == "ping":
            self._tell({"type": "pong", "id": request["id"]})

    async def close(self) -> None:
        """End all servers."""
        connections = list(self._connections.values())
        await asyncio.gather(*(c.stop() for c in connections), return_exceptions=True)

    def kill(self) -> None:
        """End all servers' processes at once. Call from any thread."""
        for connection in list(self._connections.values()):
            connection.kill()

    def _change(self, name: str, server: Server | None) -> None:
        """Start or stop a server after the changes before, in order."""
        before = self._changes.get(name)

        async def change() -> None:
            if before is not None:
                await asyncio.wait({before})  # it tells of its own error
            if (old := self._connections.pop(name, None)) is not None:
                await old.stop()
                if server is None:
                    old.say("off")
            if server is not None:
                self._connections[name] = _Connection(server, self._tell, self._start_s)

        self._changes[name] = faults.task(
            "tool server", change(), lambda sentence: self._fail(name, sentence)
        )

    def _fail(self, name: str, sentence: str) -> None:
        """Say that a server was not started or ended, for want of a connection to say it."""
        said = {"state": "failed", "sentence": sentence, "last_words": "", "tools": [], "pid": 0}
        self._tell({"type": "server", "server": name, **said})

    async def _call(self, number: int, request: Message) -> None:
        """Call a tool. Report every ending as one result."""
        name, limit_s = str(request["server"]), float(request["limit_s"])
        is_error, is_unsure = True, False
        files: list[Attachment] = []
        try:
            async with asyncio.timeout(limit_s):
                result = await self._result(number, name, request)
            files, refusals = await _pictures(result, str(request["tool"]))
            is_error, said = bool(result.is_error), text_of(result, refusals)
        except TimeoutError:
            said, is_unsure = text("tools.call_too_slow", seconds=round(limit_s)), True
        except asyncio.CancelledError:
            said = text("tools.call_stopped")
        except Exception as error:
            said, is_unsure = (
                text("tools.call_failed", reason=why(error)),
                isinstance(error, MayHaveRun),
            )
        n_char = len(said)
        if not isinstance(said, Text):
            said = clean(said[:_CLEANED_CHARS_MAX])
            n_char = max(n_char if n_char > _CLEANED_CHARS_MAX else 0, len(said))
            said = shorten(said, int(request["result_chars"]))
        self._answer(
            number, said, is_error=is_error, n_char=n_char, is_unsure=is_unsure,
            files=[file.to_json() for file in files],
        )  # fmt: skip

    def _answer(self, number: int, said: str, *, is_error: bool, **more: Any) -> None:
        """Tell the one result of a call, and forget the call."""
        self._calls.pop(number, None)
        about = {"n_char": len(said), "is_unsure": False, "files": [], **more}
        about["n_char"] = about["n_char"] or len(said)
        self._tell({"type": "result", "id": number, "is_error": is_error, "text": said, **about})

    async def _result(self, number: int, name: str, request: Message) -> types.CallToolResult:
        connection = self._connections.get(name)
        if connection is None or not connection.was_ready:
            raise ServerFault(text("tools.not_ready", name=name))
        last_s = 0.0

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last_s
            if time.monotonic() - last_s < _PROGRESS_S:
                return
            last_s = time.monotonic()
            done = progress / total if total and total > 0 else math.nan
            share = min(max(done, 0.0), 1.0) if math.isfinite(done) else None
            said = clean(message or "")[:_WORDS_CHARS_MAX]
            self._tell({"type": "progress", "id": number, "share": share, "words": said})

        params = types.CallToolRequestParams(
            name=str(request["tool"]), arguments=dict(request["arguments"])
        )
        connection.n_call += 1
        try:
            for is_last in (False, True):
                client = await connection.ready()
                if client is None:
                    raise ServerFault(text("tools.not_ready", name=name))
                # Not client.call_tool, which checks results with patterns that the server chose: a
                # pattern can take for ever.
                try:
                    return await client.session.send_request(
                        types.CallToolRequest(params=params),
                        types.CallToolResult,
                        progress_callback=progressed,
                    )
                except MCPError as error:
                    if _BROKEN.match(error.message):
                        raise MayHaveRun(text("tools.may_have_run")) from error
                    if is_last or not NO_SESSION.search(error.message):
                        raise
                    connection.begin_again(client)  # the server did not take the call
        finally:
            connection.n_call -= 1
        raise AssertionError("the second try returns or raises")


def _is_within(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return whether an error, or one of a group, is of one of these kinds."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_within(each, *kinds) for each in error.exceptions)
    return isinstance(error, kinds)


async def _pictures(
    result: types.CallToolResult, tool: str
) -> tuple[list[Attachment], Mapping[int, str]]:
    """Return the pictures of a result, and why others cannot be seen, by their places in it.

    The process that reads attached files decodes them: they come from anywhere.
    """
    files: list[Attachment] = []
    refusals: dict[int, str] = {}
    for place, block in enumerate(result.content):
        data = _picture(block)
        if not data:
            continue
        if len(files) == _N_PICTURE_MAX:
            refusals[place] = f"only the first {_N_PICTURE_MAX} are taken"
            continue
        with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
            name = plain_name(re.sub(r"[^\w.-]", "_", f"{clean(tool)[:80]}-{len(files) + 1}"))
            path = Path(folder, name)
            reading = FileReading(str(path))
            try:
                path.write_bytes(base64.b64decode(data))
                file = await asyncio.to_thread(reading.run)
                if file.kind == "image":
                    files.append(file)
                else:
                    refusals[place] = "it is no picture"
            except (RequestError, OSError, ValueError) as error:
                refusals[place] = str(error)
            except Exception as error:
                refusals[place] = faults.explain("tool picture", error)
            finally:
                reading.stop()
    return files, refusals


def _picture(block: Any) -> str:
    """Return the Base64 of a picture; "" for another part."""
    if isinstance(block, types.ImageContent):
        return block.data
    resource = block.resource if isinstance(block, types.EmbeddedResource) else None
    if isinstance(resource, types.BlobResourceContents):
        return resource.blob if (resource.mime_type or "").startswith("image/") else ""
    return ""


def text_of(result: types.CallToolResult, refusals: Mapping[int, str] | None = None) -> str:
    """Return a result as text. Pictures are named; so are sounds and files, which are not opened.

    refusals: why a picture is not shown, by its place; None: none is.
    """
    parts = []
    for place, block in enumerate(result.content):
        about = _part(block)
        if _picture(block) and refusals is not None:
            reason = refusals.get(place)
            end = f", not shown: {reason}]" if reason else "]"
            about = about.removesuffix(", not shown]") + end
        parts.append(about)
    if not any(isinstance(block, types.TextContent) for block in result.content):
        if result.structured_content is not None:
            try:
                parts.append(json.dumps(result.structured_content, ensure_ascii=False, indent=1))
            except (ValueError, RecursionError):
                parts.append("[structured content that is nested too deeply]")
    return "\n".join(parts)


def _part(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"[{block.type}, {block.mime_type}, {n_byte(block.data):,} bytes, not shown]"
    if isinstance(block, types.ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, types.TextResourceContents):
            return resource.text
        return f"[resource {resource.uri}, {n_byte(resource.blob):,} bytes, not shown]"
    return "[content of an unknown kind]"


def why(error: BaseException) -> str:
    """Return the reason of a failure, one sentence or half of one."""
    while isinstance(error, BaseExceptionGroup):
        inner = error.exceptions
        error = next((e for e in inner if isinstance(e, ServerFault)), inner[0])
    if isinstance(error, ServerFault):
        return error.args[0] if error.args else ""
    if isinstance(error, ValidationError):
        return text("tools.not_understood")
    words = error.message if isinstance(error, MCPError) else str(error)
    words = re.sub(
        r"^(Failed to parse (?:JSON response|SSE message)|SSE stream failed): ", "", words
    )
    if re.match(r"\d+ validation error", words):  # pydantic's words are for programmers
        return text("tools.not_understood")
    lines = clean(words).strip().splitlines()
    if not lines:
        is_said = isinstance(error, MCPError)
        return text("tools.no_reason") if is_said else type(error).__name__
    return lines[0][:_SENTENCE_CHARS_MAX]


async def _requests(in_fd: int) -> AsyncIterator[Message]:
    """Yield requests, read on a thread: it sees the end of input when the event loop is stuck."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Message | None] = asyncio.Queue()

    def read() -> None:
        decoder = Decoder()
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            while data := os.read(in_fd, _READ_BYTES):
                for request in decoder.feed(data):
                    loop.call_soon_threadsafe(queue.put_nowait, request)
        end()

    def end(_: str = "") -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, None)
        time.sleep(2 * _END_S)
        _ends.set()

    faults.Thread("requests", read, failed=end).start()
    while (request := await queue.get()) is not None:
        yield request


_ends = threading.Event()


async def _serve(in_fd: int, out_fd: int, start_s: float) -> None:
    lock = threading.Lock()

    def tell(message: Message) -> None:
        frame = memoryview(encode(message))
        with lock, contextlib.suppress(OSError):
            while frame:
                frame = frame[os.write(out_fd, frame) :]

    host = Host(tell, start_s)
    asyncio.get_running_loop().set_exception_handler(faults.of_loop)
    faults.Thread("end", _end_with, host, failed=lambda _: os._exit(1)).start()
    async for request in _requests(in_fd):
        host.take(request)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await host.close()
    host.kill()
    os._exit(0)


def _end_with(host: Host) -> None:
    """End everything if the event loop has not ended in time after the end of input."""
    _ends.wait()
    host.kill()
    os._exit(1)


def main() -> NoReturn:
    """Serve the window until standard input ends. An argument replaces START_S."""
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the window handles Ctrl-C
    logging.disable(logging.CRITICAL)
    start_s = float(sys.argv[1]) if len(sys.argv) > 1 else START_S
    asyncio.run(_serve(in_fd, out_fd, start_s))
    sys.exit(0)


if __name__ == "__main__":
    main()
