"""The map of the cache: a row for each MoE layer, a cell for each of its experts."""

from __future__ import annotations

from array import array
from enum import Enum

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QFocusEvent,
    QFont,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.panel import map_picture
from app.text import units
from app.widgets import theme
from backend.methods import cells
from backend.protocol.statistics import Residency

ROW_HIGHEST = 22  # pixels; limits the cells of a model with few layers
ROW_LOWEST = 2
NUMBERS_WIDTH = 26  # for the layers' numbers at the left
NUMBER_HEIGHT = 10
NUMBERS_APART = 20  # smallest distance of two numbers, in pixels
LAYERS_OF_A_PAGE = 8

_STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
    Qt.Key.Key_PageUp: (-LAYERS_OF_A_PAGE, 0),
    Qt.Key.Key_PageDown: (LAYERS_OF_A_PAGE, 0),
    Qt.Key.Key_Home: (0, -(1 << 20)),
    Qt.Key.Key_End: (0, 1 << 20),
}


class View(Enum):
    """The meaning of the colours."""

    STATE = "state"  # residency, and hit, late or miss of the last use
    USE = "use"  # number of uses in this answer


def map_height(n_row: int, room: int) -> int:
    """Return the height of all rows, in pixels. The bars beside the map use it too."""
    return min(max(room, n_row * ROW_LOWEST), n_row * ROW_HIGHEST)


