"""Learned predictors: trained from traces, written, loaded, refused, and evaluated."""

from __future__ import annotations

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

torch = pytest.importorskip("torch")
from predictors import expert_mlp, fit, tables  # noqa: E402
from predictors import learned as training  # noqa: E402
from predictors.networks import Design, Networks, TokenNetworks  # noqa: E402
from predictors.rounding import Factors, rounded  # noqa: E402
from predictors.routings import Routings  # noqa: E402

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


def a_model(data: Routings, strides: tuple[int, ...] = (1, 2)) -> training.Model:
    torch.manual_seed(0)
    design = Design(strides, 16, True, 8)
    return training.Model(
        data, design, torch.from_numpy(drawn_routers()), torch.randn(N_VOCAB, 8) * 0.3
    )


def trained(tmp_path: Path, trace: Trace, epochs: int = 40) -> predictor_file.PredictorWeights:
    data = Routings.of([trace])
    model = a_model(data)
    limits = {"minutes": 60.0, "epochs": epochs}
    training.train(data, model, **limits, checkpoint=None, progress=lambda *_: None)
    return model.weights(data, data.split()[1], {})


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
    new = a_model(data).weights(data, data.split()[1], {})
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


def test_rounds_as_the_file_does() -> None:
    values = torch.randn(3, 128, 5, requires_grad=True)
    kept = rounded(values, 1)
    rows = np.ascontiguousarray(values.detach().movedim(1, -1).numpy())
    of_file = four_bits.unpacked("w", four_bits.packed("w", rows), 128)
    assert np.array_equal(kept.detach().movedim(1, -1).numpy(), of_file)
    kept.sum().backward()
    assert values.grad is not None and bool((values.grad == 1).all())


def test_factors_are_trained_and_numbers_stay() -> None:
    weights = torch.nn.Parameter(torch.randn(2, 64, 3))
    numbers = rounded(weights, 1).detach()
    numbers = numbers / numbers.abs().amax(1, keepdim=True) * 8
    target = 1.25 * rounded(weights, 1).detach()
    factors = Factors([(weights, 1)])
    optimiser = torch.optim.Adam(factors.factors, lr=3e-3)
    for _ in range(200):
        (weights - target).square().sum().backward()
        factors.take_gradients()
        optimiser.step()
        factors.put()
    assert torch.allclose(weights, target, atol=0.02)
    assert torch.equal(rounded(weights, 1), weights)  # as the file stores it
    now = weights.detach() / weights.detach().abs().amax(1, keepdim=True) * 8
    assert torch.allclose(now, numbers, atol=1e-4)


def test_the_engine_computes_what_torch_does() -> None:
    data = Routings.of([a_trace(n=60, n_request=3)])
    model = a_model(data)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = model.weights(data, torch.arange(60), {})
    model.round(False)
    layout = _native.Layout.per_layer([N_EXPERT] * N_LAYER)
    trace = a_trace(n=60, n_request=3)
    known = Learned({"learned": weights.arrays}, {"learned": weights.numbers})
    probe = _native.PredictorProbe(
        spec(part("learned"), known), trace.shape(), layout, N_EMBD, [], None, N_EXPERT
    )
    rows = torch.arange(60)
    with torch.no_grad():
        x, before, *_ = model.of_layers.batch(data, rows)
        of_layers = model.of_layers(x, before)
        assert isinstance(model.of_tokens, TokenNetworks)
        tokens, last, before, *_ = model.of_tokens.batch(data, rows)
        of_tokens = model.of_tokens(tokens, last, before)
    assert isinstance(model.of_layers, Networks)
    number = {pair: i for i, pair in enumerate(model.of_layers.pairs)}
    for at in range(20):
        if at == 0:
            probe.request_began()
        for layer, experts, scores in probe.pass_began(
            _native.Phase.decode, [int(trace.tokens[at])]
        ):
            assert np.allclose(of_tokens[layer, at][experts], scores, atol=1e-4)
        for layer in range(N_LAYER):
            probe.routed(layer, trace.ids[at, layer].tolist(), [], 1)
            row = np.ascontiguousarray(trace.inputs[at, layer][None], np.float32)
            for target, experts, scores in probe.gate_seen(layer, row):
                stride = (target - layer) % N_LAYER
                expected = of_layers[number[layer, stride], at]
                assert np.allclose(expected[experts], scores, atol=1e-4)


def test_an_interrupted_training_ends_as_one_that_was_not(tmp_path: Path) -> None:
    data = Routings.of([a_trace(n=240)])

    def run(model: training.Model, epochs: int, checkpoint: Path | None, until: int) -> Any:
        calls = 0

        def stop(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == until:
                raise KeyboardInterrupt

        return training.train(
            data, model, minutes=60, epochs=epochs, checkpoint=checkpoint, progress=stop
        )

    path = tmp_path / "checkpoint.pt"
    broken = a_model(data)
    with pytest.raises(KeyboardInterrupt):
        run(broken, 9, path, until=12)
    assert path.is_file()
    went_on = run(a_model(data), 9, path, until=-1)
    assert went_on.epoch > 1 and went_on.history[0]["epoch"] == 1
    path.write_bytes(b"no checkpoint")
    assert run(a_model(data), 2, path, until=-1).epoch == 2  # from the beginning


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
    trace = a_trace()
    weights = expert_mlp.train([trace], minutes=0.05, epochs=2, progress=lambda *_: None)
    assert weights.fault() is None
    assert len([name for name in weights.arrays if name.startswith("w")]) == 7


class Model(SimpleNamespace):
    """The part of ModelFile that backend.weights.lookup uses."""

    def key(self, name: str, default: Any = None) -> Any:
        return N_EMBD if name == "embedding_length" else default


def a_file(tmp_path: Path) -> Any:
    return Model(
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
    weights = a_model(data, (1,)).weights(data, torch.arange(9), {})
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
    weights = a_model(data).weights(data, torch.arange(9), {})
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
    poor = a_model(data).weights(data, torch.arange(9), {})
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
