"""The small model beside the engine: its values are llama.cpp's, and its memory is counted."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from factory import make_tiny
from factory.embedding import make_embedder
from factory.vocabulary import tiny_vocabulary
from reciter import with_template
from waiting import until

from backend.engine.embedding_model import EmbeddingModel, embedding_bytes
from backend.engine.engine import Engine
from backend.gguf.model_file import read_model
from backend.llama import splitting
from backend.memory.plan import kv_bytes
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig

TEXTS = ["the cat sat on the mat", "a dog ran", "", "[CLS] xyz! 東京", "the sky is blue " * 8]


class Stock:
    """llama.cpp by itself, with its default settings."""

    def __init__(self, path: Path, n_thread: int) -> None:
        import llama_cpp  # heavy

        self._llama = llama_cpp
        params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        self.vocab = llama_cpp.llama_model_get_vocab(self._model)
        settings = llama_cpp.llama_context_default_params()
        settings.embeddings = True
        settings.n_ctx = settings.n_batch = settings.n_ubatch = 64
        settings.n_threads = settings.n_threads_batch = n_thread
        self._context = llama_cpp.llama_init_from_model(self._model, settings)

    def tokens(self, text: str, *, special: bool = True) -> list[int]:
        data = text.encode()
        found = (self._llama.llama_token * 1000)()
        n = self._llama.llama_tokenize(self.vocab, data, len(data), found, 1000, special, special)
        return list(found[:n])

    def values(self, tokens: Sequence[int], n: int) -> Any:
        given = (self._llama.llama_token * len(tokens))(*tokens)
        assert not self._llama.llama_decode(
            self._context, self._llama.llama_batch_get_one(given, len(tokens))
        )
        found = self._llama.llama_get_embeddings_seq(self._context, 0)
        return np.ctypeslib.as_array(found, (n,)).copy()

    def close(self) -> None:
        self._llama.llama_free(self._context)
        self._llama.llama_model_free(self._model)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_embedder(tmp_path_factory.mktemp("embedding") / "small.gguf")


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = tmp_path_factory.mktemp("ranking") / "rank.gguf"
    return make_embedder(name, gguf.PoolingType.RANK)


@pytest.mark.parametrize(
    ("pooling", "arch"),
    [
        (gguf.PoolingType.MEAN, "bert"),
        (gguf.PoolingType.CLS, "bert"),
        (gguf.PoolingType.MEAN, "nomic-bert-moe"),
    ],
)
def test_vectors_are_llamas_bit_for_bit(
    tmp_path: Path, pooling: gguf.PoolingType, arch: str
) -> None:
    """One by one and in any company, as text and as tokens; of length 1."""
    model = EmbeddingModel(make_embedder(tmp_path / "m.gguf", pooling, arch=arch), n_thread=2)
    stock = Stock(tmp_path / "m.gguf", 2)
    found = model.embed(TEXTS)
    given = [stock.tokens(text) for text in TEXTS]
    assert found.n_token == sum(map(len, given)) and model.embed(given) == found
    for row, tokens in zip(found.rows, given, strict=True):
        values = stock.values(tokens, 64)
        length = math.sqrt(sum(float(np.float32(v * v)) for v in values))
        assert row == [float(v) for v in values * np.float32(1 / length)]
        assert math.isclose(sum(v * v for v in row), 1, rel_tol=1e-5)
        assert model.embed([tokens]).rows == [row]
    stock.close()
    model.close()


def test_a_model_that_writes_no_text_is_refused(tmp_path: Path) -> None:
    path = make_embedder(tmp_path / "m.gguf", arch="nomic-bert-moe")
    with pytest.raises(EngineError, match=r"m\.gguf makes embeddings and writes no text\."):
        Engine.open(path, EngineConfig())


def test_scores_are_llamas_bit_for_bit(ranker: Path) -> None:
    model, stock = EmbeddingModel(ranker, n_thread=2), Stock(ranker, 2)
    query, documents = "the cat", ["a cat sat", "the sky", "a red dog on a mat"]
    found = model.rank(query, documents)
    begin, *_, end = stock.tokens("a")
    pairs = [
        [begin, *stock.tokens(query, special=False), end, *stock.tokens(d, special=False)]
        for d in documents
    ]  # BERT's vocabulary has no end of a text
    assert found.n_token == sum(map(len, pairs))
    assert found.rows == [[float(stock.values(pair, 1)[0])] for pair in pairs]
    assert len({row[0] for row in found.rows}) == 3
    with pytest.raises(EngineError, match="ranks documents and makes no embeddings"):
        model.embed(["a"])
    stock.close()
    model.close()


def test_what_it_cannot_compute_is_one_sentence(path: Path) -> None:
    model = EmbeddingModel(path)
    assert model.n_most == 64
    for given, words in (
        ([[]], "A text is empty."),
        ([[10**6]], "There is no such token."),
        ([[-1]], "There is no such token."),
        (["the " * 100], "The prompt has 102 tokens, but the context holds only 64."),
        (["the " * 1000], "A text has 4,000 characters, too many for 64 tokens."),
    ):
        with pytest.raises(EngineError) as refused:
            model.embed(given)
        assert str(refused.value) == words
    cut = model.embed(["the " * 100, "the " * 1000], cuts=True)
    assert cut.n_token == 128 and cut.rows[0] == cut.rows[1]
    assert cut.rows[0] == model.embed(["the " * 62]).rows[0]
    with pytest.raises(EngineError, match="makes embeddings and ranks no documents"):
        model.rank("a", ["b"])
    model.close()


def test_a_file_without_a_pooling_is_refused(tmp_path: Path) -> None:
    none = make_embedder(tmp_path / "none.gguf", None)
    chat = make_tiny("qwen3moe", "Q8_0", tmp_path / "chat.gguf")
    for path, words in (
        (none, "none.gguf is no model for embeddings: it names no pooling."),
        (chat, "chat.gguf is no model for embeddings: it names no pooling."),
        (tmp_path / "missing.gguf", "missing.gguf"),
    ):
        for use in (EmbeddingModel, embedding_bytes):
            with pytest.raises(EngineError, match=words):
                use(path)


def test_it_is_loaded_when_it_is_asked_and_freed_after_a_while(path: Path) -> None:
    model = EmbeddingModel(path, unload_after_s=0.05)
    assert not model.is_loaded
    first = model.embed(["the cat"])
    until(lambda: not model.is_loaded)
    assert model.embed(["the cat"]) == first
    model.close()
    assert not model.is_loaded


def test_what_nobody_waits_for_is_left_out(path: Path) -> None:
    model, asked = EmbeddingModel(path), []

    def is_gone() -> bool:
        asked.append(1)
        return len(asked) > 2

    assert len(model.embed(["a"] * 9, is_gone=is_gone).rows) == 2
    model.close()


def test_several_threads_get_their_own(path: Path) -> None:
    model = EmbeddingModel(path)
    wanted = {text: model.embed([text]).rows for text in TEXTS}
    wrong: list[str] = []

    def ask(text: str) -> None:
        for _ in range(5):
            if model.embed([text]).rows != wanted[text]:
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(text,)) for text in TEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    model.close()


def test_the_plan_leaves_memory_for_it(path: Path, tmp_path: Path) -> None:
    config = EngineConfig(cache_rate=0.5, context_length=256)
    engine = Engine.open(make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf"), config)
    assert engine.loaded.weights.find_others(config) == 0
    beside = config.changed(embedding_model=str(path))
    assert engine.loaded.weights.find_others(beside) == embedding_bytes(path) > 32 << 20
    engine.close()


def test_a_causal_model_needs_memory_for_logits_and_an_attention_cache(tmp_path: Path) -> None:
    plain = embedding_bytes(make_embedder(tmp_path / "plain.gguf"))
    path = make_embedder(tmp_path / "causal.gguf", is_causal=True)
    causal = read_model(path)
    (embedding,) = (t for t in causal.tensors if t.name == "token_embd.weight")
    logits = 8 * 64 * embedding.shape[-1]  # 64 tokens, twice
    assert embedding_bytes(path) - plain == logits + kv_bytes(causal, 64) > logits


@pytest.fixture(scope="module")
def recursing(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingModel:
    """Return a model whose texts llama.cpp splits with std::regex, with a begin and an end."""
    folder = tmp_path_factory.mktemp("recursing")
    words, kinds = tiny_vocabulary(), gguf.GGUFValueType
    vocabulary: dict[str, tuple[Any, ...]] = {
        "tokenizer.ggml.model": ("gpt2", kinds.STRING),
        "tokenizer.ggml.pre": ("deepseek-v3", kinds.STRING),
        "tokenizer.ggml.tokens": (list(words.tokens), kinds.ARRAY, kinds.STRING),
        "tokenizer.ggml.token_type": (list(words.token_types), kinds.ARRAY, kinds.INT32),
        "tokenizer.ggml.merges": (list(words.merges), kinds.ARRAY, kinds.STRING),
        "tokenizer.ggml.bos_token_id": (words.bos_id, kinds.UINT32),
        "tokenizer.ggml.eos_token_id": (words.eos_id, kinds.UINT32),
        "tokenizer.ggml.add_bos_token": (True, kinds.BOOL),
        "tokenizer.ggml.add_eos_token": (True, kinds.BOOL),
    }
    plain = make_tiny("qwen3moe", "Q8_0", folder / "plain.gguf", n_ctx=2048)
    path = with_template(plain, folder / "m.gguf", None, pooling=1, vocabulary=vocabulary)
    return EmbeddingModel(path)


@pytest.mark.parametrize("run", ["a", " ", "!", "\u00e9", "\n"])
def test_a_long_run_of_characters_ends_no_process(recursing: EmbeddingModel, run: str) -> None:
    """16,000 equal characters in one call of llama.cpp overflow the stack of its thread."""
    n = recursing.n_most * 16
    with pytest.raises(EngineError, match=r"has [\d,]+ tokens, but the context holds only 2,048"):
        recursing.embed([run * n])
    with pytest.raises(EngineError, match=r"has [\d,]+ tokens"):
        recursing.embed([f"<|im_start|>{run * (n - 40)} after"])


def test_cut_runs_have_the_tokens_of_the_whole(
    recursing: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [f"the cat {run * 300}<|im_end|> sat" for run in ("a", "7", "!", "\u00e9")]
    whole = recursing.embed(said)
    monkeypatch.setattr(splitting, "_RUN_CHARS", 10)
    monkeypatch.setattr(splitting, "_RUN", re.compile(r"[a\u00e9]{100}|!{100}|\d{99}"))
    cut = recursing.embed(said)
    assert cut.n_token == whole.n_token and cut.rows == whole.rows
