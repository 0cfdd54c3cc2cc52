"""The recorder returns the recorded passes in order."""

from typing import Any

import numpy as np
import pytest

from backend import _native

N_LAYER, N_EXPERT, N_USED, N_EMBD = 3, 16, 2, 4
PREFILL, DECODE = _native.Phase.prefill, _native.Phase.decode


def make(**options: Any) -> _native.Recorder:
    sizes = {"n_layer": N_LAYER, "n_expert": N_EXPERT, "n_expert_used": N_USED, "n_embd": N_EMBD}
    return _native.Recorder(**{**sizes, **options})


class Pass:
    """A pass of random routings; the last layer routes `n_last` tokens."""

    def __init__(self, seed: int, n_token: int, n_last: int, n_expert: int = N_EXPERT) -> None:
        random = np.random.default_rng(seed)
        self.tokens = random.integers(0, 1000, n_token, np.int32)
        self.n_routed = [n_token] * (N_LAYER - 1) + [n_last]
        self.ids, self.weights, self.scores, self.inputs = [], [], [], []
        for n in self.n_routed:
            order = random.random((n, n_expert)).argsort(axis=1)
            self.ids.append(np.ascontiguousarray(order[:, :N_USED], np.int32))
            self.weights.append(random.random((n, N_USED), np.float32))
            self.scores.append(random.random((n, n_expert), np.float32))
            self.inputs.append(random.standard_normal((n, N_EMBD), np.float32))

    def tell(self, recorder: _native.Recorder, phase: Any, whole: bool = True) -> None:
        recorder.pass_began(phase, self.tokens)
        for layer, n in enumerate(self.n_routed):
            if n:
                recorder.routed(layer, self.ids[layer], self.weights[layer])
                recorder.scores(layer, self.scores[layer])
                recorder.input(layer, self.inputs[layer])
        recorder.pass_ended(whole)


def placed(passes: list[Pass], name: str, width: int, dtype: Any) -> np.ndarray:
    """Return the expected array. The rows of a layer belong to the last tokens of a pass."""
    n = sum(len(p.tokens) for p in passes)
    whole = np.zeros((n, N_LAYER, width), dtype)
    end = 0
    for p in passes:
        end += len(p.tokens)
        for layer, rows in enumerate(getattr(p, name)):
            whole[end - len(rows) : end, layer] = rows
    return whole


def test_everything_lies_in_its_place() -> None:
    recorder = make(scores=True, inputs=True)
    passes = [Pass(0, 5, 1), Pass(1, 1, 1), Pass(2, 3, 0), Pass(3, 1, 1)]
    recorder.request_began()
    passes[0].tell(recorder, PREFILL)
    passes[1].tell(recorder, DECODE)
    recorder.request_began()
    passes[2].tell(recorder, PREFILL)
    passes[3].tell(recorder, DECODE)
    assert (recorder.n_pass, recorder.n_token, recorder.full) == (4, 10, False)
    taken = recorder.take()
    assert taken["phases"].tolist() == [0, 1, 0, 1]
    assert taken["requests"].tolist() == [0, 0, 1, 1]
    assert taken["n_token"].tolist() == [5, 1, 3, 1]
    assert taken["n_routed"].tolist() == [p.n_routed for p in passes]
    assert np.array_equal(taken["tokens"], np.concatenate([p.tokens for p in passes]))
    for name, width, dtype in (
        ("ids", N_USED, np.uint8),
        ("weights", N_USED, np.float16),
        ("scores", N_EXPERT, np.float16),
        ("inputs", N_EMBD, np.float16),
    ):
        assert taken[name].dtype == dtype
        assert np.array_equal(taken[name], placed(passes, name, width, dtype)), name
    assert taken["has_inputs"].tolist() == [1, 1, 1]


def test_taking_goes_on_with_nothing_and_the_arrays_live_on() -> None:
    recorder = make()
    first, second = Pass(0, 2, 1), Pass(1, 1, 1)
    recorder.request_began()
    first.tell(recorder, PREFILL)
    taken = recorder.take()
    assert recorder.bytes == recorder.n_token == 0
    second.tell(recorder, DECODE)
    again = recorder.take()
    del recorder
    assert np.array_equal(taken["ids"], placed([first], "ids", N_USED, np.uint8))
    assert np.array_equal(again["ids"], placed([second], "ids", N_USED, np.uint8))
    assert "scores" not in taken and "inputs" not in taken


def test_more_than_256_experts_take_two_bytes() -> None:
    recorder = make(n_expert=300)
    told = Pass(0, 4, 4, n_expert=300)
    told.tell(recorder, PREFILL)
    ids = recorder.take()["ids"]
    assert ids.dtype == np.uint16 and ids.max() > 255
    assert np.array_equal(ids, placed([told], "ids", N_USED, np.uint16))


