"""The evictions, simple and slow, as a reference for the shipped ones.

Written from the papers (ProMoE, sections 6.1 and 7.1; MoEpic, Eq. 4; MoE-Infinity, Algorithm 1).
This project's own evictions are written from the contracts in their headers. Each score is computed
from the whole history.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

Row = list[int]
"""The experts of one token."""


@dataclass
class Use:
    """A token that a layer routed, with the number of its pass."""

    token: int
    n_pass: int
    experts: Row
    strengths: list[float]


def strengths_of(weights: list[float], n: int) -> list[float]:
    """Return the router's weights scaled to a sum of n, or all 1 if unknown or not finite."""
    total = sum(weights) if all(w >= 0 for w in weights) else math.nan
    if not weights or not math.isfinite(total) or total <= 0:
        return [1.0] * n
    return [w * n / total for w in weights]


class Eviction:
    """Base of the evictions: keep all tokens of all layers."""

    def __init__(self, n_layer: int, n_expert: int, **numbers: float) -> None:
        self.n_layer, self.n_expert, self.numbers = n_layer, n_expert, numbers
        self.uses: list[list[Use]] = [[] for _ in range(n_layer)]
        self.n_pass = 0
        self.layer_passes = [0] * n_layer
        self.end = 0
        """One past the last token of the pass."""
        self.begin = 0
        """The first token of the pass."""
        self.expected: list[set[int]] = [set() for _ in range(n_layer)]

    def number(self, name: str, otherwise: float) -> float:
        return self.numbers.get(name, otherwise)

    def request_began(self) -> None:
        pass

    def pass_began(self) -> None:
        self.n_pass += 1
        self.begin = self.end

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        self.layer_passes[layer] += 1
        if self.end == self.begin:
            self.end = self.begin + len(rows)
        for i, row in enumerate(rows):
            strengths = strengths_of(weights[i] if weights else [], len(row))
            token = self.end - len(rows) + i
            self.uses[layer].append(Use(token, self.layer_passes[layer], row, strengths))
        self.expected[layer] = set()

    def forecast(self, layer: int, experts: list[int], scores: list[float]) -> None:
        self.expected[layer] = set(experts)

    def disappointed(self, layer: int, expert: int) -> None:
        self.expected[layer].discard(expert)

    def keep(self, layer: int, expert: int) -> float:
        raise NotImplementedError


class Lru(Eviction):
    """Evict the expert touched longest ago. A forecast touches; a useless prefetch is evicted."""

    def __init__(self, n_layer: int, n_expert: int) -> None:
        super().__init__(n_layer, n_expert)
        self.touched: list[tuple[int, int]] = []

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        super().routed(layer, rows, weights)
        self.touched += [(layer, e) for row in rows for e in row]

    def forecast(self, layer: int, experts: list[int], scores: list[float]) -> None:
        self.touched += [(layer, e) for e in experts]

    def disappointed(self, layer: int, expert: int) -> None:
        self.touched = [t if t != (layer, expert) else (-1, -1) for t in self.touched]

    def keep(self, layer: int, expert: int) -> float:
        return max((i + 1 for i, t in enumerate(self.touched) if t == (layer, expert)), default=0)


class Lfu(Eviction):
    """Score: tokens that chose the expert, each halved after half_life passes."""

    def __init__(self, n_layer: int, n_expert: int, **numbers: float) -> None:
        super().__init__(n_layer, n_expert, **numbers)
        self.counted: list[tuple[int, int, int]] = []

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        self.counted += [(self.n_pass, layer, e) for row in rows for e in row]

    def keep(self, layer: int, expert: int) -> float:
        half_life = self.number("half_life", 0)
        ages = [self.n_pass - p for p, where, e in self.counted if (where, e) == (layer, expert)]
        return sum(0.5 ** (age / half_life) if half_life else 1.0 for age in ages)


class Lcp(Eviction):
    """MoEpic, Eq. 4: mu * rho ** (nu / omega), nu tokens of the layer after the last use."""

    def keep(self, layer: int, expert: int) -> float:
        tokens = [expert in use.experts for use in self.uses[layer]]
        mu = sum(tokens)
        if mu == 0:
            return 0.0
        nu = tokens[::-1].index(True)
        return float(mu * self.number("rho", 0.25) ** (nu / self.number("omega", 128)))


