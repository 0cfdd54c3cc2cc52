"""Small traces and cores for the simulator's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend import _native
from backend._native import Composition, Core, Future, Layout, Machine, Phase, Shape, Spec
from backend.traces.trace import DECODE, PREFILL, Trace

Routings = Sequence[Sequence[Sequence[Sequence[int]]]]
"""[pass][layer][token][k]"""


def future_of(routings: Routings, *, prefill: Sequence[int] = (), requests: Any = (0,)) -> Future:
    """Return a trace. A layer with fewer tokens than its pass has the last. prefill: passes."""
    future = Future()
    for i, layers in enumerate(routings):
        n_token = max(len(tokens) for tokens in layers)
        k = max(len(ids) for tokens in layers for ids in tokens)
        ids = np.zeros((len(layers), n_token, k), np.int32)
        for layer, tokens in enumerate(layers):
            if tokens:
                ids[layer, n_token - len(tokens) :] = tokens
        future.append(
            Phase.prefill if i in prefill else Phase.decode,
            [],
            i in requests,
            ids,
            [len(tokens) for tokens in layers],
        )
    return future


def core_of(
    shape: Shape,
    n_slot: Sequence[int] | Layout,
    future: Future | None = None,
    *,
    schedule: str = "ordered",
    numbers: dict[str, float] | None = None,
    eviction: str = "lru",
    predictor: Spec | None = None,
    depth: int = 1,
) -> Core:
    layout = n_slot if isinstance(n_slot, Layout) else Layout.per_layer(list(n_slot))
    scheduler = Spec(schedule, numbers or {})
    composition = Composition(
        predictor=predictor or Spec(),
        evictions=[Spec(eviction)],
        prefill=scheduler,
        decode=scheduler,
        depth=depth,
    )
    return Core(shape, layout, composition, future=future)


def simulate(core: Core, future: Future, **machine: float) -> Any:
    return _native.simulate(core, future, Machine(**machine))  # type: ignore[arg-type]


def random_routings(
    chance: np.random.Generator, n_pass: int, n_layer: int, n_expert: int, k: int, n_token: int = 1
) -> list[list[list[list[int]]]]:
    """Return random routings, skewed so that some experts are hot."""
    heat = 1.0 / np.arange(1, n_expert + 1)

    def token() -> list[int]:
        return chance.choice(n_expert, k, replace=False, p=heat / heat.sum()).tolist()

    return [
        [[token() for _ in range(n_token if i == 0 else 1)] for _ in range(n_layer)]
        for i in range(n_pass)
    ]


def trace_of(
    n_pass: int = 12, n_layer: int = 2, n_expert: int = 8, k: int = 2, **fields: Any
) -> Trace:
    """Return a trace of two requests: a prompt of 5 tokens, then single tokens."""
    chance = np.random.default_rng(5)
    routings = random_routings(chance, n_pass, n_layer, n_expert, k, n_token=5)
    ids = np.concatenate([np.array(layers).transpose(1, 0, 2) for layers in routings])
    n_token = np.array([5] + [1] * (n_pass - 1), np.int32)
    given: dict[str, Any] = {
        "architecture": "test",
        "layers": tuple(range(n_layer)),
        "n_expert": n_expert,
        "n_expert_used": k,
        "chunk_bytes": ((1000, 1000, 1000),) * n_layer,
        "phases": np.array([PREFILL] + [DECODE] * (n_pass - 1), np.uint8),
        "requests": np.zeros(n_pass, np.int32),
        "n_token": n_token,
        "n_routed": np.repeat(n_token[:, None], n_layer, axis=1),
        "tokens": np.full(int(n_token.sum()), -1, np.int32),
        "ids": ids.astype(np.uint8),
    }
    return Trace(**{**given, **fields})
