"""Read initial values of a predictor from the model's file: routers and embedding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor


def _tensors(paths: Sequence[Path], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the tensors that exist, by name, as float32 [rows, columns]."""
    found = {}
    for path in paths:
        for tensor in gguf.GGUFReader(path).tensors:
            if tensor.name in names:
                found[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type)
    return found


def routers(paths: Sequence[Path], layers: Sequence[int]) -> Tensor | None:
    """Return the routers [L, E, n_embd], or None if one of them cannot be read."""
    names = [f"blk.{layer}.ffn_gate_inp.weight" for layer in layers]
    found = _tensors(paths, names)
    if len(found) < len(names) or len({found[name].shape for name in names}) > 1:
        return None
    return torch.from_numpy(np.stack([found[name] for name in names]).astype(np.float32))


def token_rows(paths: Sequence[Path], n_vocab: int, rank: int) -> Tensor:
    """Return [n_vocab, rank]: the embedding's principal components, scaled to unit variance.

    Rows are normalised first, as a layer's norm does. A random rotation gives all columns similar
    size, because a row is stored in four bits. Rows are random if the file has no embedding.
    """
    found = _tensors(paths, ["token_embd.weight"]).get("token_embd.weight")
    if found is None or found.ndim != 2 or found.shape[0] < n_vocab or found.shape[1] < rank:
        return torch.randn(n_vocab, rank) * 0.3
    rows = torch.from_numpy(found[:n_vocab].astype(np.float32))
    rows = rows / rows.pow(2).mean(1, keepdim=True).sqrt().clamp(min=1e-6)
    rows = rows - rows.mean(0)
    _, vectors = torch.linalg.eigh(rows.T @ rows)
    turn, _ = torch.linalg.qr(torch.randn(rank, rank, generator=torch.Generator().manual_seed(0)))
    projected = rows @ vectors[:, -rank:] @ turn
    scaled: Tensor = projected / projected.std()
    return scaled.contiguous()
