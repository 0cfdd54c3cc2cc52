"""The machine's memory: the model's dense part, its experts, other programs, and free memory."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.text import units
from app.widgets import theme
from backend.protocol.status import CacheFacts, ModelFacts
from backend.system.memory import memory_facts


@dataclass(frozen=True)
class Memory:
    """The division of the memory, in bytes."""

    total: int
    free: int
    dense: int = 0
    experts: int = 0

    @property
    def other(self) -> int:
        """Return the bytes of all other uses."""
        return max(self.total - self.free - self.dense - self.experts, 0)

    @classmethod
    def measure(cls, model: ModelFacts | None, cache: CacheFacts | None) -> Memory:
        """Read the system's figures, with control groups, and the model's from its facts."""
        system = memory_facts()
        if model is None or cache is None:
            return cls(system.total_bytes, system.available_bytes)
        dense = model.dense_bytes
        experts = cache.bytes if cache.mode == "cached" else model.expert_bytes_total
        if cache.device not in ("", "cpu"):  # most of the model is in the memory of devices
            dense, experts = cache.ram_dense_bytes, cache.host_bytes + cache.cpu_bytes
        return cls(system.total_bytes, system.available_bytes, dense, experts)


class MemoryBar(QWidget):
    """A bar whose width is the memory of the machine."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory(0, 0)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(14)
        self.setAccessibleName(self.tr("Memory"))

    def parts(self) -> list[tuple[str, str, int]]:
        """Return the parts of the bar: (colour's name, word, bytes)."""
        memory = self._memory
        return [
            ("dense", self.tr("always needed"), memory.dense),
            ("resident", self.tr("experts"), memory.experts),
            ("other", self.tr("other programs"), memory.other),
            ("free", self.tr("free"), memory.free),
        ]

    def show_memory(self, memory: Memory) -> None:
        """Show the division of the memory."""
        self._memory = memory
        words = ", ".join(f"{word} {units.size(n_byte)}" for _, word, n_byte in self.parts())
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        self.update()

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(360, 14)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        if self._memory.total <= 0:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(self.rect()), 4, 4)
        painter.setClipPath(shape)
        painter.setPen(Qt.PenStyle.NoPen)
        parts = [part for part in self.parts() if part[2] > 0]
        whole = max(sum(n_byte for _, _, n_byte in parts), self._memory.total)
        x = 0.0
        for name, _, n_byte in parts:
            width = max(n_byte / whole * self.width(), 3.0)
            painter.fillRect(QRectF(x, 0, width - 1, self.height()), theme.colour(name))
            x += width
        painter.end()
