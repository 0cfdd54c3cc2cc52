"""The last tokens as bars: computing, waiting for experts, and what is not explained."""

from __future__ import annotations

import statistics

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import theme, units
from app.facts import TokenTime

N_SHOWN = 64
OUTLIER = 4.0  # times the median


class TokenStrip(QWidget):
    """The newest token is at the right.

    The slowest token fills the height, unless it is an outlier that would flatten all the others:
    then the scale ends before it, and its bar has a bright end.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tokens: tuple[TokenTime, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(44)
        self.setMaximumHeight(120)
        self.setAccessibleName("Time of the last tokens")

    @property
    def slowest_s(self) -> float:
        """The time of the slowest token shown."""
        return max((token.total_s for token in self._tokens), default=0.0)

    @property
    def scale_s(self) -> float:
        """The time that fills the height."""
        if not self._tokens:
            return 0.0
        usual_s = statistics.median(token.total_s for token in self._tokens)
        return min(self.slowest_s, OUTLIER * usual_s)

    @property
    def scale_words(self) -> str:
        """The scale in words; empty without tokens."""
        if self.scale_s <= 0:
            return ""
        words = f"0 to {units.short_time(self.scale_s)}"
        if self.slowest_s > self.scale_s:
            words += f", slowest {units.short_time(self.slowest_s)}"
        return words

    def show_tokens(self, tokens: tuple[TokenTime, ...]) -> None:
        """Show the last of these."""
        self._tokens = tokens[-N_SHOWN:]
        self.setAccessibleDescription(
            f"The slowest of the last {len(self._tokens)} took {units.short_time(self.slowest_s)}"
            if self._tokens
            else "No tokens"
        )
        self.update()

    def sizeHint(self) -> QSize:  # noqa: D102, N802
        return QSize(360, 84)

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            index = int(event.pos().x() / self._step()) - (N_SHOWN - len(self._tokens))
            if 0 <= index < len(self._tokens):
                token = self._tokens[index]
                QToolTip.showText(
                    event.globalPos(),
                    f"{units.short_time(token.total_s)}: "
                    f"compute {units.short_time(token.compute_s)}, "
                    f"waiting {units.short_time(token.stall_s)}, "
                    f"unexplained {units.short_time(token.other_s)}",
                    self,
                )
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102, N802
        painter = QPainter(self)
        painter.setPen(theme.colour("border"))
        bottom = self.height() - 1
        painter.drawLine(0, bottom, self.width(), bottom)
        scale = self.scale_s
        if scale > 0:
            painter.setPen(Qt.PenStyle.NoPen)
            step = self._step()
            x = (N_SHOWN - len(self._tokens)) * step
            for token in self._tokens:
                y = float(bottom)
                for name, part_s in (
                    ("compute", token.compute_s), ("stall", token.stall_s),
                    ("other", token.other_s),
                ):  # fmt: skip
                    height = min(part_s / scale * bottom, y)
                    y -= height
                    painter.fillRect(QRectF(x, y, max(step - 1, 1), height), theme.colour(name))
                if token.total_s > scale:
                    painter.fillRect(QRectF(x, 0, max(step - 1, 1), 2), theme.colour("text"))
                x += step
        painter.end()

    def _step(self) -> float:
        return self.width() / N_SHOWN
