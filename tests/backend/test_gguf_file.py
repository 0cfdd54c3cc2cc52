"""The GGUF reader agrees with the gguf package on good files and refuses every bad one."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import factory
import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from processes import NO_FILE

from backend.cli import main
from backend.gguf import header as gguf_header
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import (
    ArraySummary,
    ModelFile,
    ModelFileError,
    read_model,
    require_distinct_tokens,
)
from backend.gguf.scales import not_finite, scan_scales
from backend.gguf.tables import ARCHITECTURES, DIFFUSION, TENSOR_TYPES

U8, U16, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 5, 4, 6, 7, 8, 9, 10
Q8_0 = 8


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def u16(value: int) -> bytes:
    return struct.pack("<H", value)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def f32(value: float) -> bytes:
    return struct.pack("<f", value)


def array(item_type: int, count: int, items: bytes = b"") -> bytes:
    return u32(item_type) + u64(count) + items


@dataclass
class Tensor:
    """A tensor of a Builder. dims: in ggml's order. offset: None places it after the last one."""

    name: str | bytes
    dims: tuple[int, ...]
    type_id: int = 0
    offset: int | None = None
    n_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.n_bytes:
            kind = TENSOR_TYPES.get(self.type_id, TENSOR_TYPES[0])
            n_value = int(np.prod([min(d, 1 << 12) for d in self.dims]))
            self.n_bytes = n_value // kind.n_value * kind.n_bytes


