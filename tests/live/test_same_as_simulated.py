"""Same code: the simulator counts on a recording what the live engine counted.

Copies are instant in both. The tests cover every eviction, allocation and scheduler, and every
predictor that needs only the routing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from equality import Cached
from factory import make_tiny

from backend import _native
from backend._native import Composition, Spec
from backend.gguf.model_file import read_model
from backend.traces.trace import Trace

PROMPTS = (33, 5)
N_DECODE = 12
RATES = (0.3, 0.6)
COUNTS = (
    "hits", "late", "misses", "bytes_read", "bytes_useful", "bytes_wasted", "prefetches",
    "prefetches_useful", "prefetches_wasted", "predicted", "predicted_used", "predicted_ready",
)  # fmt: skip

PLANS: dict[str, dict[str, Any]] = {
    "planned": {"n_slot": np.array([6, 4, 4], np.float32)},
}
"""Arrays that an allocation cannot do without."""


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cached]:
    """Return a model with three layers of 16 experts, 4 used, that can be cut in four."""
    folder = tmp_path_factory.mktemp("model")
    path = make_tiny("qwen3moe", "Q8_0", folder / "m.gguf", n_ff_exp=128)
    opened = Cached(read_model(path), n_thread=1)
    yield opened
    opened.close()


def live(cached: Cached, layout: _native.Layout, chosen: Composition) -> tuple[Any, Trace]:
    """Return the live counters of some prompts on an empty cache, and the routings."""
    shape, patch = cached.shape, cached.patch
    cached.setup(layout, chosen, n_transfer_thread=0)
    recorder = _native.Recorder(shape.n_layer, shape.n_expert, shape.n_expert_used, weights=True)
    patch.record(recorder)
    for n_prompt in PROMPTS:
        cached.logits(n_prompt, N_DECODE)
    patch.record(None)
    trace = Trace(
        architecture="qwen3moe",
        layers=tuple(range(shape.n_layer)),
        n_expert=shape.n_expert,
        n_expert_used=shape.n_expert_used,
        chunk_bytes=tuple(tuple(sizes) for sizes in shape.chunk_bytes),
        n_cut=tuple(shape.n_cut),
        layer_kind=tuple(shape.kind),
        **recorder.take(),
    )
    return patch.counts(), trace


def assert_same(cached: Cached, layout: _native.Layout, chosen: Composition) -> None:
    counts, trace = live(cached, layout, chosen)
    core = _native.Core(trace.shape(), layout, chosen)
    simulation = _native.simulate(core, trace.future(), _native.Machine(), weights=trace.weights)
    for layer, (there, here) in enumerate(zip(counts, simulation.layers, strict=True)):
        for name in COUNTS:
            assert getattr(there, name) == getattr(here.counts, name), (layer, name)
    assert sum(c.misses for c in counts) > 0
    assert sum(c.late for c in counts) == 0


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    "eviction", [name for name in _native.eviction_names() if name != "belady"]
)
def test_every_eviction(cached: Cached, eviction: str, rate: float) -> None:
    reactive = Spec("reactive")
    chosen = Composition(evictions=[Spec(eviction)], prefill=reactive, decode=reactive)
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, rate), chosen)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("allocation", _native.allocation_names())
def test_every_allocation(cached: Cached, allocation: str, rate: float) -> None:
    spec = Spec(allocation, {}, PLANS.get(allocation, {}))
    assert_same(cached, _native.allocate(spec, cached.shape, rate), Composition())


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_cut_experts(cached: Cached, share: float) -> None:
    layout = _native.allocate(Spec("uniform", {"top_share": share}), cached.shape, 0.4)
    assert layout.any_cut() or share == 0
    assert_same(cached, layout, Composition(evictions=[Spec("lcp")]))


@pytest.mark.parametrize("scheduler", _native.scheduler_names())
def test_every_scheduler(cached: Cached, scheduler: str) -> None:
    chosen = Composition(
        predictor=Spec("previous_token"), prefill=Spec(scheduler), decode=Spec(scheduler), depth=2
    )
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, 0.4), chosen)


@pytest.mark.parametrize(
    "predictor", ["previous_token", "token_table", "popularity", "correlation", "eam"]
)
def test_every_predictor_of_routings(cached: Cached, predictor: str) -> None:
    chosen = Composition(predictor=Spec(predictor), depth=2)
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, 0.4), chosen)
