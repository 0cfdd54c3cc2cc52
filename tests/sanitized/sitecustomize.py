"""Load backend._native from OUTRIDER_SANITIZED, in each Python of `make asan` and `make tsan`."""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_folder = Path(os.environ["OUTRIDER_SANITIZED"])


class _Finder:
    """Finds the module in the folder, before the installed one."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> object:
        if name != "backend._native":
            return None
        (library,) = _folder.glob("_native.*.so")
        loader = importlib.machinery.ExtensionFileLoader(name, str(library))
        return importlib.util.spec_from_file_location(name, library, loader=loader)


sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
