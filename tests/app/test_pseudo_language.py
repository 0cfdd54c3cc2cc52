"""No text of the window escapes the translation.

A pseudo language puts every translated text in brackets. The test collects all texts that widgets
show or give to a screen reader. Text outside the brackets must not need translation.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QTranslator
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QListView,
    QListWidget,
    QMenu,
    QPlainTextEdit,
    QTableView,
    QTextEdit,
    QWidget,
)
from window_samples import Model, Opener
from window_walk import CHAT, places

from app.text import language
from backend.methods.catalogue import METHODS

# Names and units are the same in every language.
PLAIN = re.compile(
    r"reading the dense weights|FAKE0: make-believe|make-believe \(FAKE0\)|test_no_text_escapes\d*|"
    r"curl|Python, OpenAI|Python, Anthropic|https://chat\.example|"  # examples of requests
    r"\b(Hm|echo|letters|notes\.txt|shot\.png|python)\b|"  # of window_walk
    r"npx -y @modelcontextprotocol/server-everything|(https|rpc):|<\xa0|"
    r"(Qwen|gpt-oss|Gemma|LFM|OLMoE|GLM)[^\n]*|"  # models of the curated list
    r"\b(Outrider|model|fake|good|GGUF|README|qwen3moe|llama\.cpp|stock|"
    r"Deutsch|English|MIT|Ctrl|Shift|"
    r"Alt|Enter|Esc|Tab|Del|F\d+|[A-Z]|GiB|MiB|KiB|GB/s|MB/s|token/s|ms|min|h|s|us|B|CPU|CUDA\d*|"
    r"Q\d\w*|auto|cpu|[A-Z]?\d[\w.]*|\d+[KMBT])\b|\w*/[\w./-]+|"
    + "|".join(re.escape(name) for name in sorted(METHODS, key=len, reverse=True))
)
WORD = re.compile(r"[^\W\d_]{2,}")


class Marks(QTranslator):
    """Puts every text in brackets, also Qt's own."""

    def isEmpty(self) -> bool:
        return False

    def translate(
        self, context: str, source: str, comment: str | None = None, n: int = -1
    ) -> str | None:
        return f"\u27e6{source}\u27e7" if source else source


@pytest.fixture
def marked(qapp: QApplication) -> Iterator[None]:
    language.apply(qapp, "en")
    translator = Marks(qapp)
    qapp.installTranslator(translator)
    yield
    qapp.removeTranslator(translator)
    translator.setParent(None)


def unmarked(text: str) -> str:
    """Return the text outside all brackets that needs translation, or ""."""
    before = None
    while before != text:  # innermost first
        before, text = text, re.sub(r"\u27e6[^\u27e6\u27e7]*\u27e7", " ", text)
    left = PLAIN.sub(" ", re.sub(r"<[^>]*>|&\w+;", " ", text))
    return left.strip() if WORD.search(left) else ""


def texts(widget: QWidget) -> Iterator[tuple[str, str]]:
    """Yield (description, text) for every text that a widget shows or gives to a screen reader."""
    for name in ("toolTip", "accessibleName", "accessibleDescription", "windowTitle",
                 "statusTip", "whatsThis", "placeholderText", "prefix", "suffix"):  # fmt: skip
        read = getattr(widget, name, None)
        if callable(read):
            yield name, str(read())
    is_written = isinstance(widget, QLineEdit | QPlainTextEdit | QTextEdit | QComboBox)
    if callable(getattr(widget, "text", None)) and not is_written:
        yield "text", str(widget.text())  # type: ignore[attr-defined]
    if callable(getattr(widget, "title", None)):
        yield "title", str(widget.title())  # type: ignore[attr-defined]
    if isinstance(widget, QComboBox):
        for i in range(widget.count()):
            yield "item", widget.itemText(i)
    # A QListWidget holds names: of components, of folders.
    if isinstance(widget, QTableView | QListView) and not isinstance(widget, QListWidget):
        if (model := widget.model()) is None:  # not shown yet
            return
        for column in range(model.columnCount() if isinstance(widget, QTableView) else 0):
            heading = model.headerData(column, widget.horizontalHeader().orientation())  # type: ignore[union-attr]
            yield "heading", str(heading or "")
        for row in range(min(model.rowCount(), 20)):
            for column in range(model.columnCount() if isinstance(widget, QTableView) else 1):
                yield "cell", str(model.index(row, column).data() or "")


def actions(widget: QWidget) -> Iterator[QAction]:
    for action in widget.actions():
        yield action
        menu = action.menu()
        if isinstance(menu, QMenu):
            yield from actions(menu)


def escaped(root: QWidget) -> set[str]:
    """Return the untranslated texts below a widget, each with its place."""
    found = set()
    for widget in (root, *root.findChildren(QWidget)):
        if type(widget).__name__ in ("TextBlock", "QCalendarView"):  # messages of a chat
            told = [item for item in texts(widget) if item[0] != "text"]
        else:
            told = list(texts(widget))
        told += [("action", action.text().partition("\t")[0]) for action in actions(widget)]
        for what, text in told:
            if left := unmarked(text):
                found.add(f"{type(widget).__name__}.{what}: {left!r} in {text!r}")
    return found


def test_no_text_escapes(
    marked: None, qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    window = open_window(model("model", chat=CHAT))
    found = set()
    for _, root in places(window, folder):
        found |= escaped(root)
    assert not found, "\n".join(sorted(found))


def test_the_test_finds_what_escapes(marked: None, qtbot: Any) -> None:
    label = QLabel("Plain words")
    qtbot.addWidget(label)
    assert escaped(label)
    label.setText(label.tr("Words of {n}").format(n="3.5 GiB") + " · 21.4 token/s")
    assert not escaped(label)
