"""Drop-down lists, number fields and search fields in the window's style."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QValidator,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QStyle,
    QStyleOptionButton,
    QToolTip,
    QWidget,
)

from app.text import units
from app.text.language import translate
from app.widgets import icons, theme
from app.widgets.icon_button import IconButton

FIELD_HEIGHT = 32  # pixels, as the style sheet sets it
PARAGRAPH_CHARS = 10_000
"""Longest paragraph of a field: the time of a key grows with its square (20 ms here)."""
_BREAK = "\u2060"  # before a line break of in_paragraphs; no text has this sign there
SEARCH_CHARS = 500  # of what is searched for
_BESIDE_TEXT = 30  # pixels: padding and border of the style sheet, and Qt's margin


class DropDown(QComboBox):
    """A QComboBox with the window's chevron. The wheel scrolls the page, not the choice.

    Signals:
        list_closed: the list of choices was closed.
    """

    list_closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        super().paintEvent(event)
        painter = QPainter(self)
        place = QRectF(self.width() - 24, self.height() / 2 - 6, 13, 13)
        icons.paint(
            painter, "chevron", place, theme.colour("muted" if self.isEnabled() else "faint")
        )
        painter.end()

    def hidePopup(self) -> None:  # noqa: D102
        super().hidePopup()
        self.list_closed.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: D102
        event.ignore()


class Tick(QCheckBox):
    """A QCheckBox with a tick, which the style sheet alone would leave out."""

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        super().paintEvent(event)
        if not self.isChecked():
            return
        option = QStyleOptionButton()
        self.initStyleOption(option)
        element = QStyle.SubElement.SE_CheckBoxIndicator
        place = QRectF(self.style().subElementRect(element, option, self))
        painter = QPainter(self)
        name = "on_accent" if self.isEnabled() else "muted"
        icons.paint(painter, "tick", place.adjusted(1, 1, -1, -1), theme.colour(name))
        painter.end()


class WholeLine(QLineEdit):
    """A text to copy, in a field that is as wide as it."""

    def __init__(self) -> None:
        super().__init__()
        self.setReadOnly(True)
        self.textChanged.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:  # noqa: D102
        width = self.fontMetrics().horizontalAdvance(self.text()) + _BESIDE_TEXT
        return QSize(width, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:  # noqa: D102
        return self.sizeHint()


def caption(words: str, field: QWidget) -> QLabel:
    """Return the words beside a field, aligned with it."""
    made = QLabel(words)
    made.setBuddy(field)
    made.setMinimumHeight(FIELD_HEIGHT)
    return made


def takes_escape(event: QEvent) -> bool:
    """Take Escape for a field with the focus; the window's Escape would stop the answer."""
    is_escape = isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape
    if event.type() != QEvent.Type.ShortcutOverride or not is_escape:
        return False
    event.accept()
    return True


def in_paragraphs(text: str) -> str:
    """Break paragraphs that are too long for a field, at a space where there is one.

    `whole_paragraphs` takes the breaks out again.
    """
    lines = []
    most = PARAGRAPH_CHARS - len(_BREAK)
    for line in text.split("\n"):
        while len(line) > PARAGRAPH_CHARS:
            cut = line.rfind(" ", 1, most) + 1 or most
            lines.append(line[:cut] + _BREAK)
            line = line[cut:]
        lines.append(line)
    return "\n".join(lines)


def whole_paragraphs(text: str) -> str:
    """Join the paragraphs that `in_paragraphs` has broken."""
    return text.replace(f"{_BREAK}\n", "")


def say_full(field: QWidget) -> None:
    """Say at a field that it has no room for more."""
    words = translate("fields", "There is no room for that here: at most {n} characters in a line.")
    place = field.mapToGlobal(QPoint(0, 0))
    QToolTip.showText(place, words.format(n=units.number(PARAGRAPH_CHARS)), field)


def _with_composition(text: str, place: int, composition: str) -> str:
    """Return a text with what is under composition at a place, which Qt counts in UTF-16."""
    if not composition:
        return text
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * place]
    before = units.decode("utf-16-le", "replace")
    return before + composition + text[len(before) :]


