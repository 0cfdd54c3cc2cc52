"""Connections to servers of tools, with limits on what a server may send.

The mcp package has transports of its own. Its HTTP transport is used here. Its transport for child
processes reads lines of any length, and keeps the process and its standard error to itself; so
`Program` takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

from backend.system import faults
from backend.system.children import Job
from backend.text import text
from backend.tools.results import read_body, read_event, read_lines
from backend.tools.settings import Server

MESSAGE_BYTES_MAX = 32 << 20
"""Longest message of a server in bytes: a picture of a whole screen has 3 to 16 MB in base64."""
_LINE_BYTES_MAX = 4 * MESSAGE_BYTES_MAX  # a longer line ends the server, not only its call
_ENDS_BYTES = 1000  # kept of both ends of a line that is too long
N_MESSAGE_BURST = 10_000
"""Messages that a server may send at once. MESSAGES_PER_S more are allowed every second."""
MESSAGES_PER_S = 500
_BYTES_PER_MESSAGE = 16 << 10  # a longer message counts as several
_STDERR_BYTES = 2_000
_ENDS_S = 1.0  # time for a server to end by itself when its input ends, and again after SIGTERM
_READ_BYTES = 1 << 16
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has none
_LATE_ID = re.compile(rb'[\]}]\s*,\s*"id"\s*:\s*(\d{1,15})[^\[\]{}]{0,100}\}\s*$')
_ANSWER = re.compile(rb'(?=.{0,200}"(?:result|error)")[^\[]{0,100}"id"\s*:\s*(\d{1,15})')
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_CONNECT_S = 30.0
_SHELL_S = 5.0  # time for a login shell to say its PATH

Streams = tuple[Any, Any]
GONE = OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream
"""The errors of a stream whose other side is gone."""


NO_SESSION = re.compile(
    r"session (?:was )?(?:terminated|not found|expired|unknown|invalid|does not exist)"
    r"|(?:no valid|invalid|unknown|missing|expired|no such) (?:mcp[- ])?session",
    re.IGNORECASE,
)
"""A server that has lost a session, as by a restart, says so. It has not taken the request."""


class ServerFault(Exception):
    """A server broke a rule or is gone; str() is one plain sentence."""


class Pace:
    """Counts messages, so that a server that floods is given up."""

    def __init__(self) -> None:
        self._n_left = float(N_MESSAGE_BURST)
        self._since_s = 0.0

    def count(self, n_byte: int, now_s: float) -> None:
        """Count a message. Raises ServerFault where there were too many."""
        gained = (now_s - self._since_s) * MESSAGES_PER_S
        self._n_left = min(self._n_left + gained, N_MESSAGE_BURST) - 1 - n_byte / _BYTES_PER_MESSAGE
        self._since_s = now_s
        if self._n_left < 0:
            raise ServerFault(text("tools.floods"))


class Program:
    """A server that is a child process and speaks over its standard input and output.

    fault: why it can no longer be used, a sentence, once `ended` is set.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._process: asyncio.subprocess.Process | None = None
        self._job: Job | None = None  # on Windows, which has no groups
        self._stderr = b""
        self.ended = asyncio.Event()
        self.fault = ""

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def last_words(self) -> str:
        """The last words that it wrote to standard error."""
        return self._stderr.decode("utf-8", "replace")

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start the process and yield the streams of its messages. Raises ServerFault."""
        self._process = await self._started()
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        def failed(sentence: str) -> None:
            self._give_up(sentence, to_session)

        tasks = [
            faults.task("tool answers", self._read(to_session), failed),
            faults.task("tool requests", self._write(from_session), failed),
            faults.task("tool errors", self._read_stderr(), failed),
        ]
        try:
            yield from_server, to_server
        finally:
            for task in tasks[:2]:
                task.cancel()
            await self._end()
            tasks[2].cancel()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()

    def kill(self) -> None:
        """End the process and those that it started, at once."""
        if self._process is not None:
            self._signal(_KILL)

    async def _started(self) -> asyncio.subprocess.Process:
        server = self._server
        environment = {**get_default_environment(), **server.env}
        if "PATH" not in server.env:
            environment["PATH"] = await search_path(environment.get("PATH", ""))
        if server.cwd and not os.path.isdir(server.cwd):
            raise ServerFault(text("tools.no_folder", folder=server.cwd))
        command = found_command(server, environment.get("PATH", ""))
        own = os.path.dirname(command)  # npx begins with "env node", and node lies beside it
        if own not in environment.get("PATH", "").split(os.pathsep):
            environment["PATH"] = os.pathsep.join(filter(None, (own, environment.get("PATH"))))
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NO_WINDOW | Job.start_flags
        else:
            options["start_new_session"] = True  # its group is ended as a whole
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *server.args,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=server.cwd or None,
                **options,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            said = f"{reason}: {command}"
            raise ServerFault(text("tools.not_started", reason=said)) from None
        if sys.platform == "win32":
            try:
                self._job = Job()
                self._job.release(process.pid)
            except OSError as error:
                process.kill()
                raise ServerFault(
                    text("tools.not_started", reason=error.strerror or str(error))
                ) from None
        return process

    async def _read(self, to_session: Any) -> None:
        """Pass on the messages of the server, until it ends or breaks a rule."""
        assert self._process is not None and self._process.stdout is not None
        loop, pace = asyncio.get_running_loop(), Pace()
        try:
            async for line, n_byte in _lines(self._process.stdout):
                pace.count(n_byte, loop.time())
                try:
                    if n_byte > len(line):
                        raise ValueError("only its ends were kept")
                    messages = read_lines(line)
                except ValueError:
                    broken = _ANSWER.match(line) or _LATE_ID.search(line)
                    if broken is None and n_byte > len(line):
                        raise ServerFault(
                            text("tools.long_message", limit=MESSAGE_BYTES_MAX)
                        ) from None
                    if broken is None:  # some servers print a greeting to standard output
                        self._stderr = (self._stderr + line)[-_STDERR_BYTES:]
                        continue
                    words = text("tools.not_understood")
                    if n_byte > len(line):
                        words = text("tools.long_answer", n=n_byte, limit=MESSAGE_BYTES_MAX)
                    error = ErrorData(code=PARSE_ERROR, message=words)
                    messages = [JSONRPCError(jsonrpc="2.0", id=int(broken[1]), error=error)]
                for message in messages:
                    await to_session.send(SessionMessage(message))
            fault = text("tools.ended")
        except ServerFault as error:
            fault = error.args[0]
        except GONE:
            fault = text("tools.ended")
        self._give_up(fault, to_session)

    def _give_up(self, fault: str, to_session: Any) -> None:
        self.fault = self.fault or fault
        self.ended.set()
        to_session.close()

    async def _write(self, from_session: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(*GONE):
            async for sent in from_session:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
                self._process.stdin.write(line.encode())
                await self._process.stdin.drain()

    async def _read_stderr(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while data := await self._process.stderr.read(_READ_BYTES):
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]

    async def _end(self) -> None:
        """End the process: by the end of its input, then by signals to its group."""
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.close()
        try:
            for step in (signal.SIGTERM, _KILL):
                if await _has_ended(process, _ENDS_S):
                    break
                self._signal(step)
        finally:
            self.kill()  # also children that the process has left behind

    def _signal(self, number: int) -> None:
        """Send a signal to the process and those that it started; on Windows, end them."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._process.pid, number)
            else:
                self._process.kill()
        if self._job is not None:
            self._job.kill()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, int]]:
    """Yield lines with their lengths. Of a line over MESSAGE_BYTES_MAX yield both ends only.

    Raises ServerFault for a line over _LINE_BYTES_MAX.
    """
    line, end, n_byte = bytearray(), b"", 0
    while data := await stream.read(_READ_BYTES):
        for i, piece in enumerate(data.split(b"\n")):
            if i:
                yield bytes(line) + end, n_byte
                line, end, n_byte = bytearray(), b"", 0
            n_byte += len(piece)
            if n_byte > _LINE_BYTES_MAX:
                raise ServerFault(text("tools.long_message", limit=_LINE_BYTES_MAX))
            if n_byte <= MESSAGE_BYTES_MAX:
                line += piece
            else:
                del line[_ENDS_BYTES:]
                end = (end + piece)[-_ENDS_BYTES:]
    if line:
        yield bytes(line) + end, n_byte


