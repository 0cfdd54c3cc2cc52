"""Decides in which passes of a person's answer others' tokens are computed, too."""

from __future__ import annotations

SPEED_KEPT = 0.8
"""The least share of its speed alone that a person's answer has beside others."""
_AIM = 0.85
"""The share to aim at. It is larger because some costs of other requests are not measured here."""
_PROMPT_SHARE = 8
"""Tokens of a person's prompt for each token of others beside it."""
_SENDING_S = 0.001
"""Seconds that a token of another request costs after its pass: its text is split and sent."""
_STALL_S = 0.5
"""Largest delay of a person's answer by one piece of another request's prompt."""
_PIECE_MIN = 8
_WEIGHT = 0.2
"""Weight of a new measurement in a running mean."""
_N_ALONE = 4
"""Number of passes of the answer alone to measure before other requests may join."""
_N_DISTURBED = 2
"""Passes after a shared one that are no baseline: cores are still busy, experts were evicted."""
_MEASURE_TOKENS = 32
"""Measure a pass of the answer alone again after this many tokens without one."""


class Precedence:
    """Limits the time that other requests take from a person's answer. Times are in seconds.

    Every token of the answer grants others a share of the time that it takes alone, so that the
    answer keeps at least SPEED_KEPT of its speed. Others' tokens go beside the answer's next one
    when the granted time covers the time that they are expected to add.
    """

    def __init__(self) -> None:
        self.n_piece = _PIECE_MIN
        """The tokens of another's prompt that a pass may have."""
        self._extra_s: dict[int, float] = {}  # by the bits of the number of others' tokens
        self.begin()

    def begin(self) -> None:
        """Begin another answer."""
        self._alone_s = 0.0  # a pass with one token of the answer
        self._n_alone = self._n_since = 0  # passes that were measured; tokens since the last one
        self._granted_s = self._wanted_s = 0.0
        self.disturb()

    def disturb(self) -> None:
        """Note that something else takes time before the next pass."""
        self._n_disturbed = _N_DISTURBED  # passes to come that are slower

    @staticmethod
    def n_beside_prompt(n_own: int) -> int:
        """Return how many tokens of others may go beside n_own tokens of the person's prompt.

        A further token adds at most the mean time of those before: experts are shared.
        """
        return n_own // _PROMPT_SHARE

    def allows(self, n_other: int) -> bool:
        """Return whether n_other tokens of other requests may join the pass of the next token."""
        self._wanted_s = self._expected_s(n_other)
        is_known = self._n_alone >= _N_ALONE and self._n_since < _MEASURE_TOKENS
        return is_known and self._wanted_s <= self._granted_s

    def observe(self, n_own: int, n_other: int, n_of_prompt: int, took_s: float) -> None:
        """Observe the time of a pass, measured from the end of the pass before.

        n_own: its tokens of the person's answer, 0 or 1. n_other: its tokens of others,
        n_of_prompt of them of a prompt.
        """
        is_disturbed = self._n_disturbed > 0
        self._n_disturbed = _N_DISTURBED if n_other else max(self._n_disturbed - 1, 0)
        self._n_since += n_own
        if n_other:
            took_s += (n_other - n_of_prompt) * _SENDING_S
            self._learn(n_other, n_of_prompt, took_s - n_own * self._alone_s)
        elif not is_disturbed:
            self._n_alone, self._n_since = self._n_alone + 1, 0
            self._alone_s += (took_s - self._alone_s) * max(_WEIGHT, 1 / self._n_alone)
            took_s = self._alone_s  # no other request slowed it down
        if self._n_alone:
            granted_s = self._granted_s + n_own * self._alone_s / _AIM - took_s
            self._granted_s = min(granted_s, max(self._wanted_s, self._alone_s))

    def _learn(self, n_other: int, n_of_prompt: int, extra_s: float) -> None:
        size, extra_s = n_other.bit_length(), max(extra_s, 0.0)
        before_s = self._extra_s.get(size, extra_s)
        self._extra_s[size] = before_s + (extra_s - before_s) * _WEIGHT
        if extra_s > _STALL_S:
            self.n_piece = max(self.n_piece // 2, _PIECE_MIN)
        elif n_of_prompt >= self.n_piece and extra_s < _STALL_S / 2:
            self.n_piece *= 2

    def _expected_s(self, n_other: int) -> float:
        """Return the most time that n_other tokens of other requests add to a pass."""
        size = n_other.bit_length()
        if size in self._extra_s:
            return self._extra_s[size]
        expected_s = n_other * self._alone_s
        smaller = max((known for known in self._extra_s if known < size), default=0)
        if smaller:
            expected_s = min(expected_s, self._extra_s[smaller] * 2 ** (size - smaller))
        return expected_s
