"""The predictors, simple and slow, written from their papers, as a reference for the shipped ones.

Events are those of the shipped predictors. They return `Scores`: a layer's score of each expert,
-inf for experts that are not forecast. Computation is in double precision, and the memory of past
events is unlimited unless a setting limits it.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Ids = list[list[int]]  # [token][n_expert_used]

MAX_ASKED = 32  # maximum number of a pass's tokens that vote


@dataclass(frozen=True)
class Scores:
    """The forecast of a layer."""

    layer: int
    values: Values  # [n_expert]
    voters: tuple[Values, ...] = ()
    """Scores of each voting token if there are several. The forecast has the best of each."""
    n_token: int = 1
    """The forecast has n_token times the experts of one token."""


@dataclass(frozen=True)
class Pass:
    """One pass of a trace. A layer may route only the last tokens."""

    phase: str  # "prefill" or "decode"
    tokens: list[int]
    ids: list[Ids]  # [layer]
    weights: list[list[list[float]]]  # [layer][token][n_expert_used]
    inputs: list[Values]  # [layer] of [token, n_embd]
    begins_request: bool = False


@dataclass
class Sizes:
    n_layer: int
    n_expert: int
    n_expert_used: int
    n_embd: int = 0
    routers: list[Values] = field(default_factory=list)
    future: list[Pass] = field(default_factory=list)


def positive(values: Values) -> Values:
    return np.where(values > 0, values, -math.inf)


def next_layer(layer: int, stride: int, n_layer: int) -> tuple[int, bool]:
    """Return the layer `stride` later, and whether it belongs to the next token."""
    return (layer + stride) % n_layer, layer + stride >= n_layer


def asked_of(n_token: int) -> list[int]:
    """Return the voting tokens: all, or MAX_ASKED evenly spaced ones with the last."""
    n_asked = min(n_token, MAX_ASKED)
    return [n_token - 1 - i * n_token // n_asked for i in range(n_asked)]


def vote(scores: list[Values]) -> Values:
    """Return one token's scores, or the sum of exp(score - best) over several tokens."""
    if len(scores) == 1:
        return scores[0]
    return np.sum([np.exp(s - s.max()) for s in scores], axis=0)


def poll(layer: int, scores: list[Values]) -> Scores:
    """Return the joint forecast of one or several tokens."""
    return Scores(layer, vote(scores), tuple(scores) if len(scores) > 1 else ())


class Predictor:
    """Base of the predictors: forecast nothing."""

    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        self.sizes, self.settings = sizes, settings
        self.passes: list[Pass] = []  # of this request; the present one is last

    def request_began(self) -> None:
        self.passes = []

    def pass_began(self, now: Pass) -> list[Scores]:
        self.passes.append(now)
        return []

    def routed(self, layer: int) -> list[Scores]:
        """Observe the routing of a layer in the present pass."""
        return []

    def gate_seen(self, layer: int) -> list[Scores]:
        return []


class PreviousToken(Predictor):
    def routed(self, layer: int) -> list[Scores]:
        ids, weights = self.passes[-1].ids[layer], self.passes[-1].weights[layer]
        if not ids:
            return []
        values = np.full(self.sizes.n_expert, -math.inf)
        for expert, weight in zip(ids[-1], weights[-1], strict=True):
            values[expert] = weight
        return [Scores(layer, values)]


class Popularity(Predictor):
    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        super().__init__(sizes, **settings)
        zero = np.zeros((sizes.n_layer, sizes.n_expert))
        self.counts = np.array(settings.get("counts", zero), np.float64)

    def pass_began(self, now: Pass) -> list[Scores]:
        super().pass_began(now)
        return [Scores(i, positive(row.copy())) for i, row in enumerate(self.counts) if row.any()]

    def routed(self, layer: int) -> list[Scores]:
        for ids in self.passes[-1].ids[layer]:
            self.counts[layer, ids] += self.settings.get("online", 1)
        return []


