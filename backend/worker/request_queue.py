"""The requests that wait for the engine, and the one in progress."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.protocol.request import Handle
from backend.text import text

if TYPE_CHECKING:
    from backend.worker.generation import Answer

MAX_WAITING = 64


class Job:
    """A request that waits for the engine or is in progress. handle: cancels a load or answer.

    answer: of the request "generate". waits_for_end: of the answer in progress.
    """

    def __init__(self, message: Message, answer: Answer | None = None) -> None:
        self.message = message
        self.kind: str = message["type"]
        self.id: int = message["id"]
        self.answer = answer
        self.handle = Handle() if answer is None else answer.handle
        self.waits_for_end = False


Work = Callable[[Any], None]
"""A function to run in the engine's thread. Its argument is the engine, or None."""


class WorkQueue:
    """The jobs of the engine's thread, in order. put() from any thread; None ends the thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: deque[Job | Work | None] = deque()

    def put(self, item: Job | Work | None) -> None:
        """Add something."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self, timeout_s: float) -> Job | Work | None:
        """Remove and return the first. Raises queue.Empty if nothing comes in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout_s):
                raise queue.Empty
            return self._items.popleft()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self._items

    def take(self, fits: Callable[[Job], bool]) -> Job | None:
        """Remove and return the first request, also from behind other work, if it fits."""
        with self._changed:
            first = next((item for item in self._items if not callable(item)), None)
            if first is None or not fits(first):
                return None
            self._items.remove(first)
            return first

    def put_back(self, job: Job) -> None:
        """Add a request before all others."""
        with self._changed:
            self._items.appendleft(job)
            self._changed.notify()


class RequestLine:
    """Keeps track of the open requests. Use from any thread.

    The caller of add() passes the job to the engine's thread, which calls end() after it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Job] = {}

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    def add(self, job: Job) -> None:
        """Add a request. Raises RequestError where it cannot be accepted."""
        with self._lock:
            if job.id in self._open:
                raise RequestError(f"The id {job.id} is already in use by another request.")
            if len(self._open) >= MAX_WAITING:
                raise RequestError(text("engine.waiting_many", n=MAX_WAITING))
            self._open[job.id] = job

    def end(self, job: Job) -> None:
        """Remove the finished request."""
        with self._lock:
            del self._open[job.id]

    def cancel(self, job_id: int) -> None:
        """Cancel a waiting or running load or answer. Ignore other requests."""
        with self._lock:
            job = self._open.get(job_id)
        if job is not None and job.kind in ("load", "generate"):
            job.handle.cancel()

    def cancel_all(self) -> None:
        """Cancel every load and answer."""
        with self._lock:
            ids = list(self._open)
        for job_id in ids:
            self.cancel(job_id)
