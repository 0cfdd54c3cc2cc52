"""Asks llama.cpp, in a child process, what a context of a model takes (backend.engine.dry_run)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.gguf.tables import NOT_ESTIMATED
from backend.system import children

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile


def said_of(path: Path, n_context: int, limit_s: float | None = None) -> dict[str, Any] | None:
    """Return what llama.cpp says of a model with a context in tokens; None where it cannot load it.

    It is asked in a child process, because it ends its process on some malformed models. Return
    None also if that takes longer than limit_s.
    """
    command = children.command("backend.engine.dry_run", str(path), str(n_context))
    try:
        found = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return None
    said: dict[str, Any] | None = json.loads(found.stdout) if found.returncode == 0 else None
    return said


def with_sizes(model: ModelFile, said: Mapping[str, Any]) -> ModelFile:
    """Return the model with the sizes in what llama.cpp said, which hold for that context."""
    from backend.gguf.model_file import ContextSizes  # numpy: not at start

    computing = said["compute_bytes"]
    sizes = ContextSizes(
        said["cell_bytes"],
        said["state_bytes"],
        lambda _n_context, n_ubatch: computing[str(min(n_ubatch, max(map(int, computing))))],
        window_bytes=said["window_bytes"],
        n_window=said["n_window"],
    )
    return replace(model, sizes=sizes)


def asked(model: ModelFile, path: Path, n_context: int) -> ModelFile:
    """Return the model with llama.cpp's sizes, where an estimate would be wrong.

    path: a file with the model's header, of the model's size.
    """
    if model.architecture not in NOT_ESTIMATED or n_context < 1:
        return model
    said = said_of(path, min(n_context, model.context_length or n_context))
    return with_sizes(model, said) if said else model
