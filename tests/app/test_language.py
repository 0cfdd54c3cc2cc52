"""The language of the window."""

import ast
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import PySide6
import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication

from app.text import language, sentences, units
from backend.protocol.worker_exit import describe_exit

ROOT = Path(__file__).resolve().parents[2]
TRANSLATIONS = ROOT / "app" / "text" / "translations" / "de.ts"


@pytest.fixture
def spoken(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QApplication:
    """Speaks a German of three texts, of which one is not finished."""
    (tmp_path / "de.ts").write_text(
        """<?xml version="1.0" encoding="utf-8"?>
        <!DOCTYPE TS>
        <TS version="2.1" language="de" sourcelanguage="en"><context><name>_Nouns</name>
        <message numerus="yes"><source>{n} model(s)</source><translation>
          <numerusform>{n} Modell</numerusform><numerusform>{n} Modelle</numerusform>
        </translation></message>
        <message numerus="yes"><source>{n} day(s)</source><translation type="unfinished">
          <numerusform></numerusform><numerusform></numerusform></translation></message>
        <message><source>Load</source><comment>verb</comment><translation>Laden</translation>
        </message></context></TS>""",
        encoding="utf-8",
    )
    monkeypatch.setattr(language, "FOLDER", tmp_path)
    language.apply(qapp, "de")
    return qapp


def test_texts_plurals_and_hints(spoken: QApplication) -> None:
    assert language.translate("_Nouns", "Load", "verb") == "Laden"
    assert language.translate("_Nouns", "Load") == "Load"
    assert [units.count(n, "model").replace(units.SPACE, " ") for n in (0, 1, 1204)] == [
        "0 Modelle", "1 Modell", "1.204 Modelle",
    ]  # fmt: skip
    assert units.count(2, "day").replace(units.SPACE, " ") == "2 days"
    assert units.size(3.25 * 2**30) == f"3,2{units.SPACE}GiB"
    assert QCoreApplication.translate("QPlatformTheme", "Cancel") == "Abbrechen"


def test_another_language_replaces_the_first(spoken: QApplication) -> None:
    language.apply(spoken, "en")
    assert language.translate("_Nouns", "Load", "verb") == "Load"
    assert units.count(1, "model") == f"1{units.SPACE}model"
    assert units.decimal(1234.5, 1) == "1,234.5"
    assert QCoreApplication.translate("QPlatformTheme", "Cancel") == "Cancel"


def test_what_the_system_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    class System:
        names = ["fr-FR", "de-AT"]

        def uiLanguages(self) -> list[str]:  # noqa: N802
            return self.names

    monkeypatch.setattr(language.QLocale, "system", staticmethod(System))
    assert language.resolve("system") == "de"
    System.names = ["fr"]
    assert language.resolve("system") == "en"
    assert language.resolve("de") == "de"


def messages(path: Path) -> dict[tuple[str, str, str], list[str]]:
    """Return all translations of a .ts file; those that are not finished are empty."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for context in ElementTree.parse(path).getroot().iter("context"):
        for message in context.iter("message"):
            names = ("source", "comment")
            key = (context.findtext("name", ""), *(message.findtext(name, "") for name in names))
            translation = message.find("translation")
            assert translation is not None
            forms = [form.text or "" for form in translation.iter("numerusform")]
            found[key] = forms or [translation.text or ""]  # type: ignore[index]
            if translation.get("type"):
                found[key] = [""]  # type: ignore[index]
    return found


def test_the_german_file_is_complete_and_up_to_date(tmp_path: Path) -> None:
    copy = tmp_path / "de.ts"
    shutil.copy(TRANSLATIONS, copy)
    sources = sorted(str(path) for path in (ROOT / "app").rglob("*.py"))
    sources.append(str(ROOT / "backend" / "protocol" / "settings.py"))
    lupdate = shutil.which("lupdate", path=str(Path(PySide6.__file__).parent))
    assert lupdate is not None
    command = [lupdate, *sources, "-ts", str(copy), "-no-obsolete", "-locations", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tr() cannot" not in done.stderr
    kept = messages(TRANSLATIONS)
    wanted = messages(copy)
    assert sorted(wanted.keys() - kept.keys()) == []  # `make translations`, then translate
    assert sorted(kept.keys() - wanted.keys()) == []  # no longer in the source
    for (_, source, _), forms in kept.items():
        assert all(forms), f"{source!r} is not translated"
        for form in forms:
            places = [sorted(re.findall(r"\{\w*\}|%n", text)) for text in (source, form)]
            assert places[0] == places[1], f"{source!r} and {form!r} have other places"
            ends = [text.rstrip()[-1:] in ".!?\u2026:" for text in (source, form)]
            assert ends[0] == ends[1], f"{source!r} and {form!r} end otherwise"


def test_the_forms_of_sentences_are_those_that_are_said() -> None:
    """What stands between the places of a template is said somewhere outside the widgets."""
    paths = [*(ROOT / "backend").rglob("*.py"), *(ROOT / "app" / "store").rglob("*.py")]
    paths += [
        ROOT / "app" / "settings" / "settings.py",
        ROOT / "app" / "window" / "second_start.py",
        ROOT / "app" / "pages" / "licences.py",
    ]
    told = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                told.append(node.value)
    native = (ROOT / "backend" / "native" / "live").rglob("*.cc")
    told += [path.read_text(encoding="utf-8") for path in native]
    everything = "\0".join(told)
    composed = {"of the model is missing", "it may not be read"}  # of two halves there
    composed |= {
        f"{used} and the old file is" for used in ("an empty one is used", "the defaults are used")
    }
    for template in map(str, sentences.TEMPLATES):
        for piece in re.split(r"\{\w+\}|: |; | \(|(?<=unexpectedly) ", template):
            piece = piece.strip(" .:;,()'")
            known = piece in everything or piece in composed or len(piece) < 4
            assert known, f"nothing says {piece!r}"


def test_sentences_of_the_engine_in_german(qapp: QApplication) -> None:
    language.apply(qapp, "de")
    killed = sentences.said(describe_exit(-9, ""))
    assert killed.startswith("Der Prozess der Engine endete unerwartet: er wurde beendet")
    assert sentences.said("x.gguf cannot be used: part 2 of 3 of the model is missing.") == (
        "x.gguf ist nicht verwendbar: Teil 2 von 3 des Modells fehlt."
    )
    refused = (
        "The slots of blk.0.ffn_up_exps.weight need 6200 MB in one piece, more than Vulkan0 "
        "allows; a lower cache rate needs less."
    )
    assert sentences.said(refused) == (
        "Die Plätze von blk.0.ffn_up_exps.weight brauchen 6200 MB in einem Stück, mehr als Vulkan0 "
        "erlaubt; ein kleinerer Cache-Anteil braucht weniger."
    )
    assert sentences.said("x.gguf: No model is loaded.") == "x.gguf: Kein Modell ist geladen."
    three = "All 8 layers are computed by D. RAM keeps no experts for devices, as asked. It rains."
    assert "keine Experten für Geräte. It rains." in sentences.said(three)
    two = "The settings file was damaged; the defaults are used. The disk sings."
    assert sentences.said(two).endswith("es gelten die Vorgaben. The disk sings.")
