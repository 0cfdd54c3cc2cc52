"""A thin layer over llama_cpp: models, contexts, samplers, chat templates.

Only this package and `engine.loading` import llama_cpp.
May import: protocol and below (tests/test_imports.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any


def function_of(name: str, result: Any = ctypes.c_void_p, *arguments: Any) -> Any:
    """Return a function of llama.cpp's libraries or of ggml's. Raises AttributeError.

    On Windows, llama.cpp's library does not export what it takes from ggml's.
    """
    import llama_cpp  # heavy, and its version is checked before

    library = Path(llama_cpp.llama_cpp._lib._name)
    names = ["ggml.dll", "ggml-base.dll"] if os.name == "nt" else []
    for path in (library, *map(library.with_name, names)):
        if (found := getattr(ctypes.CDLL(str(path)), name, None)) is not None:
            found.argtypes, found.restype = arguments, result
            return found
    raise AttributeError(name)


def of_cpp(gcc: str, msvc: str, result: Any, *arguments: Any) -> Any:
    """Return a function of llama.cpp with a C++ name (src/llama-ext.h), or None if it lacks it.

    gcc, msvc: its names by compiler. On Windows either may have built the library.
    """
    for name in (gcc, msvc):
        with contextlib.suppress(AttributeError):
            return function_of(name, result, *arguments)
    return None
