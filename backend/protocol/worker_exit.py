"""Why a worker process ended, as one plain sentence."""

from __future__ import annotations

import re
import signal

_WINDOWS_EXITS = {
    0xC0000005: "it crashed (access violation)",
    0xC0000017: "memory ran out",
    0xC000001D: "it crashed (this processor lacks an instruction that it needs)",
    0xC00000FD: "it crashed (stack overflow)",
    0xC0000135: "a library that it needs is missing",
    0xC0000409: "it stopped on a failed check",
}
_ASSERT = re.compile(r"GGML_ASSERT\((.*)\) failed|fatal error: (.*)")
_DEVICE_GONE = re.compile(r"Remote RPC server crashed|Failed to connect to|RPC handshake failed")
_DEVICE_FAILED = re.compile(r"^(CUDA|ROCm|Vulkan|Metal|SYCL)[^:\n]*error:? *(.*)", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|MemoryError|failed to allocate|cannot allocate memory|out of memory", re.IGNORECASE
)


def describe_exit(returncode: int | None, stderr_tail: str) -> str:
    """Return one plain sentence about why the worker ended.

    `returncode` is that of subprocess: minus the signal's number where a signal ended it (with
    QProcess: minus exitCode() after CrashExit, outside Windows). None: the worker closed its pipe,
    lived on and was killed. `stderr_tail` is the end of what it wrote to standard error.
    """
    if returncode is None:
        return "The engine's process closed its pipe and was ended."
    who = "The engine's process ended unexpectedly"
    failed_check = _ASSERT.search(stderr_tail)
    memory = _OUT_OF_MEMORY.search(stderr_tail) is not None
    if _DEVICE_GONE.search(stderr_tail):
        return (
            f"{who}: the remote device no longer answers. What was said is kept; "
            "choose another device, or load the model again when it is back."
        )
    if failed_device := _DEVICE_FAILED.search(stderr_tail):
        said = " ".join(failed_device.group(2).split())[:120] or "no reason was given"
        return f"{who}: the device failed ({failed_device.group(1)}: {said})."
    if failed_check is not None:
        check = " ".join((failed_check.group(1) or failed_check.group(2)).split())[:120]
        return f"{who}: llama.cpp stopped on a failed check ({check})."
    if returncode == 0:
        return f"{who} without an error."
    if returncode & 0xFFFFFFFF in _WINDOWS_EXITS:
        return f"{who}: {_WINDOWS_EXITS[returncode & 0xFFFFFFFF]}."
    if returncode < 0:
        return f"{who}: {_describe_signal(-returncode, memory)}."
    if memory:
        return f"{who}: memory ran out; a lower cache rate or a shorter context needs less."
    return f"{who} with status {returncode}."


def _describe_signal(number: int, memory: bool) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = ""
    if name == "SIGKILL":
        return (
            "it was killed (signal 9), most likely because memory ran out; "
            "a lower cache rate or a shorter context needs less"
        )
    if memory:
        return (
            f"memory ran out (signal {number}); a lower cache rate or a shorter context needs less"
        )
    if name == "SIGBUS":
        return (
            f"the model file could not be read any more (signal {number}); "
            "it may have been shortened, or its drive removed"
        )
    words = {
        "SIGSEGV": "it crashed",
        "SIGILL": "it crashed (this processor lacks an instruction that it needs)",
        "SIGFPE": "it crashed",
        "SIGABRT": "it stopped on a failed check",
        "SIGTERM": "it was told to end",
        "SIGHUP": "it was told to end",
        "SIGINT": "it was told to end",
    }.get(name, "it was ended")
    return f"{words} (signal {number}{', ' + name if name else ''})"
