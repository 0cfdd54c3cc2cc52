"""The whole window in German with large text: names, roles and keys, and no text is cut."""

import json
from pathlib import Path

from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QSplitter,
    QStackedWidget,
    QTableView,
    QWidget,
)
from test_accessible import described, interactive, is_reached, is_told
from window_samples import Model, Opener
from window_walk import CHAT, places

from app.text import language
from app.widgets.elided_label import ElidedLabel

TEXT_PERCENT = 130
BESIDE = 30  # pixels of a field beside its text


def cut(root: QWidget) -> set[str]:
    """Return the texts below a widget that have too little room."""
    found = set()
    for widget in root.findChildren(QWidget):
        room, height, texts = widget.width() + 1, widget.height() + 1, []
        if not widget.isVisible():
            continue
        if not isinstance(widget.parent(), QStackedWidget | QSplitter) and sticks_out(widget):
            found.add(f"{widget} sticks out of {widget.parent()}")
        if isinstance(widget, ElidedLabel):  # it says what it has cut
            continue
        width = widget.fontMetrics().horizontalAdvance
        if isinstance(widget, QLabel | QAbstractButton) and (text := widget.text()):
            needs = widget.sizeHint()
            if isinstance(widget, QLabel) and widget.wordWrap():
                is_cut = widget.heightForWidth(widget.width()) > height
            else:
                is_cut = (needs.width() > room or needs.height() > height) and (
                    text not in widget.toolTip()
                )
            texts = [text] if is_cut else []
        elif isinstance(widget, QComboBox) and width(widget.currentText()) + BESIDE > room:
            texts = [widget.currentText()]
        elif isinstance(widget, QLineEdit):
            text = widget.text() or widget.placeholderText()
            texts = [text] if width(text) + 8 > room else []
        elif isinstance(widget, QTableView):
            texts = cut_cells(widget)
        found |= {f"{type(widget).__name__} {text!r} {widget.size()}" for text in texts}
    return found


def sticks_out(widget: QWidget) -> bool:
    """Return whether a part of a widget is outside the one around it, which does not scroll."""
    around = widget.parentWidget()
    is_scrolled = isinstance(around.parent(), QAbstractScrollArea)
    return not is_scrolled and not around.rect().adjusted(-1, -1, 1, 1).contains(widget.geometry())


def cut_cells(table: QTableView) -> list[str]:
    """Return the headings and cells that have too little room; a name may be cut, the rest not."""
    header, rows = table.horizontalHeader(), table.model()
    return [
        str(rows.headerData(column, header.orientation()))
        for column in range(1, rows.columnCount())
        if not header.isSectionHidden(column)
        and header.sectionSize(column)
        < max(header.sectionSizeHint(column), table.sizeHintForColumn(column))
    ]


def test_nothing_is_cut_or_without_a_name(
    qapp: QApplication, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    language.apply(qapp, "de")
    settings = {"text_percent": TEXT_PERCENT, "automatic": False, "models": {}}
    (tmp_path / "settings.json").write_text(json.dumps(settings), "utf-8")
    folder = tmp_path / "files"
    folder.mkdir()
    window = open_window(model(chat=CHAT))
    window.resize(1280, 800)
    found = []
    for name, root in places(window, folder):
        for _ in range(3):  # a layout may ask for another one
            qapp.processEvents()
        found += [(name, one) for one in cut(root)]
        for label in root.findChildren(QLabel):  # a name would be read in place of its text
            if label.text() and label.accessibleName() not in ("", label.text()):
                found.append((name, f"{label.text()!r} is read as {label.accessibleName()!r}"))
        for widget in interactive(root):
            if not is_told(widget) or not is_reached(widget):
                found.append((name, f"{widget}: {described(widget)}"))
    assert not found, "\n".join(map(str, found))
