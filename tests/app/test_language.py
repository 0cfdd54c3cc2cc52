"""The language of the window."""

import ast
import itertools
import re
import shutil
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import PySide6
import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication

from app.panel.decisions import Decisions
from app.text import language, units
from app.text.messages import localized
from backend.gguf.header import ModelFileError
from backend.methods.auto import PassCost, Setting, Verdict, explain
from backend.protocol.messages import Decoder, encode
from backend.protocol.statistics import Statistics
from backend.protocol.worker_exit import describe_exit
from backend.text import Text, joined, text
from backend.text.english import ENGLISH

ROOT = Path(__file__).resolve().parents[2]
TRANSLATIONS = ROOT / "app" / "text" / "translations" / "de.ts"


@pytest.fixture
def spoken(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QApplication:
    """A German translation of three texts, one of them unfinished."""
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

        def uiLanguages(self) -> list[str]:
            return self.names

    monkeypatch.setattr(language.QLocale, "system", staticmethod(System))
    assert language.resolve("system") == "de"
    System.names = ["fr"]
    assert language.resolve("system") == "en"
    assert language.resolve("de") == "de"


def messages(path: Path) -> dict[tuple[str, str, str], list[str]]:
    """Return all translations of a .ts file. Unfinished ones are empty."""
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
    german, copy = language.FOLDER / "de.ts", tmp_path / "de.ts"
    shutil.copy(german, copy)
    sources = sorted(str(path) for path in (ROOT / "app").rglob("*.py"))
    sources += [str(ROOT / "backend" / "protocol" / "settings.py")]
    sources += [str(ROOT / "backend" / "text" / "english.py")]
    lupdate = shutil.which("lupdate", path=str(Path(PySide6.__file__).parent))
    assert lupdate is not None
    command = [lupdate, *sources, "-ts", str(copy), "-no-obsolete", "-locations", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tr() cannot" not in done.stderr
    kept = messages(german)
    wanted = messages(copy)
    assert sorted(wanted.keys() - kept.keys()) == []  # else `make translations`
    assert sorted(kept.keys() - wanted.keys()) == []  # no longer in the source
    for (_, source, _), forms in kept.items():
        assert all(forms), f"{source!r} is not translated"
        for form in forms:
            places = [sorted(re.findall(r"\{\w*(?::\w+)?\}|%n", text)) for text in (source, form)]
            assert places[0] == places[1], f"{source!r} and {form!r} have other places"
            ends = [text.rstrip()[-1:] in ".!?\u2026:" for text in (source, form)]
            assert ends[0] == ends[1], f"{source!r} and {form!r} end otherwise"
            is_joined = re.search(r"[a-zäöüß]\u2026$", form)  # the ellipsis stands for words
            assert not is_joined, f"{form!r} lacks a space before the ellipsis"


def calls_of_text(path: Path) -> Iterator[tuple[str, set[str | None]]]:
    """Yield (id, names of the values) of each text(...) in a source file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "backend.text"
        for alias in node.names
    }
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if "text" in imported and is_call and node.func.id == "text":  # type: ignore[attr-defined]
            [id] = node.args  # type: ignore[attr-defined]
            assert isinstance(id, ast.Constant), f"{path}: an id is not written out"
            yield str(id.value), {keyword.arg for keyword in node.keywords}  # type: ignore[attr-defined]


def test_every_message_has_an_id_and_its_values() -> None:
    used = set()
    for root in ("app", "backend"):
        for path in (ROOT / root).rglob("*.py"):
            for id, values in calls_of_text(path):
                used.add(id)
                fields = {name for _, name, _, _ in string.Formatter().parse(ENGLISH[id]) if name}
                assert values == fields, f"{path.name}: {id} has other values"
    assert ENGLISH.keys() == used  # each is used somewhere
    assert len(set(ENGLISH.values())) == len(ENGLISH)


def test_messages_of_the_engine_in_german(qapp: QApplication) -> None:
    language.apply(qapp, "de")
    assert localized(describe_exit(-9, "")).startswith(
        "Der Prozess der Engine endete unerwartet: er wurde beendet"
    )
    missing = text("model.part_missing", part=2, n=3)
    sent = str(ModelFileError(Path("x.gguf"), missing))
    [received] = Decoder().feed(encode({"type": "error", "message": sent}))
    assert localized(received["message"]) == (
        "x.gguf ist nicht verwendbar: Teil 2 von 3 des Modells fehlt."
    )
    room = text("download.no_room", folder="/x", needed=3 << 30, margin=1 << 30, free=900 << 20)
    assert localized(room).replace(units.SPACE, " ") == (
        "Auf dem Laufwerk von /x ist zu wenig Platz: 3,0 GiB werden gebraucht und 1,0 GiB als "
        "Reserve, und 900 MiB sind frei."
    )
    both = joined(text("memory.ram_none_asked"), "It rains.")
    assert localized(both) == "Das RAM behält wie gewünscht keine Experten für Geräte. It rains."
    assert localized("Plain words.") == "Plain words."


def test_decisions_are_in_the_language_of_the_window(qapp: QApplication) -> None:
    figures = text("auto.more_time", n=36, share=0.2)
    decided = text("auto.decided", chosen=text("auto.prefetch_stays_on"), figures=figures)
    decisions = Decisions()
    try:
        language.apply(qapp, "de")
        decisions.show_lines([decided])
        assert not re.search("Prefetching|token took", decisions.last.text())
        assert "36" in decisions.last.text() and "20\u00a0%" in decisions.last.text()
    finally:
        language.apply(qapp, "en")
        decisions.deleteLater()


def ids_of(sentence: str) -> set[str]:
    """Return the ids of a sentence and of those within it."""
    if not isinstance(sentence, Text):
        return set()
    parts = [v for v in sentence.values.values() for v in (v if isinstance(v, list) else [v])]
    return {sentence.id}.union(*(ids_of(part) for part in parts if isinstance(part, str)))


def test_decisions_of_the_adaptive_method_arrive_in_german(qapp: QApplication) -> None:
    cost = PassCost(
        n_token=36, wall_s=2.0, stall_s=1.0, link_busy_s=0.5, link_idle_s=1.5, hits=100, misses=20,
        prefetches_useful=3, prefetches_wasted=2,
    )  # fmt: skip
    settings = [Setting(*values) for values in itertools.product((False, True), (1, 2), ("a", "b"))]
    verdicts = [
        Verdict(better, change, True, n, cost, cost)
        for better, change, n in ((True, 0.18, 36), (False, -0.18, 36), (False, 0.0, 0))
    ]
    lines = [
        explain(*pair, verdict)
        for pair in itertools.permutations(settings, 2)
        for verdict in verdicts
    ]
    lines += [text("auto.again", why=text("auto.idle_changed", before=0.1, after=0.9))]
    sent = {"type": "stats", "stats": Statistics(decisions=lines).to_json()}
    (message,) = Decoder().feed(encode(sent))
    arrived = Statistics.from_json(message["stats"]).decisions
    assert arrived == lines and all(isinstance(line, Text) for line in arrived)
    seen = set().union(*map(ids_of, arrived))
    assert len([id for id in seen if id.startswith("auto.")]) > 15
    language.apply(qapp, "de")
    try:
        for line in dict.fromkeys(arrived):
            said = localized(line)
            for id in ids_of(line) - {"auto.comma", "auto.decided"}:
                words = max(re.split(r"\{[^}]*\}", ENGLISH[id]), key=len).strip()
                assert words not in said, said
    finally:
        language.apply(qapp, "en")
