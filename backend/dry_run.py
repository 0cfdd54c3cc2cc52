"""llama.cpp's own count of the memory that it computes in, before anything is loaded.

It loads only the header of a model (backend.loading.load_header), makes a context for it and
reserves the buffers of its graphs without taking any memory; the sizes are what it says of them in
its log. That takes a few milliseconds beside reading the vocabulary.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend.gguf_file import ModelFile
    from backend.loading import Placement

_BUFFER = re.compile(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB")


class DryRun:
    """Of one model. Results are kept, and the header of the last placement; close() frees that.

    patched: it will run with its experts on slots.
    """

    def __init__(self, file: ModelFile, *, patched: bool) -> None:
        self.file, self.patched = file, patched
        self._placement: Placement | None = None
        self._model: Any = None
        self._known: dict[tuple[object, ...], dict[str, int]] = {}

    def compute_bytes(
        self, placement: Placement, n_context: int, n_ubatch: int, kv_type: str, n_output: int = 1
    ) -> dict[str, int]:
        """Return the bytes of each kind of memory by its name (devices.Device.memory).

        n_output: as for backend.llama.Context. Raises LlamaError where llama.cpp refuses the file.
        """
        key = (placement, n_context, n_ubatch, kv_type, n_output)
        if key not in self._known:
            self._known[key] = self._measure(placement, n_context, n_ubatch, kv_type, n_output)
        return self._known[key]

    def _measure(
        self, placement: Placement, n_context: int, n_ubatch: int, kv_type: str, n_output: int
    ) -> dict[str, int]:
        from backend.llama import Context, log

        model = self._load(placement)
        with log.heard() as lines:
            Context(
                model,
                n_context=n_context,
                n_ubatch=n_ubatch,
                n_thread=1,
                n_output=n_output,
                kv_type=kv_type,
            ).close()
        found = {}
        for line in lines:
            if match := _BUFFER.search(line):
                found[match[1]] = round(float(match[2]) * (1 << 20))
        return found

    def _load(self, placement: Placement) -> Any:
        from backend.loading import load_header

        if self._model is None or placement != self._placement:
            self.close()
            self._model = load_header(self.file, placement, patched=self.patched)
            self._placement = placement
        return self._model

    def close(self) -> None:
        """Free the header; what was measured stays known. Twice is fine."""
        if self._model is not None:
            self._model.close()
            self._model = None
