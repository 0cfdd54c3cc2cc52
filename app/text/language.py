"""The language of the window: English in the source, others in app/text/translations.

Widgets use their own `tr`, other code `translate`. A text with a plural is `self.tr("%n model(s)",
"", n)` in a widget and `units.count` elsewhere. The files have Qt Linguist's format (.ts).
`make translations` updates them; they are read without being compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication, QLibraryInfo, QLocale, QTranslator

FOLDER = Path(__file__).with_name("translations")
SOURCE = "en"
CHOICES = {
    "system": str(QT_TRANSLATE_NOOP("language", "Language of the system")),
    "en": "English",
    "de": "Deutsch",
}
"""The choices in the settings: code, and the language's own name."""

_PLURAL_FORM: dict[str, Callable[[int], int]] = {
    "en": lambda n: 0 if n == 1 else 1,
    "de": lambda n: 0 if n == 1 else 1,
}
_marks: dict[int, str] = {}  # replacements of "." and "," in the present language

Texts = dict[tuple[str, str, str], str | tuple[str, ...]]
"""Translations by context, source text and the comment that distinguishes equal texts."""


def translate(context: str, text: str, comment: str = "") -> str:
    """Return a text in the window's language."""
    return QCoreApplication.translate(context, text, comment)


def title(code: str) -> str:
    """Return the title of a choice in the settings."""
    return translate("language", CHOICES[code])


def resolve(choice: str) -> str:
    """Return the language code of a choice; "system" depends on this machine."""
    if choice != "system":
        return choice
    for name in QLocale.system().uiLanguages():
        code = name.split("-")[0]
        if code in _PLURAL_FORM:
            return code
    return SOURCE


def number(text: str) -> str:
    """Convert numbers from English notation (1,204.5) to that of the window's language."""
    return text.translate(_marks)


def apply(app: QCoreApplication, choice: str) -> None:
    """Set the language of all widgets created from now on."""
    code = resolve(choice)
    for old in app.findChildren(QTranslator):
        app.removeTranslator(old)
        old.setParent(None)
    locale = _locale(code)
    QLocale.setDefault(locale)
    marks = locale.decimalPoint(), locale.groupSeparator()
    _marks.update(zip(map(ord, ".,"), marks, strict=True))
    qt = QTranslator(app)  # for the texts of Qt's own dialogs
    if qt.load(f"qtbase_{code}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        app.installTranslator(qt)
    texts = {} if code == SOURCE else read(FOLDER / f"{code}.ts")
    app.installTranslator(Translator(texts, _PLURAL_FORM[code], app))


def _locale(code: str) -> QLocale:
    """Return the locale of numbers and dates: the system's if it has this language."""
    system = QLocale.system()
    return system if system.name().split("_")[0] == code else QLocale(code)


class Translator(QTranslator):
    """Looks texts up in a table. A missing text stays English, with its plural resolved."""

    def __init__(self, texts: Texts, form: Callable[[int], int], parent: QCoreApplication) -> None:
        super().__init__(parent)
        self._texts = texts
        self._form = form

    def isEmpty(self) -> bool:  # noqa: D102
        return False

    def translate(  # noqa: D102
        self, context: str, source: str, comment: str | None = None, n: int = -1
    ) -> str | None:
        found = self._texts.get((context, source, comment or ""))
        if isinstance(found, tuple):
            return found[self._form(n)]
        return source.replace("(s)", "" if n == 1 else "s") if found is None and n >= 0 else found


def read(path: Path) -> Texts:
    """Read the finished texts of a .ts file."""
    texts: Texts = {}
    for context in ElementTree.parse(path).getroot().iter("context"):
        name = context.findtext("name", "")
        for message in context.iter("message"):
            translation = message.find("translation")
            if translation is None or translation.get("type"):
                continue  # unfinished or obsolete
            forms = tuple(form.text or "" for form in translation.iter("numerusform"))
            key = (name, message.findtext("source", ""), message.findtext("comment", ""))
            texts[key] = forms or translation.text or ""
    return texts
