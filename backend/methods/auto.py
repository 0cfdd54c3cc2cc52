"""The method that measures instead of believing: it starts reactive and keeps what pays.

Independent tests found prefetching to lose 13 to 28 % on a saturated link and to win elsewhere, and
the ranking of evictions to depend on the model. So every alternative is tried against what is in
force (auto_trial.py), what is measured only says what to try first, and each decision is a sentence
with its figures. No clock, no engine: windows in, decisions out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.methods.auto_trial import SURE, SURE_AGAIN, Noise, Trial, Verdict
from backend.methods.cost import PassCost, total

__all__ = ["Auto", "Decision", "Setting"]

PRECISIONS = (0.0, 0.6, 0.85, 0.95)
"""Steps of Setting.min_precision."""
N_WARM = 16
"""Tokens before the first trial: a cold cache says little."""
BLOCK, SETTLE = 6, 1
BLOCK_EVICTION, SETTLE_EVICTION = 16, 4
"""Tokens of a trial's block. Another eviction shows only when some experts have left."""
N_LEARN = 24
"""Tokens that a predictor needs to find out which of its ranks to trust, before it is judged."""
BUDGET, GRANT = 0.01, 4.0
"""Trials may cost this share of all tokens, and that many tokens more."""
N_RETRY, N_RETRY_MAX = 512, 16384
"""Tokens until something refused is tried again, doubled with every refusal."""
N_PER_COST = 400
"""At least so many for every token that its trial cost: what is far worse is tried seldom."""
N_LINE = 64
"""Lines that are remembered."""
WEIGHT = 1 / 64
"""Of one token in the moving averages that show a change."""
JUMPED, TIME_JUMPED = 0.2, 0.4
"""Changes of a share, and of the logarithm of a token's time, after which all is tried again."""
N_CALM = 256
"""Tokens between two such changes, doubled when the last one led to nothing."""
LOOK, LOOK_YOUNG, N_YOUNG = 16, 4, 128
"""Tokens between two looks at whether there is something to try, and that among the first tokens:
looking takes time itself, 3 % of a token of a millisecond."""


@dataclass(frozen=True)
class Setting:
    """What can be changed without losing the cache; the default is the reactive one."""

    prefetch: bool = False
    depth: int = 1
    """Layers ahead."""
    min_precision: float = 0.85
    """Ranks of a forecast that are right less often are not fetched."""
    eviction: str = "lru"


@dataclass(frozen=True)
class Decision:
    """What is to be in force from now on. line: why, "" where a trial merely takes its turns."""

    setting: Setting
    line: str


@dataclass
class _Refusal:
    n_interval: int
    due: int  # in tokens since the start


class Auto:
    """Hears what each token cost and says when another setting is to be in force.

    evictions: names, the first one is what a reactive cache starts with. max_depth: how far ahead
    the predictor forecasts; 0: there is none.
    """

    def __init__(self, evictions: Sequence[str] = ("lru",), max_depth: int = 1) -> None:
        assert evictions
        self.reactive = Setting(eviction=evictions[0])
        self.kept = self.reactive
        """The setting that has proved best so far; `setting` differs during a trial's turns."""
        self.setting = self.reactive
        self.lines: list[str] = []
        self._evictions = tuple(evictions)
        self._max_depth = max_depth
        self._trial: Trial | None = None
        self._candidate = self.reactive
        self._noise = Noise()
        self._noise_of: Setting | None = None  # under which the noise heard its last token
        self._refusals: dict[str, _Refusal] = {}
        self._tried: set[str] = set()  # moves that were refused or undone at some time
        self._n_token = 0
        self._n_since_change, self._n_calm = 0, N_CALM
        self._n_warm = 0
        self._n_prefetching = 0  # tokens in trials
        self._cost = 0.0  # of all trials, in tokens
        self._pending: list[PassCost] = []  # heard, and not yet looked at
        self._n_pending, self._n_wanted = 0, LOOK_YOUNG  # tokens
        self._sums = [0.0] * len(vars(PassCost()))
        self._then: PassCost | None = None  # what was recent when the kept setting was new

    def observe(self, window: PassCost) -> Decision | None:
        """Hear what tokens cost under `setting`; returns what is to be in force from now on."""
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
        """Look, while nothing is being tried, for what could be."""
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

    def restart(self, why: str) -> Decision:
        """Something else is known to have changed, such as the rate: all is to be tried again.

        `why` begins the line: "The cache rate changed".
        """
        if self._trial is not None:
            self._cost += self._trial.cost
        self._trial = None
        self._pending.clear()
        self._n_pending, self._n_wanted = 0, LOOK_YOUNG
        self.setting = self.kept
        self._recent = PassCost()
        self._n_warm = 0
        return Decision(self.kept, self._try_all_again(why))

    @property
    def _recent(self) -> PassCost:
        """What the last tokens under the kept setting cost together, the older the lighter."""
        return PassCost(*self._sums)  # type: ignore[arg-type]

    @_recent.setter
    def _recent(self, window: PassCost) -> None:
        self._sums = [float(value) for value in vars(window).values()]

    # Trials.

    def _next_trial(self) -> Trial | None:
        """Begin with the most promising candidate that is due, if the budget allows for one."""
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
        """Alternatives to the kept setting, the most promising first.

        Measured figures order them, and leave out only what cannot gain anything.
        """
        kept, recent = self.kept, self._recent
        waits = recent.stall > 0.02 or recent.hit_rate < 0.98
        if kept.prefetch:
            yield self.reactive  # first, whenever it is due again
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
        step = min(range(len(PRECISIONS)), key=lambda i: abs(PRECISIONS[i] - kept.min_precision))
        more = [replace(kept, min_precision=PRECISIONS[step - 1])] if step > 0 and has_room else []
        fewer = [replace(kept, min_precision=p) for p in PRECISIONS[step + 1 : step + 2]]
        precisions = [*more, *fewer] if recent.idle > 0.3 else [*fewer, *more]
        yield from [*deeper, *evictions, *precisions] if has_room else [*evictions, *precisions]

    def _go_on(self, trial: Trial, windows: Sequence[PassCost]) -> Decision | None:
        self._learn_noise(windows)
        for window in windows:
            assert trial.verdict is None, "what is decided comes too late"
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

    # Refusals are of moves, not of whole settings: what was refused under one eviction need not be
    # tried at once under the next.

    def _moves(self, old: Setting, new: Setting) -> set[str]:
        """Names of what leads from one setting to the other."""
        differing = [name for name, value in vars(new).items() if getattr(old, name) != value]
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
        """Compare what is measured under the kept setting with what it was when it was chosen."""
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
        return self._say(f"{why}: the alternatives are tried again.")

    def _say(self, line: str) -> str:
        self.lines.append(line)
        del self.lines[:-N_LINE]
        return line


