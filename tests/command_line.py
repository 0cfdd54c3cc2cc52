"""The command `outrider` as tests run it: in their process, or in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from backend.cli import main
from backend.protocol import client

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "backend.cli"]
Ended = subprocess.CompletedProcess[str]


def outrider(
    *words: object, input: str = "", worker: Sequence[str] = (), **environment: str
) -> Ended:
    """Run a command in this process. Return its status and what it wrote.

    worker: the command that starts a worker in place of the real one.
    """
    out, error, given = (
        io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="", write_through=True)
        for data in (b"", b"", input.encode())
    )
    command = client.worker_command
    with (
        patch.dict(os.environ, environment),
        patch.object(client, "worker_command", lambda: list(worker) or command()),
        patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(error),
    ):
        try:
            status = main(list(map(str, words)))
        except SystemExit as end:  # of --help and --version
            status = int(end.code or 0)
    said = [stream.buffer.getvalue().decode() for stream in (out, error)]
    return Ended(words, status, *said)


def started(*words: object, command: Sequence[str] = COMMAND, **options: Any) -> Ended:
    """Run a command in a process of its own. Return its status and what it wrote.

    A process takes half a second. Needed is one for: signals and crashes, a terminal, streams that
    are closed or full or have another encoding, a process without certain modules, and the child in
    which some commands load a model.
    """
    settings = {"env": environment(), "encoding": "utf-8", "timeout": 120}
    settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" not in options and "stdin" not in options:
        settings["stdin"] = subprocess.DEVNULL
    return subprocess.run([*command, *map(str, words)], **{**settings, **options})


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command in a process of its own."""
    kept = {k: v for k, v in os.environ.items() if k not in ("OUTRIDER_DEBUG", "PYTHONUNBUFFERED")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, **more}
