"""A background thread that runs jobs one after the other."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

_JOIN_S = 2.0


class Background:
    """Starts with its first job. A job delivers its result by a Qt signal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, job: Callable[[], None]) -> None:
        """Append a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def shut_down(self) -> None:
        """End the thread after its present job, and wait for it for at most two seconds."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_JOIN_S)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(RuntimeError):  # the window was deleted
                job()
