"""Packs: written, checked, and used only if they are valid."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import make_tiny
from processes import DATA_HOME

from backend import _native
from backend.cli import main
from backend.gguf.model_file import ModelFile, read_model
from backend.packs import write as pack
from backend.packs.benefit import offer
from backend.packs.file import find


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """Return a model with two layers of 8 experts."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    return read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", n_layer=2, n_expert=8))


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        handle.seek(offset)
        handle.write(bytes([byte ^ 1]))


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return three folders; the first is the model's."""
    found = [tmp_path, tmp_path / "b", tmp_path / "c"]
    for folder in found[1:]:
        folder.mkdir()
    return found


def striped(path: Path) -> list[Path]:
    """Return the files beside the head."""
    return list(pack.stripes_in(path).others)


def test_one_program_at_a_time_writes_a_pack(file: ModelFile) -> None:
    def second(done: int, of: int) -> bool:
        with pytest.raises(pack.PackError, match="being written by another program"):
            pack.write(file, "file")
        return True

    assert pack.write(file, "file", progress=second).path.is_file()


@pytest.mark.skipif(os.name != "nt", reason="elsewhere a file in use can be replaced")
def test_a_pack_in_use_is_not_replaced(file: ModelFile) -> None:
    path = pack.write(file, "file").path
    flip(path, 0)  # so that it is written again
    with path.open("rb"), pytest.raises(pack.PackError, match="is in use"):
        pack.write(file, "file", path)
    written = pack.write(file, "file", path)
    assert find(file) == (written, "")


