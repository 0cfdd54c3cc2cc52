"""Bars of three parts: computing, waiting for experts, and unexplained time."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter

from app.widgets import theme

PARTS = ("compute", "stall", "other")


class Bars:
    """Collects rectangles and paints those of one colour in one call, which is far cheaper.

    bottom: y of the bars' foot, in pixels; scale_s: seconds of a bar that reaches y = 0.
    """

    def __init__(self, bottom: int, scale_s: float) -> None:
        self._bottom, self._scale_s = bottom, scale_s
        self._rects: list[list[QRect]] = [[] for _ in PARTS]

    def add(self, x: int, width: int, parts_s: tuple[float, float, float]) -> None:
        """Add a bar; cut it off at the scale."""
        y, sum_s = self._bottom, 0.0
        for rects, part_s in zip(self._rects, parts_s, strict=True):
            sum_s += part_s
            top = max(self._bottom - round(sum_s / self._scale_s * self._bottom), 0)
            if top < y:
                rects.append(QRect(x, top, width, y - top))
                y = top

    def paint(self, painter: QPainter) -> None:
        """Paint all bars."""
        painter.setPen(Qt.PenStyle.NoPen)
        for name, rects in zip(PARTS, self._rects, strict=True):
            painter.setBrush(theme.colour(name))
            painter.drawRects(rects)
