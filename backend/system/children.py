"""Starts child processes with the same code as this process.

In a checkout or an installation, the command is this Python with a module's `main`. A bundled
application has no separate Python; there the executable starts itself, and its first argument makes
it the child. A child that ends by an unexpected error records it for its parent and the report
(backend.system.faults), also where its standard error goes nowhere.
"""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from backend.system import faults, surroundings

MARK = "--outrider-child"
"""The first argument that makes a bundled executable a child; the module follows."""
NUMPY_THREADS = ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that limit numpy's threads, with OpenBLAS and with macOS's Accelerate."""
MODULES = (
    "backend.attachments.child",
    "backend.simulation.advice",
    "backend.bench.child",
    "backend.cli",
    "backend.engine.dry_run",
    "backend.evaluation.replay",
    "backend.formulas.child",
    "backend.learning.child",
    "backend.library.machine",
    "backend.llama.format_child",
    "backend.tools.host",
    "backend.worker.main",
)
"""The modules of child processes. Each has a `main()`, with its arguments in sys.argv[1:]."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module's `main` from any current folder."""
    assert module in MODULES, module
    if getattr(sys, "frozen", False):
        return [sys.executable, MARK, module, *arguments]
    # -P and an explicit folder make it independent of the current folder and the installation.
    root = str(Path(__file__).resolve().parents[2])
    start = (
        f"import sys; {root!r} in sys.path or sys.path.insert(0, {root!r}); "
        f"from backend.system.children import run; sys.exit(run({module!r}))"
    )
    return [sys.executable, "-P", "-c", start, *arguments]


def environment() -> dict[str, str]:
    """Return the environment of a child that loads a model, or trains a predictor.

    numpy computes with one thread, unless the user says otherwise: its threads spin while they
    wait for each other, which took three times the processor time in training.

    Large pieces of memory then have huge pages where the system allows them: glibc asks for these
    only if it is told so before it starts. With small pages, touching the memory of the dense
    weights takes as long as reading the weights.
    """
    values = {**dict.fromkeys(NUMPY_THREADS, "1"), **os.environ}
    if not sys.platform.startswith("linux"):
        return values
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" not in tunables:
        tunables = f"{tunables}:glibc.malloc.hugetlb=1".lstrip(":")
    return {**values, "GLIBC_TUNABLES": tunables}


class Job:
    """Processes that end together: a job object of Windows; elsewhere it does nothing.

    They end at kill(), or when this process ends, however it ends. Raises OSError. start_flags: of
    Windows, for a process that does nothing before release(): children that it starts before would
    not belong to the job.
    """

    start_flags = 0x4  # CREATE_SUSPENDED

    def __init__(self) -> None:
        if sys.platform == "win32":
            import ctypes

            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
            self._kernel.OpenProcess.restype = ctypes.c_void_p
            self._error = lambda: ctypes.WinError(ctypes.get_last_error())
            self._job = ctypes.c_void_p(self._kernel.CreateJobObjectW(None, None))
            limits = bytearray(144)  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION
            kill_on_job_close, extended_limits = 0x2000, 9
            struct.pack_into("<I", limits, 16, kill_on_job_close)
            given = (ctypes.c_char * len(limits)).from_buffer(limits)
            if not self._job or not self._kernel.SetInformationJobObject(
                self._job, extended_limits, given, len(limits)
            ):
                raise self._error()

    def add(self, pid: int) -> None:
        """Add a process. Those that it starts from now on belong to the job, too."""
        if sys.platform == "win32":
            import ctypes

            set_quota_and_terminate = 0x101
            handle = self._kernel.OpenProcess(set_quota_and_terminate, False, pid)
            if not handle:
                raise self._error()
            process = ctypes.c_void_p(handle)
            try:
                if not self._kernel.AssignProcessToJobObject(self._job, process):
                    raise self._error()
            finally:
                self._kernel.CloseHandle(process)

    def release(self, pid: int) -> None:
        """Add a process that was started with start_flags, and let it run."""
        if sys.platform == "win32":
            import psutil  # each child of a bundle imports this module first

            self.add(pid)
            try:
                psutil.Process(pid).resume()
            except psutil.Error as error:
                raise ProcessLookupError(str(error)) from None

    def kill(self) -> None:
        """End all its processes at once."""
        if sys.platform == "win32":
            self._kernel.TerminateJobObject(self._job, 1)


def start(module: str) -> subprocess.Popen[bytes]:
    """Start a module's `main` with pipes for input and output. Raises OSError.

    Ctrl-C in the terminal does not reach it. Its errors are shown where OUTRIDER_DEBUG is set.
    """
    options: dict[str, Any] = {}
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    else:
        options["start_new_session"] = True
    return subprocess.Popen(
        command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("OUTRIDER_DEBUG") else subprocess.DEVNULL,
        bufsize=0,
        **options,
    )


def run(module: str) -> int:
    """Run a module's `main` as a child process. Return the exit status."""
    faults.watch()
    surroundings.mend()
    try:
        status: int = importlib.import_module(module).main()
        return status
    except Exception as error:
        print(faults.explain(module, error), file=sys.stderr)
        return 1


def become() -> None:
    """Run the child of the command line and exit. Return if the command line names none."""
    if sys.argv[1:2] != [MARK]:
        return
    module, arguments = sys.argv[2], sys.argv[3:]
    if module not in MODULES:
        sys.exit(f"There is no child process {module!r}.")
    sys.argv = [sys.argv[0], *arguments]
    sys.exit(run(module))
