"""The requests that wait in line for the engine, and the one that it is at."""

from __future__ import annotations

import threading
from collections.abc import Callable

from backend.protocol.errors import RequestError
from backend.protocol.messages import Message

MAX_WAITING = 64


class Job:
    """One request that waits for the engine or is being done."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.kind: str = message["type"]
        self.id: int = message["id"]
        self.cancelled = False


class RequestLine:
    """Knows which requests are open. Every method may be called from any thread.

    Who calls add() hands the job to the engine's thread, which encloses it in begin() and end().
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Job] = {}
        self._active: Job | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits for the engine."""
        return not self._open

    def add(self, job: Job) -> None:
        """A request came. Raises RequestError where it cannot be taken."""
        with self._lock:
            if job.id in self._open:
                raise RequestError(f"The id {job.id} is already in use by another request.")
            if len(self._open) >= MAX_WAITING:
                raise RequestError(f"More than {MAX_WAITING} requests are waiting for the engine.")
            if job.kind in ("set_cache_rate", "configure") and any(
                other.kind == "generate" for other in self._open.values()
            ):
                raise RequestError("The cache cannot change while an answer is being written.")
            self._open[job.id] = job

    def begin(self, job: Job) -> None:
        """The engine is at it."""
        with self._lock:
            self._active = job

    def end(self, job: Job) -> None:
        """It is done, well or not."""
        with self._lock:
            self._active = None
            del self._open[job.id]

    def cancel(self, job_id: int, stop: Callable[[], None]) -> None:
        """Cancel a waiting or running load or answer; anything else is left alone.

        `stop` is called where it is the answer in progress.
        """
        with self._lock:
            job = self._open.get(job_id)
            if job is None or job.kind not in ("load", "generate"):
                return
            job.cancelled = True
            if job is self._active and job.kind == "generate":
                stop()

    def cancel_all(self, stop: Callable[[], None]) -> None:
        """Cancel every load and answer."""
        with self._lock:
            ids = list(self._open)
        for job_id in ids:
            self.cancel(job_id, stop)
