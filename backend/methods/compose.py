"""From a method's names to the native core's specs, with what a model adds to them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from backend import _native
from backend.methods.catalogue import ORDERED, Method
from backend.methods.part import Part, part
from backend.methods.slots import rate_of

Arrays = Mapping[str, Any]
"""Learned weights or tables of one part, by the names that the part asks for."""


@dataclass(frozen=True)
class Learned:
    """What was learned for a model: arrays (float32) by the name of the part that uses them."""

    arrays: Mapping[str, Arrays] = field(default_factory=lambda: MappingProxyType({}))
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_LEARNED = Learned()
NEEDS_WEIGHTS = frozenset({"learned", "expert_mlp"})
"""Predictors that are of no use untrained."""
NEEDS_INPUTS = frozenset({"learned", "next_router"})
"""Predictors that see the layers' inputs."""


_HYBRIDS = {
    "off": _native.Hybrid.off,
    "auto": _native.Hybrid.by_speed,
    "cpu-only": _native.Hybrid.host_only,
}


def spec(part: Part | None, learned: Learned = NOTHING_LEARNED) -> _native.Spec:
    """A part as the native registries take it."""
    if part is None:
        return _native.Spec()
    numbers = {**learned.numbers.get(part.name, {}), **part.numbers}
    return _native.Spec(part.name, numbers, dict(learned.arrays.get(part.name, {})))


SUBSTITUTE = "accuracy"


def with_accuracy(method: Method, accuracy: float, seed: int = 0, lookahead: int = 1) -> Method:
    """The method with a predictor that is right with this probability.

    It knows the future, and tells of a layer when it is `lookahead` layers away.
    """
    if method.predictor is None:
        return method
    substitute = part(SUBSTITUTE, accuracy=accuracy, seed=seed, lookahead=lookahead)
    return replace(method, predictor=substitute, fallback=None)


def predictor_of(
    method: Method, learned: Learned = NOTHING_LEARNED, *, has_routers: bool = True
) -> Part | None:
    """The method's predictor, or its fallback: the first that has what it needs, or none.

    has_routers: the layers' inputs are shown and their routers known.
    """
    for wanted in (method.predictor, method.fallback):
        if wanted is not None and _can_be_made(wanted, learned, has_routers):
            return wanted
    return None


def predictor_text(wanted: Part | None) -> str:
    """A predictor in a few words, "" for none."""
    if wanted is None:
        return ""
    words = wanted.name.replace("_", " ")
    stride = int(wanted.numbers.get("stride", 0))
    return f"{words}, stride {stride}" if stride else words


def _can_be_made(wanted: Part, learned: Learned, has_routers: bool) -> bool:
    if wanted.name in NEEDS_INPUTS and not has_routers:
        return False
    if wanted.name not in NEEDS_WEIGHTS:
        return True
    arrays = learned.arrays.get(wanted.name, {})
    stride = int(wanted.numbers.get("stride", 0))
    return bool(arrays) and (not stride or any(f".s{stride}." in name for name in arrays))


def _scheduler(wanted: Part) -> _native.Spec:
    """A layer with a slot for every expert gets all of them, and then is not asked any more."""
    if wanted.name != ORDERED.name:
        return spec(wanted)
    return spec(part(wanted.name, **{"fill": 1.0, **wanted.numbers}))


def composition(
    method: Method,
    shape: _native.Shape,
    learned: Learned = NOTHING_LEARNED,
    *,
    has_routers: bool = True,
    hybrid: str = "off",
) -> _native.Composition:
    """A method as the native core takes it. `shape` resolves what is told per model.

    hybrid: of backend.protocol.settings.HYBRID.
    """
    counts = {-1: shape.n_expert}
    fetches = {-1: shape.n_expert_used}
    return _native.Composition(
        predictor=spec(predictor_of(method, learned, has_routers=has_routers), learned),
        evictions=[spec(e, learned) for e in method.evictions],
        prefill=_scheduler(method.prefill),
        decode=_scheduler(method.decode),
        n_predict=counts.get(method.n_predict, method.n_predict),
        n_fetch=fetches.get(method.n_fetch, method.n_fetch),
        depth=method.depth,
        min_precision=method.min_precision,
        prefill_prefetch=method.prefill_prefetch,
        hybrid=_HYBRIDS[hybrid],
    )


def layout(method: Method, shape: _native.Shape, n_slot: int, n_stage: int = 0) -> _native.Layout:
    """Where the method's experts may lie, in the memory of n_slot experts of each layer.

    n_stage: slots beside those, of each kind of layer, through which prompts pass what they do not
    keep; only for methods that prefer to keep (Method.stages).
    """
    made = _native.allocate(spec(method.allocation), shape, rate_of(n_slot, shape.n_expert))
    return made.staged(shape, n_stage) if n_stage and method.stages else made


def share_of(made: _native.Layout, shape: _native.Shape) -> float:
    """The slots' share of all experts, by bytes."""
    total_bytes = sum(shape.expert_bytes(n) for n in range(shape.n_layer)) * shape.n_expert
    return min(1.0, made.bytes(shape) / total_bytes)


def stretched(
    made: _native.Layout, shape: _native.Shape, layers: Container[int], times: float
) -> _native.Layout:
    """The layout with so many times as many slots for these layers, by their index.

    A layer gets at most one for each expert, and never fewer than one token needs. Slots that are
    only passed through, and those that other layers use too, stay as many.
    """
    users: dict[int, list[int]] = {}
    for index, layer in enumerate(made.layers):
        for pool in layer.pool:
            users.setdefault(pool, []).append(index)
    pools = []
    for pool, old in enumerate(made.pools):
        used_by = users.get(pool, [])
        n_slot = old.n_slot
        if used_by and not old.buffer and all(index in layers for index in used_by):
            n_most = shape.n_expert * len(used_by)
            n_least = min(n_slot, shape.n_expert_used)
            n_slot = min(max(round(times * n_slot), n_least), n_most)
        pools.append(_native.PoolLayout(n_slot, old.buffer))
    return _native.Layout(pools, made.layers)
