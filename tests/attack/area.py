"""The parts of an area of the attack, and child processes for its cases."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Attack = Callable[[int, Path], str]
"""Runs the case of a seed in an empty folder. Returns how it ended; raises what was found."""


class Finding(AssertionError):
    """A promise was broken; str() says which, and with which input."""


@dataclass(frozen=True)
class Area:
    """A part of the program under attack.

    per_hour: cases in an hour of the attack. Areas get turns so that all reach the same share of
    it. prepare: called once in each job, with a folder that all its cases may read.
    """

    name: str
    per_hour: int
    attack: Attack
    prepare: Callable[[Path], None] = lambda folder: None
    limit_s: float = 60.0
    """A case that takes longer hangs. Generous: machines are shared."""


@dataclass(frozen=True)
class End:
    """How a child process ended. kind: "ended", "signal" or "hang". value: status or signal."""

    kind: str
    value: int
    said: str
    """The child's standard output and error."""


def build_faults(library: Path) -> str:
    """Compile faults.c. Return LD_PRELOAD with it before what is there."""
    library.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return " ".join([str(library), *os.environ.get("LD_PRELOAD", "").split()])


def in_child(
    act: Callable[[], int],
    folder: Path,
    limit_s: float,
    *,
    memory_bytes: int = 0,
) -> End:
    """Run `act` in a forked child and return how it ended.

    memory_bytes: address space that the child may take beyond this process's; 0: no limit.
    """
    out = folder / "said"
    child = os.fork()
    if child == 0:
        status = 70
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if memory_bytes:
                from backend.system.limits import limit_memory

                limit_memory(memory_bytes)
            status = act()
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(status)
    return wait_for(child, out, limit_s)


def wait_for(child: int, out: Path, limit_s: float) -> End:
    """Wait for a forked child, and kill it after limit_s."""
    end_s, status = time.monotonic() + limit_s, 0
    pause_s, hangs = 0.0005, False
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end_s:
            hangs = True
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)
    said = out.read_text(errors="replace") if out.exists() else ""
    if hangs:
        return End("hang", 0, said)
    if os.WIFSIGNALED(status):
        return End("signal", os.WTERMSIG(status), said)
    return End("ended", os.WEXITSTATUS(status), said)
