"""A child process's pipe to its parent, and its end with the parent."""

from __future__ import annotations

import os
import signal
import sys

from backend.system import faults


def private_pipes() -> tuple[int, int]:
    """Return (in, out) descriptors for messages. Redirect 0 to the null device and 1 to 2.

    Then no library's print can corrupt the stream, and no child process inherits it.
    """
    in_fd, out_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(in_fd, os.O_BINARY)
        msvcrt.setmode(out_fd, os.O_BINARY)
    return in_fd, out_fd


def passed(fd: int) -> int:
    """Let child processes inherit a descriptor. Return the number that taken() needs there.

    REQUIRES: elsewhere than on Windows, subprocess's pass_fds names it.
    """
    if sys.platform == "win32":
        import msvcrt

        handle = msvcrt.get_osfhandle(fd)
        os.set_handle_inheritable(handle, True)
        return handle
    return fd


def taken(number: int) -> int:
    """Return the descriptor that the parent has passed()."""
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(number, os.O_BINARY)
    return number


def die_with_parent(alive: int = -1) -> None:
    """Have this process killed when the process that started it ends.

    On Linux by a signal, which also reaches a process whose interpreter is stuck in native code. On
    other systems by the end of `alive`, if that is a descriptor: the reading end of a pipe whose
    writing end the parent alone holds. The end of standard input ends a process without one.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    elif alive >= 0:
        die_at_end_of(alive)


def die_at_end_of(pipe: int) -> None:
    """Kill this process, from a thread, when nobody holds the writing end of a pipe any more."""

    def wait() -> None:
        while os.read(pipe, 1):  # nothing is ever written
            pass
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    faults.Thread("parent", wait, failed=lambda _: os._exit(1)).start()
