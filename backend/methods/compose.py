"""Builds the native core's specs from a method, a model's shape and its learned weights."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from backend import _native
from backend.methods.catalogue import ORDERED, Method
from backend.methods.part import Part, part

Arrays = Mapping[str, Any]
"""Learned weights or tables of one part, by the names that the part uses."""


@dataclass(frozen=True)
class Learned:
    """Learned weights of a model: arrays (float32) and numbers, by the name of their part."""

    arrays: Mapping[str, Arrays] = field(default_factory=lambda: MappingProxyType({}))
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_LEARNED = Learned()
NEEDS_WEIGHTS = frozenset({"learned", "expert_mlp"})
"""Predictors that need trained weights."""
NEEDS_INPUTS = frozenset({"learned", "next_router"})
"""Predictors that need the layers' inputs."""


_HYBRIDS = {
    "off": _native.Hybrid.off,
    "auto": _native.Hybrid.by_speed,
    "cpu-only": _native.Hybrid.host_only,
}


def spec(part: Part | None, learned: Learned = NOTHING_LEARNED) -> _native.Spec:
    """Return a part as a spec for the native registries."""
    if part is None:
        return _native.Spec()
    numbers = {**learned.numbers.get(part.name, {}), **part.numbers}
    return _native.Spec(part.name, numbers, dict(learned.arrays.get(part.name, {})))


SUBSTITUTE = "accuracy"


def with_accuracy(method: Method, accuracy: float, seed: int = 0, lookahead: int = 1) -> Method:
    """Return the method with a predictor of this accuracy, which knows the future.

    It forecasts a layer when that is `lookahead` layers away.
    """
    if method.predictor is None:
        return method
    substitute = part(SUBSTITUTE, accuracy=accuracy, seed=seed, lookahead=lookahead)
    return replace(method, predictor=substitute, fallback=None)


def predictor_of(
    method: Method, learned: Learned = NOTHING_LEARNED, *, has_routers: bool = True
) -> Part | None:
    """Return the method's predictor, or else its fallback, if it has all that it needs; or None.

    has_routers: the layers' inputs are visible and their routers known.
    """
    for wanted in (method.predictor, method.fallback):
        if wanted is not None and _can_be_made(wanted, learned, has_routers):
            return wanted
    return None


def predictor_text(wanted: Part | None) -> str:
    """Return a predictor in a few words, or ""."""
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


def _scheduler(wanted: Part, *, gather: bool = False) -> _native.Spec:
    """Return a schedule's spec. "ordered" fills a layer that has a slot for every expert.

    The routing of a full layer is not read any more.
    """
    more = {"fill": 1.0} if wanted.name == ORDERED.name else {}
    more |= {"gather": 1.0} if gather else {}
    return spec(part(wanted.name, **{**more, **wanted.numbers}))


def composition(
    method: Method,
    shape: _native.Shape,
    learned: Learned = NOTHING_LEARNED,
    *,
    has_routers: bool = True,
    hybrid: str = "off",
    on_device: bool = False,
) -> _native.Composition:
    """Return a method as a native composition. shape: resolves the counts that depend on the model.

    hybrid: of backend.protocol.settings.HYBRID. on_device: a device computes the experts of a
    decoded token together, so each is copied when those before it have arrived.
    """
    counts = {-1: shape.n_expert}
    fetches = {-1: shape.n_expert_used}
    return _native.Composition(
        predictor=spec(predictor_of(method, learned, has_routers=has_routers), learned),
        evictions=[spec(e, learned) for e in method.evictions],
        prefill=_scheduler(method.prefill),
        decode=_scheduler(method.decode, gather=on_device),
        n_predict=counts.get(method.n_predict, method.n_predict),
        n_fetch=fetches.get(method.n_fetch, method.n_fetch),
        depth=method.depth,
        weighs=method.weighs,
        prefill_prefetch=method.prefill_prefetch,
        hybrid=_HYBRIDS[hybrid],
    )


def layout(method: Method, shape: _native.Shape, n_slot: int, n_stage: int = 0) -> _native.Layout:
    """Return the layout of the method's slots, in the memory of n_slot experts per layer.

    n_stage: additional slots for each kind of layer, through which prompts pass the experts that
    they do not keep; only for methods with a stage (Method.stages).
    """
    made = _native.allocate(spec(method.allocation), shape, n_slot)
    return made.staged(shape, n_stage) if n_stage and method.stages else made


def slots_in(made: _native.Layout, shape: _native.Shape) -> float:
    """Return the experts per layer that have the memory of the layout."""
    return min(made.bytes(shape) / _row_bytes(shape), float(shape.n_expert))


def share_of(made: _native.Layout, shape: _native.Shape) -> float:
    """Return the slots' share of the bytes of all experts, to show it."""
    return min(1.0, made.bytes(shape) / (_row_bytes(shape) * shape.n_expert))


def _row_bytes(shape: _native.Shape) -> int:
    """Return the bytes of one expert of every layer."""
    return sum(shape.expert_bytes(n) for n in range(shape.n_layer))


def stretched(
    made: _native.Layout, shape: _native.Shape, layers: Container[int], n_slot: int
) -> _native.Layout:
    """Return the layout with the memory of n_slot experts in each of these layers, by index.

    A layer gets at most one slot per expert, and at least the slots that one token needs. The
    number of buffer slots, and of slots shared with other layers, does not change.
    """
    times = n_slot / slots_in(made, shape)
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