# Sentences.


def _difference(then: PassCost, now: PassCost) -> str:
    """What is no longer as it was, or ""."""
    shares = (
        ("The hit rate", then.hit_rate, now.hit_rate),
        ("The idle share of the drive's time", then.idle, now.idle),
        ("The used share of what is fetched ahead", then.used, now.used),
    )
    for what, before, after in shares:
        if before is not None and after is not None and abs(after - before) > JUMPED:
            return f"{what} went from {_percent(before)} to {_percent(after)}"
    before_ms, after_ms = (1e3 * w.wall_s / w.n_token for w in (then, now))
    if abs(math.log(after_ms / before_ms)) > TIME_JUMPED:
        return f"The time of a token went from {before_ms:.1f} to {after_ms:.1f} ms"
    return ""


def explain(old: Setting, new: Setting, verdict: Verdict) -> str:
    """One sentence: what was decided between two settings, and by which figures."""
    chosen = _sentence(old, new) if verdict.better else _refusal(old, new)
    return f"{chosen}: {_figures(old, new, verdict)}."


def _sentence(old: Setting, new: Setting) -> str:
    """What changes, where the new setting is taken."""
    if old.prefetch != new.prefetch:
        state = "Prefetching is on" if new.prefetch else "Prefetching is off"
        if old.eviction != new.eviction:
            state += f" and {new.eviction} decides what leaves"
        return state
    if old.depth != new.depth:
        return f"Forecasts are fetched {_layers(new.depth)} ahead"
    if old.min_precision != new.min_precision:
        if new.min_precision == 0:
            return "All of a forecast is fetched ahead"
        return (
            f"Only forecasts that prove right {_percent(new.min_precision)} of the time are fetched"
        )
    return f"Now {new.eviction} decides what leaves, instead of {old.eviction}"


def _refusal(old: Setting, new: Setting) -> str:
    """What stays, where it is not."""
    if old.prefetch != new.prefetch:
        return "Prefetching stays on" if old.prefetch else "Prefetching stays off"
    if old.depth != new.depth:
        return f"Forecasts are still fetched {_layers(old.depth)} ahead, not {new.depth}"
    if old.min_precision != new.min_precision:
        return (
            f"Forecasts are still fetched from {_percent(old.min_precision)} precision on, "
            f"not from {_percent(new.min_precision)}"
        )
    return f"Still {old.eviction} decides what leaves, not {new.eviction}"


def _figures(old: Setting, new: Setting, verdict: Verdict) -> str:
    if not verdict.n_token:
        return "broken off, because the first tokens took too long"
    change = math.expm1(verdict.change)
    if round(abs(change), 2) == 0:
        time = "took as long"
    else:
        time = f"took {_percent(abs(change))} {'less' if change < 0 else 'more'} time"
    parts = [f"tried over {verdict.n_token} tokens, a token {time}"]
    base, candidate = verdict.base, verdict.candidate
    if old.eviction != new.eviction:
        parts.append(
            f"{_percent(candidate.hit_rate)} of the experts were there instead of "
            f"{_percent(base.hit_rate)}"
        )
    if new.prefetch or old.prefetch:
        fetching = candidate if new.prefetch else base
        quiet = candidate if not new.prefetch else base
        without = "without it " if old.prefetch != new.prefetch else ""
        parts.append(f"{without}the drive was idle {_percent(quiet.idle)} of the time")
        if fetching.used is not None:
            parts.append(f"{_percent(fetching.used)} of what was fetched ahead was used")
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _layers(n: int) -> str:
    return "one layer" if n == 1 else f"{n} layers"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