class TokenTable(Predictor):
    """P(expert | layer, token id), smoothed by popularity."""

    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.all = np.zeros((sizes.n_layer, sizes.n_expert))
        self.of: OrderedDict[int, Values] = OrderedDict()  # by token; the token seen last is last
        for token, counts in zip(
            settings.get("tokens", ()), settings.get("counts", ()), strict=True
        ):
            self.of[int(token)] = np.array(counts, np.float64)
            self.all += counts

    def see(self, token: int) -> None:
        self.of.setdefault(token, np.zeros_like(self.all))
        self.of.move_to_end(token)
        while len(self.of) > self.settings.get("capacity", math.inf):
            self.of.popitem(last=False)

    def pass_began(self, now: Pass) -> list[Scores]:
        super().pass_began(now)
        a = self.settings.get("smoothing", 1.0)
        if self.settings.get("online", 1):
            for token in now.tokens:
                self.see(token)
        forecasts = []
        for layer in range(self.sizes.n_layer if now.tokens else 0):
            sum_of_all = self.all[layer].sum()
            share = self.all[layer] / sum_of_all if sum_of_all else np.zeros(self.sizes.n_expert)
            values = np.zeros(self.sizes.n_expert)
            for i in asked_of(len(now.tokens)):
                known = self.of.get(now.tokens[i])
                counts = np.zeros(self.sizes.n_expert) if known is None else known[layer]
                values += (counts + a * share) / (counts.sum() + a)
            if values.any():
                forecasts.append(Scores(layer, positive(values)))
        return forecasts

    def routed(self, layer: int) -> list[Scores]:
        now = self.passes[-1]
        if self.settings.get("online", 1) and now.ids[layer] and now.tokens:
            for token, ids in zip(now.tokens[-len(now.ids[layer]) :], now.ids[layer], strict=True):
                self.all[layer, ids] += 1
                if token in self.of:
                    self.of[token][layer, ids] += 1
        return []


class Correlation(Predictor):
    """Klotski, section 6.2: a table of the experts that followed each path of experts."""

    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.table: dict[tuple[int, ...], Values] = defaultdict(lambda: np.zeros(sizes.n_expert))
        counts = settings.get("counts")
        for layer in range(sizes.n_layer if counts is not None else 0):
            for expert in range(sizes.n_expert):
                if np.any(counts[layer][expert]):
                    self.table[layer, expert] += counts[layer][expert]

    def choice(self, number: int, layer: int, from_end: int) -> list[int] | None:
        """Return the experts of a token; from_end counts from the end of the pass."""
        ids = self.passes[number].ids[layer]
        return ids[-1 - from_end] if from_end < len(ids) else None

    def before(self, number: int, layer: int, from_end: int) -> tuple[int, int, int] | None:
        """Return the previous layer: of the same token, or of the previous token for layer 0."""
        if layer > 0:
            return number, layer - 1, from_end
        is_first = from_end == len(self.passes[number].ids[0]) - 1
        return (number - 1, self.sizes.n_layer - 1, 0) if is_first and number > 0 else None

    def paths(self, at: tuple[int, int, int] | None, length: int) -> list[tuple[int, ...]]:
        """Return all paths of experts that end at `at`, or none if a choice is unknown."""
        choice = None if at is None else self.choice(*at)
        if at is None or choice is None:
            return []
        if length == 1:
            return [(e,) for e in choice]
        return [(*p, e) for p in self.paths(self.before(*at), length - 1) for e in choice]

    def routed(self, layer: int) -> list[Scores]:
        length = self.settings.get("path_length", 1)
        number, n_layer = len(self.passes) - 1, self.sizes.n_layer
        n_token = len(self.passes[number].ids[layer])
        for from_end in range(n_token if self.settings.get("online", 1) else 0):
            chosen = self.choice(number, layer, from_end)
            for n in range(1, length + 1):
                for path in self.paths(self.before(number, layer, from_end), n):
                    self.table[(layer, *path)][chosen] += 1
        target, of_next = next_layer(layer, 1, n_layer)
        values = np.zeros(self.sizes.n_expert)
        for from_end in range(1 if of_next and n_token else n_token):
            values += self.tendency(target, (number, layer, from_end), length)
        return [Scores(target, positive(values))] if values.any() else []

    def tendency(self, target: int, at: tuple[int, int, int], length: int) -> Values:
        paths = self.paths(at, length)
        weight = 1
        if not paths:
            paths = self.paths(at, 1)
            weight = len(paths) if length == 2 else 1
        values = np.zeros(self.sizes.n_expert)
        for path in paths:
            key = (target, *path) if (target, *path) in self.table else (target, path[-1])
            if key in self.table:
                values += weight * self.table[key] / self.table[key].sum()
        return values


