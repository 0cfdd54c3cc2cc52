"""The composer: Enter sends, Shift+Enter begins a line, Send becomes Stop."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QImage,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QShowEvent,
    QTextDocumentFragment,
    QTextOption,
)
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.chips import Chips
from app.chat.context_meter import ContextMeter
from app.chat.think_switch import ThinkSwitch
from app.chat.tools_switch import ToolsSwitch
from app.session.attachments import Attachments
from app.widgets.elided_label import ElidedLabel
from app.widgets.fields import TextField
from app.widgets.icon_button import IconButton
from app.widgets.parts import dress, filled, spaced

N_LINE_MAX = 9


class _Input(TextField):
    """A text field as tall as its text, up to N_LINE_MAX lines.

    Signals:
        submitted: Enter without Shift.
        focused: (bool) the field has got or lost the focus.
        files_pasted: (list of Path) files copied in another program.
        picture_pasted: (bytes) an image file.
        nothing_pasted: nothing in the clipboard can be pasted.
        undo_pasted: the user wants to undo the last paste, which was attached.
        last_wanted: Up in the empty field; the user wants to change the last question.
    """

    submitted = Signal()
    focused = Signal(bool)
    files_pasted = Signal(object)
    picture_pasted = Signal(bytes)
    nothing_pasted = Signal()
    undo_pasted = Signal()
    last_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._attached_at = -1  # revision of the document when a paste was attached
        self.setObjectName("input")
        self.setAccessibleName(self.tr("Message"))
        self.setPlaceholderText(self.tr("Ask something\u2026"))
        self.setAcceptDrops(False)  # the window accepts drops
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        n_line = max(round(self.document().size().height()), 1)
        shown = min(n_line, N_LINE_MAX)
        many = n_line > N_LINE_MAX
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if many else policy.ScrollBarAlwaysOff
        )
        self.setFixedHeight(self.fontMetrics().lineSpacing() * shown + 8)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.fontMetrics().lineSpacing() + 8)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.submitted.emit()
            event.accept()
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()  # the window stops the answer
        elif event.key() == Qt.Key.Key_Up and not self.whole_text and not _is_modified(event):
            self.last_wanted.emit()
        elif (
            event.matches(QKeySequence.StandardKey.Undo)
            and self._attached_at == self.document().revision()
        ):
            self._attached_at = -1
            self.undo_pasted.emit()
        else:
            super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return True  # what cannot be pasted is said

    def insertFromMimeData(self, source: QMimeData) -> None:
        if paths := local_files(source):
            self.files_pasted.emit(paths)
        elif data := picture_of(source):
            self.picture_pasted.emit(data)
        elif source.text() or source.hasHtml():
            text = QMimeData()
            of_html = QTextDocumentFragment.fromHtml(source.html()).toPlainText()
            text.setText(source.text() or of_html.replace("\ufffc", ""))
            super().insertFromMimeData(text)
        else:
            self.nothing_pasted.emit()

    def note_attached(self) -> None:
        """Let the next Undo emit `undo_pasted`, unless the text is changed before."""
        self._attached_at = self.document().revision()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focused.emit(False)


def _is_modified(event: QKeyEvent) -> bool:
    return bool(event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier)


def local_files(data: QMimeData) -> list[Path]:
    """Return the files that are dragged or were copied."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]


def has_picture(data: QMimeData) -> bool:
    """Return whether an image was copied or is dragged, without reading it."""
    return data.hasImage() or any(kind.startswith("image/") for kind in data.formats())


def picture_of(data: QMimeData) -> bytes:
    """Return the image file that was copied or is dragged; empty if there is none, or text.

    Cells of a spreadsheet come as text and image. A browser adds the address of an image.
    """
    if not has_picture(data):
        return b""
    text = bytes(data.data("text/plain").data()).decode("utf-8", "replace").split()
    is_address = len(text) == 1 and text[0].startswith(("http:", "https:", "file:", "data:"))
    if text and not is_address:
        return b""
    for kind in ("png", "jpeg", "webp", "gif", "bmp"):
        if found := data.data(f"image/{kind}").data():
            return bytes(found)
    image = data.imageData()
    if not isinstance(image, QImage) or image.isNull():
        return b""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "BMP")  # type: ignore[call-overload]  # a PNG would hold the window
    return bytes(buffer.data().data())


class _Hint(ElidedLabel):
    """A hint that is cut if there is no room for it, or left out if it may be."""

    may_be_left_out = False

    def shown_text(self) -> str:
        shown = super().shown_text()
        return "" if self.may_be_left_out and shown != self.text() else shown


