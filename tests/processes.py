"""Processes that tests start and watch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server
import psutil
from waiting import until

DATA_HOME = "WIN_PD_OVERRIDE_LOCAL_APPDATA" if os.name == "nt" else "XDG_DATA_HOME"
"""The variable that names the parent of the data folder."""
NO_FILE = "No such file" if os.name == "posix" else ""
"""The system's sentence about a missing file. Windows says it in the user's language."""


ENGINE = ("backend.engine.engine", "backend.evaluation.verify")
"""The imports of scripts that run an engine."""


def run_script(
    script: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> dict[str, Any]:
    """Run a Python script in a new process. Return the JSON object that it prints."""
    python_path = os.pathsep.join(map(os.path.abspath, sys.path))
    if library := environment.get("LD_PRELOAD"):
        environment["LD_PRELOAD"] = preload(library)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": python_path} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return _found(done)


def fork_script(script: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a Python script in a forked process. Return the JSON object that it prints.

    What it measures of its own memory would count what the server has imported.
    """
    return _found(
        fork_server.run([str(script), *arguments], ENGINE, {**os.environ, **environment}, 120)
    )


def _found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def preload(library: Path | str) -> str:
    """Return LD_PRELOAD with a library after those of this process; a sanitizer has to be first."""
    return f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()


def native_build() -> tuple[Path, list[str], dict[str, str]] | None:
    """Return the folder of the native part's last build, and how to compile against it.

    That is the options and environment of the compiler. OUTRIDER_SANITIZED names a build with a
    sanitizer; without it such builds are passed over, because nothing else links with them. None:
    no build.
    """
    root = Path(__file__).resolve().parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    options = ["-std=c++20", f"-I{root / 'backend' / 'native'}"]
    kinds = {"asan": "address,undefined", "tsan": "thread"}
    if sanitized := os.environ.get("OUTRIDER_SANITIZED"):
        kind = kinds[Path(sanitized).parents[1].name]
        options += [f"-fsanitize={kind}", "-DOUTRIDER_SANITIZE"]
        return Path(sanitized), options, environment
    builds = [
        path.parents[1]
        for path in root.glob("build/*/backend/native/live/liboutrider_live.a")
        if path.parents[3].name not in kinds
    ]
    newest = max(builds, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else (newest, options, environment)


def kill_parent(code: str) -> int:
    """Run Python code that prints the id of its child, kill it, and return the child's id."""
    root = str(Path(__file__).resolve().parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    return pid


def wait_until_gone(pid: int) -> None:
    """Wait until a process that is not our child has ended. A zombie counts as ended."""
    until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    )