class Eam(Eviction):
    """Score of MoE-Infinity, Algorithm 1, lines 11 and 12; a forecast is the predicted EAM."""

    def __init__(self, n_layer: int, n_expert: int, **numbers: float) -> None:
        super().__init__(n_layer, n_expert, **numbers)
        self.request_began()

    def request_began(self) -> None:
        self.own = [[0.0] * self.n_expert for _ in range(self.n_layer)]
        self.rows: list[list[float] | None] = [None] * self.n_layer

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        for row in rows:
            for e in row:
                self.own[layer][e] += 1

    def forecast(self, layer: int, experts: list[int], scores: list[float]) -> None:
        row = [0.0] * self.n_expert
        for i, e in enumerate(experts):
            score = scores[i] if scores else 1.0
            row[e] = score if math.isfinite(score) and score > 0 else 0.0
        self.rows[layer] = row if sum(row) > 0 else None

    def keep(self, layer: int, expert: int) -> float:
        peam = self.rows[layer] or self.own[layer]
        n_token = sum(peam)
        p = peam[expert] / n_token if n_token else 0.0
        return (p + self.number("epsilon", 1e-6)) * (1 - layer / self.n_layer)


class Static(Eviction):
    """Score: popularity in a table, or in the first tokens."""

    def __init__(
        self,
        n_layer: int,
        n_expert: int,
        popularity: list[list[float]] | None = None,
        **numbers: float,
    ) -> None:
        super().__init__(n_layer, n_expert, **numbers)
        self.popularity = popularity

    def keep(self, layer: int, expert: int) -> float:
        if self.popularity is not None:
            return self.popularity[layer][expert]
        n_token, count = 0, 0
        for n_pass in sorted({use.n_pass for use in self.uses[layer]}):
            if n_token >= self.number("warmup", 64):
                break
            tokens = [use for use in self.uses[layer] if use.n_pass == n_pass]
            n_token += len(tokens)
            count += sum(use.experts.count(expert) for use in tokens)
        return count


class Random(Eviction):
    """Score: a hash (splitmix64's finaliser) of seed, expert and number of passes that used it."""

    def keep(self, layer: int, expert: int) -> float:
        mask = 2**64 - 1

        def mixed(x: int) -> int:
            x = (x + 0x9E3779B97F4A7C15) & mask
            x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
            x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
            return x ^ (x >> 31)

        n_need = len({use.n_pass for use in self.uses[layer] if expert in use.experts})
        seed = mixed(int(self.number("seed", 0)))
        who = mixed((seed + (layer << 32) + expert) & mask)
        return mixed((who + n_need) & mask) >> 11


class Belady(Eviction):
    """Evict the expert whose next use is last, or that has none."""

    def __init__(self, n_layer: int, n_expert: int, future: list[list[list[Row]]]) -> None:
        super().__init__(n_layer, n_expert)
        self.future = [
            (n_pass, layer, {e for row in rows for e in row})
            for n_pass, layers in enumerate(future)
            for layer, rows in enumerate(layers)
        ]
        self.now = (-1, n_layer)

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        self.now = (self.n_pass - 1, layer)

    def keep(self, layer: int, expert: int) -> float:
        for n_pass, where, experts in self.future:
            if (n_pass, where) > self.now and where == layer and expert in experts:
                return -(n_pass * self.n_layer + layer)
        return -math.inf


BONUS = 1000.0
"""Bonus of a forecast expert, more than any rate of use."""


class Decayed(Eviction):
    """Score: recent rate of use, as a mix of a fast and a slow decay."""

    FAST, SLOW, SLOW_SHARE = 0.8, 0.97, 0.9

    def __init__(self, n_layer: int, n_expert: int, **numbers: float) -> None:
        super().__init__(n_layer, n_expert, **numbers)
        self.extra: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        """By (layer, expert): (pass, amount)."""

    def keep(self, layer: int, expert: int) -> float:
        amounts: dict[int, float] = {}
        for use in self.uses[layer]:
            if expert in use.experts:
                for e, strength in zip(use.experts, use.strengths, strict=True):
                    if e == expert:
                        amounts[use.n_pass] = amounts.get(use.n_pass, 0.0) + strength
        credit = {n_pass: amount**0.25 for n_pass, amount in amounts.items()}
        for n_pass, amount in self.extra[layer, expert]:
            credit[n_pass] = credit.get(n_pass, 0.0) + amount
        fast = self.number("fast", self.FAST)
        slow = self.number("slow", self.SLOW)
        share = self.number("slow_share", self.SLOW_SHARE)
        rate = 0.0
        for n_pass, amount in credit.items():
            age = self.layer_passes[layer] - n_pass
            rate += amount * (1 - share) * (1 - fast) * fast**age
            rate += amount * share * (1 - slow) * slow**age
        return rate + (BONUS if expert in self.expected[layer] else 0.0)


