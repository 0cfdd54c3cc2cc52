"""A thread that does one thing after the other while the window goes on."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

_JOIN_S = 2.0


class Background:
    """Begins with its first job. What a job finds out it tells by a signal of Qt's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, job: Callable[[], None]) -> None:
        """Have a job done after those before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def shut_down(self) -> None:
        """End the thread, but wait no longer than a moment for it."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_JOIN_S)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(RuntimeError):  # the window is gone
                job()
