"""Damaged, foreign or nonsense weights files cost speed at most. Answers stay right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import of_text
from processes import DATA_HOME

from backend.cli import main
from backend.engine.engine import Engine
from backend.evaluation.verify import compare
from backend.gguf.model_file import ModelFile, read_model
from backend.protocol.settings import Sampling
from backend.traces import container
from backend.weights import file as predictor_file
from backend.weights import lookup as learned

OpenEngine = Callable[..., Engine]

PROMPT = "Some words to begin with, and a few more."


def weights_of(file: ModelFile, fill: Any = None) -> predictor_file.PredictorWeights:
    """Return a learned predictor of stride 2: random, or every value `fill`."""
    sizes = learned.sizes_of(file)
    draw = np.random.default_rng(1)
    shapes = {"w1": (8, sizes.n_embd), "b1": (8,), "w2": (sizes.n_expert, 8)}
    arrays = {
        f"l{layer}.s2.{name}": draw.normal(size=shape).astype(np.float32)
        for layer in range(sizes.n_layer - 1)
        for name, shape in shapes.items()
    }
    if fill is not None:
        arrays = {name: np.full_like(array, fill) for name, array in arrays.items()}
    return predictor_file.PredictorWeights("learned", sizes, arrays, {"activation": 0})


def refill(path: Path, fill: float) -> None:
    """Set every float of a valid file, past the checks of its writer."""
    header, arrays = container.read(path, predictor_file.KIND, predictor_file.VERSION)
    container.write(path, header, {n: np.full_like(a, fill) for n, a in arrays.items()})


def damage(path: Path, file: ModelFile, kind: str) -> None:
    """Write a file of weights that no engine can use."""
    model = "0" * 64 if kind == "foreign" else file.fingerprint
    predictor_file.write(path, model, weights_of(file))
    data = path.read_bytes()
    if kind == "garbage":
        path.write_bytes(np.random.default_rng(2).bytes(5000))
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "one bit":
        half = len(data) // 2
        path.write_bytes(data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :])
    elif kind in ("nan", "inf"):
        refill(path, float(kind))
    else:
        assert kind == "foreign", kind


KINDS = ("garbage", "empty", "truncated", "one bit", "foreign", "nan", "inf")
PLACES = {"beside": learned.beside, "data folder": learned.in_data_folder}


@pytest.fixture
def model(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """Return a model in a folder of its own, and use a data folder of the test's own."""
    monkeypatch.setattr(learned, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setenv(DATA_HOME, str(tmp_path))  # for child processes
    (tmp_path / "data" / "predictors").mkdir(parents=True)
    return read_model(Path(shutil.copy(tiny, tmp_path / "model.gguf")))


def answer(engine: Engine) -> list[int]:
    pieces = engine.answer(of_text(PROMPT, Sampling(temperature=0), 12))
    return [piece.token_id for piece in pieces]


def assert_as_stock(file: ModelFile) -> None:
    """Verify the model with the weights that an engine finds."""
    known, _ = learned.load(file)
    compared = compare(file, [0.5], ["promoe"], n_token=12, n_thread=1, learned=known)
    assert all(result.identical for result in compared)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_unfit_file_is_left_out(
    kind: str, place: str, model: ModelFile, open_engine: OpenEngine
) -> None:
    plain = open_engine(model.path, cache_rate=0.5)
    expected = answer(plain)
    assert plain.cache.remark == "" and plain.cache.predictor == "next router"
    path = PLACES[place](model, "learned")
    damage(path, model, kind)

    engine = open_engine(model.path, cache_rate=0.5)
    assert answer(engine) == expected
    assert engine.cache.predictor == plain.cache.predictor
    assert engine.cache.remark.startswith(f"{path.name} cannot be used: ")
    assert engine.cache.remark.endswith(".") and engine.cache.remark == engine.cache.remark
    assert_as_stock(model)


@pytest.mark.parametrize("fill", [None, 0.0, 1e-40, 3e38])
def test_nonsense_changes_nothing(fill: float | None, model: ModelFile, open_engine: Any) -> None:
    """Weights of the right shapes that predict nothing, or overflow in multiplications."""
    expected = answer(open_engine(model.path, cache_rate=0.5))
    predictor_file.write(
        learned.beside(model, "learned"), model.fingerprint, weights_of(model, fill)
    )
    engine = open_engine(model.path, cache_rate=0.5)
    assert (engine.cache.predictor, engine.cache.remark) == ("learned, stride 2", "")
    assert answer(engine) == expected
    assert_as_stock(model)


def test_a_sound_file_is_used_where_another_is_not(model: ModelFile, open_engine: Any) -> None:
    damage(learned.in_data_folder(model, "learned"), model, "truncated")
    predictor_file.write(learned.beside(model, "learned"), model.fingerprint, weights_of(model))
    engine = open_engine(model.path, cache_rate=0.5)
    assert engine.cache.predictor == "learned, stride 2" and "cut short" in engine.cache.remark


def test_it_is_said_in_the_terminal(model: ModelFile, capsys: pytest.CaptureFixture[str]) -> None:
    damage(learned.beside(model, "learned"), model, "nan")
    ask = ["chat", str(model.path), "-p", "Hi", "--max-tokens", "2", "--cache-rate", "0.5"]
    assert main(ask) == 0
    assert "model.learned.predictor cannot be used: " in capsys.readouterr().err
    assert main([*ask, "--json"]) == 0
    assert '"remark": "model.learned.predictor cannot be used: ' in capsys.readouterr().out
