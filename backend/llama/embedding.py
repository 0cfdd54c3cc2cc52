"""A context for embeddings: llama.cpp computes one text at a time, as its server does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from backend.llama.api import ERROR, LlamaError, Model, log, reason_of
from backend.protocol.errors import UntrustedError
from backend.text import text

RANKS = 4
"""The pooling of models that rank: LLAMA_POOLING_TYPE_RANK."""
POOLINGS = (1, 2, 3, RANKS)
"""The poolings, with mean, first and last."""
_CHARS_PER_TOKEN = 16
"""Longer texts are not tokenised: they are longer than a text may be."""


class EmbeddingContext:
    """A context with room for one text of n_most tokens. Raises LlamaError.

    It owns the model from then on, and frees it in the end.
    """

    def __init__(self, model: Model, n_most: int, n_thread: int) -> None:
        self._model = model
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = n_most
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = n_thread
        params.embeddings = True  # with the pooling that the file names
        params.no_perf = True
        with log.captured(ERROR) as errors:
            self._context: Any = llama_cpp.llama_init_from_model(self._model.pointer, params)
        if not self._context:
            self._model.close()
            raise LlamaError(text("engine.no_context", reason=reason_of(errors)))
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(n_most, 0, 1)
        ranks = llama_cpp.llama_pooling_type(self._context) == RANKS
        pointer = self._model.pointer
        out = llama_cpp.llama_model_n_cls_out if ranks else llama_cpp.llama_model_n_embd_out
        self._n_value = max(int(out(pointer)), 1)

    def close(self) -> None:
        """Free all."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        self._model.close()

    def tokens(self, given: str | Sequence[int], n_most: int, *, cuts: bool) -> list[int]:
        """Return the tokens of a text as llama.cpp's server makes them. Raises LlamaError."""
        if isinstance(given, str):
            if cuts:
                given = given[: n_most * _CHARS_PER_TOKEN]
            tokens = self._split(given, n_most, is_whole=True)
        else:
            tokens = list(given)
            if any(not 0 <= token < self._model.n_vocab for token in tokens):
                raise LlamaError(text("engine.no_token"))
        if not tokens:
            raise LlamaError(text("embedding.empty"))
        if len(tokens) <= n_most:
            return tokens
        if not cuts:
            raise LlamaError(text("engine.prompt_too_long", n=len(tokens), n_context=n_most))
        vocab = self._model.vocab
        ends = llama_cpp.llama_vocab_get_add_eos(vocab) or llama_cpp.llama_vocab_get_add_sep(vocab)
        return [*tokens[: n_most - 1], tokens[-1]] if ends else tokens[:n_most]

    def pair(self, query: str, document: str, n_most: int) -> list[int]:
        """Return the tokens of a query and a document as llama.cpp's server joins them."""
        vocab = self._model.vocab
        template = llama_cpp.llama_model_chat_template(self._model.pointer, b"rerank")
        if template is not None:
            prompt = template.decode(errors="replace").replace("{query}", query)
            joined = self._split(prompt.replace("{document}", document), n_most, special=True)
        else:
            end = llama_cpp.llama_vocab_eos(vocab)
            end = llama_cpp.llama_vocab_sep(vocab) if end < 0 else end
            ends = [end] if llama_cpp.llama_vocab_get_add_eos(vocab) else []
            has_sep = llama_cpp.llama_vocab_get_add_sep(vocab)
            between = [llama_cpp.llama_vocab_sep(vocab)] if has_sep else []
            joined = [
                *([llama_cpp.llama_vocab_bos(vocab)] if self._model.adds_bos else []),
                *self._split(query, n_most),
                *ends,
                *between,
                *self._split(document, n_most),
                *ends,
            ]
        if len(joined) > n_most:
            raise LlamaError(text("engine.prompt_too_long", n=len(joined), n_context=n_most))
        return joined

    def _split(
        self, given: str, n_most: int, *, is_whole: bool = False, special: bool = False
    ) -> list[int]:
        """Split a text of a bounded length. is_whole: with the tokens that begin and end it."""
        if len(given) > n_most * _CHARS_PER_TOKEN:
            raise LlamaError(text("embedding.too_long", n=len(given), n_token=n_most))
        return self._model.splitter.plain(given, special=special or is_whole, is_whole=is_whole)

    def values(self, tokens: Sequence[int]) -> Any:
        """Compute a text alone. Return its values as float32. Raises LlamaError."""
        if self._memory:
            llama_cpp.llama_memory_clear(self._memory, True)
        batch = self._batch
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(self._context, batch):
            raise LlamaError(text("embedding.failed"))
        pointer = llama_cpp.llama_get_embeddings_seq(self._context, 0)
        if not pointer:
            raise LlamaError(text("embedding.failed"))
        found = np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._n_value,)
        ).copy()
        if not np.isfinite(found).all():
            raise UntrustedError(text("embedding.not_finite"))
        return found


def unit(values: Any) -> Any:
    """Return a vector divided by its length, rounded as common_embd_normalize() of llama.cpp."""
    squares = np.cumsum((values * values).astype(np.float64))  # one after the other
    length = float(np.sqrt(squares[-1]))
    return values * np.float32(1.0 / length if length > 0 else 0.0)