def test_a_pass_that_came_to_nothing_is_dropped_whole() -> None:
    recorder = make(scores=True, inputs=True)
    kept = [Pass(0, 3, 1), Pass(2, 1, 1)]
    kept[0].tell(recorder, PREFILL)
    before = recorder.bytes
    Pass(1, 4, 1).tell(recorder, DECODE, whole=False)
    assert (recorder.bytes, recorder.n_pass, recorder.n_dropped) == (before, 1, 1)
    recorder.pass_began(DECODE, np.zeros(1, np.int32))  # without a report of its end
    kept[1].tell(recorder, DECODE)
    assert recorder.n_dropped == 2
    taken = recorder.take()
    assert np.array_equal(taken["inputs"], placed(kept, "inputs", N_EMBD, np.float16))
    assert taken["has_inputs"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("layer", "ids"),
    [
        (0, [[0, N_EXPERT]]),
        (0, [[-1, 0]]),
        (N_LAYER, [[0, 1]]),
        (-1, [[0, 1]]),
        (0, [[0, 1], [2, 3]]),
        (0, [[0]]),
    ],
)
def test_a_pass_that_does_not_fit_together_is_dropped(layer: int, ids: list[list[int]]) -> None:
    recorder = make(scores=True, inputs=True)
    recorder.pass_began(DECODE, np.zeros(1, np.int32))
    recorder.routed(layer, np.array(ids, np.int32))
    recorder.scores(layer, np.zeros((1, N_EXPERT), np.float32))
    recorder.input(layer, np.zeros((1, N_EMBD), np.float32))
    recorder.pass_ended(True)
    assert (recorder.n_pass, recorder.n_dropped, recorder.bytes) == (0, 1, 0)


def test_what_was_not_told_is_not_there() -> None:
    recorder = make(scores=True, inputs=True)
    told = Pass(0, 2, 2)
    recorder.pass_began(PREFILL, told.tokens)
    for layer in range(N_LAYER):
        recorder.routed(layer, told.ids[layer])  # without weights
        if layer != 1:
            recorder.input(layer, told.inputs[layer])
            recorder.scores(layer, told.scores[layer])
    recorder.pass_ended(True)
    taken = recorder.take()
    assert "weights" not in taken and "scores" not in taken
    assert taken["has_inputs"].tolist() == [1, 0, 1]
    assert not taken["inputs"][:, 1].any()


def test_rows_of_the_whole_pass_are_cut_to_the_tokens_that_were_routed() -> None:
    recorder = make(inputs=True)
    told = Pass(0, 3, 1)
    rows = np.random.default_rng(0).standard_normal((3, N_EMBD), np.float32)
    recorder.pass_began(PREFILL, told.tokens)
    recorder.routed(2, told.ids[2], told.weights[2])
    recorder.input(2, rows)
    recorder.pass_ended(True)
    inputs = recorder.take()["inputs"]
    assert np.array_equal(inputs[2, 2], rows[2].astype(np.float16))
    assert not inputs[:2].any()


def test_the_limit_ends_the_recording_and_keeps_what_there_is() -> None:
    probe = make()
    Pass(0, 1, 1).tell(probe, DECODE)
    recorder = make(max_bytes=3 * probe.bytes)
    for seed in range(3):
        Pass(seed, 1, 1).tell(recorder, DECODE)
    assert not recorder.full and recorder.bytes == 3 * probe.bytes
    Pass(3, 1, 1).tell(recorder, DECODE)
    assert recorder.full and recorder.n_pass == 3
    assert recorder.bytes == 3 * probe.bytes
    assert recorder.n_dropped == 0
    assert not recorder.wants_weights
    assert len(recorder.take()["tokens"]) == 3


def test_values_beyond_f16_become_the_largest() -> None:
    recorder = make(inputs=True)
    told = Pass(0, 1, 1)
    values = np.array([[1e30, -np.inf, np.nan, 1e-9]], np.float32)
    recorder.pass_began(DECODE, told.tokens)
    recorder.routed(0, told.ids[0], told.weights[0])
    recorder.input(0, values)
    recorder.pass_ended(True)
    row = recorder.take()["inputs"][0, 0]
    assert row[0] == 65504 and row[1] == -65504 and np.isnan(row[2]) and row[3] == 0


def test_it_wants_only_what_it_was_made_for_and_only_in_a_pass() -> None:
    recorder = make(weights=False, scores=True)
    assert not recorder.wants_scores
    recorder.pass_began(DECODE, np.zeros(1, np.int32))
    assert recorder.wants_scores and not recorder.wants_weights and not recorder.wants_inputs
    with pytest.raises(RuntimeError, match="within a pass"):
        recorder.take()
    recorder.pass_ended(True)
    assert not recorder.wants_scores


@pytest.mark.parametrize(
    "options",
    [{"n_layer": 0}, {"n_expert": 70000}, {"n_expert_used": 17}, {"n_embd": 0, "inputs": True}],
)
def test_sizes_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs layers"):
        make(**options)


def test_a_layer_that_uses_fewer_experts_repeats_its_last_one() -> None:
    recorder = make(n_expert_used=3, n_used=[1, 3, 2])
    recorder.request_began()
    recorder.pass_began(DECODE, np.array([7], np.int32))
    for layer, chosen in enumerate(([4], [5, 6, 7], [8, 9])):
        weights = np.linspace(1, 0.5, len(chosen), dtype=np.float32)
        recorder.routed(layer, np.array([chosen], np.int32), weights[None])
    recorder.pass_ended(True)
    taken = recorder.take()
    assert taken["ids"].tolist() == [[[4, 4, 4], [5, 6, 7], [8, 9, 9]]]
    assert taken["weights"].tolist() == [[[1, 0, 0], [1, 0.75, 0.5], [1, 0.5, 0]]]
    with pytest.raises(ValueError, match="needs layers"):
        make(n_used=[1, 3, 2])
