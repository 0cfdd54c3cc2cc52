"""Lets `outrider batch` go on after llama.cpp has crashed its child process.

The child notes in a file without a name which requests it computes. After a crash, the parent
starts a child that asks them again, one at a time. A request that crashes alone, too, gets a line
with the error. Requests are known by their number in the file of requests.
"""

from __future__ import annotations

import json
import os
import tempfile

from backend.protocol.worker_exit import was_told
from backend.system.pipes import passed, taken

_MARK = "OUTRIDER_BATCH_CRASHES"
_MOST_IN_A_ROW = 3
"""If this many requests crash alone, one after the other, then they are not the cause."""


class Crashes:
    """The parent's view: the work of the next child. alone: to be asked one at a time.

    failed: the error of the request that crashed alone, until the next child has written it.
    gives_up: the next child writes it, and ends.
    """

    def __init__(self) -> None:
        self.alone: list[int] = []
        self.failed: dict[int, str] = {}
        self.gives_up = False
        self._n_alone = self._n_crash = 0  # since the last answer
        self._notes = tempfile.TemporaryFile()  # noqa: SIM115 (the children's, too)
        self.fd = self._notes.fileno()

    def environment(self) -> dict[str, str]:
        """Return the environment that tells the next child, and forget the last one's notes."""
        self._notes.seek(0)
        self._notes.truncate()
        state = {
            "fd": passed(self.fd),
            "alone": self.alone,
            "failed": list(self.failed.items()),
            "gives_up": self.gives_up,
        }
        return {_MARK: json.dumps(state)}

    def goes_on(self, status: int, sentence: str, *, had_memory: bool) -> bool:
        """Take a child's crash. Return whether there shall be another child.

        status, had_memory: as of describe_exit(). sentence: why it ended. There is none after a
        signal that somebody sent, and where no request was being computed.
        """
        running, answered = self._read()
        self.failed = {}
        if answered:
            self._n_alone = self._n_crash = 0
        if was_told(status, had_memory) or not running:
            return False
        self._n_crash += 1
        self.alone = [number for number in self.alone if number not in answered]
        if len(running) == 1 and running[0] in self.alone:
            self.alone.remove(running[0])
            self.failed = {running[0]: sentence}
            self._n_alone += 1
        else:
            self.alone += [number for number in running if number not in self.alone]
        # The latter: while tokens are counted, another request may crash each time.
        self.gives_up = max(self._n_alone, self._n_crash / 2) >= _MOST_IN_A_ROW
        return True

    def _read(self) -> tuple[list[int], set[int]]:
        """Return the requests that were being computed, and those that were answered."""
        running: dict[int, None] = {}
        answered: set[int] = set()
        self._notes.seek(0)
        for line in self._notes.read().decode("ascii").splitlines():
            mark, number = line[0], int(line[1:])
            if mark == "+":
                running[number] = None
            else:
                running.pop(number, None)
            if mark == "=":
                answered.add(number)
        return list(running), answered


class Notes:
    """The child's part: the parent's orders, and notes of the requests in progress.

    alone, failed, gives_up: as of Crashes. Without a parent nothing is asked and noted.
    """

    def __init__(self) -> None:
        given = json.loads(os.environ.pop(_MARK, "{}"))
        self._fd = taken(given["fd"]) if "fd" in given else -1
        self.alone = frozenset[int](given.get("alone", ()))
        self.failed: dict[int, str] = dict(given.get("failed", ()))
        self.gives_up: bool = given.get("gives_up", False)

    def begin(self, number: int) -> None:
        """Note that a crash from now on may be this request's."""
        self._write(f"+{number}")

    def end(self, number: int) -> None:
        """Note that this request is not being computed any more, and has no answer."""
        self._write(f"-{number}")

    def answered(self, number: int) -> None:
        """Note that a request has its line."""
        self._write(f"={number}")

    def _write(self, note: str) -> None:
        if self._fd >= 0:
            os.write(self._fd, f"{note}\n".encode("ascii"))
