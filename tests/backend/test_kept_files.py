"""Small files that are kept between runs: no content stops their readers."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.settings import settings
from app.settings.settings import Settings
from app.state.preset import Preset
from backend.downloads.manager import Downloads
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import read_model
from backend.learning import consent
from backend.learning.recordings import Recordings
from backend.library.facts import FactsCache
from backend.library.history import History
from backend.library.machine import kept_machine
from backend.machines import drive, kept, threads
from backend.memory import headroom
from backend.memory.devices import Device
from backend.system import kept_file

DEEP = "[" * 100_000
HUGE = "1" + "0" * 400
TEXTS = [
    "", "{", "[]", "null", "3", '"text"', DEEP, f"[{HUGE}]", "[NaN]",
    '{"format": 1}', "\udcff\udcfe",
]  # fmt: skip
VALUES = [
    "null", "true", "-1", "1e999", "-" + HUGE, HUGE, str(2**70), "NaN", '""', '"%s"' % ("x" * 300),
    '"\\ud800"', '"a\\u0000b"', "[]", "[[]]", "[null]", "{}", '{"x": {}}', DEEP,
]  # fmt: skip


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def hostile(sound: dict[str, Any]) -> list[str]:
    """Return texts that are no such file, and the sound file with each value replaced in turn."""
    return TEXTS + [
        json.dumps({**sound, name: "HERE"}).replace('"HERE"', value)
        for name in sound
        for value in VALUES
    ]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a data folder of the test's own."""
    folder = tmp_path / "data"
    for module in (kept, consent):
        monkeypatch.setattr(module, "data_folder", lambda: folder)
    return folder


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for text in hostile(asdict(Settings())):
        write(path, text)
        loaded, sentence = settings.load(path)
        assert sentence is None or "settings.broken-" in sentence
        assert sentence is None or loaded == Settings()
        assert abs(loaded.open_chat) < 1 << 63
        assert settings.save(loaded, path) is None
        for broken in tmp_path.glob("settings.broken-*"):
            broken.unlink()


