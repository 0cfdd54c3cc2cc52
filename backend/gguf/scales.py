"""Finds NaN and infinite values in the data of a model's tensors.

llama.cpp checks the dense tensors while it loads them (engine/loading.py), packs/write.py checks
the experts that it writes, and not_finite_sentence finds the tensor to blame for logits that are
not finite.

A quantised block holds one or two floating-point scales, and integers, so it is finite if its
scales are. Their offsets are those of the block structs in ggml-common.h.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from backend.gguf.header import ModelFileError, quoted, tensor_words
from backend.gguf.tables import TENSOR_TYPES
from backend.text import Text, text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile, TensorInfo

_CHUNK_BYTES = 4 << 20
_BLAME_S = 3.0

# Byte offsets of the half-precision scales within a block.
_HALF_SCALES: dict[str, tuple[int, ...]] = {
    "F16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q8_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ3_XXS": (0,),
    "IQ1_S": (0,),
    "IQ4_NL": (0,),
    "IQ3_S": (0,),
    "IQ2_S": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "Q1_0": (0,),
    "Q2_0": (0,),
}


def bad_value(path: Path, tensor_name: str, block: int | None = None) -> ModelFileError:
    """Return the error for a tensor with a value that is not finite. block: counted from 0."""
    tensor = quoted(tensor_name)
    if block is None:
        return ModelFileError(path, text("model.bad_value", tensor=tensor))
    return ModelFileError(path, text("model.bad_value_in_block", tensor=tensor, block=block))


def not_finite_sentence(model: ModelFile, layer: int | None = None) -> Text:
    """Return the sentence for the user where a model's logits are not finite.

    layer: the first one whose output is not, if it is known.

    Reads the file for at most _BLAME_S, experts first, to name the damaged tensor.
    """
    experts = [t for tensors in model.expert_tensors.values() for t in tensors]
    reason: str = text("engine.not_finite_file")
    try:
        scan_scales(model, [*experts, *model.dense_tensors], _BLAME_S)
    except ModelFileError as error:
        reason = error.reason
    if layer is None:
        return text("engine.not_finite", reason=reason)
    return text("engine.not_finite_layer", layer=layer, reason=reason)


def scan_scales(
    model: ModelFile, tensors: Iterable[TensorInfo] | None = None, limit_s: float = math.inf
) -> int:
    """Read tensors (by default all) and refuse the first value that is not finite.

    Stop after limit_s. Return the number of bytes read. Raises ModelFileError, which names the
    tensor, for a NaN or an infinity, and for a file that cannot be read. Memory stays at a few MB.
    The pages read are dropped from the page cache where the system allows it.
    """
    n_bytes, end_s = 0, time.monotonic() + limit_s
    for tensor in model.tensors if tensors is None else tensors:
        path = model.paths[tensor.part]
        try:
            n_bytes += _scan(model, tensor, end_s)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ModelFileError(path, text("model.unreadable", reason=reason)) from error
    return n_bytes


def _scan(model: ModelFile, tensor: TensorInfo, end_s: float) -> int:
    path = model.paths[tensor.part]
    block_bytes = TENSOR_TYPES[tensor.type_id].n_bytes
    chunk = bytearray(math.ceil(_CHUNK_BYTES / block_bytes) * block_bytes)
    done = 0
    with path.open("rb", buffering=0) as file:
        file.seek(tensor.offset)
        while done < tensor.n_bytes and time.monotonic() < end_s:
            want = min(len(chunk), tensor.n_bytes - done)
            have = 0
            while have < want:
                n_read = file.readinto(memoryview(chunk)[have:want])
                if not n_read:
                    what = tensor_words(tensor.name)
                    raise ModelFileError(path, text("gguf.became_shorter", what=what))
                have += n_read
            blocks = np.frombuffer(chunk, np.uint8, count=want).reshape(-1, block_bytes)
            bad = not_finite(tensor.type_name, blocks)
            if bad.any():
                raise bad_value(path, tensor.name, done // block_bytes + int(np.argmax(bad)))
            done += want
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), tensor.offset, done, os.POSIX_FADV_DONTNEED)
    return done


def not_finite(type_name: str, blocks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which blocks hold a scale or value that is NaN or infinite.

    blocks: shape (n_block, block_bytes). The result has the shape (n_block,).
    """
    if type_name in _HALF_SCALES:
        # The exponent of a little-endian half is in its second byte; all ones mean NaN or infinity.
        exponents = blocks[:, [offset + 1 for offset in _HALF_SCALES[type_name]]] & 0x7C
        return np.asarray((exponents == 0x7C).any(axis=1))
    if type_name == "F64":
        return np.asarray(((blocks[:, 7] & 0x7F) == 0x7F) & (blocks[:, 6] >= 0xF0))
    if type_name in ("F32", "Q8_K"):
        return np.asarray(((blocks[:, 3] & 0x7F) == 0x7F) & (blocks[:, 2] >= 0x80))
    if type_name == "BF16":
        return np.asarray(((blocks[:, 1] & 0x7F) == 0x7F) & (blocks[:, 0] >= 0x80))
    if type_name == "IQ1_M":
        # The half is spread over the high nibbles of four 16-bit words; the last has its top bits.
        exponent = (blocks[:, 55] & 0x70) | ((blocks[:, 53] >> 4) & 0x0C)
        return np.asarray(exponent == 0x7C)
    if type_name == "MXFP4":
        return np.asarray(blocks[:, 0] == 0xFF)
    # Integers, and NVFP4, whose scales are finite in ggml for every bit pattern.
    return np.zeros(len(blocks), dtype=np.bool_)
