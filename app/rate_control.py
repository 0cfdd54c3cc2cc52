"""The cache-rate slider, with what each position means in %, experts and GiB."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSlider, QVBoxLayout, QWidget

from app import units
from app.facts import CacheFacts, ModelFacts, SlotRange

KEYS_SETTLE_MS = 500  # after the last arrow key, a position counts as chosen


class RateControl(QWidget):
    """Steps are experts per layer. What was asked for and what is in force are both shown.

    Signals:
        chosen: (rate) the slider was released, or came to rest under the keyboard.
    """

    chosen = Signal(float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._slots: SlotRange | None = None
        self._cache: CacheFacts | None = None
        self._waits = False
        self._caption = QLabel("Cache rate")
        self._caption.setProperty("role", "muted")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName("Cache rate")
        self.slider.setMinimumWidth(90)
        self.slider.setMaximumWidth(200)
        self._caption.setBuddy(self.slider)
        self._asked = QLabel()
        self._asked.setProperty("role", "strong")
        self._force = QLabel()
        self._force.setProperty("role", "small")
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addStretch(1)
        words.addWidget(self._asked)
        words.addWidget(self._force)
        words.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        layout.addStretch(1)
        layout.addWidget(self._caption)
        layout.addWidget(self.slider, 100)
        layout.addLayout(words)
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(KEYS_SETTLE_MS)
        self._settle.timeout.connect(self._choose)
        self.slider.valueChanged.connect(self._moved)
        self.slider.sliderReleased.connect(self._choose)
        self.show_cache(None, None, None, 0.0, False)

    @property
    def asked_text(self) -> str:
        """The label of the slider's position."""
        return self._asked.text()

    @property
    def force_text(self) -> str:
        """The line below: what is in force, or why there is no choice."""
        return self._force.text()

    def show_cache(
        self,
        slots: SlotRange | None,
        model: ModelFacts | None,
        cache: CacheFacts | None,
        asked_rate: float,
        waits: bool,
    ) -> None:
        """Show what a model allows, what was asked for, and what is in force."""
        self._slots, self._cache, self._waits = slots, cache, waits
        self.slider.setEnabled(slots is not None)
        if slots is None:
            self._settle.stop()
            self._show_reason(model, cache)
            return
        if not self.slider.isSliderDown() and not self._settle.isActive():
            self.slider.blockSignals(True)
            self.slider.setRange(slots.n_slot_min, slots.n_expert)
            self.slider.setPageStep(max((slots.n_expert - slots.n_slot_min) // 10, 1))
            self.slider.setValue(slots.n_slot(asked_rate))
            self.slider.blockSignals(False)
        self._show_labels()

    def set_compact(self, compact: bool) -> None:
        """Leave out the caption where there is little room."""
        self._caption.setVisible(not compact)

    def _show_reason(self, model: ModelFacts | None, cache: CacheFacts | None) -> None:
        self.slider.blockSignals(True)
        self.slider.setRange(0, 1)
        self.slider.setValue(0)
        self.slider.blockSignals(False)
        if model is None or cache is None:
            self._asked.setText("No model")
            self._set_force("", "small")
        else:
            kind = "No expert cache" if model.is_moe else "A dense model"
            self._asked.setText(kind)
            self._set_force(cache.reason or "It has no experts to cache.", "small")
        self.slider.setAccessibleDescription(f"{self._asked.text()}. {self._force.text()}")

    def _show_labels(self) -> None:
        slots, cache = self._slots, self._cache
        if slots is None or cache is None:
            return
        n_slot = self.slider.value()
        words = f"{units.percent(n_slot / slots.n_expert)} · {n_slot} of {slots.n_expert} experts"
        self._asked.setText(words)
        self._asked.setToolTip(
            f"{n_slot} of the {slots.n_expert} experts of each layer are kept in memory, "
            f"{units.size(n_slot * slots.bytes_per_slot)} altogether.\n"
            "More needs more memory and waits less for the disk."
        )
        in_force = slots.n_expert if cache.mode == "plain" else cache.n_slot
        size = units.size(n_slot * slots.bytes_per_slot)
        if in_force == n_slot:
            self._set_force(f"{size} of memory", "small")
        elif self._waits:
            self._set_force(f"{size}, from the next answer; now {in_force} experts", "warning")
        else:
            self._set_force(f"{size}; in force: {in_force} experts", "warning")
        self.slider.setAccessibleDescription(f"{words} per layer, {self._force.text()}")

    def _set_force(self, text: str, role: str) -> None:
        self._force.setText(text)
        self._force.setToolTip(text)
        self._force.setVisible(bool(text))
        if self._force.property("role") != role:
            self._force.setProperty("role", role)
            self._force.style().unpolish(self._force)
            self._force.style().polish(self._force)

    def _moved(self) -> None:
        self._show_labels()
        if not self.slider.isSliderDown():
            self._settle.start()

    def _choose(self) -> None:
        self._settle.stop()
        if self._slots is not None:
            self.chosen.emit(self._slots.rate(self.slider.value()))
