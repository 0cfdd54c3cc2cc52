"""The window's icons, drawn as lines so that they are sharp at any scale."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPainterPath, QPen, QPixmap

from app.widgets import theme


def paint(painter: QPainter, name: str, rect: QRectF, colour: QColor) -> None:
    """Draw an icon into a square."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.translate(rect.topLeft())
    painter.scale(rect.width() / 16, rect.height() / 16)
    pen = QPen(colour, 1.6)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    painter.setPen(pen)
    for points in _LINES.get(name, ()):
        places = zip(points[::2], points[1::2], strict=True)
        painter.drawPolyline([QPointF(x, y) for x, y in places])
    if (draw := _DRAWINGS.get(name)) is not None:
        draw(painter, colour)
    painter.restore()


def application_icon() -> QIcon:
    """Return the window's icon."""
    icon = QIcon()
    for side in (16, 32, 64, 128, 256):
        icon.addPixmap(application_pixmap(side))
    return icon


def application_pixmap(side: int) -> QPixmap:
    """Return the window's icon as a square of `side` pixels."""
    pixmap = QPixmap(side, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    paint_application(painter, side)
    painter.end()
    return pixmap


def paint_application(painter: QPainter, side: int) -> None:
    """Draw the window's icon, a few lit cells of a map, into a square at the origin."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(theme.DARK.surface))
    painter.drawRoundedRect(QRectF(0, 0, side, side), side * 0.22, side * 0.22)
    paint_mark(painter, QRectF(side * 0.2, side * 0.2, side * 0.6, side * 0.6), theme.DARK)


def paint_mark(painter: QPainter, rect: QRectF, colours: theme.Colours) -> None:
    """Draw the mark: three layers of three experts, one of them just used."""
    rows = ("ra.", ".hr", "r.r")
    names = {"r": colours.resident, "a": colours.arriving, "h": colours.hit, ".": colours.free}
    cell = rect.width() / 3
    painter.setPen(Qt.PenStyle.NoPen)
    for y, row in enumerate(rows):
        for x, kind in enumerate(row):
            painter.setBrush(QColor(names[kind]))
            place = QRectF(rect.x() + x * cell, rect.y() + y * cell, cell, cell)
            gap = cell * 0.11
            place.adjust(gap, gap, -gap, -gap)
            painter.drawRoundedRect(place, cell * 0.18, cell * 0.18)


_PAGE = ((9.5, 1.8, 3.5, 1.8, 3.5, 14.2, 12.5, 14.2, 12.5, 4.8, 9.5, 1.8, 9.5, 4.8, 12.5, 4.8),)
_TEXT = (*_PAGE, (5.8, 8, 10.2, 8), (5.8, 11, 10.2, 11))
_LINES: dict[str, tuple[tuple[float, ...], ...]] = {
    "plus": ((8, 3, 8, 13), (3, 8, 13, 8)),
    "send": ((8, 13, 8, 3.4), (3.8, 7.4, 8, 3.2, 12.2, 7.4)),
    "chevron": ((4, 6, 8, 10, 12, 6),),
    "up": ((4, 10, 8, 6, 12, 10),),
    "down": ((8, 3, 8, 12.6), (3.8, 8.6, 8, 12.8, 12.2, 8.6)),
    "left": ((10, 4, 6, 8, 10, 12),),
    "right": ((6, 4, 10, 8, 6, 12),),
    "wide": ((2.5, 8, 13.5, 8), (5.5, 5, 2.5, 8, 5.5, 11), (10.5, 5, 13.5, 8, 10.5, 11)),
    "window": (
        (7, 3.5, 3, 3.5, 3, 13, 12.5, 13, 12.5, 9), (7.5, 8.5, 13, 3), (9.4, 3, 13, 3, 13, 6.6),
    ),
    "close": ((4, 4, 12, 12), (12, 4, 4, 12)),
    "pin": ((8, 10, 8, 14), (4, 10, 12, 10), (5.5, 10, 6.2, 3, 9.8, 3, 10.5, 10)),
    "text": _TEXT,
    "document": _TEXT,
    "markdown": (*_PAGE, (5.8, 11.5, 5.8, 7.6, 8, 10, 10.2, 7.6, 10.2, 11.5)),
    "code": ((5.5, 4.5, 2, 8, 5.5, 11.5), (10.5, 4.5, 14, 8, 10.5, 11.5), (9, 3.4, 7, 12.6)),
    "pdf": _PAGE,
}  # fmt: skip
"""The lines of icons: x and y of their points. An icon may be lines, a drawing, or both."""


def _stop(painter: QPainter, colour: QColor) -> None:
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawRoundedRect(QRectF(3.5, 3.5, 9, 9), 2, 2)


def _panel(painter: QPainter, colour: QColor, left: float = 9.4) -> None:
    painter.drawRoundedRect(QRectF(2, 3, 12, 10), 2, 2)
    path = QPainterPath()
    path.addRect(QRectF(left, 3.6, 4, 8.8))
    faded = QColor(colour)
    faded.setAlpha(110)
    painter.fillPath(path, faded)


def _tick(painter: QPainter, colour: QColor) -> None:
    painter.setPen(QPen(colour, 2.6, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
    painter.drawPolyline([QPointF(3.2, 8.4), QPointF(6.6, 11.8), QPointF(12.8, 4.6)])


def _controls(painter: QPainter, colour: QColor) -> None:
    for y, x in ((4.5, 10.5), (11.5, 5.5)):
        painter.drawLine(QPointF(2.5, y), QPointF(13.5, y))
        painter.setBrush(colour)
        painter.drawEllipse(QPointF(x, y), 1.6, 1.6)


def _more(painter: QPainter, colour: QColor) -> None:
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    for x in (3.2, 8.0, 12.8):
        painter.drawEllipse(QPointF(x, 8), 1.3, 1.3)


def _pause(painter: QPainter, colour: QColor) -> None:
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    for x in (4.2, 9.2):
        painter.drawRoundedRect(QRectF(x, 3.5, 2.6, 9), 1, 1)


def _play(painter: QPainter, colour: QColor) -> None:
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawPolygon([QPointF(5, 3.2), QPointF(12.6, 8), QPointF(5, 12.8)])


def _clip(painter: QPainter, colour: QColor) -> None:
    painter.translate(8, 8)
    painter.rotate(38)
    painter.setPen(QPen(colour, 1.3, c=Qt.PenCapStyle.RoundCap))
    path = QPainterPath(QPointF(3.6, -3.4))
    path.lineTo(3.6, 3.6)
    path.cubicTo(3.6, 8.4, -3.6, 8.4, -3.6, 3.6)
    path.lineTo(-3.6, -4.4)
    path.cubicTo(-3.6, -7.6, 1.2, -7.6, 1.2, -4.4)
    path.lineTo(1.2, 3.2)
    path.cubicTo(1.2, 4.8, -1.2, 4.8, -1.2, 3.2)
    path.lineTo(-1.2, -2.8)
    painter.drawPath(path)


def _pdf(painter: QPainter, colour: QColor) -> None:
    painter.fillRect(QRectF(5.4, 7.6, 5.2, 4.4), colour)


def _image(painter: QPainter, colour: QColor) -> None:
    painter.drawRoundedRect(QRectF(1.8, 2.8, 12.4, 10.4), 1.4, 1.4)
    painter.drawPolyline([QPointF(2.4, 11.8), QPointF(6.4, 7.4), QPointF(9, 10.2)])
    painter.drawPolyline([QPointF(9, 10.2), QPointF(10.8, 8.4), QPointF(13.8, 11.6)])
    painter.setBrush(colour)
    painter.drawEllipse(QPointF(10.6, 5.6), 0.7, 0.7)


def _trouble(painter: QPainter, colour: QColor) -> None:
    painter.drawPolyline(
        [QPointF(8, 2.4), QPointF(14.2, 13.2), QPointF(1.8, 13.2), QPointF(8, 2.4)]
    )
    painter.drawLine(QPointF(8, 6.4), QPointF(8, 9.2))
    painter.setBrush(colour)
    painter.drawEllipse(QPointF(8, 11.3), 0.3, 0.3)


_DRAWINGS: dict[str, Callable[[QPainter, QColor], None]] = {
    "stop": _stop, "panel": _panel, "controls": _controls, "more": _more, "tick": _tick,
    "sidebar": lambda painter, colour: _panel(painter, colour, 2.6), "pause": _pause,
    "play": _play, "clip": _clip, "pdf": _pdf, "image": _image, "trouble": _trouble,
}  # fmt: skip
