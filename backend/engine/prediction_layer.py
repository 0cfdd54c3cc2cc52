"""Guesses the next tokens of an answer with the model's own layer for multi-token prediction.

Such a layer (MTP, NextN) computes from a token and the hidden state of the token before it what
follows that token (DeepSeek-V3, arXiv 2412.19437, section 2.2). Further tokens are guessed with the
layer's own states. The layer attends to the tokens that it has computed: it reads the text behind
the model, as llama.cpp's common_speculative_impl_draft_mtp does (common/speculative.cpp). It
follows one answer at a time, and keeps what it has computed of the other sequences of the context.
Kept states have it, too. Where a state is not known, as behind an image or tokens that were
computed while it followed another answer, it begins in the middle of the text; guesses are then
less often right, and no answer is another one. So it does where its last guesses were wrong:
reading all that was written meanwhile would cost more than it gains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.engine.kept_states import n_equal
from backend.llama.api import Context, Model
from backend.memory.plan import N_PREDICTION

_N_USUAL = 16
"""Tokens that a guess may read without being said to have read a new text."""
_N_WRONG = 3
"""Wrong guesses in a row after which it reads no more than _N_USUAL tokens for another one."""


class PredictionLayer:
    """The layer of a model that was loaded with it. Use from one thread.

    patch: caches the layer's experts (CachedModel.layer_patch), or None. read_s: seconds of the
    last guess that went into reading a text that was new to it. Raises LlamaError where llama.cpp
    has no such context.
    """

    def __init__(self, model: Model, n_thread: int, patch: _native.Patch | None = None) -> None:
        self.read_s = 0.0
        self._model = model
        self._context: Context | None = None
        self._n_thread = n_thread
        self._patch = patch
        self._place = 0  # the sequence that it follows
        # The other sequences: their tokens, of which it has computed those at the end. The one that
        # was followed last comes last.
        self._held: dict[int, list[int]] = {}
        self._text: list[int] = []  # the tokens that it has read, or of which it has the states
        self._end = 0  # the layer has computed the tokens before this position, if not all
        # States of the target, from that of the token before _end on.
        self._states: NDArray[np.float32] = np.zeros((1, 0), np.float32)
        self._n_state = 0
        self._n_last = 0  # tokens of the layer's last pass over the text
        self._n_wrong = 0  # guesses in a row whose first token was wrong, or that had none
        self._guessed: tuple[int, int] | None = None  # place and token of the last one

    def close(self) -> None:
        """Free its context. A second call does nothing."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def attach(self, target: Context, kv_type: str) -> None:
        """Guess for another context of the model, which is empty. Raises LlamaError."""
        self.close()
        target.keep_states()
        self._context = Context(
            self._model,
            n_context=target.n_context,
            n_ubatch=min(N_PREDICTION, target.n_ubatch),
            n_thread=self._n_thread,
            n_output=1,
            n_sequence=target.n_sequence,
            kv_type=kv_type,
            predicts=True,
            callback=self._patch.callback if self._patch is not None else None,
            user_data=self._patch.user_data if self._patch is not None else None,
        )
        self._states = np.empty((target.n_ubatch + 1, target.n_state), np.float32)
        self._place, self._held = 0, {}
        self._begin_at([])

    def begin(self, tokens: Sequence[int], place: int) -> None:
        """Follow a sequence of the target, which has these tokens, before it computes others."""
        self._turn_to(place)
        n = n_equal(self._text, tokens)
        source = max(self._held, key=lambda other: n_equal(self._held[other], tokens), default=-1)
        if (n_copied := n_equal(self._held.get(source, []), tokens)) > n:
            n = self._copy(source, n_copied)
        if n < len(tokens):  # computed while it followed others
            self._begin_at(tokens)
        elif n < self._end:
            self._cut(n)
        else:
            self._keep(n)

    @property
    def has_window(self) -> bool:
        """Whether a state may have the last tokens only, so that a restored one cannot be cut."""
        return self._model.n_window > 0

    def state(self, tokens: Sequence[int], begin: int, place: int) -> bytearray:
        """Return the layer's state of a sequence from a position on, which has these tokens.

        Empty where the layer has not computed the last one of them. Reads tokens whose states it
        has.
        """
        context, end = self._context, len(tokens)
        if context is None:
            return bytearray()
        if place == self._place:
            self._catch_up()
        text = self._text[: self._end] if place == self._place else self._held.get(place, [])
        is_computed = n_equal(text, tokens) == end and 0 <= context.first(place) < end
        if not is_computed or not (context.n_piece or end == len(text)):
            return bytearray()
        return context.state(begin, end, place)

    def restore(
        self, state: bytearray | memoryview, tokens: Sequence[int], begin: int, place: int
    ) -> None:
        """Append a state of state() to a sequence of the target, which then has these tokens.

        Without one, or where llama.cpp refuses it, the layer begins behind them.
        """
        context, end = self._context, len(tokens)
        if context is None:
            return
        text = self._text[: self._end] if place == self._place else self._held.get(place, [])
        n = begin if n_equal(text, tokens) >= begin else 0
        context.forget_from(n if state else 0, place)
        if state and not context.set_state(state, end, place, begin=begin):
            context.forget_from(0, place)
        if place == self._place:
            self._text, self._end = list(tokens), end
            self._forget_states()
        else:
            self._held[place] = list(tokens)

    def observe(
        self,
        text: Sequence[int],
        position: int,
        tokens: Sequence[int],
        states: NDArray[np.float32],
    ) -> None:
        """Receive the tokens of the target's last pass, from a position of a text on.

        text: has at least the tokens before. states: of the tokens, (n, n_state). They are kept,
        and read where there is no room for more.
        """
        n = len(tokens)
        if position > len(self._text):
            self._begin_at(text[:position])
        elif position < self._end - 1:
            self._cut(position)
        else:
            self._keep(position)
        if self._n_state + n > len(self._states):
            if self._n_wrong >= _N_WRONG:
                self._skip(min(_N_USUAL, len(self._states) - 1 - n))
            else:
                self._read(self._text, with_logits=False)
        self._states[self._n_state : self._n_state + n] = states
        self._n_state += n
        self._text += tokens

    def guess(
        self,
        tokens: Sequence[int],
        n_most: int,
        least_chance: float,
        is_stopped: Callable[[], bool],
    ) -> list[int]:
        """Return at most n_most tokens that may follow a text: each time the most probable one.

        Ends before the product of their probabilities falls below least_chance. Reads the new
        tokens of the text first. Returns nothing after a stop, after a failed pass, and where the
        target has not computed the text.
        """
        context, n = self._context, len(tokens)
        unread = self._text[self._end : n - 1]
        is_behind = len(self._text) < n - 1 or self._end >= n
        if context is None or is_behind or unread != tokens[self._end : n - 1] or is_stopped():
            return []
        self._judge(tokens)
        self._keep(n - 1)
        if self._n_wrong >= _N_WRONG:
            self._skip(_N_USUAL - 1)
        n_new, began_s = n - self._end, time.perf_counter()
        if not self._read(tokens, with_logits=True):
            return []
        self.read_s = time.perf_counter() - began_s if n_new > _N_USUAL else 0.0
        guessed = self._follow(context, n, n_most, least_chance, is_stopped)
        self._guessed = (n, guessed[0] if guessed else -1)
        if not context.forget_from(n, self._place):
            self._begin_at(tokens[: n - 1])
        return guessed

    def _follow(
        self,
        context: Context,
        position: int,
        n_most: int,
        least_chance: float,
        is_stopped: Callable[[], bool],
    ) -> list[int]:
        """Return the guess behind the text of `position` tokens that the layer has read."""
        guessed: list[int] = []
        chance = 1.0
        state = context.states(self._n_last)[-1:].copy()
        while True:
            token, probability = context.most_probable()
            chance *= probability
            if chance < least_chance or self._model.ends_answer(token):
                return guessed
            guessed.append(token)
            if len(guessed) == n_most or is_stopped():
                return guessed
            if not self._compute([token], state, position, with_logits=True):
                return guessed
            state, position = context.states(1).copy(), position + 1

    def _read(self, tokens: Sequence[int], *, with_logits: bool) -> bool:
        """Compute the new tokens of a text except for its end. Return False if that fails.

        with_logits: keep the logits of the last token.
        """
        context = self._context
        assert context is not None
        while self._held and sum(map(len, self._held.values())) + len(tokens) > context.n_context:
            self._drop(next(iter(self._held)))
        while self._end < len(tokens):
            piece = tokens[self._end : self._end + context.n_ubatch]
            is_last = with_logits and self._end + len(piece) == len(tokens)
            if is_last and context.keeps_last and len(piece) > 1:
                piece, is_last = piece[:-1], False
            n = len(piece)
            states = self._states[:n]
            if not self._compute(piece, states, self._end, with_logits=is_last):
                self._begin_at(tokens[: len(self._text)])
                return False
            self._end += n
            self._n_last = 1 if context.keeps_last else n
            self._n_state -= n
            self._states[: self._n_state] = self._states[n : n + self._n_state]
        return True

    def _compute(
        self,
        tokens: Sequence[int],
        states: NDArray[np.float32],
        position: int,
        *,
        with_logits: bool,
    ) -> bool:
        """Compute tokens as Context.predict(). Return False if that fails or is stopped."""
        context, patch = self._context, self._patch
        assert context is not None
        if patch is not None:
            is_token = len(tokens) == 1
            patch.begin_pass(_native.Phase.decode if is_token else _native.Phase.prefill, tokens)
        status = context.predict(tokens, states, position, self._place, with_logits=with_logits)
        return (patch is None or patch.end_pass()) and status == 0

    def _begin_at(self, tokens: Sequence[int]) -> None:
        """Begin behind these tokens of the target, whose states are not known."""
        if self._context is not None:
            self._context.forget_from(0, self._place)
        self._text = list(tokens)
        self._end = len(tokens)
        self._forget_states()

    def _cut(self, n: int) -> None:
        """Forget the layer's states from position n on."""
        assert self._context is not None
        if not self._context.forget_from(n, self._place):
            self._begin_at(self._text[:n])
            return
        del self._text[n:]
        self._end = n
        self._forget_states()

    def _turn_to(self, place: int) -> None:
        """Follow another sequence, from what the layer has of it on. Keep what it has of this."""
        if place == self._place:
            return
        self._catch_up()
        self._held[self._place] = self._text[: self._end]
        self._place, self._text = place, self._held.pop(place, [])
        self._end = len(self._text)
        self._forget_states()

    def _copy(self, source: int, n: int) -> int:
        """Begin as another sequence does. Return the tokens of it: n, or 0 where that fails."""
        assert self._context is not None
        self._begin_at(self._held[source][:n])
        if not self._context.copy_sequence(source, self._place, n):
            self._begin_at([])
        return self._end

    def _drop(self, place: int) -> None:
        """Forget a sequence that the layer does not follow."""
        assert self._context is not None
        self._context.forget_from(0, place)
        del self._held[place]

    def _catch_up(self) -> None:
        """Compute the tokens whose states are known, if that is worth it, and no more of them."""
        n = len(self._text)
        if self._end > n:  # it has computed a token that the target has not
            self._cut(n)
        elif self._n_wrong < _N_WRONG or n - self._end <= _N_USUAL:
            self._read(self._text, with_logits=False)

    def _judge(self, tokens: Sequence[int]) -> None:
        """Note whether the last guess was right, if this text has a token at its place."""
        place, token = self._guessed or (len(tokens), -1)
        if place < len(tokens):
            self._n_wrong = 0 if tokens[place] == token else self._n_wrong + 1
            self._guessed = None

    def _skip(self, n_left: int) -> None:
        """Skip the tokens that the layer has not read, except for the last n_left."""
        n = self._n_state - 1 - max(n_left, 0)
        if n > 0:
            assert self._context is not None
            self._context.forget_from(0, self._place)
            self._end += n
            self._n_state -= n
            self._states[: self._n_state] = self._states[n : n + self._n_state]

    def _keep(self, n: int) -> None:
        """Forget the target's states from position n on that the layer has not read."""
        del self._text[n:]
        self._n_state = min(self._n_state, n - self._end + 1)

    def _forget_states(self) -> None:
        """Take zeros for the state before _end, as llama.cpp does before a text."""
        self._states[0] = 0
        self._n_state = 1
