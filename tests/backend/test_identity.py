"""Files that are held open: what is a change, and what is not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.gguf.identity import FileChangedError, FileIdentity, OpenFiles


def a_file(path: Path, n_bytes: int = 5000) -> tuple[Path, FileIdentity]:
    """Write a file. Return it with its identity."""
    path.write_bytes(random.Random(n_bytes).randbytes(n_bytes))
    return path, FileIdentity.of(path)


def link(path: Path) -> None:
    os.link(path, path.with_name("link"))


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed"))


@pytest.mark.parametrize(
    "change", [link, rename, Path.unlink, lambda path: path.chmod(0o400), Path.touch]
)
def test_only_the_content_counts_while_a_file_is_open(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    path, identity = a_file(tmp_path / "file", 100_000)
    with OpenFiles([(path, identity)]) as files:
        change(path)
        if change is Path.touch:  # who writes the time of modification says that it was written
            with pytest.raises(FileChangedError):
                files.require_unchanged()
            return
        files.require_unchanged()
        ((_, first, now),) = files.states
        assert first == identity and now != identity and now.resembles(identity)


@pytest.mark.parametrize("n_bytes", [1, 70_000, 4 << 20])
def test_a_file_of_4_mib_is_compared_to_its_last_byte(n_bytes: int, tmp_path: Path) -> None:
    path, identity = a_file(tmp_path / "file", n_bytes)
    for place in {0, n_bytes // 2, n_bytes - 1}:
        with OpenFiles([(path, None)]) as files:
            data = path.read_bytes()
            for wrong in (True, False):
                with path.open("r+b") as file:
                    file.seek(place)
                    file.write(bytes([data[place] ^ wrong]))
                os.utime(path, ns=(identity.mtime_ns, identity.mtime_ns))
                if wrong:
                    with pytest.raises(FileChangedError):
                        files.require_unwritten()
                else:
                    files.require_unwritten()


def test_a_longer_file_is_compared_in_places(tmp_path: Path) -> None:
    path, identity = a_file(tmp_path / "file", 9_000_001)
    with OpenFiles([(path, identity)]) as files:
        for place in (0, 4_500_000, 9_000_000):
            with path.open("r+b") as file:
                file.seek(max(place - 150_000, 0))
                before = file.read(300_000)
                file.seek(max(place - 150_000, 0))
                file.write(bytes(len(before)))
            os.utime(path, ns=(identity.mtime_ns, identity.mtime_ns))
            with pytest.raises(FileChangedError):
                files.require_unwritten()
            with path.open("r+b") as file:
                file.seek(max(place - 150_000, 0))
                file.write(before)
            os.utime(path, ns=(identity.mtime_ns, identity.mtime_ns))
            files.require_unwritten()


def test_a_condemned_file_is_changed(tmp_path: Path) -> None:
    paths = [a_file(tmp_path / name)[0] for name in ("one", "other")]
    with OpenFiles([(path, None) for path in paths]) as files:
        files.require_unchanged()
        files.condemn(1)
        for _ in range(2):
            with pytest.raises(FileChangedError, match="other"):
                files.require_unwritten()


def test_who_reads_an_open_file_goes_on_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no pread(), as on Windows."""
    monkeypatch.delattr(os, "pread", raising=False)
    path, _ = a_file(tmp_path / "file")
    with OpenFiles([(path, None)]) as files:
        (descriptor,) = files.descriptors
        first = os.read(descriptor, 1000)
        os.link(path, tmp_path / "link")  # so that the content is compared
        files.require_unwritten()
        assert first + os.read(descriptor, 5000) == path.read_bytes()
