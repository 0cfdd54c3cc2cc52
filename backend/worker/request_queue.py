"""The requests that wait for the engine, and the one in progress."""

from __future__ import annotations

import threading
from collections.abc import Callable

from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.text import text

MAX_WAITING = 64


class Job:
    """A request that waits for the engine or is in progress."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.kind: str = message["type"]
        self.id: int = message["id"]
        self.cancelled = False


class RequestLine:
    """Keeps track of the open requests. Use from any thread.

    The caller of add() passes the job to the engine's thread, which calls begin() and end() around
    it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Job] = {}
        self._active: Job | None = None

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    @property
    def is_empty(self) -> bool:
        """Whether no request is open."""
        return not self._open

    def add(self, job: Job) -> None:
        """Add a request. Raises RequestError where it cannot be accepted."""
        with self._lock:
            if job.id in self._open:
                raise RequestError(f"The id {job.id} is already in use by another request.")
            if len(self._open) >= MAX_WAITING:
                raise RequestError(text("engine.waiting_many", n=MAX_WAITING))
            if job.kind in ("set_cache_rate", "configure") and any(
                other.kind == "generate" for other in self._open.values()
            ):
                raise RequestError(text("engine.writes_answer"))
            self._open[job.id] = job

    def begin(self, job: Job) -> None:
        """Mark the request as in progress."""
        with self._lock:
            self._active = job

    def end(self, job: Job) -> None:
        """Remove the finished request."""
        with self._lock:
            self._active = None
            del self._open[job.id]

    def cancel(self, job_id: int, stop: Callable[[], None]) -> None:
        """Cancel a waiting or running load or answer. Ignore other requests.

        Call `stop` if it is the answer in progress.
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
