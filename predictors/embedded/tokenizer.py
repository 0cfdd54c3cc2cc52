"""Train and load a byte-level BPE with llama.cpp's splitting rule "qwen2"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from predictors.embedded.config import SPECIAL_TOKENS
from predictors.embedded.prepare import read_rows

# Source: llama.cpp, src/llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_QWEN2.
QWEN2_SPLIT = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def empty_tokenizer() -> Tokenizer:
    """Return a tokenizer that splits as llama.cpp does and has no merges yet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(texts: Iterator[str], n_vocab: int) -> Tokenizer:
    """Learn `n_vocab` entries: the special tokens first, then all 256 bytes and the merges."""
    tokenizer = empty_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(work: Path, n_vocab: int) -> Path:
    """Train on `train.jsonl` and the instructions, and write `tokenizer.json`."""

    def texts() -> Iterator[str]:
        for row in read_rows(work / "train.jsonl"):
            yield str(row["text"])
        for number, row in enumerate(read_rows(work / "instruct.jsonl")):
            if number % 4 == 0:  # the instructions are repetitive
                for message in row["messages"]:  # type: ignore[attr-defined]
                    yield message["content"]

    tokenizer = train_tokenizer(texts(), n_vocab)
    if tokenizer.get_vocab_size() != n_vocab:
        raise ValueError(f"the text gave only {tokenizer.get_vocab_size()} of {n_vocab} entries")
    path = work / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a special token."""
    found = tokenizer.token_to_id(token)
    assert found is not None, f"{token} is not in the vocabulary"
    return int(found)


def load(work: Path) -> Tokenizer:
    """Load the tokenizer that `build` wrote under `work`."""
    path = work / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"no tokenizer at {path}; run the step tokenizer first")
    return Tokenizer.from_file(str(path))