def found_command(server: Server, path: str) -> str:
    """Return the absolute path of a server's command. Raises ServerFault."""
    named = os.path.expanduser(server.command)
    if os.path.dirname(named):  # a path: one that is relative begins at the server's folder
        named = os.path.abspath(os.path.join(server.cwd or "", named))
    command = shutil.which(named, path=path)
    if command is not None:
        return os.path.abspath(command)
    if os.path.isfile(named):
        raise ServerFault(text("tools.not_executable", command=named))
    if os.path.dirname(named):
        raise ServerFault(text("tools.no_file", command=named))
    places = ", ".join(dict.fromkeys(filter(None, path.split(os.pathsep))))
    raise ServerFault(text("tools.no_command", command=server.command, places=places))


_shell_path: str | None = None  # PATH of the login shell, once it was asked


async def search_path(own: str) -> str:
    """Return the folders of commands: those of the person's login shell, and those of `own`.

    A program that was started by its icon has fewer folders than a terminal: the files that set up
    a shell add those of nvm, pyenv and others. The shell is asked once, if there is one.
    """
    global _shell_path
    if os.name != "posix":
        return own
    if _shell_path is None:
        _shell_path = await _asked_shell()
    theirs = _shell_path.split(":")
    ours = [folder for folder in own.split(":") if folder]
    if set(theirs) <= set(ours):  # started from a terminal, whose order counts
        return own
    return ":".join(dict.fromkeys([*filter(None, theirs), *ours]))


