"""Ask llama.cpp for the memory of a model's context before the model is loaded.

A dry run loads only the header of a model (backend.engine.loading.load_header), makes a context for
it and reserves its buffers without allocating them, but for recurrent states. llama.cpp writes the
sizes to its log. This takes a few milliseconds plus the time to read the vocabulary.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backend.engine.loading import load_header
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import ContextSizes, ModelFile, read_model
from backend.gguf.tables import ring_cells
from backend.llama.api import Context, LlamaError, Model, log
from backend.memory.placement import ON_CPU, Placement
from backend.memory.plan import N_PREDICTION, N_UBATCHES

_MIB = 1 << 20
_N_CONTEXT = 512
"""Tokens of a context that only warnings are wanted of."""
_BUFFER = re.compile(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB")
_CACHE = re.compile(r"(?:: |layers = \d+, )size = +([0-9.]+) MiB")
"""A part of the attention cache or of the states."""
_N_PASS = 64
_CELLS = 1024, 33 * 1024
"""Contexts whose sizes tell what each cell takes; the log has two decimals."""


class DryRun:
    """Dry runs of one model. Keeps all results and the last header; close() frees the header."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._loaded: tuple[Placement, bool, bool] | None = None
        self._model: Model | None = None
        self.compute_bytes = functools.cache(self._compute_bytes)
        self._in_cells = functools.cache(self._measure_cells)
        self._guess_bytes = functools.cache(self._measure_guess)

    def asked(self, n_output: int = 0, n_back: int = 0) -> ModelFile:
        """Return the file with llama.cpp's sizes, without devices.

        n_output, n_back: as for backend.llama.api.Context. Raises LlamaError where llama.cpp
        refuses the file.
        """

        def compute_bytes(n_context: int, n_ubatch: int) -> int:
            found = self.compute_bytes(ON_CPU, False, n_context, n_ubatch, "f16", n_output, n_back)
            return sum(found.values())

        cell, state, window, n_window = self._in_cells(n_back)
        sizes = ContextSizes(cell, state, compute_bytes, self._guess_bytes, window, n_window)
        return replace(self._file, sizes=sizes)

    def warnings(self) -> list[str]:
        """Return what llama.cpp warns of while it loads the model and makes its context.

        Raises LlamaError where it refuses the file.
        """
        self.close()  # it warns while it loads
        log.listen(echo=False)
        log.warnings.clear()
        n_context = min(self._file.context_length or _N_CONTEXT, _N_CONTEXT)
        self._lines(ON_CPU, False, n_context, n_context, "f16", 0)
        return list(log.warnings)

    def _measure_cells(self, n_back: int) -> tuple[float, int, float, int]:
        """Return ContextSizes.cell_bytes, state_bytes, window_bytes and n_window."""

        def cache_bytes(n: int, *, windows: bool = False) -> int:
            lines = self._lines(ON_CPU, False, n, _N_PASS, "f16", 1, n_back, windows=windows)
            return _sum_bytes(_CACHE, lines)

        few, many = map(cache_bytes, _CELLS)
        cell_bytes = (many - few) / (_CELLS[1] - _CELLS[0])
        state_bytes = max(0, round(few - cell_bytes * _CELLS[0]))
        assert self._model is not None
        n_window = self._model.n_window
        n_ring = ring_cells(n_window, _CELLS[1], _N_PASS, 1)
        saved = many - cache_bytes(_CELLS[1], windows=True) if n_ring < _CELLS[1] else 0
        return cell_bytes, state_bytes, saved / (_CELLS[1] - n_ring or 1), n_window

    def _measure_guess(self, n_context: int, kv_type: str) -> int:
        """Return ContextSizes.guess_bytes."""
        n_ubatch = min(N_PREDICTION, n_context)
        lines = self._lines(ON_CPU, False, n_context, n_ubatch, kv_type, 1, predicts=True)
        return _sum_bytes(_CACHE, lines) + _sum_bytes(_BUFFER, lines)

    def _compute_bytes(
        self,
        placement: Placement,
        patched: bool,
        n_context: int,
        n_ubatch: int,
        kv_type: str,
        n_output: int,
        n_back: int = 0,
    ) -> dict[str, int]:
        """Return the bytes of each memory by its name (devices.Device.memory).

        patched: with experts on slots. n_output, n_back: as for backend.llama.api.Context. Raises
        LlamaError where llama.cpp refuses the file.
        """
        lines = self._lines(placement, patched, n_context, n_ubatch, kv_type, n_output, n_back)
        found = (_BUFFER.search(line) for line in lines)
        return {match[1]: round(float(match[2]) * _MIB) for match in found if match}

    def _lines(
        self,
        placement: Placement,
        patched: bool,
        n_context: int,
        n_ubatch: int,
        kv_type: str,
        n_output: int,
        n_back: int = 0,
        *,
        predicts: bool = False,
        windows: bool = True,
    ) -> list[str]:
        """Return what llama.cpp says of a context, made as for compute_bytes."""
        if self._model is None or self._loaded != (placement, patched, predicts):
            self.close()
            self._model = load_header(self._file, placement, patched=patched, predicts=predicts)
            self._loaded = placement, patched, predicts
        with log.captured() as lines:
            Context(
                self._model,
                n_context=n_context,
                n_ubatch=n_ubatch,
                n_thread=1,
                n_output=n_output,
                kv_type=kv_type,
                n_back=n_back,
                predicts=predicts,
                windows=windows,
            ).close()
        return lines

    def close(self) -> None:
        """Free the header and keep the results. A second call does nothing."""
        if self._model is not None:
            self._model.close()
            self._model = None


def _sum_bytes(pattern: re.Pattern[str], lines: Iterable[str]) -> int:
    """Return the sum of the last group, in MiB, over the lines with a pattern."""
    found = (pattern.search(line) for line in lines)
    return round(sum(float(match.groups()[-1]) for match in found if match) * _MIB)


def main() -> int:
    """Print what llama.cpp says of a model, as JSON. Return the exit status.

    Arguments: the model, and the tokens of a context. compute_bytes: by n_ubatch.
    """
    try:
        file, n_context = read_model(Path(sys.argv[1])), int(sys.argv[2])
        dry_run = DryRun(file)
        warnings, sizes = dry_run.warnings(), dry_run.asked(n_output=1).sizes
        assert sizes is not None
        batches = sorted({min(n, n_context) for n in N_UBATCHES})
        found = {
            "warnings": warnings,
            "cell_bytes": sizes.cell_bytes,
            "state_bytes": sizes.state_bytes,
            "window_bytes": sizes.window_bytes,
            "n_window": sizes.n_window,
            "compute_bytes": {n: sizes.compute_bytes(n_context, n) for n in batches},
        }
        print(json.dumps(found))
    except (LlamaError, ModelFileError, OSError):
        return 1
    return 0
