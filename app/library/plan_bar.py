"""The memory plan of a model that is not loaded, as a bar with a legend."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.text import units
from app.text.language import translate
from app.widgets import theme
from backend.memory.plan import MemoryPlan

_BAR = 16  # pixels
_GAP = 10
_MARK = 9


def parts(plan: MemoryPlan) -> list[tuple[str, str, int]]:
    """Return the parts in the order of the bar: (colour's name, word, bytes)."""
    rest = plan.available_bytes - plan.total_bytes - plan.headroom_bytes
    return [
        ("dense", translate("library", "always needed"), plan.dense_bytes),
        ("resident", translate("library", "experts"), plan.expert_bytes),
        ("kv", translate("library", "context"), plan.kv_bytes),
        ("compute", translate("library", "computing"), plan.compute_bytes + plan.process_bytes),
        ("other", translate("library", "headroom"), plan.headroom_bytes),
        ("free", translate("library", "free"), rest)
        if rest >= 0
        else ("danger", translate("library", "missing"), -rest),
    ]


class PlanBar(QWidget):
    """A bar of the free memory. If the plan needs more, a line marks the end of that memory."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: MemoryPlan | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Memory plan"))

    def show_plan(self, plan: MemoryPlan | None) -> None:
        """Show a plan; None clears the bar."""
        self._plan = plan
        shown = parts(plan) if plan is not None else []
        words = ", ".join(f"{word} {units.size(n_bytes)}" for _, word, n_bytes in shown)
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(400, self.heightForWidth(400))

    def hasHeightForWidth(self) -> bool:  # noqa: D102
        return True

    def heightForWidth(self, width: int) -> int:  # noqa: D102
        line = self.fontMetrics().height() + 4
        return _BAR + _GAP + line * (1 + max((y for _, _, y in self._legend(width)), default=0))

    def _legend(self, width: int) -> list[tuple[tuple[str, str, int], int, int]]:
        """Return the position of each part: (part, x in pixels, line)."""
        placed, x, line = [], 0, 0
        for part in parts(self._plan) if self._plan is not None else []:
            if not part[2]:
                continue
            text = f"{part[1]} {units.size(part[2])}"
            need = _MARK + 6 + self.fontMetrics().horizontalAdvance(text) + 18
            if x and x + need > width:
                x, line = 0, line + 1
            placed.append((part, x, line))
            x += need
        return placed

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        plan = self._plan
        if plan is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.save()
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(0, 0, self.width(), _BAR), 4, 4)
        painter.setClipPath(shape)
        drawn = [part for part in parts(plan) if part[2] > 0 and part[0] != "danger"]
        whole = max(sum(n_bytes for _, _, n_bytes in drawn), 1)
        x = 0.0
        for name, _, n_bytes in drawn:
            width = n_bytes / whole * self.width()
            gap = 1 if width > 3 else 0
            painter.fillRect(QRectF(x, 0, width - gap, _BAR), theme.colour(name))
            x += width
        painter.restore()
        if not plan.fits:
            end = plan.available_bytes / whole * self.width()
            painter.setPen(QPen(theme.colour("danger"), 2.5))
            painter.drawLine(QPointF(end, 0), QPointF(end, _BAR + 5))
        metrics = self.fontMetrics()
        for (name, word, n_bytes), left, line in self._legend(self.width()):
            top = _BAR + _GAP + line * (metrics.height() + 4)
            mark = QRectF(left, top + (metrics.height() - _MARK) / 2, _MARK, _MARK)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour(name))
            painter.drawRoundedRect(mark, 2, 2)
            painter.setPen(theme.colour("muted"))
            text = f"{word} {units.size(n_bytes)}"
            painter.drawText(left + _MARK + 6, top + metrics.ascent(), text)
        painter.end()