class Composer(QFrame):
    """The attached files, the text field, a line of hints, and the buttons.

    Signals:
        send: (str) text to send, perhaps empty if there are files; call clear() once it is
            accepted.
        stop: the user wants the answer stopped.
        files_pasted: (list of Path) files to attach.
        long_text: (str) a text to attach, because the field has no room for it; "": the user
            types on in a full field.
    """

    send = Signal(str)
    stop = Signal()
    files_pasted = Signal(object)
    long_text = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("composer")
        self._answering = False
        self._can_send = False
        self._has_files, self._waits_for_files = False, False
        self.chips = Chips()
        self.input = _Input()
        self.button = IconButton("send", self.tr("Send"), fill="accent")
        self.clip = IconButton("clip", self.tr("Attach files (Ctrl+U)"))
        self._hint = _Hint()
        self._hint.setProperty("role", "small")
        self.preset = QPushButton(self.tr("System prompt"))
        self.preset.setProperty("role", "quiet")
        self.preset.setAccessibleName(self.tr("System prompt and sampling"))
        self.preset.setToolTip(self.tr("System prompt and sampling (Ctrl+P)"))
        self.preset.setCursor(Qt.CursorShape.PointingHandCursor)
        self.meter = ContextMeter()
        self.think = ThinkSwitch()
        self.tools = ToolsSwitch()
        foot = filled(
            spaced(QHBoxLayout(), 8), self.preset, self.meter, (self._hint, 1), self.think,
            self.tools, self.clip, self.button,
        )  # fmt: skip
        filled(spaced(QVBoxLayout(self), 6, 16, 12, 12, 10), self.chips, self.input, foot)
        self.input.submitted.connect(self._submit)
        self.input.focused.connect(lambda has_focus: dress(self, has_focus, "focused"))
        self.input.textChanged.connect(self._update_button)
        self.input.composed.connect(self._update_button)
        self.button.clicked.connect(self._pressed)
        self.input.files_pasted.connect(self.files_pasted)
        self.input.refused.connect(self.long_text)
        self.setFocusProxy(self.input)
        self.tab_order: tuple[QWidget, ...] = (
            self.input, self.preset, self.think.effort, self.think.button, self.clip,
            self.button,
        )  # fmt: skip
        self._update_button()

    def show_state(self, can_send: bool, answering: bool, hint: str, use: str = "") -> None:
        """Show whether sending is possible, whether the button is Stop, and a hint.

        use: words on the use of the context, in place of a hint, if there is room for them. The
        meter's tooltip has them, too.
        """
        self._can_send, self._answering = can_send, answering
        self._hint.may_be_left_out = not hint
        self._hint.setText(hint or use)
        self._update_button()

    def show_files(self, attachments: Attachments) -> None:
        """Show the attached files. Sending waits until all are read and fit into the context."""
        self._has_files = bool(attachments.attachments)
        self._waits_for_files = (
            attachments.is_reading or attachments.has_unseen or not attachments.fits
        )
        self.chips.show_files(attachments, self.input)
        self._update_button()

    def show_preset(self, words: str) -> None:
        """Show the system prompt and sampling in force."""
        self.preset.setText(words)

    def set_text(self, text: str) -> None:
        """Put text into the field, to edit or send."""
        self.put_text(text)
        self.input.setFocus()

    def put_text(self, text: str) -> None:
        """Put text into the field. One that is too long is to be attached."""
        is_held = self.input.holds(text)
        self.input.setPlainText(text if is_held else "")
        self.input.moveCursor(self.input.textCursor().MoveOperation.End)
        if not is_held:
            self.long_text.emit(text)

    def clear(self) -> None:
        """Empty the field."""
        self.input.clear()

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        self.input.setFocus()
        super().mousePressEvent(event)

    def _submit(self) -> None:
        if self._may_send:
            self.input.end_composition()
            self.send.emit(self.input.toPlainText())

    @property
    def _may_send(self) -> bool:
        is_any = self._has_files or bool(self.input.whole_text.strip())
        return self._can_send and is_any and not self._waits_for_files

    def _pressed(self) -> None:
        self.input.setFocus()  # for further typing
        if self._answering:
            self.stop.emit()
        else:
            self._submit()

    def _update_button(self) -> None:
        if self._answering:
            self.button.show_icon("stop", "danger")
            self.button.rename(self.tr("Stop (Esc)"))
            self.button.setEnabled(True)
        else:
            self.button.show_icon("send", "accent")
            self.button.rename(self.tr("Send (Enter)"))
            self.button.setEnabled(self._may_send)
