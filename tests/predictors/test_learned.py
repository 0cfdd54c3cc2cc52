"""Learned predictors: trained from traces, written, loaded, refused, and evaluated."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend import _native
from backend.evaluation import predictors as evaluation
from backend.learning import recordings as learning
from backend.methods.catalogue import METHODS
from backend.methods.compose import Learned, predictor_of, spec
from backend.methods.part import part
from backend.traces.trace import PREFILL, Trace
from backend.weights import file as predictor_file
from backend.weights import four_bits
from backend.weights import lookup as learned
from predictors import fit, tables
from predictors import learned as training
from predictors.networks import Design, Model, Span, forward
from predictors.rounding import rounded, split
from predictors.routings import Routings

N_LAYER, N_EXPERT, N_USED, N_EMBD, N_VOCAB = 4, 8, 2, 12, 20
MODEL = "ab" * 32


def drawn_routers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N_LAYER, N_EXPERT, N_EMBD)).astype(np.float32)


def a_trace(n: int = 600, n_request: int = 12, seed: int = 1) -> Trace:
    """Return a trace whose inputs change slowly by layer, routed by drawn_routers()."""
    rng = np.random.default_rng(seed)
    routers = drawn_routers()
    embedding = np.random.default_rng(7).normal(size=(N_VOCAB, N_EMBD))
    turn = np.random.default_rng(8).normal(size=(N_EMBD, N_EMBD)) * 0.25 + np.eye(N_EMBD)
    tokens = rng.integers(N_VOCAB, size=n).astype(np.int32)
    x = embedding[tokens] + 1.0 * rng.normal(size=(n, N_EMBD))
    inputs, scores = [], []
    for layer in range(N_LAYER):
        inputs.append(x.astype(np.float16))
        logits = inputs[-1].astype(np.float32) @ routers[layer].T
        odds = np.exp(logits - logits.max(1, keepdims=True))
        scores.append((odds / odds.sum(1, keepdims=True)).astype(np.float16))
        x = np.tanh(x @ turn) * 1.5
    all_scores = np.stack(scores, 1)
    ids = np.argsort(-all_scores.astype(np.float32), 2, kind="stable")[..., :N_USED]
    per = n // n_request
    return Trace(
        architecture="test",
        layers=tuple(range(N_LAYER)),
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        chunk_bytes=((16,),) * N_LAYER,
        phases=np.full(n_request, PREFILL, np.uint8),
        requests=np.arange(n_request, dtype=np.int32),
        n_token=np.full(n_request, per, np.int32),
        n_routed=np.full((n_request, N_LAYER), per, np.int32),
        tokens=tokens,
        ids=ids.astype(np.uint8),
        scores=all_scores,
        inputs=np.stack(inputs, 1),
        has_inputs=np.ones(N_LAYER, np.uint8),
        n_embd=N_EMBD,
        model=MODEL,
    )


def a_model(data: Routings, strides: tuple[int, ...] = (1, 2), *, full_skip: bool = True) -> Model:
    rows = np.random.default_rng(9).normal(size=(N_VOCAB, 8), scale=0.3).astype(np.float32)
    return Model(data.sizes, Design(strides, 16, full_skip, 8), drawn_routers(), rows)


def fill(model: Model, seed: int = 0) -> Model:
    """Give the model random values, so that every array matters."""
    drawn = np.random.default_rng(seed).normal(size=model.values.shape, scale=0.3)
    model.values[:] = drawn
    return model


def gradient_of(model: Model, data: Routings, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss and the gradient of all values."""
    whole = np.zeros_like(model.values)
    keeps = (np.arange(len(rows)) % 4 > 0).astype(np.float32)

    def keep(span: Span, gradient: np.ndarray) -> None:
        span.of(whole)[:] = gradient

    return model.gradients(data, rows, keeps, keep), whole


def trained(tmp_path: Path, trace: Trace, epochs: int = 40) -> predictor_file.PredictorWeights:
    data = Routings.of([trace])
    model = a_model(data)
    limits = {"minutes": 60.0, "epochs": epochs}
    training.train(data, model, **limits, checkpoint=None, progress=lambda *_: None)
    return training.weights(model, data, data.split()[1], {})


