"""Unexpected errors: a sentence for the place where the work is shown, and a record for the report.

Threads, timers and tasks are started by this module only (tests/test_guards.py). Each names its
owner's `failed`: it gets one plain sentence when the work ends by an unexpected error, shows it
where the work is shown, and frees what the work held. Work without a place has `no_place`.

All processes append their records to one file, so that the report also has those of child processes
that could say nothing, and a parent can ask why its child has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from backend.system import kept_file, paths
from backend.text import Text, text, to_json

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Failed = Callable[[str], object]
"""Gets the sentence about the error that ended some work."""

_BYTES_MAX = 128 << 10
_TRACE_CHARS_MAX = 4000
_REASON_CHARS_MAX = 200
_REPEATED_S = 60.0  # the same error is recorded once in this time
_ENDED_S = 60.0  # a child that has just ended wrote its record no longer ago

_kept: deque[dict[str, Any]] = deque(maxlen=20)
"""This process's records that could not be written to the file."""
_last: tuple[str, str] = "", ""  # where and trace of the last record
_last_s = 0.0
_lock = threading.RLock()  # a destructor may fail within record()
_writes = True  # tracebacks to standard error


def no_place(_sentence: str) -> None:
    """Show nothing: the work is shown nowhere, and its caller goes on without it."""


def is_expected(error: BaseException) -> bool:
    """Return whether an error was raised by this program, with a sentence of its own."""
    return type(error).__module__.startswith("backend.") or isinstance(str(error), Text)


def explain(where: str, error: BaseException) -> str:
    """Return one plain sentence about an error. Record it if it is unexpected.

    where: the name of the work that it ended.
    """
    if is_expected(error):
        return _plain(error)
    record(where, error)
    return _sentence(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return text("engine.no_memory")
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}."
    reason = _plain(error).rstrip(".")[:_REASON_CHARS_MAX]
    if isinstance(error, ImportError):
        return text("fault.missing", reason=reason)
    return text("fault.unexpected", kind=type(error).__name__, reason=reason)


def _plain(error: BaseException) -> str:
    sentence = str(error)
    if isinstance(sentence, Text):
        return sentence
    sentence = " ".join(sentence.split()) or type(error).__name__
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def record(where: str, error: BaseException, *, writes: bool = True) -> bool:
    """Record an error for the report. Return whether it is not a repetition of the last one.

    writes: write its traceback to standard error, too, for a parent process. A terminal and users
    of the command line get none, but where OUTRIDER_DEBUG is set. Raises nothing.
    """
    global _last, _last_s
    trace = "".join(traceback.format_exception(error))[-_TRACE_CHARS_MAX:]
    with _lock:
        with contextlib.suppress(Exception):  # the stream may be closed, or absent
            if os.environ.get("OUTRIDER_DEBUG") or (writes and _writes and not sys.stderr.isatty()):
                sys.stderr.write(f"{where}:\n{trace}")
                sys.stderr.flush()
        now_s = time.monotonic()
        if (where, trace) == _last and now_s - _last_s < _REPEATED_S:
            return False
        _last, _last_s = (where, trace), now_s
        fault = {
            "at_s": time.time(), "pid": os.getpid(), "where": where,
            "sentence": _sentence(error), "trace": trace,
        }  # fmt: skip
        try:
            _append(json.dumps(to_json(fault)).encode() + b"\n")
        except Exception:
            _kept.append(fault)
    return True


def _append(line: bytes) -> None:
    """Add a line to the file. Drop the oldest ones when it is long."""
    path = paths.faults_file()
    if paths.exists(path) and path.stat().st_size > _BYTES_MAX:
        lines = path.read_bytes()[-_BYTES_MAX // 2 :].split(b"\n", 1)[-1]
        kept_file.write_whole(path, lines)
    kept_file.make_folder(path.parent)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with open(paths.open_regular(path, flags, 0o600), "ab", buffering=0) as file:
        file.write(line)


def _records() -> list[dict[str, Any]]:
    """Return the records of all processes, the oldest first."""
    found = list(_kept)
    with contextlib.suppress(OSError), open(paths.faults_file(), "rb") as file:
        for line in file.read(2 * _BYTES_MAX).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that was cut off
                fault = kept_file.an_object(kept_file.parse_kept(line))
                found.append({"at_s": float(fault["at_s"]), **fault})
    return sorted(found, key=lambda fault: float(fault["at_s"]))


def recent(n: int = 10) -> list[str]:
    """Return the last unexpected errors of all processes, for the report, the oldest first."""
    said = []
    for fault in _records()[-n:]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(fault["at_s"])))
        said.append(f"{when} {fault.get('where')}\n{fault.get('trace')}".rstrip())
    return said