class ExpertMap(QWidget):
    """Paints a snapshot from one cached image.

    The arrow keys move a cursor from cell to cell. The cell under the cursor is the accessible
    description, and its text is shown as a tool tip.
    """

    def __init__(self) -> None:
        super().__init__()
        self._residency: Residency | None = None
        self._uses = array("I")
        self._n_token = 0
        self._view = View.STATE
        self.cursor_cell: tuple[int, int] | None = None  # row and expert, of the keyboard
        self._image = QImage()
        self._image_for: object = None  # what the image depends on; None: out of date
        self.expert_bytes = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 60)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setAccessibleName(self.tr("Map of the experts in memory"))
        self._update_description()

    @property
    def view(self) -> View:
        """Return the meaning of the colours."""
        return self._view

    @property
    def residency(self) -> Residency | None:
        """Return the shown snapshot."""
        return self._residency

    @property
    def uses(self) -> array[int]:
        """Return the uses of each expert, layer by layer; empty if unknown."""
        return self._uses

    def show_view(self, view: View) -> None:
        """Change the meaning of the colours."""
        self._view = view
        self._image_for = None
        self.update()

    def show_residency(self, residency: Residency | None) -> None:
        """Show a snapshot; None shows an empty map."""
        before = self._residency
        self._residency = residency if residency and residency.data else None
        now = self._residency
        if before is None or now is None or _shape(before) != _shape(now):
            self.cursor_cell = None
            self.update()
        else:
            self.update(self._area())
        if now is not None and len(self._uses) != len(now.data):
            self._uses, self._n_token = array("I"), 0
        self._image_for = None
        self._update_description()

    def show_uses(self, uses: array[int], n_token: int) -> None:
        """Set how many of `n_token` tokens used each expert."""
        shown = self._residency
        if shown is None or len(uses) == len(shown.data):
            self._uses, self._n_token = uses, n_token
            if self._view is View.USE:
                self._image_for = None
                self.update(self._area())

    # Geometry

    def cell_at(self, place: QPoint) -> tuple[int, int] | None:
        """Return the row and the expert under a point."""
        area = self._area()
        if self._residency is None or not area.contains(place):
            return None
        n_row = len(self._residency.moe_layers)
        row = map_picture.row_at(place.y() - area.y(), n_row, area.height())
        return row, (place.x() - area.x()) * self._residency.n_expert // area.width()

    def cell_rect(self, row: int, expert: int) -> QRect:
        """Return the rectangle of a cell."""
        assert self._residency is not None
        area, n_expert = self._area(), self._residency.n_expert
        ratio = self.devicePixelRatioF()
        n_pixel = max(round(area.width() * ratio), n_expert)
        scale = area.width() / n_pixel
        left, right = (
            round(map_picture.first_pixel(e, n_expert, n_pixel) * scale)
            for e in (expert, expert + 1)
        )
        line = self._row_rect(row)
        return QRect(area.x() + left, line.y(), max(right - left, 1), line.height())

    def _row_rect(self, row: int) -> QRect:
        assert self._residency is not None
        area, n_row = self._area(), len(self._residency.moe_layers)
        top, end = (map_picture.row_top(r, n_row, area.height()) for r in (row, row + 1))
        return QRect(area.x(), area.y() + top, area.width(), end - top)

    def describe(self, row: int, expert: int) -> str:
        """Describe a cell: layer, expert, state, uses and size."""
        shown = self._residency
        assert shown is not None
        index = row * shown.n_expert + expert
        value = shown.data[index]
        place = self.tr("Layer {layer}, expert {expert}").format(
            layer=shown.moe_layers[row], expert=expert
        )
        states = {
            cells.ABSENT: self.tr("not in memory"),
            cells.RESIDENT: self.tr("in memory"),
            cells.ARRIVING: self.tr("being read"),
        }
        found = {
            cells.HIT: self.tr("just used, a hit"),
            cells.LATE: self.tr("just used, late"),
            cells.MISS: self.tr("just used, a miss"),
        }
        words = [states.get(value & cells.WHERE, ""), found.get(value & cells.FOUND, "")]
        if value & cells.ON_HOST:
            words.append(self.tr("computed by the processor"))
        if value & cells.PINNED:
            words.append(self.tr("held by the layer in progress"))
        lines = [f"{place}: {', '.join(word for word in words if word)}"]
        if self._uses and self._n_token:
            lines.append(
                self.tr("used by {n} of {tokens}").format(
                    n=units.number(self._uses[index]), tokens=units.count(self._n_token, "token")
                )
            )
        if self.expert_bytes:
            lines.append(units.size(self.expert_bytes))
        return "; ".join(lines)

    def _update_description(self) -> None:
        shown = self._residency
        if shown is None:
            text = self.tr("No map")
        elif self.cursor_cell is not None and self.hasFocus():
            text = self.describe(*self.cursor_cell)
        else:
            n_in = sum(shown.data.translate(_IS_IN))
            text = self.tr(
                "{layers} layers of {experts} experts, {resident} experts in memory"
            ).format(
                layers=len(shown.moe_layers), experts=shown.n_expert, resident=units.number(n_in)
            )
        self.setAccessibleDescription(text)

    def _area(self) -> QRect:
        """Return the rectangle of all cells."""
        n_row = len(self._residency.moe_layers) if self._residency else 1
        room = self.width() - NUMBERS_WIDTH - 2
        return QRect(NUMBERS_WIDTH, 0, max(room, 1), map_height(n_row, self.height()))

    # Events

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(360, 180)

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._image_for = None

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            cell = self.cell_at(event.pos())
            if cell is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.describe(*cell), self)
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        cell = self.cell_at(event.position().toPoint())
        if cell is not None:
            self._go(*cell)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102
        step = _STEPS.get(Qt.Key(event.key()))
        if step is None or self._residency is None:
            super().keyPressEvent(event)
            return
        row, expert = self.cursor_cell or (0, 0)
        n_row, n_expert = len(self._residency.moe_layers), self._residency.n_expert
        row = min(max(row + step[0], 0), n_row - 1)
        self._go(row, min(max(expert + step[1], 0), n_expert - 1))

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: D102
        super().focusInEvent(event)
        if self._residency is not None and self.cursor_cell is None:
            self.cursor_cell = (0, 0)
        self._update_description()
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: D102
        super().focusOutEvent(event)
        self._update_description()
        self.update()

    def _go(self, row: int, expert: int) -> None:
        self.cursor_cell = row, expert
        self._update_description()
        changed = QAccessibleEvent(self, QAccessible.Event.DescriptionChanged)
        QAccessible.updateAccessibility(changed)
        place = self.mapToGlobal(self.cell_rect(row, expert).bottomRight())
        QToolTip.showText(place, self.describe(row, expert), self)
        self.update()

    # Painting

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.colour("surface"))
        shown = self._residency
        if shown is None:
            return
        area, ratio = self._area(), self.devicePixelRatioF()
        image = self._picture(round(area.width() * ratio), round(area.height() * ratio))
        if image.width() > area.width() * ratio:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(area, image)
        if self._view is View.STATE:
            self._paint_in_progress(painter, shown)
        if event.rect().left() < area.left():
            self._paint_numbers(painter, shown)
        if self.hasFocus():
            self._paint_focus(painter, area)
        painter.end()

    def _picture(self, width: int, height: int) -> QImage:
        assert self._residency is not None
        made_for = width, height, self._view, theme.colours()
        if self._image_for != made_for:
            shown = self._residency
            data, palette = shown.data, map_picture.state_palette()
            if self._view is View.USE:
                uses = self._uses or array("I", [0]) * len(data)
                data, palette = map_picture.use_bytes(data, uses), map_picture.use_palette()
            self._image = map_picture.picture(data, shown.n_expert, width, height, palette)
            self._image_for = made_for
        return self._image

    def _paint_in_progress(self, painter: QPainter, shown: Residency) -> None:
        """Frame each layer in progress: its experts are pinned."""
        pinned = shown.data.translate(_IS_PINNED)
        if not any(pinned):
            return
        painter.setPen(theme.colour("hit"))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for index in range(len(shown.moe_layers)):
            start = index * shown.n_expert
            if any(pinned[start : start + shown.n_expert]):
                painter.drawRect(self._row_rect(index).adjusted(-2, -1, 1, -1))

    def _paint_numbers(self, painter: QPainter, shown: Residency) -> None:
        n_row = len(shown.moe_layers)
        step = 1
        while step * self._area().height() < NUMBERS_APART * n_row:
            step *= 2
        font = QFont(self.font())
        font.setPixelSize(NUMBER_HEIGHT)
        painter.setFont(font)
        painter.setPen(theme.colour("faint"))
        for index in range(0, n_row, step):
            line = self._row_rect(index)
            place = QRect(0, line.y(), NUMBERS_WIDTH - 8, max(line.height(), NUMBER_HEIGHT))
            place.moveTop(max(line.center().y() - place.height() // 2, 0))
            alignment = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(place, alignment, str(shown.moe_layers[index]))

    def _paint_focus(self, painter: QPainter, area: QRect) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(theme.colour("focus"))
        painter.drawRect(area.adjusted(-2, 0, 0, -1))
        if self.cursor_cell is not None:
            place = self.cell_rect(*self.cursor_cell).adjusted(-2, -2, 1, 1)
            painter.setPen(QPen(theme.colour("window"), 4))
            painter.drawRect(place)
            painter.setPen(QPen(theme.colour("focus"), 2))
            painter.drawRect(place)


_IS_PINNED = bytes(value & cells.PINNED for value in range(256))
_IS_IN = bytes(1 if value & cells.WHERE else 0 for value in range(256))


def _shape(residency: Residency) -> tuple[int, int]:
    return len(residency.moe_layers), residency.n_expert
