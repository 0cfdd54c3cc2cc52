"""Reads a trace from a file of either format: Outrider's own, or backend.traces.csv_reader's."""

from __future__ import annotations

from pathlib import Path

from backend.system.paths import open_regular
from backend.traces.container import require_model
from backend.traces.csv_reader import read_csv
from backend.traces.trace import Trace


def read_trace(path: Path, model: str | None = None, *, mapped: bool = False) -> Trace:
    """Read a trace, or a CSV file of routings.

    `model`: the ModelFile.fingerprint that the trace must have. `mapped`: map the arrays from the
    file instead of reading them into memory. Raises ContainerError, one sentence.
    """
    path = Path(path)
    trace = read_csv(path) if _is_csv(path) else Trace.read(path, mapped=mapped)
    if model is not None:
        require_model(path, {"model": trace.model}, model)
    return trace


def _is_csv(path: Path) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(1) == b"#"
    except (OSError, ValueError):
        return False  # Trace.read() then raises with the reason
