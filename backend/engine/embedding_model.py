"""A small model beside the engine's, which turns texts into vectors or ranks documents.

Plain llama.cpp computes it, each text alone, so the values are those of llama.cpp's server for the
same text bit by bit. The file must name a pooling: how the values of a text's tokens become one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from backend.engine import loading
from backend.engine.error import engine_errors
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.embedding import POOLINGS, RANKS, EmbeddingContext, unit
from backend.memory.plan import kv_bytes
from backend.protocol.errors import EngineError
from backend.protocol.vectors import Vectors
from backend.system import faults
from backend.system.memory import forget_mapped, physical_cores
from backend.text import text

_LENGTHS = (2048, 1024, 512)
"""Tokens of a text, at most: the longest whose buffers are no larger than this."""
_BUFFER_BYTES = 512 << 20
_FIXED_BYTES = 32 << 20
"""RAM reserved for the vocabulary and for the buffers of each text."""
_SIZES = ("attention.head_count", "feed_forward_length", "embedding_length")


class EmbeddingModel:
    """The model of a file, loaded when it is asked and freed when it was not for a while.

    name: of the file. ranks: whether it ranks documents; otherwise it makes vectors. n_most: tokens
    of a text, at most. n_thread: 0: one per core. Use from any thread; one text is computed at a
    time. Raises EngineError where the file cannot serve for it.
    """

    def __init__(self, path: Path, n_thread: int = 0, unload_after_s: float = 300.0) -> None:
        self._file = _checked(path)
        self.name = path.stem
        self.ranks = self._file.key("pooling_type") == RANKS
        self.n_most = _length(self._file)
        self._n_thread = n_thread or physical_cores()
        self._unload_after_s = unload_after_s
        self._lock = threading.Lock()
        self._loaded: EmbeddingContext | None = None
        self._timer: threading.Timer | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self._loaded is not None

    def embed(
        self,
        inputs: Sequence[str | Sequence[int]],
        *,
        cuts: bool = False,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Vectors:
        """Return a vector of length 1 for each text, or list of tokens.

        cuts: cut a text that is too long instead of refusing it. is_gone: returns whether the
        caller has left; the remaining texts are then skipped. Raises EngineError.
        """
        if self.ranks:
            raise EngineError(text("embedding.only_ranks", file=self.name))
        with self._open() as loaded:
            given = [loaded.tokens(each, self.n_most, cuts=cuts) for each in inputs]
            rows = [unit(loaded.values(tokens)) for tokens in given if not is_gone()]
        return Vectors([[float(value) for value in row] for row in rows], sum(map(len, given)))

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Vectors:
        """Return the score of each document for a query, as vectors with one value.

        is_gone: as of embed(). Raises EngineError.
        """
        if not self.ranks:
            raise EngineError(text("embedding.ranks_not", file=self.name))
        with self._open() as loaded:
            given = [loaded.pair(query, each, self.n_most) for each in documents]
            scores = [[float(loaded.values(tokens)[0])] for tokens in given if not is_gone()]
        return Vectors(scores, sum(map(len, given)))

    def close(self) -> None:
        """Free it, after the text that is being computed. The next text loads it again."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            loaded, self._loaded = self._loaded, None
            if loaded is not None:
                loaded.close()

    @contextlib.contextmanager
    def _open(self) -> Iterator[EmbeddingContext]:
        """Yield the loaded model, which nobody else uses meanwhile."""
        with self._lock, engine_errors():
            if self._timer is not None:
                self._timer.cancel()
            if self._loaded is None:
                self._loaded = self._load()
            try:
                yield self._loaded
            finally:
                self._timer = faults.timer(
                    "unload embeddings", self._unload_after_s, self.close, faults.no_place
                )

    def _load(self) -> EmbeddingContext:
        model = loading.load_plain(self._file)
        for path in self._file.paths:  # copied into the layout that computes fastest
            forget_mapped(path)
        return EmbeddingContext(model, self.n_most, self._n_thread)


def _checked(path: Path) -> ModelFile:
    """Return the file of a model that has a pooling. Raises EngineError."""
    try:
        file = read_model(path)
    except ModelFileError as error:
        raise EngineError(str(error)) from None
    if file.key("pooling_type") not in POOLINGS:
        raise EngineError(text("embedding.no_pooling", file=path.name))
    return file


def _length(file: ModelFile) -> int:
    """Return the tokens that a text may have, by what buffers for them take."""
    trained = file.context_length or _LENGTHS[-1]
    fits = (n for n in _LENGTHS if _buffer_bytes(file, min(n, trained)) <= _BUFFER_BYTES)
    return min(next(fits, _LENGTHS[-1]), trained)


def _buffer_bytes(file: ModelFile, n: int) -> int:
    """Return what a text of n tokens takes: scores of attention, layers' values, and logits."""
    found = map(file.key, _SIZES)
    n_head, n_ff, n_embd = (value if isinstance(value, int) else 0 for value in found)
    is_causal = file.key("attention.causal", True) is not False
    n_vocab = next((t.shape[-1] for t in file.tensors if t.name == "token_embd.weight"), 0)
    values = 4 * n * (n * n_head + 2 * n_ff + 8 * n_embd)
    return values + (8 * n * n_vocab + kv_bytes(file, n) if is_causal else 0)


def embedding_bytes(path: Path) -> int:
    """Return the bytes of RAM that the model of a file needs while it is loaded.

    Raises EngineError where it cannot serve for it.
    """
    file = _checked(path)
    weights = sum(part.stat().st_size for part in file.paths)
    return weights + _buffer_bytes(file, _length(file)) + _FIXED_BYTES
