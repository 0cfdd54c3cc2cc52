"""A bar for each layer beside the map: the time that the answer waited for its experts."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.panel.expert_map import map_height
from app.panel.map_picture import GAP_FROM, row_at, row_top
from app.text import units
from app.widgets import theme

WIDTH = 58


class StallBars(QWidget):
    """The rows align with those of the map. The longest bar fills the width."""

    def __init__(self) -> None:
        super().__init__()
        self._layers: tuple[int, ...] = ()
        self._stall_s: list[float] = []
        self._on_host: list[int] = []
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.setFixedWidth(WIDTH)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setAccessibleName(self.tr("Waiting time of each layer"))

    @property
    def stall_s(self) -> list[float]:
        """Return the stall of each layer, in seconds."""
        return self._stall_s

    @property
    def longest_s(self) -> float:
        """Return the longest stall of a layer, in seconds."""
        return max(self._stall_s, default=0.0)

    def show_stall(
        self, layers: tuple[int, ...], stall_s: dict[int, float], on_host: dict[int, int]
    ) -> None:
        """Show each layer's stall in seconds, and the experts that the processor computed."""
        self._layers = layers
        self._stall_s = [stall_s.get(layer, 0.0) for layer in layers]
        self._on_host = [on_host.get(layer, 0) for layer in layers]
        if layers and self.longest_s > 0:
            worst = layers[self._stall_s.index(self.longest_s)]
            text = self.tr("Layer {layer} waited longest, {time}").format(
                layer=worst, time=units.short_time(self.longest_s)
            )
        else:
            text = self.tr("No layer waited")
        self.setAccessibleDescription(text)
        self.update()

    def describe(self, row: int) -> str:
        """Describe a layer: its stall, and the experts that the processor computed."""
        text = self.tr("Layer {layer} waited {time}").format(
            layer=self._layers[row], time=units.short_time(self._stall_s[row])
        )
        if n := self._on_host[row]:
            of_it = self.tr("the processor computed {n}").format(n=units.count(n, "expert"))
            text = f"{text}; {of_it}"
        return text

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(WIDTH, 180)

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent) and self._layers:
            n_row = len(self._layers)
            row = row_at(event.pos().y(), n_row, map_height(n_row, self.height()))
            if 0 <= row < len(self._layers):
                QToolTip.showText(event.globalPos(), self.describe(row), self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.colour("surface"))
        longest = self.longest_s
        if longest <= 0:
            return
        painter.setPen(Qt.PenStyle.NoPen)
        n_row = len(self._layers)
        height = map_height(n_row, self.height())
        for index, stall_s in enumerate(self._stall_s):
            share = stall_s / longest
            top, end = (row_top(i, n_row, height) for i in (index, index + 1))
            gap = 1 if end - top >= GAP_FROM else 0
            place = QRectF(0, top, share * self.width(), end - top - gap)
            painter.fillRect(place, theme.colour("stall"))
        painter.end()
