"""MoEpic's statistics and cache configurator, simple and slow, as a reference for the shipped ones.

Written from the paper: section 3.3, Eq. 4; section 3.4, Eqs. 5 to 11 and Algorithm 1. Names are the
paper's, with L, N and K for layers, experts and experts per token.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

MAX_RANK = 32


class Statistics:
    """Count H, P and PH of every layer, token by token."""

    def __init__(self, n_layer: int, n_expert: int) -> None:
        self.n_layer, self.n_expert = n_layer, n_expert
        self.mu = [[0] * n_expert for _ in range(n_layer)]
        self.last = [[0] * n_expert for _ in range(n_layer)]
        self.now = [0] * n_layer
        self.q = [0] * n_layer
        # Per counted token: the activated experts' ranks by priority, and the forecast experts'
        # ranks with whether they were activated.
        self.activated: list[list[list[int]]] = [[] for _ in range(n_layer)]
        self.predicted: list[list[list[tuple[int, bool]]]] = [[] for _ in range(n_layer)]
        self.waiting: list[list[int]] = [[] for _ in range(n_layer)]

    def by_priority(self, layer: int) -> list[int]:
        """Return the experts of the layer, the highest priority first (Eq. 4)."""

        def priority(e: int) -> Fraction:
            # mu * 0.25 ** (nu / 128), to the power of 64 so that it is exact.
            nu = self.now[layer] - self.last[layer][e]
            return Fraction(self.mu[layer][e] ** 64, 2**nu)

        return sorted(range(self.n_expert), key=lambda e: (-priority(e), e))

    def routed(self, layer: int, ids: list[int], n_token: int = 1) -> None:
        k = len(ids) // n_token
        if n_token == 1:
            order = self.by_priority(layer)
            self.q[layer] += 1
            self.activated[layer].append([order.index(e) for e in ids])
            self.predicted[layer].append([(order.index(e), e in ids) for e in self.waiting[layer]])
        self.waiting[layer] = []
        for t in range(n_token):
            self.now[layer] += 1
            for e in ids[t * k : (t + 1) * k]:
                self.mu[layer][e] += 1
                self.last[layer][e] = self.now[layer]

    def forecast(self, layer: int, experts: list[int]) -> None:
        self.waiting[layer] = experts[:MAX_RANK]

    def H(self, layer: int, c: int) -> float:
        ranks = [r for token in self.activated[layer] for r in token]
        return sum(r < c for r in ranks) / len(ranks) if ranks else 0.0

    def P(self, layer: int, y: int) -> float:
        hits = sum(len(token) > y and token[y][1] for token in self.predicted[layer])
        return hits / self.q[layer] if self.q[layer] else 0.0

    def PH(self, layer: int, y: int, c: int) -> float:
        hits = sum(len(token) > y and token[y][0] < c for token in self.predicted[layer])
        return hits / self.q[layer] if self.q[layer] else 0.0


@dataclass
class Problem:
    """A model on a machine: the input of Algorithm 1."""

    seen: Statistics
    K: int
    expert_bytes: list[int]
    n_cut: list[int]
    chunks_us: list[float]
    bytes_us: list[float]
    expert_us: float
    layer_us: float
    head_us: float
    cut_us: float = 0.0
    least_share: float = 0.0
    H: list[list[float]] = field(init=False)
    P: list[list[float]] = field(init=False)
    PH: list[list[list[float]]] = field(init=False)

    def __post_init__(self) -> None:
        s = self.seen
        self.L, self.N = s.n_layer, s.n_expert
        self.n_rank = min(self.N, MAX_RANK)
        self.H = [[s.H(i, c) for c in range(self.N + 1)] for i in range(self.L)]
        self.P = [[s.P(i, y) for y in range(self.n_rank)] for i in range(self.L)]
        self.PH = [
            [[s.PH(i, y, c) for c in range(self.N + 1)] for y in range(self.n_rank)]
            for i in range(self.L)
        ]

    def judge(self, i: int, c: int, theta: float, window_us: float) -> tuple[float, float, float]:
        """Return m_i of Eq. 11, the expected stall, and the loading time that computation hides.

        A cut expert needs two copies and two computations. The last prefetch counts with the share
        of it that fits in the window. The stall is Eq. 6's expectation: each of the K experts is,
        independently, whole, present with its top only, or missing. Their sum counts as normally
        distributed.
        """
        is_cut = 0 < theta < 1
        t_load = self.bytes_us[i] + self.chunks_us[i] * (2 if is_cut else 1)
        if is_cut and t_load > 0:
            theta = (self.chunks_us[i] + theta * self.bytes_us[i]) / t_load
        m = self.K * self.H[i][c] * theta
        n_whole = 0.0
        for y in range(self.n_rank):
            if window_us <= 0:
                break
            missing = 1 - self.PH[i][y][c] * theta
            t_pref = missing * t_load
            done = 1.0 if t_pref <= window_us else window_us / t_pref
            m += done * missing * self.P[i][y]
            n_whole += done * self.P[i][y]
            window_us -= t_pref
        m = min(m, float(self.K))
        hide, miss = m * self.expert_us, (self.K - m) * t_load
        whole = min(n_whole, m) / self.K
        top = (m / self.K - whole) / theta if theta > 0 else 0.0
        variance = whole + top * theta**2 - (m / self.K) ** 2
        sigma = math.sqrt(max(0.0, self.K * variance)) * (t_load + self.expert_us)
        stall = miss - hide
        if sigma > 0:
            normal = statistics.NormalDist()
            z = (miss - hide) / sigma
            stall = (miss - hide) * normal.cdf(z) + sigma * normal.pdf(z)
        stall = min(max(0.0, stall), miss)
        return m, stall + (self.cut_us if is_cut else 0.0), miss - stall

    def sub_problem(self, i: int, v: float, window_us: float) -> tuple[float, int]:
        """Return the theta and C with which layer i stalls the least within v bytes."""
        candidates = []
        for theta in self.cuts(i):
            for c in range(self.K, self.N + 1):
                if c * theta * self.expert_bytes[i] <= v * (1 + 1e-12):
                    m, stall, _ = self.judge(i, c, theta, window_us)
                    cached = self.H[i][c] * theta
                    candidates.append((stall, -m, -cached, abs(theta - 0.5), theta, -c))
        *_, theta, c = min(candidates)
        return theta, -c

    def expert_split(self, v: list[float]) -> tuple[list[float], list[tuple[float, int]]]:
        """Return each layer's exposed latency and its (theta, C): Algorithm 1's function."""
        chosen: list[tuple[float, int]] = []

        def choose(i: int, window_us: float) -> tuple[int, float]:
            theta, c = self.sub_problem(i, max(v[i], self.least(i)), window_us)
            chosen.append((theta, c))
            return c, theta

        return self.walk(choose), chosen

    def walk(self, choose: Callable[[int, float], tuple[int, float]]) -> list[float]:
        """Return the stall of each layer. choose(i, window) gives C and theta (Eqs. 5 to 7)."""
        window_us = self.head_us + self.layer_us
        exposed = []
        for i in range(self.L):
            c, theta = choose(i, window_us)
            _, stall, hidden = self.judge(i, c, theta, window_us)
            window_us = max(0.0, self.K * self.expert_us - hidden) + self.layer_us
            exposed.append(stall)
        return exposed

    def cuts(self, i: int) -> list[float]:
        """Return the candidate thetas."""
        n_cut = self.n_cut[i]
        step = math.ceil(n_cut / 8)
        tried = [1] + [cut for cut in range(1, n_cut + 1) if cut % step == 0] + [n_cut]
        shares = sorted({cut / n_cut for cut in tried})
        return [theta for theta in shares if theta >= self.least_share or theta == 1]

    def least(self, i: int) -> float:
        """Return the bytes of K tops of the smallest candidate size."""
        return self.K * self.expert_bytes[i] * min(self.cuts(i))

    def stall(self, n_slot: list[int], theta: list[float]) -> float:
        """Return the stall of all layers with this C and theta."""
        return sum(self.walk(lambda i, _: (n_slot[i], theta[i])))


def vram_allocation(p: Problem, v: list[float], zeta: float) -> tuple[list[float], int]:
    """Run Algorithm 1 from v. Repeat it with half the step, down to one expert."""
    step = zeta * sum(v)
    n_steps = 0
    while True:
        v, n_step = transfers(p, v, max(step, *p.expert_bytes))
        n_steps += n_step
        if step <= max(p.expert_bytes):
            return v, n_steps
        step /= 2


def transfers(p: Problem, v: list[float], step: float) -> tuple[list[float], int]:
    """Run Algorithm 1's loop. No layer falls below its minimum."""
    n_step = 0
    while True:
        t1, _ = p.expert_split(v)
        t2, _ = p.expert_split([b + step for b in v])
        t3, _ = p.expert_split([b - step for b in v])
        i1 = max(range(p.L), key=lambda i: (t1[i] - t2[i], -i))
        others = [i for i in range(p.L) if i != i1 and v[i] - step >= p.least(i)]
        if not others:
            return v, n_step
        i2 = min(others, key=lambda i: (t3[i] - t1[i], i))
        tried = list(v)
        tried[i1] += step
        tried[i2] -= step
        t4, _ = p.expert_split(tried)
        if sum(t4) - sum(t1) >= 0:
            return v, n_step
        v = tried
        n_step += 1


