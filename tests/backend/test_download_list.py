"""The list of downloads, with transfers that a test steers."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import WAIT_S, until

from backend.downloads import manager
from backend.downloads.errors import DownloadError, Stopped
from backend.downloads.job import Job
from backend.downloads.manager import Download, Downloads, State
from backend.downloads.offers import RemoteFile

SIZE = 10_000


@dataclass(frozen=True)
class Steered(Job):
    """A transfer that does as it is told: bytes to report, a fault to raise, or None to end."""

    orders: Queue[int | Exception | None] = field(default_factory=Queue, compare=False)
    promised: list[int] = field(default_factory=list, compare=False)

    def check_room(self, promised_bytes: int = 0) -> None:
        self.promised.append(promised_bytes)

    def run(
        self, client: Any, stop: threading.Event, heard: Callable[[int], None], *_: Any
    ) -> None:
        while (order := self.orders.get(timeout=WAIT_S)) is not None:
            if isinstance(order, Exception):
                raise order
            heard(order)


@pytest.fixture
def downloads(tmp_path: Path) -> Iterator[Downloads]:
    made = Downloads(tmp_path / "downloads.json", tmp_path / "models")
    yield made
    for item in made.all():
        assert isinstance(item.job, Steered)
        item.job.orders.put(Stopped())
    made.shut_down()


def steered(downloads: Downloads, name: str = "a") -> Steered:
    file = RemoteFile(f"http://x/{name}", f"{name}.gguf", SIZE)
    return Steered("x/y", name, downloads.folder, (file,))


def item(downloads: Downloads, number: int = 1) -> Download:
    return next(each for each in downloads.all() if each.number == number)


def test_the_speed_is_that_of_the_last_seconds(
    downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(manager, "time", SimpleNamespace(monotonic=lambda: now_s))
    job = steered(downloads)
    downloads.add(job)
    speeds = []
    for now_s, n_byte in (
        (100.0, 1000), (101.0, 3000), (101.05, 3500), (102.0, 5000), (106.0, 7000),
        (106.5, 2000), (107.0, 4000), (107.5, 4000),
    ):  # fmt: skip
        job.orders.put(n_byte)
        until(lambda n_byte=n_byte: item(downloads).n_byte == n_byte)
        speeds.append((item(downloads).bytes_per_s, item(downloads).left_s))
    # A sample needs a tenth of a second, and a mean goes back five. Fewer bytes: it began again.
    assert speeds == [
        (0, None), (2000, 3.5), (pytest.approx(2000 / 1.05), pytest.approx(6500 / 2000 * 1.05)),
        (2000, 2.5), (800, 3.75), (0, None), (4000, 1.5), (2000, 3),
    ]  # fmt: skip
    downloads.pause(1)
    assert (item(downloads).bytes_per_s, item(downloads).left_s) == (0, None)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (None, (State.DONE, SIZE, "")),
        (Stopped(), (State.PAUSED, 2000, "")),
        (DownloadError("It is gone."), (State.PAUSED, 2000, "")),
    ],
)
def test_one_that_ends_after_the_pause_is_complete_or_stays_paused(
    downloads: Downloads, end: Exception | None, expected: tuple[State, int, str]
) -> None:
    job, other = steered(downloads), steered(downloads, "b")
    downloads.add(job)
    job.orders.put(2000)
    until(lambda: item(downloads).n_byte == 2000)
    downloads.pause(1)
    downloads.pause(downloads.add(other))
    last = steered(downloads, "c")
    number = downloads.add(last)
    assert item(downloads, number).state is State.WAITING, "two threads have not ended yet"
    job.orders.put(end)
    until(lambda: item(downloads, number).state is State.RUNNING)
    now = item(downloads)
    assert (now.state, now.n_byte, now.trouble) == expected


def test_a_drive_that_fails_is_named(downloads: Downloads) -> None:
    job = steered(downloads)
    downloads.add(job)
    job.orders.put(OSError(errno.EIO, "Input/output error"))
    until(lambda: item(downloads).state is State.FAILED)
    assert "Input/output error" in item(downloads).trouble
    downloads.resume(1)
    assert (item(downloads).state, item(downloads).trouble) == (State.RUNNING, "")


def test_room_is_left_for_what_runs_already(downloads: Downloads) -> None:
    first, second = steered(downloads), steered(downloads, "b")
    downloads.add(first)
    first.orders.put(1000)
    until(lambda: item(downloads).n_byte == 1000)
    downloads.add(second)
    until(lambda: second.promised)
    assert (first.promised, second.promised) == ([0], [SIZE - 1000])


def test_nothing_starts_after_the_end(downloads: Downloads) -> None:
    downloads.shut_down()
    downloads.add(steered(downloads))
    assert item(downloads).state is State.WAITING
