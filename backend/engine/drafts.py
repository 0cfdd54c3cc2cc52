"""Guesses the next tokens of an answer, and decides how many are worth a pass.

A text that repeats itself goes on as it went on before (prompt lookup; llama.cpp's ngram-simple).
Elsewhere the model's own layer guesses, where it has one (backend.engine.prediction_layer). One
pass computes a token with the guessed ones behind it, and reads each expert once for all of them. A
guess counts as long as the sampler chooses the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_SIZES = (8, 3)
"""Tokens at the end of the text that are looked for; the longer first."""
_LENGTHS = (16, 8, 3)
"""Tokens that are equal before a guess, at least: each has its own chance of being accepted."""
SURE = _LENGTHS[1]
"""Equal tokens from which on a repetition is preferred to a model's guess."""
BY_MODEL = -1
"""Stands for the number of equal tokens where a model guesses."""
_FIRST_CHANCES = (0.8, 0.6, 0.45, 0.7)
"""For each of _LENGTHS, and for a model."""
_FIRST_COST = 0.4
"""Cost of a guessed token as a share of a pass of one token, until one is measured."""
_CHANCE_WEIGHT = 0.15
_COST_WEIGHT = 0.2
_SINGLE_WEIGHT = 0.1
_PAUSE = (8, 128)
"""Occasions passed by after a guess that did not pay: at first, and at most."""
_N_WITHOUT_SINGLE = 32
"""Passes with guesses in a row; then one without measures again what such a pass takes."""


class Lookup:
    """Finds the tokens that followed an earlier occurrence of a text's last tokens."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # hash of some tokens: the place behind them
        self._n = 0  # tokens that were looked at

    def find(self, tokens: Sequence[int], n_most: int) -> tuple[list[int], int]:
        """Return at most n_most guessed tokens, and how many tokens were equal before them.

        tokens: of the text, to which some have been added since the last call. A repetition that
        has only just begun goes on as often as is needed. Images are not guessed.
        """
        n = len(tokens)
        for end in range(max(self._n, min(_SIZES)), n):
            for size in _SIZES:
                if end >= size:
                    self._places[hash(tuple(tokens[end - size : end]))] = end
        self._n = max(self._n, n)
        for size in _SIZES:
            end = self._places.get(hash(tuple(tokens[-size:])), 0)
            n_equal = _n_equal_before(tokens, end) if end else 0
            if n_equal >= size:
                found = [tokens[end + i % (n - end)] for i in range(n_most)]
                return found[: next((i for i, t in enumerate(found) if t < 0), n_most)], n_equal
        return [], 0


def _n_equal_before(tokens: Sequence[int], end: int) -> int:
    """Return how many tokens before `end` equal those at the end of the text, to _LENGTHS[0]."""
    for i in range(1, _LENGTHS[0] + 1):
        if i > end or tokens[end - i] != tokens[-i]:
            return i - 1
    return _LENGTHS[0]


@dataclass
class _Kind:
    """Guesses with the same length of equal tokens before them, or of the model.

    chance: of the next one to be right.
    """

    chance: float
    pause: int = _PAUSE[0]
    n_wait: int = 0


@dataclass
class Width:
    """Decides how many tokens are guessed: as many as give the most tokens in the time.

    The expected tokens of a pass, divided by its cost, are its utility (Cascade, section 4). Where
    no number of guessed tokens has one above 1, nothing is guessed, except now and then one token,
    after pauses that double. Remembers what it has measured from one answer to the next.
    """

    n_most: int
    _kinds: list[_Kind] = field(default_factory=lambda: [_Kind(p) for p in _FIRST_CHANCES])
    single_s: float = 0.0  # of a pass of one token
    _n_single: int = 0
    _n_without: int = 0  # passes since the last one of one token
    # of a guessed token, by its number in the pass and whether a model guessed it
    _costs: dict[tuple[int, bool], float] = field(default_factory=dict)
    _n_cost: dict[bool, int] = field(default_factory=dict)  # measured, by whether a model guessed

    def choose(self, n_equal: int) -> int:
        """Return how many tokens to guess.

        n_equal: tokens that are equal before the guess, or BY_MODEL.
        """
        if 0 <= n_equal < _LENGTHS[-1] or not self._n_single:
            return 0
        if self._n_without >= _N_WITHOUT_SINGLE:
            return 0
        widths = range(1, self.n_most + 1)
        best = max(widths, key=lambda n: self._utility(n_equal, n))
        if self._utility(n_equal, best) > 1:
            return best
        kind = self._kind(n_equal)
        kind.n_wait = (kind.n_wait or kind.pause + 1) - 1
        return 0 if kind.n_wait else 1

    def observe(self, n_equal: int, n_guessed: int, n_accepted: int, wall_s: float) -> None:
        """Learn from a pass. wall_s: from the end of the pass before to its end."""
        if not n_guessed:
            self._n_single += 1
            self._n_without = 0
            weight = max(_SINGLE_WEIGHT, 1 / self._n_single)
            self.single_s += weight * (wall_s - self.single_s)
            return
        self._n_without += 1
        kind = self._kind(n_equal)
        was_worth = self._utility(n_equal, n_guessed) > 1
        for is_right in [1] * n_accepted + [0] * (n_accepted < n_guessed):
            kind.chance += _CHANCE_WEIGHT * (is_right - kind.chance)
        if was_worth:
            kind.pause = _PAUSE[0]
        elif n_accepted:
            kind.n_wait = 1  # try again at once: a repetition may have begun
        else:
            kind.pause = min(2 * kind.pause, _PAUSE[1])
        cost = max((wall_s / self.single_s - 1) / n_guessed, 0.0) if self.single_s else 0.0
        before = self.cost(n_equal, n_guessed)
        place = n_guessed, n_equal == BY_MODEL
        n_before = self._n_cost.get(place[1], 0)
        weight = max(_COST_WEIGHT, 1 / (n_before + 2))  # the first estimate is as good as one more
        self._n_cost[place[1]] = n_before + 1
        self._costs[place] = before + weight * (min(cost, 4 * before + 1) - before)

    def _kind(self, n_equal: int) -> _Kind:
        if n_equal == BY_MODEL:
            return self._kinds[-1]
        return self._kinds[next(i for i, n in enumerate(_LENGTHS) if n_equal >= n)]

    def cost(self, n_equal: int, n: int) -> float:
        """Return the cost of each guessed token of n, as measured at the nearest width.

        It is a share of the time of a pass of one token.
        """
        by_model = n_equal == BY_MODEL
        widths = [width for width, was_by_model in self._costs if was_by_model == by_model]
        if not widths:
            return _FIRST_COST
        return self._costs[min(widths, key=lambda width: abs(width - n)), by_model]

    def _utility(self, n_equal: int, n: int) -> float:
        """Return the expected tokens of a pass with n guessed ones, by its cost."""
        chance = self._kind(n_equal).chance
        tokens = sum(chance**i for i in range(n + 1))
        return tokens / (1 + n * self.cost(n_equal, n))


@dataclass(frozen=True)
class Trial:
    """A pass with guesses, which `width` observes. took_s: from the end of the pass before.

    n_equal, n_guessed, n_right: as of Width.observe().
    """

    width: Width
    n_equal: int
    n_guessed: int
    n_right: int
    took_s: float

    def end(self, again_s: float | None = None) -> None:
        """Observe the pass, or it and the one that computed the right guesses again.

        again_s: seconds of the latter, which gives a token, as one without guesses does.
        """
        took_s = self.took_s
        if again_s is not None:
            took_s += again_s - self.width.single_s
        self.width.observe(self.n_equal, self.n_guessed, self.n_right, took_s)