def start(p: Problem, budget_bytes: float, kinds: list[int]) -> list[float]:
    """Return V_e / L per layer: each one's minimum, and a part of the rest by expert size."""
    bottom = [p.expert_bytes[i] * (1 - min(p.cuts(i))) for i in range(p.L)]
    one = sum(max(bottom[i] for i in range(p.L) if kinds[i] == k) for k in set(kinds))
    least = sum(p.least(i) for i in range(p.L))
    buffers = min(max(budget_bytes - least, one), one * 2 * p.K)
    rest = max(0.0, budget_bytes - buffers - least)
    return [p.least(i) + rest * p.expert_bytes[i] / sum(p.expert_bytes) for i in range(p.L)]


def bottoms_bytes(p: Problem, theta: list[float], kinds: list[int], n_bottom: int) -> int:
    """Return the bytes of the bottoms' slots: n_bottom per kind, of its largest bottom's size."""
    total = 0
    for kind in set(kinds):
        cut = [i for i in range(p.L) if kinds[i] == kind and theta[i] < 1]
        if cut:
            largest = max(round((1 - theta[i]) * p.expert_bytes[i]) for i in cut)
            total += min(n_bottom, p.N * len(cut)) * largest
    return total


@dataclass
class Plan:
    """V, theta and C per layer, bottom slots per kind, and the number of Algorithm 1's steps."""

    V: list[float]
    theta: list[float]
    n_slot: list[int]
    n_bottom: int
    n_step: int
    stall_us: float
    bytes: int


