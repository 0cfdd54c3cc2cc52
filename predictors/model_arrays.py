"""Read initial values of a predictor from the model's file: routers and embedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from backend.gguf.model_file import ModelFile, TensorInfo
from backend.simulation import model
from predictors.routings import Floats

SAMPLE_BYTES = 128 << 20
"""Size of the rows of the embedding whose principal components are taken."""
PIECE_BYTES = 16 << 20
N_ITERATION = 12
N_SPARE = 16
"""Directions that the iteration keeps beyond those wanted, so that it converges."""


def vocabulary(file: ModelFile) -> TensorInfo | None:
    """Return the model's embedding, if it has one with a row for each token id."""
    return next((t for t in file.tensors if t.name == "token_embd.weight"), None)


def routers(file: ModelFile, layers: Sequence[int]) -> Floats | None:
    """Return the routers [L, E, n_embd], or None if one of them cannot be read."""
    found = model.routers(file, tuple(layers))
    if not found or len({router.shape for router in found}) > 1:
        return None
    return np.stack(found)


def token_rows(file: ModelFile, embedding: TensorInfo, rank: int) -> Floats:
    """Return [n_vocab, rank]: the embedding's principal components, scaled to unit variance.

    Rows are normalised first, as a layer's norm does. A random rotation gives all columns similar
    size, because a row is stored in four bits. Rows are random if the embedding is narrower.
    """
    draw = np.random.default_rng(0)
    n_column, n_row = embedding.shape[:2]
    if min(n_column, n_row) < rank:
        return draw.standard_normal((n_row, rank), np.float32) * np.float32(0.3)
    every = -(-4 * n_row * n_column // SAMPLE_BYTES)
    sample = np.concatenate([rows[::every] for rows in _pieces(file, embedding)])
    mean = sample.mean(0)
    sample -= mean
    turn, _ = np.linalg.qr(draw.standard_normal((rank, rank), np.float32))
    turned = _directions(sample, rank, draw) @ turn
    pieces = [(rows - mean) @ turned for rows in _pieces(file, embedding)]
    projected: Floats = np.concatenate(pieces)
    projected /= projected.std()
    return projected


def _directions(sample: Floats, rank: int, draw: np.random.Generator) -> Floats:
    """Return [n_column, rank]: the directions in which the rows of the sample vary most.

    Found by subspace iteration, which needs little time and memory for wide rows (Halko, Martinsson
    and Tropp 2011, algorithm 4.4).
    """
    n_kept = min(rank + N_SPARE, *sample.shape)
    found: Floats = draw.standard_normal((sample.shape[1], n_kept), np.float32)
    for _ in range(N_ITERATION):
        found = np.linalg.qr(sample.T @ (sample @ found))[0]
    in_found = sample @ found
    found = found @ np.linalg.eigh(in_found.T @ in_found)[1][:, -rank:]
    return found


def _pieces(file: ModelFile, tensor: TensorInfo) -> Iterator[Floats]:
    """Yield all rows, normalised, some at a time."""
    n_column, n_row = tensor.shape[:2]
    step = max(PIECE_BYTES // (4 * n_column), 1)
    for begin in range(0, n_row, step):
        rows = model.matrix(file, tensor, begin, min(step, n_row - begin))
        rows /= np.maximum(np.sqrt(np.square(rows).mean(1, keepdims=True)), 1e-6)
        yield rows
