"""Recorded choices replace those of the routers, with and without a cache."""

from __future__ import annotations

import numpy as np
import pytest
from factory import make_tiny

from backend import _native
from backend.engine.loading import CachedModel, load_native
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import Context
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of

N_PROMPT, N_DECODE, N_UBATCH, N_USED = 21, 5, 16, 3
STEPS = [(0, 16), (16, 5), *((i, 1) for i in range(N_PROMPT, N_PROMPT + N_DECODE))]
TOKENS = np.random.default_rng(3).integers(5, 200, N_PROMPT + N_DECODE).tolist()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    """Return a model that uses four experts. Tests force another number."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("forced") / "m.gguf")
    return read_model(path).using(N_USED)


@pytest.fixture(scope="module")
def ids(file: ModelFile) -> np.ndarray:
    chance = np.random.default_rng(1)
    shape = (N_PROMPT + N_DECODE, file.n_moe_layer)
    choices = [chance.permutation(file.n_expert)[:N_USED] for _ in range(shape[0] * shape[1])]
    return np.stack(choices).reshape(*shape, N_USED).astype(np.int32)


def run(model: object, forced: object, patch: object | None) -> np.ndarray:
    """Return the logits of every position."""
    hook = patch or forced
    context = Context(
        model,  # type: ignore[arg-type]
        n_context=256,
        n_ubatch=N_UBATCH,
        n_thread=1,
        callback=getattr(hook, "callback", None),
        user_data=getattr(hook, "user_data", None),
    )
    rows = []
    for position, n_token in STEPS:
        tokens = TOKENS[position : position + n_token]
        if forced is not None:
            forced.begin_pass(position, n_token)  # type: ignore[attr-defined]
        if patch is not None:
            phase = _native.Phase.decode if n_token == 1 else _native.Phase.prefill
            patch.begin_pass(phase, tokens)  # type: ignore[attr-defined]
        assert context.decode(tokens, position, all_logits=True) == 0
        assert patch is None or patch.end_pass()  # type: ignore[attr-defined]
        rows.append(context.logits(n_token))
    context.close()
    return np.concatenate(rows)


def test_the_recorded_choices_are_used_and_the_logits_are_stocks(
    file: ModelFile, ids: np.ndarray
) -> None:
    forced = _native.ForcedRouting(list(file.expert_tensors), file.n_expert, ids)
    stock = load_native(file)
    expected, free = run(stock, forced, None), run(stock, None, None)
    stock.close()
    assert forced.error == ""
    assert not np.array_equal(expected, free)

    cached = CachedModel(file, n_thread=1)
    patch, shape = cached.patch, cached.patch.shape
    assert shape.n_expert_used == N_USED
    for method in ("lru", "promoe"):
        options = _native.PatchOptions(max_token=N_UBATCH)
        chosen = METHODS[method]
        slots = layout(chosen, shape, slots_of(0.3, shape.n_expert))
        patch.configure(slots, composition(chosen, shape), options)
        recorder = _native.Recorder(shape.n_layer, shape.n_expert, shape.n_expert_used)
        patch.record(recorder)
        patch.force(forced)
        logits = run(cached.model, forced, patch)
        assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32)), method
        assert np.array_equal(recorder.take()["ids"], ids), method
    patch.record(None)
    cached.close()


def test_a_layer_that_computes_only_the_last_token_is_given_that_tokens_choice(
    file: ModelFile, ids: np.ndarray
) -> None:
    cached = CachedModel(file, n_thread=1)
    patch, shape = cached.patch, cached.patch.shape
    forced = _native.ForcedRouting(list(file.expert_tensors), file.n_expert, ids)
    lru = METHODS["lru"]
    slots = layout(lru, shape, slots_of(0.3, shape.n_expert))
    patch.configure(slots, composition(lru, shape), _native.PatchOptions())
    recorder = _native.Recorder(shape.n_layer, shape.n_expert, shape.n_expert_used)
    patch.record(recorder)
    patch.force(forced)
    context = Context(
        cached.model,
        n_context=256,
        n_ubatch=N_UBATCH,
        n_thread=1,
        callback=patch.callback,
        user_data=patch.user_data,
    )
    forced.begin_pass(3, 9)
    patch.begin_pass(_native.Phase.prefill, TOKENS[:9])
    assert context.decode(TOKENS[:9], 0) == 0 and patch.end_pass()  # the last token's logits only
    recording = recorder.take()
    patch.record(None)
    context.close()
    cached.close()
    assert recording["n_routed"].tolist() == [[9] * (shape.n_layer - 1) + [1]]
    assert np.array_equal(recording["ids"][:, :-1], ids[3:12, :-1])
    assert np.array_equal(recording["ids"][-1, -1], ids[11, -1])


def test_what_does_not_fit_is_refused(file: ModelFile, ids: np.ndarray) -> None:
    layers = list(file.expert_tensors)
    with pytest.raises(ValueError, match="does not fit"):
        _native.ForcedRouting(layers[:-1], file.n_expert, ids)
    with pytest.raises(ValueError, match="does not fit"):
        _native.ForcedRouting(layers, int(ids.max()), ids)
    weights = np.zeros(ids.shape, np.float32)
    for seen in ({"weights": weights[:-1]}, {"inputs": np.zeros((len(ids) - 1, 1, 1), np.float32)}):
        with pytest.raises(ValueError, match="does not fit"):
            _native.ForcedRouting(layers, file.n_expert, ids, **seen)
    with pytest.raises(ValueError, match="0 or more"):
        _native.CopyRule(n_event=-1)
    forced = _native.ForcedRouting(layers, file.n_expert, ids)
    with pytest.raises(IndexError, match="ends before"):
        forced.begin_pass(len(ids) - 2, 3)
    # A model that chooses another number of experts ends the pass with a sentence.
    model = load_native(file.using(2))
    context = Context(
        model,
        n_context=256,
        n_ubatch=8,
        n_thread=1,
        callback=forced.callback,
        user_data=forced.user_data,
    )
    forced.begin_pass(0, 4)
    context.decode(TOKENS[:4], 0)
    assert "other numbers" in forced.error
    context.close()
    model.close()
    with pytest.raises(ValueError, match="cannot use 99"):
        file.using(99)


def test_the_link_is_measured_before_anything_is_cached(file: ModelFile) -> None:
    cached = CachedModel(file, n_thread=1)
    patch, shape, lru = cached.patch, cached.patch.shape, METHODS["lru"]
    slots, parts = layout(lru, shape, slots_of(0.3, shape.n_expert)), composition(lru, shape)
    throttled = _native.PatchOptions(link_bytes_per_s=50e6)
    patch.configure(slots, parts, throttled)
    for by_chunk in (False, True):
        assert 0 < patch.measure_link(0.1, by_chunk) < 60e6
    context = Context(
        cached.model,
        n_context=256,
        n_ubatch=8,
        n_thread=1,
        callback=patch.callback,
        user_data=patch.user_data,
    )
    patch.begin_pass(_native.Phase.prefill, [7])
    assert context.decode([7], 0) == 0 and patch.end_pass()
    with pytest.raises(RuntimeError, match="before anything is cached"):
        patch.measure_link(0.1, False)
    context.close()
    cached.close()
