"""The worker process of the window: backend.protocol.connection, driven by Qt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.state.engine_choice import EngineChoice
from backend.protocol.attachments import as_text
from backend.protocol.chat import ChatOptions
from backend.protocol.connection import Connection, Event
from backend.protocol.status import Json

SHUTDOWN_MS = 500
LAST_WORDS = 4096  # characters of standard error


class EngineLink(QObject):
    """Owns the worker process. Nothing here blocks, except closing, for at most a second.

    The signal with the name of an event's kind emits it. Events without a signal are for other
    clients. Requests without a process are dropped.

    command: starts the worker. process: makes what runs it.
    """

    hello = Signal()  # the worker has started
    loading = Signal(float, object)  # fraction, stage
    loaded = Signal(object, object)  # ModelFacts, CacheFacts
    configured = Signal(object, object)  # ModelFacts, CacheFacts after a change of settings
    reloaded = Signal(object, object)  # ModelFacts, CacheFacts: the freed model is loaded again
    cache_changed = Signal(object)  # CacheFacts that the engine changed by itself
    waits = Signal(int)  # number of requests of the local server that come before this answer
    server = Signal(object)  # dict: the state of the local server
    formatted = Signal(str)  # the rendered prompt of a conversation
    # [(name, description)] of the devices other than the CPU; [(file, backend, trouble)] of the
    # backends that are libraries of their own: one of backend and trouble is empty
    devices = Signal(object, object)
    prefill = Signal(int, int)  # done, total: tokens of the prompt
    text = Signal(object, str)  # Delta, and the piece of the answer as the model wrote it
    other_text = Signal(int, object, str)  # as text, of an answer from 1 on that is beside it
    other_done = Signal(int, str, object)  # number from 0, reason, Statistics: one has ended
    stats = Signal(object)  # Statistics, about five times a second while answering
    residency = Signal(object)  # Residency
    moments = Signal(object)  # Batch of passes, in the scope "all"
    advice = Signal(object)  # Advice, after an answer in the scope "all"
    aside = Signal(str)  # text of an answer that is no part of a chat; "" if it was stopped
    done = Signal(str, object)  # reason, Statistics: an answer has ended
    error = Signal(str, object)  # kind of the request, sentence: a request has failed
    refused = Signal(object)  # sentence: a file cannot be loaded; the model before is still loaded
    attaching = Signal(int, int, int)  # number of the request, pages read, pages in all
    attached = Signal(int, object, object)  # number; Attachment or None; refusal, one sentence
    picture = Signal(int, object)  # number of the request; Picture or None
    unloaded = Signal()  # the model is freed
    counted = Signal(int, int)  # number of the request, tokens
    died = Signal(object)  # sentence; the process has ended, start() makes a new one
    hangs = Signal(object)  # sentence; the process runs but shows no progress
    recovered = Signal()  # a hanging process shows progress again
    learning = Signal(object)  # LearningFacts

    def __init__(
        self,
        command: list[str],
        process: Callable[[QObject], QProcess] = lambda parent: QProcess(parent),
    ) -> None:
        super().__init__()
        self._command, self._make_process = command, process
        self._process: QProcess | None = None
        self._connection = Connection(time.monotonic())
        self._scope = "nothing"
        self._aside = 0  # number of the request for an answer aside; 0: there is none
        self._aside_text = ""
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(lambda: self._handle(self._connection.tick(time.monotonic())))

    @property
    def is_running(self) -> bool:
        """Return whether there is a worker process."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return the worker's process id; 0 without a process."""
        return int(self._process.processId()) if self._process else 0

    @property
    def last_words(self) -> str:
        """Return the end of the worker's standard error."""
        return self._connection.last_words[-LAST_WORDS:]

    def start(self) -> None:
        """Start a worker process. Its messages arrive as signals."""
        assert self._process is None
        self._connection = Connection(time.monotonic())
        self._process = process = self._make_process(self)
        process.readyReadStandardOutput.connect(self._read)
        process.readyReadStandardError.connect(self._read_stderr)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._error_occurred)
        process.start(self._command[0], self._command[1:])
        self._send("watch", scope=self._scope)

    def load(self, path: Path, choice: EngineChoice) -> None:
        """Load a model in place of the present one."""
        self._request("load", path=str(path), **choice.to_message())

    def generate(
        self,
        messages: list[Json],
        sampling: Json,
        options: ChatOptions,
        max_tokens: int = -1,
        n_answer: int = 1,
        owner: str = "",
    ) -> None:
        """Request an answer, or several at once. A last message of the assistant is continued.

        owner: of the state that stays on the drive; "": none stays.
        """
        self._request(
            "generate",
            messages=messages,
            sampling=sampling,
            options=options.to_json(),
            max_tokens=max_tokens,
            n_answer=n_answer,
            **({"owner": owner} if owner else {}),
        )
        if self._process is not None:
            self._process.waitForBytesWritten(0)  # now, and not after the question was drawn

    def ask_aside(
        self, messages: list[Json], sampling: Json, options: ChatOptions, max_tokens: int
    ) -> None:
        """Request an answer that is no part of a chat; `aside` emits its text.

        Its figures and moments are dropped. The next request for the engine stops it.
        """
        self._aside_text = ""
        self._aside = self._request(
            "generate",
            messages=messages,
            sampling=sampling,
            options=options.to_json(),
            max_tokens=max_tokens,
            aside=True,
        )

    def _take_aside(self, event: Event) -> bool:
        """Take an event of the answer aside. Return False for other events."""
        number = (event.message or {}).get("id")
        if not self._aside or (number or self._aside) != self._aside:
            return False
        if event.kind in ("done", "error"):
            self._aside = 0
            is_whole = event.kind == "done" and event.values[0] in ("stop", "length")
            self.aside.emit(self._aside_text if is_whole else "")
        elif event.kind == "text":
            self._aside_text += event.values[0].content
        return event.kind in ("done", "error", "text", "prefill", "stats", "moments", "waits")

    def format(self, messages: list[Json], options: ChatOptions) -> None:
        """Request the prompt that a conversation becomes."""
        self._request("format", messages=messages, options=options.to_json())

    def configure(self, choice: EngineChoice) -> None:
        """Change the settings of the loaded model.

        Within an answer only those of the cache change at once, the others after it.
        """
        self._request("configure", **choice.to_message())

    def learn(self, action: str) -> None:
        """Control learning from chats, and request its state. `action`: see supervisor.ACTIONS."""
        self._request("learning", action=action)

    def serve(self, **fields: Any) -> None:
        """Switch the local server on or off, or change its settings."""
        self._request("serve", **fields)

    def list_devices(self) -> None:
        """Request the list of devices other than the CPU."""
        self._request("devices")

    def unload(self) -> None:
        """Free the model."""
        self._request("unload")

    def attach(self, path: Path) -> int:
        """Read a file, also without a model. Return the number of the request."""
        if self._process is None:
            self.start()
        return self._request("attach", path=str(path))

    def ask_picture(self, data: str, side: int) -> int:
        """Decode an image file in Base64, also without a model. Return the request's number."""
        if self._process is None:
            self.start()
        return self._request("picture", data=data, side=side)

    def count(self, part: Json) -> int:
        """Count the tokens of a file or an image. Return the number of the request."""
        if part["type"] == "image":
            return self._request("count", text="", data=part["data"])
        return self._request("count", text=as_text([part]))

    def cancel(self, number: int) -> None:
        """Stop reading a file."""
        self._send("stop", id=number)

    def warm(self, owner: str) -> None:
        """Fetch the experts that an owner's conversation used while nothing else is done."""
        if self._process is not None:
            self._send("warm", owner=owner)

    def forget(self, owner: str) -> None:
        """Delete the states of an owner."""
        if self._process is not None:
            self._send("forget", owner=owner)

    def watch(self, scope: str) -> None:
        """Set the events sent beside the text: "nothing", "map" or "all", also after a restart."""
        if scope != self._scope:
            self._scope = scope
            self._send("watch", scope=scope)

    def stop(self) -> None:
        """Cancel the load or the answer in progress."""
        self._connection.stop()
        self._handle([])

    def shut_down(self) -> None:
        """Ask the worker to end, then kill it. It holds no unsaved data."""
        process = self._process
        if process is not None and process.state() == QProcess.ProcessState.Running:
            process.blockSignals(True)
            self._send("shutdown")
            process.closeWriteChannel()
            process.waitForFinished(SHUTDOWN_MS)
        self.kill()

    def kill(self) -> None:
        """Kill the worker."""
        process = self._process
        self._drop_process()
        if process is not None:
            process.waitForFinished(SHUTDOWN_MS)

    def _drop_process(self) -> None:
        process, self._process = self._process, None
        self._timer.stop()
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.deleteLater()

    def _request(self, kind: str, **fields: Any) -> int:
        """Send a request and return its number, or 0 without a process."""
        if self._process is None:
            return 0
        if kind in ("generate", "load", "configure") and self._aside:
            self._connection.send("stop", id=self._aside)
        number = self._connection.request(kind, time.monotonic(), **fields)
        self._handle([])
        return number

    def _send(self, kind: str, **fields: Any) -> None:
        self._connection.send(kind, **fields)
        self._handle([])

    def _handle(self, events: list[Event]) -> None:
        """Write pending output, set the timer, and emit the events."""
        process = self._process
        if process is None:
            return
        if data := self._connection.take_output():
            process.write(data)
        if (due_s := self._connection.deadline_s) is None:
            self._timer.stop()
        else:
            self._timer.start(max(0, round(1000 * (due_s - time.monotonic()))))
        for event in events:
            if self._process is not process:  # a receiver has killed it
                return
            if event.kind == "died":
                self._aside = 0
                self._drop_process()
            if event.kind == "error" and event.message and event.message.get("kept"):
                self.refused.emit(event.values[-1])
            elif self._take_aside(event):
                continue
            elif event.kind in _SIGNALS:
                getattr(self, event.kind).emit(*event.values)

    def _read(self) -> None:
        if self._process is not None:
            data = bytes(self._process.readAllStandardOutput().data())
            self._handle(self._connection.receive(data, time.monotonic()))

    def _read_stderr(self) -> None:
        if self._process is not None:
            self._connection.receive_stderr(bytes(self._process.readAllStandardError().data()))

    def _error_occurred(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._handle(self._connection.process_failed_to_start())

    def _finished(self, exit_code: int, status: QProcess.ExitStatus) -> None:
        self._read_stderr()
        self._read()
        crashed = status == QProcess.ExitStatus.CrashExit
        # Qt gives the signal's number for a crash on Unix; subprocess and describe_exit negate it.
        returncode = -exit_code if crashed and os.name == "posix" else exit_code
        self._handle(self._connection.process_ended(returncode))


_SIGNALS = {name for name, value in vars(EngineLink).items() if isinstance(value, Signal)}