def accuracies(trace: Trace, weights: predictor_file.PredictorWeights | None) -> dict[Any, float]:
    kept = {} if weights is None else {"learned": weights.arrays}
    numbers = {} if weights is None else {"learned": weights.numbers}
    known = Learned(kept, numbers)
    chosen = evaluation.candidates(known, has_routers=True)
    found = evaluation.evaluate(trace, chosen, list(drawn_routers()), known)
    return {(s.label, s.stride): float(np.nan_to_num(s.accuracy).mean()) for s in found}


def test_begins_as_the_next_router_and_beats_it_trained(tmp_path: Path) -> None:
    trace = a_trace()
    data = Routings.of([trace])
    new = training.weights(a_model(data), data, data.split()[1], {})
    without_first = {n: a for n, a in new.arrays.items() if n.startswith("l")}
    probe_of = {}
    for name, part_, arrays in (
        ("learned", part("learned", stride=1), without_first),
        ("next_router", part("next_router", stride=1), {}),
    ):
        s = spec(part_, Learned({"learned": arrays}, {"learned": {"activation": 0}}))
        layout = _native.Layout.per_layer([N_EXPERT] * N_LAYER)
        probe_of[name] = _native.PredictorProbe(
            s, trace.shape(), layout, N_EMBD, list(drawn_routers()), None, N_USED
        )
    row = np.ascontiguousarray(trace.inputs[5, 1][None], np.float32)
    told = [p.gate_seen(1, row) for p in probe_of.values()]
    assert [f[:2] for f in told[0]] == [f[:2] for f in told[1]]

    test = a_trace(seed=2)
    found = accuracies(test, trained(tmp_path, trace))
    for stride in (1, 2):
        rivals = [share for (name, s), share in found.items() if s == stride and name != "learned"]
        assert found["learned", stride] > max(rivals) + 0.03


@pytest.mark.parametrize(
    "design",
    [
        Design((1, 2), 16, full_skip=True, token_rank=8),
        Design((1, 2), 16, full_skip=False, token_rank=8),  # the later layer's router, scaled
        Design((2,), 16, full_skip=False, token_rank=0, plain=True),  # ProMoE's own
    ],
)
def test_the_gradients_are_those_of_the_loss(design: Design) -> None:
    data = Routings.of([a_trace(n=120, n_request=6)])
    drawn = np.random.default_rng(2)
    token_rows = drawn.normal(size=(N_VOCAB, 8)).astype(np.float32) if design.token_rank else None
    model = fill(Model(data.sizes, design, drawn_routers(), token_rows))
    model.values = kept = model.values.astype(np.float64)
    rows = np.arange(0, 120, 2)
    _, gradient = gradient_of(model, data, rows)
    for span in model.spans:
        for name, of_array in span.arrays(span.of(gradient)).items():
            direction = drawn.normal(size=of_array.shape)
            losses = []
            for step in (1e-6, -1e-6):
                model.values = kept.copy()
                model.arrays(span)[name][:] += step * direction
                losses.append(gradient_of(model, data, rows)[0])
            slope, scale = (losses[0] - losses[1]) / 2e-6, np.linalg.norm(of_array)
            assert scale > 0, (span.name, name)
            assert abs(slope - (of_array * direction).sum()) < 1e-5 * scale, (span.name, name)


def test_rounds_as_the_file_does() -> None:
    values = np.random.default_rng(1).normal(size=(3, 5, 128)).astype(np.float32)
    values[0, 0] = 0
    packed = four_bits.packed("w", values)
    assert np.array_equal(rounded(values), four_bits.unpacked("w", packed, 128))
    assert rounded(values[..., :65]) is not values and values.shape[-1] == 128
    odd = values[..., :65]
    assert rounded(odd) is odd  # such rows have no groups