@dataclass
class Builder:
    """Writes a GGUF file field by field, well-formed or not."""

    keys: dict[str, tuple[int, bytes]] = field(
        default_factory=lambda: {
            "general.architecture": (STRING, text("llama")),
            "llama.block_count": (U32, u32(1)),
            "llama.context_length": (U32, u32(128)),
            "llama.expert_count": (U32, u32(2)),
            "llama.expert_used_count": (U32, u32(1)),
        }
    )
    extra_keys: list[tuple[str | bytes, int, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(
        default_factory=lambda: [
            Tensor("token_embd.weight", (4, 3)),
            Tensor("blk.0.ffn_gate_exps.weight", (32, 2, 2), Q8_0),
            Tensor("blk.0.ffn_up_exps.weight", (32, 2, 2), Q8_0),
            Tensor("blk.0.ffn_down_exps.weight", (32, 2, 2), Q8_0),
        ]
    )
    magic: bytes = b"GGUF"
    version: bytes = u32(3)
    n_tensor: int | None = None
    n_key: int | None = None
    alignment: int = 32
    boundaries: list[int] = field(default_factory=list)
    header_bytes: int = 0

    def build(self) -> bytes:
        keys = [(k, t, v) for k, (t, v) in self.keys.items()] + self.extra_keys
        n_tensor = len(self.tensors) if self.n_tensor is None else self.n_tensor
        n_key = len(keys) if self.n_key is None else self.n_key
        fields = [self.magic, self.version, u64(n_tensor), u64(n_key)]
        for key, value_type, payload in keys:
            raw = key.encode() if isinstance(key, str) else key
            fields += [u64(len(raw)), raw, u32(value_type), payload]
        offset = 0
        for tensor in self.tensors:
            raw = tensor.name.encode() if isinstance(tensor.name, str) else tensor.name
            fields += [u64(len(raw)), raw, u32(len(tensor.dims)), *map(u64, tensor.dims)]
            fields.append(u32(tensor.type_id))
            fields.append(u64(offset if tensor.offset is None else tensor.offset))
            offset += -(-tensor.n_bytes // self.alignment) * self.alignment
        self.boundaries = list(np.cumsum([len(f) for f in fields]))
        header = b"".join(fields)
        self.header_bytes = len(header)
        data = b"".join(bytes(t.n_bytes) + bytes(-t.n_bytes % self.alignment) for t in self.tensors)
        return header + bytes(-len(header) % self.alignment) + data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def refusal(path: Path) -> str:
    """Return the sentence that refuses a file."""
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    sentence = str(caught.value)
    assert sentence.startswith(caught.value.path.name + " cannot be used: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert isinstance(caught.value, ValueError)
    return sentence


# Good files


@pytest.mark.parametrize(
    ("arch", "quant"),
    [(a, factory.QUANTS[i % len(factory.QUANTS)]) for i, a in enumerate(factory.ARCHITECTURES)],
)
def test_it_agrees_with_the_gguf_package(arch: str, quant: str, tmp_path: Path) -> None:
    """The keys and tensors are the architecture's, and the sizes the type's: not of the pair."""
    path = factory.make_tiny(arch, quant, tmp_path / "m.gguf")
    model, reader = read_model(path), gguf.GGUFReader(path)
    assert [
        (t.name, t.shape[: t.n_dimension], t.type_id, t.type_name, t.offset, t.n_bytes, t.part)
        for t in model.tensors
    ] == [
        (
            t.name,
            tuple(int(n) for n in t.shape),
            int(t.tensor_type),
            t.tensor_type.name,
            int(t.data_offset),
            int(t.n_bytes),
            0,
        )
        for t in reader.tensors
    ]
    for key, value in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        contents = value.contents()
        assert model.metadata[key] == (tuple(contents) if isinstance(contents, list) else contents)
    assert model.file_size_bytes == path.stat().st_size
    known_bytes = model.dense_bytes + model.expert_bytes_total + model.nextn_bytes
    assert known_bytes == sum(t.n_bytes for t in model.tensors)
    assert model.paths == (path,)
    assert scan_scales(model) == sum(t.n_bytes for t in model.tensors)


def test_what_a_model_says_of_itself(tmp_path: Path) -> None:
    path = factory.make_tiny("deepseek2", "Q4_0", tmp_path / "m.gguf")
    model = read_model(path)
    assert (model.architecture, model.n_layer, model.n_expert) == ("deepseek2", 3, 16)
    assert (model.n_expert_used, model.n_expert_used_by_layer) == (4, (4, 4, 4))
    assert (model.context_length, model.version, model.name) == (1024, 3, "random deepseek2")
    assert model.chat_template == factory.CHAT_TEMPLATE
    assert model.key("expert_shared_count") == 2
    assert model.key("nothing", 7) == 7
    assert model.is_moe
    assert model.n_moe_layer == 2
    assert sorted(model.expert_tensors) == [1, 2]
    assert [t.name for t in model.expert_tensors[1]] == [
        f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up", "down")
    ]
    one_expert = 3 * 64 * 64 // 32 * 18
    assert model.expert_bytes_per_layer() == {1: one_expert, 2: one_expert}
    assert model.expert_bytes_total == 2 * 16 * one_expert
    assert {t.matrix_bytes * 3 for t in model.expert_tensors[2]} == {one_expert}


def test_a_dense_model_has_no_experts(tmp_path: Path) -> None:
    model = read_model(factory.make_tiny("dense", "Q4_0", tmp_path / "m.gguf"))
    assert not model.is_moe
    assert (model.n_expert, model.n_expert_used, model.n_moe_layer) == (0, 0, 0)
    assert (model.expert_bytes_total, model.expert_bytes_per_layer()) == (0, {})
    assert model.dense_bytes == sum(t.n_bytes for t in model.tensors)


@pytest.mark.parametrize("arch", ["gemma4", "cohere2moe"])
def test_fused_experts_are_found(arch: str, tmp_path: Path) -> None:
    model = read_model(factory.make_tiny(arch, "Q8_0", tmp_path / "m.gguf"))
    for tensors in model.expert_tensors.values():
        assert [t.name.split(".")[2] for t in tensors] == ["ffn_gate_up_exps", "ffn_down_exps"]


def test_layers_for_multi_token_prediction_are_left_out(tmp_path: Path) -> None:
    builder = Builder()
    builder.keys["llama.block_count"] = (U32, u32(2))
    builder.keys["llama.nextn_predict_layers"] = (U32, u32(1))
    builder.tensors.append(Tensor("blk.1.ffn_up_exps.weight", (32, 2, 2), Q8_0))
    model = read_model(builder.write(tmp_path / "m.gguf"))
    assert (model.n_layer, model.n_layer_nextn, model.n_moe_layer) == (1, 1, 1)
    assert model.nextn_bytes == 4 * 34
    assert model.dense_bytes == 4 * 3 * 4


def test_experts_used_may_differ_by_layer(tmp_path: Path) -> None:
    builder = Builder()
    builder.keys["llama.block_count"] = (U32, u32(3))
    builder.keys["llama.expert_used_count"] = (ARRAY, array(U32, 3, u32(1) + u32(0) + u32(2)))
    model = read_model(builder.write(tmp_path / "m.gguf"))
    assert model.n_expert_used_by_layer == (1, 0, 2)
    assert list(model.expert_tensors) == [0]
    assert model.n_expert_used == 1  # the layer of two has no experts


def test_a_large_vocabulary_is_counted_and_not_kept(tmp_path: Path) -> None:
    builder = Builder()
    words = b"".join(text(f"token{i}") for i in range(150_000))
    builder.extra_keys = [
        ("tokenizer.ggml.tokens", ARRAY, array(STRING, 150_000, words)),
        ("tokenizer.ggml.scores", ARRAY, array(F32, 150_000, bytes(600_000))),
        ("tokenizer.ggml.eos_token_id", U32, u32(7)),
    ]
    model = read_model(builder.write(tmp_path / "m.gguf"))
    assert model.metadata["tokenizer.ggml.tokens"] == ArraySummary("string", 150_000)
    assert model.metadata["tokenizer.ggml.scores"] == ArraySummary("float32", 150_000)
    assert model.metadata["tokenizer.ggml.eos_token_id"] == 7


@pytest.mark.parametrize("at", [(1 << 20) - 4, 1 << 20, (1 << 20) + 9, (2 << 20) - 1])
def test_strings_may_cross_the_reader_s_buffer(at: int, tmp_path: Path) -> None:
    long = text(b"x" * at)
    words = long + b"".join(text(f"{i}") for i in range(5000))
    builder = Builder()
    builder.extra_keys = [
        ("a", ARRAY, array(STRING, 5001, words)),
        ("b", STRING, text("y" * at)),
        ("c", U8, b"\x09"),
    ]
    model = read_model(builder.write(tmp_path / "m.gguf"))
    assert model.metadata["a"] == ArraySummary("string", 5001)
    assert model.metadata["b"] == "y" * at
    assert model.metadata["c"] == 9


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_versions_and_alignments(version: int, alignment: int, tmp_path: Path) -> None:
    builder = Builder(version=u32(version), alignment=alignment)
    builder.keys["general.alignment"] = (U32, u32(alignment))
    model = read_model(builder.write(tmp_path / "m.gguf"))
    assert model.version == version
    assert all(t.offset % alignment == 0 for t in model.tensors)


def test_the_last_padding_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = Builder().build()
    n_padding = -(4 * 34) % 32
    path.write_bytes(whole[:-n_padding])
    assert len(read_model(path).tensors) == 4
    path.write_bytes(whole[: -n_padding - 1])
    assert "incomplete" in refusal(path)


@pytest.mark.parametrize(
    "name", ["Модель 模型.gguf", "a b'c\".gguf", "é" * 120 + ".gguf", "no ending", "-x.gguf"]
)
def test_file_names(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "папка" / ("d" * 200) / ("长" * 60)
    folder.mkdir(parents=True)
    path = Builder().write(folder / name)
    assert read_model(path).path == path
    if os.name == "posix":  # links need a privilege on Windows
        (folder / "link").symlink_to(path)
        assert len(read_model(folder / "link").tensors) == 4
    path.write_bytes(b"GGU")
    assert refusal(path).startswith(name)


def test_the_fingerprint_follows_headers_and_sizes(tmp_path: Path) -> None:
    def print_of(seed: int, **sizes: int) -> str:
        path = factory.make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", seed=seed, **sizes)
        return read_model(path).fingerprint

    assert len(print_of(0)) == 64
    assert print_of(0) == print_of(1)  # the data is not part of it
    assert print_of(0) != print_of(0, n_ctx=2048)
    path = tmp_path / "m.gguf"
    before = read_model(path).fingerprint
    path.write_bytes(path.read_bytes() + bytes(32))
    assert read_model(path).fingerprint != before


# Bad files


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    builder, path = Builder(), tmp_path / "m.gguf"
    whole = builder.build()
    end = len(whole) - (-(4 * 34) % 32)
    for n_bytes in range(end):
        path.write_bytes(whole[:n_bytes])
        sentence = refusal(path)
        told = ("truncated", "incomplete", "more than the file has left")
        assert any(word in sentence for word in told) == (n_bytes >= 4), (n_bytes, sentence)


def test_truncation_of_a_real_header_at_every_field(tmp_path: Path) -> None:
    source = factory.make_tiny("glm4moe", "Q4_0", tmp_path / "whole.gguf", n_layer=2)
    reader, whole = gguf.GGUFReader(source), source.read_bytes()
    ends = {t.field.offset + sum(p.nbytes for p in t.field.parts) for t in reader.tensors}
    for value in reader.fields.values():
        at = value.offset
        for part in value.parts[:8]:
            at += part.nbytes
            ends.add(at)
    path = tmp_path / "m.gguf"
    for end in sorted(ends):
        for n_bytes in {end - 1, end, end + 1}:
            path.write_bytes(whole[:n_bytes])
            refusal(path)


def with_key(name: str | bytes, value_type: int, payload: bytes) -> Callable[[Builder], None]:
    def change(builder: Builder) -> None:
        builder.extra_keys.append((name, value_type, payload))

    return change


def changed_key(name: str, value_type: int, payload: bytes) -> Callable[[Builder], None]:
    def change(builder: Builder) -> None:
        builder.keys[name] = (value_type, payload)

    return change


def without_key(name: str) -> Callable[[Builder], None]:
    def change(builder: Builder) -> None:
        del builder.keys[name]

    return change


def with_tensor(*arguments: object, at: int | None = None) -> Callable[[Builder], None]:
    def change(builder: Builder) -> None:
        place = len(builder.tensors) if at is None else at
        builder.tensors.insert(place, Tensor(*arguments))  # type: ignore[arg-type]

    return change


def changed(**values: object) -> Callable[[Builder], None]:
    def change(builder: Builder) -> None:
        for name, value in values.items():
            setattr(builder, name, value)

    return change


BIG = (1 << 64) - 1
BAD: dict[str, tuple[Callable[[Builder], None], str]] = {
    "magic": (changed(magic=b"GGML"), "not a GGUF file"),
    "version 0": (changed(version=u32(0)), "version is 0"),
    "version 1": (changed(version=u32(1)), "version is 1"),
    "version 4": (changed(version=u32(4)), "version is 4"),
    "big-endian": (changed(version=struct.pack(">I", 3)), "big-endian"),
    "many tensors": (changed(n_tensor=BIG), "number of tensors is"),
    "more tensors than fit": (changed(n_tensor=60_000), "too short for that"),
    "many keys": (changed(n_key=1 << 40), "number of metadata keys is"),
    "more keys than fit": (changed(n_key=60_000), "too short for that"),
    "one tensor too many": (changed(n_tensor=5), "truncated|tensor 5"),
    "huge key name": (with_key("k", STRING, u64(1 << 30)), "'k' claims 1073741824 bytes"),
    "wrapping string": (with_key("k", STRING, u64(BIG)), "claims 18446744073709551615 bytes"),
    "huge array": (with_key("k", ARRAY, array(F32, 1 << 62)), "claims 4611686018427387904 items"),
    "huge string array": (with_key("k", ARRAY, array(STRING, 1 << 61)), "items, more than"),
    "array of arrays": (with_key("k", ARRAY, array(ARRAY, 1)), "array of arrays"),
    "array of unknown": (with_key("k", ARRAY, array(77, 0)), "unknown value type 77"),
    "unknown value type": (with_key("k", 13, bytes(8)), "unknown value type 13"),
    "empty key": (with_key("", U8, b"\x01"), "metadata key 6 is empty"),
    "key not UTF-8": (with_key(b"\xff\xfe", U8, b"\x01"), "not valid UTF-8"),
    "duplicate key": (
        with_key("llama.block_count", U32, u32(1)),
        "'llama.block_count' appears twi",
    ),
    "alignment 0": (with_key("general.alignment", U32, u32(0)), "general.alignment is 0"),
    "alignment 48": (with_key("general.alignment", U32, u32(48)), "general.alignment is 48"),
    "alignment 4": (with_key("general.alignment", U32, u32(4)), "general.alignment is 4"),
    "alignment 2^31": (with_key("general.alignment", U32, u32(1 << 31)), "is not a power of two"),
    "alignment type": (with_key("general.alignment", U64, u64(32)), "unsigned 32-bit"),
    "no dimensions": (with_tensor("t", ()), "'t' has 0 dimensions"),
    "five dimensions": (with_tensor("t", (1,) * 5), "'t' has 5 dimensions"),
    "2^32 - 1 dimensions": (
        with_key("k", U8, b"\x01" + b"\0" * 4),
        "cannot be used",  # shifts everything behind it
    ),
    "zero dimension": (with_tensor("t", (4, 0)), "dimension of zero"),
    "negative dimension": (with_tensor("t", (BIG,)), "overflow"),
    "overflowing product": (with_tensor("t", (1 << 32, 1 << 32), 0, None, 32), "overflow"),
    "product that wraps to a small one": (
        with_tensor("t", (1 << 16, 1 << 16, 1 << 16, 1 << 16), 0, None, 32),
        "overflow",
    ),
    "size in bytes that wraps": (with_tensor("t", (1 << 62,)), "overflow"),
    "large but possible": (with_tensor("t", (1 << 40,)), "incomplete"),
    "rows that are not whole blocks": (with_tensor("t", (33,), Q8_0), "whole Q8_0 blocks of 32"),
    "unknown tensor type": (with_tensor("t", (32,), 43), "unknown tensor type 43"),
    "tensor type that ggml gave up": (with_tensor("t", (32,), 4), "unknown tensor type 4"),
    "negative tensor type": (with_tensor("t", (32,), (1 << 32) - 1), "unknown tensor type"),
    "offset past the end": (with_tensor("t", (32,), 0, 1 << 20), "incomplete"),
    "offset that wraps": (with_tensor("t", (32,), 0, BIG - 64), "incomplete"),
    "overlapping tensors": (with_tensor("t", (32,), 0, 0), "overlaps the one before"),
    "gap between tensors": (with_tensor("t", (8,), 0, 96, at=1), "leaves a gap before"),
    "duplicate tensor": (with_tensor("token_embd.weight", (4,)), "appears twice"),
    "empty tensor name": (with_tensor("", (4,)), "has 0 bytes"),
    "long tensor name": (with_tensor("t" * 64, (4,)), "has 64 bytes"),
    "tensor name not UTF-8": (with_tensor(b"\xc0", (4,)), "not valid UTF-8"),
    "no tensors": (changed(tensors=[]), "no tensors"),
    "no architecture": (without_key("general.architecture"), "general.architecture is missing"),
    "architecture type": (changed_key("general.architecture", U32, u32(1)), "is not a string"),
    "unknown architecture": (
        changed_key("general.architecture", STRING, text("elephant\n")),
        r"architecture 'elephant\\n' is not known",
    ),
    "no block_count": (without_key("llama.block_count"), "llama.block_count is missing"),
    "no layers": (changed_key("llama.block_count", U32, u32(0)), "llama.block_count is 0"),
    "513 layers": (changed_key("llama.block_count", U32, u32(513)), "llama.block_count is 513"),
    "block_count type": (changed_key("llama.block_count", BOOL, b"\x01"), "not a whole number"),
    "block_count string": (changed_key("llama.block_count", STRING, text("1")), "not a whole"),
    "no context_length": (without_key("llama.context_length"), "llama.context_length is missing"),
    "context_length 0": (changed_key("llama.context_length", U32, u32(0)), "context_length is 0"),
    "context_length -1": (
        changed_key("llama.context_length", I32, struct.pack("<i", -1)),
        "context_length is -1",
    ),
    "all layers are for prediction": (
        with_key("llama.nextn_predict_layers", U32, u32(1)),
        "nextn_predict_layers is 1",
    ),
    "1025 experts": (changed_key("llama.expert_count", U32, u32(1025)), "expert_count is 1025"),
    "more used than there are": (
        changed_key("llama.expert_used_count", U32, u32(3)),
        "expert_used_count is 3, more than expert_count, which is 2",
    ),
    "none used": (changed_key("llama.expert_used_count", U32, u32(0)), "missing or zero"),
    "used is missing": (without_key("llama.expert_used_count"), "missing or zero"),
    "used but none there": (without_key("llama.expert_count"), "expert_count, which is 0"),
    "used array of another length": (
        changed_key("llama.expert_used_count", ARRAY, array(U32, 2, bytes(8))),
        "2 items for 1 layers",
    ),
    "used array with too many": (
        changed_key("llama.expert_used_count", ARRAY, array(U32, 1, u32(3))),
        "expert_used_count is 3",
    ),
    "as many groups as experts": (
        with_key("llama.expert_group_count", U32, u32(2)),
        "expert_group_count is 2",
    ),
    "rope.freq_base 0": (with_key("llama.rope.freq_base", F32, f32(0)), "rope.freq_base is 0"),
    "weights scale -inf": (
        with_key("llama.expert_weights_scale", F32, f32(-math.inf)),
        "expert_weights_scale is -inf",
    ),
    "NaN in an array": (
        with_key("llama.swiglu_clamp_exp", ARRAY, array(F32, 2, f32(1) + f32(math.nan))),
        "swiglu_clamp_exp is nan",
    ),
    "negative epsilon": (
        with_key("llama.attention.layer_norm_rms_epsilon", F32, f32(-1e-5)),
        "attention.layer_norm_rms_epsilon is -1e-05",
    ),
    "expert tensor of another count": (
        changed_key("llama.expert_count", U32, u32(4)),
        "holds 2 experts, but expert_count is 4",
    ),
    "expert tensor of two dimensions": (
        with_tensor("blk.0.ffn_gate_up_exps.weight", (32, 2), Q8_0),
        "2 dimensions instead of 3",
    ),
    "integers as weights": (with_tensor("t", (32, 2), 24), "'t' is of the type I8, with which"),
    "whole numbers as weights": (with_tensor("t", (32, 2), 26), "'t' is of the type I32"),
    "quantised norm": (with_tensor("t", (32,), Q8_0), "'t' is of the type Q8_0, with which"),
    "layer beyond the last": (with_tensor("blk.1.attn_q.weight", (4,)), "beyond the 1 layers"),
    "split.no type": (with_key("split.count", U32, u32(2)), "split.count is not of the type"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(name: str, tmp_path: Path) -> None:
    change, expected = BAD[name]
    builder = Builder()
    change(builder)
    path = builder.write(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match=expected):
        read_model(path)
    refusal(path)


def test_expert_groups(tmp_path: Path) -> None:
    def groups(n_group: int, n_used: int | None) -> Path:
        builder = Builder()
        builder.keys["llama.expert_count"] = (U32, u32(6))
        builder.keys["llama.expert_group_count"] = (U32, u32(n_group))
        if n_used is not None:
            builder.keys["llama.expert_group_used_count"] = (U32, u32(n_used))
        builder.tensors = [Tensor("blk.0.ffn_up_exps.weight", (32, 2, 6), Q8_0)]
        return builder.write(tmp_path / "m.gguf")

    assert read_model(groups(3, 2)).n_expert == 6
    assert read_model(groups(1, None)).n_expert == 6
    assert "no divisor" in refusal(groups(4, 2))
    assert "expert_group_used_count is missing" in refusal(groups(3, None))
    assert "expert_group_used_count is 3" in refusal(groups(3, 3))
    assert "expert_group_used_count is 0" in refusal(groups(3, 0))


@pytest.mark.parametrize(
    ("arch", "least", "key"),
    [
        ("nemotron_h_moe", 3, "attention.head_count_kv"),
        ("lfm2moe", 2, "attention.head_count_kv"),
        ("qwen3next", 2, "full_attention_interval"),
        ("llama4", 4, "attention.sliding_window_pattern"),
    ],
)
def test_a_model_without_attention_is_refused(
    arch: str, least: int, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    factory.make_tiny(arch, "Q8_0", path, n_layer=least)
    assert read_model(path).n_layer == least
    factory.make_tiny(arch, "Q8_0", path, n_layer=least - 1)
    wanted = f"{arch}.{key} gives none of the {least - 1} layers attention"
    assert wanted in refusal(path)


def change_number(path: Path, key: str, value: int) -> None:
    """Replace the value of a key of the type U32."""
    data = path.read_bytes()
    at = data.index(text(key)) + len(text(key))
    assert data[at : at + 4] == u32(U32)
    path.write_bytes(data[: at + 4] + u32(value) + data[at + 8 :])


@pytest.mark.parametrize(
    ("arch", "key", "value", "said"),
    [
        ("dots1", "rope.dimension_count", 8, "is 8, but has to be {head}"),
        ("llama4", "rope.dimension_count", 0, "is 0, but has to be {head}"),
        ("smallthinker", "attention.value_length", 4096, "is 4096, but has to be {head}"),
        ("qwen3moe", "attention.value_length", 8, "is 8, but has to be {head}"),
        ("arctic", "attention.head_count", 4096, "4096 heads of {head} values do not make"),
        ("gemma4", "rope.dimension_count", 0, "is 0, and has to be more than 0"),
        ("granitemoe", "rope.dimension_count", 0, "is 0, and has to be more than 0"),
        ("deepseek4", "attention.indexer.key_length", 4, "is 4, but positions turn 8 values"),
        ("deepseek4", "attention.indexer.key_length", 32, "is 32, and llama.cpp cannot rotate"),
        ("deepseek32", "attention.indexer.key_length", 192, "is 192, and llama.cpp cannot rotate"),
        ("glm-dsa", "attention.indexer.key_length", 8, "is 8, but positions turn 16 values"),
    ],
)
def test_heads_that_llama_cpp_asserts_against(
    arch: str, key: str, value: int, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    factory.make_tiny(arch, "Q8_0", path, n_layer=4)
    head = read_model(path).metadata.get(f"{arch}.attention.key_length")
    change_number(path, f"{arch}.{key}", value)
    assert said.format(head=head) in refusal(path) and f"{arch}.{key}" in refusal(path)


def test_an_architecture_that_turns_parts_of_heads_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    factory.make_tiny("glm4moe", "Q8_0", path)
    change_number(path, "glm4moe.rope.dimension_count", 4)
    assert read_model(path).n_expert


def test_keys_of_an_indexer_that_llama_cpp_rotates_are_not_refused(tmp_path: Path) -> None:
    """deepseek4 rotates parts of a key, and has no indexer without layers for one."""
    path = tmp_path / "m.gguf"
    factory.make_tiny("deepseek4", "Q8_0", path)
    change_number(path, "deepseek4.attention.indexer.key_length", 192)
    assert read_model(path).n_expert
    factory.make_tiny("deepseek4", "Q8_0", path, n_layer=1)
    change_number(path, "deepseek4.attention.indexer.key_length", 32)
    assert read_model(path).n_expert


def test_a_model_without_its_windows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    factory.make_tiny("cohere2moe", "Q8_0", path, n_layer=2)
    assert read_model(path).n_layer == 2
    factory.make_tiny("cohere2moe", "Q8_0", path, n_layer=1)
    assert "sliding_window_pattern gives none of the 1 layers a window" in refusal(path)
    cases = {
        (16, None): False,
        (16, (ARRAY, array(BOOL, 1, b"\0"))): False,
        (16, (ARRAY, array(BOOL, 1, b"\1"))): True,
        (16, (U32, u32(0))): True,
        (16, (U32, u32(1))): False,
        (0, None): True,
        (None, None): True,
    }
    for (window, pattern), is_fine in cases.items():
        builder = Builder()
        builder.keys = {
            key.replace("llama.", "smallthinker."): value for key, value in builder.keys.items()
        }
        builder.keys["general.architecture"] = (STRING, text("smallthinker"))
        if window is not None:
            builder.keys["smallthinker.attention.sliding_window"] = (U32, u32(window))
        if pattern is not None:
            builder.keys["smallthinker.attention.sliding_window_pattern"] = pattern
        path = builder.write(tmp_path / "n.gguf")
        if is_fine:
            assert read_model(path).n_layer == 1
        else:
            assert "gives none of the 1 layers a window" in refusal(path)


def test_the_interval_of_layers_with_attention(tmp_path: Path) -> None:
    def hybrid(name: str, value_type: int, payload: bytes) -> Path:
        builder = Builder()
        builder.keys = {
            key.replace("llama.", "qwen35moe."): value for key, value in builder.keys.items()
        }
        builder.keys["general.architecture"] = (STRING, text("qwen35moe"))
        builder.keys[f"qwen35moe.{name}"] = (value_type, payload)
        return builder.write(tmp_path / "m.gguf")

    interval, layers = "full_attention_interval", "attention.recurrent_layers"
    assert read_model(hybrid(interval, U32, u32(1))).n_layer == 1
    assert f"{interval} is 0" in refusal(hybrid(interval, U32, u32(0)))  # llama.cpp divides by it
    assert read_model(hybrid(layers, ARRAY, array(BOOL, 1, b"\0"))).n_layer == 1
    assert f"{layers} gives none" in refusal(hybrid(layers, ARRAY, array(BOOL, 1, b"\1")))


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    assert "it is empty" in refusal(tmp_path / "empty.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert "it is a folder" in refusal(tmp_path / "folder.gguf")
    assert NO_FILE in refusal(tmp_path / "missing.gguf")
    assert "name is not valid" in refusal(tmp_path / "zero\0.gguf")
    assert "cannot be read" in refusal(tmp_path / ("x" * 300))
    if os.name == "posix":
        assert "File name too long" in refusal(tmp_path / ("x" * 300))
        os.mkfifo(tmp_path / "pipe.gguf")
        assert "not a regular file" in refusal(tmp_path / "pipe.gguf")
        assert "not a regular file" in refusal(Path("/dev/zero"))
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        assert "cannot be read" in refusal(tmp_path / "loop")


def test_a_file_that_shrinks_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Builder().write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:100])
    larger = FileIdentity.of(path)._replace(size_bytes=100_000)
    monkeypatch.setattr(FileIdentity, "of", lambda _file: larger)
    assert "became shorter while it was read" in refusal(path)


BOMBS: dict[str, tuple[Callable[[Builder], None], str]] = {
    "string of 1 GiB": (with_key("k", STRING, u64(1 << 30)), "are allowed"),
    "string of 4 GiB in an array": (
        with_key("k", ARRAY, array(STRING, 1, u64(1 << 32))),
        "are allowed",
    ),
    "2^28 empty strings": (with_key("k", ARRAY, array(STRING, 1 << 28)), "268435456 strings"),
    "2^32 floats": (with_key("k", ARRAY, array(F32, 1 << 32)), "header is longer"),
    "65,536 keys": (changed(n_key=65_536, keys={}, tensors=[]), "key 1 is empty"),
    "65,536 tensors": (changed(n_tensor=65_536, tensors=[]), "tensor 1 has 0 bytes"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_large_files_cannot_exhaust_the_reader(name: str, tmp_path: Path) -> None:
    """Sparse files: 32 GiB of zeros after a hostile header."""
    change, expected = BOMBS[name]
    builder = Builder()
    change(builder)
    path = tmp_path / "bomb.gguf"
    whole = builder.build()
    path.write_bytes(whole[: sum(len(f) for f in fields_before_tensors(builder))])
    os.truncate(path, 32 << 30)
    tracemalloc.start()
    try:
        assert expected in refusal(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 << 20


def fields_before_tensors(builder: Builder) -> list[bytes]:
    fields = [bytes(24)]
    for key, (_, payload) in builder.keys.items():
        fields.append(text(key) + bytes(4) + payload)
    for name, _, payload in builder.extra_keys:
        fields.append(text(name) + bytes(4) + payload)
    return fields


def test_strings_in_arrays_are_counted_together(tmp_path: Path) -> None:
    builder = Builder()
    half = gguf_header.N_STRING_MAX // 2
    for name, count in (("a", half), ("b", half + 1)):
        builder.extra_keys.append((name, ARRAY, array(STRING, count, bytes(8 * count))))
    sentence = refusal(builder.write(tmp_path / "m.gguf"))
    assert f"'b' has {half + 1} strings, and {2 * half} in all are allowed" in sentence


def test_many_small_arrays_are_not_all_kept(tmp_path: Path) -> None:
    builder = Builder()
    builder.extra_keys = [(f"k{i}", ARRAY, array(U8, 4096, bytes(4096))) for i in range(20)]
    model = read_model(builder.write(tmp_path / "m.gguf"))
    kept = [isinstance(model.metadata[f"k{i}"], tuple) for i in range(20)]
    assert kept == [True] * 16 + [False] * 4


SEED_FILE = Builder()
SEED_BYTES = SEED_FILE.build()
INTERESTING = [0, 1, 2, 3, 4, 5, 8, 9, 31, 32, 33, 255, 256, 1 << 16, 1 << 31, (1 << 32) - 1]
INTERESTING += [1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, BIG]

positions = st.integers(0, SEED_FILE.header_bytes - 1)
mutations = st.one_of(
    st.tuples(st.just("byte"), positions, st.integers(0, 255)),
    st.tuples(st.just("u32"), positions, st.sampled_from([i & 0xFFFFFFFF for i in INTERESTING])),
    st.tuples(st.just("u64"), positions, st.sampled_from(INTERESTING)),
    st.tuples(st.just("insert"), positions, st.integers(0, 255)),
    st.tuples(st.just("delete"), positions, st.integers(1, 40)),
    st.tuples(st.just("repeat"), positions, st.integers(1, 200)),
    st.tuples(st.just("cut"), st.integers(0, len(SEED_BYTES)), st.just(0)),
)


def mutated(whole: bytes, steps: list[tuple[str, int, int]]) -> bytes:
    data = bytearray(whole)
    for how, at, value in steps:
        if how == "byte" and at < len(data):
            data[at] = value
        elif how == "u32":
            data[at : at + 4] = u32(value)
        elif how == "u64":
            data[at : at + 8] = u64(value)
        elif how == "insert":
            data.insert(at, value)
        elif how == "delete":
            del data[at : at + value]
        elif how == "repeat":
            data[at:at] = data[at : at + value]
        elif how == "cut":
            del data[at:]
    return bytes(data)


def either_read_or_refused(path: Path) -> ModelFile | None:
    """Return whether a file is read. Any outcome but reading or ModelFileError fails the test."""
    try:
        return read_model(path)
    except ModelFileError as error:
        assert error.reason
        return None


class GgufInitParams(ctypes.Structure):
    """struct gguf_init_params (gguf.h)."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def ggml_reads(path: Path) -> bool:
    """Return whether ggml's reader accepts the file."""
    ggml = ggml_base()
    ggml.gguf_init_from_file.restype = ctypes.c_void_p
    ggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, GgufInitParams]
    ggml.gguf_free.argtypes = [ctypes.c_void_p]
    context = ggml.gguf_init_from_file(os.fsencode(path), GgufInitParams(True, None))
    if context:
        ggml.gguf_free(context)
    return bool(context)


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(mutations, min_size=1, max_size=4))
@example(steps=[("u64", 8, BIG)])
def test_mutations_are_read_or_refused(steps: list[tuple[str, int, int]], tmp_path: Path) -> None:
    """ggml accepts every file that is accepted here: this reader is never the laxer one."""
    path = tmp_path / "m.gguf"
    path.write_bytes(mutated(SEED_BYTES, steps))
    model = either_read_or_refused(path)
    if model is not None:
        size = path.stat().st_size
        end = 0
        for tensor in model.tensors:
            assert tensor.offset >= end
            end = tensor.offset + tensor.n_bytes
            assert end <= size
        assert 1 <= model.n_layer <= 512
        assert model.n_expert_used <= model.n_expert
        scan_scales(model)
        assert ggml_reads(path)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for magic in (b"", b"GGUF", b"GGUF" + u32(3), b"GGUF" + u32(3) + u64(1) + u64(1)):
        path.write_bytes(magic + data)
        assert either_read_or_refused(path) is None


def test_every_field_with_every_interesting_value(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    n_read = 0
    for start, end in itertools.pairwise([0, *SEED_FILE.boundaries]):
        for value in INTERESTING:
            raw = u64(value) if end - start == 8 else u32(value & 0xFFFFFFFF)
            path.write_bytes(SEED_BYTES[:start] + raw + SEED_BYTES[start + len(raw) :])
            n_read += either_read_or_refused(path) is not None
    assert n_read > 0  # some values change nothing that matters


# Split models


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    path = factory.make_tiny("glm4moe", "Q4_0", tmp_path / "модель.gguf")
    return factory.make_split(path, 3)


def test_a_split_model_opens_at_every_part(parts: list[Path], tmp_path: Path) -> None:
    whole = read_model(tmp_path / "модель.gguf")
    for path in parts:
        model = read_model(path)
        assert model.path == path
        assert model.paths == tuple(parts)
        assert [t.name for t in model.tensors] == [t.name for t in whole.tensors]
        assert {t.part for t in model.tensors} == {0, 1, 2}
        assert model.expert_bytes_total == whole.expert_bytes_total
        assert model.dense_bytes == whole.dense_bytes
        assert model.chat_template == whole.chat_template
        assert model.file_size_bytes == sum(p.stat().st_size for p in parts)
        assert scan_scales(model) == sum(t.n_bytes for t in whole.tensors)
    first, last = (read_model(path) for path in (parts[0], parts[2]))
    assert first.fingerprint == last.fingerprint != whole.fingerprint
    for tensor, same in zip(first.tensors, whole.tensors, strict=True):
        data = first.paths[tensor.part].read_bytes()[tensor.offset :][: tensor.n_bytes]
        assert data == whole.path.read_bytes()[same.offset :][: same.n_bytes]


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    for path in (parts[0], parts[2]):
        sentence = refusal(path)
        assert "модель-00002-of-00003.gguf" in sentence
        assert "part 2 of 3 of the model is missing" in sentence


def test_foreign_parts_are_named(parts: list[Path], tmp_path: Path) -> None:
    mine = [path.read_bytes() for path in parts]
    parts[1].write_bytes(mine[2])
    assert "00002-of-00003.gguf" in refusal(parts[0])
    assert "split.no" in refusal(parts[0])
    parts[1].write_bytes(mine[1][: len(mine[1]) // 2])
    assert "incomplete" in refusal(parts[0])
    assert "00002-of-00003.gguf" in refusal(parts[0])
    path = factory.make_tiny("glm4moe", "Q4_0", tmp_path / "other.gguf", n_layer=4)
    foreign = factory.make_split(path, 3)
    parts[1].write_bytes(foreign[1].read_bytes())
    assert "split.tensors.count differs" in refusal(parts[0])
    more = factory.make_split(path, 4)
    parts[1].write_bytes(more[1].read_bytes())
    assert "split.count" in refusal(parts[0])
    parts[1].write_bytes(Builder().build())
    assert "split.no" in refusal(parts[0])


def test_parts_with_the_same_tensor_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"m-0000{i + 1}-of-00002.gguf" for i in range(2)]
    for i, path in enumerate(paths):
        builder = Builder()
        builder.extra_keys = [
            ("split.no", U16, u16(i)),
            ("split.count", U16, u16(2)),
            ("split.tensors.count", I32, u32(8)),
        ]
        builder.write(path)
    sentence = refusal(paths[0])
    assert "'token_embd.weight' is in part 1 as well" in sentence
    assert paths[1].name in sentence


def test_a_part_s_name_and_numbers_have_to_agree(parts: list[Path], tmp_path: Path) -> None:
    renamed = parts[1].rename(tmp_path / "renamed.gguf")
    assert "its name has to end in -00002-of-00003.gguf" in refusal(renamed)
    for keys, expected in (
        ([("split.count", U16, u16(2))], "split.no is None"),
        ([("split.count", U16, u16(2)), ("split.no", U16, u16(2))], "split.no is 2"),
        ([("split.count", U16, u16(9999)), ("split.no", U16, u16(0))], "split.count is 9999"),
        ([("split.count", U16, u16(2)), ("split.no", I32, u32(0))], "split.no is not of the type"),
    ):
        builder = Builder()
        builder.extra_keys = list(keys)
        assert expected in refusal(builder.write(tmp_path / "m.gguf"))


def test_a_split_in_one_part_is_an_ordinary_file(tmp_path: Path) -> None:
    path = factory.make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf")
    (only,) = factory.make_split(path, 1)
    assert read_model(only).paths == (only,)


# NaN and infinity


def ggml_base() -> ctypes.CDLL:
    import llama_cpp

    name = "ggml-base.dll" if os.name == "nt" else "libggml-base.so.0"
    return ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / name))


VALIDATED = sorted(set(TENSOR_TYPES) - {9, 15, 24, 25, 26, 27, 28})


@pytest.mark.parametrize("type_id", VALIDATED, ids=lambda i: TENSOR_TYPES[i].name)
def test_the_scan_agrees_with_ggml(type_id: int) -> None:
    """Compare with ggml_validate_row_data block by block. Many exponents are all ones."""
    kind, ggml = TENSOR_TYPES[type_id], ggml_base()
    ggml.ggml_validate_row_data.restype = ctypes.c_bool
    ggml.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    rng = np.random.default_rng(type_id)
    blocks = rng.integers(0, 256, (4000, kind.n_bytes), dtype=np.uint8)
    special = rng.random(blocks.shape) < 0.25
    blocks[special] = rng.choice(np.array([0x7C, 0x7F, 0xFF, 0xFC, 0x80, 0xF0, 0x7E], np.uint8))
    wanted = [
        not ggml.ggml_validate_row_data(type_id, row.ctypes.data, row.nbytes) for row in blocks
    ]
    assert not_finite(kind.name, blocks).tolist() == wanted
    assert any(wanted) == (kind.name != "NVFP4")


@pytest.mark.parametrize("name", ["F64", "Q8_1", "Q8_K", "I32"])
def test_the_scan_of_types_that_ggml_does_not_check(name: str) -> None:
    kind = next(k for k in TENSOR_TYPES.values() if k.name == name)
    blocks = np.zeros((3, kind.n_bytes), dtype=np.uint8)
    where = {"F64": ("<d", 0), "Q8_1": ("<e", 2), "Q8_K": ("<f", 0), "I32": ("<f", 0)}[name]
    for value, row in ((float("nan"), 0), (-float("inf"), 2)):
        raw = struct.pack(where[0], value)
        blocks[row, where[1] : where[1] + len(raw)] = np.frombuffer(raw, np.uint8)
    assert not_finite(name, blocks).tolist() == [name != "I32", False, name != "I32"]


@pytest.mark.parametrize("quant", factory.QUANTS)
def test_a_bad_block_is_found_and_its_tensor_named(quant: str, tmp_path: Path) -> None:
    path = factory.make_tiny("qwen3moe", quant, tmp_path / "m.gguf")
    model = read_model(path)
    tensor = model.expert_tensors[1][2]
    n_block = tensor.n_bytes // TENSOR_TYPES[tensor.type_id].n_bytes
    for block in (0, n_block // 2, n_block - 1):
        data = bytearray(path.read_bytes())
        at = tensor.offset + block * TENSOR_TYPES[tensor.type_id].n_bytes
        data[at : at + 2] = b"\xff\x7f"
        changed_path = tmp_path / "changed.gguf"
        changed_path.write_bytes(data)
        changed_model = read_model(changed_path)
        with pytest.raises(ModelFileError, match=rf"{tensor.name}.* in block {block}\."):
            scan_scales(changed_model)
        others = [t for t in changed_model.tensors if t.name != tensor.name]
        assert scan_scales(changed_model, others) == sum(t.n_bytes for t in others)


def test_a_bad_block_is_found_behind_the_first_chunk(tmp_path: Path) -> None:
    builder = Builder()
    builder.tensors = [Tensor("big", (1 << 20, 9), 1, n_bytes=18 << 20)]
    path = builder.write(tmp_path / "m.gguf")
    model = read_model(path)
    assert scan_scales(model) == 18 << 20
    with path.open("r+b") as file:
        file.seek(model.tensors[0].offset + 2 * 5_000_001)
        file.write(struct.pack("<e", float("inf")))
    with pytest.raises(ModelFileError, match=r"'big' .* in block 5000001\."):
        scan_scales(model)
    os.truncate(path, 1 << 20)
    with pytest.raises(ModelFileError, match="became shorter"):
        scan_scales(model)
    path.unlink()
    with pytest.raises(ModelFileError, match=NO_FILE):
        scan_scales(model)


# The tables


def test_the_type_table_is_llama_cpp_s() -> None:
    ggml = ggml_base()
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_name.restype = ctypes.c_char_p
    import llama_cpp

    n_type = llama_cpp.llama_cpp.GGML_TYPE_COUNT
    known = {i for i in range(n_type) if ggml.ggml_blck_size(i) > 0}
    assert set(TENSOR_TYPES) == known
    for type_id, kind in TENSOR_TYPES.items():
        assert ggml.ggml_blck_size(type_id) == kind.n_value, kind
        assert ggml.ggml_type_size(type_id) == kind.n_bytes, kind
        assert ggml.ggml_type_name(type_id).decode().upper() == kind.name, kind


def test_the_type_table_agrees_with_the_gguf_package() -> None:
    for type_id, (n_value, n_bytes) in GGML_QUANT_SIZES.items():
        if type_id.name == "Q8_1":  # the package counts two floats where ggml has two halves
            continue
        kind = TENSOR_TYPES[int(type_id)]
        assert (kind.name, kind.n_value, kind.n_bytes) == (type_id.name, n_value, n_bytes)


def test_the_architectures_are_exactly_llama_cpp_s() -> None:
    found = factory.llama_architectures()
    assert set(found) == ARCHITECTURES
    assert {name for name, is_diffusion in found.items() if is_diffusion} == DIFFUSION


@pytest.mark.parametrize("name", sorted(DIFFUSION))
def test_diffusion_models_are_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    builder = Builder()
    builder.keys = {
        key.replace("llama.", f"{name}."): value for key, value in builder.keys.items()
    } | {"general.architecture": (STRING, text(name))}
    path = builder.write(tmp_path / "m.gguf")
    said = refusal(path)
    assert f"it is a diffusion model ({name})" in said
    if name != "llada-moe":
        return
    for command in (["inspect", str(path)], ["chat", str(path), "-p", "Hi"]):
        done = subprocess.run(
            [sys.executable, "-m", "backend.cli", *command], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_path_that_is_not_utf8_is_refused_in_one_sentence(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"gr\xfc\xdfe") / "m.gguf"
    path.parent.mkdir()
    shutil.copy(tiny, path)
    with pytest.raises(ModelFileError, match="m.gguf cannot be used: its path holds bytes that"):
        read_model(path)
    done = subprocess.run(
        [sys.executable, "-m", "backend.cli", "inspect", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1
    assert "not UTF-8" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["none", "no_vocab"])
def test_a_model_without_a_vocabulary(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """llama.cpp loads it, and ends the process at the first text."""
    builder = Builder()
    builder.extra_keys = [("tokenizer.ggml.model", STRING, text(kind))]
    path = builder.write(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match="m.gguf cannot be used: it has no vocabulary"):
        read_model(path)
    assert main(["inspect", str(path)]) == 1
    assert "it has no vocabulary" in capsys.readouterr().err


@pytest.mark.parametrize("n_token", [3, 6000])
def test_a_vocabulary_with_a_token_twice(n_token: int, tmp_path: Path) -> None:
    """llama.cpp would abort while it loads the file."""

    def model(tokens: list[str]) -> ModelFile:
        builder = Builder()
        items = b"".join(text(token) for token in tokens)
        builder.extra_keys = [("tokenizer.ggml.tokens", ARRAY, array(STRING, len(tokens), items))]
        return read_model(builder.write(tmp_path / "m.gguf"))

    tokens = [f"token {i} {'x' * (i % 700)}" for i in range(n_token)]
    require_distinct_tokens(model([*tokens, "", ""]))
    with pytest.raises(ModelFileError, match=r"the token 'token 2 xx' appears twice"):
        require_distinct_tokens(model([*tokens, tokens[2]]))


def test_tokens_are_read_once_for_equal_headers(tmp_path: Path) -> None:
    builder = Builder()
    items = b"".join(text(f"once {i} {'x' * (i % 700)}") for i in range(6000))
    builder.extra_keys = [("tokenizer.ggml.tokens", ARRAY, array(STRING, 6000, items))]
    for name in ("a.gguf", "b.gguf"):
        model = read_model(builder.write(tmp_path / name))
        if name == "b.gguf":
            model.paths[0].unlink()  # another read would fail
        require_distinct_tokens(model)
