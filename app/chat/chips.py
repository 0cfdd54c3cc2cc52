"""The files that the next message takes along: a chip for each, and whether they fit."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.picture_view import PictureButton
from app.session.attachments import Attachments, DraftFile
from app.session.pictures import Pictures
from app.text import units
from app.widgets import icons, theme
from app.widgets.elided_label import ElidedLabel
from app.widgets.flow_layout import FlowLayout
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, dress, filled, progress_bar, spaced, text_label

NAME_WIDTH = 220  # pixels, at most
PREVIEW = QSize(64, 40)


class Chips(QWidget):
    """Shows the files of the composer.

    Signals:
        removed: (DraftFile) the user wants a file removed.
        fit_wanted: the user wants only what fits of the files.
        context_wanted: the user wants to change the length of the context.
    """

    removed = Signal(object)
    fit_wanted = Signal()
    context_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(self.tr("Attached files"))
        self._chips: list[_Chip] = []
        self.pictures: Pictures | None = None
        """Decodes the pictures."""
        self._flow = FlowLayout()
        self._words = QLabel()
        self._words.setWordWrap(True)
        self._words.setTextFormat(Qt.TextFormat.PlainText)
        self._words.setProperty("role", "warning")
        self._fit = QPushButton(self.tr("Attach only what fits"))
        self._context = QPushButton(self.tr("Change the context\u2026"))
        buttons = spaced(QHBoxLayout(), 6)
        for button, signal in ((self._fit, self.fit_wanted), (self._context, self.context_wanted)):
            button.setProperty("role", "little")
            button.setAccessibleName(button.text())
            button.clicked.connect(signal)
            buttons.addWidget(button)
        buttons.addStretch(1)
        filled(spaced(QVBoxLayout(self), 6, 0, 0, 4, 2), self._flow, self._words, buttons)
        self.hide()

    @property
    def names(self) -> list[str]:
        """Return what the chips say, for screen readers."""
        return [chip.accessibleName() for chip in self._chips]

    @property
    def words(self) -> str:
        """Return the sentences below the chips."""
        return self._words.text()

    def show_files(self, attachments: Attachments, before: QWidget) -> None:
        """Show the files. `before`: the widget that Tab leaves to reach the first chip."""
        files = attachments.files
        if [chip.file for chip in self._chips] != files or any(
            chip.file is not file for chip, file in zip(self._chips, files, strict=False)
        ):
            self._make(files, before)
        for chip in self._chips:
            chip.show_picture(self.pictures)
            chip.refresh(attachments.n_context, attachments.is_unseen(chip.file))
        fault = self._fault(attachments)
        blind = self.tr("The loaded model cannot see images.") if attachments.has_unseen else ""
        sentences = [*(file.refusal for file in files), blind, fault]
        self._words.setText("\n".join(sentence for sentence in sentences if sentence))
        self._words.setVisible(bool(self._words.text()))
        self._fit.setVisible(bool(fault and attachments.attachments))
        self._context.setVisible(bool(fault))
        self.setVisible(bool(files or fault))
        self.updateGeometry()

    def _fault(self, attachments: Attachments) -> str:
        """Return a sentence if the files do not fit into the context."""
        if attachments.fits_into_chat:
            return ""
        one = len(attachments.attachments) == 1
        n_token = attachments.n_token
        n_used = attachments.n_used if attachments.fits else 0
        if n_token + n_used < attachments.n_context:  # the question is too long
            n_token = attachments.n_token_message
        if n_token > attachments.n_token and not attachments.fits:
            sentence = self.tr("This message needs {tokens}; the context holds {limit}.")
        elif n_token > attachments.n_token:
            sentence = self.tr(
                "With this chat and {tokens} of this message, the context of {limit} is full. A "
                "new chat has room."
            )
        elif not attachments.fits:
            sentence = (
                self.tr("This file needs {tokens}; the context holds {limit}.")
                if one
                else self.tr("The files need {tokens}; the context holds {limit}.")
            )
        else:
            sentence = (
                self.tr("With this chat and {tokens} of the file, the context of {limit} is full.")
                if one
                else self.tr(
                    "With this chat and {tokens} of the files, the context of {limit} is full."
                )
            )
        return sentence.format(
            tokens=units.count(n_token, "token"),
            limit=units.number(attachments.n_context),
        )

    def _make(self, files: list[DraftFile], before: QWidget) -> None:
        place = next((i for i, chip in enumerate(self._chips) if chip.remove.hasFocus()), -1)
        kept = {id(chip.file): chip for chip in self._chips}
        while self._flow.takeAt(0) is not None:
            pass
        self._chips = [
            kept.pop(id(file)) if id(file) in kept else self._chip(file) for file in files
        ]
        discard(None, *kept.values())
        for chip in self._chips:
            self._flow.addWidget(chip)
            chip.show()
            QWidget.setTabOrder(before, chip.remove)
            before = chip.remove
        if place >= 0:  # the chip with the focus may be gone
            at = min(place, len(self._chips) - 1)
            (self._chips[at].remove if self._chips else before).setFocus()

    def _chip(self, file: DraftFile) -> _Chip:
        chip = _Chip(file)
        chip.removed.connect(lambda: self.removed.emit(file))
        return chip


class _Chip(QFrame):
    """One file.

    Signals:
        removed: the user wants it removed.
    """

    removed = Signal()

    def __init__(self, file: DraftFile) -> None:
        super().__init__()
        self.setObjectName("chip")
        self.file = file
        self._icon = _Icon()
        self._picture: PictureButton | None = None
        self._name = ElidedLabel(Qt.TextElideMode.ElideMiddle)
        self._name.setText(file.name)
        self._name.setToolTip(file.name)
        self._name.setMaximumWidth(NAME_WIDTH)
        self._size = text_label("small")
        self._bar = progress_bar()
        self._bar.setFixedWidth(48)
        self.remove = _Remove(self.tr("Remove {file}").format(file=file.name))
        self.remove.clicked.connect(self.removed)
        self._row = spaced(QHBoxLayout(self), 7, 8, 3, 3, 3)
        filled(self._row, self._icon, self._name, self._size, self._bar, self.remove)

    def show_picture(self, pictures: Pictures | None) -> None:
        """Show a preview of an image that has been read."""
        found = self.file.attachment
        if self._picture is None and found is not None and found.kind == "image" and pictures:
            self._picture = PictureButton(found.name, found.data, PREVIEW, pictures)
            self._row.insertWidget(0, self._picture)
            self._picture.fitted.connect(self.updateGeometry)
            QWidget.setTabOrder(self.remove, self._picture)

    def refresh(self, n_context: int, is_unseen: bool) -> None:
        """Show how far it is read, its size, or that the model cannot see it."""
        file, found = self.file, self.file.attachment
        trouble = bool(file.refusal) or is_unseen
        self._icon.setVisible(trouble or self._picture is None)
        self._icon.show_icon("trouble" if trouble else found.kind if found else "text", trouble)
        self._bar.setVisible(bool(file.reading))
        self._bar.setRange(0, file.n_page)  # without pages it is busy
        self._bar.setValue(file.n_page_read)
        words = self.tr("cannot be seen") if is_unseen else self._words(n_context)
        self._size.setText(words)
        self._size.setVisible(bool(words))
        self.setAccessibleName(f"{file.name}, {file.refusal or words}")
        dress(self, "trouble" if trouble else "", "kind")
        self.updateGeometry()

    def _words(self, n_context: int) -> str:
        file, found = self.file, self.file.attachment
        if file.refusal:
            return ""
        if found is None:
            if not file.n_page:
                return self.tr("Reading")
            return self.tr("page {n} of {all}").format(
                n=units.number(file.n_page_read), all=units.number(file.n_page)
            )
        if not n_context:
            image = self.tr("image")
            words = image if file.is_image else units.count(len(found.text), "character")
        elif file.n_token:
            words = units.count(file.n_token_about, "token")
            if file.n_token_about <= n_context:
                words += f" \u00b7 {units.percent(file.n_token_about / n_context)}"
        else:
            about = units.count(file.n_token_about, "token")
            words = self.tr("about {tokens}").format(tokens=about)
        if found.was_scaled:
            words += " \u00b7 " + self.tr("scaled down")
        if found.n_char_left_out:
            words += " \u00b7 " + self.tr("beginning only")
        return words


class _Remove(IconButton):
    """Delete and Backspace press it, too."""

    def __init__(self, name: str) -> None:
        super().__init__("close", name, side=22)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.click()
        else:
            super().keyPressEvent(event)


class _Icon(QWidget):
    """The picture of a kind of file."""

    def __init__(self) -> None:
        super().__init__()
        self._name, self._trouble = "text", False
        self.setFixedSize(QSize(16, 16))

    def show_icon(self, name: str, trouble: bool) -> None:
        self._name, self._trouble = name, trouble
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        colour = theme.colour("danger" if self._trouble else "muted")
        icons.paint(painter, self._name, QRectF(self.rect()), colour)
        painter.end()
