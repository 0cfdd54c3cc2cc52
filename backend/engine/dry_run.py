"""Measure the size of llama.cpp's compute buffers before a model is loaded.

A dry run loads only the header of a model (backend.engine.loading.load_header), makes a context for
it and reserves the buffers of its graphs without allocating memory. llama.cpp writes the sizes to
its log. This takes a few milliseconds plus the time to read the vocabulary.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path

from backend.engine.loading import load_header
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import Context, LlamaError, Model, log
from backend.memory.placement import ON_CPU, Placement

_N_CONTEXT = 512
"""Tokens of a context that only warnings are wanted of."""
_BUFFER = re.compile(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB")


class DryRun:
    """Dry runs of one model. Keeps all results and the last header; close() frees the header."""

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
        """Return the bytes of each memory by its name (devices.Device.memory).

        patched: with experts on slots. n_output: as for backend.llama.api.Context. Raises
        LlamaError where llama.cpp refuses the file.
        """
        if self._model is None or self._loaded != (placement, patched):
            self.close()
            self._model = load_header(self._file, placement, patched=patched)
            self._loaded = placement, patched
        with log.captured() as lines:
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
        """Free the header and keep the results. A second call does nothing."""
        if self._model is not None:
            self._model.close()
            self._model = None


def warnings_of(file: ModelFile) -> list[str]:
    """Return what llama.cpp warns of while it loads a model and makes its context.

    Raises LlamaError where it refuses the file.
    """
    log.listen(echo=False)
    log.warnings.clear()
    n_context = min(file.context_length or _N_CONTEXT, _N_CONTEXT)
    DryRun(file).compute_bytes(ON_CPU, False, n_context, n_context, "f16", 0)
    return list(log.warnings)


def main() -> int:
    """Print the warnings of the model that is the argument, as JSON. Return the exit status."""
    try:
        print(json.dumps(warnings_of(read_model(Path(sys.argv[1])))))
    except (LlamaError, ModelFileError, OSError):
        return 1
    return 0
