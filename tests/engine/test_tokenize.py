"""Texts that llama.cpp cannot split into tokens in one piece, or not at once."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest
from factory.vocabulary import tiny_vocabulary
from gguf import GGUFWriter
from waiting import WAIT_S

from backend.llama import splitting
from backend.llama.api import Model
from backend.llama.splitting import Marks
from backend.protocol.errors import GivenUp


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    made = opened(tmp_path_factory.mktemp("vocabulary") / "v.gguf")
    yield made
    made.close()


def opened(path: Path) -> Model:
    """Load a vocabulary whose texts llama.cpp splits with std::regex, which recurses."""
    words = tiny_vocabulary()
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
    return Model(llama_cpp.llama_model_load_from_file(os.fsencode(path), params), files)


@pytest.mark.parametrize("run", ["!", "7", "a", " ", "\u00e9", "\n", "\U0001f642", "_", "a\u0301"])
def test_a_long_run_of_characters_does_not_crash(model: Model, run: str) -> None:
    said = f"before {run * 100_000} after"
    tokens = model.tokenize(said, special=False)
    assert b"".join(model.piece(token) for token in tokens).decode() == said


MARKS = ["<|a|>", "<|ab|>", "a|>", "<|a", "|><|", "\n\n", "<|endoftext|>"]


@pytest.fixture(scope="module", params=["llama", "phi-3"])
def marked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load a vocabulary of SentencePiece whose marks overlap; those of Phi-3 take white space."""
    path = tmp_path_factory.mktemp("vocabulary") / "v.gguf"
    plain = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        *"abx<|>",
    ]
    writer = GGUFWriter(path, "llama")
    n = len(plain) + len(MARKS)
    for add, value in (
        (writer.add_block_count, 1), (writer.add_context_length, 64), (writer.add_head_count, 1),
        (writer.add_embedding_length, 32), (writer.add_feed_forward_length, 32),
        (writer.add_vocab_size, n), (writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2),
    ):  # fmt: skip
        add(value)
    writer.add_name(request.param)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*plain, *MARKS])
    writer.add_token_scores([0.0] * n)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 7, *[3, 4] * 3, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    files: Any = SimpleNamespace(close=lambda: None)
    made = Model(llama_cpp.llama_model_load_from_file(os.fsencode(path), params), files)
    yield made
    made.close()


def stock(model: Model, said: str, special: bool, add_bos: bool) -> list[int]:
    data, buffer = said.encode(), (llama_cpp.llama_token * (len(said.encode()) + 8))()
    n = llama_cpp.llama_tokenize(
        model.vocab, data, len(data), buffer, len(buffer), add_bos, special
    )
    return list(buffer[:n])


def test_a_text_of_many_marks_has_the_tokens_of_stock_llama_cpp(
    marked: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut at marks: llama.cpp's time grows with the square of their number."""
    monkeypatch.setattr(splitting, "_LONG_CHARS", 0)
    monkeypatch.setattr(splitting, "_N_MARKS", 1)
    rng, n_piece = random.Random(3), 0
    others = ["a", "b", " ", "  ", "\n", "\t", "<", "|", ">", "\u00e9", "\u2581", "<s>", "</s>"]
    for _ in range(3000):
        said = "".join(rng.choice(MARKS + others) for _ in range(rng.randint(1, 20)))
        for special in (True, False):
            for add_bos in (True, False):
                found = marked.splitter.split(said, special, add_bos)
                assert found == stock(marked, said, special, add_bos), said
        n_piece += len(list(Marks(dict.fromkeys(MARKS, False)).pieces(said)))
    assert n_piece > 6000


def test_the_pieces_of_a_text_have_few_marks_and_lose_nothing() -> None:
    marks = Marks({"<|im_start|>": False, "<|im_end|>": False})
    said = "<|im_start|>user\nHi<|im_end|>\n" * 5000 + "the end"
    pieces = list(marks.pieces(said))
    assert "".join(pieces) == said
    assert max(piece.count("<|im_") for piece in pieces) <= 128
    assert list(marks.pieces("")) == [""] and list(Marks({}).pieces("a<b>")) == ["a<b>"]


def test_a_long_text_is_given_up_while_llama_cpp_splits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call goes on alone. Two are left alone, a third one waits; closing waits for both."""
    model, may_end, real = opened(tmp_path / "v.gguf"), threading.Event(), llama_cpp.llama_tokenize
    begun: list[int] = []

    def slow(*args: Any) -> int:
        begun.append(len(begun))
        may_end.wait(WAIT_S)
        return int(real(*args))

    monkeypatch.setattr(llama_cpp, "llama_tokenize", slow)
    said = "a b " * 2000
    for n in (1, 2):
        with pytest.raises(GivenUp):
            model.tokenize(said, is_ended=lambda n=n: len(begun) == n)
    looks: list[int] = []
    with pytest.raises(GivenUp):
        model.tokenize(said, is_ended=lambda: looks.append(0) or len(looks) == 3)
    closing = threading.Thread(target=model.close)
    closing.start()
    assert len(begun) == 2 and model.pointer is not None and not may_end.is_set()
    may_end.set()
    closing.join(WAIT_S)
    assert model.pointer is None and len(begun) == 2
    assert model.splitter.beside(lambda: model.tokenize("a")) is None
