"""A blocking client of the worker, for programs without an event loop.

`WorkerClient` starts the worker process, sends requests and returns their replies as iterators. The
terminal chat uses it. The protocol is in `backend.protocol.connection`; the window drives it
through Qt.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

from backend.protocol.connection import Connection, Event
from backend.protocol.messages import FINAL, Message, request_id
from backend.system import children, faults

_READ_BYTES = 1 << 16
_POLL_S = 0.5  # on Windows, a wait without a limit cannot be interrupted
_EXIT_S = 1.0  # limit between the end of the worker's pipe and the end of its process


class WorkerDied(Exception):
    """The worker process is gone; str() is one plain sentence."""


class RequestFailed(Exception):
    """The worker answered with an error; str() is its sentence."""


def worker_command() -> list[str]:
    """Return the command that starts a worker with the same code as this process.

    The worker dies with this process only if the main thread calls; the system would otherwise kill
    it when the calling thread ends.
    """
    in_main = threading.current_thread() is threading.main_thread()
    return children.command("backend.worker.main", *(["--die-with-parent"] if in_main else []))


class Reply(Iterator[Message]):
    """The messages that answer one request, the final one last.

    The iterator can be continued after KeyboardInterrupt. Raises WorkerDied when the process ends
    before the final message.
    """

    def __init__(self, client: WorkerClient) -> None:
        self.id = 0
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
            raise WorkerDied(self._client.death)
        self._ended = message["type"] in FINAL
        return message

    def final(self) -> Message:
        """Skip to the final message and return it. Raises RequestFailed for an error."""
        message = list(self)[-1]
        if message.get("type") == "error":
            raise RequestFailed(message["message"])
        return message


class WorkerClient:
    """A worker process and its pipe; blocking. Requests may be sent from any thread.

    Raises WorkerDied where the process does not start. Messages that belong to no open request (the
    map after an answer) are dropped.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = (
                subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
            )
        else:
            options["start_new_session"] = True  # Ctrl-C in the terminal must not reach it
        self._connection = Connection(time.monotonic())
        self._lock = threading.Lock()  # guards the connection and the replies
        self._write_lock = threading.Lock()
        self._replies: dict[int, Reply] = {}
        self._greeted = threading.Event()  # set by the hello or by the end of the process
        self.death = ""
        """One plain sentence about the end of the process; empty while it lives."""
        try:
            self._process = subprocess.Popen(
                list(command or worker_command()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=children.environment(),
                **options,
            )
        except OSError as error:
            self._handle(self._connection.process_failed_to_start(error.strerror or ""))
            raise WorkerDied(self.death) from None
        self._stderr_thread = faults.Thread(
            "worker's errors", self._read_stderr, failed=faults.no_place
        )
        self._reader_thread = faults.Thread("worker", self._read_stdout, failed=self._fail)
        self._stderr_thread.start()
        self._reader_thread.start()
        try:
            self._flush()
            while not self._greeted.wait(_POLL_S):
                with self._lock:
                    self._handle(self._connection.tick(time.monotonic()))
            if self.death:
                raise WorkerDied(self.death)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def request(self, kind: str, **fields: Any) -> Reply:
        """Send a request and return its reply. Raises WorkerDied."""
        reply = Reply(self)
        with self._lock:
            if self._connection.is_over:
                raise WorkerDied(self.death)
            reply.id = self._connection.request(kind, time.monotonic(), **fields)
            self._replies[reply.id] = reply
        self._flush()
        return reply

    def stop(self, reply: Reply) -> None:
        """Ask the worker to end a load or an answer. The reply still ends with a final message."""
        self._send("stop", id=reply.id)

    def close(self, timeout_s: float = 2.0) -> None:
        """Ask the worker to end, and kill it after `timeout_s`."""
        self._send("shutdown")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the worker at once and release its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for thread in (self._reader_thread, self._stderr_thread):
            thread.join(2 * _EXIT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._connection.send(kind, **fields)
        self._flush()

    def _flush(self) -> None:
        """Write the pending output, in order."""
        with self._write_lock:
            with self._lock:
                data = self._connection.take_output()
            # The error says that the worker is gone; the reader sees the end of the pipe.
            with contextlib.suppress(OSError, ValueError):
                _write(self._process.stdin, data)

    def _handle(self, events: list[Event]) -> None:
        """Pass each message to its reply. The caller holds the lock."""
        for kind, values, message in events:
            if kind == "hello":
                self._greeted.set()
            elif kind == "died":
                self.death = values[0]
                self._greeted.set()
                for reply in self._replies.values():
                    reply._inbox.put(None)
                self._replies.clear()
            take = self._replies.pop if kind in FINAL else self._replies.get
            if message and (owner := take(request_id(message) or 0, None)) is not None:
                owner._inbox.put(message)

    def _read_stdout(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while not self._connection.is_over and (data := pipe.read(_READ_BYTES)):
                with self._lock:
                    self._handle(self._connection.receive(data, time.monotonic()))
        except (OSError, ValueError):
            pass
        returncode: int | None = None
        try:
            if not self._connection.is_over:
                returncode = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            pass
        self._process.kill()
        self._stderr_thread.join(_EXIT_S)
        with self._lock:
            self._handle(self._connection.process_ended(returncode))

    def _fail(self, sentence: str) -> None:
        """Give up the worker: its messages are read no more."""
        self._process.kill()
        with self._lock:
            self._handle(self._connection.give_up(sentence))

    def _read_stderr(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        show = bool(os.environ.get("OUTRIDER_DEBUG"))
        try:
            while data := pipe.read(_READ_BYTES):
                self._connection.receive_stderr(data)
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
