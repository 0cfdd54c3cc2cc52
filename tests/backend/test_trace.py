"""Traces: written, read, cut into parts, and refused with one sentence if inconsistent."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import NO_FILE

from backend.traces import container
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace
from backend.traces.trace import DECODE, KIND, PREFILL, Trace, join

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("OUTRIDER_DATA", ROOT.parent / "shared" / "data"))
N_LAYER, N_EXPERT, N_USED, N_EMBD = 3, 8, 2, 4


def make_trace(seed: int = 0, n_request: int = 3, **changes: Any) -> Trace:
    """Return requests of a prompt and a few tokens. The last layer computes one prompt token."""
    random = np.random.default_rng(seed)
    n_token = np.array([n for _ in range(n_request) for n in (5, 1, 1)], np.int32)
    n_routed = np.repeat(n_token[:, None], N_LAYER, axis=1)
    n_routed[:, -1] = 1
    n = int(n_token.sum())
    ids = random.random((n, N_LAYER, N_EXPERT)).argsort(axis=2)[:, :, :N_USED].astype(np.uint8)
    weights = random.random((n, N_LAYER, N_USED)).astype(np.float16)
    trace = Trace(
        architecture="qwen3moe",
        layers=(1, 2, 4),
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        n_embd=N_EMBD,
        chunk_bytes=((10, 10, 20),) * N_LAYER,
        n_cut=(4, 4, 4),
        layer_kind=(0, 0, 1),
        phases=np.array([PREFILL, DECODE, DECODE] * n_request, np.uint8),
        requests=np.repeat(np.arange(n_request, dtype=np.int32), 3),
        n_token=n_token,
        n_routed=n_routed,
        tokens=random.integers(0, 1000, n, np.int32),
        ids=ids,
        weights=weights,
        scores=random.random((n, N_LAYER, N_EXPERT)).astype(np.float16),
        inputs=random.standard_normal((n, N_LAYER, N_EMBD)).astype(np.float16),
        has_inputs=np.array([1, 0, 1], np.uint8),
        model="fingerprint",
        about={"prompts": "some.txt", "n": 3},
    )
    return replace(trace, **changes)


def check_equal(a: Trace, b: Trace) -> None:
    assert a.__dict__.keys() - {"begins", "routed"} == b.__dict__.keys() - {"begins", "routed"}
    for name, value in a.__dict__.items():
        if isinstance(value, np.ndarray):
            if name not in ("begins", "routed"):
                assert np.array_equal(value, getattr(b, name)), name
                assert value.dtype == getattr(b, name).dtype, name
        else:
            assert value == getattr(b, name), name


# The file.


@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_written_is_read_again(tmp_path: Path, mapped: bool) -> None:
    trace = make_trace()
    trace.write(tmp_path / "x.trace")
    check_equal(trace, read_trace(tmp_path / "x.trace", "fingerprint", mapped=mapped))


def test_without_what_is_optional(tmp_path: Path) -> None:
    trace = make_trace(weights=None, scores=None, inputs=None, has_inputs=None, n_embd=0)
    trace.write(tmp_path / "x")
    again = read_trace(tmp_path / "x")
    check_equal(trace, again)


def test_an_empty_trace_is_one(tmp_path: Path) -> None:
    empty = make_trace().passes(0, 0)
    empty.write(tmp_path / "x")
    assert read_trace(tmp_path / "x").n_pass == 0


def test_ids_are_as_small_as_they_can_be_and_wide_where_needed(tmp_path: Path) -> None:
    wide = make_trace(n_expert=300, scores=None)
    wide = replace(wide, ids=wide.ids.astype(np.uint16) + 290)
    wide.write(tmp_path / "x")
    assert read_trace(tmp_path / "x").ids.max() > 255


def check_refused(path: Path, words: str, model: str | None = None) -> None:
    with pytest.raises(ContainerError) as refused:
        read_trace(path, model)
    text = str(refused.value)
    assert text.startswith(f"{path.name} cannot be used: ") and text.endswith(".")
    assert words in text, text


def test_another_model_another_kind_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "x"
    make_trace().write(path)
    check_refused(path, "another model", "other")
    header, arrays = container.read(path, KIND, 1)
    container.write(path, {**header, "version": 2}, arrays)
    check_refused(path, "version 2")
    container.write(path, {**header, "kind": "outrider-predictor"}, arrays)
    check_refused(path, "outrider-predictor")
    check_refused(tmp_path / "none", NO_FILE)
    check_refused(tmp_path, "folder")


def test_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "x"
    make_trace().write(path)
    raw = path.read_bytes()
    for n in range(0, len(raw), 211):
        path.write_bytes(raw[:n])
        check_refused(path, "")


@pytest.mark.parametrize("name", ["phases", "n_routed", "ids", "tokens"])
def test_a_missing_array(tmp_path: Path, name: str) -> None:
    make_trace().write(tmp_path / "x")
    header, arrays = container.read(tmp_path / "x", KIND, 1)
    del arrays[name]
    container.write(tmp_path / "x", header, arrays)
    check_refused(tmp_path / "x", f"{name} is missing")


@pytest.mark.parametrize("value", [None, "x", -1, True, 1.5, [], {}, [[-1]], 1 << 60])
@pytest.mark.parametrize("key", ["n_expert", "n_embd", "layers", "chunk_bytes", "architecture"])
def test_a_header_that_makes_no_sense(tmp_path: Path, key: str, value: Any) -> None:
    make_trace().write(tmp_path / "x")
    header, arrays = container.read(tmp_path / "x", KIND, 1)
    container.write(tmp_path / "x", {**header, key: value}, arrays)
    if key == "architecture" and value == "x":
        assert read_trace(tmp_path / "x").architecture == "x"
    else:
        check_refused(tmp_path / "x", "")


CHANGES: list[tuple[str, Callable[[np.ndarray], object], str]] = [
    ("ids", lambda a: a.__setitem__((2, 0, 0), N_EXPERT), "an expert's number is 8"),
    ("ids", lambda a: a.__setitem__((2, 0, 0), a[2, 0, 1]), "same expert twice"),
    ("phases", lambda a: a.__setitem__(1, 2), "neither prefill nor decode"),
    ("n_token", lambda a: a.__setitem__(1, 2), "as many tokens"),
    ("n_token", lambda a: a.__setitem__(1, 0), "as many tokens"),
    ("n_token", lambda a: a.__setitem__(slice(0, 2), (-1, 7)), "as many tokens"),
    ("n_routed", lambda a: a.__setitem__((1, 1), 2), "more tokens than its pass"),
    ("n_routed", lambda a: a.__setitem__((1, 1), -1), "more tokens than its pass"),
    ("requests", lambda a: a.__setitem__(8, 0), "out of order"),
]


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_values_that_make_no_sense(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], object], words: str
) -> None:
    make_trace().write(tmp_path / "x")
    header, arrays = container.read(tmp_path / "x", KIND, 1)
    change(arrays[name])
    container.write(tmp_path / "x", header, arrays)
    check_refused(tmp_path / "x", words)


@pytest.mark.parametrize("name", ["phases", "requests", "n_routed", "tokens", "ids", "weights"])
def test_lengths_that_do_not_agree(tmp_path: Path, name: str) -> None:
    make_trace().write(tmp_path / "x")
    header, arrays = container.read(tmp_path / "x", KIND, 1)
    for changed in (arrays[name][:-1], arrays[name].astype(np.float64), np.zeros(())):
        container.write(tmp_path / "x", header, {**arrays, name: changed})
        if name == "weights" and changed.dtype.kind == "f" and changed.shape == arrays[name].shape:
            continue
        check_refused(tmp_path / "x", " is of another shape or type")


# Parts of it.


def test_rows_are_the_last_tokens_of_a_pass() -> None:
    trace = make_trace()
    assert trace.rows(0, 0) == slice(0, 5)
    assert trace.rows(0, 2) == slice(4, 5)
    assert trace.rows(3, 1) == slice(7, 12)
    assert trace.routed.sum(axis=0).tolist() == [21, 21, 9]
    expected = np.zeros(len(trace.tokens), bool)
    for i in range(trace.n_pass):
        expected[trace.rows(i, 2)] = True
    assert np.array_equal(trace.routed[:, 2], expected)


def test_requests_are_cut_out_and_joined_again() -> None:
    trace = make_trace()
    middle = trace.requests_between(1, 2)
    assert middle.n_pass == 3 and len(middle.tokens) == 7
    assert np.array_equal(middle.ids, trace.ids[7:14])
    parts = list(trace.each_request())
    assert [p.n_pass for p in parts] == [3, 3, 3]
    check_equal(trace, join(parts))
    assert trace.passes(-5, 2).n_pass == 2
    assert trace.passes(4, 2).n_pass == 0
    assert trace.passes(8, 99).n_pass == 1
    assert trace.requests_between(2, 99).n_pass == 3


def test_joining_numbers_requests_on_and_drops_what_not_all_have() -> None:
    a, b = make_trace(1), make_trace(2, weights=None)
    both = join([a, b, a.passes(0, 0)])
    assert both.requests.tolist() == [i for i in range(6) for _ in range(3)]
    assert both.weights is None
    assert both.scores is not None
    assert np.array_equal(both.ids[21:], b.ids)
    with pytest.raises(ValueError, match="different models"):
        join([a, make_trace(model="other")])


# CSV files of another program.

CSV = """\
# route_trace v1
# model=/some/x.gguf arch=qwen3moe n_layer=3 n_expert=8 n_expert_used=2
# layer=0 expert_bytes=0 dense_bytes=5
# layer=1 expert_bytes=30 dense_bytes=5
# layer=2 expert_bytes=31 dense_bytes=5
turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
0,0,0,1,0,3,0.5,0,30
0,0,0,1,1,4,0.25,0,30
0,0,1,1,0,5,0.5,0,30
0,0,1,1,1,4,0.25,1,30
0,0,1,2,0,7,0.5,0,31
0,0,1,2,1,0,0.25,0,31
0,1,2,1,0,1,0.5,0,30
0,1,2,1,1,2,0.25,0,30
0,1,2,2,0,6,0.5,0,31
0,1,2,2,1,7,0.25,0,31
1,0,0,1,0,1,0.5,0,30
1,0,0,1,1,2,0.25,0,30
1,0,0,2,0,6,0.5,0,31
1,0,0,2,1,7,0.25,0,31
"""


def test_a_csv_file_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(CSV)
    trace = read_trace(path)
    assert (trace.layers, trace.n_expert, trace.n_expert_used) == ((1, 2), 8, 2)
    assert trace.chunk_bytes == ((10, 10, 10), (10, 10, 11))
    assert trace.phases.tolist() == [PREFILL, DECODE, PREFILL]
    assert trace.requests.tolist() == [0, 0, 1]
    assert trace.n_token.tolist() == [2, 1, 1]
    assert trace.n_routed.tolist() == [[2, 1], [1, 1], [1, 1]]
    assert trace.ids[:, 0].tolist() == [[3, 4], [5, 4], [1, 2], [1, 2]]
    assert trace.ids[trace.rows(0, 1), 1].tolist() == [[7, 0]]
    assert trace.weights is not None and trace.weights[1, 1].tolist() == [0.5, 0.25]
    assert (trace.tokens == -1).all()
    check_refused(path, "another model", "fingerprint")
    trace.write(tmp_path / "x.trace")
    check_equal(trace, read_trace(tmp_path / "x.trace"))


def test_the_order_of_its_lines_means_nothing(tmp_path: Path) -> None:
    lines = CSV.splitlines(keepends=True)
    shuffled = np.random.default_rng(0).permutation(lines[6:]).tolist()
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_bytes("".join(lines[:6] + shuffled).replace("\n", "\r\n").encode())
    a, b = read_trace(tmp_path / "a.csv"), read_trace(tmp_path / "b.csv")
    check_equal(replace(a, about={}), replace(b, about={}))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,0,5,0.5,0", "line 9: it has 8 fields instead of 9"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,0,8,0.5,0,30", "line 9: expert is '8'"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,2,5,0.5,0,30", "line 9: slot is '2'"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,0,0,5,0.5,0,30", "line 9: layer 0 has no experts"),
        ("0,0,1,1,0,5,0.5,0,30", "0,2,1,1,0,5,0.5,0,30", "line 9: phase is '2'"),
        ("0,0,1,1,0,5,0.5,0,30", "0,1,1,1,0,5,0.5,0,30", "the phase differs within its token"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,0,5,half,0,30", "line 9: weight is 'half'"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,-1,1,0,5,0.5,0,30", "line 9: step is '-1'"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,,1,0,5,0.5,0,30", "line 9: step is ''"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,1,5,0.5,0,30", "line 10: the same slot was there"),
        ("0,0,1,1,0,5,0.5,0,30\n", "", "line 9: its token has fewer than 2 experts in layer 1"),
        ("0,0,1,1,0,5,0.5,0,30", "9" * 5000, "line 9: it is longer than 4096"),
        ("0,0,1,1,0,5,0.5,0,30", "0,0,1,1,0,4,0.5,0,30", "same expert twice"),
        ("0,0,1,2,0,7,0.5,0,31\n0,0,1,2,1,0", "0,0,0,2,0,7,0.5,0,31\n0,0,0,2,1,0", "last tokens"),
        ("n_expert=8", "n_expert=99999999999", "line 2: n_expert is '99999999999'"),
        ("n_expert_used=2", "n_expert_used=9", "line 2: more experts are used"),
        ("n_layer=3", "", "line 2: n_layer is nothing"),
        ("n_layer=3", "n_layer", "line 2: it is not made of key=value"),
        ("# layer=2 expert_bytes=31", "# layer=2 expert_bytes=-31", "line 5: expert_bytes is"),
        ("v1", "v2", "route_trace v1"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in CSV
    (tmp_path / "x.csv").write_text(CSV.replace(old, new, 1))
    check_refused(tmp_path / "x.csv", words)


def test_a_csv_file_that_ends_early(tmp_path: Path) -> None:
    lines = CSV.splitlines(keepends=True)
    for n in range(7):
        (tmp_path / "x.csv").write_text("".join(lines[:n]))
        check_refused(tmp_path / "x.csv", "")


@pytest.mark.skipif(not (DATA / "route-traces").is_dir(), reason="without the shared data")
def test_the_recorded_trace_of_a_large_model() -> None:
    trace = read_trace(DATA / "route-traces" / "qwen.route.csv")
    assert (trace.n_layer, trace.n_expert, trace.n_expert_used) == (48, 128, 6)
    assert trace.n_pass == 129 and len(trace.tokens) == 156
    assert trace.n_token[0] == 28 and trace.n_routed[0, -1] == 1
    assert int(trace.routed.sum()) * 6 == 44766
    assert trace.ids[0, 0].tolist() == [49, 19, 58, 29, 16, 70]


def test_layers_that_use_different_numbers_of_experts(tmp_path: Path) -> None:
    trace = make_trace()
    ids = trace.ids.copy()
    ids[:, 1, 1:] = ids[:, 1, :1]
    with pytest.raises(ValueError, match="the same expert twice"):
        replace(trace, ids=ids)
    n_used = (N_USED, 1, N_USED)
    with pytest.raises(ValueError, match="a layer does not use 1 to"):
        replace(trace, n_used=(N_USED, 0, N_USED))
    whole = replace(trace, ids=ids, n_used=n_used)
    whole.write(tmp_path / "x")
    check_equal(read_trace(tmp_path / "x"), whole)
    assert [whole.shape().used(layer) for layer in range(3)] == list(n_used)


def test_an_older_trace_says_nothing_of_different_numbers(tmp_path: Path) -> None:
    make_trace().write(tmp_path / "x")
    header, arrays = container.read(tmp_path / "x", KIND, 1)
    del header["n_used"]
    container.write(tmp_path / "x", header, arrays)
    assert read_trace(tmp_path / "x").n_used == ()