def test_lists_of_folders_and_downloads(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    sound = {"format": 1, "folders": [], "used": {}, "measured": {}}
    inner = {"n_slot": 1, "tokens_per_s": 1.0, "at_s": 1.0}
    measured = [json.dumps(sound)[:-2] + f'{{"m": {text}}}}}' for text in hostile(inner)]
    used = [json.dumps({**sound, "used": {"m": "HERE"}}).replace('"HERE"', v) for v in VALUES]
    for text in (*hostile(sound), *measured, *used):
        history = History(write(path, text))
        assert history.trouble == "" or "list.broken-" in history.trouble
        for broken in tmp_path.glob("list.broken-*"):
            broken.unlink()
    for text in hostile({"format": 1, "folder": "", "downloads": []}):
        downloads = Downloads(write(path, text), tmp_path)
        assert downloads.trouble == "" or "list.broken-" in downloads.trouble
        for broken in tmp_path.glob("list.broken-*"):
            broken.unlink()


def test_presets() -> None:
    for text in hostile({"system": "", "sampling": {}}):
        Preset.from_text(text)
    for value in VALUES:
        Preset.from_text(f'{{"sampling": {{"temperature": {value}}}}}')
        Preset.from_text(f'{{"sampling": {{"seed": {value}}}}}')


def test_what_was_measured(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = write(tmp_path / "model.gguf", "small")
    drive_of: Callable[[], drive.Drive] = lambda: drive.drive_of(small, ring=False)  # noqa: E731
    monkeypatch.setattr(drive, "LEAST_FILE_BYTES", 0)
    monkeypatch.setattr(drive, "is_busy", lambda: False)
    monkeypatch.setattr(drive, "measure", lambda *_, **__: {(4096, 1): 1.0})
    assert drive_of().read_bytes == 4096
    (key,) = json.loads((data / "drives.json").read_text())
    monkeypatch.setattr(threads, "physical_cores", lambda: 2)
    for text in (*hostile({"2": 1}), *[f'{{"{key}": {t}}}' for t in hostile(asdict(drive_of()))]):
        write(data / "drives.json", text)
        assert 1 <= drive_of().n_read <= 64
        write(data / "threads.json", text)
        assert 1 <= threads.compute_threads(small, drive.Drive(), ring=False) <= 2
        assert kept_machine(write(tmp_path / "machine.json", text)) is None


def test_consent_and_learning(tmp_path: Path, data: Path, tiny: Path) -> None:
    recordings = Recordings(read_model(tiny), data / "recordings")
    consent.allow(data / "recordings", True)
    (data / "recordings" / read_model(tiny).fingerprint[:32]).mkdir()
    recordings.note_training(7, "done")
    assert (recordings.trained_to, recordings.result) == (7, "done")
    (state,) = (data / "recordings").glob("*/state.json")
    for text in hostile({"record": True, "trained_to": 7, "result": "done"}):
        write(state, text)
        assert recordings.trained_to >= 0 and isinstance(recordings.result, str)
        write(data / "recordings" / "consent.json", text)
        assert consent.allowed(data / "recordings") in (True, False)


def test_headroom_and_facts(tmp_path: Path, data: Path, tiny: Path) -> None:
    asked = Device("A", "b", 0, 1, False, False, False, 1)
    headroom.note_taken(asked, 1 << 30)
    (key,) = json.loads((data / "devices.json").read_text())
    for text in hostile({key: 1}):
        write(data / "devices.json", text)
        assert 0 <= headroom.taken_bytes(asked) <= 1 << 50
    for text in hostile({"format": 1, "files": {}}):
        write(tmp_path / "facts.json", text)
        cache = FactsCache(tmp_path / "facts.json", 512)
        assert not isinstance(cache.facts([tiny], [FileIdentity.of(tiny).stamp]), str)


def test_what_is_kept_is_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        kept_file.write_json(tmp_path / "a" / "b" / "file.json", {})
    finally:
        os.umask(before)
    for path, mode in (("a", 0o700), ("a/b", 0o700), ("a/b/file.json", 0o600)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode


def test_the_limits_of_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    most = 16 << 20
    path.write_bytes(b'"' + b"x" * (most - 2) + b'"')
    assert len(kept_file.read_json(path, str)) == most - 2
    path.write_bytes(b'"' + b"x" * (most - 1) + b'"')
    with pytest.raises(ValueError, match="too large"):
        kept_file.read_json(path, str)
    for number in (-(2**63), 2**63 - 1):
        assert kept_file.parse_json(str(number)) == number
    for number in (-(2**63) - 1, 2**63):
        with pytest.raises(ValueError, match="more than 64 bits"):
            kept_file.parse_json(str(number))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    kept_file.write_json(path, 1)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError):
        kept_file.write_json(path, 2)
    assert [found.name for found in tmp_path.iterdir()] == ["x.json"]
    assert kept_file.read_json(path, int) == 1


def test_damaged_files_are_numbered_from_one(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "x.json").write_text(str(number))
        aside = kept_file.set_aside(tmp_path / "x.json")
        assert aside == tmp_path / f"x.broken-{number}.json"
        assert aside.read_text() == str(number)


@pytest.mark.skipif(os.name == "nt", reason="folders are private by inheritance")
def test_what_others_could_read_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for place in (folder / "one", folder / "models"):
        place.mkdir(parents=True)
        (place / "file").touch()
        (place / "file").chmod(0o644)
    kept_file.make_file(folder / "one" / "file")
    assert stat.S_IMODE((folder / "one" / "file").stat().st_mode) == 0o600
    (folder / "one" / "file").chmod(0o644)
    folder.chmod(0o755)
    kept_file.keep_private(folder, but=folder / "models")
    modes = {
        name: stat.S_IMODE((folder / name).stat().st_mode)
        for name in (".", "one/file", "models/file")
    }
    assert modes == {".": 0o700, "one/file": 0o600, "models/file": 0o644}


@pytest.mark.skipif(os.name == "nt", reason="fcntl is of POSIX")
@pytest.mark.parametrize("knows_it", [True, False])
def test_macos_is_asked_to_empty_the_drives_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_it: bool
) -> None:
    import fcntl

    asked: list[object] = []

    def control(_descriptor: int, command: int) -> int:
        asked.append(command)
        if not knows_it:
            raise OSError(errno.ENOTSUP, "Not supported")
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda _: asked.append("fsync"))
    kept_file.write_whole(tmp_path / "a", b"x", durable=True)
    assert asked == ([51, 51] if knows_it else [51, "fsync", 51, "fsync"])