class Recall(Decayed):
    """Score: uses that followed similar moments, and the recent rate of use."""

    FAST, SLOW, SLOW_SHARE = 0.75, 0.95, 0.9
    PERSISTENCE = 0.65
    DEEPEST = 5.0
    HORIZON = 6

    def __init__(self, n_layer: int, n_expert: int, **numbers: float) -> None:
        super().__init__(n_layer, n_expert, **numbers)
        self.at: list[dict[int, Use]] = [{} for _ in range(n_layer)]
        self.known: dict[tuple[int, int, int], float] = {}
        self.steps: list[tuple[int, int]] = []
        """(token, layer) in routing order, of one continuous text."""
        self.matches: dict[int, float] = {}
        self.reached: set[int] = set()
        self.answers: dict[int, tuple[tuple[int, int], dict[int, float]]] = {}

    def request_began(self) -> None:
        self.steps = []

    def pass_began(self) -> None:
        super().pass_began()
        self.reached = set()

    def routed(self, layer: int, rows: list[Row], weights: list[list[float]]) -> None:
        if self.end == self.begin and len(rows) > 1:
            self.steps = []
        super().routed(layer, rows, weights)
        self.reached.add(layer)
        if rows:
            for use in self.uses[layer][-len(rows) :]:
                self.at[layer][use.token] = use
            self.steps.append((self.end - 1, layer))
        self.match()
        for token, share in self.matches.items():
            for e in self.experts(layer, token):
                amount = self.number("alike", 0.25) * share
                self.extra[layer, e].append((self.layer_passes[layer], amount))

    def in_common(self, layer: int, a: int, b: int) -> float:
        """Return the weighted share of experts that two tokens have in common."""
        if (layer, a, b) not in self.known:
            self.known[layer, a, b] = self.compare(layer, a, b)
        return self.known[layer, a, b]

    def compare(self, layer: int, a: int, b: int) -> float:
        if a not in self.at[layer] or b not in self.at[layer]:
            return 0.0
        one, other = self.at[layer][a], self.at[layer][b]
        common = 0.0
        for e, strength in zip(one.experts, one.strengths, strict=True):
            if e in other.experts:
                common += math.sqrt(strength * other.strengths[other.experts.index(e)])
        return common / len(one.experts)

    def match(self) -> None:
        present = self.end - 1
        window = int(self.number("window", 2048))
        sharpness = self.number("sharpness", 15)
        likeness: dict[int, float] = {}
        for token in range(max(0, present - window + 1), present):
            weight = 1 - self.PERSISTENCE
            likeness[token] = 0.0
            for when, layer in self.steps[:-60:-1]:
                likeness[token] += weight * self.in_common(layer, when, when - (present - token))
                weight *= self.PERSISTENCE
        best = max(likeness.values(), default=0.0)
        weights = {
            token: math.exp(sharpness * (value - best))
            for token, value in likeness.items()
            if value > 0 and value >= best - self.DEEPEST / sharpness
        }
        total = sum(weights.values())
        self.matches = {token: weight / total for token, weight in weights.items()}

    def experts(self, layer: int, token: int) -> Row:
        return self.at[layer][token].experts if token in self.at[layer] else []

    def keep(self, layer: int, expert: int) -> float:
        step = 2 if layer in self.reached else 1 if self.reached else 0
        state = (self.n_pass, step)
        if layer not in self.answers or self.answers[layer][0] != state:
            self.answers[layer] = (state, self.followed(layer, 0 if step == 1 else 1))
        followed = self.answers[layer][1].get(expert, 0.0)
        return super().keep(layer, expert) + self.number("follow", 2.0) * followed

    def followed(self, layer: int, nearest: int) -> dict[int, float]:
        """Return the layer's expert uses after moments similar to the present one."""
        reach = self.number("reach", 0.45)
        sums: dict[int, float] = {}
        for token, share in self.matches.items():
            for i in range(self.HORIZON):
                if token + nearest + i < self.end:
                    for e in self.experts(layer, token + nearest + i):
                        sums[e] = sums.get(e, 0.0) + share * (1 - reach) * reach**i
        return sums
