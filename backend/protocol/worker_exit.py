"""Explains in one plain sentence why a worker process ended."""

from __future__ import annotations

import re
import signal

from backend.text import Text, text

_CONTROL_C = 0xC000013A
"""The exit status on Windows after Ctrl-C, or the end of its console, before Python handles it."""
_WINDOWS_EXITS = {
    0xC0000005: text("exit.what.access"),
    0xC0000017: text("exit.what.memory"),
    0xC000001D: text("exit.what.instruction"),
    0xC00000FD: text("exit.what.stack"),
    0xC0000135: text("exit.what.library"),
    _CONTROL_C: text("exit.what.told"),
    0xC0000409: text("exit.what.check"),
}
_ASSERT = re.compile(r"GGML_ASSERT\((.*)\) failed|fatal error: (.*)")
_ERROR = re.compile(r"^Traceback .*\n(?: .*\n|\n)+(?:\w+[.])*(\w+)(?:: (.*))?$", re.MULTILINE)
_DEVICE_GONE = re.compile(r"Remote RPC server crashed|Failed to connect to|RPC handshake failed")
_DEVICE_FAILED = re.compile(r"^(CUDA|ROCm|Vulkan|Metal|SYCL)[^:\n]*error:? *(.*)", re.MULTILINE)
_KILLED = -9  # by SIGKILL, which Windows lacks
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|MemoryError|failed to allocate|cannot allocate memory|out of memory", re.IGNORECASE
)


_ABORT = 3
"""The exit status of abort() in older C libraries of Windows; newer ones have 0xC0000409."""
_TELLING = frozenset(
    -int(getattr(signal, name)) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
) | {_CONTROL_C}


def has_crashed(returncode: int) -> bool:
    """Return whether a process of ours was ended by a signal, or by an error of Windows."""
    return returncode < 0 or returncode == _ABORT or returncode >= 1 << 31


def was_told(returncode: int, had_memory: bool) -> bool:
    """Return whether somebody has ended a process, by a signal or Ctrl-C; not lack of memory."""
    return returncode in _TELLING or (returncode == _KILLED and had_memory)


def describe_exit(returncode: int | None, stderr_tail: str, had_memory: bool = False) -> str:
    """Return one plain sentence about why the worker ended.

    returncode: as in subprocess: the negative signal number after a signal (with QProcess: minus
    exitCode() after CrashExit, except on Windows); None: the worker closed its pipe, kept running
    and was killed. stderr_tail: the end of its standard error. had_memory: the system did not kill
    any process for lack of memory meanwhile.
    """
    if returncode is None:
        return text("exit.closed")
    failed_check = _ASSERT.search(stderr_tail)
    memory = _OUT_OF_MEMORY.search(stderr_tail) is not None
    if _DEVICE_GONE.search(stderr_tail):
        return text("exit.device_gone")
    if failed_device := _DEVICE_FAILED.search(stderr_tail):
        device, reason = failed_device.group(1), " ".join(failed_device.group(2).split())[:120]
        if not reason:
            return _because(text("exit.device_failed_silently", device=device))
        return _because(text("exit.device_failed", device=device, reason=reason))
    if failed_check is not None:
        check = " ".join((failed_check.group(1) or failed_check.group(2)).split())[:120]
        return _because(text("exit.check_failed", check=check))
    if returncode == 0:
        return text("exit.no_error")
    if returncode & 0xFFFFFFFF in _WINDOWS_EXITS:
        return _because(_WINDOWS_EXITS[returncode & 0xFFFFFFFF])
    if returncode < 0:
        return _because(_describe_signal(-returncode, memory, had_memory))
    if memory:
        return _because(text("exit.out_of_memory"))
    if errors := _ERROR.findall(stderr_tail):
        kind, reason = errors[-1]
        return _because(text("exit.unexpected", kind=kind, reason=reason[:120] or kind))
    return text("exit.status", status=returncode)


def _because(reason: Text) -> Text:
    return text("exit.because", reason=reason)


def _describe_signal(number: int, memory: bool, had_memory: bool) -> Text:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = ""
    if name == "SIGKILL":
        if had_memory and not memory:
            return text("exit.killed_by_other")
        return text("exit.killed")
    if memory:
        return text("exit.out_of_memory_signal", signal=number)
    if name == "SIGBUS":
        return text("exit.model_unreadable", signal=number)
    what = {
        "SIGSEGV": text("exit.what.crash"),
        "SIGILL": text("exit.what.instruction"),
        "SIGFPE": text("exit.what.crash"),
        "SIGABRT": text("exit.what.check"),
        "SIGTERM": text("exit.what.told"),
        "SIGHUP": text("exit.what.told"),
        "SIGINT": text("exit.what.told"),
    }.get(name, text("exit.what.ended"))
    return text("exit.signal", what=what, signal=f"{number}{', ' + name if name else ''}")
