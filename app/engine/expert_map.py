"""The map of the cache: a row for each MoE layer, a cell for each of its experts."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QHelpEvent, QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import theme
from app.facts import Residency

ROW_HIGHEST = 22  # pixels; a model with few layers does not fill the panel with huge cells
ROW_LOWEST = 2
NUMBERS_WIDTH = 26  # for the layers' numbers at the left
NUMBERS_APART = 20  # pixels between two numbers, at least
GAP = 15  # a value that no expert has, for the lines between cells
GAP_FROM = 4  # pixels: from this size on, cells are set apart by a line

_USE = {1: "hit", 2: "late", 3: "stall"}
_WORDS = {0: "not in memory", 1: "in memory", 2: "arriving"}
_USE_WORDS = {1: "used just now, a hit", 2: "used just now, late", 3: "used just now, a miss"}


def row_height(n_row: int, height: int) -> int:
    """Return the height of a layer's row, in pixels; the bars beside the map use the same."""
    return min(max(height // max(n_row, 1), ROW_LOWEST), ROW_HIGHEST)


class ExpertMap(QWidget):
    """Paints a snapshot as one image with a palette, so that it costs next to nothing.

    A byte of the snapshot is 0 absent, 1 resident or 2 arriving, plus 4, 8 or 12 when the last
    token used the expert and it was a hit, late or a miss.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._residency: Residency | None = None
        self._image = QImage()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 60)
        self.setAccessibleName("Map of the experts in memory")

    def show_residency(self, residency: Residency | None) -> None:
        """Show a snapshot, or nothing."""
        self._residency = residency if residency and residency.data else None
        if self._residency is None:
            self._image = QImage()
            self.setAccessibleDescription("No map")
        else:
            n_row, n_expert = len(self._residency.moe_layers), self._residency.n_expert
            image = QImage(
                self._residency.data, n_expert, n_row, n_expert, QImage.Format.Format_Indexed8
            )
            image.setColorTable(_palette())
            self._image = image
            n_in = len(self._residency.data) - sum(
                self._residency.data.count(value) for value in (0, 4, 8, 12)
            )
            self.setAccessibleDescription(
                f"{n_row} layers of {n_expert} experts, {n_in} experts in memory"
            )
        self.update()

    def cell_at(self, place: QPoint) -> tuple[int, int] | None:
        """Return the row and the expert under a point."""
        area = self._area()
        if self._residency is None or not area.contains(place):
            return None
        row = (place.y() - area.y()) * len(self._residency.moe_layers) // area.height()
        return row, (place.x() - area.x()) * self._residency.n_expert // area.width()

    def sizeHint(self) -> QSize:  # noqa: D102, N802
        return QSize(360, 320)

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102, N802
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and not self._image.isNull():
            self._image.setColorTable(_palette())

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            cell = self.cell_at(event.pos())
            if cell is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.describe(*cell), self)
            return True
        return super().event(event)

    def describe(self, row: int, expert: int) -> str:
        """One cell in words."""
        assert self._residency is not None
        value = self._residency.data[row * self._residency.n_expert + expert]
        words = _USE_WORDS.get(value >> 2) or _WORDS.get(value & 3, "")
        return f"Layer {self._residency.moe_layers[row]}, expert {expert}: {words}"

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102, N802
        if self._residency is None:
            return
        painter = QPainter(self)
        area = self._area()
        n_row, n_expert = len(self._residency.moe_layers), self._residency.n_expert
        n_pixel = round(area.width() * self.devicePixelRatioF())
        if n_expert > n_pixel:  # more experts than pixels: mix them, drop none
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawImage(area, self._image)
        else:
            data = _stretch(self._residency, n_pixel)
            image = QImage(data, n_pixel, n_row, n_pixel, QImage.Format.Format_Indexed8)
            image.setColorTable(_palette())
            painter.drawImage(area, image)
        row = area.height() // n_row
        painter.setPen(theme.colour("surface"))
        if row >= GAP_FROM:
            for index in range(1, n_row):
                y = area.y() + index * row - 1
                painter.drawLine(area.left(), y, area.right(), y)
        self._paint_numbers(painter, area, row)
        painter.end()

    def _paint_numbers(self, painter: QPainter, area: QRect, row: int) -> None:
        assert self._residency is not None
        step = 1
        while step * row < NUMBERS_APART:
            step *= 2
        font = QFont(self.font())
        font.setPixelSize(10)
        painter.setFont(font)
        painter.setPen(theme.colour("faint"))
        for index in range(0, len(self._residency.moe_layers), step):
            place = QRect(0, area.y() + index * row, NUMBERS_WIDTH - 8, max(row, 10))
            if row < 10:
                place.translate(0, (row - 10) // 2)
            where = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(place, where, str(self._residency.moe_layers[index]))

    def _area(self) -> QRect:
        """Where the cells are; a row has whole pixels, so that the bars line up with it."""
        n_row = len(self._residency.moe_layers) if self._residency else 1
        room = self.width() - NUMBERS_WIDTH
        return QRect(NUMBERS_WIDTH, 0, max(room, 1), row_height(n_row, self.height()) * n_row)


def _palette() -> list[int]:
    """Return a colour for each value of a byte."""
    states = [theme.colours().absent, theme.colours().resident, theme.colours().arriving]
    states.append(states[0])  # 3 does not occur
    uses = [None, *(getattr(theme.colours(), _USE[use]) for use in (1, 2, 3))]
    table = [QColor(uses[value >> 2] or states[value & 3]).rgb() for value in range(16)]
    table[GAP] = theme.colour("surface").rgb()
    return table


@functools.lru_cache(maxsize=4)
def _columns(n_expert: int, n_pixel: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return what picks each pixel's value from a row of experts with GAP after it."""
    cells = [pixel * n_expert // n_pixel for pixel in range(n_pixel)]
    if n_pixel >= GAP_FROM * n_expert:
        for pixel in range(n_pixel - 1):
            if cells[pixel] != cells[pixel + 1]:
                cells[pixel] = n_expert
    return operator.itemgetter(*cells, n_expert)  # one more, so that it is always a tuple


def _stretch(residency: Residency, n_pixel: int) -> bytes:
    """Return the snapshot with a value for each pixel of a row, `n_pixel` of them."""
    pick = _columns(residency.n_expert, n_pixel)
    n_expert, gap = residency.n_expert, bytes([GAP])
    rows = (
        bytes(pick(residency.data[start : start + n_expert] + gap)[:n_pixel])
        for start in range(0, len(residency.data), n_expert)
    )
    return b"".join(rows)
