"""What a model's own file gives to a predictor to begin with: its routers and its embedding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor


def _tensors(paths: Sequence[Path], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Tensors by name as float32 [rows, columns]; those that there are."""
    found = {}
    for path in paths:
        for tensor in gguf.GGUFReader(path).tensors:
            if tensor.name in names:
                found[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type)
    return found


def routers(paths: Sequence[Path], layers: Sequence[int]) -> Tensor | None:
    """[L, E, n_embd], or None where a layer's cannot be read."""
    names = [f"blk.{layer}.ffn_gate_inp.weight" for layer in layers]
    found = _tensors(paths, names)
    if len(found) < len(names) or len({found[name].shape for name in names}) > 1:
        return None
    return torch.from_numpy(np.stack([found[name] for name in names]).astype(np.float32))


def token_rows(paths: Sequence[Path], n_vocab: int, rank: int) -> Tensor:
    """[n_vocab, rank]: the embedding's directions of the largest variance, of about unit size.

    Normalised first, as a layer's norm would do. Turned in a drawn way, so that no column is much
    larger than the others: a row is kept in four bits. Random where there is no such tensor.
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
