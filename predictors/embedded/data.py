"""Make token files, and endless resumable streams of training rows from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from predictors.embedded.config import END_OF_TEXT, IM_END, IM_START
from predictors.embedded.prepare import read_rows
from predictors.embedded.tokenizer import special_id

Ids = npt.NDArray[np.uint16]
Rows = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

PROMPT_WEIGHT = 0.1  # loss weight of a user's token; an answer's token has weight 1


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, array)
    partial.replace(path)


def text_tokens(work: Path, tokenizer: Tokenizer, seed: int) -> Ids:
    """Return all training texts, shuffled, each followed by the end mark. Cached on disk."""
    path = work / "train_tokens.npy"
    if not path.is_file():
        texts = [str(row["text"]) for row in read_rows(work / "train.jsonl")]
        random.Random(seed).shuffle(texts)
        end = special_id(tokenizer, END_OF_TEXT)
        parts = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts)]
        _save(path, np.concatenate([np.array(part, dtype=np.uint16) for part in parts]))
    return np.load(path)  # type: ignore[no-any-return]


def chat_tokens(
    messages: list[dict[str, str]], tokenizer: Tokenizer
) -> tuple[list[int], list[float]]:
    """Return ids and loss weights of one conversation in ChatML. Answers and their end weigh 1."""
    ids: list[int] = []
    weights: list[float] = []
    start, end = special_id(tokenizer, IM_START), special_id(tokenizer, IM_END)
    newline = tokenizer.encode("\n").ids
    for message in messages:
        head = [start, *tokenizer.encode(message["role"] + "\n").ids]
        body = [*tokenizer.encode(message["content"]).ids, end]
        ids += head + body + newline
        weight = 1.0 if message["role"] == "assistant" else PROMPT_WEIGHT
        weights += [0.0] * len(head) + [weight] * len(body) + [0.0] * len(newline)
    return ids, weights


def instruct_rows(work: Path, tokenizer: Tokenizer, n_row: int) -> tuple[Ids, Weights]:
    """Pack conversations into rows of `n_row` + 1 tokens. Each row begins with a conversation.

    A row's last conversation is cut at the row's end. The last row is dropped. The rows are cached
    on disk and rebuilt if the conversations are newer.
    """
    source = work / "instruct.jsonl"
    ids_path = work / f"instruct_rows_{n_row}.npy"
    weights_path = work / f"instruct_weights_{n_row}.npy"
    if not ids_path.is_file() or ids_path.stat().st_mtime < source.stat().st_mtime:
        end = special_id(tokenizer, END_OF_TEXT)
        all_ids, all_weights = [], []
        ids: list[int] = []
        weights: list[float] = []
        for row in read_rows(source):
            chat, weight = chat_tokens(row["messages"], tokenizer)  # type: ignore[arg-type]
            ids += [*chat, end]
            weights += [*weight, 0.0]
            if len(ids) > n_row:
                all_ids.append(ids[: n_row + 1])
                all_weights.append(weights[: n_row + 1])
                ids, weights = [], []
        _save(weights_path, np.array(all_weights, dtype=np.float32))
        _save(ids_path, np.array(all_ids, dtype=np.uint16))
    return np.load(ids_path), np.load(weights_path)


class TextStream:
    """Rows cut from the long token array, in a new random order in each epoch.

    The state is (epoch, cursor); the order depends on the seed and the epoch only.
    """

    def __init__(self, tokens: Ids, seed: int) -> None:
        self.tokens, self.seed = tokens, seed
        self.epoch, self.cursor, self.n_row = 0, 0, 0

    def take(self, n_batch: int, n_row: int) -> Rows:
        """Return the next [n_batch, n_row + 1] ids. A changed row length starts a new epoch."""
        if self.n_row not in (0, n_row):
            self.epoch, self.cursor = self.epoch + 1, 0
        self.n_row = n_row
        out = np.empty((n_batch, n_row + 1), dtype=np.int64)
        for i in range(n_batch):
            n_piece = (len(self.tokens) - 1) // n_row
            if self.cursor >= n_piece:
                self.epoch, self.cursor = self.epoch + 1, 0
            start = int(self._order(n_piece)[self.cursor]) * n_row
            out[i] = self.tokens[start : start + n_row + 1]
            self.cursor += 1
        return out

    def _order(self, n_piece: int) -> npt.NDArray[np.int64]:
        key = (self.epoch, n_piece)
        if getattr(self, "_order_key", None) != key:
            self._order_key = key
            self._cached = np.random.default_rng([self.seed, *key]).permutation(n_piece)
        return self._cached

    def state(self) -> dict[str, int]:
        """Return the state for `restore`."""
        return {"epoch": self.epoch, "cursor": self.cursor, "n_row": self.n_row}

    def restore(self, state: dict[str, int]) -> None:
        """Continue from the point where `state` was taken."""
        self.epoch, self.cursor, self.n_row = state["epoch"], state["cursor"], state["n_row"]


class InstructStream:
    """Packed rows of conversations in a new random order in each epoch."""

    def __init__(self, ids: Ids, weights: Weights, seed: int) -> None:
        self.ids, self.weights, self.seed = ids, weights, seed
        self.n_row, self.n_taken = ids.shape[1] - 1, 0

    def take(self, n_batch: int) -> tuple[Rows, Weights]:
        """Return the next ids [n_batch, n_row + 1] and the weights of the same shape."""
        n = len(self.ids)
        picked = []
        for _ in range(n_batch):
            epoch, place = divmod(self.n_taken, n)
            picked.append(np.random.default_rng([self.seed, epoch]).permutation(n)[place])
            self.n_taken += 1
        return self.ids[picked].astype(np.int64), self.weights[picked]


def heldout_rows(
    work: Path, tokenizer: Tokenizer, source: str, n_row: int
) -> Iterator[tuple[Rows, int]]:
    """Yield a source's held-out documents, cut to `n_row`: ([1, rows + 1] ids, predicted bytes)."""
    end = special_id(tokenizer, END_OF_TEXT)
    for row in read_rows(work / "heldout.jsonl"):
        if row["source"] == source:
            ids = [end, *tokenizer.encode(str(row["text"])).ids]
            for start in range(0, len(ids) - 1, n_row):
                piece = ids[start : start + n_row + 1]
                text = tokenizer.decode(piece[1:], skip_special_tokens=False)
                yield np.array([piece], dtype=np.int64), len(text.encode("utf-8"))
