"""Run programs in processes of their own, without importing the same modules for each.

    python fork_server.py MODULE...

imports modules, and then forks a process for each line of its input. Neither the server nor another
process knows what happens in one. The server has no threads.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

CAN_FORK = sys.platform == "linux" and not os.environ.get("LD_PRELOAD")
"""A sanitizer has threads."""
PRELOAD = "LD_PRELOAD"


def run(
    program: Sequence[str],
    modules: tuple[str, ...],
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a Python script, or "-m" and a module with a main(). modules: what it imports."""
    env = {**environment, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    if not CAN_FORK:
        return subprocess.run(
            [sys.executable, *program], cwd=cwd, env=env, capture_output=True, text=True,
            timeout=timeout_s,
        )  # fmt: skip
    return _server(modules, env.get(PRELOAD, "")).run(program, cwd or Path.cwd(), env, timeout_s)


@functools.cache
def _server(modules: tuple[str, ...], preload: str) -> _Server:
    return _Server(modules, preload)


class _Server:
    """A server's process. It ends with this one."""

    def __init__(self, modules: tuple[str, ...], preload: str) -> None:
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        env = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules], env=env | ({PRELOAD: preload} if preload else {}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        atexit.register(self._process.kill)

    def run(
        self, program: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Fork a process, and wait for its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, name)) for name in ("out", "err")]
            self._process.stdin.write(json.dumps([program, str(cwd), dict(env), files]) + "\n")
            pid = int(self._process.stdout.readline())
            is_late = not select.select([self._process.stdout], [], [], timeout_s)[0]
            if is_late:
                os.kill(pid, signal.SIGKILL)
            code = int(self._process.stdout.readline())
            out, err = (Path(file).read_text("utf-8") for file in files)
        if is_late:
            raise subprocess.TimeoutExpired(program, timeout_s, out, err)
        return subprocess.CompletedProcess(program, code, out, err)


def serve() -> None:
    """Fork a process for each line, and print its number and how it ended."""
    from backend.system.pipes import die_with_parent

    die_with_parent()
    for name in sys.argv[1:]:
        import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _be(*json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _be(program: list[str], cwd: str, env: dict[str, str], files: list[str]) -> None:
    """Become the process of a program."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    out, err = (os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for file in files)
    for mine, standard in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(mine, standard)
        os.close(mine)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = env["PYTHONPATH"].split(os.pathsep)
    status = 1
    try:
        if program[0] == "-m":
            sys.argv = list(program[1:])
            sys.exit(import_module(program[1]).main())
        else:
            sys.argv = list(program)
            sys.path.insert(0, str(Path(program[0]).parent))
            runpy.run_path(program[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
