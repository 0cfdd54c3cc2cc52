"""Layouts and compositions of the core that tests build by hand."""

from __future__ import annotations

from collections.abc import Mapping

from backend import _native


def cut(
    shape: _native.Shape,
    shares: Mapping[int, float],
    n_top: int,
    n_bottom: int,
    n_whole: int,
) -> _native.Layout:
    """Return a layout of slots per layer. shares: of tops, by layer; other layers are whole."""
    pools, layers = [], []
    for layer in range(shape.n_layer):
        share = shares.get(layer, 1.0)
        counts = (n_top, n_bottom) if 0 < share < 1 else (n_whole, n_whole)
        places = [-1, -1]
        for part, has_bytes in enumerate((share > 0, share < 1)):
            if has_bytes:
                places[part] = len(pools)
                pools.append(_native.PoolLayout(counts[part]))
        layers.append(_native.LayerLayout(share, places))
    return _native.Layout(pools, layers)


def all_resident(shape: _native.Shape, shares: Mapping[int, float]) -> _native.Layout:
    """Return a layout in which every expert has its own slots, cut as `shares` says."""
    return cut(shape, shares, *[shape.n_expert] * 3)


def one_pool(
    shape: _native.Shape,
    n_slot: int,
    shares: Mapping[int, float] | None = None,
    *,
    buffer: bool = False,
) -> _native.Layout:
    """Return a layout of one pool per kind of layer, for whole experts or tops and bottoms."""
    pools, layers = [], []
    pool_of_kind: dict[int, int] = {}
    for layer in range(shape.n_layer):
        kind = shape.kind[layer]
        if kind not in pool_of_kind:
            pool_of_kind[kind] = len(pools)
            pools.append(_native.PoolLayout(n_slot, buffer))
        pool = pool_of_kind[kind]
        share = (shares or {}).get(layer, 1.0)
        places = [pool if share > 0 else -1, pool if share < 1 else -1]
        layers.append(_native.LayerLayout(share, places))
    return _native.Layout(pools, layers)


def every_share(shape: _native.Shape, layer: int) -> list[float]:
    """Return the cuts that the layer's tensors allow."""
    n_cut = shape.cuts(layer)
    return [i / n_cut for i in range(1, n_cut)]
