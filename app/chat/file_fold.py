"""A file of a question, folded to one line."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.chat.picture_view import PictureButton
from app.chat.text_block import TextBlock
from app.session.pictures import Pictures
from app.text import units
from app.widgets.parts import filled, spaced
from backend.protocol.attachments import Attachment

HEAD_WIDTH = 480  # pixels, at most
PADDING = 16  # of the button
PREVIEW = QSize(300, 200)
SHOWN_CHARS = 20_000  # a longer text would make the window slow
PIECE_CHARS = 4000  # of one block of text


class FileFold(QWidget):
    """A button with the file's name and size, and the text below it when unfolded.

    A picture has a preview.

    Signals:
        fitted: the preview has another size.
    """

    fitted = Signal()

    def __init__(self, file: Attachment, pictures: Pictures | None = None) -> None:
        super().__init__()
        self._file = file
        self._blocks: list[TextBlock] = []
        self.button = QPushButton()
        self.button.setProperty("role", "quiet")
        self.button.setCheckable(file.kind != "image")  # no picture is decoded in this process
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.button.setToolTip(file.name)
        self.button.setMinimumWidth(1)  # it cuts its text
        self.button.toggled.connect(self._toggle)
        self._body = spaced(QVBoxLayout(), 0, 8, 0, 0, 6)
        left = Qt.AlignmentFlag.AlignLeft
        filled(spaced(QVBoxLayout(self), 4), (self.button, left), self._body)
        self._picture: PictureButton | None = None
        if file.kind == "image" and pictures is not None:
            self._picture = PictureButton(file.name, file.data, PREVIEW, pictures)
            self._picture.fitted.connect(self.fitted)
            self._body.addWidget(self._picture)
        self._show_head()

    def ideal_width(self) -> int:
        """Return the width at which the folded line is not cut, and the preview is whole."""
        self.button.ensurePolished()
        head = self.button.fontMetrics().horizontalAdvance(f"\u25b8 {self._words()}") + PADDING
        preview = self._picture.width() + 8 if self._picture is not None else 0
        return max(min(head + 2, HEAD_WIDTH), preview)

    @property
    def is_unfolded(self) -> bool:
        """Return whether the text is shown."""
        return self.button.isChecked()

    def _toggle(self, unfolded: bool) -> None:
        text = self._shown_text() if not self._blocks else ""
        while text:
            end = text.rfind("\n", 0, PIECE_CHARS) + 1 or PIECE_CHARS
            block = TextBlock()
            block.setAccessibleName(self._file.name)
            block.setProperty("role", "thought")
            block.show_plain(text[:end].removesuffix("\n"))
            self._blocks.append(block)
            self._body.addWidget(block)
            text = text[end:]
        for block in self._blocks:
            block.setVisible(unfolded)
        self._show_head()

    def _shown_text(self) -> str:
        text = self._file.text
        if len(text) <= SHOWN_CHARS:
            return text
        rest = units.count(len(text) - SHOWN_CHARS, "character")
        return text[:SHOWN_CHARS] + "\n\n" + self.tr("\u2026 and {rest} more").format(rest=rest)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._show_head()

    def _words(self) -> str:
        file = self._file
        size = (
            units.count(file.n_page, "page")
            if file.n_page
            else self.tr("image")
            if file.kind == "image"
            else units.count(len(file.text), "character")
        )
        words = f"{file.name} \u00b7 {size}"
        if file.was_scaled:
            words += " \u00b7 " + self.tr("scaled down")
        if file.n_char_left_out:
            words += " \u00b7 " + self.tr("beginning only")
        return words

    def _show_head(self) -> None:
        words = self._words()
        self.button.setAccessibleName(self.tr("Attached: {file}").format(file=words))
        arrow = "\u25be" if self.button.isChecked() else "\u25b8"
        if not self.button.isCheckable():
            arrow = "\u25aa"
        head = self.button.fontMetrics().elidedText(
            f"{arrow} {words}", Qt.TextElideMode.ElideMiddle, self.width() - PADDING
        )
        self.button.setText(head.replace("&", "&&"))
