"""Turns errors from loading and running a model into the engine's errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from backend import _native
from backend.gguf.identity import FileChangedError
from backend.memory.devices import DeviceError
from backend.protocol.errors import EngineError, UntrustedError
from backend.text import text

_DAMAGED_PACK = re.compile(
    r"The pack (.*) is damaged at expert (\d+) of layer (\d+); delete it or write it again"
)
"""The message of live/io/pack_sums.cc."""


def native_sentence(error: object) -> str:
    """Return a sentence about an error of the native part, which has no full stop."""
    if str(error) == _native.NO_MEMORY:
        return text("engine.no_cache_memory")
    if damaged := _DAMAGED_PACK.fullmatch(str(error)):
        pack, expert, layer = damaged.groups()
        return text("pack.damaged", file=pack, expert=int(expert), layer=int(layer))
    return f"{error}."


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
