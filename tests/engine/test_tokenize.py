"""Texts that llama.cpp cannot split into tokens in one piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest
from factory.vocabulary import tiny_vocabulary
from gguf import GGUFWriter

from backend.llama.api import Model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Load a vocabulary whose texts llama.cpp splits with std::regex, which recurses."""
    path, words = tmp_path_factory.mktemp("vocabulary") / "v.gguf", tiny_vocabulary()
    writer = GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_block_count, 1), (writer.add_context_length, 64),
        (writer.add_embedding_length, 32), (writer.add_head_count, 1),
        (writer.add_feed_forward_length, 32), (writer.add_vocab_size, len(words.tokens)),
        (writer.add_bos_token_id, words.bos_id), (writer.add_eos_token_id, words.eos_id),
    ):  # fmt: skip
        add(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("deepseek-v3")
    writer.add_token_list(list(words.tokens))
    writer.add_token_types(list(words.token_types))
    writer.add_token_merges(list(words.merges))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    files: Any = SimpleNamespace(close=lambda: None)
    made = Model(llama_cpp.llama_model_load_from_file(os.fsencode(path), params), files)
    yield made
    made.close()


@pytest.mark.parametrize("run", ["!", "7", "a", " ", "\u00e9", "\n", "\U0001f642", "_", "a\u0301"])
def test_a_long_run_of_characters_does_not_crash(model: Model, run: str) -> None:
    said = f"before {run * 100_000} after"
    tokens = model.tokenize(said, special=False)
    assert b"".join(model.piece(token) for token in tokens).decode() == said