class Eam(Predictor):
    """MoE-Infinity, sections 4.3 and 4.5, and appendix B.1."""

    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.past: dict[str, list[Values]] = {"prefill": [], "decode": []}
        for phase in self.past:
            for eam in settings.get(phase, ()):
                self.add(phase, np.array(eam, np.float64))

    def eam_of(self, passes: list[Pass], n_layer: int) -> Values:
        eam = np.zeros((self.sizes.n_layer, self.sizes.n_expert))
        for a_pass in passes:
            for layer in range(n_layer):
                for ids in a_pass.ids[layer]:
                    eam[layer, ids] += 1
        return eam

    @staticmethod
    def cosine(a: Values, b: Values) -> float:
        """Return the cosine of two matrices as vectors, rounded so that equal values stay equal."""
        norm = math.sqrt((a * a).sum()) * math.sqrt((b * b).sum())
        return round(float((a * b).sum()) / norm, 12) if norm else 0.0

    def add(self, phase: str, eam: Values) -> None:
        past = self.past[phase]
        if len(past) < self.settings.get("capacity", 120):
            past.append(eam)
        else:
            likeness = [self.cosine(eam, other) for other in past]
            past[likeness.index(max(likeness))] = eam

    def request_began(self) -> None:
        for phase in self.past:
            passes = [p for p in self.passes if p.phase == phase]
            eam = self.eam_of(passes, self.sizes.n_layer)
            if eam.any():
                self.add(phase, eam)
        super().request_began()

    def routed(self, layer: int) -> list[Scores]:
        n_layer, now = self.sizes.n_layer, self.passes[-1]
        seen = self.eam_of([now], layer + 1)[: layer + 1]
        candidates = list(self.past[now.phase])
        if self.settings.get("own", 0):
            candidates.append(
                self.eam_of([p for p in self.passes[:-1] if p.phase == now.phase], n_layer)
            )
        likeness = [self.cosine(seen, c[: layer + 1]) for c in candidates]
        ranked = sorted(range(len(candidates)), key=lambda m: -likeness[m])
        matched = [m for m in ranked if likeness[m] > 0][: self.settings.get("matches", 1)]
        total = sum((candidates[m] for m in matched), np.zeros((n_layer, self.sizes.n_expert)))
        return [
            Scores(i, positive(total[i] / total[i].sum() * (1 - (i - layer) / n_layer)))
            for i in range(layer + 1, n_layer)
            if total[i].any()
        ]


class NextRouter(Predictor):
    """MoEpic, Eq. 3."""

    def gate_seen(self, layer: int) -> list[Scores]:
        stride = self.settings.get("stride", 1)
        target, of_next = next_layer(layer, stride, self.sizes.n_layer)
        rows = self.passes[-1].inputs[layer]
        is_near = stride <= self.sizes.n_layer  # at most one pass away
        if not len(rows) or not len(self.sizes.routers[target]) or not is_near:
            return []
        asked = [len(rows) - 1] if of_next else asked_of(len(rows))
        router = self.sizes.routers[target].astype(np.float64)
        return [poll(target, [router @ rows[t] for t in asked])]


