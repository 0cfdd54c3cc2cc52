"""llama.cpp's own count of the memory that it computes in, before anything is loaded.

It loads only the header of a model (backend.engine.loading.load_header), makes a context for it and
reserves the buffers of its graphs without taking any memory; the sizes are what it says of them in
its log. That takes a few milliseconds beside reading the vocabulary.
"""

from __future__ import annotations

import functools
import re

from backend.engine.loading import load_header
from backend.gguf.model_file import ModelFile
from backend.llama.api import Context, Model, log
from backend.memory.placement import Placement

_BUFFER = re.compile(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB")


class DryRun:
    """Of one model. Results are kept, and the header of the last placement; close() frees that."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._loaded: tuple[Placement, bool] | None = None
        self._model: Model | None = None
        self.compute_bytes = functools.cache(self._compute_bytes)

    def _compute_bytes(
        self,
        placement: Placement,
        patched: bool,
        n_context: int,
        n_ubatch: int,
        kv_type: str,
        n_output: int,
    ) -> dict[str, int]:
        """Return the bytes of each kind of memory by its name (devices.Device.memory).

        patched: with experts on slots. n_output: as for backend.llama.api.Context. Raises
        LlamaError where llama.cpp refuses the file.
        """
        if self._model is None or self._loaded != (placement, patched):
            self.close()
            self._model = load_header(self._file, placement, patched=patched)
            self._loaded = placement, patched
        with log.heard() as lines:
            Context(
                self._model,
                n_context=n_context,
                n_ubatch=n_ubatch,
                n_thread=1,
                n_output=n_output,
                kv_type=kv_type,
            ).close()
        found = (_BUFFER.search(line) for line in lines)
        return {match[1]: round(float(match[2]) * (1 << 20)) for match in found if match}

    def close(self) -> None:
        """Free the header; what was measured stays known. Twice is fine."""
        if self._model is not None:
            self._model.close()
            self._model = None
