"""Tiny models with a known answer or another chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from factory import make_tiny, tiny_vocabulary
from factory.vocabulary import byte_symbols
from gguf import GGUFReader, GGUFWriter, PoolingType


def byte_token(byte: int) -> int:
    """Return the id of the token of one byte."""
    return tiny_vocabulary().tokens.index(byte_symbols()[byte])


_ADDING = ("attn_output.weight", "ffn_down_exps.weight", "ffn_down.weight", "ffn_down_shexp.weight")


def make_reciter(
    path: Path, text: str, *, ends: bool = True, arch: str = "qwen3moe", **sizes: Any
) -> Path:
    """Write a model that continues a prompt that ends in a line break with `text`, byte by byte.

    All bytes of the text must differ. Attention and experts add nothing to a token's
    embedding, and the output matrix holds for each byte the embedding of the one before. With
    `ends` the end-of-answer token follows, otherwise the line break and the text again. sizes: of
    the factory's Geometry; a layer for multi-token prediction knows what follows, too.
    """
    data = text.encode()
    assert len(set(data) | {ord("\n")}) == len(data) + 1
    make_tiny(arch, "F16", path, **sizes)
    tensors = {t.name: t.data for t in GGUFReader(path, "r+").tensors}
    for name, values in tensors.items():
        if name.endswith(_ADDING):
            values[:] = 0
        if name.endswith("nextn.eh_proj.weight"):  # the token alone, and not the state before it
            values[:] = np.eye(*values.shape)
    embedding, output = tensors["token_embd.weight"], tensors["output.weight"]
    chain = [byte_token(b) for b in b"\n" + data]
    output[:] = 0
    for token, following in zip(chain, chain[1:], strict=False):
        output[following] = embedding[token]
    last = tiny_vocabulary().eos_id if ends else chain[0]
    output[last] = embedding[chain[-1]]
    for values in tensors.values():
        values.flush()
    return path


def with_template(
    path: Path, out: Path, template: str | None, without: str = "", pooling: int | None = None
) -> Path:
    """Write a copy of a model with another chat template, or with none, and without a tensor.

    pooling: llama.cpp's number of the pooling that the copy names.
    """
    reader = GGUFReader(path)
    writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, value in reader.fields.items():
        if not key.startswith("GGUF.") and key not in (
            "general.architecture",
            "tokenizer.chat_template",
        ):
            kind = value.types[-1] if len(value.types) > 1 else None
            writer.add_key_value(key, value.contents(), value.types[0], kind)
    if template is not None:
        writer.add_chat_template(template)
    if pooling is not None:
        writer.add_pooling_type(PoolingType(pooling))
    for tensor in reader.tensors:
        if tensor.name == without:
            continue
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
