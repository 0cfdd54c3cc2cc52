"""Same code: on a recording, the simulator's core has the events and commands of the live one.

Copies end by one rule in both. The tests cover every eviction, allocation and scheduler, and every
predictor that needs only the routing; test_event_logs.py has the methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from equality import Cached
from event_logs import difference, lines_of
from factory import PUZZLE, make_tiny

from backend import _native
from backend._native import Composition, Spec
from backend.gguf.model_file import read_model
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of
from backend.simulation.model import token_experts
from backend.traces.trace import Trace

PROMPTS = (33, 5)
N_DECODE = 12
N_SLOTS = (5, 9)
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


@pytest.fixture(scope="module")
def puzzle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cached]:
    """Return a model of four layers of 16 experts, of which 2, 4, 1 and 3 are used."""
    folder = tmp_path_factory.mktemp("model")
    path = make_tiny("nemotron_h_moe", "Q8_0", folder / "m.gguf", **PUZZLE)
    opened = Cached(read_model(path), n_thread=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def hashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cached]:
    """Return a model of four layers of 16 experts; the first two choose 3 by the token."""
    folder = tmp_path_factory.mktemp("model")
    sizes = {"n_layer": 4, "n_expert": 16, "n_expert_used": 3}
    opened = Cached(read_model(make_tiny("deepseek4", "Q8_0", folder / "m.gguf", **sizes)), 1)
    yield opened
    opened.close()


def live(
    cached: Cached,
    layout: _native.Layout,
    chosen: Composition,
    prompts: Sequence[int] = PROMPTS,
    n_decode: int = N_DECODE,
) -> tuple[_native.EventLog, Trace]:
    """Return the live events of some prompts on an empty cache, and the routings."""
    shape, patch = cached.shape, cached.patch
    patch.record_events(True)
    cached.setup(layout, chosen, copy_rule=RULE)
    recorder = _native.Recorder(
        shape.n_layer, shape.n_expert, shape.n_expert_used, weights=True, n_used=shape.n_used
    )
    patch.record(recorder)
    for n_prompt in prompts:
        cached.logits(n_prompt, n_decode)
    patch.record(None)
    trace = Trace(
        architecture="qwen3moe",
        layers=tuple(cached.file.expert_tensors),
        n_expert=shape.n_expert,
        n_expert_used=shape.n_expert_used,
        chunk_bytes=tuple(tuple(sizes) for sizes in shape.chunk_bytes),
        n_cut=tuple(shape.n_cut),
        layer_kind=tuple(shape.kind),
        n_used=tuple(shape.n_used),
        **recorder.take(),
    )
    return patch.take_events(), trace


def assert_same(cached: Cached, layout: _native.Layout, chosen: Composition) -> None:
    there, trace = live(cached, layout, chosen)
    tables = token_experts(cached.file, trace.layers)
    core = _native.Core(trace.shape(), layout, chosen, token_experts=tables)
    here = _native.EventLog()
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


@pytest.mark.parametrize("n_slot", N_SLOTS)
@pytest.mark.parametrize(
    "eviction", [name for name in _native.eviction_names() if name != "belady"]
)
def test_every_eviction(cached: Cached, eviction: str, n_slot: int) -> None:
    reactive = Spec("reactive")
    chosen = Composition(evictions=[Spec(eviction)], prefill=reactive, decode=reactive)
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, n_slot), chosen)


@pytest.mark.parametrize(
    ("eviction", "predictor"),
    [("decayed", "eam"), ("recall", "correlation"), ("lcp", "token_table"), ("eam", "popularity")],
)
def test_layers_that_use_different_numbers_of_experts(
    puzzle: Cached, eviction: str, predictor: str
) -> None:
    assert puzzle.shape.n_used == [2, 4, 1, 3]
    chosen = Composition(predictor=Spec(predictor), evictions=[Spec(eviction)], depth=2)
    assert_same(puzzle, _native.allocate(Spec("uniform"), puzzle.shape, 6), chosen)


@pytest.mark.parametrize("n_slot", N_SLOTS)
@pytest.mark.parametrize("allocation", _native.allocation_names())
def test_every_allocation(cached: Cached, allocation: str, n_slot: int) -> None:
    spec = Spec(allocation, {}, PLANS.get(allocation, {}))
    assert_same(cached, _native.allocate(spec, cached.shape, n_slot), Composition())


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_cut_experts(cached: Cached, share: float) -> None:
    layout = _native.allocate(Spec("uniform", {"top_share": share}), cached.shape, 6)
    assert layout.any_cut() or share == 0
    assert_same(cached, layout, Composition(evictions=[Spec("lcp")]))


@pytest.mark.parametrize("scheduler", _native.scheduler_names())
def test_every_scheduler(cached: Cached, scheduler: str) -> None:
    chosen = Composition(
        predictor=Spec("previous_token"), prefill=Spec(scheduler), decode=Spec(scheduler), depth=2
    )
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, 6), chosen)


@pytest.mark.parametrize(
    "predictor", ["previous_token", "token_table", "popularity", "correlation", "eam"]
)
def test_every_predictor_of_routings(cached: Cached, predictor: str) -> None:
    chosen = Composition(predictor=Spec(predictor), depth=2)
    assert_same(cached, _native.allocate(Spec("uniform"), cached.shape, 6), chosen)


@pytest.mark.parametrize("scheduler", ["ordered", "reactive", "split_pipeline"])
def test_layers_that_choose_by_the_token(hashed: Cached, scheduler: str) -> None:
    spec = Spec(scheduler)
    chosen = Composition(predictor=Spec("previous_token"), prefill=spec, decode=spec)
    assert_same(hashed, _native.allocate(Spec("uniform"), hashed.shape, 4), chosen)


@pytest.mark.parametrize("method", ["lru", "outrider", "promoe"])
def test_layers_that_choose_by_the_token_have_no_miss_in_decoding(
    hashed: Cached, method: str
) -> None:
    tables = token_experts(hashed.file, tuple(hashed.file.expert_tensors))
    assert [len(t) > 0 for t in tables] == [True, True, False, False]
    for told, found in zip(hashed.patch.token_experts, tables, strict=True):
        assert np.array_equal(told.ravel(), found.ravel())
    hashed.configure(0.25, method)
    hashed.logits(1, 40)
    by_layer = hashed.patch.counts()
    assert [c.misses for c in by_layer[:2]] == [0, 0]
    assert all(c.hits + c.late == 41 * 3 for c in by_layer[:2])


@pytest.mark.parametrize("method", ["lru", "promoe", "outrider", "klotski", "outrider-recall"])
def test_what_is_known_makes_no_more_reads(hashed: Cached, method: str) -> None:
    """klotski also guesses experts of the other layers.

    It learns later that the guesses are wrong where it does not guess those that are known.
    """
    shape, chosen = hashed.shape, METHODS[method]
    slots = layout(chosen, shape, slots_of(0.25, shape.n_expert))
    parts = composition(chosen, shape, has_routers=False)
    _, trace = live(hashed, slots, parts, (1,), 150)
    n_byte = []
    for tables in ([], hashed.patch.token_experts):
        core = _native.Core(shape, slots, parts, token_experts=tables)
        _native.simulate(core, trace.future(), _native.Machine(), weights=trace.weights)
        n_byte.append([core.counts(layer).bytes_read for layer in range(shape.n_layer)])
    without, with_tables = n_byte
    assert sum(with_tables[:2]) <= sum(without[:2])
    if method != "klotski":
        assert sum(with_tables) <= sum(without)
