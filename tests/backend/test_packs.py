"""Packs: written, checked, and used only if they are valid."""

from __future__ import annotations

import json
import random
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import make_tiny

from backend import _native
from backend.cli import main
from backend.gguf.model_file import ModelFile, read_model
from backend.packs import write as pack
from backend.packs.benefit import offer


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """Return a model with two layers of 8 experts."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", n_layer=2, n_expert=8))


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        handle.seek(offset)
        handle.write(bytes([byte ^ 1]))


def test_every_matrix_lies_where_the_plan_says(file: ModelFile) -> None:
    written = pack.write(file, "file")
    model, packed = file.path.read_bytes(), written.path.read_bytes()
    assert written.path == file.path.with_suffix(".pack")
    assert len(packed) == written.plan.n_bytes
    n_compared = 0
    for layer in written.plan.layers:
        assert layer.offset % 4096 == layer.stride % 4096 == 0
        for t in layer.tensors:
            assert t.place % 4096 == 0
            for expert in range(file.n_expert):
                begin = t.tensor.offset + expert * t.tensor.matrix_bytes
                at = layer.offset + expert * layer.stride + t.place
                n = t.tensor.matrix_bytes
                assert packed[at : at + n] == model[begin : begin + n]
                n_compared += n
    assert n_compared == file.expert_bytes_total


def test_a_pack_is_found_beside_the_model_and_in_the_data_folder(file: ModelFile) -> None:
    assert pack.find(file) == (None, "")
    elsewhere = pack.write(file, "file", pack.in_data_folder(file))
    assert pack.find(file) == (elsewhere, "")
    beside = pack.write(file, "file")
    assert pack.find(file) == (beside, "")
    assert pack.delete(beside.path) == beside.plan.n_bytes
    assert pack.find(file) == (elsewhere, "")


@pytest.mark.parametrize("at", ["magic", "text", "data"])
def test_a_damaged_pack(file: ModelFile, at: str) -> None:
    written = pack.write(file, "file")
    layer = written.plan.layers[1]
    flip(written.path, {"magic": 0, "text": 40, "data": layer.offset + layer.stride}[at])
    found, remark = pack.find(file)
    if at == "data":
        assert found is not None
        with pytest.raises(pack.PackError, match="expert 1 of layer 1 is not what was written"):
            pack.check(found)
    else:
        assert found is None
        assert remark.startswith("m.pack is not used: it ") and remark.endswith("again.")


def test_a_pack_of_a_model_with_other_weights_is_not_used(file: ModelFile) -> None:
    """The header, the sizes and the fingerprint are the same."""
    pack.write(file, "file")
    data = bytearray(file.path.read_bytes())
    for tensors in file.expert_tensors.values():
        for t in tensors:
            data[t.offset : t.offset + t.n_bytes] = bytes(t.n_bytes)
    file.path.write_bytes(data)
    other = read_model(file.path)
    assert other.fingerprint == file.fingerprint
    assert pack.find(other)[1] == (
        "m.pack is not used: it was made for another model; outrider pack writes it again."
    )
    pack.write(other, "file")
    assert pack.find(other)[1] == ""


def test_a_pack_for_another_processor_is_not_used(
    file: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pack.best_layout(file) != "repacked":
        pytest.skip("this processor has no layout of its own")
    pack.write(file, "repacked")
    monkeypatch.setattr("backend.packs.file._fingerprint", lambda _types: "other")
    assert "another processor" in pack.find(file)[1]
    monkeypatch.setattr("backend._native.can_repack", lambda *_: False)
    assert "computes this model's experts fastest as they are" in pack.find(file)[1]


def test_it_goes_on_where_it_was_stopped(file: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    total = pack.plan_of(file, "file").n_bytes
    with pytest.raises(pack.PackError, match="continues there"):
        pack.write(file, "file", progress=lambda done, _: done < 0.8 * total)
    part = file.path.with_name("m.pack.part")
    assert part.is_file() and pack.find(file) == (None, "")
    layer = pack.plan_of(file, "file").layers[0]
    flip(part, layer.offset + 3 * layer.stride)  # what was damaged meanwhile is written again
    made: list[int] = []
    real: Any = pack._range_of
    monkeypatch.setattr(
        pack, "_range_of", lambda f, layer, e, parts: made.append(e) or real(f, layer, e, parts)
    )
    pack.check(pack.write(file, "file"))
    assert made == [3, *range(file.n_expert)]  # and the layer that was not complete
    assert not part.exists()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 100 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may make file systems")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing_behind(
    file: ModelFile, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pack.PackError, match=r"m\.pack needs .* and only .* are free in"):
        pack.write(file, "file", tiny_disk / "m.pack")
    assert list(tiny_disk.iterdir()) == []
    # What is said to be free need not be.
    monkeypatch.setattr("backend.packs.write._require_space", lambda *_: None)
    with pytest.raises(pack.PackError, match="No space left on device"):
        pack.write(file, "file", tiny_disk / "m.pack")
    assert list(tiny_disk.iterdir()) == []


def test_a_dense_model_has_none(tmp_path: Path) -> None:
    file = read_model(make_tiny("dense", "Q4_0", tmp_path / "m.gguf"))
    with pytest.raises(pack.PackError, match="no experts"):
        pack.plan_of(file, "file")


def test_the_command(file: ModelFile, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(file.path)
    assert main(["pack", model, "--check"]) == 1
    assert "m.gguf has no pack" in capsys.readouterr().err
    assert main(["pack", model]) == 0
    said = capsys.readouterr().out
    assert "m.pack will take" in said and "It is complete, and will be used." in said
    assert main(["pack", model, "--check"]) == 0
    assert main(["inspect", model]) == 0
    assert "m.pack" in capsys.readouterr().out
    assert main(["verify", model, "--rates", "0.25", "--methods", "lru", "--threads", "1"]) == 0
    assert "identical" in capsys.readouterr().out
    assert main(["pack", model, "--delete"]) == 0
    assert pack.find(file) == (None, "")
    assert main(["pack", model, "--delete"]) == 1
    assert main(["pack", model, "--out", str(file.path.parent / "no" / "x" / "y.pack")]) == 0


def test_an_offer(file: ModelFile, capsys: pytest.CaptureFixture[str]) -> None:
    offered = offer(file, n_thread=1)
    assert offered is not None and offered.fits
    assert offered.needed_bytes == pack.plan_of(file, offered.layout).n_bytes
    assert offered.read_gain >= 1 and offered.compute_gain >= 1 and 0 < offered.expert_share < 1
    twice = replace(offered, read_gain=2.0, compute_gain=1.5, expert_share=0.6)
    assert twice.speed_gain(compute_s=10, stall_s=10) == pytest.approx(20 / (4 + 4 + 5))
    assert main(["pack", str(file.path), "--offer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(pack.beside(file))
    pack.write(file, "file")
    assert offer(file) is None
    assert main(["pack", str(file.path), "--check", "--json"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last)["done_bytes"] < json.loads(last)["total_bytes"]


def test_sums_of_chunks_in_any_order() -> None:
    """The checksum of a range from its chunks equals zlib's of the whole range."""
    chance = random.Random(1)
    for n_chunk in (1, 2, 3):
        sizes = [chance.randrange(1, 5000) for _ in range(n_chunk)]
        places, place = [], 0
        for size in sizes:
            places.append(place)
            place += size + chance.randrange(3000)
        chunks = [chance.randbytes(size) for size in sizes]
        whole = bytearray(place)
        for at, chunk in zip(places, chunks, strict=True):
            whole[at : at + len(chunk)] = chunk
        sums = _native.PackSums("p", 3, place, [zlib.crc32(whole), 1])
        for expert in (0, 1):
            order = chance.sample(range(n_chunk), n_chunk)
            for i in order[:-1]:
                sums.add(expert, i, n_chunk, places[i], chunks[i])
                sums.add(expert, i, n_chunk, places[i], chunks[i])  # read once more
            last = (order[-1], n_chunk, places[order[-1]], chunks[order[-1]])
            if expert == 0:
                sums.add(expert, *last)
                assert sums.is_right(expert)
                continue
            for _ in range(2):
                with pytest.raises(RuntimeError, match="damaged at expert 1 of layer 3"):
                    sums.add(expert, *last)