class Learned(Predictor):
    """ProMoE, sections 4.3 and 4.4, with the optional further terms of the weights file."""

    def arrays_of(self, prefix: str) -> dict[str, Values]:
        return {
            key.removeprefix(prefix): np.array(value, np.float64)
            for key, value in self.settings["arrays"].items()
            if key.startswith(prefix)
        }

    def pass_began(self, now: Pass) -> list[Scores]:
        """Forecast the first layers from the tokens' ids."""
        super().pass_began(now)
        rows = self.settings["arrays"].get("token.rows")
        forecasts = []
        for layer in range(self.sizes.n_layer if rows is not None and now.tokens else 0):
            arrays = self.arrays_of(f"t{layer}.")
            stride = self.settings.get("stride", 0)
            if not arrays or (stride and layer >= stride):
                continue
            is_second = len(now.tokens) == 1 and len(self.passes) > 1
            before = self.passes[-2].ids[layer][-1] if is_second else []
            scores = []
            for i in asked_of(len(now.tokens)):
                is_known = 0 <= now.tokens[i] < len(rows)
                x = rows[now.tokens[i]] if is_known else np.zeros(rows.shape[1])
                scores.append(self.score(arrays, layer, x.astype(np.float64), [], before))
            forecasts.append(poll(layer, scores))
        return forecasts

    def gate_seen(self, layer: int) -> list[Scores]:
        forecasts = []
        for stride in (1, 2):
            arrays = self.arrays_of(f"l{layer}.s{stride}.")
            if not arrays or self.settings.get("stride", 0) not in (0, stride):
                continue
            target, of_next = next_layer(layer, stride, self.sizes.n_layer)
            now = self.passes[-1]
            n_token = len(now.inputs[layer])
            asked = [n_token - 1] if of_next else asked_of(n_token)
            if of_next:
                before = now.ids[target][-1]
            elif n_token == 1 and len(self.passes) > 1:
                before = self.passes[-2].ids[target][-1]
            else:
                before = []
            scores = [
                self.score(arrays, target, now.inputs[layer][t], now.ids[layer][t], before)
                for t in asked
            ]
            forecasts.append(poll(target, scores))
        return forecasts

    def score(
        self, a: dict[str, Values], target: int, x: Values, chosen: list[int], before: list[int]
    ) -> Values:
        scores = np.zeros(self.sizes.n_expert) + a.get("b2", 0)
        if "w1" in a:
            hidden = a["w1"] @ x + a.get("b1", 0)
            if "hidden_chosen" in a:
                hidden = hidden + a["hidden_chosen"][chosen].sum(0)
            if "hidden_before" in a:
                hidden = hidden + a["hidden_before"][before].sum(0)
            scores = scores + a["w2"] @ self.activate(hidden)
        if "router" in a:
            scores = scores + a["router"] * (self.sizes.routers[target].astype(np.float64) @ x)
        if "skip" in a:
            scores = scores + a["skip"] @ x
        if "skip_down" in a:
            scores = scores + a["skip_up"] @ (a["skip_down"] @ x)
        if "chosen" in a:
            scores = scores + a["chosen"][chosen].sum(0)
        if "before" in a:
            scores = scores + a["before"][before].sum(0)
        return scores

    def activate(self, h: Values) -> Values:
        kind = self.settings.get("activation", 0)
        if kind == 0:
            return np.maximum(h, 0)
        if kind == 1:
            return h / (1 + np.exp(-h))
        return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in h])


class ExpertMlp(Predictor):
    """DuoServe-MoE, section 4."""

    def routed(self, layer: int) -> list[Scores]:
        now, sizes, a = self.passes[-1], self.sizes, self.settings["arrays"]
        target = layer + 1
        is_one = all(len(now.ids[i]) == 1 for i in range(target))
        if now.phase != "decode" or not is_one or target == sizes.n_layer:
            return []
        history = np.zeros((sizes.n_layer - 1) * sizes.n_expert_used)
        path = [e for i in range(target) for e in now.ids[i][0]]
        history[: len(path)] = (np.array(path) + 1) / sizes.n_expert
        affinity = np.mean([a["affinity"][target][e] for e in now.ids[layer][0]], axis=0)
        x = np.concatenate([history, a["popularity"][target], affinity]).astype(np.float64)
        n = sum(key.startswith("w") for key in a)
        for i in range(n):
            x = a[f"w{i}"].astype(np.float64) @ x + a[f"b{i}"]
            if i + 1 < n:
                x = np.maximum(x, 0)
        return [Scores(target, x)]


class Oracle(Predictor):
    """A perfect forecast, as early as allowed. Each layer of each pass is forecast once."""

    def __init__(self, sizes: Sizes, **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.number, self.forecast_at = -1, set[int]()

    def tell(self, present: int) -> list[Scores]:
        n_layer, future, out = self.sizes.n_layer, self.sizes.future, []
        for at in range(present + 1, present + 1 + self.settings.get("lookahead", n_layer)):
            if at in self.forecast_at or at // n_layer >= len(future):
                continue
            if at // n_layer > self.number and future[at // n_layer].begins_request:
                continue  # the next request is unknown
            self.forecast_at.add(at)
            chosen = [e for ids in future[at // n_layer].ids[at % n_layer] for e in ids]
            values = np.full(self.sizes.n_expert, -math.inf)
            for expert, n in Counter(chosen).items():
                values[expert] = n - 1e-6 * chosen.index(expert)  # ties: the first chosen wins
            if chosen:
                n_token = len(chosen) // self.sizes.n_expert_used
                out.append(Scores(at % n_layer, values, n_token=n_token))
        return out

    def pass_began(self, now: Pass) -> list[Scores]:
        self.number += 1
        return self.tell(self.number * self.sizes.n_layer - 1)

    def routed(self, layer: int) -> list[Scores]:
        return self.tell(self.number * self.sizes.n_layer + layer)
