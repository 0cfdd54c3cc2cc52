"""The error of everything that loads and runs a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from backend.devices import DeviceError


class EngineError(RuntimeError):
    """Something that the user should know; the text is one plain sentence."""


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Raise llama.cpp's and the devices' errors as the engine's."""
    from backend.llama import LlamaError  # loads llama.cpp, which plans do without

    try:
        yield
    except (LlamaError, DeviceError) as error:
        raise EngineError(str(error)) from None
