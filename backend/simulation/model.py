"""Reads from a model file what simulation and training need beside a trace: sizes and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.gguf.model_file import ModelFile, TensorInfo
from backend.methods.compose import Learned
from backend.traces.container import require_model
from backend.traces.trace import Trace
from backend.weights.file import PredictorSizes, read

SIGMOID = 2
"""A value of llama.cpp's enum llama_expert_gating_func_type."""


def with_model(path: Path, trace: Trace, file: ModelFile) -> Trace:
    """Add the model's sizes to the trace. Raise ContainerError if it is of another model."""
    if trace.model:
        require_model(path, {"model": trace.model}, file.fingerprint)
    return replace(trace, about={**trace.about, **sizes(file)})


def sizes(file: ModelFile) -> dict[str, float]:
    """Return the mean dense bytes of a layer, the bytes of the output, and the bits per weight."""
    routed = [t for tensors in file.expert_tensors.values() for t in tensors]
    n_weight = sum(int(np.prod(t.shape, dtype=np.int64)) for t in routed)
    return {
        "layer_dense_bytes": file.layer_dense_bytes,
        "output_bytes": float(file.output_bytes),
        "bits_per_weight": 8 * sum(t.n_bytes for t in routed) / max(n_weight, 1),
    }


def learned(paths: Sequence[Path], trace: Trace) -> Learned:
    """Read predictor files of the trace's model. Raise ContainerError."""
    sizes = PredictorSizes(trace.n_layer, trace.n_expert, trace.n_expert_used, trace.n_embd)
    found = [read(path, trace.model, sizes) for path in paths]
    return Learned(
        {weights.name: weights.arrays for weights in found},
        {weights.name: weights.numbers for weights in found},
    )


def routers(file: ModelFile, layers: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Return the router of each MoE layer, [n_expert, n_embd], or [] if one cannot be read."""
    by_name = {t.name: t for t in file.tensors}
    found = [by_name.get(f"blk.{layer}.ffn_gate_inp.weight") for layer in layers]
    if any(tensor is None for tensor in found):
        return []
    return [matrix(file, tensor) for tensor in found if tensor is not None]


def router_biases(file: ModelFile, layers: tuple[int, ...]) -> list[_native.RouterBias]:
    """Return the numbers that each layer's router adds to its scores before it chooses."""
    by_name = {t.name: t for t in file.tensors}

    def row(name: str) -> list[float]:
        tensor = by_name.get(name)
        return [] if tensor is None else [float(x) for x in matrix(file, tensor).ravel()]

    is_sigmoid = file.key("expert_gating_func", 0) == SIGMOID
    return [
        _native.RouterBias(
            row(f"blk.{layer}.ffn_gate_inp.bias"), row(f"blk.{layer}.exp_probs_b.bias"), is_sigmoid
        )
        for layer in layers
    ]


def token_experts(file: ModelFile, layers: tuple[int, ...]) -> list[NDArray[np.int32]]:
    """Return the experts of each token id for each layer whose router is a table (DeepSeek-V4).

    Other layers have no rows. Return [] where all are others.
    """
    by_name = {t.name: t for t in file.tensors}
    tables = []
    for layer in layers:
        tensor = by_name.get(f"blk.{layer}.ffn_gate_tid2eid.weight")
        if tensor is None or tensor.type_name != "I32":
            tables.append(np.zeros((0, 1), np.int32))
            continue
        n_used, n_token = tensor.shape[:2]
        values: NDArray[Any] = np.fromfile(
            file.paths[tensor.part], "<i4", count=n_used * n_token, offset=tensor.offset
        )
        tables.append(np.ascontiguousarray(values.reshape(n_token, n_used), np.int32))
    return tables if any(map(len, tables)) else []


def matrix(
    file: ModelFile, tensor: TensorInfo, begin: int = 0, n_row: int | None = None
) -> NDArray[np.float32]:
    """Return rows of a tensor of weights, [n_row, row length]; by default all. Raises OSError."""
    n_row = tensor.shape[1] - begin if n_row is None else n_row
    row_bytes = tensor.matrix_bytes // tensor.shape[1]
    with file.paths[tensor.part].open("rb") as part:
        part.seek(tensor.offset + begin * row_bytes)
        values: NDArray[np.float32] = _native.values_of(
            tensor.type_id, part.read(n_row * row_bytes)
        )
    return values.reshape(n_row, tensor.shape[0])
