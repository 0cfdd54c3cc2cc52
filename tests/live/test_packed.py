"""With a pack, the answer equals stock llama.cpp's in the same layout, bit by bit."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from equality import Cached, Logits, Runner, n_different, stock_logits
from factory import make_tiny
from layouts import all_resident, cut, one_pool

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import LlamaError
from backend.packs import write as pack
from backend.packs.file import LAYOUTS

PROMPTS = (33, 2)


def repacked_logits(file: ModelFile) -> dict[int, Logits]:
    """Return stock llama.cpp's logits with its fastest layout."""
    model = loading.load_plain(file, repack=True)
    runner = Runner(model, n_thread=1)
    found = {n: runner.logits(n) for n in PROMPTS}
    runner.close()
    model.close()
    return found


def expected(file: ModelFile, layout: pack.Layout) -> dict[int, Logits]:
    return repacked_logits(file) if layout == "repacked" else stock_logits(file, PROMPTS, 1)


def packed(file: ModelFile, layout: pack.Layout) -> pack.Pack:
    try:
        return pack.write(file, layout)
    except pack.PackError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("arch", "quant", "sizes"),
    [
        ("qwen3moe", "Q4_0", {}),
        ("qwen3moe", "Q4_0", {"n_embd": 512, "n_ff_exp": 1024, "n_layer": 2, "n_expert": 6}),
        ("qwen3moe", "Q4_K", {"n_embd": 256, "n_ff_exp": 256}),
        ("gpt-oss", "MXFP4", {}),
        ("llama4", "Q4_0", {}),
    ],
    ids=["small", "aligned", "k-quants", "biases", "one expert used"],
)
def test_a_pack_gives_the_answer_of_the_model(
    arch: str, quant: str, sizes: dict[str, int], layout: pack.Layout, tmp_path: Path
) -> None:
    """Slots are whole blocks or not. There is one slot, some, or all."""
    file = read_model(make_tiny(arch, quant, tmp_path / "m.gguf", **sizes))
    found = packed(file, layout)
    stock = expected(file, layout)
    repack = {"repack": layout == "repacked"}
    with_pack, without = Cached(file, 1, pack=found), Cached(file, 1)
    for rate, method in ((0.0, "promoe"), (0.25, "lru"), (1.0, "promoe-chunks")):
        for cached in (with_pack, without):
            for outcome in cached.compare(rate, method, stock, **repack):
                assert outcome.n_different == 0, outcome
    assert with_pack.counts()[2] > 0
    with_pack.close()
    without.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("quant", "width"), [("Q4_0", 256), ("Q4_K", 1024), ("MXFP4", 256)])
def test_experts_that_are_cut_are_parts_of_the_packed_ones(
    quant: str, width: int, layout: pack.Layout, tmp_path: Path
) -> None:
    """The result is as if they were cut in the model and repacked after each read."""
    file = read_model(make_tiny("qwen3moe", quant, tmp_path / "m.gguf", n_embd=256, n_ff_exp=width))
    found, repack = packed(file, layout), layout == "repacked"
    with_pack, without = Cached(file, 1, pack=found), Cached(file, 1)
    shape, k = without.shape, without.shape.n_expert_used
    shares = {la: (0.25, 0.5, 0.75)[la % 3] for la in range(shape.n_layer)}
    without.setup(all_resident(shape, shares), repack=repack)
    expected = {n: without.logits(n) for n in PROMPTS}
    places = (
        cut(shape, shares, shape.n_expert, shape.n_expert, k),
        cut(shape, shares, k, k, k),
        one_pool(shape, 3 * k, shares, buffer=True),
    )
    for cached, place in itertools.product((with_pack, without), places):
        cached.setup(place, repack=repack)
        for n, logits in expected.items():
            assert n_different(cached.logits(n), logits) == 0
    with_pack.close()
    without.close()


def test_cut_experts_are_laid_out_as_the_processor_computes_fastest(tmp_path: Path) -> None:
    """Some last bits of its kernels differ from those of the others."""
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", n_embd=256, n_ff_exp=256))
    cached = Cached(file, 1, pack=packed(file, "repacked"))
    logits = []
    for repack in (True, False):
        cached.setup(all_resident(cached.shape, {0: 0.5}), repack=repack)
        logits.append(cached.logits(33))
    assert n_different(*logits) > 0
    cached.close()


def test_a_model_in_parts(tmp_path: Path) -> None:
    from factory import make_split

    whole = make_tiny("qwen3moe", "Q4_0", tmp_path / "whole.gguf")
    file = read_model(make_split(whole, 3)[1])
    found = packed(file, "file")
    assert found.path == tmp_path / "whole.pack"
    cached = Cached(file, 1, pack=found)
    assert [o.n_different for o in cached.compare(0.25, "lru", stock_logits(file, (33,), 1))] == [0]
    cached.close()


