"""Plays traces to an eviction and to its Python reference, and compares the victims."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from reference import evictions as plain

from backend._native import Evictor, Future, Layout, Part, Phase, Shape, Spec


@dataclass
class Pass:
    """ids and weights: [layer][token of the layer][n_expert_used]."""

    is_prompt: bool
    begins_request: bool
    ids: list[list[list[int]]]
    weights: list[list[list[float]]]


@dataclass
class Sizes:
    n_layer: int
    n_expert: int
    n_expert_used: int


def markov_trace(
    seed: int, sizes: Sizes, n_request: int = 3, n_decode: int = 25, longest_prompt: int = 20
) -> list[Pass]:
    """Return a trace: tokens from a sparse random chain, experts by token, with noise."""
    rng = np.random.default_rng(seed)
    n_word = 24
    follow = rng.dirichlet(np.full(n_word, 0.08), n_word)
    affinity = 2.5 * rng.standard_normal((n_word, sizes.n_layer, sizes.n_expert))
    word, passes = 0, []
    for _ in range(n_request):
        for i in range(n_decode + 1):
            words = []
            for _ in range(1 if i else int(rng.integers(1, longest_prompt))):
                word = int(rng.choice(n_word, p=follow[word]))
                words.append(word)
            noise = rng.standard_normal((len(words), sizes.n_layer, sizes.n_expert))
            logits = affinity[words] + noise
            ids, weights = [], []
            for layer in range(sizes.n_layer):
                # As in llama.cpp, the last layer computes only the last token of a prompt.
                rows = logits[-1:, layer] if layer == sizes.n_layer - 1 else logits[:, layer]
                best = np.argsort(-rows, 1)[:, : sizes.n_expert_used]
                chosen = np.exp(np.take_along_axis(rows, best, 1))
                chosen = (chosen / chosen.sum(1, keepdims=True)).astype(np.float32)
                ids.append(best.tolist())
                weights.append(chosen.astype(float).tolist())
            passes.append(Pass(i == 0, i == 0, ids, weights))
    return passes


def future_of(passes: list[Pass], sizes: Sizes) -> Future:
    future = Future()
    for p in passes:
        n_token = max(len(rows) for rows in p.ids)
        ids = np.zeros((sizes.n_layer, n_token, sizes.n_expert_used), np.int32)
        for layer, rows in enumerate(p.ids):
            if rows:
                ids[layer, n_token - len(rows) :] = rows
        phase = Phase.prefill if p.is_prompt else Phase.decode
        future.append(phase, [0] * n_token, p.begins_request, ids, [len(r) for r in p.ids])
    return future


class Pair:
    """An eviction and its reference, with the same events."""

    def __init__(
        self,
        shipped: Evictor,
        reference: plain.Eviction,
        sizes: Sizes,
    ) -> None:
        self.shipped, self.reference, self.sizes = shipped, reference, sizes

    def victim(self, candidates: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the (layer, expert) that both evict. Among equals it is the first."""
        theirs = [self.reference.keep(layer, e) for layer, e in candidates]
        ours = [self.shipped.keep(layer, Part.top, e) for layer, e in candidates]
        chosen = ours.index(min(ours))
        expected = theirs.index(min(theirs))
        # Rounding may separate equal values: 4 * rho and 1.
        same = chosen == expected or math.isclose(theirs[chosen], theirs[expected], rel_tol=1e-9)
        assert same, (candidates[chosen], candidates[expected])
        return candidates[chosen]


def play(
    pair: Pair,
    passes: list[Pass],
    n_slot: int,
    *,
    one_pool: bool = False,
    weighted: bool = True,
    forecasts: np.random.Generator | None = None,
) -> tuple[int, int]:
    """Fill slots in place of the common victims. Return hits and victims.

    forecasts: also prefetch made-up forecasts, right and wrong ones.
    """
    sizes, shipped, reference = pair.sizes, pair.shipped, pair.reference
    slots: list[list[tuple[int, int] | None]] = [
        [None] * (n_slot * (sizes.n_layer if one_pool else 1))
        for _ in range(1 if one_pool else sizes.n_layer)
    ]
    hits = n_victim = 0

    def bring(layer: int, experts: list[int], needed: list[int]) -> None:
        nonlocal n_victim
        pool = slots[0 if one_pool else layer]
        for e in experts:
            if (layer, e) in pool:
                continue
            if None in pool:
                pool[pool.index(None)] = (layer, e)
                continue
            free = [s for s in pool if s and (s[0] != layer or s[1] not in needed)]
            if not free:
                return
            n_victim += 1
            pool[pool.index(pair.victim(free))] = (layer, e)

    for p, following in itertools.zip_longest(passes, passes[1:]):
        if p.begins_request:
            shipped.request_began()
            reference.request_began()
        shipped.pass_began(Phase.prefill if p.is_prompt else Phase.decode)
        reference.pass_began()
        fetched: dict[int, list[int]] = {}
        for layer in range(sizes.n_layer):
            rows, weights = p.ids[layer], p.weights[layer] if weighted else []
            flat = [e for row in rows for e in row]
            shipped.routed(layer, flat, [w for row in weights for w in row])
            reference.routed(layer, rows, weights)
            for e in fetched.pop(layer, []):
                if e not in flat:
                    shipped.disappointed(layer, e)
                    reference.disappointed(layer, e)
            demands = list(dict.fromkeys(flat))
            pool = slots[0 if one_pool else layer]
            hits += sum((layer, e) in pool for e in demands)
            for i, e in enumerate(demands):
                bring(layer, [e], demands[i:])
            if forecasts is not None and following is not None:
                target = (layer + 1) % sizes.n_layer
                true = p.ids[target] if target else following.ids[target]
                guess = forecasts.permutation(sizes.n_expert)[: sizes.n_expert_used].tolist()
                experts = list(dict.fromkeys([*true[-1][:1], *guess]))[: sizes.n_expert_used]
                scores = np.float32(forecasts.random(len(experts))).astype(float).tolist()
                shipped.forecast(target, experts, scores)
                reference.forecast(target, experts, scores)
                bring(target, experts, experts)
                fetched[target] = experts
    return hits, n_victim


def pair_of(
    name: str,
    reference: type[plain.Eviction],
    sizes: Sizes,
    passes: list[Pass],
    arrays: dict[str, Any] | None = None,
    **numbers: float,
) -> Pair:
    future = future_of(passes, sizes) if name == "belady" else None
    shipped = Evictor(
        Spec(name, numbers, {k: np.float32(v) for k, v in (arrays or {}).items()}),
        Shape(sizes.n_expert, sizes.n_expert_used, [[100, 100]] * sizes.n_layer),
        Layout.per_layer([sizes.n_expert] * sizes.n_layer),
        future,
    )
    extra: dict[str, Any] = dict(arrays or {})
    if name == "belady":
        extra["future"] = [p.ids for p in passes]
    return Pair(shipped, reference(sizes.n_layer, sizes.n_expert, **extra, **numbers), sizes)
