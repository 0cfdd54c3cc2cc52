"""The command line, `outrider`. Needs no Qt. A command's module is imported when it is called.

A command is a module with `add_options(parser)` and `run(args) -> int`, which returns the exit
status. COMMANDS describes it in a sentence; the module may set a longer `parser.description`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from backend import __version__
from backend.cli.common import (
    Parser,
    UserError,
    plain_sentence,
    say,
    write_error,
)
from backend.cli.crashes import Crashes
from backend.protocol.worker_exit import describe_exit, has_crashed, was_told
from backend.system import children, faults, surroundings
from backend.system.kept_file import keep_private
from backend.system.memory import oom_kills
from backend.system.paths import data_folder, models_folder
from backend.system.pipes import die_with_parent, passed, taken

COMMANDS = {
    "batch": "answer a file of requests, several at once",
    "bench": "measure methods and stock llama.cpp beside each other, against their bounds",
    "chat": "chat with a model in the terminal, or answer one prompt",
    "download": "list and download the models of a Hugging Face repository",
    "methods": "list the methods, their parts and papers",
    "serve": "serve a model to programs on this machine, as OpenAI's and Anthropic's API",
    "evaluate": "compare predictors of a model's routing",
    "figures": "make figures of the papers again, in the simulator",
    "format": "show a model's prompt for a conversation, and how its answer is split",
    "inspect": "show what is in a model file and whether it will run here",
    "pack": "write a second file from which a model's experts are read faster",
    "report": "measure a model on this machine, for a report without names or chats",
    "simulate": "replay a trace in virtual time, with any method on any machine",
    "trace": "record which experts a model chooses while it answers prompts",
    "train": "train predictors of a model's routing on this machine",
    "verify": "compare a model's logits with stock llama.cpp, bit by bit",
}
_IN_CHILD = ("batch", "evaluate", "serve", "trace", "train", "verify")
"""Commands that load a model in their own process. `chat` and `bench` have processes for that."""
_CHILD_MARK = "OUTRIDER_COMMAND_CHILD"
"""Holds the parent's process id, and the descriptor for what libraries write to standard error."""
_TAIL_BYTES = 1 << 16
_LEAVE_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status. Errors are one sentence on stderr.

    The status is 0 for success, 1 for a failure, 2 for wrong use, 130 after Ctrl-C, 141 when the
    reader of the output is gone. Without argv, a command that loads a model runs in a child
    process: llama.cpp ends its process on some malformed models.
    """
    if argv is None:
        faults.watch(writes=False)
        surroundings.mend()
        _speak_utf8()
        if mark := os.environ.pop(_CHILD_MARK, ""):
            _be_child(*map(int, mark.split()))
        elif _command(sys.argv[1:]) in _IN_CHILD:
            return _run_in_child(sys.argv[1:])
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        _silence_stdout()
        return 128 + 13
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except UserError as error:
        write_error(str(error))
        return error.status
    except Exception as error:
        if not (faults.is_expected(error) or isinstance(error, OSError | MemoryError)):
            faults.record("command", error, writes=False)
        write_error(plain_sentence(error))
        if isinstance(error, OSError):
            _silence_stdout()  # a failed write must not fail again at exit
        return 1


def _run(argv: list[str]) -> int:
    parser = Parser(
        prog="outrider",
        description="Chat with Mixture-of-Experts models that are larger than the memory at hand.",
    )
    parser.add_argument("--version", action="version", version=f"outrider {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = _command(argv)
    if named is not None and named not in (*COMMANDS, "version"):
        raise UserError(f"There is no command '{named}'; see outrider --help.", status=2)
    module: ModuleType | None = None
    for name, sentence in COMMANDS.items():
        about = f"{sentence[0].upper()}{sentence[1:]}."
        command = subparsers.add_parser(name, help=sentence, description=about)
        if name == named:
            module = importlib.import_module(f"backend.cli.{name}")
            module.add_options(command)
    subparsers.add_parser("version", help="show the version")
    args = parser.parse_args(argv)
    if args.command == "version":
        say(f"outrider {__version__}")
        return 0
    assert module is not None
    keep_private(data_folder(), but=models_folder())
    status: int = module.run(args)
    return status


def _command(argv: Sequence[str]) -> str | None:
    return next((word for word in argv if not word.startswith("-")), None)


def _run_in_child(argv: Sequence[str]) -> int:
    """Run the command in a child process. Return its status, after a crash with a sentence.

    Messages of libraries on standard error are shown only as the reason of a crash. `batch` goes on
    in another child.
    """
    child: subprocess.Popen[bytes] | None = None
    is_told = False

    def forward(number: int, _frame: object) -> None:
        nonlocal is_told
        is_told = True
        if child is not None and os.name == "posix":  # a console of Windows sends Ctrl-C to both
            child.send_signal(number)

    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(number, forward)
    crashes = Crashes() if _command(argv) == "batch" else None
    job = children.Job()  # on Windows, where nothing else ends the child's own children
    alive, _ = os.pipe()  # its other end is open until this process ends
    while True:
        n_killed = oom_kills()
        child, said, reader = _start_child(argv, crashes, alive)
        with contextlib.suppress(OSError):  # it has ended already
            job.add(child.pid)
        status = child.wait()
        if not has_crashed(status):
            return status
        reader.join(_LEAVE_S)
        had_memory = n_killed is not None and n_killed == oom_kills()
        sentence = describe_exit(status, said.decode("utf-8", "replace"), had_memory)
        goes_on = crashes is not None and crashes.goes_on(status, sentence, had_memory=had_memory)
        goes_on = goes_on and not is_told
        if goes_on:
            sentence += " The requests that were being computed are asked again, one at a time."
        elif crashes is not None:
            sentence += " The answers so far are kept; the same command goes on with the others."
        if not was_told(status, had_memory=False):
            write_error(sentence)
        if not goes_on:
            return 128 - status if status < 0 else 1


def _start_child(
    argv: Sequence[str], crashes: Crashes | None, alive: int
) -> tuple[subprocess.Popen[bytes], bytearray, threading.Thread]:
    """Start the command in a child process.

    Return it, what its libraries write to standard error, and the thread that reads that.
    """
    in_fd, out_fd = os.pipe()
    mark = os.getpid(), passed(out_fd), passed(alive)
    env = {**children.environment(), _CHILD_MARK: " ".join(map(str, mark))}
    fds = [out_fd, alive]
    if crashes is not None:
        env |= crashes.environment()
        fds.append(crashes.fd)
    options: dict[str, Any] = {"close_fds": False}  # Windows: every inheritable handle is inherited
    if os.name == "posix":  # a group of its own, so that Ctrl-C reaches the child once: forwarded
        options = {"process_group": 0, "pass_fds": fds}
    child = subprocess.Popen(children.command("backend.cli", *argv), env=env, **options)
    os.close(out_fd)
    said = bytearray()
    reader = faults.Thread("standard error", _collect, in_fd, said, failed=faults.no_place)
    reader.start()
    return child, said, reader


def _collect(fd: int, said: bytearray) -> None:
    """Read until the end. Keep the last bytes in `said`."""
    with open(fd, "rb", buffering=0) as file:
        while data := file.read(_TAIL_BYTES):
            said += data
            del said[:-_TAIL_BYTES]


def _be_child(parent: int, told: int, alive: int) -> None:
    """End with the parent. Let libraries write to the parent's file instead of standard error."""
    fd, alive = taken(told), taken(alive)
    os.set_inheritable(alive, False)
    die_with_parent(alive)
    if os.name == "posix" and os.getppid() != parent:  # it ended before
        sys.exit(1)
    if sys.stderr is not None and not os.environ.get("OUTRIDER_DEBUG"):
        sys.stderr = open(  # noqa: SIM115
            os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace"
        )
        os.dup2(fd, 2)
    os.close(fd)


def _speak_utf8() -> None:
    """Read and write UTF-8 in pipes and files, which have another encoding on Windows."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if os.name == "nt" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def _silence_stdout() -> None:
    """Redirect standard output to the null device, so that the flush at exit cannot fail."""
    if sys.stdout is None:
        return
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        pass
