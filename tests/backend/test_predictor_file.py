"""Files of weights: written, read, and refused with one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend._native import Layout, PredictorProbe, Shape, Spec, predictor_names
from backend.traces import container
from backend.traces.container import ContainerError
from backend.weights import file as predictor_file
from backend.weights.file import KIND, PredictorSizes, PredictorWeights, read, write

MODEL = "5e5f"
SIZES = PredictorSizes(n_layer=3, n_expert=8, n_expert_used=2, n_embd=4)


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def learned(**changes: Any) -> PredictorWeights:
    arrays = {"l0.s2.w1": random(6, 4), "l0.s2.b1": random(6), "l0.s2.w2": random(8, 6)}
    arrays |= {"l1.s1.router": np.ones(8, np.float32)}
    about = {"recipe": "seed 1", "accuracy": [0.5, 0.75]}
    return replace(PredictorWeights("learned", SIZES, arrays, {"activation": 1}, about), **changes)


def table() -> PredictorWeights:
    arrays = {"tokens": np.array([5, 70000], np.float32), "counts": np.ones((2, 3, 8), np.float32)}
    return PredictorWeights("token_table", SIZES, arrays)


@pytest.mark.parametrize("weights", [learned(), table()], ids=lambda w: w.name)
def test_what_is_written_is_read(tmp_path: Path, weights: PredictorWeights) -> None:
    path = tmp_path / "a.predictor"
    write(path, MODEL, weights)
    found = read(path, MODEL, SIZES)
    assert found.arrays.keys() == weights.arrays.keys()
    for name, array in weights.arrays.items():
        assert found.arrays[name].dtype == np.float32
        np.testing.assert_array_equal(found.arrays[name], array)
    assert (found.name, found.sizes, dict(found.numbers), dict(found.about)) == (
        weights.name,
        weights.sizes,
        dict(weights.numbers),
        dict(weights.about),
    )
    assert isinstance(found.numbers.get("activation", 1.0), float)


@pytest.mark.parametrize("n_column", [2, 32, 64, 128, 256])
def test_four_bits(tmp_path: Path, n_column: int) -> None:
    sizes = replace(SIZES, n_embd=n_column)
    array = random(6, n_column) * np.float32(3)
    array[1] = 0
    arrays = {"l0.s2.w1": array, "l0.s2.w2": random(8, 6)}
    weights = PredictorWeights("learned", sizes, arrays)
    path = tmp_path / "a"
    write(path, MODEL, weights, {"w1": "q4"})
    _, kept = container.read(path, KIND, predictor_file.VERSION)
    assert kept["l0.s2.w1"].nbytes == 6 * (n_column // 2 + 2 * -(-n_column // 64))
    found = read(path, MODEL, sizes).arrays["l0.s2.w1"]
    assert found.dtype == np.float32 and found.shape == array.shape
    groups = (6, -1, min(n_column, 64))
    off, largest = np.abs(found - array).reshape(groups), np.abs(array).reshape(groups).max(-1)
    assert (off <= largest[..., None] / 7.9).all()
    assert np.abs(off[0]).max() > 0 or n_column == 2
    # It is itself what four bits can hold.
    write(
        tmp_path / "b", MODEL, replace(weights, arrays={**arrays, "l0.s2.w1": found}), {"w1": "q4"}
    )
    assert (read(tmp_path / "b", MODEL, sizes).arrays["l0.s2.w1"] == found).all()


@pytest.mark.parametrize("array", [random(6, 3), random(6, 100), random(6, 4) * np.float32(1e9)])
def test_what_four_bits_cannot_hold(tmp_path: Path, array: Any) -> None:
    sizes = replace(SIZES, n_embd=array.shape[1])
    weights = PredictorWeights("learned", sizes, {"l0.s2.w1": array, "l0.s2.w2": random(8, 6)})
    with pytest.raises(ValueError, match="q4"):
        write(tmp_path / "a", MODEL, weights, {"w1": "q4"})


@pytest.mark.parametrize(
    "q4", [{"none": 4}, {"l0.s2.w1": 6}, {"l0.s2.w1": "4"}, {"l0.s2.b1": 6}, 4]
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, q4: Any) -> None:
    write(tmp_path / "a", MODEL, learned(), {"w1": "q4"})
    header, arrays = container.read(tmp_path / "a", KIND, predictor_file.VERSION)
    container.write(tmp_path / "b", {**header, "q4": q4}, arrays)
    with pytest.raises(ContainerError, match=r"b cannot be used: it.*\."):
        read(tmp_path / "b", MODEL, SIZES)


def test_the_engine_takes_what_was_read(tmp_path: Path) -> None:
    write(tmp_path / "a", MODEL, learned())
    found = read(tmp_path / "a", MODEL, SIZES)
    probe = PredictorProbe(
        Spec(found.name, dict(found.numbers), dict(found.arrays)),
        Shape(8, 2, [[1]] * 3),
        Layout.per_layer([8] * 3),
        routers=[random(8, 4)] * 3,
    )
    assert [target for target, _, _ in probe.gate_seen(0, random(1, 4))] == [2]


@pytest.mark.parametrize(
    ("storage", "n_bytes", "error"), [("f4", 4, 0.0), ("f2", 2, 2.0**-11), ("i1", 1, 0.5 / 127)]
)
def test_storage(tmp_path: Path, storage: Any, n_bytes: int, error: float) -> None:
    weights = learned()
    write(tmp_path / "a", MODEL, weights, {"w1": storage, "l0.s2.w2": storage})
    _, kept = container.read(tmp_path / "a", KIND, predictor_file.VERSION)
    found = read(tmp_path / "a", MODEL, SIZES)
    assert found.arrays.keys() == weights.arrays.keys()
    for name in ("l0.s2.w1", "l0.s2.w2"):
        assert kept[name].itemsize == n_bytes
        largest = np.abs(weights.arrays[name]).max(-1, keepdims=True)
        off = np.abs(found.arrays[name] - weights.arrays[name])
        assert (off <= error * 1.001 * largest).all()
    np.testing.assert_array_equal(found.arrays["l0.s2.b1"], weights.arrays["l0.s2.b1"])


def test_rows_of_zeros_stay_zero_in_bytes(tmp_path: Path) -> None:
    zeros = {"l0.s1.skip": np.zeros((8, 4), np.float32)}
    write(tmp_path / "a", MODEL, learned(arrays=zeros), {"skip": "i1"})
    assert not read(tmp_path / "a", MODEL, SIZES).arrays["l0.s1.skip"].any()


def test_whole_numbers_are_kept_as_such(tmp_path: Path) -> None:
    write(tmp_path / "a", MODEL, table(), {"tokens": "i4", "counts": "u2"})
    _, kept = container.read(tmp_path / "a", KIND, predictor_file.VERSION)
    assert kept["tokens"].dtype == np.int32 and kept["counts"].dtype == np.uint16
    assert read(tmp_path / "a", MODEL, SIZES).arrays["tokens"].tolist() == [5, 70000]


@pytest.mark.parametrize("storage", [{"tokens": "u2"}, {"counts": "i4"}, {"tokens": "f2"}])
def test_storage_that_would_lose_values_is_refused(tmp_path: Path, storage: Any) -> None:
    weights = table()
    weights = replace(weights, arrays={**weights.arrays, "counts": weights.arrays["counts"] / 2})
    with pytest.raises(ValueError, match=r"has values that \w+ cannot hold\.$"):
        write(tmp_path / "a", MODEL, weights, storage)
    assert not list(tmp_path.iterdir())


BAD = [
    (learned(arrays={"l0.s1.b2": np.full(8, np.nan)}), "not finite numbers"),
    (learned(arrays={"l0.s1.b2": np.ones(9)}), "l0.s1.b2 of 8, and has one of 9"),
    (learned(arrays={}), "needs the arrays of at least one layer"),
    (learned(numbers={"activation": 9}), "activation between 0 and 2"),
    (learned(name="next_router"), "which learns nothing here"),
]


@pytest.mark.parametrize(("weights", "why"), BAD)
def test_weights_of_no_use_are_not_written(
    tmp_path: Path, weights: PredictorWeights, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        write(tmp_path / "a", MODEL, weights)
    assert not list(tmp_path.iterdir())


def write_raw(path: Path, arrays: dict[str, Any] | None = None, **header: Any) -> None:
    """Write a file without the checks of write()."""
    fields: dict[str, Any] = {
        "kind": KIND,
        "version": 1,
        "model": MODEL,
        "predictor": "learned",
        "sizes": vars(SIZES),
        "numbers": {},
        "about": {},
    }
    container.write(path, fields | header, learned().arrays if arrays is None else arrays)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "other"}, "it was made for another model"),
    ({"version": 3}, "it is of version 3, and this Outrider knows only up to 2"),
    ({"kind": "trace"}, "it is no predictor file"),
    ({"sizes": {**vars(SIZES), "n_expert": 9}}, "made for a model of other sizes"),
    ({"sizes": None}, "made for a model of other sizes"),
    ({"predictor": "tea_leaves"}, "a predictor called 'tea_leaves'"),
    ({"predictor": "oracle"}, "a predictor called 'oracle'"),
    ({"predictor": 3}, "does not say what it holds"),
    ({"about": []}, "does not say what it holds"),
    ({"numbers": {"stride": "2"}}, "numbers that are none"),
    ({"numbers": {"stride": 1e300}}, "numbers that are none"),
    ({"numbers": {"stride": 7}}, "needs a number stride between 0 and 2"),
    ({"numbers": {"hat": 7}}, "has no use for a number called hat"),
    ({"arrays": {}}, "needs the arrays of at least one layer"),
    ({"arrays": {"l0.s1.b2": np.full(8, np.nan, np.float32)}}, "not finite numbers"),
    ({"arrays": {"l0.s1.b2": np.full(8, np.inf, np.float16)}}, "not finite numbers"),
    ({"arrays": {"l0.s1.b2": np.ones(7, np.float32)}}, "l0.s1.b2 of 8, and has one of 7"),
    ({"arrays": {"l0.s1.b2": np.ones((), np.float32)}}, "has one of no dimension"),
    ({"arrays": {"l0.s1.b2": np.ones(0, np.float32)}}, "has one of 0"),
    ({"arrays": {"l0.s1.skip": np.ones((8, 4), np.int8)}}, "no scale that fits it"),
    ({"arrays": {"l0.s1.skip": np.ones((), np.int8)}}, "no scale that fits it"),
    (
        {"arrays": {"x": np.ones((8, 4), np.int8), "x.scale": np.ones(7, np.float32)}},
        "no scale that fits it",
    ),
    (
        {"arrays": {"x": np.ones((8, 4), np.int8), "x.scale": np.full(8, np.nan, np.float32)}},
        "no use for an array called x",
    ),
]


@pytest.mark.parametrize(("content", "why"), REFUSED)
def test_files_of_no_use_are_refused(tmp_path: Path, content: dict[str, Any], why: str) -> None:
    write_raw(tmp_path / "a", **content)
    with pytest.raises(ContainerError, match=why) as refusal:
        read(tmp_path / "a", MODEL, SIZES)
    sentence = str(refusal.value)
    assert sentence.startswith("a cannot be used: ") and sentence.endswith(".")
    assert sentence.count(". ") == 0 and "\n" not in sentence


def test_a_file_cut_short_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    write(tmp_path / "whole", MODEL, learned())
    whole = (tmp_path / "whole").read_bytes()
    for n in range(0, len(whole), 97):
        (tmp_path / "a").write_bytes(whole[:n])
        with pytest.raises(ContainerError, match="^a cannot be used: "):
            read(tmp_path / "a", MODEL, SIZES)


def test_a_changed_byte_never_passes_as_other_weights(tmp_path: Path) -> None:
    write(tmp_path / "whole", MODEL, learned())
    whole = (tmp_path / "whole").read_bytes()
    n_refused = 0
    for at in range(0, len(whole), 13):
        changed = bytearray(whole)
        changed[at] ^= 0x55
        (tmp_path / "a").write_bytes(changed)
        try:
            found = read(tmp_path / "a", MODEL, SIZES)
        except ContainerError:
            n_refused += 1
            continue
        for name, array in learned().arrays.items():  # it was padding
            np.testing.assert_array_equal(found.arrays[name], array)
    assert n_refused > 10


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"GGUF", b"PK\x03\x04", b"\0" * 5000):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ContainerError):
            read(tmp_path / "a", MODEL, SIZES)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(ContainerError, match="cannot be used"):
            read(missing, MODEL, SIZES)


def test_all_that_may_have_a_file_exist() -> None:
    assert set(predictor_file.LEARNING) <= set(predictor_names())