async def _asked_shell() -> str:
    """Return PATH in an interactive login shell; "" if it does not say within _SHELL_S."""
    import pwd  # only where there are login shells

    shell = os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    mark = f"PATH of {os.getpid()}: "
    try:
        process = await asyncio.create_subprocess_exec(
            shell, "-ilc", f"printf '\\n%s%s\\n' '{mark}' \"$PATH\"",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError):
        return ""
    found = ""
    try:
        async with asyncio.timeout(_SHELL_S):
            assert process.stdout is not None
            async for line in process.stdout:
                said = line.decode("utf-8", "surrogateescape")
                if said.startswith(mark):
                    found = said.removeprefix(mark).strip()
                    break
    except (TimeoutError, ValueError):
        pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, _KILL)
    await _has_ended(process, _ENDS_S)
    return found


@contextlib.asynccontextmanager
async def web(server: Server) -> AsyncIterator[Streams]:
    """Yield the streams of messages with a server at an address (streamable HTTP)."""
    pace = Pace()
    loop = asyncio.get_running_loop()

    async def limit(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):
            raise ServerFault(text("tools.forbidden", status=response.status_code))
        kind = response.headers.get("content-type", "").lower().partition(";")[0].strip()
        is_plain = response.headers.get("content-encoding", "identity").lower() == "identity"
        response.stream = _Limited(response.stream, pace, loop, kind, is_plain)

    client = _WebClient(
        headers={"accept-encoding": "identity", **server.headers},  # packed ones are not mended
        timeout=httpx2.Timeout(_CONNECT_S, read=None),  # a call has a limit of its own
        event_hooks={"response": [limit]},
        # A proxy of the environment cannot reach this machine.
        mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")),
    )
    async with client, streamable_http_client(server.url, http_client=client) as streams:
        yield streams


class _WebClient(httpx2.AsyncClient):
    """Answers a request about tools in place of a server that cannot be reached.

    An error would end the connection, and no one could say that the request was never sent.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if b'"tools/' not in request.content:
                raise
            error = {"code": INVALID_REQUEST, "message": "Session terminated"}
            answer = {"jsonrpc": "2.0", "id": 0, "error": error}
            return httpx2.Response(503, json=answer, request=request)


class _Limited(httpx2.AsyncByteStream):
    """A response's body. Reading raises ServerFault where it comes too fast.

    A message that is too long ends its call: the mcp package answers it with these errors. One that
    breaks rules is mended: the package would refuse all of it.
    """

    def __init__(
        self, body: Any, pace: Pace, loop: asyncio.AbstractEventLoop, kind: str, is_plain: bool
    ) -> None:
        self._body, self._pace, self._loop = body, pace, loop
        self._is_stream, self._is_plain = kind == "text/event-stream", is_plain
        self._error = httpx2.SSEError if self._is_stream else httpx2.StreamError

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest, n_byte = bytearray(), 0  # of the message that has not ended
        async for chunk in self._body:
            self._pace.count(len(chunk), self._loop.time())
            ends = [found.end() for found in _EVENT_END.finditer(rest[-3:] + chunk)]
            n_byte = 0 if self._is_stream and ends else n_byte + len(chunk)
            if n_byte > MESSAGE_BYTES_MAX:
                raise self._error(text("tools.long_answer", n=n_byte, limit=MESSAGE_BYTES_MAX))
            if not self._is_plain:
                yield chunk
                continue
            rest += chunk
            if self._is_stream and ends:
                *events, last = _EVENT_END.split(bytes(rest))
                for event in events:
                    yield read_event(event) + b"\n\n"
                rest = bytearray(last)
        if rest:
            yield bytes(rest) if self._is_stream else read_body(bytes(rest))

    async def aclose(self) -> None:
        await self._body.aclose()


async def _has_ended(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    """Wait for a process to end.

    Its wait() would also wait for processes that have inherited its pipes.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    while process.returncode is None:
        if loop.time() > ends_s:
            return False
        await asyncio.sleep(0.01)
    return True