def test_factors_are_trained_and_numbers_stay() -> None:
    data = Routings.of([a_trace(n=240, n_request=6)])
    model = fill(a_model(data))
    factors = training.Factors(model)
    rows, keeps = np.arange(200), np.ones(200, np.float32)
    names = [(span, name) for span in model.spans for name in ("w2", "b2") if name in span.shapes]
    before = [model.arrays(span)[name].copy() for span, name in names]
    losses = []
    for _ in range(30):
        factors.begin_step()
        losses.append(model.gradients(data, rows, keeps, partial(factors.update, 30.0)))
    assert losses[-1] < losses[0] - 0.5
    for (span, name), old in zip(names, before, strict=True):
        new = model.arrays(span)[name]
        assert not np.array_equal(new, old)
        if name == "w2":
            assert np.array_equal(rounded(new), new)  # as the file stores it
            assert np.array_equal(split(new)[1], split(old)[1])


def test_the_engine_computes_what_the_training_does() -> None:
    trace = a_trace(n=60, n_request=3)
    data = Routings.of([trace])
    model = fill(a_model(data))
    weights = training.weights(model, data, np.arange(60), {})
    model.is_rounded = False
    layout = _native.Layout.per_layer([N_EXPERT] * N_LAYER)
    known = Learned({"learned": weights.arrays}, {"learned": weights.numbers})
    probe = _native.PredictorProbe(
        spec(part("learned"), known), trace.shape(), layout, N_EMBD, [], None, N_EXPERT
    )
    scores = {
        span.name: forward(model.arrays(span), samples)[0]
        for span, samples in model.samples(data, np.arange(60))
    }
    for at in range(20):
        if at == 0:
            probe.request_began()
        for layer, experts, found in probe.pass_began(
            _native.Phase.decode, [int(trace.tokens[at])]
        ):
            assert np.allclose(scores[f"t{layer}."][at][experts], found, atol=1e-4)
        for layer in range(N_LAYER):
            probe.routed(layer, trace.ids[at, layer].tolist(), [], 1)
            row = np.ascontiguousarray(trace.inputs[at, layer][None], np.float32)
            for target, experts, found in probe.gate_seen(layer, row):
                stride = (target - layer) % N_LAYER
                expected = scores[f"l{layer}.s{stride}."][at]
                assert np.allclose(expected[experts], found, atol=1e-4)


