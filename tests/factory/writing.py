"""Write layouts to GGUF files: tiny models, one in a real model's geometry, and splits."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as GgmlType
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from .architectures import REQUIRED
from .blocks import block_size, random_data, row_fits
from .further import FURTHER
from .layout import Geometry, Layout, TensorSpec, Value
from .predicting import PREDICTIONS, add_prediction
from .published import PUBLISHED
from .recurrent import RECURRENT
from .vocabulary import CHAT_TEMPLATE, Vocabulary, tiny_vocabulary

_TABLE = {**REQUIRED, **FURTHER, **RECURRENT}

REQUIRED_ARCHITECTURES: tuple[str, ...] = tuple(REQUIRED)
"""`dense`, and the Mixture-of-Experts architectures that the cache must handle."""

ARCHITECTURES: tuple[str, ...] = tuple(_TABLE)
"""All names that make_tiny accepts."""

DENSE = ("dense", "qwen35")
"""Those without experts."""

CACHEABLE: tuple[str, ...] = tuple(a for a in ARCHITECTURES if a not in (*DENSE, "grovemoe"))
"""Architectures that the cache supports; grovemoe routes twice a layer."""

QUANTS: tuple[str, ...] = ("F16", "Q8_0", "Q4_0", "Q4_K", "MXFP4")
"""Types of the expert tensors."""

MADE = "OUTRIDER_TEST_MODELS"
"""This variable names a folder of one run of the tests. make_tiny() keeps there what it wrote."""

_SPREAD = {"matrix": 1.0, "expert": 1.0, "router": 2.0}  # times 1 / sqrt(row length)


def supported(arch: str, quant: str) -> bool:
    """Return whether make_tiny can write this architecture with experts of this type."""
    return arch in _TABLE and quant in QUANTS


def make_tiny(arch: str, quant: str, path: Path, *, seed: int = 0, **overrides: Value) -> Path:
    """Write a small random model that stock llama.cpp loads, and return its path.

    arch is one of ARCHITECTURES, quant (the type of the expert tensors) one of QUANTS; overrides
    are fields of Geometry, such as n_layer, n_expert, n_expert_used, fused or expert_scales. Equal
    arguments write equal bytes. Raise ValueError for an impossible combination.
    """
    if not supported(arch, quant):
        raise ValueError(f"there is no {arch} model with {quant} experts")
    vocabulary = tiny_vocabulary()
    layout = _tiny_layout(arch, quant, len(vocabulary.tokens), overrides)
    made = os.environ.get(MADE)
    if made is None or layout.g.n_table_row:  # a copy would fill the hole of the table
        _write(path, layout, vocabulary, GgmlType[quant], _dense_type(quant), seed)
        return path
    key = repr((arch, quant, seed, sorted(overrides.items())))
    kept = Path(made) / hashlib.sha256(key.encode()).hexdigest()
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=made) as folder:  # another process may write it, too
            whole = Path(folder) / "m.gguf"
            _write(whole, layout, vocabulary, GgmlType[quant], _dense_type(quant), seed)
            whole.replace(kept)
    shutil.copyfile(kept, path)
    return path


def can_predict(arch: str) -> bool:
    """Return whether the factory has a layer for multi-token prediction of an architecture."""
    return arch in PREDICTIONS or (arch in _TABLE and _TABLE[arch].can_predict)


def make_large(
    path: Path,
    *,
    n_layer: int = 12,
    seed: int = 0,
    quant: str = "Q4_0",
    embedding_shared: float = 0.5,
    is_repeated: bool = False,
    arch: str = "qwen3moe",
    n_nextn: int = 0,
) -> Path:
    """Write a model with the layers of Qwen3-30B-A3B: 128 experts of 768, 8 used, 2048 wide.

    Weights are random. Twelve layers in Q4_0 are 4.3 GB. Experts are drawn and written one at a
    time, so that the process stays below 100 MB for any file size.

    The embeddings' standard deviation of 3 keeps the routing varied through twelve layers. With 1,
    deeper layers send most tokens to the same few experts. Half of the variance is common to all
    tokens: random tokens then find 0.70 of their experts among the layer's last 24 used ones. A
    recorded trace of the real model has 0.72 (qwen.route.csv, decoding). Without a common part it
    is 0.22, as in incoherent text.

    is_repeated: all layers have the bytes of the first one's experts, in their own places of the
    file. Writing is then as fast as the drive, and takes 350 MB.

    arch: another architecture with layers of these sizes. n_nextn: of Geometry.
    """
    vocabulary = tiny_vocabulary()
    sizes = Geometry(
        n_layer=n_layer,
        n_nextn=n_nextn,
        n_embd=2048,
        n_head=32,
        n_head_kv=4,
        head_dim=128,
        n_ff=6144,
        n_ff_exp=768,
        n_expert=128,
        n_expert_used=8,
        n_ctx=4096,
        n_vocab=len(vocabulary.tokens),
        embedding_std=3.0,
        embedding_shared=embedding_shared,
    )
    layout = Layout(arch, sizes)
    _TABLE[arch].build(layout)
    _write(path, layout, vocabulary, GgmlType[quant], GgmlType.Q8_0, seed, is_repeated)
    return path


def make_published(path: Path, name: str, *, is_sparse: bool = False, **overrides: Value) -> Path:
    """Write a model of random weights in the sizes of a published one (PUBLISHED).

    All layers have the bytes of the first one's experts, as with is_repeated of make_large(), and
    embeddings are spread as there. is_sparse: all tensors are holes, for what reads the header
    only. overrides: fields of Geometry, such as n_layer.
    """
    arch, quant, sizes = PUBLISHED[name]
    spread: dict[str, Value] = {"embedding_std": 3.0, "embedding_shared": 0.5}
    layout = _layout(arch, {**spread, **sizes, **overrides})
    tiny = tiny_vocabulary()
    n_more = layout.g.n_vocab - len(tiny.tokens)
    vocabulary = dataclasses.replace(
        tiny,
        tokens=(*tiny.tokens, *(f"[{i}]" for i in range(n_more))),
        token_types=(*tiny.token_types, *[1] * n_more),
    )
    kinds = GgmlType[quant], GgmlType.Q8_0
    _write(path, layout, vocabulary, *kinds, 0, is_repeated=True, is_sparse=is_sparse)
    return path


def chain(path: Path, seed: int = 0) -> Path:
    """Let a model continue each ordinary token with one other, in a cycle through all of them.

    The output matrix gets for each token the embedding of the one before it. Experts are chosen as
    before, and the text repeats nothing for as long as the vocabulary is. Rounding does not change
    it, so that answers of different passes can be compared. Return the path.
    """
    tensors = {t.name: t for t in GGUFReader(path, "r+").tensors}
    embedding, output = tensors["token_embd.weight"], tensors["output.weight"]
    rows = dequantize(embedding.data, embedding.tensor_type)
    order = np.random.default_rng(seed).permutation(tiny_vocabulary().bos_id)
    chained = np.zeros_like(rows)
    chained[np.roll(order, -1)] = rows[order] / rows.std() / math.sqrt(rows.shape[1])
    output.data[:] = quantize(chained, output.tensor_type)
    output.data.flush()
    return path


def make_split(path: Path, parts: int) -> list[Path]:
    """Split a GGUF file into parts beside it, with the file names of llama.cpp's gguf-split.

    x.gguf becomes x-00001-of-0000N.gguf and so on; the original stays. The first part gets all
    metadata; every part has split.no, split.count and split.tensors.count. Raise ValueError if
    there are fewer tensors than parts.
    """
    reader = GGUFReader(path)
    tensors = reader.tensors
    if not 1 <= parts <= len(tensors):
        raise ValueError(f"{len(tensors)} tensors cannot fill {parts} parts")
    bounds = [round(i * len(tensors) / parts) for i in range(parts + 1)]
    paths = []
    for part in range(parts):
        out = path.with_name(f"{path.stem}-{part + 1:05d}-of-{parts:05d}.gguf")
        writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
        if part == 0:
            for key, value in reader.fields.items():
                if key.startswith("GGUF.") or key == "general.architecture":
                    continue
                sub_type = value.types[-1] if value.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(key, value.contents(), value.types[0], sub_type)
        else:
            writer.kv_data[0].pop("general.architecture")
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor in tensors[bounds[part] : bounds[part + 1]]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(out)
    return paths


def _tiny_layout(arch: str, quant: str, n_vocab: int, overrides: dict[str, Value]) -> Layout:
    entry = _TABLE[arch]
    sizes: dict[str, Value] = dict(entry.sizes)
    if block_size(GgmlType[quant])[0] > 32:  # K-quants: rows must be whole blocks of 256
        sizes |= {"n_embd": 256, "n_ff": 256, "n_ff_exp": 256, "n_ff_shexp": 256, "head_dim": 64}
    return _layout(arch, {"n_vocab": n_vocab, **sizes, **overrides})


def _layout(arch: str, sizes: dict[str, Value]) -> Layout:
    entry = _TABLE[arch]
    known = {f.name for f in dataclasses.fields(Geometry)}
    if unknown := set(sizes) - known:
        raise ValueError(f"a geometry has no {', '.join(sorted(unknown))}")
    if sizes.get("fused") and not entry.can_fuse:
        raise ValueError(f"llama.cpp does not load fused gate_up tensors for {arch}")
    if sizes.get("n_nextn") and not can_predict(arch):
        raise ValueError(f"the factory has no layer for multi-token prediction of {arch}")
    geometry = Geometry(**sizes)  # type: ignore[arg-type]
    layout = Layout(entry.gguf_name or arch, geometry)
    entry.build(layout)
    add_prediction(layout)
    return layout


def _dense_type(quant: str) -> GgmlType:
    return GgmlType.F16 if quant == "F16" else GgmlType.Q8_0


def _tensor_type(spec: TensorSpec, expert: GgmlType, dense: GgmlType) -> GgmlType:
    if spec.kind == "expert":
        if not row_fits(expert, spec.shape[0]):
            raise ValueError(f"rows of {spec.shape[0]} do not fit {expert.name}: {spec.name}")
        return expert
    if spec.kind in ("hole", "ids"):
        return GgmlType.F16 if spec.kind == "hole" else GgmlType.I32
    if spec.kind in ("matrix", "embedding"):
        return dense if row_fits(dense, spec.shape[0]) else GgmlType.F16
    return GgmlType.F32


def _tensor_data(
    rng: np.random.Generator, spec: TensorSpec, kind: GgmlType, geometry: Geometry
) -> NDArray[np.uint8]:
    """Return all bytes of a tensor that is not an expert tensor; shape (n_bytes,)."""
    n_value = math.prod(spec.shape)
    if spec.kind in ("norm", "bias", "decay"):
        noise = rng.standard_normal(n_value).astype(np.float32)
        if spec.kind == "decay":  # a negative rate per head
            values = -np.exp(noise)
        else:
            values = 0.1 * noise + (1.0 if spec.kind == "norm" else 0.0)
        return values.astype(np.float32).view(np.uint8)
    if spec.kind == "ids":
        drawn = rng.random((spec.shape[1], geometry.n_expert)).argsort(axis=1)
        return drawn[:, : spec.shape[0]].astype(np.int32).reshape(-1).view(np.uint8)
    if spec.kind == "embedding":
        if geometry.embedding_shared == 0:
            return random_data(rng, kind, n_value, geometry.embedding_std)
        return _embeddings(rng, spec, kind, geometry)
    return random_data(rng, kind, n_value, _SPREAD[spec.kind] / math.sqrt(spec.shape[0]))


def _embeddings(
    rng: np.random.Generator, spec: TensorSpec, kind: GgmlType, geometry: Geometry
) -> NDArray[np.uint8]:
    """Return rows of tokens with a common part, as bytes of shape (n_bytes,)."""
    n_embd, n_token = spec.shape[0], spec.shape[1]
    shared = geometry.embedding_shared
    rows = rng.standard_normal((n_token, n_embd), dtype=np.float32)  # changed in place: gigabytes
    rows *= math.sqrt(1 - shared)
    rows += math.sqrt(shared) * rng.standard_normal(n_embd, dtype=np.float32)
    rows *= geometry.embedding_std
    return quantize(rows, kind).reshape(-1)


def _write(
    path: Path,
    layout: Layout,
    vocabulary: Vocabulary,
    expert: GgmlType,
    dense: GgmlType,
    seed: int,
    is_repeated: bool = False,
    is_sparse: bool = False,
) -> None:
    """Write metadata, then each tensor when it is drawn. At most one expert is in memory.

    is_repeated: of expert tensors of one shape, the first is drawn, kept and written for all.
    is_sparse: all tensors are holes.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[Sequence[int], list[NDArray[np.uint8]]] = {}
    writer = GGUFWriter(path, layout.arch)
    writer.add_name(f"random {layout.arch}")
    writer.add_quantization_version(2)
    _add_keys(writer, layout.keys)
    _add_vocabulary(writer, vocabulary)
    types = [_tensor_type(spec, expert, dense) for spec in layout.tensors]
    for spec, kind in zip(layout.tensors, types, strict=True):
        n_per_block, n_bytes = block_size(kind)
        writer.add_tensor_info(
            spec.name,
            spec.shape[::-1],
            np.dtype(np.float32),
            math.prod(spec.shape) // n_per_block * n_bytes,
            raw_dtype=kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    alignment = writer.data_alignment
    with path.open("ab") as file:
        for spec, kind in zip(layout.tensors, types, strict=True):
            file.write(bytes(-file.tell() % alignment))
            if spec.kind == "hole" or is_sparse:
                n_per_block, n_bytes = block_size(kind)
                file.truncate(file.tell() + math.prod(spec.shape) // n_per_block * n_bytes)
                file.seek(0, os.SEEK_END)
            elif spec.kind == "expert":
                n_value = math.prod(spec.shape[:2])
                std = _SPREAD["expert"] / math.sqrt(spec.shape[0])
                kept = drawn.setdefault(spec.shape, [])
                for i in range(spec.shape[2]):
                    data = kept[i] if i < len(kept) else random_data(rng, kind, n_value, std)
                    if is_repeated and i == len(kept):
                        kept.append(data)
                    data.tofile(file)
            else:
                _tensor_data(rng, spec, kind, layout.g).tofile(file)
        file.write(bytes(-file.tell() % alignment))


def spoil(path: Path, tensor_name: str) -> Path:
    """Set the scale of the first block of each matrix of a Q8_0 tensor to NaN. Return the path."""
    tensor = next(t for t in GGUFReader(path).tensors if t.name == tensor_name)
    assert tensor.tensor_type == GgmlType.Q8_0
    n_matrix = int(math.prod(tensor.shape[2:]))
    with path.open("r+b") as file:
        for i in range(n_matrix):
            file.seek(int(tensor.data_offset) + i * int(tensor.n_bytes) // n_matrix)
            file.write(np.float16(np.nan).tobytes())
    return path


def _add_keys(writer: GGUFWriter, keys: dict[str, Value]) -> None:
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, tuple):
            writer.add_key_value(key, list(value), GGUFValueType.ARRAY, GGUFValueType.UINT64)
        else:
            _add_list(writer, key, value)


def _add_list(
    writer: GGUFWriter, key: str, values: Sequence[int] | Sequence[bool] | Sequence[float]
) -> None:
    sub_type = GGUFValueType.BOOL if isinstance(values[0], bool) else GGUFValueType.UINT32
    sub_type = GGUFValueType.FLOAT32 if isinstance(values[0], float) else sub_type
    writer.add_key_value(key, list(values), GGUFValueType.ARRAY, sub_type)


def _add_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.token_types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(vocabulary.bos_id)
    writer.add_eos_token_id(vocabulary.eos_id)
    writer.add_pad_token_id(vocabulary.pad_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