IN_BLOCKS = {"n_embd": 512, "n_ff_exp": 1024, "n_layer": 2, "n_expert": 8}
"""Matrices of whole blocks, large enough that their slots are whole blocks too."""


@pytest.mark.parametrize("from_pack", [True, False], ids=["pack", "model"])
def test_the_kernels_queue_reads_where_it_can(from_pack: bool, tmp_path: Path) -> None:
    """Neighbours are read together. Threads read what the queue refuses.

    In the model, experts begin anywhere in a block, and the last one ends at the end of the file.
    """
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", **IN_BLOCKS))
    found = packed(file, "file") if from_pack else None
    places = {t.offset % 4096 for tensors in file.expert_tensors.values() for t in tensors}
    assert places != {0}
    stock = stock_logits(file, PROMPTS, 1)
    cached = Cached(file, 1, pack=found)
    by_ring = []
    for method in ("lru-overlapped", "promoe-chunks"):
        for options in ({}, {"ring": False}, {"joined_bytes": 8 << 20}, {"n_transfer_thread": 0}):
            outcomes = cached.compare(0.5, method, stock, **options)
            assert [o.n_different for o in outcomes] == [0, 0]
            by_ring.append(cached.patch.reads_by_ring)
    cached.close()
    assert by_ring == [True, False, True, False] * 2 or not any(by_ring)


@pytest.mark.parametrize("n_folder", [2, 3])
def test_a_striped_pack_gives_the_answer_of_the_model(
    n_folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is on its own drive, or all are on one; with the kernel's queue, or threads."""
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", **IN_BLOCKS))
    folders = [tmp_path / str(i) for i in range(n_folder)]
    for folder in folders:
        folder.mkdir()
    found = pack.write(file, "file", folders=folders)
    stock = stock_logits(file, PROMPTS, 1)
    for drives in (lambda paths: list(range(len(paths))), lambda paths: [0] * len(paths)):
        monkeypatch.setattr(loading, "_drives", drives)
        cached = Cached(file, 1, pack=found)
        for options in ({}, {"ring": False}, {"joined_bytes": 8 << 20}, {"n_transfer_thread": 0}):
            outcomes = cached.compare(0.5, "promoe-chunks", stock, **options)
            assert [o.n_different for o in outcomes] == [0, 0]
        assert cached.counts()[2] > 0
        cached.close()


def test_a_striped_repacked_pack(tmp_path: Path) -> None:
    sizes = {"n_embd": 256, "n_ff_exp": 256, "n_layer": 2}
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", **sizes))
    (tmp_path / "b").mkdir()
    try:
        found = pack.write(file, "repacked", folders=[tmp_path, tmp_path / "b"])
    except pack.PackError as error:
        pytest.skip(str(error))
    cached = Cached(file, 1, pack=found)
    stock = repacked_logits(file)
    assert [o.n_different for o in cached.compare(0.25, "lru", stock, repack=True)] == [0, 0]
    shares = dict.fromkeys(range(2), 0.5)
    logits = []
    for experts in (all_resident(cached.shape, shares), cut(cached.shape, shares, 4, 4, 4)):
        cached.setup(experts, repack=True)
        logits.append(cached.logits(33))
    assert n_different(*logits) == 0
    cached.close()


@pytest.mark.parametrize("sizes", [{}, IN_BLOCKS], ids=["threads", "queue"])
def test_a_pack_that_vanishes_or_shrinks_ends_with_a_sentence(
    sizes: dict[str, int], tmp_path: Path
) -> None:
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", **sizes))
    found = packed(file, "file")
    stock = stock_logits(file, (33,), 1)
    cached = Cached(file, 1, pack=found)
    kept = shutil.copy(found.path, tmp_path / "kept")
    with found.path.open("r+b") as handle:
        handle.truncate(found.plan.layers[0].ranges[0][1] + 100)
    with pytest.raises(AssertionError, match=r"m\.pack could not be read: Input/output error"):
        cached.compare(0.25, "lru", stock)
    found.path.write_bytes(kept.read_bytes())
    cached.patch.begin_pass(_native.Phase.decode)
    cached.patch.end_pass()
    assert cached.compare(0.25, "lru", stock)[0].n_different == 0
    cached.close()
    found.path.unlink()
    with pytest.raises(LlamaError, match=r"m\.pack could not be opened"):
        loading.CachedModel(file, n_thread=1, pack=found)