def test_an_interrupted_training_ends_as_one_that_was_not(tmp_path: Path) -> None:
    data = Routings.of([a_trace(n=240)])

    def run(checkpoint: Path | None, epochs: int = 4, until: int = -1) -> Any:
        calls = 0

        def stop(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == until:
                raise KeyboardInterrupt

        model = a_model(data)
        done = training.train(
            data, model, minutes=60, epochs=epochs, checkpoint=checkpoint, progress=stop
        )
        return done, model.values

    path = tmp_path / "checkpoint.npz"
    whole, values = run(None)
    with pytest.raises(KeyboardInterrupt):
        run(path, until=12)
    assert path.is_file()
    went_on, same = run(path)
    assert went_on.history == whole.history and np.array_equal(values, same)
    path.write_bytes(b"no checkpoint")
    assert run(path, epochs=2)[0].epoch == 2  # from the beginning


@pytest.mark.parametrize("method", ["correlation", "token_table", "eam", "popularity"])
def test_tables_make_predictors(method: str, tmp_path: Path) -> None:
    trace = a_trace(n=120)
    weights = getattr(tables, method)([trace])
    fit.write(tmp_path / "t.predictor", MODEL, weights)
    back = predictor_file.read(tmp_path / "t.predictor", MODEL, weights.sizes)
    assert all(np.array_equal(back.arrays[name], a) for name, a in weights.arrays.items())


def test_pairs_are_counted_as_a_plain_loop_does() -> None:
    trace = a_trace(n=36, n_request=3)
    counts = tables.pair_counts([trace])
    numbers = np.repeat(trace.requests, trace.n_token)
    expected = np.zeros_like(counts)
    for at in range(36):
        for layer in range(N_LAYER):
            if layer == 0 and (at == 0 or numbers[at] != numbers[at - 1]):
                continue
            earlier = trace.ids[at, layer - 1] if layer else trace.ids[at - 1, -1]
            for i in earlier:
                for j in trace.ids[at, layer]:
                    expected[layer, i, j] += 1
    assert np.array_equal(counts, expected)


def test_expert_mlp_learns_and_its_folded_norms_make_a_predictor() -> None:
    pytest.importorskip("torch")
    from predictors import expert_mlp

    trace = a_trace()
    weights = expert_mlp.train([trace], minutes=0.05, epochs=2, progress=lambda *_: None)
    assert weights.fault() is None
    assert len([name for name in weights.arrays if name.startswith("w")]) == 7


class File(SimpleNamespace):
    """The part of ModelFile that backend.weights.lookup uses."""

    def key(self, name: str, default: Any = None) -> Any:
        return N_EMBD if name == "embedding_length" else default


def a_file(tmp_path: Path) -> Any:
    return File(
        path=tmp_path / "m.gguf", fingerprint=MODEL, n_moe_layer=N_LAYER, n_expert=N_EXPERT,
        n_expert_used=N_USED,
    )  # fmt: skip


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setattr(learned, "data_folder", lambda: folder)
    return folder


def test_weights_beside_the_model_are_used_and_bad_ones_refused(
    tmp_path: Path, data_folder: Path
) -> None:
    file = a_file(tmp_path)
    assert learned.load(file) == (Learned({}, {}), "")
    data = Routings.of([a_trace(n=120)])
    weights = training.weights(a_model(data, (1,)), data, np.arange(9), {})
    beside = learned.beside(file, "learned")
    fit.write(beside, MODEL, weights)
    found, remark = learned.load(file)
    assert set(found.arrays) == {"learned"} and remark == ""
    # The method needs stride 2. The file has no arrays for it, so the fallback is used.
    chosen = predictor_of(METHODS["promoe"], found)
    assert chosen is not None and chosen.name == "next_router"
    whole = beside.read_bytes()
    for bad in (b"", b"garbage" * 99, whole[: len(whole) // 2], whole[:-1]):
        beside.write_bytes(bad)
        found, remark = learned.load(file)
        assert found.arrays == {} and remark.endswith(".") and beside.name in remark
    fit.write(beside, "cd" * 32, weights)
    assert "another model" in learned.load(file)[1]


def test_the_data_folder_goes_first(tmp_path: Path, data_folder: Path) -> None:
    file = a_file(tmp_path)
    data = Routings.of([a_trace(n=120)])
    weights = training.weights(a_model(data), data, np.arange(9), {})
    own = learned.in_data_folder(file, "learned")
    own.parent.mkdir(parents=True)
    own.write_bytes(b"broken")
    fit.write(learned.beside(file, "learned"), MODEL, weights)
    found, remark = learned.load(file)
    assert set(found.arrays) == {"learned"} and own.name in remark  # continues with the next file


def test_only_better_weights_replace_the_present_ones(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path)
    monkeypatch.setattr(learning, "routers", lambda *_: list(drawn_routers()))
    held_out = tmp_path / "held.npz"
    a_trace(n=240, seed=3).write(held_out)
    data = Routings.of([a_trace()])
    poor = training.weights(a_model(data), data, np.arange(9), {})
    good = trained(tmp_path, a_trace())
    present = learned.in_data_folder(file, "learned")
    present.parent.mkdir(parents=True)
    candidate = tmp_path / "candidate"
    fit.write(present, MODEL, poor)
    fit.write(candidate, MODEL, good)
    verdict = learning.adopt_if_better(file, candidate, [held_out])
    assert verdict.is_better and verdict.new > verdict.old and not candidate.exists()
    kept = present.read_bytes()
    fit.write(candidate, MODEL, poor)
    assert not learning.adopt_if_better(file, candidate, [held_out]).is_better
    candidate.write_bytes(b"broken")
    assert not learning.adopt_if_better(file, candidate, [held_out]).is_better
    assert present.read_bytes() == kept and not candidate.exists()
