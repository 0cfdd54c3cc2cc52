"""The other side of the worker's pipe, for a program without an event loop of its own.

`WorkerClient` starts the worker process, sends requests and gives their replies as iterators. The
terminal chat uses it; the window drives the same process through QProcess and shares
`worker_command` and `describe_exit`.
"""

from __future__ import annotations

import itertools
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

from backend import children
from backend.messages import (
    EXIT_PROTOCOL,
    FINAL,
    VERSION,
    Decoder,
    Message,
    ProtocolError,
    encode,
    request_id,
)

_STDERR_TAIL_BYTES = 16384
_READ_BYTES = 1 << 16
_POLL_S = 0.5  # a wait without a limit cannot be interrupted on Windows
_HELLO_TIMEOUT_S = 120.0


class WorkerDied(Exception):
    """The worker process is gone; str() is one plain sentence."""


class RequestFailed(Exception):
    """The worker answered with an error; str() is its sentence."""


def worker_command() -> list[str]:
    """Return the command that starts a worker running the same code as this process.

    The worker is asked to die with the calling thread only where that is the main thread, since
    the system would otherwise kill it when the thread ends.
    """
    in_main = threading.current_thread() is threading.main_thread()
    return children.command("backend.worker", *(["--die-with-parent"] if in_main else []))


_WINDOWS_EXITS = {
    0xC0000005: "it crashed (access violation)",
    0xC0000017: "memory ran out",
    0xC000001D: "it crashed (this processor lacks an instruction that it needs)",
    0xC00000FD: "it crashed (stack overflow)",
    0xC0000135: "a library that it needs is missing",
    0xC0000409: "it stopped on a failed check",
}
_ASSERT = re.compile(r"GGML_ASSERT\((.*)\) failed|fatal error: (.*)")
_DEVICE_GONE = re.compile(r"Remote RPC server crashed|Failed to connect to|RPC handshake failed")
_DEVICE_FAILED = re.compile(r"^(CUDA|ROCm|Vulkan|Metal|SYCL)[^:\n]*error:? *(.*)", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|MemoryError|failed to allocate|cannot allocate memory|out of memory", re.IGNORECASE
)


def describe_exit(returncode: int | None, stderr_tail: str) -> str:
    """Return one plain sentence about why the worker ended.

    `returncode` is that of subprocess: minus the signal's number where a signal ended it (with
    QProcess: minus exitCode() after CrashExit, outside Windows). None: unknown.
    `stderr_tail` is the end of what it wrote to standard error.
    """
    who = "The engine's process ended unexpectedly"
    failed_check = _ASSERT.search(stderr_tail)
    memory = _OUT_OF_MEMORY.search(stderr_tail) is not None
    if returncode is None:
        return f"{who}."
    if _DEVICE_GONE.search(stderr_tail):
        return (
            f"{who}: the remote device no longer answers. What was said is kept; "
            "choose another device, or load the model again when it is back."
        )
    if failed_device := _DEVICE_FAILED.search(stderr_tail):
        said = " ".join(failed_device.group(2).split())[:120] or "no reason was given"
        return f"{who}: the device failed ({failed_device.group(1)}: {said})."
    if failed_check is not None:
        check = " ".join((failed_check.group(1) or failed_check.group(2)).split())[:120]
        return f"{who}: llama.cpp stopped on a failed check ({check})."
    if returncode == 0:
        return f"{who} without an error."
    if returncode & 0xFFFFFFFF in _WINDOWS_EXITS:
        return f"{who}: {_WINDOWS_EXITS[returncode & 0xFFFFFFFF]}."
    if returncode < 0:
        return f"{who}: {_describe_signal(-returncode, memory)}."
    if memory:
        return f"{who}: memory ran out; a lower cache rate or a shorter context needs less."
    return f"{who} with status {returncode}."


def _describe_signal(number: int, memory: bool) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = ""
    if name == "SIGKILL":
        return (
            "it was killed (signal 9), most likely because memory ran out; "
            "a lower cache rate or a shorter context needs less"
        )
    if memory:
        return (
            f"memory ran out (signal {number}); a lower cache rate or a shorter context needs less"
        )
    if name == "SIGBUS":
        return (
            f"the model file could not be read any more (signal {number}); "
            "it may have been shortened, or its drive removed"
        )
    words = {
        "SIGSEGV": "it crashed",
        "SIGILL": "it crashed (this processor lacks an instruction that it needs)",
        "SIGFPE": "it crashed",
        "SIGABRT": "it stopped on a failed check",
        "SIGTERM": "it was told to end",
        "SIGHUP": "it was told to end",
        "SIGINT": "it was told to end",
    }.get(name, "it was ended")
    return f"{words} (signal {number}{', ' + name if name else ''})"


