"""Turns errors from loading and running a model into the engine's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from backend.gguf.identity import FileChangedError
from backend.memory.devices import DeviceError
from backend.protocol.errors import EngineError, UntrustedError


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Raise errors of llama.cpp, of devices and of changed files as the engine's."""
    from backend.llama.api import LlamaError  # loads llama.cpp, which plans do not need

    try:
        yield
    except FileChangedError as error:
        raise UntrustedError(str(error)) from None
    except (LlamaError, DeviceError) as error:
        raise EngineError(str(error)) from None
