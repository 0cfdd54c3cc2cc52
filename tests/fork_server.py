"""Run programs in processes of their own, without importing the same modules for each.

    python fork_server.py DESCRIPTOR NAME

forks a process for each connection to a listening socket, after it has imported the modules that
the process will need. Neither the server nor another process knows what happens in one. The server
has no threads. `command` returns the command of a small program that stands for such a process: it
passes on its streams, arguments, folder and environment, and ends as the process ends. Where it is
killed, the process is killed. Its process id is another one, and no signal but SIGKILL reaches the
process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import re
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

CAN_FORK = sys.platform == "linux" and not re.search(r"lib\w+san", os.environ.get("LD_PRELOAD", ""))
"""A sanitizer has threads."""
PRELOAD, PYTHON_PATH = "LD_PRELOAD", "PYTHONPATH"
PACKET_BYTES = 150_000  # of arguments and environment; a socket's buffer has 200 kB
FORKED = {
    "backend.attachments.child": (),
    "backend.bench.child": ("backend.engine.engine",),
    "backend.engine.dry_run": (),
    "backend.evaluation.replay": (),
    "backend.llama.format_child": (),
    "backend.simulation.advice": (),
    "backend.tools.host": (),
    "backend.worker.main": ("backend.engine.engine",),
}
"""Modules whose imports take longer than their work in most tests, and what they import late."""
_servers: dict[str, str] = {}  # by LD_PRELOAD

CLIENT = """
import os, sys, _signal, _socket
ours = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
ours.connect("\\0" + sys.argv[1])
words = sys.argv[3:]
told = [sys.argv[2], os.getcwd(), str(len(words)), *words, *map("=".join, os.environ.items())]
streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in range(3))
rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
ours.sendmsg(["\\0".join(told).encode("utf-8", "surrogateescape")], rights)
os.closerange(0, 3)
status = int(ours.recv(16) or b"1")
if status < 0:
    if status != -_signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def run(
    program: Sequence[str],
    modules: tuple[str, ...],
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a Python script, or "-m" and a module with a main(). modules: what it needs."""
    env = {**environment, PYTHON_PATH: os.pathsep.join(map(os.path.abspath, sys.path))}
    return subprocess.run(
        command(program, modules, env.get(PRELOAD, "")), cwd=cwd, env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip


def command(program: Sequence[str], modules: tuple[str, ...], preload: str = "") -> list[str]:
    """Return the command that runs a program as `run` does, forked where that is possible."""
    if not CAN_FORK:
        return [sys.executable, *program]
    client = [sys.executable, "-I", "-S", "-c", CLIENT, _server(preload), ",".join(modules)]
    return [*client, *program]


def fork_children() -> Callable[..., list[str]]:
    """Fork the children of this process that run a module of FORKED, and their children.

    Return backend.system.children.command as it was.
    """
    from backend.system import children  # the server has its own sys.path

    start = children.command

    def forked(module: str, *arguments: str) -> list[str]:
        if CAN_FORK and module in FORKED:
            return command(["-m", module, *arguments], (module, *FORKED[module]))
        return start(module, *arguments)

    children.command = forked
    return start


def _server(preload: str) -> str:
    """Start a server, unless there is one, which ends with this process. Return its socket."""
    if preload in _servers:
        return _servers[preload]
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    env = {**os.environ, PYTHON_PATH: path, "OPENBLAS_NUM_THREADS": "1"}
    name = f"outrider-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        arguments: list[str] = [sys.executable, __file__, str(listener.fileno()), name]
        options: dict[str, Any] = {
            "env": env | ({PRELOAD: preload} if preload else {}),
            "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
            "pass_fds": [listener.fileno()],
        }  # fmt: skip
        started: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

        def keep() -> None:
            """Start it and wait: Linux ends it with the thread that started it."""
            started.put(subprocess.Popen(arguments, **options))
            threading.Event().wait()

        threading.Thread(target=keep, daemon=True).start()
        atexit.register(started.get().kill)
    _servers[preload] = name
    return name


def serve() -> None:
    """Fork a process for each connection, and one that waits for its end."""
    from backend.system.pipes import die_with_parent

    die_with_parent()
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none becomes a zombie
    while True:
        client, _ = listener.accept()
        data, streams, *_ = socket.recv_fds(client, PACKET_BYTES, 3)
        modules, *told = data.decode("utf-8", "surrogateescape").split("\0")
        for name in filter(None, modules.split(",")):
            with contextlib.suppress(Exception):  # the process fails as it would by itself
                import_module(name)
        if data and os.fork() == 0:
            listener.close()
            die_with_parent()
            _stand_by(client, told, streams)
        for fd in streams:
            os.close(fd)
        client.close()


def _stand_by(client: socket.socket, told: list[str], streams: list[int]) -> None:
    """Start a client's process and tell the client how it ends, or end it with the client."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        client.close()
        _be(told, streams)
    for fd in streams:
        os.close(fd)
    end = os.pidfd_open(pid)
    if client in select.select([client, end], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        client.send(str(status).encode())
    os._exit(0)


def _be(told: list[str], streams: list[int]) -> None:
    """Become the process of a program."""
    from backend.system.pipes import die_with_parent

    die_with_parent()
    for standard, fd in enumerate(streams):
        os.dup2(fd, standard)
        os.close(fd)
    cwd, n_word, words = told[0], int(told[1]), told[2:]
    program, env = words[:n_word], dict(word.split("=", 1) for word in words[n_word:])
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get(PYTHON_PATH, "").split(os.pathsep))
    status = 1
    try:
        if program[0] == "-m":
            sys.argv = program[1:]
            _run(program[1])
        else:
            sys.argv = program
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


def _run(module: str) -> NoReturn:
    """Run a module's main() as the product would."""
    from backend.system import children

    if module not in children.MODULES:
        sys.exit(import_module(module).main())
    _servers[""] = sys.orig_argv[-1]
    fork_children()
    sys.exit(children.run(module))


if __name__ == "__main__":
    serve()
