"""The language of the window."""

from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication

from app import language, units


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