def of_process(pid: int) -> str:
    """Return the sentence about the unexpected error that has just ended a child process, or ""."""
    now_s = time.time()
    for fault in reversed(_records()):
        if fault.get("pid") == pid and now_s - float(fault["at_s"]) < _ENDED_S:
            return str(fault["sentence"])
    return ""


# Guards


def tell(where: str, error: BaseException, failed: Failed) -> None:
    """Record an error, and pass its sentence on. Raises nothing."""
    try:
        failed(explain(where, error))
    except Exception as another:
        record(where, another)


def guarded(where: str, work: Callable[..., T], failed: Failed) -> Callable[..., T | None]:
    """Return a function that does `work`, for those who look at no error, such as a pool.

    It passes the sentence about an error to `failed`, and returns None.
    """

    def run(*args: Any) -> T | None:
        try:
            return work(*args)
        except Exception as error:
            tell(where, error, failed)
            return None

    return run


class Thread(threading.Thread):
    """A thread that does `work(*args)` and does not keep the process alive.

    failed: called in it when the work ends by an error, or by the starter where it cannot start.
    """

    def __init__(self, name: str, work: Callable[..., object], *args: Any, failed: Failed) -> None:
        super().__init__(target=guarded(name, work, failed), args=args, name=name, daemon=True)
        self._failed = failed

    def start(self) -> None:
        """Start it."""
        try:
            super().start()
        except (RuntimeError, MemoryError) as error:  # the system refuses another thread
            tell(self.name, error, self._failed)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, if it was started."""
        if self.ident is not None:
            super().join(timeout)


def timer(name: str, wait_s: float, work: Callable[[], object], failed: Failed) -> threading.Timer:
    """Start a thread that does `work` after wait_s, unless it is cancelled."""
    made = threading.Timer(wait_s, guarded(name, work, failed))
    made.name, made.daemon = name, True
    made.start()
    return made


def task(name: str, work: Coroutine[Any, Any, T], failed: Failed) -> asyncio.Task[T]:
    """Start a task of the running event loop, which nobody has to await."""
    import asyncio  # most processes have no event loop

    def ended(done: asyncio.Task[T]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            tell(name, error, failed)

    made = asyncio.get_running_loop().create_task(work, name=name)
    made.add_done_callback(ended)
    return made


# The last net


def of_loop(_loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Record an error of a callback or task of an event loop that does not log."""
    if (error := about.get("exception")) is not None:
        record(str(about.get("message", "loop")), error)


class _Logged(logging.Handler):
    """Takes the errors that an event loop logs."""

    def __init__(self, seen: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._seen = seen

    def emit(self, logged: logging.LogRecord) -> None:
        if logged.exc_info and logged.exc_info[1] is not None:
            self._seen(logged.name, logged.exc_info[1])


def watch(failed: Failed = no_place, *, writes: bool = True) -> None:
    """Record errors in this process that no guard has caught, and pass their sentences to `failed`.

    They come from callbacks of libraries, slots of Qt, destructors and event loops. writes: whether
    tracebacks go to standard error, which a parent reads.
    """
    global _writes
    _writes = writes

    def seen(where: str, error: BaseException | None) -> None:
        if error is None or isinstance(error, SystemExit | KeyboardInterrupt):
            return
        if record(where, error):
            with contextlib.suppress(Exception):
                failed(_plain(error) if is_expected(error) else _sentence(error))

    def in_main(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            seen("main", error)

    def unraisable(of: Any) -> None:
        if sys.is_finalizing():  # files can no longer be opened
            sys.__unraisablehook__(of)
        else:
            seen(of.err_msg or "callback", of.exc_value)

    sys.excepthook = in_main
    sys.unraisablehook = unraisable
    threading.excepthook = lambda of: seen(of.thread.name if of.thread else "thread", of.exc_value)
    logger = logging.getLogger("asyncio")
    logger.handlers = [*(h for h in logger.handlers if not isinstance(h, _Logged)), _Logged(seen)]
