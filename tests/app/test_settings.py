"""Settings are kept; a broken file loses only its own settings."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from window_samples import CACHE, MODEL

from app.controls.strip import ControlsStrip, InForce
from app.settings import settings
from app.settings.settings import Settings
from app.state.engine_choice import EngineChoice
from app.widgets.fields import DropDown, Number
from backend.cli.common import Parser, add_engine_options, engine_config
from backend.protocol.errors import RequestError
from backend.protocol.settings import setting
from backend.protocol.status import CacheFacts


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


def test_an_older_choice_belongs_to_the_model_that_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    manual = {"automatic": False, "context_length": 1024, "kv_type": "q8_0", "device": "cpu"}
    path.write_text(json.dumps({**manual, "last_model": "/m.gguf"}))
    loaded, sentence = settings.load(path)
    assert sentence is None and loaded.engine == EngineChoice(device="cpu")
    chosen = EngineChoice(automatic=False, context_length=1024, kv_type="q8_0")
    assert loaded.models == {"/m.gguf": chosen.of_model()}
    assert settings.save(loaded, path) is None
    assert settings.load(path) == (loaded, None)


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


@dataclass(frozen=True)
class More(EngineChoice):
    """Settings with one more of each kind for which the window makes a control."""

    flavour: str = setting(
        "plain", "choice", choices=("plain", "sweet"),
        option="--flavour", help="the taste", title="Flavour", words=("as it is", "sugared"),
        tooltip="How it tastes.", rebuilds="cache",
    )  # fmt: skip
    n_spoon: int = setting(
        0, "count", lowest=0, highest=9,
        option="--spoons", metavar="N", title="Spoons", words=("none",),
    )  # fmt: skip
    stirred: bool = setting(
        False, "switch", option="--stirred", title="Stirred", words=("no", "yes")
    )


@dataclass(frozen=True)
class MoreFacts(CacheFacts):
    """Facts with one of these settings in force."""

    flavour: str = "plain"


def test_a_setting_that_is_defined_once_is_everywhere(
    qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("app.settings.settings.EngineChoice", "app.controls.strip.EngineChoice"):
        monkeypatch.setattr(name, More)
    monkeypatch.setattr("backend.cli.common.EngineConfig", More)

    parser = Parser()
    add_engine_options(parser)
    args = parser.parse_args(["--flavour", "sweet", "--spoons", "3", "--stirred"])
    asked = engine_config(args, automatic=False)
    assert isinstance(asked, More)
    assert (asked.flavour, asked.n_spoon, asked.stirred) == ("sweet", 3, True)

    assert More.from_message(asked.to_message()) == asked
    for bad in ({"flavour": "sour"}, {"flavour": 1}, {"n_spoon": 10}, {"stirred": "yes"}):
        with pytest.raises(RequestError, match="flavour|spoon|stirred"):
            More.from_message({**asked.to_message(), **bad})

    path = tmp_path / "settings.json"
    assert settings.save(Settings(engine=asked), path) is None
    assert json.loads(path.read_text())["flavour"] == "sweet"
    assert settings.load(path) == (Settings(engine=asked), None)
    path.write_text(json.dumps({"method": "lru"}))
    assert settings.load(path)[0].engine == More(method="lru")

    same = {"method": asked.method, "hybrid": "off"}
    assert asked.parts("cache") == {**same, "flavour": "sweet"}
    facts = {name: value for name, value in vars(CACHE).items() if name != "kv_type"}
    in_force = MoreFacts.of(replace(asked, flavour="plain", kv_type="q4_0"), **facts)
    assert (in_force.flavour, in_force.kv_type) == ("plain", "q4_0")

    strip = ControlsStrip()
    qtbot.addWidget(strip)
    strip.show_choice(asked, InForce(MODEL, in_force))
    flavour, spoons, stirred = map(strip.controls.get, ("flavour", "n_spoon", "stirred"))
    assert isinstance(flavour, DropDown) and isinstance(spoons, Number)
    assert isinstance(stirred, DropDown)
    assert flavour.accessibleName() == "Flavour" and flavour.toolTip() == "How it tastes."
    assert [flavour.currentText(), spoons.text(), stirred.currentText()] == ["sugared", "3", "yes"]
    assert strip.force["flavour"].text() == "in force: as it is"
    assert strip.force["n_spoon"].text().strip() == ""
    chosen: list[More] = []
    strip.chosen.connect(chosen.append)
    for field in (flavour, stirred):
        field.setCurrentIndex(0)
    spoons.setValue(0)
    assert spoons.text() == "none"
    spoons.editingFinished.emit()
    assert chosen == [replace(asked, flavour="plain", n_spoon=0, stirred=False)]
