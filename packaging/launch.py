"""Open the window, or the terminal chat if there is no display, with the embedded model.

`make run` runs this with the Python of .venv, after prepare.py.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

from app.display import why_no_window

FIRST_PROMPT = "Tell me a story about a fox and a crow."


def main() -> int:
    """Run the window or the chat and return its exit status."""
    reason = why_no_window()
    if reason is None:
        return _start("app")
    print(f"{reason.rstrip('.')}. The chat starts in this terminal instead.", flush=True)
    if _has_input():
        return _start("backend.cli", "chat")
    # Without input, show one answer instead of waiting.
    print(f"> {FIRST_PROMPT}", flush=True)
    return _start("backend.cli", "chat", "-p", FIRST_PROMPT, "--max-tokens", "100")


def _has_input() -> bool:
    """Return whether standard input is a terminal, or a file or pipe with data to read."""
    if sys.stdin is None:
        return False
    if sys.stdin.isatty() or os.name == "nt":
        return True
    if os.path.samestat(os.fstat(sys.stdin.fileno()), os.stat(os.devnull)):
        return False
    return bool(select.select([sys.stdin], [], [], 1.0)[0])


def _start(module: str, *arguments: str) -> int:
    """Replace this process with another module of this Python."""
    command = [sys.executable, "-m", module, *arguments]
    if os.name == "nt":  # with execv on Windows, the prompt returns at once
        return subprocess.call(command)
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
