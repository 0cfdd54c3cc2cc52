"""Long work of the window, in slices between which it handles its other events.

One queue holds the remaining work of all widgets. Were each to continue by a timer of its own, one
turn of the event loop would do a slice for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication
from shiboken6 import Shiboken

SLICE_S = 0.010

_ends_s: float | None = None  # of the present slice, on the clock of time.perf_counter()


@contextmanager
def a_slice() -> Iterator[Callable[[], bool]]:
    """Begin a slice, or continue the present one. Yield a function that says if its time is up."""
    global _ends_s
    before = _ends_s
    ends_s = _ends_s = before or time.perf_counter() + SLICE_S
    try:
        yield lambda: time.perf_counter() > ends_s
    finally:
        _ends_s = before


class _Queue(QObject):
    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self._waiting: dict[Callable[[], None], QObject] = {}  # the work, and whose it is
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._turn)

    def add(self, owner: QObject, work: Callable[[], None]) -> None:
        self._waiting[work] = owner
        self._timer.start()

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    def _turn(self) -> None:
        try:
            with a_slice() as is_over:
                while self._waiting:
                    work = next(iter(self._waiting))
                    owner = self._waiting.pop(work)
                    if Shiboken.isValid(owner):
                        work()
                    if is_over():
                        break
        finally:  # an error in one widget's work does not end the others'
            if self._waiting:
                self._timer.start()


_queue: _Queue | None = None


def is_done() -> bool:
    """Return whether nothing is left to do."""
    return _queue is None or not Shiboken.isValid(_queue) or not _queue.n_waiting


def later(owner: QObject, work: Callable[[], None]) -> None:
    """Do `work` in a slice of a later turn of the event loop, unless `owner` is deleted before.

    The same work is done once, however often it is asked for. It should end when the time of the
    slice is up, and ask for another one if something is left.
    """
    global _queue
    if _queue is None or not Shiboken.isValid(_queue):
        _queue = _Queue(QApplication.instance())
    _queue.add(owner, work)
