"""A trial: measure one setting against another, in alternating blocks of tokens.

Tokens differ in work, and a machine's speed drifts. So the blocks are ordered A B B A A B B A ...,
which cancels a steady drift. A token's value is the logarithm of its time, so that differences are
ratios, minus the part explained by its work (Noise). The largest and smallest values of a block and
of the rounds are left out. The trial ends when the expected loss of choosing the better-looking
side is small (as in Bayesian tests of two variants), or when its allowance of tokens is spent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from backend.methods.cost import PassCost, total

N_ROUND_MIN = 3
N_TOKEN_MAX = 280
"""Tokens of a trial, after which the better-looking setting is chosen."""
MIN_GAIN = 0.015
"""Smallest gain for a change, as a share of a token's time."""
LOSS_ADOPT = 0.006
LOSS_KEEP = 0.006
"""Expected loss, as a share of a token's time, at which a change or its refusal is decided."""
SURE, SURE_AGAIN = 1.3, 1.8
"""Smallest ratio of a gain to its error, so that equal settings do not alternate for ever; the
second is for a move that was tried before and not kept."""
N_PRIOR = 3
"""Rounds of the usual spread that are assumed before the first."""
USUAL = 1.5
"""Ratio of a round's spread to that of independent tokens, because neighbours are alike."""
FAR, N_FAR = 0.25, 3
"""A trial ends at once when N_FAR tokens of the candidate are significantly slower by FAR."""
HOPELESS = 0.6
"""The same limit for a candidate that may still be learning."""


class Noise:
    """A model of how a token's time depends on its work, and of the remaining variation.

    It learns from the differences between consecutive tokens under one setting.
    """

    MEMORY = 1 / 256  # weight of one difference

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._work = 0.0  # the mean, as a moving average
        self._xx = self._xy = self._yy = self._n = 0.0

    def add(self, window: PassCost, *, same_setting: bool) -> None:
        """Add a token. same_setting: the previous token was decoded under the same setting."""
        x, y = float(window.work) / window.n_token, math.log(window.wall_s / window.n_token)
        keep = 1 - self.MEMORY
        if self._last is not None and same_setting:
            dx, dy = x - self._last[0], min(max(y - self._last[1], -1.0), 1.0)
            self._xx = keep * self._xx + dx * dx
            self._xy = keep * self._xy + dx * dy
            self._yy = keep * self._yy + dy * dy
            self._n = keep * self._n + 1
        self._work += max(self.MEMORY, 1 / (self._n + 1)) * (x - self._work)
        self._last = (x, y)

    @property
    def _slope(self) -> float:
        return max(0.0, self._xy / self._xx) if self._n >= 8 and self._xx > 0 else 0.0

    def without_work(self, window: PassCost) -> float:
        """Return the logarithm of seconds per token, corrected to average work."""
        x, y = float(window.work) / window.n_token, math.log(window.wall_s / window.n_token)
        return y - self._slope * (x - self._work)

    @property
    def spread(self) -> float:
        """The standard deviation of without_work() between tokens."""
        if self._n < 8:
            return 0.4
        rest = self._yy - self._slope * self._xy
        return math.sqrt(max(rest, 0.0) / self._n / 2)


@dataclass(frozen=True)
class Verdict:
    """The result of a trial. change: of a token's time, as a logarithm; negative is faster."""

    better: bool
    change: float
    sure: bool
    """False if the trial ended because of its length or its cost."""
    n_token: int
    """Tokens measured under the candidate."""
    base: PassCost
    candidate: PassCost


