"""Tiny models with a known answer or another chat template."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from factory import make_tiny, tiny_vocabulary
from factory.vocabulary import byte_symbols
from gguf import GGUFReader, GGUFWriter, PoolingType, TokenType


def byte_token(byte: int) -> int:
    """Return the id of the token of one byte."""
    return tiny_vocabulary().tokens.index(byte_symbols()[byte])


WORD_TOKEN = tiny_vocabulary().bos_id - 1
"""The last token of a word. No merge of others begins with it."""
_ADDING = ("attn_output.weight", "ffn_down_exps.weight", "ffn_down.weight", "ffn_down_shexp.weight")


def make_reciter(
    path: Path,
    text: str,
    *,
    word: str = "",
    ends: bool = True,
    arch: str = "qwen3moe",
    **sizes: Any,
) -> Path:
    """Write a model that continues a prompt that ends in a line break with `text`, byte by byte.

    All bytes of the text must differ, except for those of `word`, which is one token: WORD_TOKEN,
    whose text with_template() writes. Attention and experts add nothing to a token's
    embedding, and the output matrix holds for each byte the embedding of the one before. With
    `ends` the end-of-answer token follows, otherwise the line break and the text again. sizes: of
    the factory's Geometry; a layer for multi-token prediction knows what follows, too.
    """
    before, _, behind = text.partition(word) if word else (text, "", "")
    data = [byte_token(b) for b in ("\n" + before).encode()]
    chain = [*data, *([WORD_TOKEN] if word else []), *map(byte_token, behind.encode())]
    assert len(set(chain)) == len(chain)
    make_tiny(arch, "F16", path, **sizes)
    tensors = {t.name: t.data for t in GGUFReader(path, "r+").tensors}
    for name, values in tensors.items():
        if name.endswith(_ADDING):
            values[:] = 0
        if name.endswith("nextn.eh_proj.weight"):  # the token alone, and not the state before it
            values[:] = np.eye(*values.shape)
    embedding, output = tensors["token_embd.weight"], tensors["output.weight"]
    output[:] = 0
    for token, following in itertools.pairwise(chain):
        output[following] = embedding[token]
    last = tiny_vocabulary().eos_id if ends else chain[0]
    output[last] = embedding[chain[-1]]
    for values in tensors.values():
        values.flush()
    return path


def with_template(
    path: Path,
    out: Path,
    template: str | None,
    without: str = "",
    pooling: int | None = None,
    word: str = "",
    vocabulary: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
) -> Path:
    """Write a copy of a model with another chat template, or with none, and without a tensor.

    pooling: llama.cpp's number of the pooling that the copy names. word: the text of WORD_TOKEN.
    vocabulary: another one of as many tokens, as arguments of GGUFWriter.add_key_value() by key.
    """
    reader = GGUFReader(path)
    writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, value in reader.fields.items():
        if not key.startswith("GGUF.") and key not in (
            "general.architecture",
            "tokenizer.chat_template",
        ):
            if vocabulary and key.startswith("tokenizer."):
                continue
            kind = value.types[-1] if len(value.types) > 1 else None
            contents = value.contents()
            if word and key == "tokenizer.ggml.tokens":
                contents[WORD_TOKEN] = word
            if word and key == "tokenizer.ggml.token_type":
                contents[WORD_TOKEN] = TokenType.USER_DEFINED
            writer.add_key_value(key, contents, value.types[0], kind)
    for key, arguments in vocabulary.items():
        writer.add_key_value(key, *arguments)
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
