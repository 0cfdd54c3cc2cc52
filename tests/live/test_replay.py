"""A live engine's log can be replayed: the same events give the same commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from equality import Cached, Logits, n_different, stock_logits
from factory import make_tiny
from layouts import one_pool

from backend import _native
from backend.gguf.model_file import read_model
from backend.methods.catalogue import CACHED, METHODS
from backend.methods.compose import composition

PROMPTS = (33, 5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with three layers of 16 experts that can be cut in four."""
    folder = tmp_path_factory.mktemp("model")
    return make_tiny("qwen3moe", "Q8_0", folder / "m.gguf", n_ff_exp=128)


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[int, Logits]:
    return stock_logits(read_model(path), PROMPTS, n_thread=1)


@pytest.fixture
def cached(path: Path) -> Iterator[Cached]:
    opened = Cached(read_model(path), n_thread=1)
    yield opened
    opened.close()


def recorded(cached: Cached, method: str, rate: float, **options: float) -> _native.EventLog:
    """Return all events of some prompts that begin with an empty cache."""
    cached.patch.record_events(True)
    cached.configure(rate, method, **options)
    for n_prompt in PROMPTS:
        cached.logits(n_prompt)
    log = cached.patch.take_events()
    cached.patch.record_events(False)
    return log


def core_of(cached: Cached, method: str) -> _native.Core:
    """Return a new core like the patch's."""
    patch = cached.patch
    return _native.Core(
        patch.shape,
        patch.layout,
        composition(METHODS[method], patch.shape),
        n_embd=patch.n_embd,
        routers=patch.routers,
    )


def lines(log: _native.EventLog) -> list[list[str]]:
    return [log.describe(i) for i in range(len(log))]


@pytest.mark.parametrize("method", CACHED)
def test_every_method_can_be_replayed(method: str, cached: Cached) -> None:
    log = recorded(cached, method, 0.25)
    core = core_of(cached, method)
    assert _native.replay(log, core) == -1
    core.check()
    assert len(log) > 100
    # Both know the leftovers of the last pass.
    assert [core.counts(la).misses for la in range(cached.shape.n_layer)] == [
        c.misses for c in cached.patch.counts()
    ]


def test_another_core_answers_otherwise(cached: Cached) -> None:
    log = recorded(cached, "promoe-preempt", 0.25)
    assert _native.replay(log, core_of(cached, "lru")) >= 0
    assert len(cached.patch.take_events()) == 0


@pytest.mark.parametrize("method", ["lru", "promoe", "moepic", "moe-infinity", "klotski"])
def test_without_threads_two_runs_are_one(
    method: str, cached: Cached, expected: dict[int, Logits]
) -> None:
    """Every copy ends before the next event, so nothing depends on time."""
    first = recorded(cached, method, 0.25, n_transfer_thread=0)
    assert lines(recorded(cached, method, 0.25, n_transfer_thread=0)) == lines(first)
    assert cached.counts()[1] == 0  # nothing is ever late
    assert all(o.n_different == 0 for o in cached.compare(0.5, method, expected))


def test_what_is_recorded_is_what_was_routed(cached: Cached) -> None:
    """This holds for any cache. The weights are the router's, the largest first."""
    shape, patch = cached.shape, cached.patch
    traces = []
    for rate, method in ((1.0, "lru"), (0.0, "promoe")):
        recorder = _native.Recorder(
            shape.n_layer,
            shape.n_expert,
            shape.n_expert_used,
            patch.n_embd,
            scores=True,
            inputs=True,
        )
        cached.configure(rate, method)
        patch.record(recorder)
        cached.logits(33)
        patch.record(None)
        traces.append(recorder.take())
    assert all(np.array_equal(traces[0][key], traces[1][key]) for key in traces[0])
    ids, weights, scores = (traces[0][key] for key in ("ids", "weights", "scores"))
    assert np.array_equal(np.take_along_axis(scores, ids.astype(int), axis=2), weights)
    assert (np.diff(weights.astype(np.float32), axis=2) <= 0).all()
    assert np.allclose(scores.astype(np.float32).sum(axis=2), 1, atol=1e-2)  # a softmax over all
    assert np.linalg.norm(traces[0]["inputs"].astype(np.float32)) > 0


