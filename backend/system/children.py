"""Starts child processes with the same code as this process.

In a checkout or an installation, the command is this Python with a module's `main`. A bundled
application has no separate Python; there the executable starts itself, and its first argument makes
it the child.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

MARK = "--outrider-child"
"""The first argument that makes a bundled executable a child; the module follows."""
MODULES = (
    "backend.simulation.advice",
    "backend.bench.child",
    "backend.cli",
    "backend.learning.child",
    "backend.library.machine",
    "backend.llama.template_child",
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
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", start, *arguments]


def become() -> None:
    """Run the child of the command line and exit. Return if the command line names none."""
    if sys.argv[1:2] != [MARK]:
        return
    module, arguments = sys.argv[2], sys.argv[3:]
    if module not in MODULES:
        sys.exit(f"There is no child process {module!r}.")
    sys.argv = [sys.argv[0], *arguments]
    sys.exit(importlib.import_module(module).main())
