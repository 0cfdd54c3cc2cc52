"""The plan of a download: its paths, its room, what is kept of it, and how it is read again."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.downloads.errors import DownloadError
from backend.downloads.job import INCOMPLETE, MARGIN_BYTES, Job
from backend.downloads.offers import RemoteFile

Usage = namedtuple("Usage", "total used free")
FIRST = RemoteFile("https://h/a.gguf", "a.gguf", 100, "ab" * 32, "")
SECOND = RemoteFile("https://h/b.gguf", "b.gguf", 50, "", "tag")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("owner/name", "Name", tmp_path / "models" / "owner" / "name", (FIRST, SECOND))


def put(path: Path, n_byte: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(n_byte))
    return path


def part(job: Job, file: RemoteFile, kind: str = "part") -> Path:
    """Return where a part lies. A later version of the program goes on with it."""
    known = file.sha256 or f"{file.url} {file.size_bytes} {file.tag}"
    key = hashlib.sha256(known.encode()).hexdigest()[:12]
    return job.folder / INCOMPLETE / f"{file.name}.{key}.{kind}"


def test_a_model_is_there_when_each_file_has_its_size(job: Job) -> None:
    assert job.size_bytes == 150 and job.target == job.folder / "a.gguf"
    assert job.paths == {job.folder / "a.gguf", job.folder / "b.gguf"}
    put(job.folder / "a.gguf", 100)
    assert not job.is_there
    for n_byte in (49, 50, 51):
        put(job.folder / "b.gguf", n_byte)
        assert job.is_there == (n_byte == 50)


def test_what_is_kept_is_counted_once(job: Job) -> None:
    """Of each file: the complete one, or the part, but never more than its size."""
    assert job.kept_bytes == 0
    put(part(job, FIRST), 30)
    assert job.kept_bytes == 30
    put(part(job, SECOND), 70)  # longer than the file: it is fetched again
    assert job.kept_bytes == 80
    put(part(job, FIRST, "done"), 100)
    assert job.kept_bytes == 150
    put(job.folder / "b.gguf", 50)
    job.forget()
    assert job.kept_bytes == 50


@pytest.mark.parametrize(
    "other",
    [
        replace(SECOND, url="https://h/other"),
        replace(SECOND, size_bytes=51),
        replace(SECOND, tag="tag 2"),
        replace(SECOND, sha256="cd" * 32),
    ],
)
def test_a_part_of_another_file_is_not_gone_on_with(job: Job, other: RemoteFile) -> None:
    put(part(job, SECOND), 30)
    assert replace(job, files=(SECOND,)).kept_bytes == 30
    assert replace(job, files=(other,)).kept_bytes == 0


def test_a_part_is_known_by_its_checksum_alone(job: Job) -> None:
    """The same file from another address goes on."""
    put(part(job, FIRST), 30)
    assert replace(job, files=(replace(FIRST, url="https://mirror/a"),)).kept_bytes == 30


def test_room_to_the_last_byte(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"bytes": 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free["bytes"]))
    put(part(job, FIRST), 30)
    for promised in (0, 1000):
        needed = 150 - 30 + promised + MARGIN_BYTES
        free["bytes"] = needed
        job.check_room(promised)
        free["bytes"] = needed - 1
        with pytest.raises(DownloadError):
            job.check_room(promised)


def test_room_is_asked_of_the_nearest_folder_that_exists(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def usage(place: Path) -> Usage:
        asked.append(place)
        if len(asked) > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return Usage(0, 0, 1 << 50)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    job.check_room()
    assert asked == [tmp_path]
    with pytest.raises(DownloadError):
        job.check_room()


def test_a_file_of_the_same_name_and_another_size_is_left_alone(job: Job) -> None:
    put(job.folder / "b.gguf", 50)
    job.check_room()
    put(job.folder / "b.gguf", 51)
    with pytest.raises(DownloadError, match=r"b\.gguf"):
        job.check_room()


def test_forgetting_leaves_what_belongs_to_others(job: Job) -> None:
    own = [put(part(job, FIRST), 3), put(part(job, SECOND, "done"), 50)]
    own += [put(path.with_name(path.name + ".lock"), 0) for path in own]
    other = put(job.folder / INCOMPLETE / "c.part", 1)
    job.forget()
    assert not any(path.exists() for path in own) and other.exists()
    other.unlink()
    put(part(job, SECOND), 3)
    part(job, FIRST).mkdir()  # cannot be deleted, as on Windows what somebody has open
    job.forget()
    assert not part(job, SECOND).exists()
    part(job, FIRST).rmdir()
    job.forget()
    assert not (job.folder / INCOMPLETE).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../a.gguf"}, {"url": "ftp://h/a"}, {"url": "file:///a"}, {"size_bytes": 0},
        {"size_bytes": -1}, {"size_bytes": True}, {"size_bytes": 1.0}, {"size_bytes": "1"},
        {"sha256": None}, {"tag": 3}, {"unknown": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_kept_job_with_a_strange_file_is_refused(job: Job, change: dict[str, Any]) -> None:
    data = job.to_json()
    assert Job.from_json(data) == job
    data["files"][1] |= change
    with pytest.raises((ValueError, KeyError, TypeError)):
        Job.from_json(data)


@pytest.mark.parametrize("change", [{"files": []}, {"name": 3}, {"source": None}, {"folder": 4}])
def test_a_kept_job_without_its_facts_is_refused(job: Job, change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Job.from_json(job.to_json() | change)


def test_a_size_of_one_byte_is_a_size(job: Job) -> None:
    one = replace(job, files=(replace(FIRST, size_bytes=1),))
    assert Job.from_json(one.to_json()).size_bytes == 1
