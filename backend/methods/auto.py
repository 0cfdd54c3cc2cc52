"""The method "auto": measure alternatives to the present setting, and keep those that are faster.

It begins with the setting learned before, or with the one that is fastest most often. Independent
tests found that prefetching loses 13 to 28 % on a saturated link and wins elsewhere, and that the
ranking of evictions depends on the model. So every alternative runs in a trial against the setting
in force (auto_trial.py). Measured figures only decide the order of trials. Each decision is a
sentence with its figures. The module has no clock and no engine: costs come in, decisions come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from backend.methods.auto_trial import SURE, SURE_AGAIN, Noise, Trial, Verdict
from backend.methods.cost import PassCost, total
from backend.text import Text, text

__all__ = ["Auto", "Decision", "Learned", "Setting", "first_guess"]

N_WARM = 16
"""Tokens before the first trial, because a cold cache tells little."""
BLOCK, SETTLE = 6, 1
BLOCK_EVICTION, SETTLE_EVICTION = 16, 4
"""Tokens in a block of a trial, and tokens after a change that do not count. Another eviction has
an effect only after some experts were evicted."""
N_LEARN = 24
"""Tokens for a predictor to learn which of its ranks to trust, before it is judged."""
BUDGET, GRANT = 0.01, 4.0
"""Trials may cost BUDGET times all tokens plus GRANT tokens."""
N_RETRY, N_RETRY_MAX = 512, 16384
"""Tokens until a refused move is tried again; doubled with every refusal."""
N_PER_COST = 400
"""Tokens until the next trial for every token that a trial cost, so that bad moves are rare."""
N_LINE = 64
"""Number of lines that are kept."""
WEIGHT = 1 / 64
"""Weight of one token in the moving averages that show a change."""
JUMPED, TIME_JUMPED = 0.2, 0.4
"""A change of a share, or of the logarithm of a token's time, after which all is tried again."""
N_CALM = 256
"""Tokens between two such changes; doubled when the last one changed no setting."""
LOOK, LOOK_YOUNG, N_YOUNG = 16, 4, 128
"""Every LOOK tokens, or LOOK_YOUNG among the first N_YOUNG, the method looks for an alternative.
One look takes 3 % of a token of a millisecond."""


@dataclass(frozen=True)
class Setting:
    """The settings that can change without emptying the cache. The default is reactive."""

    prefetch: bool = False
    """Fetch forecasts for decoded tokens. Prompts always read ahead."""
    depth: int = 1
    """Prefetch distance in layers."""
    eviction: str = "lru"


@dataclass(frozen=True)
class Learned:
    """The settings that the method has learned and begins with the next time."""

    setting: Setting
    refused: Mapping[str, int] = field(default_factory=dict)
    """Moves that did not pay, each with the tokens until it is tried again."""
    spent: float = 0.0
    """The cost of trials beyond what all tokens allowed for, in tokens."""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object, evictions: Sequence[str], max_depth: int) -> Learned | None:
        """Return the inverse of to_json(); None where it is damaged or of another method.

        evictions and max_depth: as Auto's.
        """
        try:
            setting = Setting(**data["setting"])  # type: ignore[index]
            refused = dict(data["refused"])  # type: ignore[index]
            spent = float(data["spent"])  # type: ignore[index]
            is_valid = (
                isinstance(setting.prefetch, bool)
                and (max_depth > 0 or not setting.prefetch)
                and type(setting.depth) is int
                and 1 <= setting.depth <= max(max_depth, 1)
                and setting.eviction in evictions
                and all(type(n) is int and 0 < n <= N_RETRY_MAX for n in refused.values())
                and 0 <= spent < math.inf
            )
        except (KeyError, TypeError, ValueError):
            return None
        return cls(setting, refused, spent) if is_valid else None


def first_guess(evictions: Sequence[str], max_depth: int) -> Learned:
    """Return the setting of the method `outrider`, the fastest in most measurements.

    It reads ahead only what should pay, so the first trials may cost half as much as later ones.
    evictions and max_depth: as Auto's.
    """
    setting = Setting(max_depth > 0, max(max_depth, 1), eviction=evictions[0])
    return Learned(setting, spent=GRANT / 2)


@dataclass(frozen=True)
class Decision:
    """The setting from now on. line: the reason, or "" for a change within a trial."""

    setting: Setting
    line: str


@dataclass
class _Refusal:
    n_interval: int
    due: int  # in tokens since the start


