"""A picture as a preview, and large in a dialog when it is clicked."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QAbstractButton, QDialog, QVBoxLayout, QWidget

from app.session.pictures import Pictures
from app.widgets import theme
from app.widgets.on_screen import OnScreen
from backend.protocol.attachments import Picture

PREVIEW_SIDE = 480  # pixels of the device
LARGE_SIDE = 1600
RADIUS = 6


class _Canvas(QWidget):
    """A picture as large as it fits, in its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.pixmap = QPixmap()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        _draw(painter, self.pixmap, self.rect())
        painter.end()


def _draw(painter: QPainter, pixmap: QPixmap, place: QRect) -> None:
    if pixmap.isNull():
        return
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    size = pixmap.size().scaled(place.size(), Qt.AspectRatioMode.KeepAspectRatio)
    if size.width() > pixmap.width():
        size = pixmap.size()
    target = QRect(place.topLeft(), size)
    target.moveCenter(place.center())
    painter.drawPixmap(target, pixmap)


def _pixmap(picture: Picture) -> QPixmap:
    step = 3 * picture.width
    image = QImage(picture.rgb, picture.width, picture.height, step, QImage.Format.Format_RGB888)
    return QPixmap.fromImage(image)


class PictureButton(QAbstractButton):
    """A preview of an image file. A click, Space or Enter shows it large.

    Signals:
        fitted: its size has changed.
    """

    fitted = Signal()

    def __init__(self, name: str, data: str, most: QSize, pictures: Pictures) -> None:
        super().__init__()
        self._name, self._data, self._most, self._pictures = name, data, most, pictures
        self._pixmap = QPixmap()
        self.setAccessibleName(self.tr("Show {file} large").format(file=name))
        self.setToolTip(self.accessibleName())
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(most.height() * 4 // 3, most.height())
        self.clicked.connect(self.open_large)
        pictures.decoded.connect(self._on_decoded)
        if (found := pictures.ask(data, PREVIEW_SIDE)) is not None:
            self._show(found)

    @property
    def is_shown(self) -> bool:
        """Return whether the picture has been decoded."""
        return not self._pixmap.isNull()

    def _on_decoded(self, data: str, side: int, picture: Picture | None) -> None:
        if side == PREVIEW_SIDE and data == self._data:
            self._show(picture)

    def _show(self, picture: Picture | None) -> None:
        if picture is None:
            self.hide()
        else:
            self._pixmap = _pixmap(picture)
            size = self._pixmap.size()
            if size.width() > self._most.width() or size.height() > self._most.height():
                size.scale(self._most, Qt.AspectRatioMode.KeepAspectRatio)
            self.setFixedSize(size.expandedTo(QSize(24, 24)))
            self.update()
        self.fitted.emit()

    def open_large(self) -> None:
        """Show the picture in a dialog."""
        dialog = PictureDialog(self._name, self._data, self._pixmap, self._pictures, self.window())
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def sizeHint(self) -> QSize:  # noqa: D102
        return self.size()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(theme.colour("focus" if self.hasFocus() else "border"))
        painter.setBrush(theme.colour("hover"))
        place = self.rect().adjusted(0, 0, -1, -1)
        if not self.is_shown:
            painter.drawRoundedRect(place, RADIUS, RADIUS)
        _draw(painter, self._pixmap, self.rect())
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(place)
        painter.end()


class PictureDialog(QDialog):
    """A picture, as large as the dialog. Escape closes it."""

    def __init__(
        self, name: str, data: str, preview: QPixmap, pictures: Pictures, parent: QWidget
    ) -> None:
        super().__init__(parent)
        OnScreen(self)
        self._data = data
        self.setWindowTitle(name)
        self.setAccessibleName(name)
        self.canvas = _Canvas()
        self.canvas.pixmap = preview
        self.canvas.setAccessibleName(name)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.canvas)
        self.setMinimumSize(160, 120)
        self._fit(preview.size())
        pictures.decoded.connect(self._on_decoded)
        if (found := pictures.ask(data, LARGE_SIDE)) is not None:
            self._show(found)

    def _on_decoded(self, data: str, side: int, picture: Picture | None) -> None:
        if side == LARGE_SIDE and data == self._data and picture is not None:
            self._show(picture)

    def _show(self, picture: Picture) -> None:
        self.canvas.pixmap = _pixmap(picture)
        self._fit(self.canvas.pixmap.size())
        self.canvas.update()

    def _fit(self, size: QSize) -> None:
        screen = self.screen().availableGeometry()
        room = screen.size() * 0.85
        if size.width() > room.width() or size.height() > room.height():
            size.scale(room, Qt.AspectRatioMode.KeepAspectRatio)
        self.resize(size.expandedTo(self.minimumSize()))
        self.move(screen.center() - self.rect().center())
