"""Write tiny random vision parts (mmproj files) for tests."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

IMAGE_SIDE = 16
"""Pixels of a side after llama.cpp's scaling."""
PATCH_SIDE = 4
N_IMAGE_TOKEN = (IMAGE_SIDE // PATCH_SIDE) ** 2

_N_EMBD, _N_HEAD, _N_FF, _N_LAYER = 32, 2, 64, 2


def make_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of pixels of shape (height, width, 3)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(rows.tobytes())
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def make_mmproj(path: Path, n_embd: int, *, projector: str = "mlp", seed: int = 0) -> Path:
    """Write a vision part for a model that is n_embd wide, and return its path.

    projector "mlp": as of LLaVA, with N_IMAGE_TOKEN tokens per image. "gemma3": its tokens are
    computed without the causal mask, between two texts, and there are four times fewer.
    "qwen2vl_merger": their positions are a grid where the model has M-RoPE.
    """
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, "clip")
    writer.add_name("random vision part")
    writer.add_string("clip.projector_type", projector)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    for key, value in (
        ("embedding_length", _N_EMBD),
        ("feed_forward_length", _N_FF),
        ("block_count", _N_LAYER),
        ("projection_dim", n_embd),
        ("attention.head_count", _N_HEAD),
        ("image_size", IMAGE_SIDE),
        ("patch_size", PATCH_SIDE),
        ("projector.scale_factor", 2),
    ):
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def matrix(name: str, *shape: int) -> None:
        values = rng.standard_normal(shape) / np.sqrt(shape[-1])
        writer.add_tensor(name, values.astype(np.float32))

    def affine(name: str, n: int, mean: float = 0.0) -> None:
        writer.add_tensor(name, (mean + 0.1 * rng.standard_normal(n)).astype(np.float32))

    has_grid = projector == "qwen2vl_merger"
    matrix("v.patch_embd.weight", _N_EMBD, 3, PATCH_SIDE, PATCH_SIDE)
    if has_grid:
        matrix("v.patch_embd.weight.1", _N_EMBD, 3, PATCH_SIDE, PATCH_SIDE)
    else:
        affine("v.patch_embd.bias", _N_EMBD)
        matrix("v.position_embd.weight", N_IMAGE_TOKEN, _N_EMBD)
    for layer in range(_N_LAYER):
        block = f"v.blk.{layer}"
        for name in ("q", "k", "v", "out"):
            matrix(f"{block}.attn_{name}.weight", _N_EMBD, _N_EMBD)
            affine(f"{block}.attn_{name}.bias", _N_EMBD)
        for name in ("ln1", "ln2"):
            affine(f"{block}.{name}.weight", _N_EMBD, 1.0)
            affine(f"{block}.{name}.bias", _N_EMBD)
        matrix(f"{block}.ffn_up.weight", _N_FF, _N_EMBD)
        affine(f"{block}.ffn_up.bias", _N_FF)
        matrix(f"{block}.ffn_down.weight", _N_EMBD, _N_FF)
        affine(f"{block}.ffn_down.bias", _N_EMBD)
    affine("v.post_ln.weight", _N_EMBD, 1.0)
    affine("v.post_ln.bias", _N_EMBD)
    if projector == "gemma3":
        affine("mm.soft_emb_norm.weight", _N_EMBD, 1.0)
        matrix("mm.input_projection.weight", _N_EMBD, n_embd)
    else:
        n_in = 4 * _N_EMBD if has_grid else _N_EMBD
        matrix("mm.0.weight", n_embd, n_in)
        affine("mm.0.bias", n_embd)
        matrix("mm.2.weight", n_embd, n_embd)
        affine("mm.2.bias", n_embd)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
