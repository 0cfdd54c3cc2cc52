"""`outrider train`: it records, trains without torch, and writes what the engine loads."""

import sys
from pathlib import Path

import numpy as np
import pytest
from factory import QUANTS, make_split, make_tiny
from gguf import GGUFReader
from gguf.quants import dequantize

from backend import _native
from backend.cli import main
from backend.cli import train as command
from backend.gguf.model_file import read_model
from backend.simulation.model import matrix
from backend.weights.lookup import weights_of
from predictors import model_arrays

TEXT = "One two three four five six seven eight nine ten. " * 8


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def train(model: Path, texts: Path, out: Path, *words: object) -> int:
    shared = ("--texts", texts, "--tokens", 100, "--epochs", 1, "--threads", 1, "--out", out)
    return main(["train", *map(str, (model, *shared, *words))])


def test_without_torch_and_gguf(
    tiny: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torch", "gguf"):
        monkeypatch.setitem(sys.modules, name, None)
    beside = tiny.with_name("tiny.learned.predictor")
    assert train(tiny, texts, beside) == 0
    out, err = capsys.readouterr()
    assert "right on held-out documents" in out and err == ""
    found, remarks = weights_of(read_model(tiny), "learned")
    beside.unlink()
    assert found is not None and remarks == []
    assert {"l0.s1.w1", "t0.w1", "token.rows"} <= found.arrays.keys()


def test_what_needs_torch_is_not_offered_without_it(
    tiny: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "METHODS", ("learned", "eam"))
    assert train(tiny, texts, texts.parent, "--method", "expert_mlp") == 2
    assert "in a developer's environment only" in capsys.readouterr().err
    assert command._methods("all") == ("learned", "eam")


@pytest.mark.parametrize("quant", QUANTS)
def test_weights_are_read_from_every_part_in_every_type(quant: str, tmp_path: Path) -> None:
    """Compare with the gguf package, which decodes the types by itself."""
    whole = make_tiny("qwen3moe", quant, tmp_path / "m.gguf", n_ff_exp=256, n_embd=256)
    file = read_model(make_split(whole, 3)[0])
    expected = {
        t.name: dequantize(t.data, t.tensor_type).reshape(-1, int(t.shape[0]))
        for t in GGUFReader(whole).tensors
        if any(part in t.name for part in ("ffn_gate_inp", "_exps", "token_embd"))
    }
    seen = set()
    for tensor in file.tensors:
        if tensor.name in expected:
            rows = matrix(file, tensor, 1, 3)
            assert np.allclose(rows, expected[tensor.name][1:4], rtol=1e-5, atol=1e-7), tensor
            seen.add(tensor.part)
    assert len(seen) > 1
    found = model_arrays.routers(file, range(file.n_moe_layer))
    assert found is not None and np.array_equal(found[1], expected["blk.1.ffn_gate_inp.weight"])


def test_token_rows_are_the_principal_components(tiny: Path) -> None:
    file = read_model(tiny)
    embedding = model_arrays.vocabulary(file)
    assert embedding is not None
    found = model_arrays.token_rows(file, embedding, 16)
    rows = matrix(file, embedding)
    rows /= np.sqrt(np.square(rows).mean(1, keepdims=True))
    rows -= rows.mean(0)
    # An orthogonal projection keeps as much of the variance as the largest singular values have.
    largest = np.linalg.svd(rows, compute_uv=False)[:16]
    kept = np.linalg.lstsq(found, rows, rcond=None)[0]
    assert np.isclose(np.square(found @ kept).sum(), np.square(largest).sum(), rtol=1e-3)
    assert np.isclose(found.std(), 1, atol=1e-3)
    wide = model_arrays.token_rows(file, embedding, 4096)  # wider than the embedding
    assert wide.shape == (embedding.shape[1], 4096)


def test_weights_of_a_part_of_a_block_are_refused() -> None:
    for type_id, blocks in ((2, b"x" * 17), (4, b""), (999, b""), (-1, b"")):
        with pytest.raises(ValueError, match="whole blocks"):
            _native.values_of(type_id, blocks)


def test_no_layer_is_two_layers_ahead_of_the_only_one(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=1)
    assert train(model, texts, tmp_path / "out", "--stride", 2) != 0
    assert "too few layers" in capsys.readouterr().err
