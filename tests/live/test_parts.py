"""Cut experts: two parts in slots of their own, whose outputs add up to the expert's.

If only one layer is cut, it gets the same input as in stock llama.cpp. So its output shows the
error of the sum: less than 1e-5, relative to the length of the output's rows.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from equality import Cached, n_different, stock_logits
from factory import QUANTS, make_tiny
from gguf import GGMLQuantizationType as GgmlType
from layer_outputs import LayerOutputs, errors_of_cuts, stock_outputs
from layouts import all_resident, cut, one_pool

from backend import _native
from backend.gguf.model_file import read_model

MAX_RELATIVE = 1e-5
WHOLE_ONLY = {"gpt-oss": "biases of experts", "gemma4": "fused", "cohere2moe": "fused"}
"""Architectures, as the factory makes them, whose experts cannot be cut, and why."""


def wide(arch: str, quant: str, path: Path, **sizes: int) -> Path:
    """Write a model whose experts are four blocks wide, or two large blocks."""
    return make_tiny(arch, quant, path, **{"n_ff_exp": 512 if quant == "Q4_K" else 128} | sizes)


@pytest.mark.parametrize("quant", QUANTS)
def test_the_parts_add_up_in_every_type(quant: str, tmp_path: Path) -> None:
    errors = errors_of_cuts(wide("qwen3moe", quant, tmp_path / "m.gguf", n_layer=2))
    assert len(errors) == (1 if quant == "Q4_K" else 3)
    assert 0 < max(errors.values()) <= MAX_RELATIVE  # not 0: they were computed in two parts


@pytest.mark.parametrize(
    "arch",
    ["llama", "qwen2moe", "deepseek2", "granitemoe", "glm4moe", "llama4", "grok", "nemotron_h_moe"],
)
def test_the_parts_add_up_in_every_architecture(arch: str, tmp_path: Path) -> None:
    errors = errors_of_cuts(wide(arch, "Q4_0", tmp_path / "m.gguf"))
    assert len(errors) == 3 and 0 < max(errors.values()) <= MAX_RELATIVE


@pytest.mark.parametrize("arch", ["qwen3moe", "llama4"])
def test_the_parts_of_scaled_experts_add_up(arch: str, tmp_path: Path) -> None:
    path = make_tiny(arch, "F16", tmp_path / "m.gguf", n_ff_exp=64, expert_scales=True)
    errors = errors_of_cuts(path)
    assert len(errors) == 1 and max(errors.values()) <= MAX_RELATIVE


def test_gate_and_up_apart_can_be_cut(tmp_path: Path) -> None:
    for arch in ("gemma4", "cohere2moe"):
        path = make_tiny(arch, "Q8_0", tmp_path / f"{arch}.gguf", n_ff_exp=64, fused=False)
        errors = errors_of_cuts(path)
        assert len(errors) == 1 and max(errors.values()) <= MAX_RELATIVE


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    for arch in WHOLE_ONLY:
        cached = Cached(read_model(wide(arch, "Q4_0", tmp_path / f"{arch}.gguf")), n_thread=1)
        assert set(cached.shape.n_cut) == {1}
        with pytest.raises(ValueError, match="cut within a block of its weights"):
            cached.setup(all_resident(cached.shape, {0: 0.5}))
        cached.close()


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("quant", ["F16", "MXFP4"])
def test_all_bottom_or_all_top_is_the_whole_expert(
    share: float, quant: str, tmp_path: Path
) -> None:
    file = read_model(wide("deepseek2", quant, tmp_path / "m.gguf"))
    expected = stock_logits(file, (1, 33), n_thread=1)
    cached = Cached(file, n_thread=1)
    shares = dict.fromkeys(range(cached.shape.n_layer), share)
    for n_whole in (4, 16):
        cached.setup(cut(cached.shape, shares, 0, 0, n_whole))
        for n_prompt, stock in expected.items():
            assert n_different(cached.logits(n_prompt), stock) == 0
    cached.close()


@pytest.mark.parametrize(("arch", "quant"), [("qwen3moe", "F16"), ("glm4moe", "Q8_0")])
def test_what_is_cached_and_when_it_arrives_changes_nothing(
    arch: str, quant: str, tmp_path: Path
) -> None:
    """With the same cuts all bits are the same, whatever is resident and in any order."""
    cached = Cached(read_model(wide(arch, quant, tmp_path / "m.gguf")), n_thread=1)
    shape = cached.shape
    shares = {la: (0.25, 0.5, 0.75)[la % 3] for la in range(shape.n_layer)}
    k = shape.n_expert_used
    layouts = [
        cut(shape, shares, k, k, k),
        cut(shape, shares, shape.n_expert, k, k),
        cut(shape, shares, k, shape.n_expert, k),
        one_pool(shape, 2 * k, shares),
        one_pool(shape, 2 * k, shares, buffer=True),
        one_pool(shape, 5 * k, shares),
    ]
    settings = [
        ("reactive", {"n_transfer_thread": 1}),
        ("ordered", {"n_transfer_thread": 0}),
        ("split_pipeline", {"n_transfer_thread": 4}),
        ("expert_major", {"link_bytes_per_s": 30e6}),
    ]
    cached.setup(all_resident(shape, shares))
    expected = {n: cached.logits(n) for n in (33, 1)}
    for i, lies in enumerate(layouts):
        for name, options in (settings[i % 4], settings[(i + 1) % 4]):
            spec = _native.Spec(name)
            cached.setup(lies, _native.Composition(prefill=spec, decode=spec), **options)
            for n_prompt, logits in expected.items():
                assert n_different(cached.logits(n_prompt), logits) == 0, (i, name)
            assert cached.counts()[2] > 0
    cached.close()


def test_a_cut_that_is_computed_wrongly_would_show(tmp_path: Path) -> None:
    """The comparison can fail: the top part alone is far from the whole."""
    path = wide("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    file = read_model(path)
    expected = stock_outputs(path, 17)
    bottom = file.expert_tensors[0][0]  # everything after the first half of one matrix
    with path.open("r+b") as data:
        for expert in range(16):
            data.seek(bottom.offset + expert * bottom.matrix_bytes + bottom.matrix_bytes // 2)
            data.write(bytes(bottom.matrix_bytes // 2))
    cached = Cached(read_model(path), n_thread=1)  # a changed file is refused
    cached.setup(cut(cached.shape, {0: 0.5}, 16, 16, 16))
    context = LayerOutputs(cached.cached.model, 1, cached.patch)
    rows = context.of(17)[cached.patch.layers[0]]
    context.close()
    cached.close()
    error = np.linalg.norm(rows - expected[0]) / np.linalg.norm(expected[0])
    assert error > 0.1


def test_one_pool_for_layers_of_other_cuts(tmp_path: Path) -> None:
    """Whole experts, tops and bottoms of several widths pass through the same slots."""
    cached = Cached(read_model(wide("qwen3moe", "Q8_0", tmp_path / "m.gguf")), n_thread=1)
    shares = {0: 0.25, 1: 1.0, 2: 0.75}
    cached.setup(all_resident(cached.shape, shares))
    expected = cached.logits(33)
    for n_slot in (8, 11, 40):
        cached.setup(one_pool(cached.shape, n_slot, shares))
        assert n_different(cached.logits(33), expected) == 0
        assert cached.patch.slab_bytes == cached.patch.layout.bytes(cached.shape)
    cached.close()


def test_slots_that_are_padded_for_direct_reads(tmp_path: Path) -> None:
    """Matrices of 128 blocks share a pool. Their offsets within a block differ by layer."""
    path = make_tiny(
        "qwen3moe", "F16", tmp_path / "m.gguf", n_embd=512, n_ff_exp=512, n_expert=6,
        n_expert_used=2, n_layer=2,
    )  # fmt: skip
    file = read_model(path)
    places = {t.offset % 4096 for tensors in file.expert_tensors.values() for t in tensors}
    assert len(places) > 1
    expected = stock_logits(file, (9,), n_thread=1)[9]
    cached = Cached(file, n_thread=1)
    shape = cached.shape
    for n_slot in (2, 7):
        whole = one_pool(shape, n_slot)
        cached.setup(whole)
        assert n_different(cached.logits(9), expected) == 0
        assert 1 < cached.patch.slab_bytes / whole.bytes(shape) < 1.02
    shares = {0: 0.5, 1: 0.25}
    cached.setup(all_resident(shape, shares))
    in_parts = cached.logits(9)
    for n_thread in (0, 2):
        cached.setup(one_pool(shape, 5, shares), n_transfer_thread=n_thread)
        assert n_different(cached.logits(9), in_parts) == 0
    cached.close()


@pytest.mark.parametrize("n_transfer_thread", [0, 2])
def test_a_pass_that_is_stopped_amid_parts(n_transfer_thread: int, tmp_path: Path) -> None:
    """Copies in flight do not affect the following passes."""
    cached = Cached(read_model(wide("qwen3moe", "Q8_0", tmp_path / "m.gguf")), n_thread=1)
    patch = cached.patch
    shares = dict.fromkeys(range(cached.shape.n_layer), 0.5)
    cached.setup(all_resident(cached.shape, shares))
    expected = cached.logits(33)
    cached.setup(
        one_pool(cached.shape, 9, shares),
        n_transfer_thread=n_transfer_thread,
        link_bytes_per_s=3e6,  # the whole prompt takes most of a second
    )

    def stop_once_it_reads() -> None:
        while sum(c.bytes_read for c in patch.counts()) == 0:
            time.sleep(0.001)
        patch.stop()

    stopper = threading.Thread(target=stop_once_it_reads)
    stopper.start()
    with pytest.raises(AssertionError):
        cached.logits(33)
    stopper.join()
    assert patch.error == ""
    patch.end_pass()
    patch.resume()
    assert n_different(cached.logits(33), expected) == 0
    cached.close()


@pytest.mark.parametrize(("quant", "repack"), [("F16", False), ("Q4_0", False), ("Q4_0", True)])
def test_tops_stay_where_the_next_cut_is_the_same_or_higher(
    quant: str, repack: bool, tmp_path: Path
) -> None:
    """A top is the beginning of a larger one, except in the layout that computes fastest."""
    cached = Cached(read_model(wide("qwen3moe", quant, tmp_path / "m.gguf")), n_thread=1)
    is_repacked = repack and _native.can_repack(GgmlType[quant], 256, 64)  # not with SSE2 alone
    shape, n = cached.shape, cached.shape.n_expert
    n_before, last = 0, 0.0
    for share in (1.0, 0.75, 0.75, 0.5, 0.75):
        layout = cut(shape, dict.fromkeys(range(shape.n_layer), share), n, n, n)
        cached.setup(layout, keeps=True, repack=repack)
        is_kept = share == last or (share < last and not is_repacked)
        n_now = sum(cell & 3 == 1 for cell in cached.patch.snapshot())
        assert n_now == (n_before if is_kept else 0), share
        assert not any(cached.patch.find_wrong_slot(i) for i in range(n_now))
        cached.logits(33)
        n_before, last = sum(cell & 3 == 1 for cell in cached.patch.snapshot()), share
        assert n_before > 0
        found = cached.logits(33)
        cached.setup(layout, repack=repack)
        assert n_different(cached.logits(33), found) == 0
    cached.close()