def test_the_softmax_of_the_chosen_alone(tmp_path: Path) -> None:
    """If the scores have no softmax, the weights of the chosen experts have one."""
    path = make_tiny("gpt-oss", "MXFP4", tmp_path / "m.gguf")
    cached = Cached(read_model(path), n_thread=1)
    shape = cached.shape
    recorder = _native.Recorder(shape.n_layer, shape.n_expert, shape.n_expert_used)
    cached.configure(0.5, "lru")
    cached.patch.record(recorder)
    cached.logits(33)
    cached.patch.record(None)
    weights = recorder.take()["weights"].astype(np.float32)
    cached.close()
    assert np.allclose(weights.sum(axis=2), 1, atol=1e-2) and (weights > 0).all()


def test_tuning_between_passes(cached: Cached, expected: dict[int, Logits]) -> None:
    cached.configure(0.25, "promoe-preempt")
    n_fetched = []
    for prefetch in (True, False, True):
        cached.patch.tune(_native.Tuning(prefetch=prefetch))
        before = sum(c.prefetches for c in cached.patch.counts())
        cached.logits(1)  # single tokens; prompts read ahead whatever is tuned
        n_fetched.append(sum(c.prefetches for c in cached.patch.counts()) - before)
        assert n_different(cached.logits(33), expected[33]) == 0
    assert n_fetched[0] > 0 and n_fetched[1] == 0 and n_fetched[2] > 0
    with pytest.raises(ValueError, match="no eviction of that number"):
        cached.patch.tune(_native.Tuning(eviction=7))


def test_what_does_not_fit_leaves_the_cache_as_it_was(
    cached: Cached, expected: dict[int, Logits]
) -> None:
    cached.configure(0.5, "lru")
    lies = cached.patch.layout
    unknown = _native.Spec("unheard of")
    for wrong in (
        _native.Composition(prefill=unknown),
        _native.Composition(evictions=[unknown]),
        _native.Composition(predictor=unknown),
    ):
        with pytest.raises(ValueError, match="unheard of"):
            cached.setup(lies, wrong)
    with pytest.raises(ValueError):
        cached.setup(_native.Layout.per_layer([1] * (cached.shape.n_layer - 1)))
    assert n_different(cached.logits(33), expected[33]) == 0
    assert cached.patch.slab_bytes == lies.bytes(cached.shape)


@pytest.mark.parametrize("bytes_per_s", [5e6, 50e6])
def test_a_slower_link_is_busy_for_what_it_brings(
    bytes_per_s: float, cached: Cached, expected: dict[int, Logits]
) -> None:
    cached.setup(one_pool(cached.shape, 9), link_bytes_per_s=bytes_per_s)
    assert n_different(cached.logits(5), expected[5]) == 0
    bytes_read = sum(c.bytes_read for c in cached.patch.counts())
    assert cached.patch.times().link_busy_us >= 0.999e6 * bytes_read / bytes_per_s > 0


def test_the_link_is_idle_while_nothing_foresees_what_is_missing(
    cached: Cached, expected: dict[int, Logits]
) -> None:
    cached.setup(one_pool(cached.shape, 9), link_bytes_per_s=5e6)
    began_s = time.perf_counter()
    assert n_different(cached.logits(5), expected[5]) == 0
    reactive = cached.patch.times()
    took_us = 1e6 * (time.perf_counter() - began_s)
    assert 0 < reactive.link_idle_us < took_us - reactive.link_busy_us
    cached.setup(_native.Layout.per_layer([cached.shape.n_expert] * cached.shape.n_layer))
    cached.logits(33)
    before = cached.patch.times().link_idle_us
    assert n_different(cached.logits(33), expected[33]) == 0
    assert cached.patch.times().link_idle_us == before  # nothing is missing
    assert sum(cached.patch.wave_us_by_layer()) == cached.patch.times().wave_us > 0
