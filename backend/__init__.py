"""The engine: llama.cpp with a cache of experts.

Importing this package is cheap and loads neither llama.cpp nor the native part.
"""

from __future__ import annotations

import logging
import os
import sys

__version__ = "0.1.0"
"""The version. Everything else reads it here."""

RELEASES_URL = ""
"""The folder in which releases are published; "": nowhere yet. OUTRIDER_RELEASES overrides it."""

if sys.prefix != sys.base_prefix and "PYTHONPATH" in os.environ:
    # Systems such as ROS set it for every program, and its packages are of other versions: those
    # that were installed for this program come first.
    _root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _named = map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep))
    _foreign = {path for path in _named if not path.startswith(_root)}
    sys.path.sort(key=lambda path: path in _foreign)

if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    # libgomp reads these when it is loaded. They are its defaults, but for 1,000 polls of an idle
    # thread instead of 100 while backend.system.spinning wants few.
    os.environ.update(OMP_WAIT_POLICY="active", GOMP_SPINCOUNT="300000")

if not os.environ.get("OUTRIDER_DEBUG"):
    # Until backend.llama.api listens, llama_cpp prints all that llama.cpp says, such as the
    # backends that are loaded with the native part.
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL + 1)

if sys.platform == "win32":
    # The native part needs llama.cpp's libraries, also where it is imported before llama_cpp.
    import importlib.util

    _llama_cpp = importlib.util.find_spec("llama_cpp")
    _libraries = os.path.join(os.path.dirname((_llama_cpp and _llama_cpp.origin) or ""), "lib")
    if os.path.isdir(_libraries):
        os.add_dll_directory(os.path.abspath(_libraries))

LLAMA_CPP_PYTHON_VERSION = "0.3.36"
"""The one version whose structures and graphs the native part was written for."""


def check_llama_cpp() -> None:
    """Raise ImportError unless exactly the pinned llama-cpp-python is installed.

    Another version may lay out its structures in another way, which ctypes does not notice.
    """
    from importlib import metadata  # 20 ms, which only the worker and commands need

    from backend.text import text  # importing this package loads no catalogue

    try:
        found = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        raise ImportError(text("engine.no_llama", version=LLAMA_CPP_PYTHON_VERSION)) from None
    if found != LLAMA_CPP_PYTHON_VERSION:
        raise ImportError(text("engine.other_llama", found=found, version=LLAMA_CPP_PYTHON_VERSION))


def check_native() -> None:
    """Raise ImportError if the sources of the native part have changed since it was built.

    An older native part may answer in another way than its Python expects, and say nothing. Only
    the build of a checkout writes the digests of its sources (native/sources.cmake). A wheel and a
    bundle have neither these nor the sources.
    """
    import hashlib
    import importlib.util
    from pathlib import Path

    from backend.text import text

    found = importlib.util.find_spec("backend._native")
    built_from = Path((found and found.origin) or __file__).with_name("_native.sources")
    folder = Path(__file__).with_name("native")
    if not (built_from.is_file() and folder.is_dir()):
        return
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*.*") if p.is_file()}
    digests = (
        f"{name} {hashlib.sha256(files[name].read_bytes()).hexdigest()}\n"
        for name in sorted(files)
        if name.endswith((".cc", ".h"))
    )
    if "".join(digests) != built_from.read_text(encoding="utf-8"):
        raise ImportError(text("engine.old_native"))
