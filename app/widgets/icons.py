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
    _DRAWINGS[name](painter, colour)
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


def _plus(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(8, 3), QPointF(8, 13))
    painter.drawLine(QPointF(3, 8), QPointF(13, 8))


def _send(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(8, 13), QPointF(8, 3.4))
    painter.drawPolyline([QPointF(3.8, 7.4), QPointF(8, 3.2), QPointF(12.2, 7.4)])


def _stop(painter: QPainter, colour: QColor) -> None:
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawRoundedRect(QRectF(3.5, 3.5, 9, 9), 2, 2)


def _chevron(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline([QPointF(4, 6), QPointF(8, 10), QPointF(12, 6)])


def _up(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline([QPointF(4, 10), QPointF(8, 6), QPointF(12, 10)])


def _down(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(8, 3), QPointF(8, 12.6))
    painter.drawPolyline([QPointF(3.8, 8.6), QPointF(8, 12.8), QPointF(12.2, 8.6)])


def _panel(painter: QPainter, colour: QColor, left: float = 9.4) -> None:
    painter.drawRoundedRect(QRectF(2, 3, 12, 10), 2, 2)
    path = QPainterPath()
    path.addRect(QRectF(left, 3.6, 4, 8.8))
    faded = QColor(colour)
    faded.setAlpha(110)
    painter.fillPath(path, faded)


def _wide(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(2.5, 8), QPointF(13.5, 8))
    painter.drawPolyline([QPointF(5.5, 5), QPointF(2.5, 8), QPointF(5.5, 11)])
    painter.drawPolyline([QPointF(10.5, 5), QPointF(13.5, 8), QPointF(10.5, 11)])


def _window(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline(
        [QPointF(7, 3.5), QPointF(3, 3.5), QPointF(3, 13), QPointF(12.5, 13), QPointF(12.5, 9)]
    )
    painter.drawLine(QPointF(7.5, 8.5), QPointF(13, 3))
    painter.drawPolyline([QPointF(9.4, 3), QPointF(13, 3), QPointF(13, 6.6)])


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


def _close(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(4, 4), QPointF(12, 12))
    painter.drawLine(QPointF(12, 4), QPointF(4, 12))


def _sidebar(painter: QPainter, colour: QColor) -> None:
    _panel(painter, colour, 2.6)


def _pin(painter: QPainter, _: QColor) -> None:
    painter.drawLine(QPointF(8, 10), QPointF(8, 14))
    painter.drawLine(QPointF(4, 10), QPointF(12, 10))
    painter.drawPolyline([QPointF(5.5, 10), QPointF(6.2, 3), QPointF(9.8, 3), QPointF(10.5, 10)])


def _left(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline([QPointF(10, 4), QPointF(6, 8), QPointF(10, 12)])


def _right(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline([QPointF(6, 4), QPointF(10, 8), QPointF(6, 12)])


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


def _page(painter: QPainter) -> None:
    """Draw a sheet of paper with a folded corner."""
    painter.drawPolyline(
        [
            QPointF(9.5, 1.8), QPointF(3.5, 1.8), QPointF(3.5, 14.2), QPointF(12.5, 14.2),
            QPointF(12.5, 4.8), QPointF(9.5, 1.8), QPointF(9.5, 4.8), QPointF(12.5, 4.8),
        ]
    )  # fmt: skip


def _text(painter: QPainter, _: QColor) -> None:
    _page(painter)
    for y in (8.0, 11.0):
        painter.drawLine(QPointF(5.8, y), QPointF(10.2, y))


def _markdown(painter: QPainter, _: QColor) -> None:
    _page(painter)
    painter.drawPolyline(
        [QPointF(5.8, 11.5), QPointF(5.8, 7.6), QPointF(8, 10), QPointF(10.2, 7.6),
         QPointF(10.2, 11.5)]
    )  # fmt: skip


def _code(painter: QPainter, _: QColor) -> None:
    painter.drawPolyline([QPointF(5.5, 4.5), QPointF(2, 8), QPointF(5.5, 11.5)])
    painter.drawPolyline([QPointF(10.5, 4.5), QPointF(14, 8), QPointF(10.5, 11.5)])
    painter.drawLine(QPointF(9, 3.4), QPointF(7, 12.6))


def _pdf(painter: QPainter, colour: QColor) -> None:
    _page(painter)
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
    "plus": _plus, "send": _send, "stop": _stop, "chevron": _chevron, "down": _down,
    "panel": _panel, "wide": _wide, "window": _window, "controls": _controls,
    "more": _more, "close": _close, "sidebar": _sidebar, "pin": _pin, "left": _left,
    "right": _right, "tick": _tick, "up": _up,
    "pause": _pause, "play": _play, "clip": _clip, "text": _text, "markdown": _markdown,
    "code": _code, "pdf": _pdf, "document": _text, "image": _image, "trouble": _trouble,
}  # fmt: skip
