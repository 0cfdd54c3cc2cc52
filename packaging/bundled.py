"""Entry of a bundled application: the window, the command line, or a child process of either.

The bundle has two executables of this file: `outrider` is the command line, `outrider-app` the
window.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from backend.system import paths
from backend.system.children import become


def main() -> int:
    """Run the part that the executable's name and first argument select. Return the exit status."""
    _restore_environment()
    # Further backends, such as CUDA, are found here (backend/native/live/ggml/backends.h).
    os.environ.setdefault("OUTRIDER_BACKENDS", str(paths.backends_folder()))
    become()
    # Each part imports its own dependencies only: the command line starts without Qt.
    if Path(sys.executable).stem == "outrider":
        from backend.cli import main as command_line

        return command_line()
    from app.main import main as window

    return window()


def _restore_environment() -> None:
    """Give other programs that we start, such as a file manager, the system's libraries.

    This process has loaded its own libraries already. Its children reset the environment and find
    them again.
    """
    os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
    original = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if original is not None:
        os.environ["LD_LIBRARY_PATH"] = original
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)


if __name__ == "__main__":
    sys.exit(main())
