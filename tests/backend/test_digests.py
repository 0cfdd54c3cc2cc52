"""The SHA-256 of files: computed in the background, kept by the state of the file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend.gguf.identity import FileIdentity
from backend.library import digests as module
from backend.library.digests import Digests, pieces

OTHER = 64 * "0"


@pytest.fixture
def digests(tmp_path: Path) -> Iterator[Digests]:
    found = Digests(tmp_path / "kept" / "digests.json")
    yield found
    found.close()


def a_file(path: Path, n_bytes: int = 5000) -> tuple[Path, FileIdentity, str]:
    """Write a file. Return it with its identity and its digest."""
    data = random.Random(n_bytes).randbytes(n_bytes)
    path.write_bytes(data)
    return path, FileIdentity.of(path), hashlib.sha256(data).hexdigest()


def wait_for(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.002)


@pytest.mark.parametrize("n_bytes", [0, 1, 4096, 5000, 1 << 20, (3 << 20) + 4096, (2 << 20) + 77])
@pytest.mark.parametrize("is_direct", [True, False])
def test_all_pieces_are_the_file(
    n_bytes: int, is_direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_direct:  # as on a drive that cannot
        monkeypatch.setattr(module, "_set_direct", lambda *_, **__: False)
    path, _, digest = a_file(tmp_path / "file", n_bytes)
    whole = hashlib.sha256()
    with path.open("rb") as file:
        for piece in pieces(file.fileno()):
            whole.update(piece)
    assert whole.hexdigest() == digest


def test_a_refused_direct_read_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = memoryview(bytearray((1 << 20) + 1))[1:]  # an address that no drive reads to directly
    buffers = SimpleNamespace(mmap=lambda *_: contextlib.nullcontext(odd))
    monkeypatch.setattr(module, "mmap", buffers)
    path, _, digest = a_file(tmp_path / "file", (1 << 20) + 77)
    whole = hashlib.sha256()
    with path.open("rb") as file:
        for piece in pieces(file.fileno()):
            whole.update(piece)
    assert whole.hexdigest() == digest


def test_a_drive_that_fails_is_no_end(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="directory"):
        list(pieces(descriptor))
    os.close(descriptor)


def test_digests_are_computed_and_kept(digests: Digests, tmp_path: Path) -> None:
    files = [a_file(tmp_path / f"file-{n}", n) for n in (3_000_000, 10)]
    wanted = [(path, identity) for path, identity, _ in files]
    wait_for(lambda: not digests.compute(wanted))
    for known in (digests, Digests(tmp_path / "kept" / "digests.json")):
        assert [known.of(identity) for _, identity, _ in files] == [d for *_, d in files]
        assert not known.compute(wanted)


def test_a_request_stops_the_reading(
    digests: Digests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, read, may_go_on = [0], [], threading.Semaphore(1)

    def slowly(descriptor: int) -> Iterator[memoryview]:
        for piece in pieces(descriptor):
            begun[0] += 1
            may_go_on.acquire()
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(module, "pieces", slowly)
    path, identity, digest = a_file(tmp_path / "file", 5 << 20)
    assert digests.compute([(path, identity)])
    wait_for(lambda: begun == [2])
    digests.pause()  # while a piece is being read
    may_go_on.release(100)
    wait_for(lambda: len(read) == 2)
    assert digests.of(identity) == ""
    (thread,) = [one for one in threading.enumerate() if one.name == "digests"]
    for _ in range(20):
        thread.join(0.01)
        assert thread.is_alive() and len(read) == 2  # it reads nothing in the meantime
    wait_for(lambda: not digests.compute([(path, identity)]))
    assert digests.of(identity) == digest and len(read) == 5


def test_it_ends_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pieces", lambda _: iter([b"a"] * 10))
    path, identity, _ = a_file(tmp_path / "file")
    digests = Digests(tmp_path / "digests.json")
    monkeypatch.setattr(digests._may_run, "set", lambda: None)
    assert digests.compute([(path, identity)])
    monkeypatch.undo()
    digests.close()
    assert digests.of(identity) == "" and not (tmp_path / "digests.json").exists()


def rewrite(path: Path) -> None:
    """Write another byte, and set the time of modification back."""
    before = path.stat()
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes([data[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_it(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.parametrize("change", [rewrite, replace_it, Path.unlink, lambda path: path.chmod(0)])
def test_another_state_of_a_file_has_no_digest(
    change: Callable[[Path], None],
    digests: Digests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, identity, digest = a_file(tmp_path / "file")
    digests.note(identity, digest)
    change(path)
    monkeypatch.setattr(module, "pieces", pytest.fail)  # it is not even read
    if path.exists():
        assert digests.of(FileIdentity.of(path)) == ""
    other = Digests(tmp_path / "others.json")
    wait_for(lambda: not other.compute([(path, identity)]))
    assert other.of(identity) == "" and not (tmp_path / "others.json").exists()
    other.close()


@pytest.mark.parametrize("change", [rewrite, lambda path: path.chmod(0o600)])
def test_a_file_that_changes_while_it_is_read_has_no_digest(
    change: Callable[[Path], None],
    digests: Digests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, identity, _ = a_file(tmp_path / "file")

    def changing(descriptor: int) -> Iterator[memoryview]:
        yield from pieces(descriptor)
        change(path)

    monkeypatch.setattr(module, "pieces", changing)
    wait_for(lambda: not digests.compute([(path, identity)]))
    assert digests.of(identity) == "" and digests.of(FileIdentity.of(path)) == ""


def test_a_damaged_file_never_tells_another_digest(digests: Digests, tmp_path: Path) -> None:
    _, identity, digest = a_file(tmp_path / "file")
    digests.note(identity, digest)
    kept = tmp_path / "kept" / "digests.json"
    data, n_lost = kept.read_bytes(), 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 7
        kept.write_bytes(flipped)
        found = Digests(kept).of(identity)
        assert found in ("", digest)
        n_lost += not found
    assert n_lost > len(data) // 2
    for whole in (b"", b"null", b"[]", b'{"format": 1}', b'{"format": 1, "files": {"a": 1}}'):
        kept.write_bytes(whole)
        assert Digests(kept).of(identity) == ""


def test_an_entry_of_another_file_is_ignored(digests: Digests, tmp_path: Path) -> None:
    _, one, digest = a_file(tmp_path / "one")
    _, other, _ = a_file(tmp_path / "other")
    digests.note(one, digest)
    kept = tmp_path / "kept" / "digests.json"
    data = json.loads(kept.read_text())
    (entry,) = data["files"].values()
    data["files"] = {"-".join(map(str, other)): entry}
    kept.write_text(json.dumps(data))
    assert Digests(kept).of(other) == ""


def test_several_processes_keep_their_digests(digests: Digests, tmp_path: Path) -> None:
    files = [a_file(tmp_path / f"file-{n}", n) for n in range(3)]
    kept = tmp_path / "kept" / "digests.json"
    other = Digests(kept)  # has read the file before
    digests.note(files[0][1], files[0][2])
    other.note(files[1][1], files[1][2])
    known = Digests(kept)
    assert [bool(known.of(identity)) for _, identity, _ in files] == [True, True, False]
    # What another process has found since is not computed again.
    files[2][0].chmod(0)
    late = FileIdentity.of(files[2][0])
    known.note(late, OTHER)
    wait_for(lambda: not digests.compute([(files[2][0], late)]))
    assert digests.of(late) == OTHER


def test_two_that_note_a_digest_at_once_keep_both(
    digests: Digests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads the file and writes it with its own; the second one waits for the first."""
    files = [a_file(tmp_path / f"file-{n}", n) for n in range(2)]
    kept, write = tmp_path / "kept" / "digests.json", module.write_json
    second = threading.Thread(target=Digests(kept).note, args=files[1][1:])

    def begin_another(path: Path, value: object) -> None:
        if second.ident is None:
            second.start()
            second.join(0.1)  # without a lock it is done by then
        write(path, value)

    monkeypatch.setattr(module, "write_json", begin_another)
    digests.note(*files[0][1:])
    second.join()
    assert all(Digests(kept).of(identity) for _, identity, _ in files)


def test_the_oldest_digests_leave_first(digests: Digests, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "digests.json"
    states = [FileIdentity(1, 2, 3, 4, n) for n in range(1003)]
    for state in states[:2]:
        digests.note(state, OTHER)
    data = json.loads(kept.read_text())
    keys = {"-".join(map(str, state)): state for state in states}
    data["files"] |= {key: [OTHER, module._check(key, OTHER)] for key in keys}
    kept.write_text(json.dumps(data))
    late = Digests(kept)
    late.note(FileIdentity(5, 5, 5, 5, 5), OTHER)
    known = Digests(kept)
    assert [n for n, state in enumerate(states) if not known.of(state)] == [0, 1, 2, 3]
    assert known.of(FileIdentity(5, 5, 5, 5, 5))
