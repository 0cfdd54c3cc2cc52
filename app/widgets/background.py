"""A background thread that runs jobs one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from backend.system import faults

_JOIN_S = 2.0


def while_there(work: Callable[..., object]) -> Callable[..., None]:
    """Return a function that does `work`, unless a Qt object that it uses was deleted."""

    def run(*args: Any) -> None:
        try:
            work(*args)
        except RuntimeError as error:  # of this type for anything else, too
            if "deleted" not in str(error):
                raise

    return run


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
