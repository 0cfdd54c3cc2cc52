"""Guesses the next tokens of an answer with a small model, which plain llama.cpp computes.

Drafter is what this guesser and backend.engine.prediction_layer have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from backend.engine import loading
from backend.engine.kept_states import n_equal
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import Context, LlamaError, Model
from backend.memory.plan import kv_bytes
from backend.system.memory import forget_mapped
from backend.text import text

_N_UBATCH = 512
_BUFFER_BYTES = 256 << 20
"""RAM reserved for the compute buffers and the vocabulary."""
N_USUAL = 16
"""Tokens that a guess may read without being said to have read a new text."""


def read_draft(path: str) -> ModelFile:
    """Return the checked file of a draft model. Raises LlamaError."""
    try:
        return read_model(Path(path))
    except ModelFileError as error:
        raise LlamaError(str(error)) from None


def draft_bytes(file: ModelFile, n_context: int) -> int:
    """Return the bytes of RAM that a draft model with a context of n_context tokens needs."""
    weights = sum(path.stat().st_size for path in file.paths)
    return weights + kv_bytes(file, n_context) + _BUFFER_BYTES


class Drafter:
    """Guesses tokens with a context of its own, which it keeps up with a target's context.

    n_vocab: tokens that the target knows. read_s: seconds of the last guess that went into reading
    a text that was new to it.
    """

    def __init__(self, model: Model, n_vocab: int) -> None:
        self.read_s = 0.0
        self._model = model
        self._n_vocab = n_vocab
        self._context: Context | None = None

    def close(self) -> None:
        """Free what it loaded. A second call does nothing."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def begin(self, tokens: Sequence[int]) -> None:
        """Receive the tokens in the target's context, before it computes others."""

    def observe(self, before: Sequence[int], tokens: Sequence[int], target: Context) -> None:
        """Receive the tokens of the target's last pass, and those before them."""

    def guess(
        self,
        tokens: Sequence[int],
        n_most: int,
        least_chance: float,
        n_context: int,
        is_stopped: Callable[[], bool],
    ) -> list[int]:
        """Return at most n_most tokens that may follow a text: each time the most probable one.

        Ends before the product of their probabilities falls below least_chance. n_context: places
        for the text and its guesses, also in later calls. Reads what is new of the text first.
        Returns nothing after a stop and after a failed pass.
        """
        raise NotImplementedError

    def _follow(
        self,
        context: Context,
        n_most: int,
        least_chance: float,
        is_stopped: Callable[[], bool],
        compute: Callable[[int], bool],
    ) -> list[int]:
        """Return the guess of a context that has read the text. compute: appends a token to it."""
        found: list[int] = []
        chance = 1.0
        while True:
            token, probability = context.most_probable()
            chance *= probability
            if chance < least_chance or token >= self._n_vocab or self._model.ends_answer(token):
                return found
            found.append(token)
            if len(found) == n_most or is_stopped() or not compute(token):
                return found


class DraftModel(Drafter):
    """A loaded model with the vocabulary of `target`, and the tokens that its context holds.

    Use from one thread. Raises LlamaError where it cannot be loaded or does not fit.
    """

    def __init__(self, file: ModelFile, target: Model, n_thread: int) -> None:
        super().__init__(loading.load_plain(file), target.n_vocab)
        self._n_thread = n_thread
        self._tokens: list[int] = []  # in the context
        self._text: Sequence[int] = ()  # of the last guess, of which the context holds...
        self._n_read = 0  # ... this many tokens
        for path in file.paths:  # the weights were copied into the layout that computes fastest
            forget_mapped(path)
        if not self._model.has_vocabulary_of(target):
            self.close()
            raise LlamaError(text("draft.other_vocabulary", file=file.path.name))

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        super().close()
        self._model.close()

    def guess(
        self,
        tokens: Sequence[int],
        n_most: int,
        least_chance: float,
        n_context: int,
        is_stopped: Callable[[], bool],
    ) -> list[int]:
        """Return as Drafter.guess(); nothing for a text with images."""
        context = self._with_room(n_context)
        n = self._n_read if tokens is self._text else 0
        self._keep(n + n_equal(self._tokens[n:], tokens[n:-1]))
        if any(token < 0 for token in tokens[len(self._tokens) :]):
            return []
        n_new, began_s = len(tokens) - len(self._tokens), time.perf_counter()
        while len(self._tokens) < len(tokens):
            done = len(self._tokens)
            if is_stopped() or not self._compute(tokens[done : done + context.n_ubatch]):
                return []
        self.read_s = time.perf_counter() - began_s if n_new > N_USUAL else 0.0
        self._text, self._n_read = tokens, len(tokens)
        return self._follow(
            context, n_most, least_chance, is_stopped, lambda token: self._compute([token])
        )

    def _with_room(self, n_context: int) -> Context:
        """Return a context of at least this size, which is empty if it is a new one."""
        if self._context is not None and self._context.n_context < n_context:
            self._context.close()
            self._context = None
        if self._context is None:
            self._tokens, self._text = [], ()
            self._context = Context(
                self._model,
                n_context=n_context,
                n_ubatch=min(_N_UBATCH, n_context),
                n_thread=self._n_thread,
                n_output=1,
            )
        return self._context

    def _keep(self, n: int) -> None:
        """Forget all tokens but the first n; all of them, if the model cannot forget some."""
        assert self._context is not None
        if n < len(self._tokens) and not self._context.forget_from(n):
            n = 0
        del self._tokens[n:]

    def _compute(self, tokens: Sequence[int]) -> bool:
        """Append tokens to the context. Return False, with an empty context, if that fails."""
        assert self._context is not None
        if self._context.decode(tokens, len(self._tokens)) == 0:
            self._tokens += tokens
            return True
        self._context.forget_from(0)
        self._tokens, self._text = [], ()
        return False