def test_a_folder_without_leave_has_no_new_pack(
    file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pack.place_for(file).parent == file.path.parent
    monkeypatch.setattr(pack, "may_write", lambda folder: folder != file.path.parent)
    assert pack.place_for(file).is_relative_to(tmp_path / "data")


@pytest.mark.parametrize("of", [[], [0], [1], [0, 1], [1, 2], [2, 0, 1]])
def test_every_matrix_lies_where_the_plan_says(
    of: list[int], file: ModelFile, folders: list[Path]
) -> None:
    written = pack.write(file, "file", folders=[folders[i] for i in of])
    plan = written.plan
    model, packed = file.path.read_bytes(), [path.read_bytes() for path, _ in written.files]
    assert written.path == file.path.with_suffix(".pack")
    assert [len(each) for each in packed] == [*plan.sizes] and sum(plan.sizes) == plan.n_bytes
    assert {path.parent for path in written.sources} == {folders[i] for i in of or [0]}
    assert (plan == pack.plan_of(file, "file")) == (of in ([], [0]))
    n_compared = 0
    for layer in plan.layers:
        counts = [sum(number == i for number, _ in layer.ranges) for i in range(len(packed))]
        counts = counts if len(written.sources) == len(packed) else counts[1:]
        assert max(counts) - min(counts) <= 1  # a token's experts are on all drives
        for t in layer.tensors:
            assert t.place % 4096 == layer.stride % 4096 == 0
            for expert, (number, offset) in enumerate(layer.ranges):
                assert offset % 4096 == 0
                begin = t.tensor.offset + expert * t.tensor.matrix_bytes
                n, at = t.tensor.matrix_bytes, offset + t.place
                assert packed[number][at : at + n] == model[begin : begin + n]
                n_compared += n
    assert n_compared == file.expert_bytes_total
    pack.check(written)
    assert find(file) == (written, "")
    assert pack.write(file, "file") == written  # it is there already
    assert pack.delete(written.path) == plan.n_bytes
    assert not any(path.exists() for path, _ in written.files)


def test_layers_begin_on_different_drives(file: ModelFile, folders: list[Path]) -> None:
    first, second = pack.write(file, "file", folders=folders[:2]).plan.layers
    assert [number for number, _ in first.ranges] == [0, 1] * 4
    assert [number for number, _ in second.ranges] == [1, 0] * 4


@pytest.mark.parametrize(
    "fault", ["missing", "swapped", "of another run", "shorter", "header", "data", "folder"]
)
def test_a_wrong_file_of_a_striped_pack(
    fault: str, file: ModelFile, folders: list[Path], tmp_path: Path
) -> None:
    written = pack.write(file, "file", folders=folders)
    one, two = striped(written.path)
    if fault == "missing":
        two.unlink()
    elif fault == "folder":
        shutil.rmtree(two.parent)
    elif fault == "swapped":
        one.rename(tmp_path / "x")
        two.rename(one)
        (tmp_path / "x").rename(two)
    elif fault == "of another run":
        other = pack.write(file, "file", tmp_path / "other.pack", folders=folders)
        assert len(two.read_bytes()) == len(striped(other.path)[1].read_bytes())
        shutil.copy(striped(other.path)[1], two)
    elif fault == "shorter":
        os.truncate(two, two.stat().st_size - 1)
    else:
        at = next(offset for number, offset in written.plan.layers[1].ranges if number == 2)
        flip(two, 40 if fault == "header" else at)
    found, remark = find(file)
    if fault == "data":
        assert found is not None
        with pytest.raises(pack.PackError, match=r"m\.pack is damaged: expert 1 of layer 1 is not"):
            pack.check(found)
        return
    assert found is None
    if fault in ("missing", "folder"):
        assert remark == (
            f"m.pack is not used: its file {two} is missing; connect that drive, or write "
            "the pack again."
        )
    else:
        which = one if fault == "swapped" else two
        assert remark == (
            f"m.pack is not used: its file {which} is of another pack, or damaged; write the "
            "pack again."
        )
    strange = [path for path in (one, two) if path.is_file()]
    two.parent.mkdir(exist_ok=True)
    pack.check(pack.write(file, "file", folders=folders))  # under other names
    own = striped(written.path)
    assert find(file)[1] == "" and not {one, two} & set(own)
    left = {path for path in strange if path.exists()}  # what says that it is of another pack
    assert left == {"swapped": {one, two}, "of another run": {two}}.get(fault, set())


def test_a_striped_pack_of_other_weights_is_not_used(file: ModelFile, folders: list[Path]) -> None:
    pack.write(file, "file", folders=folders)
    t = next(iter(file.expert_tensors.values()))[0]
    with file.path.open("r+b") as handle:
        handle.seek(t.offset)
        handle.write(bytes(t.n_bytes))
    assert find(read_model(file.path))[1] == (
        "m.pack is not used: it was made for another model; write the pack again."
    )


@pytest.mark.parametrize(
    "stripes",
    [
        "x",
        {"id": "", "shares": [1, 1], "others": ["b/relative.pack"]},
        {"id": "", "shares": [1], "others": ["/b/m.pack"]},
        {"id": "", "shares": [0, 0], "others": ["/b/m.pack"]},
        {"id": "", "shares": [1, 1 << 40], "others": ["/b/m.pack"]},
        {"id": 1, "shares": [1, 1], "others": ["/b/m.pack"]},
        {"id": "", "shares": [1, 1], "others": ["/b/\0"]},
        {"id": "", "shares": [1, 1], "others": [None]},
    ],
)
def test_a_head_with_strange_files(stripes: Any, file: ModelFile) -> None:
    body = json.dumps({"version": 1, "layout": "file", "stripes": stripes}).encode()
    head = pack.beside(file)
    head.write_bytes(
        b"OUTRPACK" + (1).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body
    )
    assert find(file) == (
        None,
        "m.pack is not used: it is no pack, or a damaged one; write the pack again.",
    )
    assert pack.delete(head) == 16 + len(body)


def test_a_head_cannot_have_other_files_deleted_or_written(
    file: ModelFile, folders: list[Path]
) -> None:
    precious = folders[1] / "precious"
    precious.write_text("mine")
    stripes = {"id": "x", "shares": [1, 1], "others": [str(precious)]}
    body = json.dumps({"version": 1, "layout": "file", "stripes": stripes}).encode()
    data = b"OUTRPACK" + (1).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body
    for name in ("m.pack", "m.pack.part"):
        (folders[0] / name).write_bytes(data)
    pack.write(file, "file", folders=folders[:2])
    for name in ("m.pack", "m.pack.part"):
        (folders[0] / name).write_bytes(data)
    pack.delete(pack.beside(file))
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("interrupt", [False, True], ids=["stopped", "Ctrl-C"])
def test_a_striped_pack_goes_on_in_the_same_folders(
    interrupt: bool, file: ModelFile, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = pack.plan_of(file, "file")

    def progress(done: int, _total: int) -> bool:
        if done < 0.8 * plan.n_bytes:
            return True
        if interrupt:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt if interrupt else pack.PackError):
        pack.write(file, "file", progress=progress, folders=folders)
    part = file.path.with_name("m.pack.part")
    begun = striped(part)
    assert part.is_file() and all(path.is_file() for path in begun)
    assert find(file) == (None, "")
    made: list[int] = []
    real: Any = pack._range_of
    monkeypatch.setattr(
        pack, "_range_of", lambda f, layer, e, parts: made.append(e) or real(f, layer, e, parts)
    )
    written = pack.write(file, "file", folders=folders[::-1])
    pack.check(written)
    assert made == [*range(file.n_expert)]  # the layer that was not complete
    assert [path for path, _ in written.files[1:]] == begun and not part.exists()


def test_what_was_interrupted_in_other_folders_is_removed(
    file: ModelFile, folders: list[Path]
) -> None:
    for chosen in (folders[1:], folders[:2], []):
        begun = striped(file.path.with_name("m.pack.part"))
        with pytest.raises(pack.PackError, match="continues there"):
            pack.write(file, "file", progress=lambda *_: False, folders=chosen)
        assert not any(path.exists() for path in begun)
    assert [*folders[1].iterdir(), *folders[2].iterdir()] == []


def test_a_pack_is_replaced_only_by_a_complete_one(file: ModelFile, folders: list[Path]) -> None:
    before = pack.write(file, "file", folders=folders[:2])
    with pytest.raises(pack.PackError, match="continues there"):
        pack.write(file, "file", progress=lambda *_: False, folders=folders[1:])
    assert find(file) == (before, "")
    after = pack.write(file, "file", folders=folders[1:])
    assert find(file) == (after, "")
    assert sorted(folders[1].iterdir()) == [striped(after.path)[0]]
    pack.delete(after.path)
    assert [*folders[1].iterdir(), *folders[2].iterdir()] == []


def test_shares_follow_the_speeds_of_the_drives(
    file: ModelFile, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {folders[0]: 3e9, folders[1]: 1e9, folders[2]: 0.05e9}

    class Speed:
        def __init__(self, path: str, *_: object) -> None:
            assert Path(path).stat().st_size == 1 << 23
            self.bytes_per_s = speeds[Path(path).parent]

    monkeypatch.setattr("backend._native.measure_reads", Speed)
    monkeypatch.setattr("backend.machines.measure._OWN_FILE_BYTES", 1 << 23)
    monkeypatch.setattr("backend.packs.write.LEAST_FILE_BYTES", 0)
    layer = pack.write(file, "file", folders=folders[:2]).plan.layers[0]
    assert [number for number, _ in layer.ranges].count(0) == 6  # of 8
    with pytest.raises(
        pack.PackError, match=r"The drive of .*c is too slow to help: 47\.7 MiB per"
    ):
        pack.write(file, "file", folders=[folders[0], folders[2]])
    assert list(folders[2].iterdir()) == []


def test_a_pack_is_found_beside_the_model_and_in_the_data_folder(file: ModelFile) -> None:
    assert find(file) == (None, "")
    elsewhere = pack.write(file, "file", pack.in_data_folder(file))
    assert find(file) == (elsewhere, "")
    beside = pack.write(file, "file")
    assert find(file) == (beside, "")
    assert pack.delete(beside.path) == beside.plan.n_bytes
    assert find(file) == (elsewhere, "")


@pytest.mark.parametrize("at", ["magic", "text", "data"])
def test_a_damaged_pack(file: ModelFile, at: str) -> None:
    written = pack.write(file, "file")
    layer = written.plan.layers[1]
    flip(written.path, {"magic": 0, "text": 40, "data": layer.ranges[1][1]}[at])
    found, remark = find(file)
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
    assert find(other)[1] == (
        "m.pack is not used: it was made for another model; write the pack again."
    )
    pack.write(other, "file")
    assert find(other)[1] == ""


def test_a_pack_for_another_processor_is_not_used(
    file: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pack.best_layout(file) != "repacked":
        pytest.skip("this processor has no layout of its own")
    pack.write(file, "repacked")
    monkeypatch.setattr("backend.packs.file._fingerprint", lambda _types: "other")
    assert "another processor" in find(file)[1]
    monkeypatch.setattr("backend._native.can_repack", lambda *_: False)
    assert "computes this model's experts fastest as they are" in find(file)[1]


def test_it_goes_on_where_it_was_stopped(file: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    total = pack.plan_of(file, "file").n_bytes
    with pytest.raises(pack.PackError, match="continues there"):
        pack.write(file, "file", progress=lambda done, _: done < 0.8 * total)
    part = file.path.with_name("m.pack.part")
    assert part.is_file() and find(file) == (None, "")
    layer = pack.plan_of(file, "file").layers[0]
    flip(part, layer.ranges[3][1])  # what was damaged meanwhile is written again
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


def test_a_full_second_drive_leaves_nothing_behind(
    file: ModelFile, tiny_disk: Path, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, mine = [folders[1], tiny_disk], tiny_disk / "mine"
    mine.write_bytes(bytes(70_000))
    with pytest.raises(pack.PackError, match=r"m\.pack needs .* are free in .*disk"):
        pack.write(file, "file", folders=where)
    monkeypatch.setattr("backend.packs.write._require_space", lambda *_: None)
    with pytest.raises(pack.PackError, match="No space left on device"):
        pack.write(file, "file", folders=where)
    left = [*folders[1].iterdir(), *tiny_disk.iterdir(), *folders[0].glob("*.pack*")]
    assert left == [mine]


def test_a_value_that_is_not_finite_is_named_and_leaves_no_pack(file: ModelFile) -> None:
    (tensor, *_), block_bytes, expert, block = file.expert_tensors[1], 18, 3, 5
    at = tensor.offset + expert * tensor.matrix_bytes + block * block_bytes
    with file.path.open("r+b") as handle:
        handle.seek(at)
        handle.write(b"\0\x7c")  # infinity, as the scale of a block of Q4_0
    with pytest.raises(pack.PackError) as refused:
        pack.write(read_model(file.path), "file")
    n_before = expert * tensor.matrix_bytes // block_bytes
    for words in (tensor.name, f"in block {n_before + block}"):
        assert words in str(refused.value)
    assert [path.name for path in file.path.parent.iterdir() if "pack" in path.name] == []


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
    assert find(file) == (None, "")
    assert main(["pack", model, "--delete"]) == 1
    assert main(["pack", model, "--out", str(file.path.parent / "no" / "x" / "y.pack")]) == 0


def test_the_command_with_folders(
    file: ModelFile, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(file.path)
    to = [word for folder in folders[1:] for word in ("--to", str(folder))]
    assert main(["pack", model, *to]) == 0
    said = capsys.readouterr().out
    one, two = striped(pack.beside(file))
    assert "It is complete, and will be used." in said and str(one) in said and str(two) in said
    assert "on the same drive, which gains nothing" in said
    assert main(["pack", model, "--check"]) == 0
    capsys.readouterr()
    assert main(["inspect", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pack"]["others"] == [str(one), str(two)]
    assert main(["verify", model, "--rates", "0.25", "--methods", "lru", "--threads", "1"]) == 0
    said = capsys.readouterr().out
    assert "m.pack" in said and "identical" in said
    two.unlink()
    assert main(["pack", model, "--delete"]) == 0
    assert f"{two} was not found" in capsys.readouterr().out and not one.exists()
    assert main(["pack", model, *to, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["others"]) == 2
    for words, sentence in (
        ([*to, "--delete"], "--to says where a new pack is written."),
        (["--to", str(folders[0] / "no")], "There is no folder "),
        (["--to", str(folders[1]), "--to", f"{folders[1]}/../b"], "is named twice."),
        (["--to", str(folders[1]), "--out", "x"], "not allowed with"),
    ):
        assert main(["pack", model, *words]) != 0
        assert sentence in capsys.readouterr().err


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
