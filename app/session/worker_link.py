"""The worker process of the window: backend.protocol.connection, driven by Qt."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.state.engine_choice import EngineChoice
from backend.protocol.connection import Connection, Event
from backend.protocol.status import Json

SHUTDOWN_MS = 500
LAST_WORDS = 4096  # characters


class EngineLink(QObject):
    """Owns the worker process. Nothing here waits for it, except closing, for half a second.

    An event of the connection is emitted by the signal with the name of its kind. Events without
    such a signal are for other clients. A request is dropped if there is no process.
    """

    hello = Signal()  # the worker is there
    loading = Signal(float, object)  # fraction, stage
    loaded = Signal(object, object)  # ModelFacts, CacheFacts
    configured = Signal(object, object)  # ModelFacts, CacheFacts in force after a change
    cache_changed = Signal(object)  # CacheFacts that the engine changed by itself
    waits = Signal(int)  # so many answers of the local server come before this one
    server = Signal(object)  # dict: the state of the local server
    devices = Signal(object)  # [(name, description)] of what may compute beside the processor
    prefill = Signal(int, int)  # done, total: tokens of the prompt
    text = Signal(str)  # a piece of the answer
    stats = Signal(object)  # Statistics, about five times a second while answering
    residency = Signal(object)  # Residency
    moments = Signal(object)  # Batch of passes, while they are watched
    advice = Signal(object)  # Advice after an answer that was watched
    done = Signal(str, object)  # reason, Statistics: the end of an answer
    error = Signal(str, object)  # type of the request, sentence: it ended without a result
    died = Signal(object)  # sentence; the process is gone and start() makes a new one
    hangs = Signal(object)  # sentence; the process is there but shows no sign of work
    recovered = Signal()  # it shows one after all
    learning = Signal(object)  # LearningFacts, asked for or not

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = command
        self._process: QProcess | None = None
        self._connection = Connection(time.monotonic())
        self._scope = "nothing"
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(lambda: self._handle(self._connection.tick(time.monotonic())))

    @property
    def is_running(self) -> bool:
        """Whether there is a process to talk to."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The worker's process id, 0 without one."""
        return int(self._process.processId()) if self._process else 0

    @property
    def last_words(self) -> str:
        """The end of what the worker wrote to standard error."""
        return self._connection.last_words[-LAST_WORDS:]

    def start(self) -> None:
        """Start a worker process; what it says arrives as signals."""
        assert self._process is None
        self._connection = Connection(time.monotonic())
        self._process = process = QProcess(self)
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
        self, conversation: list[dict[str, str]], sampling: Json, max_tokens: int = -1
    ) -> None:
        """Ask for an answer; a last message of the assistant is continued."""
        self._request("generate", messages=conversation, sampling=sampling, max_tokens=max_tokens)

    def configure(self, choice: EngineChoice) -> None:
        """Change the settings of the loaded model; only between answers."""
        self._request("configure", **choice.to_message())

    def learn(self, action: str) -> None:
        """Ask for the state of learning from chats; `action`: one of supervisor.ACTIONS."""
        self._request("learning", action=action)

    def serve(self, on: bool, port: int, key: str) -> None:
        """Switch the local server on or off."""
        self._request("serve", on=on, port=port, key=key)

    def list_devices(self) -> None:
        """Ask what may compute here beside the processor."""
        self._request("devices")

    def watch(self, scope: str) -> None:
        """Say what is wanted beside the text: "nothing", "map" or "all"; also of later workers."""
        if scope != self._scope:
            self._scope = scope
            self._send("watch", scope=scope)

    def stop(self) -> None:
        """Cancel the load or the answer that is under way."""
        self._connection.stop()
        self._handle([])

    def shut_down(self) -> None:
        """End the worker: politely, then not. There is nothing in it to lose."""
        process = self._process
        if process is not None and process.state() == QProcess.ProcessState.Running:
            process.blockSignals(True)
            self._send("shutdown")
            process.closeWriteChannel()
            process.waitForFinished(SHUTDOWN_MS)
        self.kill()

    def kill(self) -> None:
        """End the worker at once."""
        process = self._process
        self._let_go()
        if process is not None:
            process.waitForFinished(SHUTDOWN_MS)

    def _let_go(self) -> None:
        process, self._process = self._process, None
        self._timer.stop()
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.deleteLater()

    def _request(self, kind: str, **fields: Any) -> None:
        if self._process is not None:
            self._connection.request(kind, time.monotonic(), **fields)
            self._handle([])

    def _send(self, kind: str, **fields: Any) -> None:
        self._connection.send(kind, **fields)
        self._handle([])

    def _handle(self, events: list[Event]) -> None:
        """Write what is to be written, set the timer, and emit the events."""
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
            if self._process is not process:  # a receiver let go of it
                return
            if event.kind == "died":
                self._let_go()
            if event.kind in _SIGNALS:
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
