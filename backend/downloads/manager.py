"""Runs the user's downloads, and keeps their list.

The list is a JSON file, so that a download can be resumed after the window was closed. Only the
user resumes it: the application contacts no server unasked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from backend.downloads.errors import DownloadError, Stopped
from backend.downloads.job import Job
from backend.system import faults
from backend.system.kept_file import KeptFile
from backend.text import text

N_RUNNING_MAX = 2
_FORMAT = 1
_SPEED_S = 5.0  # the speed is a mean over this time
_JOIN_S = 1.0  # for all threads together; one that waits for a server is left behind


class State(Enum):
    """The state of a download."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class Download:
    """A snapshot of one download.

    trouble: one sentence if it failed, or why it waits. waits_until_s: monotonic; 0: it does not.
    """

    number: int
    job: Job
    state: State
    n_byte: int = 0
    bytes_per_s: float = 0.0
    trouble: str = ""
    waits_until_s: float = 0.0

    @property
    def wait_s(self) -> float | None:
        """Seconds until it goes on by itself; None if it does not wait."""
        if self.state is not State.RUNNING or not self.waits_until_s:
            return None
        return max(self.waits_until_s - time.monotonic(), 0.0)

    @property
    def left_s(self) -> float | None:
        """Seconds until it is complete, at the present speed; None if unknown."""
        if self.state is not State.RUNNING or self.bytes_per_s <= 0:
            return None
        return (self.job.size_bytes - self.n_byte) / self.bytes_per_s


