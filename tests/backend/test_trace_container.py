"""The container: it reads what it has written and refuses all else with one sentence."""

import errno
import io
import json
import os
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import NO_FILE

from backend.traces import container
from backend.traces.container import ContainerError

KIND = "outrider-trace"
HEADER = {"kind": KIND, "version": 1, "model": "0123", "about": {"n": 3, "names": ["ä", "b"]}}


def arrays() -> dict[str, np.ndarray]:
    random_ = np.random.default_rng(0)
    return {
        "ids": random_.integers(0, 128, (5, 3, 2)).astype(np.uint8),
        "layer0.w-1": random_.random((3, 4)).astype(np.float16),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 4), np.int32),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "big_endian": np.arange(3, dtype=">i4"),
        "flags": np.array([True, False]),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a file.trace"
    container.write(path, HEADER, arrays())
    return path


def check_refused(path: Path, words: str, kind: str = KIND, newest: int = 1) -> None:
    for mapped in (False, True):
        with pytest.raises(ContainerError) as refused:
            container.read(path, kind, newest, mapped=mapped)
        text = str(refused.value)
        assert words in text
        assert text.startswith(f"{path.name} cannot be used: ") and text.endswith(".")
        assert "\n" not in text


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def npy(shape: tuple[int, ...], dtype: str, data: bytes, by_column: bool = False) -> bytes:
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": by_column, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


# What is written is read again.


@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_written_is_read_again(path: Path, mapped: bool) -> None:
    header, found = container.read(path, KIND, 1, mapped=mapped)
    assert header == HEADER
    assert list(found) == list(arrays())
    for key, array in arrays().items():
        assert found[key].shape == array.shape
        assert found[key].dtype == array.dtype.newbyteorder("<")
        assert np.array_equal(found[key], array)
        assert found[key].flags.aligned


def test_numpy_reads_it_too(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        assert np.array_equal(file["ids"], arrays()["ids"])
        assert json.loads(file["header.json"]) == HEADER


def test_the_same_content_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    container.write(tmp_path / "again", dict(reversed(HEADER.items())), arrays())
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_older_version_is_read(path: Path) -> None:
    assert container.read(path, KIND, 7)[0]["version"] == 1


def test_the_model_is_compared(path: Path) -> None:
    header, _ = container.read(path, KIND, 1)
    container.require_model(path, header, "0123")
    with pytest.raises(ContainerError, match="another model"):
        container.require_model(path, header, "0124")


# Writing.


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_file_is_replaced_as_a_whole_and_a_link_stays(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    container.write(tmp_path / "link", {**HEADER, "model": "new"}, {})
    assert (tmp_path / "link").is_symlink()
    assert container.read(path, KIND, 1)[0]["model"] == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a file.trace", "link"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    written = 0
    real = zipfile._ZipWriteFile.write

    def write(self: Any, data: Any) -> int:
        nonlocal written
        written += 1
        if written > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, data)

    monkeypatch.setattr(zipfile._ZipWriteFile, "write", write)
    with pytest.raises(ContainerError, match=r"^a file.trace could not be written: No space .*\.$"):
        container.write(path, HEADER, arrays())
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fsync(_descriptor: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(error):
        container.write(tmp_path / "x", HEADER, arrays())
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no" / "x", "no such folder"), (tmp_path, "something else")):
        with pytest.raises(ContainerError, match=words):
            container.write(path, HEADER, {})
    assert list(tmp_path.iterdir()) == []


# Refused.


def test_no_file_an_empty_one_a_folder_and_a_pipe(tmp_path: Path) -> None:
    check_refused(tmp_path / "none", NO_FILE)
    (tmp_path / "empty").touch()
    check_refused(tmp_path / "empty", "empty")
    check_refused(tmp_path, "folder")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        check_refused(tmp_path / "pipe", "regular file")


def test_another_kind_and_a_newer_version(path: Path, tmp_path: Path) -> None:
    check_refused(path, "no outrider-predictor file", kind="outrider-predictor")
    container.write(tmp_path / "new", {**HEADER, "version": 2}, {})
    check_refused(tmp_path / "new", "version 2")
    (tmp_path / "text").write_text("token,layer\n")
    check_refused(tmp_path / "text", "not a file of Outrider's")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"kind": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[1]", "what it is"),
        (b'{"kind": 3}', "what it is"),
        (b'{"kind": "outrider-trace"}', "its version"),
        (b'{"kind": "outrider-trace", "version": true}', "its version"),
        (b'{"kind": "outrider-trace", "version": 0}', "its version"),
        (b'{"kind": "outrider-trace", "version": 1, "model": 5}', "which model"),
    ],
)
def test_a_header_that_makes_no_sense(tmp_path: Path, header: bytes, words: str) -> None:
    check_refused(archive(tmp_path / "x", {"header.json": header}), words)


