"""Reads the outputs of a model's MoE layers from llama.cpp's graph."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
from equality import Cached
from factory import tiny_vocabulary
from layouts import cut, every_share
from numpy.typing import NDArray

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import read_model
from backend.llama import api as llama
from backend.llama import function_of

Rows = NDArray[np.float32]

_EVAL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_name_of = function_of("ggml_get_name", ctypes.c_char_p, ctypes.c_void_p)
_n_element = function_of("ggml_nelements", ctypes.c_int64, ctypes.c_void_p)
_n_row = function_of("ggml_nrows", ctypes.c_int64, ctypes.c_void_p)
_read = function_of(
    "ggml_backend_tensor_get", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
    ctypes.c_size_t,
)  # fmt: skip
_OUTPUT = re.compile(r"(?:ffn_moe_out|ffn_out)-(\d+)")
"""Some architectures give what the experts give another name; elsewhere it comes after them."""


class LayerOutputs:
    """A context that keeps the outputs of each layer's experts, with or without a patch."""

    def __init__(self, model: Any, n_thread: int, patch: Any = None) -> None:
        self._patch = patch
        self._inner = _EVAL(patch.callback) if patch else None
        self._callback = _EVAL(self._see)
        self._found: dict[int, Rows] = {}
        self._context = llama.Context(
            model,
            n_context=512,
            n_ubatch=128,
            n_thread=n_thread,
            callback=ctypes.cast(self._callback, ctypes.c_void_p).value,
            user_data=patch.user_data if patch else 0,
        )

    def of(self, n_token: int) -> dict[int, Rows]:
        """Return the outputs for random tokens, by llama.cpp's layer: (n_token, n_embd)."""
        self._found = {}
        self._context.forget_from(0)
        n_normal = len(tiny_vocabulary().tokens) - 3
        tokens = [int(t) for t in np.random.default_rng(n_token).integers(0, n_normal, n_token)]
        if self._patch is not None:
            self._patch.begin_pass(_native.Phase.prefill, tokens)
        assert self._context.decode(tokens, 0, all_logits=True) == 0
        assert self._patch is None or self._patch.end_pass(), self._patch.error
        return self._found

    def _see(self, node: int, ask: bool, user_data: int) -> bool:
        match = _OUTPUT.fullmatch(_name_of(node).decode())
        if match is None:
            return bool(self._inner(node, ask, user_data)) if self._inner else False
        if ask:
            # This node follows the layer's experts, so the patch does not need it.
            return True
        rows = np.empty(_n_element(node), dtype=np.float32)
        _read(node, rows.ctypes.data, 0, rows.nbytes)
        self._found.setdefault(int(match[1]), rows.reshape(_n_row(node), -1))
        return True

    def close(self) -> None:
        self._context.close()


def stock_outputs(path: Path, n_token: int) -> dict[int, Rows]:
    """Return the outputs of stock llama.cpp's layers for a prompt of random tokens."""
    model = loading.load_native(read_model(path))
    context = LayerOutputs(model, 1)
    found = context.of(n_token)
    context.close()
    model.close()
    return found


def errors_of_cuts(path: Path, n_token: int = 17) -> dict[float, float]:
    """Return, by share, the largest relative error of a row if one layer is cut there.

    Empty if the model's experts cannot be cut.
    """
    expected = stock_outputs(path, n_token)
    cached = Cached(read_model(path), n_thread=1)
    cached.setup(_native.Layout.per_layer([cached.n_expert] * cached.shape.n_layer))
    context = LayerOutputs(cached.cached.model, 1, cached.patch)
    found: dict[float, float] = {}
    n_slot = cached.shape.n_expert_used + 1
    for layer, number in enumerate(cached.patch.layers):
        for share in every_share(cached.shape, layer):
            cached.setup(cut(cached.shape, {layer: share}, n_slot, n_slot, n_slot))
            rows, stock = context.of(n_token)[number], expected[number]
            assert stock.shape == rows.shape and np.linalg.norm(stock) > 0
            errors = np.linalg.norm(rows - stock, axis=1) / np.linalg.norm(stock, axis=1)
            found[share] = max(found.get(share, 0.0), float(errors.max()))
    context.close()
    cached.close()
    return found