class Downloads:
    """Runs downloads in threads. Call all methods from one thread; none blocks.

    changed: called, from any thread, when a download changes its state.
    """

    def __init__(
        self, path: Path, folder: Path, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._file = KeptFile(path, text("download.list"), text("kept.empty_used"))
        self._changed = changed
        self._lock = threading.RLock()
        self._all: dict[int, Download] = {}
        self._stops: dict[int, threading.Event] = {}  # for each download with a running thread
        self._threads: dict[int, threading.Thread] = {}
        self._paths: dict[int, frozenset[Path]] = {}  # the same
        self._samples: dict[int, deque[tuple[float, int]]] = {}
        self._is_open = True
        nothing: tuple[Path, list[Job]] = (folder, [])
        kept, self.trouble = self._file.load(self._checked, nothing)
        """One sentence if the list could not be read or written; otherwise empty."""
        self.folder = kept[0]
        """The folder of new models."""
        for number, job in enumerate(kept[1], 1):
            self._all[number] = Download(number, job, State.PAUSED, job.kept_bytes)

    def all(self) -> list[Download]:
        """Return the downloads, the oldest first."""
        with self._lock:
            return [self._with_speed(item) for item in self._all.values()]

    def set_folder(self, folder: Path) -> None:
        """Change the folder of new models."""
        with self._lock:
            self.folder = folder
            self._save()

    def add(self, job: Job) -> int:
        """Start a download, or queue it while N_RUNNING_MAX run. Returns its number.

        A second call for the same model resumes the download.
        """
        with self._lock:
            for item in list(self._all.values()):
                if item.job.target == job.target and item.state is State.DONE:
                    del self._all[item.number]
                elif item.job.target == job.target:
                    self._all[item.number] = replace(item, job=job)
                    self.resume(item.number)
                    return item.number
            number = max(self._all, default=0) + 1
            self._all[number] = Download(number, job, State.WAITING, job.kept_bytes)
            self._step()
            return number

    def pause(self, number: int) -> None:
        """Pause a download."""
        with self._lock:
            if (item := self._all.get(number)) is None:
                return
            if item.state in (State.WAITING, State.RUNNING):
                self._all[number] = replace(item, state=State.PAUSED, trouble="")
                self._stop(number)
                self._step()

    def resume(self, number: int) -> None:
        """Resume a download that was paused or has failed."""
        with self._lock:
            if (item := self._all.get(number)) is None:
                return
            if item.state in (State.PAUSED, State.FAILED):
                self._all[number] = replace(item, state=State.WAITING, trouble="")
                self._step()

    def remove(self, number: int) -> None:
        """Remove a download from the list and delete its incomplete files. Complete files stay."""
        with self._lock:
            item = self._all.pop(number, None)
            if item is None:
                return
            self._stop(number)
            if number not in self._threads:  # a running thread does it at its end
                item.job.forget()
            self._step()

    def shut_down(self) -> None:
        """End the threads. The downloads can be resumed at the next start."""
        with self._lock:
            self._is_open = False
            threads = list(self._threads.values())
            for number in self._stops:
                self._stop(number)
        end_s = time.monotonic() + _JOIN_S
        for thread in threads:
            thread.join(max(end_s - time.monotonic(), 0.0))

    # With the lock held

    def _stop(self, number: int) -> None:
        if number in self._stops:
            self._stops[number].set()

    def _step(self) -> None:
        """Start waiting downloads while N_RUNNING_MAX permits. Save, and report the changes.

        Downloads with a common file, such as the mmproj file of a repository, run one by one.
        """
        for number in list(self._all):
            if not self._is_open or len(self._threads) >= N_RUNNING_MAX:
                break
            item = self._all[number]
            is_free = all(paths.isdisjoint(item.job.paths) for paths in self._paths.values())
            if item.state is State.WAITING and is_free:
                self._start(item)
        self._save()
        self._changed()

    def _start(self, item: Download) -> None:
        number = item.number
        self._all[number] = replace(item, state=State.RUNNING, trouble="", waits_until_s=0.0)
        self._stops[number] = threading.Event()
        self._paths[number] = item.job.paths
        self._samples[number] = deque()
        promised = [
            other.job.size_bytes - other.n_byte
            for other in self._all.values()
            if other.state is State.RUNNING and other.number != number
        ]
        self._threads[number] = faults.Thread(
            f"download-{number}", self._run, number, item.job, self._stops[number], sum(promised),
            failed=lambda sentence: self._end(number, item.job, State.FAILED, sentence),
        )  # fmt: skip
        self._threads[number].start()

    def _with_speed(self, item: Download) -> Download:
        samples = self._samples.get(item.number)
        if item.state is not State.RUNNING or not samples:
            return item
        now_s = time.monotonic()
        while len(samples) > 2 and now_s - samples[0][0] > _SPEED_S:
            samples.popleft()
        span_s = now_s - samples[0][0]
        n_byte = samples[-1][1] - samples[0][1]
        return replace(item, bytes_per_s=max(n_byte, 0) / span_s if span_s > 0.2 else 0.0)

    # In a download's own thread

    def _run(self, number: int, job: Job, stop: threading.Event, promised_bytes: int) -> None:
        from backend.downloads.web import new_client  # network libraries: not at start

        state, trouble = State.DONE, ""
        try:
            job.check_room(promised_bytes)
            with new_client() as client:
                job.run(
                    client, stop, lambda n_byte: self._note_progress(number, n_byte),
                    lambda sentence, wait_s: self._note_wait(number, sentence, wait_s),
                )  # fmt: skip
        except Stopped:
            state = State.PAUSED
        except DownloadError as error:
            state, trouble = State.FAILED, str(error)
        except OSError as error:
            state = State.FAILED
            trouble = text("download.failed", reason=error.strerror or str(error))
        self._end(number, job, state, trouble)

    def _end(self, number: int, job: Job, state: State, trouble: str) -> None:
        with self._lock:
            of_thread = self._threads, self._stops, self._samples, self._paths
            for kept in of_thread:
                kept.pop(number, None)
            item = self._all.get(number)
            if item is None:
                job.forget()
            elif item.state is State.RUNNING or state is State.DONE:
                self._all[number] = replace(
                    item, state=state, trouble=trouble,
                    n_byte=job.size_bytes if state is State.DONE else job.kept_bytes,
                )  # fmt: skip
            self._step()

    def _note_wait(self, number: int, sentence: str, wait_s: float) -> None:
        until_s = time.monotonic() + wait_s if wait_s else 0.0
        with self._lock:
            item = self._all.get(number)
            if item is not None and item.state is State.RUNNING:
                self._all[number] = replace(item, trouble=sentence, waits_until_s=until_s)
                self._changed()

    def _note_progress(self, number: int, n_byte: int) -> None:
        with self._lock:
            item, samples = self._all.get(number), self._samples[number]
            if item is None:
                return
            if n_byte < item.n_byte:
                samples.clear()
            self._all[number] = replace(item, n_byte=n_byte)
            now_s = time.monotonic()
            if not samples or now_s - samples[-1][0] > 0.1:
                samples.append((now_s, n_byte))

    # The file

    def _save(self) -> None:
        kept = [item.job.to_json() for item in self._all.values() if item.state is not State.DONE]
        data = {"format": _FORMAT, "folder": str(self.folder), "downloads": kept}
        self.trouble = self._file.save(data)

    @staticmethod
    def _checked(data: Any) -> tuple[Path, list[Job]]:
        if data["format"] != _FORMAT:
            raise ValueError("another format")
        return Path(data["folder"]), [Job.from_json(item) for item in data["downloads"]]