GOOD = json.dumps(HEADER).encode()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (b"", "damaged header"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "damaged header"),
        (b"\x93NUMPY\x03\x00" + npy((1,), "|u1", b"1")[8:], "format"),
        (npy((2,), "|O", b"12345678" * 2), "type"),
        (npy((2,), ">i4", b"12345678"), "type"),
        (npy((2,), "|S4", b"12345678"), "type"),
        (npy((2,), "<i4", b"1234567"), "bytes instead of 8"),
        (npy((2,), "<i4", b"123456789"), "bytes instead of 8"),
        (npy((1 << 40, 1 << 40), "<f8", b""), "bytes instead of"),
        (npy((1 << 62, 0), "<f8", b""), "shape"),
        (npy((-2, -2), "<f8", b"1" * 32), "shape"),
        (npy((1,) * 9, "|u1", b"1"), "shape"),
        (npy((2, 2), "|u1", b"1234", by_column=True), "shape"),
    ],
)
def test_arrays_that_make_no_sense(tmp_path: Path, array: bytes, words: str) -> None:
    check_refused(archive(tmp_path / "x", {"header.json": GOOD, "a.npy": array}), words)


def test_names_that_make_no_sense(tmp_path: Path) -> None:
    array = npy((1,), "|u1", b"1")
    for name in ("a", "../a.npy", "/a.npy", "a/b.npy", ".npy", "x" * 200 + ".npy"):
        path = archive(tmp_path / "x", {"header.json": GOOD, name: array})
        check_refused(path, "not an array")
    check_refused(archive(tmp_path / "x", {"a.npy": array}), "no header")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "y", "w") as file:
        for name in ("header.json", "a.npy", "a.npy"):
            file.writestr(name, GOOD if name == "header.json" else array)
    check_refused(tmp_path / "y", "same name")


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    zeros = npy((1 << 24,), "|u1", bytes(1 << 24))
    path = archive(tmp_path / "x", {"header.json": GOOD, "a.npy": zeros}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 18
    check_refused(path, "compressed")


def test_one_member_cannot_be_claimed_many_times(path: Path) -> None:
    """A hostile list of contents may name the same bytes many times."""
    raw = path.read_bytes()
    begin = raw.index(b"PK\x01\x02")
    end = raw.index(b"PK\x05\x06")
    listed, entries = raw[begin:end], []
    while listed:
        n_name, n_extra, n_comment = struct.unpack_from("<3H", listed, 28)
        size = 46 + n_name + n_extra + n_comment
        entries.append(listed[:size])
        listed = listed[size:]
    largest = max(entries, key=lambda entry: struct.unpack_from("<I", entry, 24)[0])
    n = 60
    name_at = largest.index(b".npy") - 1
    copies = [largest[:name_at] + bytes([ord("A") + i]) + largest[name_at + 1 :] for i in range(n)]
    listing = b"".join(entries + copies)
    n_entry = len(entries) + n
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n_entry, n_entry, len(listing), begin, 0)
    path.write_bytes(raw[:begin] + listing + tail)
    check_refused(path, "more than its size")


def test_every_cut_is_seen(path: Path) -> None:
    raw = path.read_bytes()
    for n in [*range(0, len(raw), 13), len(raw) - 1]:
        path.write_bytes(raw[:n])
        check_refused(path, "")


def test_changed_bytes_are_seen_or_change_nothing(path: Path) -> None:
    """Some bytes, such as times and padding, have no meaning. All others are checked."""
    raw = path.read_bytes()
    expected = container.read(path, KIND, 1)
    random_ = random.Random(1)
    n_refused = 0
    for _ in range(300):
        changed = bytearray(raw)
        for _ in range(random_.choice((1, 1, 1, 8))):
            changed[random_.randrange(len(raw))] = random_.randrange(256)
        path.write_bytes(changed)
        try:
            header, found = container.read(path, KIND, 1)
        except ContainerError:
            n_refused += 1
            continue
        assert header == expected[0]
        for key, array in found.items():
            same = [a for a in expected[1].values() if a.shape == array.shape]
            assert any(np.array_equal(array, a) for a in same), key
    assert n_refused > 150