class Trial:
    """Decides which setting is in force for the next token, and in the end which is better.

    n_block: tokens of a block. n_settle: tokens after a change of setting that do not count.
    allowance: time that the trial may cost, in tokens. n_learn: first tokens of the candidate that
    do not count either. sure: SURE or SURE_AGAIN. noise: its owner keeps adding tokens.
    """

    def __init__(
        self,
        noise: Noise,
        n_block: int,
        n_settle: int,
        allowance: float,
        n_learn: int = 0,
        sure: float = SURE,
    ) -> None:
        self.is_candidate = False
        """Whether the candidate is in force for the next token."""
        self.verdict: Verdict | None = None
        self._noise = noise
        self._n_block = n_block
        self._n_settle = n_settle
        self._n_learn = n_learn
        self._sure = sure
        self._early: list[float] = []
        self._allowance = allowance
        self._n_skip = 0
        self._n_spent = 0  # all tokens under the candidate
        self._block: list[tuple[float, int]] = []  # (Noise.without_work, tokens)
        self._open: float | None = None  # the value of the round's first block
        self._n_in_round = 0
        self._changes: list[float] = []  # of every complete round
        self._variances: list[float] = []  # of every block's value, from its tokens
        self._windows: tuple[list[PassCost], list[PassCost]] = ([], [])

    @property
    def n_wanted(self) -> int:
        """Tokens until the trial can change, at least 1."""
        n_block = self._n_block - sum(n for _, n in self._block)
        if self.is_candidate and self._n_in_round == 1 and len(self._block) < N_FAR:
            n_block = N_FAR - len(self._block)
        n_wanted = max(self._n_skip, 0) + max(n_block, 1)
        n_early = N_FAR + 1 - len(self._early)
        return min(n_wanted, n_early) if self._is_learning and n_early > 0 else n_wanted

    def add(self, window: PassCost) -> None:
        """Add tokens that were decoded under the setting in force. REQUIRES: no verdict."""
        assert self.verdict is None and window.is_sound
        if self.is_candidate:
            self._n_spent += window.n_token
        if self._n_skip > 0:
            if self._is_learning:
                self._early.append(self._noise.without_work(window))
                self._stop_if_hopeless()
            self._n_skip -= window.n_token
            return
        self._block.append((self._noise.without_work(window), window.n_token))
        self._windows[self.is_candidate].append(window)
        if sum(n for _, n in self._block) >= self._n_block:
            self._end_block()
        elif self.is_candidate and self._n_in_round == 1 and len(self._block) == N_FAR:
            self._stop_if_far()

    def _end_block(self) -> None:
        values = [v for v, _ in self._block]
        value = middle(values)
        if len(values) > 1:
            self._variances.append(statistics.variance(values) / len(values))
        if self._n_in_round == 1:
            assert self._open is not None
            change = value - self._open if self.is_candidate else self._open - value
            self._changes.append(change)
            self._stop_if_far()
            self._block = []
            self._open, self._n_in_round = None, 0
            if self.verdict is None:
                self._judge()
            return  # the next round begins with the last setting of this one
        self._open, self._n_in_round = value, 1
        self._block = []
        self.is_candidate = not self.is_candidate
        self._n_skip = self._n_settle
        if self.is_candidate:
            self._n_skip += self._n_learn
            self._n_learn = 0

    @property
    def _is_learning(self) -> bool:
        """Whether the candidate decodes its first tokens."""
        return self.is_candidate and not self._changes and self._n_skip > 0

    def _stop_if_hopeless(self) -> None:
        """End a bad trial during the candidate's first tokens. The very first does not count."""
        if len(self._early) == N_FAR + 1 and self._open is not None:
            change = statistics.fmean(self._early[1:]) - self._open
            if change > HOPELESS:
                self._end(better=False, change=change, sure=True)

    def _stop_if_far(self) -> None:
        """End a bad trial in its first round. Three tokens can be enough."""
        if not self.is_candidate or self._open is None or len(self._changes) > 1:
            return
        values = [v for v, _ in self._block]
        change = statistics.fmean(values) - self._open
        spread = math.sqrt(2 * statistics.pvariance(values) / len(values)) + self._spread_of_block()
        if change > FAR and change > 4 * spread:
            self._end(better=False, change=change, sure=True)

    def _judge(self) -> None:
        n = len(self._changes)
        change = middle(self._changes)
        error = self._error()
        if n >= N_ROUND_MIN:
            gains = change < -max(MIN_GAIN, self._sure * error)
            if gains and expected_loss(change, error) < LOSS_ADOPT:
                return self._end(better=True, change=change, sure=True)
            if expected_loss(-change, error) < LOSS_KEEP:
                return self._end(better=False, change=change, sure=True)
        if n >= 2 and change > error and change * self._n_spent > self._allowance:
            return self._end(better=False, change=change, sure=False)
        if n * 2 * (self._n_block + self._n_settle) >= N_TOKEN_MAX:
            return self._end(
                better=change < -max(MIN_GAIN, (self._sure - 0.3) * error),
                change=change,
                sure=False,
            )
        return None

    def _error(self) -> float:
        """Return the standard error of the mean of the rounds' changes.

        Few rounds can agree by chance, so N_PRIOR rounds of the usual spread are added.
        """
        n = len(self._changes)
        mean = statistics.fmean(self._changes)
        usual = USUAL * self._noise.spread * math.sqrt(2 / self._n_block)
        squares = sum((c - mean) ** 2 for c in self._changes) + N_PRIOR * usual**2
        spread = math.sqrt(squares / (n - 1 + N_PRIOR))
        return max(spread, math.sqrt(2) * self._spread_of_block()) / math.sqrt(n)

    def _spread_of_block(self) -> float:
        """Return the standard error of a block's value."""
        return math.sqrt(statistics.fmean(self._variances)) if self._variances else 0.0

    def _end(self, *, better: bool, change: float, sure: bool) -> None:
        base, candidate = (total(windows) for windows in self._windows)
        self.verdict = Verdict(better, change, sure, candidate.n_token, base, candidate)

    @property
    def cost(self) -> float:
        """The cost of the trial so far, in tokens."""
        if self.verdict is not None:
            change = self.verdict.change
        else:
            change = middle(self._changes) if self._changes else 0.0
        return max(0.0, math.expm1(min(change, 3.0))) * self._n_spent


def middle(values: Sequence[float]) -> float:
    """Return the mean. Leave out the lowest and highest eighth, rounded, of four or more values."""
    n_out = round(len(values) / 8) if len(values) >= 4 else 0
    ordered = sorted(values)
    return statistics.fmean(ordered[n_out : len(ordered) - n_out])


def expected_loss(change: float, error: float) -> float:
    """Return E[max(0, x)] for x normal with this mean and standard deviation."""
    if error <= 0:
        return max(0.0, change)
    z = change / error
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return error * density + change * (1 + math.erf(z / math.sqrt(2))) / 2
