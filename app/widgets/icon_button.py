"""A button that shows an icon."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.widgets import icons, theme

_ON = {"accent": "on_accent", "raised": "text"}  # fill -> colour of the icon on it


class IconButton(QAbstractButton):
    """Square, with a tool tip and an accessible name; `fill` is a colour's name or empty."""

    def __init__(
        self, icon: str, name: str, *, side: int = 34, fill: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._icon = icon
        self._fill = fill
        self._side = side
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFixedSize(side, side)
        self.rename(name)

    def rename(self, name: str) -> None:
        """Set the tool tip and the accessible name."""
        self.setAccessibleName(name)
        self.setToolTip(name)

    def show_icon(self, icon: str, fill: str = "") -> None:
        """Change the icon and the colour of its background."""
        self._icon, self._fill = icon, fill
        self.update()

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(self._side, self._side)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        place = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        colour = theme.colour("muted")
        background: QColor | None = None
        if self._fill and self.isEnabled():
            background = theme.colour(self._fill)
            if self.underMouse():
                background = background.lighter(112)
            colour = theme.colour(_ON.get(self._fill, "on_danger"))
        elif self._fill:
            background, colour = theme.colour("raised"), theme.colour("faint")
        elif self.isDown() or self.isChecked() or self.underMouse():
            background, colour = theme.colour("raised"), theme.colour("text")
        edged = self._fill == "raised"
        painter.setPen(QPen(theme.colour("border")) if edged else Qt.PenStyle.NoPen)
        if background is not None:
            painter.setBrush(background)
            painter.drawRoundedRect(place, 10, 10)
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.colour("text" if self._fill else "focus"), 1.5))
            painter.drawRoundedRect(place, 10, 10)
        side = self._side * 0.5
        middle = QRectF(self.rect()).center()
        icons.paint(
            painter, self._icon, QRectF(middle.x() - side / 2, middle.y() - side / 2, side, side),
            colour,
        )  # fmt: skip
        painter.end()
