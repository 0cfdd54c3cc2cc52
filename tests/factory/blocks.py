"""Draw random tensor data in ggml's block formats.

Every function returns raw bytes whose dequantised values have zero mean and a given standard
deviation. The mean must be zero: with a bias in the nibbles, all tokens choose the same experts.
We draw blocks directly instead of quantising floats. The gguf package cannot quantise Q4_K or
MXFP4, and drawing bytes is fast enough for models of several gigabytes.

Block layouts are those of ggml-common.h (block_q8_0, block_q4_0, block_q4_K, block_mxfp4).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from gguf import GGMLQuantizationType as GgmlType
from gguf.constants import GGML_QUANT_SIZES
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Root mean square of the values at a scale of one.
_Q8_0_RMS = math.sqrt((255**2 - 1) / 12)  # uniform -127..127
_Q4_0_RMS = math.sqrt((15**2 - 1) / 12)  # uniform -7..7
_Q4_K_RMS = math.sqrt((16**2 - 1) / 12)  # uniform 0..15 minus 7.5
_MXFP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # E2M1; the negative values are symmetric
_MXFP4_RMS = math.sqrt(sum(v * v for v in _MXFP4_VALUES) / len(_MXFP4_VALUES))


def block_size(ggml_type: GgmlType) -> tuple[int, int]:
    """Return values per block and bytes per block."""
    n_value, n_bytes = GGML_QUANT_SIZES[ggml_type]
    return n_value, n_bytes


def row_fits(ggml_type: GgmlType, n_value: int) -> bool:
    """Return whether a row of n_value values is a whole number of blocks."""
    return n_value % block_size(ggml_type)[0] == 0


def random_data(rng: np.random.Generator, ggml_type: GgmlType, n_value: int, std: float) -> Bytes:
    """Draw n_value random weights of the given type as a flat byte array.

    std is the standard deviation of the dequantised values. MXFP4 is within a factor of 1.5 of
    it, because its scales are powers of two. Raise ValueError if n_value is no whole number of
    blocks.
    """
    if ggml_type is GgmlType.F32:
        return _as_bytes(rng.standard_normal(n_value, dtype=np.float32) * np.float32(std))
    if ggml_type is GgmlType.F16:
        values = rng.standard_normal(n_value, dtype=np.float32) * np.float32(std)
        return _as_bytes(values.astype(np.float16))
    n_per_block, _ = block_size(ggml_type)
    if n_value % n_per_block:
        raise ValueError(f"{n_value} values are not a whole number of {ggml_type.name} blocks")
    return _DRAW[ggml_type](rng, n_value // n_per_block, std).reshape(-1)


def _as_bytes(values: NDArray[np.float32] | NDArray[np.float16]) -> Bytes:
    return values.view(np.uint8).reshape(-1)


def _scales(rng: np.random.Generator, n_block: int, mean: float) -> Bytes:
    """Return one float16 per block, within a quarter of the mean; shape (n_block, 2) bytes."""
    spread = rng.uniform(0.75, 1.25, size=(n_block, 1)) * mean
    return spread.astype(np.float16).view(np.uint8)


def _q8_0(rng: np.random.Generator, n_block: int, std: float) -> Bytes:
    quants = rng.integers(-127, 128, size=(n_block, 32), dtype=np.int8)
    return np.concatenate([_scales(rng, n_block, std / _Q8_0_RMS), quants.view(np.uint8)], axis=1)


def _nibbles_without_zero(rng: np.random.Generator, n_block: int) -> Bytes:
    """Return two nibbles of 1..15 per byte: nibble - 8 is symmetric; shape (n_block, 16)."""
    low = rng.integers(1, 16, size=(n_block, 16), dtype=np.uint8)
    high = rng.integers(1, 16, size=(n_block, 16), dtype=np.uint8)
    return np.bitwise_or(low, np.left_shift(high, np.uint8(4)))


def _q4_0(rng: np.random.Generator, n_block: int, std: float) -> Bytes:
    scales = _scales(rng, n_block, std / _Q4_0_RMS)
    return np.concatenate([scales, _nibbles_without_zero(rng, n_block)], axis=1)


def _q4_k(rng: np.random.Generator, n_block: int, std: float) -> Bytes:
    """Draw super-blocks of 256: value = d * scale * quant - dmin * min.

    A block has eight scales and mins of 6 bits. With min = scale and dmin = 7.5 d
    the value is d * scale * (quant - 7.5), which has mean zero.
    """
    scale = rng.integers(24, 64, size=(n_block, 8), dtype=np.uint8)
    mean_scale = math.sqrt(float(np.mean(np.arange(24, 64, dtype=np.float64) ** 2)))
    d = rng.uniform(0.75, 1.25, size=(n_block, 1)) * (std / _Q4_K_RMS / mean_scale)
    d = d.astype(np.float16).astype(np.float64)
    header = np.concatenate([d, 7.5 * d], axis=1).astype(np.float16).view(np.uint8)
    packed = np.empty((n_block, 12), dtype=np.uint8)
    first, last = scale[:, :4], scale[:, 4:]
    packed[:, 0:4] = first | ((last >> 4) << 6)
    packed[:, 4:8] = first | ((last >> 4) << 6)
    packed[:, 8:12] = (last & 0xF) | ((last & 0xF) << 4)
    quants = rng.integers(0, 256, size=(n_block, 128), dtype=np.uint8)
    return np.concatenate([header, packed, quants], axis=1)


def _mxfp4(rng: np.random.Generator, n_block: int, std: float) -> Bytes:
    """Draw blocks of 32: one E8M0 exponent byte (2 ** (byte - 127)) and 32 E2M1 nibbles."""
    exponent = round(math.log2(std / _MXFP4_RMS)) + 127
    exponents = np.full((n_block, 1), exponent, dtype=np.uint8)
    quants = rng.integers(0, 256, size=(n_block, 16), dtype=np.uint8)
    return np.concatenate([exponents, quants], axis=1)


_DRAW: dict[GgmlType, Callable[[np.random.Generator, int, float], Bytes]] = {
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.MXFP4: _mxfp4,
}
