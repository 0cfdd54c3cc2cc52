"""The process that runs the servers of tools (backend.tools.host), driven by Qt."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system import faults

END_MS = 1500
PING_MS = 5_000
N_PING_MAX = 6  # without an answer, then the process counts as stuck


class ToolHost(QObject):
    """Starts the process with the first request. Nothing here blocks, except closing.

    Signals:
        told: (dict) a message of the process.
        died: (str) the process has ended, or was stuck and was killed. With the sentence about the
            unexpected error that ended it, or "".
    """

    told = Signal(object)
    died = Signal(object)

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = command
        self._process: QProcess | None = None
        self._decoder = Decoder()
        self._groups: dict[str, int] = {}  # process groups of the servers, by name
        self._n_ping = self._pid = 0
        self._timer = QTimer(self, interval=PING_MS)
        self._timer.timeout.connect(self._ping)

    @property
    def is_running(self) -> bool:
        """Return whether there is a process."""
        return self._process is not None

    @property
    def groups(self) -> list[int]:
        """Return the process groups of the servers that run."""
        return list(self._groups.values())

    def send(self, kind: str, **fields: Any) -> None:
        """Send a request. Start the process if necessary."""
        if self._process is None:
            self._start()
        assert self._process is not None
        self._process.write(encode({"type": kind, **fields}))

    def close(self) -> None:
        """End the process and all servers."""
        process = self._process
        if process is not None and process.state() != QProcess.ProcessState.NotRunning:
            process.blockSignals(True)
            process.closeWriteChannel()
            process.waitForFinished(END_MS)
        self._drop()

    def _start(self) -> None:
        self._decoder, self._n_ping, self._pid = Decoder(), 0, 0
        self._process = process = QProcess(self)
        process.setProcessChannelMode(QProcess.ProcessChannelMode.SeparateChannels)
        process.setStandardErrorFile(QProcess.nullDevice())
        process.started.connect(self._note_pid)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._give_up)
        process.errorOccurred.connect(self._give_up)
        process.start(self._command[0], self._command[1:])
        self._timer.start()

    def _note_pid(self) -> None:
        if self._process is not None:
            self._pid = self._process.processId()

    def _read(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            messages, is_garbled = (
                self._decoder.feed(bytes(process.readAllStandardOutput().data())), False,
            )  # fmt: skip
        except ProtocolError as error:
            messages, is_garbled = error.messages, True
        for message in messages:
            self._take(message)
            if self._process is not process:
                return
        if is_garbled:
            self._give_up()

    def _take(self, message: Message) -> None:
        if message.get("type") == "pong":
            self._n_ping = 0
            return
        if message.get("type") == "server":
            name, pid = message["server"], message["pid"]
            if pid and message["state"] in ("starting", "ready"):
                self._groups[name] = pid
            elif message["state"] in ("failed", "off"):
                self._groups.pop(name, None)
        self.told.emit(message)

    def _ping(self) -> None:
        self._n_ping += 1
        if self._n_ping > N_PING_MAX:
            self._give_up()
        else:
            self.send("ping", id=self._n_ping)

    def _give_up(self, *_: object) -> None:
        if self._process is not None:
            self._drop()
            self.died.emit(faults.of_process(self._pid))

    def _drop(self) -> None:
        """Kill the process, and servers that have outlived it."""
        process, self._process = self._process, None
        self._timer.stop()
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.waitForFinished(END_MS)
            process.deleteLater()
        groups, self._groups = self._groups, {}
        for group in groups.values() if os.name == "posix" else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
