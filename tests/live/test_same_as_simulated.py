"""Same code: on a recording, the simulator's core has the events and commands of the live one.

Copies end by one rule in both. The tests cover every eviction, allocation and scheduler, and every
predictor that needs only the routing; test_event_logs.py has the methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from equality import Cached
from event_logs import difference, lines_of
from factory import make_tiny

from backend import _native
from backend._native import Composition, Spec
from backend.gguf.model_file import read_model
from backend.traces.trace import Trace

PROMPTS = (33, 5)
N_DECODE = 12
RATES = (0.3, 0.6)
RULE = _native.CopyRule(seed=5, n_event=15)

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


def live(
    cached: Cached, layout: _native.Layout, chosen: Composition
) -> tuple[_native.EventLog, Trace]:
    """Return the live events of some prompts on an empty cache, and the routings."""
    shape, patch = cached.shape, cached.patch
    patch.record_events(True)
    cached.setup(layout, chosen, copy_rule=RULE)
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
    return patch.take_events(), trace


def assert_same(cached: Cached, layout: _native.Layout, chosen: Composition) -> None:
    there, trace = live(cached, layout, chosen)
    core, here = _native.Core(trace.shape(), layout, chosen), _native.EventLog()
    _native.simulate(
        core,
        trace.future(),
        _native.Machine(),
        weights=trace.weights,
        log=here,
        copy_rule=RULE,
    )
    assert (changed := difference("live", lines_of([there]), lines_of([here]))) == "", changed
    assert len(here) > 500


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
