"""The fake worker in the window's process: in threads, with the interface of a QProcess.

It is the real worker around the fake engine, and the messages go through real pipes, so that they
are encoded, cut, decoded and checked as between two processes. What only a process has (a pid,
standard error, a status, a way to be killed) needs the real transport: window_samples.FAKE_WORKER.
"""

import functools
import os
import queue
import threading
from typing import Any

from fake_worker import Life, check_fake, open_fake
from PySide6.QtCore import QByteArray, QObject, QProcess, QSocketNotifier, Signal
from waiting import WAIT_S

from backend.protocol.messages import encode
from backend.system import faults
from backend.worker import main as worker

worker.LEAVE_S = WAIT_S  # its pipes are closed behind it, so nothing may still write to them
READ_BYTES = 1 << 20
NO_PID = 1 << 23  # above the largest that a system gives: a signal to it raises an error


class WorkerInside(QObject):
    """Pass it to EngineLink as what makes a process."""

    readyReadStandardOutput = Signal()
    readyReadStandardError = Signal()
    finished = Signal(int, QProcess.ExitStatus)
    errorOccurred = Signal(QProcess.ProcessError)
    _left = Signal(int)  # status

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._life = Life()
        self._readers: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()
        self._left.connect(self._ended)

    def start(self, _program: str, _arguments: list[str]) -> None:
        worker_in, self._to_worker = os.pipe()
        self._from_worker, worker_out = os.pipe()
        os.set_blocking(self._from_worker, False)
        self._notifier = QSocketNotifier(self._from_worker, QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self.readyReadStandardOutput)
        self._thread = faults.Thread(
            "worker", self._run, worker_in, worker_out, failed=faults.no_place
        )
        self._thread.start()

    def _run(self, worker_in: int, worker_out: int) -> None:
        opener: Any = functools.partial(open_fake, life=self._life)
        worker.Worker(opener, check_fake, worker_in, worker_out, self._leave).run()
        self._readers.get().join()
        os.close(worker_in)
        os.close(worker_out)

    def _leave(self, status: int) -> None:
        if threading.current_thread().name == "reader":
            self._readers.put(threading.current_thread())
        self._left.emit(status)

    def _ended(self, status: int) -> None:
        self.finished.emit(status, QProcess.ExitStatus.NormalExit)

    def state(self) -> QProcess.ProcessState:
        return QProcess.ProcessState.Running

    def processId(self) -> int:
        return NO_PID

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._to_worker, data) :]

    def waitForBytesWritten(self, _ms: int) -> bool:
        return True

    def readAllStandardOutput(self) -> QByteArray:
        try:
            return QByteArray(os.read(self._from_worker, READ_BYTES))
        except BlockingIOError:
            return QByteArray()

    def readAllStandardError(self) -> QByteArray:
        return QByteArray()

    def closeWriteChannel(self) -> None:
        """Leave it open for kill(), which a worker that is told to shut down does not need."""

    def waitForFinished(self, _ms: int) -> bool:
        self.kill()
        return True

    def kill(self) -> None:
        """End the threads: nothing of a worker outlives its test."""
        if not self._notifier.isEnabled():
            return
        self._notifier.setEnabled(False)
        self._life.end()
        self.write(encode({"type": "shutdown"}))
        os.close(self._to_worker)
        os.close(self._from_worker)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the worker does not end"
