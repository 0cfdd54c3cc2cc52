"""One setting against another, by measurement: blocks of tokens under each, in turn.

Tokens differ in work, and a machine's speed wanders. So the blocks follow each other as A B B A
A B B A ..., which cancels what drifts steadily; the logarithm of a token's time is what counts, so
that differences are ratios, less what is explained by the token's work (Noise); and the largest and
smallest values of a block and of the rounds are left out. The trial ends when committing to the
better-looking side would cost little even if it were the wrong one (the expected loss, as in
Bayesian tests of two variants), or when the tokens that it may cost are spent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from backend.methods.cost import PassCost, total

N_ROUND_MIN = 3
N_TOKEN_MAX = 280
"""Tokens of a trial, after which what looks better is taken."""
MIN_GAIN = 0.015
"""A setting that saves less than this share of a token's time is not worth a change."""
LOSS_ADOPT = 0.006
LOSS_KEEP = 0.006
"""The expected loss, as a share of a token's time, at which a change or its refusal is settled."""
SURE, SURE_AGAIN = 1.3, 1.8
"""A gain is at least this many times its error, so that equals do not take turns for ever; the
second is for what was tried before and not kept."""
N_PRIOR = 3
"""Rounds of a usual spread that count as seen before the first."""
USUAL = 1.5
"""Spread of a round's change to that of independent tokens: neighbours are alike."""
FAR, N_FAR = 0.25, 3
"""A trial ends at once when so many tokens of the candidate are this much slower, beyond doubt."""
HOPELESS = 0.6
"""Likewise of a candidate that may still have to learn."""


class Noise:
    """How a token's time depends on its work, and how it varies otherwise.

    Learned from differences between tokens that follow each other under one setting.
    """

    MEMORY = 1 / 256  # weight of one difference

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._work = 0.0  # the mean, as a moving average
        self._xx = self._xy = self._yy = self._n = 0.0

    def add(self, window: PassCost, *, same_setting: bool) -> None:
        """Hear a token, and whether the one before was decoded under the same setting."""
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
        """The logarithm of seconds per token, had the tokens had average work."""
        x, y = float(window.work) / window.n_token, math.log(window.wall_s / window.n_token)
        return y - self._slope * (x - self._work)

    @property
    def spread(self) -> float:
        """Standard deviation of without_work() from token to token."""
        if self._n < 8:
            return 0.4
        rest = self._yy - self._slope * self._xy
        return math.sqrt(max(rest, 0.0) / self._n / 2)


@dataclass(frozen=True)
class Verdict:
    """How a trial ended. change: of a token's time, as a logarithm; negative is faster."""

    better: bool
    change: float
    sure: bool
    """False when it ended because of its length or its cost."""
    n_token: int
    """Measured under the candidate."""
    base: PassCost
    candidate: PassCost


class Trial:
    """Tells which setting is to be in force next, and in the end which one is better.

    n_block: tokens of a block; n_settle: tokens after a change of setting that do not count;
    allowance: tokens' worth of time that the trial may cost; n_learn: of the candidate's first
    tokens, those that do not count either; sure: SURE or SURE_AGAIN. `noise` goes on learning
    elsewhere.
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
        """Whether the candidate is to be in force for the next token."""
        self.verdict: Verdict | None = None
        self._noise = noise
        self._n_block = n_block
        self._n_settle = n_settle
        self._n_learn = n_learn
        self._sure = sure
        self._early: list[float] = []
        self._allowance = allowance
        self._n_skip = 0
        self._n_spent = 0  # tokens under the candidate, those that do not count included
        self._block: list[tuple[float, int]] = []  # (Noise.without_work, tokens)
        self._open: float | None = None  # the value of the round's first block
        self._n_in_round = 0
        self._changes: list[float] = []  # of every whole round
        self._variances: list[float] = []  # of the value of every block, from its own tokens
        self._windows: tuple[list[PassCost], list[PassCost]] = ([], [])

    @property
    def n_wanted(self) -> int:
        """Tokens until something can change, at least 1."""
        n_block = self._n_block - sum(n for _, n in self._block)
        if self.is_candidate and self._n_in_round == 1 and len(self._block) < N_FAR:
            n_block = N_FAR - len(self._block)
        n_wanted = max(self._n_skip, 0) + max(n_block, 1)
        n_early = N_FAR + 1 - len(self._early)
        return min(n_wanted, n_early) if self._is_learning and n_early > 0 else n_wanted

    def add(self, window: PassCost) -> None:
        """Tokens were decoded under the setting that was to be in force. REQUIRES: no verdict."""
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
            return  # the next round begins with the setting that ended this one
        self._open, self._n_in_round = value, 1
        self._block = []
        self.is_candidate = not self.is_candidate
        self._n_skip = self._n_settle
        if self.is_candidate:
            self._n_skip += self._n_learn
            self._n_learn = 0

    @property
    def _is_learning(self) -> bool:
        """Whether these are the candidate's first tokens."""
        return self.is_candidate and not self._changes and self._n_skip > 0

    def _stop_if_hopeless(self) -> None:
        """End a trial among the candidate's first tokens, the very first one apart."""
        if len(self._early) == N_FAR + 1 and self._open is not None:
            change = statistics.fmean(self._early[1:]) - self._open
            if change > HOPELESS:
                self._end(better=False, change=change, sure=True)

    def _stop_if_far(self) -> None:
        """End a bad trial in its first round: three tokens can be enough."""
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
        """How far the mean of the rounds' changes lies from the truth, typically.

        Few rounds can agree by chance, so a usual spread counts as some rounds more.
        """
        n = len(self._changes)
        mean = statistics.fmean(self._changes)
        usual = USUAL * self._noise.spread * math.sqrt(2 / self._n_block)
        squares = sum((c - mean) ** 2 for c in self._changes) + N_PRIOR * usual**2
        spread = math.sqrt(squares / (n - 1 + N_PRIOR))
        return max(spread, math.sqrt(2) * self._spread_of_block()) / math.sqrt(n)

    def _spread_of_block(self) -> float:
        """How far a block's value lies from the truth, typically."""
        return math.sqrt(statistics.fmean(self._variances)) if self._variances else 0.0

    def _end(self, *, better: bool, change: float, sure: bool) -> None:
        base, candidate = (total(windows) for windows in self._windows)
        self.verdict = Verdict(better, change, sure, candidate.n_token, base, candidate)

    @property
    def cost(self) -> float:
        """What the trial has cost so far, in tokens."""
        if self.verdict is not None:
            change = self.verdict.change
        else:
            change = middle(self._changes) if self._changes else 0.0
        return max(0.0, math.expm1(min(change, 3.0))) * self._n_spent


def middle(values: Sequence[float]) -> float:
    """The mean without the lowest and highest eighth, rounded, of at least four values."""
    n_out = round(len(values) / 8) if len(values) >= 4 else 0
    ordered = sorted(values)
    return statistics.fmean(ordered[n_out : len(ordered) - n_out])


def expected_loss(change: float, error: float) -> float:
    """E[max(0, x)] for x normal with this mean and standard deviation."""
    if error <= 0:
        return max(0.0, change)
    z = change / error
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return error * density + change * (1 + math.erf(z / math.sqrt(2))) / 2