class Reply(Iterator[Message]):
    """The messages that answer one request, the final one last.

    An iterator that survives an interrupt: after KeyboardInterrupt it can be continued. Raises
    WorkerDied when the process ends before the final message.
    """

    def __init__(self, client: WorkerClient, request_id: int) -> None:
        self.id = request_id
        self._client = client
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._ended = False

    def __next__(self) -> Message:
        if self._ended:
            raise StopIteration
        while True:
            try:
                message = self._inbox.get(timeout=_POLL_S)
                break
            except queue.Empty:
                continue
        if message is None:
            self._ended = True
            raise WorkerDied(self._client.death())
        self._ended = message["type"] in FINAL
        return message

    def final(self) -> Message:
        """Skip to the final message and return it; raises RequestFailed for an error."""
        message = list(self)[-1]
        if message.get("type") == "error":
            raise RequestFailed(message["message"])
        return message


class WorkerClient:
    """A worker process and its pipe; blocking. Requests may be sent from any thread.

    Raises WorkerDied where the process does not come up. Messages that belong to no open request
    (the map after an answer) are dropped.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = (
                subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
            )
        else:
            options["start_new_session"] = True  # Ctrl-C in the terminal is for this process
        try:
            self._process = subprocess.Popen(
                list(command or worker_command()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                **options,
            )
        except OSError as error:
            raise WorkerDied(
                f"The engine's process could not be started: {error.strerror}."
            ) from None
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._replies: dict[int, Reply] = {}
        self._stderr_tail = bytearray()
        self._fault = ""
        self._last_error = ""  # of those that belong to no request
        self._dead = False
        self._hello: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._stderr_thread = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader_thread = threading.Thread(target=self._read_stdout, daemon=True)
        self._stderr_thread.start()
        self._reader_thread.start()
        try:
            self.hello = self._greet()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def request(self, kind: str, **fields: Any) -> Reply:
        """Send a request and return its reply. Raises WorkerDied."""
        reply = Reply(self, next(self._ids))
        with self._lock:
            if self._dead:
                raise WorkerDied(self.death())
            self._replies[reply.id] = reply
        self._send({"type": kind, "id": reply.id, **fields})
        return reply

    def stop(self, reply: Reply) -> None:
        """Ask the worker to end a load or an answer; its reply still ends with a final message."""
        self._send({"type": "stop", "id": reply.id})

    def watch(self, scope: str) -> None:
        """Say what is wanted beside the text: "nothing", "map" (at first) or "all"."""
        self._send({"type": "watch", "scope": scope})

    def close(self, timeout_s: float = 2.0) -> None:
        """End the worker: in order where it can, by force after `timeout_s`."""
        self._send({"type": "shutdown"})
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """End the worker at once and release its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for thread in (self._reader_thread, self._stderr_thread):
            thread.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def death(self) -> str:
        """Return one plain sentence about the end of the process. Waits a moment for it."""
        try:
            returncode: int | None = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            returncode = self._process.wait()
            if not self._fault:
                self._fault = "The engine's process closed its pipe and was ended."
        self._stderr_thread.join(1.0)
        tail = bytes(self._stderr_tail).decode("utf-8", "replace")
        if returncode == EXIT_PROTOCOL and self._last_error:
            return self._last_error
        return self._fault or describe_exit(returncode, tail)

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greet(self) -> Message:
        self._send({"type": "hello", "version": VERSION})
        deadline_s = time.monotonic() + _HELLO_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                message = self._hello.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if message is None:
                raise WorkerDied(self.death())
            if message.get("version") != VERSION:
                raise WorkerDied("The engine's process is of another version than this program.")
            return message
        raise WorkerDied("The engine's process does not answer.")

    def _send(self, message: Message) -> None:
        frame = encode(message)
        with self._send_lock:
            try:
                _write(self._process.stdin, frame)
            except (OSError, ValueError):
                pass  # it is gone: the reader sees the end of the pipe and says so

    def _read_stdout(self) -> None:
        decoder = Decoder()
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while data := pipe.read(_READ_BYTES):
                for message in decoder.feed(data):
                    self._deliver(message)
        except ProtocolError as error:
            self._fault = f"The engine's process sent something unreadable: {error}"
            self._process.kill()
        except (OSError, ValueError):
            pass
        with self._lock:
            self._dead = True
            replies = list(self._replies.values())
            self._replies.clear()
        for reply in replies:
            reply._inbox.put(None)
        self._hello.put(None)

    def _deliver(self, message: Message) -> None:
        if message.get("type") == "hello":
            self._hello.put(message)
            return
        job_id = request_id(message)
        with self._lock:
            reply = self._replies.get(job_id) if job_id is not None else None
            if reply is not None and message.get("type") in FINAL:
                del self._replies[reply.id]
        if reply is not None:
            reply._inbox.put(message)
        elif message.get("type") == "error":
            self._last_error = str(message.get("message", ""))

    def _read_stderr(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        show = bool(os.environ.get("OUTRIDER_DEBUG"))
        try:
            while data := pipe.read(_READ_BYTES):
                self._stderr_tail += data
                del self._stderr_tail[:-_STDERR_TAIL_BYTES]
                if show:
                    sys.stderr.write(data.decode("utf-8", "replace"))
                    sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _write(pipe: IO[bytes] | None, data: bytes) -> None:
    assert pipe is not None
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) :]