def configure(p: Problem, budget_bytes: int, kinds: list[int], zeta: float = 0.01) -> Plan:
    """Run Algorithm 1 with the smallest cut, which sizes the buffers, that starts best."""
    best, best_us = p, math.inf
    for least_share in (0.5, 0.0, 0.25, 0.75, 1.0):
        limited = replace(p, least_share=least_share)
        begun = _configure(limited, budget_bytes, kinds, 0)
        fits = begun.bytes <= budget_bytes or least_share == 0
        if fits and begun.stall_us < best_us:
            best, best_us = limited, begun.stall_us
    return _configure(best, budget_bytes, kinds, zeta)


def _configure(p: Problem, budget_bytes: int, kinds: list[int], zeta: float) -> Plan:
    v, n_step = start(p, budget_bytes, kinds), 0
    if zeta > 0:
        v, n_step = vram_allocation(p, v, zeta)
    _, chosen = p.expert_split(v)
    theta = [t for t, _ in chosen]
    n_slot = [c for _, c in chosen]
    top = [round(t * b) for t, b in zip(theta, p.expert_bytes, strict=True)]
    used = sum(t * c for t, c in zip(top, n_slot, strict=True))
    n_bottom = 2 * p.K
    while n_bottom > 1 and used + bottoms_bytes(p, theta, kinds, n_bottom) > budget_bytes:
        n_bottom -= 1
    used += bottoms_bytes(p, theta, kinds, n_bottom)
    while True:  # the rest goes where one more slot gains the most hits, otherwise evenly
        best, worth = -1, -math.inf
        for i in range(p.L):
            if n_slot[i] == p.N or used + top[i] > budget_bytes:
                continue
            gain = p.H[i][n_slot[i] + 1] - p.H[i][n_slot[i]] + 1e-9 / (n_slot[i] + 1)
            if gain * theta[i] / top[i] > worth:
                best, worth = i, gain * theta[i] / top[i]
        if best < 0:
            return Plan(v, theta, n_slot, n_bottom, n_step, p.stall(n_slot, theta), used)
        n_slot[best] += 1
        used += top[best]
