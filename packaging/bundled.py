"""Where a bundled application begins: the window, the command line, or a child of either.

One folder holds two executables of this: `outrider` is the command line, `outrider-app` the window.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from backend.system.children import become


def main() -> int:
    """Be what the executable's name and first argument ask for. Returns the exit status."""
    _restore_environment()
    become()
    if Path(sys.executable).stem == "outrider":
        from backend.cli import main as command_line

        return command_line()
    from app.main import main as window

    return window()


def _restore_environment() -> None:
    """Other programs, as a file manager that is opened, get the system's libraries, not ours.

    Our own have been found when this runs; our children look for them anew.
    """
    os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
    original = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if original is not None:
        os.environ["LD_LIBRARY_PATH"] = original
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)


if __name__ == "__main__":
    sys.exit(main())
