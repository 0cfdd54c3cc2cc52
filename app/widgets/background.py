"""Work in threads of the window: one thing, or jobs one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from backend.system import faults

_JOIN_S = 2.0
_LOOK_MS = 20  # between two looks for what a thread has found


def while_there(work: Callable[..., object]) -> Callable[..., None]:
    """Return a function that does `work`, unless a Qt object that it uses was deleted."""

    def run(*args: Any) -> None:
        try:
            work(*args)
        except RuntimeError as error:  # of this type for anything else, too
            if "deleted" not in str(error):
                raise

    return run


class Errand(QObject):
    """Does something in a thread.

    The thread knows no Qt object: a widget that a thread is the last to hold is deleted there,
    which Qt does not allow.

    Signals:
        came: (object) the result, or the sentence about the error. In the thread of this object.
    """

    came = Signal(object)

    def __init__(self, name: str, parent: QObject) -> None:
        super().__init__(parent)
        self._name = name
        self._found: list[Any] = []
        self._timer = QTimer(self, interval=_LOOK_MS)
        self._timer.timeout.connect(self._look)

    def start(self, work: Callable[[], object]) -> None:
        """Do `work`, which must not hold a Qt object either."""
        found: list[Any] = []
        self._found = found
        faults.Thread(self._name, lambda: found.append(work()), failed=found.append).start()
        self._timer.start()

    def _look(self) -> None:
        if self._found:
            self._timer.stop()
            self.came.emit(self._found[0])


class Background:
    """Starts with its first job. A job delivers its result by a Qt signal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, job: Callable[[], None], failed: faults.Failed) -> None:
        """Append a job. failed: called in the thread with the sentence about an error of the job.

        The thread goes on with the next job.
        """
        failed = while_there(failed)
        if self._thread is None:
            self._thread = faults.Thread(self._name, self._work, failed=failed)
            self._thread.start()
        self._jobs.put(faults.guarded(self._name, while_there(job), failed))

    def shut_down(self) -> None:
        """End the thread after its present job, and wait for it for at most two seconds."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_JOIN_S)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