class Auto:
    """Observes the cost of tokens and decides which setting is in force.

    evictions: names; the cache starts with the first. max_depth: how many layers ahead the
    predictor forecasts; 0: there is no predictor. learned: the settings to begin with; None:
    reactive.
    """

    def __init__(
        self,
        evictions: Sequence[str] = ("lru",),
        max_depth: int = 1,
        learned: Learned | None = None,
    ) -> None:
        assert evictions
        self.reactive = Setting(eviction=evictions[0])
        self.kept = self.reactive
        """The best setting so far. `setting` differs from it during a trial."""
        self.setting = self.reactive
        self.lines: list[str] = []
        self._evictions = tuple(evictions)
        self._max_depth = max_depth
        self._trial: Trial | None = None
        self._candidate = self.reactive
        self._noise = Noise()
        self._noise_of: Setting | None = None  # the setting of the noise's last token
        self._refusals: dict[str, _Refusal] = {}
        self._tried: set[str] = set()  # moves that were refused or undone before
        self._n_token = 0
        self._n_since_change, self._n_calm = 0, N_CALM
        self._n_warm = 0
        self._n_prefetching = 0  # tokens in trials
        self._cost = 0.0  # of all trials, in tokens
        self._pending: list[PassCost] = []  # observed, but not processed yet
        self._n_pending, self._n_wanted = 0, LOOK_YOUNG  # tokens
        self._sums = [0.0] * len(vars(PassCost()))
        self._then: PassCost | None = None  # _recent when the kept setting was new
        if learned is not None:
            self._begin_with(learned)

    @property
    def learned(self) -> Learned:
        """The settings that it would begin with the next time."""
        refused = {move: refusal.n_interval for move, refusal in self._refusals.items()}
        return Learned(self.kept, refused, max(0.0, self._cost - BUDGET * self._n_token))

    def _begin_with(self, learned: Learned) -> None:
        self.kept = self.setting = learned.setting
        self._cost = learned.spent + BUDGET * self._n_token
        self._tried |= set(learned.refused)
        self._refusals = {
            move: _Refusal(n, self._n_token + n) for move, n in learned.refused.items()
        }

    def observe(self, window: PassCost) -> Decision | None:
        """Observe the cost of tokens under `setting`. Return a change of the setting, or None."""
        if not window.is_sound:
            return None
        self._pending.append(window)
        self._n_pending += window.n_token
        if self._n_pending < self._n_wanted:
            return None
        pending, self._pending = self._pending, []
        self._n_token += self._n_pending
        self._n_warm += self._n_pending
        self._n_since_change += self._n_pending
        self._n_pending = 0
        decision = self._rest(pending) if self._trial is None else self._go_on(self._trial, pending)
        if self._trial is not None:
            self._n_wanted = self._trial.n_wanted
        else:
            self._n_wanted = LOOK_YOUNG if self._n_warm < N_YOUNG else LOOK
        return decision

    def _learn_noise(self, windows: Sequence[PassCost]) -> None:
        for window in windows:
            self._noise.add(window, same_setting=self.setting == self._noise_of)
            self._noise_of = self.setting

    def _rest(self, windows: Sequence[PassCost]) -> Decision | None:
        """Look for an alternative while no trial runs."""
        if self._n_warm < N_YOUNG:
            self._learn_noise(windows)
        else:
            self._noise_of = None
        window = total(windows)
        keep = (1 - WEIGHT) ** window.n_token
        sums = zip(self._sums, vars(window).values(), strict=True)
        self._sums = [keep * old + float(new) for old, new in sums]
        if self._n_warm < N_WARM:
            return None
        line = self._notice_change()
        self._trial = self._next_trial()
        return Decision(self.setting, line) if line else None

    def restart(self, why: str, learned: Learned | None = None) -> Decision:
        """Try all alternatives again, after another change such as that of the cache rate.

        why: begins the line: "The cache rate changed". learned: go on with this instead.
        """
        if self._trial is not None:
            self._cost += self._trial.cost
        self._trial = None
        self._pending.clear()
        self._n_pending, self._n_wanted = 0, LOOK_YOUNG
        self.setting = self.kept
        self._recent = PassCost()
        self._n_warm = 0
        if learned is None:
            return Decision(self.kept, self._try_all_again(why))
        self._then, self._n_since_change = None, 0
        self._begin_with(learned)
        return Decision(self.kept, "")

    @property
    def _recent(self) -> PassCost:
        """The cost of the last tokens under the kept setting, weighted by age."""
        return PassCost(*self._sums)  # type: ignore[arg-type]

    @_recent.setter
    def _recent(self, window: PassCost) -> None:
        self._sums = [float(value) for value in vars(window).values()]

    # Trials.

    def _next_trial(self) -> Trial | None:
        """Begin a trial of the first candidate that is due, if the budget allows for one."""
        allowance = GRANT + BUDGET * self._n_token - self._cost
        if allowance <= GRANT / 4:
            return None
        for candidate in self._candidates():
            if candidate != self.kept and self._is_due(candidate):
                self._candidate = candidate
                sure = SURE_AGAIN if self._moves(self.kept, candidate) & self._tried else SURE
                if replace(candidate, eviction=self.kept.eviction) == self.kept:
                    block = BLOCK_EVICTION, SETTLE_EVICTION
                    return Trial(self._noise, *block, allowance, sure=sure)
                n_learn = max(0, N_LEARN - self._n_prefetching) if candidate.prefetch else 0
                return Trial(self._noise, BLOCK, SETTLE, allowance, n_learn, sure)
        return None

    def _candidates(self) -> Iterator[Setting]:
        """Yield alternatives to the kept setting, the most promising first.

        Measured figures decide the order. Only alternatives that cannot gain are left out.
        """
        kept, recent = self.kept, self._recent
        waits = recent.stall > 0.02 or recent.hit_rate < 0.98
        if kept.prefetch:
            yield self.reactive  # always first
            yield replace(kept, prefetch=False)
        if not waits:
            return
        has_room = recent.idle > 0.1
        evictions = [replace(kept, eviction=e) for e in self._evictions]
        if not kept.prefetch:
            can = self._max_depth > 0 and recent.idle > 0.03
            on = [replace(kept, prefetch=True)] if can else []
            yield from [*on, *evictions] if has_room else [*evictions, *on]
            return
        deeper = []
        if kept.depth < self._max_depth and has_room:
            deeper.append(replace(kept, depth=kept.depth + 1))
        if kept.depth > 1:
            deeper.append(replace(kept, depth=kept.depth - 1))
        yield from [*deeper, *evictions] if has_room else evictions

    def _go_on(self, trial: Trial, windows: Sequence[PassCost]) -> Decision | None:
        self._learn_noise(windows)
        for window in windows:
            assert trial.verdict is None, "the trial is over"
            trial.add(window)
        line = self._conclude(trial, trial.verdict) if trial.verdict is not None else ""
        setting = self._candidate if self._trial and trial.is_candidate else self.kept
        if self.setting.prefetch:
            self._n_prefetching += sum(w.n_token for w in windows)
        if setting == self.setting and not line:
            return None
        self.setting = setting
        return Decision(setting, line)

    def _conclude(self, trial: Trial, verdict: Verdict) -> str:
        self._trial = None
        self._cost += trial.cost
        old, new = self.kept, self._candidate
        line = explain(old, new, verdict)
        if verdict.better:
            self.kept = new
            self._n_calm = N_CALM
            self._refuse(self._moves(new, old), N_RETRY)
            self._recent = verdict.candidate
        else:
            n_sure = max(N_RETRY, round(N_PER_COST * trial.cost))
            self._refuse(self._moves(old, new), n_sure if verdict.sure else N_RETRY // 2)
            self._recent = verdict.base
        self._then = None
        return self._say(line)

    # A refusal is of a move, not of a whole setting: a move that was refused under one eviction is
    # not tried again at once under the next.

    def _moves(self, old: Setting, new: Setting) -> set[str]:
        """Return the names of the moves from one setting to the other."""
        counts = vars(new) if old.prefetch and new.prefetch else ("prefetch", "eviction")
        differing = [name for name in counts if getattr(old, name) != getattr(new, name)]
        moves = (
            {f"{name} {getattr(new, name)}" for name in differing} if len(differing) == 1 else set()
        )
        return moves | ({"reactive"} if new == self.reactive else set())

    def _is_due(self, candidate: Setting) -> bool:
        refusals = [self._refusals.get(move) for move in self._moves(self.kept, candidate)]
        return all(refusal is None or refusal.due <= self._n_token for refusal in refusals)

    def _refuse(self, moves: set[str], n_first: int) -> None:
        self._tried |= moves
        for move in moves:
            last = self._refusals.get(move)
            n = min(max(last.n_interval * 2 if last else 0, n_first), N_RETRY_MAX)
            self._refusals[move] = _Refusal(n, self._n_token + n)

    # Changes.

    def _notice_change(self) -> str:
        """Compare the recent cost of the kept setting with its cost when it was chosen."""
        now, then = self._recent, self._then
        if then is None:
            self._then = now if now.n_token >= 0.8 / WEIGHT else None
            return ""
        why = _difference(then, now) if self._n_since_change >= self._n_calm else ""
        if not why:
            return ""
        self._n_calm *= 2
        return self._try_all_again(why)

    def _try_all_again(self, why: str) -> str:
        self._refusals.clear()
        self._then = None
        self._n_since_change = 0
        return self._say(text("auto.again", why=why))

    def _say(self, line: str) -> str:
        self.lines.append(line)
        del self.lines[:-N_LINE]
        return line


# Sentences.


def _difference(then: PassCost, now: PassCost) -> str:
    """Return half a sentence about a figure that changed, or ""."""
    if _jumped(then.hit_rate, now.hit_rate):
        return text("auto.hits_changed", before=then.hit_rate, after=now.hit_rate)
    if _jumped(then.idle, now.idle):
        return text("auto.idle_changed", before=then.idle, after=now.idle)
    if then.used is not None and now.used is not None and _jumped(then.used, now.used):
        return text("auto.used_changed", before=then.used, after=now.used)
    before_ms, after_ms = (1e3 * w.wall_s / w.n_token for w in (then, now))
    if abs(math.log(after_ms / before_ms)) > TIME_JUMPED:
        return text("auto.time_changed", before=f"{before_ms:.1f}", after=f"{after_ms:.1f}")
    return ""


def _jumped(before: float, after: float) -> bool:
    return abs(after - before) > JUMPED


def explain(old: Setting, new: Setting, verdict: Verdict) -> str:
    """Return one sentence: the decision between two settings, and its figures."""
    chosen = _sentence(old, new) if verdict.better else _refusal(old, new)
    return text("auto.decided", chosen=chosen, figures=_figures(old, new, verdict))


def _sentence(old: Setting, new: Setting) -> str:
    """Return the change, for a new setting that is adopted."""
    if old.prefetch != new.prefetch:
        state = text("auto.prefetch_on") if new.prefetch else text("auto.prefetch_off")
        if old.eviction == new.eviction:
            return state
        return text("auto.and_eviction", state=state, eviction=new.eviction)
    if old.depth != new.depth:
        if new.depth == 1:
            return text("auto.one_layer")
        return text("auto.layers", n=new.depth)
    return text("auto.eviction", new=new.eviction, old=old.eviction)


def _refusal(old: Setting, new: Setting) -> str:
    """Return the setting that stays when a new one is refused."""
    if old.prefetch != new.prefetch:
        return text("auto.prefetch_stays_on") if old.prefetch else text("auto.prefetch_stays_off")
    if old.depth != new.depth:
        if old.depth == 1:
            return text("auto.still_one_layer", new=new.depth)
        return text("auto.still_layers", old=old.depth, new=new.depth)
    return text("auto.still_eviction", old=old.eviction, new=new.eviction)


def _figures(old: Setting, new: Setting, verdict: Verdict) -> str:
    if not verdict.n_token:
        return text("auto.broken_off")
    change, n = math.expm1(verdict.change), verdict.n_token
    if round(abs(change), 2) == 0:
        figures = text("auto.as_long", n=n)
    elif change < 0:
        figures = text("auto.less_time", n=n, share=-change)
    else:
        figures = text("auto.more_time", n=n, share=change)
    parts: list[Text] = [figures]
    base, candidate = verdict.base, verdict.candidate
    if old.eviction != new.eviction:
        parts.append(text("auto.resident", now=candidate.hit_rate, before=base.hit_rate))
    if new.prefetch or old.prefetch:
        fetching = candidate if new.prefetch else base
        quiet = candidate if not new.prefetch else base
        if old.prefetch != new.prefetch:
            parts.append(text("auto.idle_without", idle=quiet.idle))
        else:
            parts.append(text("auto.idle", idle=quiet.idle))
        if fetching.used is not None:
            parts.append(text("auto.used", used=fetching.used))
    while len(parts) > 2:
        parts[:2] = [text("auto.comma", first=parts[0], next=parts[1])]
    return text("words.and", first=parts[0], last=parts[1]) if len(parts) > 1 else parts[0]
