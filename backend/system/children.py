"""Processes of our own: the command that starts one, with the same code as this process.

From a checkout or an installation that is this Python with a module's `main`. A bundled application
has no Python to be started; there the executable itself becomes the child, by its first argument.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

MARK = "--outrider-child"
"""The first argument of a bundled executable that is to be a child; the module follows."""
MODULES = (
    "backend.simulation.advice",
    "backend.bench.child",
    "backend.cli",
    "backend.learning.child",
    "backend.library.machine",
    "backend.llama.template_child",
    "backend.worker.main",
)
"""What may be a child: each has a `main` without arguments, which finds them in sys.argv[1:]."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module's `main`, whatever folder is the current one."""
    assert module in MODULES, module
    if getattr(sys, "frozen", False):
        return [sys.executable, MARK, module, *arguments]
    # -P and an explicit folder: neither the current folder nor a missing install matters.
    root = str(Path(__file__).resolve().parents[2])
    start = (
        f"import sys; {root!r} in sys.path or sys.path.insert(0, {root!r}); "
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", start, *arguments]


def become() -> None:
    """Be the child that the command line asks for, and end; return where it asks for none."""
    if sys.argv[1:2] != [MARK]:
        return
    module, arguments = sys.argv[2], sys.argv[3:]
    if module not in MODULES:
        sys.exit(f"There is no child process {module!r}.")
    sys.argv = [sys.argv[0], *arguments]
    sys.exit(importlib.import_module(module).main())