class TextField(QPlainTextEdit):
    """A field of several lines with a limit, so that no key takes long.

    Signals:
        refused: (str) a pasted text that the field has no room for; "": a typed one.
        composed: the text under composition changed.
    """

    refused = Signal(str)
    composed = Signal()

    def __init__(self, n_char_max: int = PARAGRAPH_CHARS) -> None:
        super().__init__()
        self._n_char_max = n_char_max
        self._composition = ""  # of an input method, at the cursor
        self.setTabChangesFocus(True)

    @property
    def whole_text(self) -> str:
        """Return the text with what is under composition."""
        place = self.textCursor().position()
        return _with_composition(self.toPlainText(), place, self._composition)

    def end_composition(self) -> None:
        """Make what is under composition a part of the text."""
        if self._composition:
            QGuiApplication.inputMethod().commit()
        if self._composition:  # the input method did not take part
            event = QInputMethodEvent()
            event.setCommitString(self._composition)
            self.inputMethodEvent(event)
            QGuiApplication.inputMethod().reset()

    def setPlainText(self, text: str) -> None:  # noqa: D102
        self._composition = ""
        super().setPlainText(text)

    def clear(self) -> None:  # noqa: D102
        self._composition = ""
        super().clear()

    def holds(self, text: str, beside: int = 0, in_line: int = 0) -> bool:
        """Return whether a text has room beside other characters, and those in its line."""
        longest = max(map(len, text.split("\n")))
        return beside + len(text) <= self._n_char_max and in_line + longest <= PARAGRAPH_CHARS

    def _has_room(self, text: str) -> bool:
        """Return whether a text has room at the cursor, in place of what is selected."""
        cursor = self.textCursor()
        n_selected = abs(cursor.position() - cursor.anchor())
        beside = self.document().characterCount() - 1 - n_selected
        in_line = 0 if n_selected else cursor.block().length() - 1
        return self.holds(text, beside, in_line)

    def insertFromMimeData(self, source: QMimeData) -> None:  # noqa: D102
        text = source.text()
        if text and not self._has_room(text):
            self.refused.emit(text)
        else:
            super().insertFromMimeData(source)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102
        if event.text().isprintable() and event.text() and not self._has_room(event.text()):
            self.refused.emit("")
        else:
            super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:  # noqa: D102
        text = event.commitString()
        if text and not self._has_room(text):
            event.setCommitString("")
            self.refused.emit("")
        self._composition = event.preeditString()
        super().inputMethodEvent(event)
        self.composed.emit()


class LineField(QLineEdit):
    """A field of one line that knows what is under composition.

    Signals:
        composed: the text or the text under composition changed.
    """

    composed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._composition = ""
        self.textChanged.connect(self.composed)

    @property
    def whole_text(self) -> str:
        """Return the text with what is under composition."""
        return _with_composition(self.text(), self.cursorPosition(), self._composition)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:  # noqa: D102
        self._composition = event.preeditString()
        super().inputMethodEvent(event)
        self.composed.emit()


class SearchField(LineField):
    """A text field with a button that empties it. Qt's own button loads the icons of the system."""

    def __init__(self) -> None:
        super().__init__()
        self.setMaxLength(SEARCH_CHARS)
        self._empty = IconButton("close", self.tr("Empty the search field"), side=22, parent=self)
        self._empty.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._empty.clicked.connect(self.clear)
        self._empty.hide()
        self.setTextMargins(0, 0, self._empty.width(), 0)
        self.textChanged.connect(lambda text: self._empty.setVisible(bool(text)))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        side = self._empty.height()
        self._empty.move(self.width() - side - 5, (self.height() - side) // 2)


class Number(QSpinBox):
    """A QSpinBox without buttons: type a number, or use the arrow keys."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__()
        self.setRange(least, most)
        self.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
        self.lineEdit().setTextMargins(8, 0, 8, 0)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: D102
        event.ignore()


class Decimal(QDoubleSpinBox):
    """A QDoubleSpinBox that accepts a point or a comma as the decimal mark."""

    def __init__(self) -> None:
        super().__init__()
        self.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)

    def validate(  # noqa: D102
        self, text: str, place: int
    ) -> tuple[QValidator.State, str, int]:
        return super().validate(self._marked(text), place)

    def valueFromText(self, text: str) -> float:  # noqa: D102
        return super().valueFromText(self._marked(text))

    def _marked(self, text: str) -> str:
        mark = self.locale().decimalPoint()
        return text.replace("." if mark == "," else ",", mark)
