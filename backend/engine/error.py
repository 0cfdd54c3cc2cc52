"""The error of everything that loads and runs a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from backend.gguf.identity import FileChangedError
from backend.memory.devices import DeviceError
from backend.protocol.errors import EngineError, UntrustedError


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Raise errors of llama.cpp, of devices and of changed files as the engine's."""
    from backend.llama.api import LlamaError  # loads llama.cpp, which plans do without

    try:
        yield
    except FileChangedError as error:
        raise UntrustedError(str(error)) from None
    except (LlamaError, DeviceError) as error:
        raise EngineError(str(error)) from None
