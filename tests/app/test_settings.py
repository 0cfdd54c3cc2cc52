"""Settings survive, and a broken file costs nothing but the settings in it."""

import json
import os
from pathlib import Path

import pytest

from app.settings import settings
from app.settings.settings import Settings
from app.state.engine_choice import EngineChoice


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "settings.json"
    saved = Settings(recent=["/a/модель.gguf"], theme="dark", show_panel=False)
    saved.engine = EngineChoice(cache_rate=0.4, host_bytes=7, pack=False)
    assert settings.save(saved, path) is None
    assert settings.load(path) == (saved, None)


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    assert settings.load(tmp_path / "settings.json") == (Settings(), None)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"recent": "x"}', b'{"recent": [1]}', b"[" * 100_000,
        b'{"cache_rate": 7}', b'{"cache_rate": NaN}', b'{"cache_rate": true}', b'{"theme": "pink"}',
        b'{"width": "wide"}',
    ],
)  # fmt: skip
def test_a_broken_file_is_kept_and_defaults_are_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    loaded, sentence = settings.load(path)
    assert loaded == Settings()
    assert sentence is not None and "settings.broken-1.json" in sentence
    assert (tmp_path / "settings.broken-1.json").read_bytes() == content
    path.write_bytes(content)
    settings.load(path)
    assert (tmp_path / "settings.broken-2.json").read_bytes() == content


def test_newer_and_older_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"cache_rate": 1, "from_the_future": {}}))
    loaded, sentence = settings.load(path)
    assert (loaded, sentence) == (Settings(engine=EngineChoice(cache_rate=1.0)), None)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    sentence = settings.save(Settings(), in_the_way / "settings.json")
    assert sentence is not None and sentence.startswith("The settings file could not be saved")


def test_recent_models_are_few_and_newest_first() -> None:
    remembered = Settings()
    for number in (*range(20), 15):
        remembered.remember(Path(f"/{number}.gguf"))
    names = [os.path.basename(item) for item in remembered.recent]
    assert names[:3] == ["15.gguf", "19.gguf", "18.gguf"]
    assert len(names) == settings.N_RECENT
