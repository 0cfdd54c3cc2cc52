"""The cache rate in the bar at the top: the slider, or in words what the memory decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSlider, QVBoxLayout, QWidget

from app.state.slot_range import SlotRange
from app.text import units
from app.text.messages import localized
from app.widgets.elided_label import ElidedLabel
from app.widgets.parts import dress, filled, spaced, text_label
from backend.library.estimate import Speed
from backend.protocol.status import CacheFacts, ModelFacts

N_LEAST = 20  # characters of the decision that are shown before the model's name
SLIDER_WIDTH = 150
WORDS_WIDTH = 270  # beside the slider, where the bar is not compact
_ANY_WIDTH = 16_777_215  # Qt's QWIDGETSIZE_MAX
KEYS_SETTLE_MS = 500  # after the last arrow key, a position counts as chosen


@dataclass(frozen=True)
class RateState:
    """The contents of the control.

    slots: the numbers that the model allows; None: there is no choice. waits: the new value comes
    into force only after this answer. shows_off: it is the embedded model, with a small cache to
    see.
    """

    slots: SlotRange | None = None
    model: ModelFacts | None = None
    cache: CacheFacts | None = None
    asked_rate: float = 0.0
    waits: bool = False
    automatic: bool = False
    shows_off: bool = False


class RateControl(QWidget):
    """Steps are experts per layer. The value asked for and the one in force are both shown.

    `speed_of` says how many tokens per second a number of slots would give, or None where that is
    not known.

    Signals:
        chosen: (rate) the slider was released, or came to rest under the keyboard.
    """

    chosen = Signal(float)

    def __init__(self) -> None:
        super().__init__()
        self._state = RateState()
        self.speed_of: Callable[[int], Speed | None] = lambda _: None
        self._caption = text_label("muted", self.tr("Cache rate"))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(self.tr("Cache rate"))
        self.slider.setFixedWidth(SLIDER_WIDTH)
        self._caption.setBuddy(self.slider)
        self._compact = False
        self.asked = ElidedLabel(n_least=N_LEAST)  # of the slider, or decided by the memory
        self.asked.setProperty("role", "strong")
        self.force = ElidedLabel(n_least=N_LEAST)  # in force, or why there is no choice
        self.force.setProperty("role", "small")
        self.apply = QPushButton(self.tr("Apply now"))
        self.apply.setProperty("role", "little")
        self.apply.setAccessibleName(self.tr("Use this cache rate now"))
        self.apply.setToolTip(
            self.tr("The answer stops, the cache changes, and the answer goes on where it was.")
        )
        self.apply.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.apply.hide()
        self._words_box = QWidget()
        filled(spaced(QVBoxLayout(self._words_box), 1), 1, self.asked, self.force, 1)
        self._layout = spaced(QHBoxLayout(self), 12)
        filled(self._layout, 1, self._caption, self.slider, self._words_box, self.apply)
        self._settle = QTimer(self, singleShot=True, interval=KEYS_SETTLE_MS)
        self._settle.timeout.connect(self._choose)
        self.slider.valueChanged.connect(self._moved)
        self.slider.sliderReleased.connect(self._choose)
        self.show_state(RateState())

    def show_state(self, state: RateState) -> None:
        """Show the values that a model allows, the one asked for, and the one in force."""
        self._state = state
        slots = state.slots
        self._show_parts()
        self.apply.setVisible(slots is not None and state.waits and not state.automatic)
        self.slider.setEnabled(slots is not None)
        if slots is None:
            self._settle.stop()
            self._show_reason()
        elif state.automatic:
            self._settle.stop()
            self._show_decided(slots)
        else:
            if not self.slider.isSliderDown() and not self._settle.isActive():
                self._set_slider(slots.n_slot_min, slots.n_expert, slots.n_slot(state.asked_rate))
            self._show_labels(slots)
        self._fix_words()

    def set_compact(self, compact: bool) -> None:
        """Leave out the caption and a part of the words where there is little room."""
        if compact != self._compact:
            self._compact = compact
            self.show_state(self._state)

    def needed(self, compact: bool) -> int:
        """Return the width that is needed to cut no word, in pixels."""
        parts: list[QWidget] = [] if self._state.automatic else [self.slider]
        if not compact and not self._state.automatic:
            parts.append(self._caption)
        if not self.apply.isHidden():
            parts.append(self.apply)
        spacing = self._layout.spacing()
        return self._words_width(compact) + sum(_width(one) + spacing for one in parts)

    def _words_width(self, compact: bool) -> int:
        """Return the width of the words. While the slider is dragged, it stays the same."""
        force = (compact and self.force.short) or self.force.text()
        width = max(self.asked.sizeHint().width(), self.force.width_of(force))
        slots = self._state.slots
        if slots is None or self._state.automatic:
            return width
        widest = self.asked.width_of(self._words(slots, slots.n_expert))
        return max(width, widest, 0 if compact else WORDS_WIDTH)

    def _show_parts(self) -> None:
        self.slider.setVisible(not self._state.automatic)
        self._caption.setVisible(not self._compact and not self._state.automatic)

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fix_words()

    def _fix_words(self) -> None:
        """Give the words one width, so that the slider does not move while it is dragged."""
        is_fixed = self._state.slots is not None and not self._state.automatic
        width = self._words_width(self._compact)
        self._words_box.setMinimumWidth(width if is_fixed else 0)
        self._words_box.setMaximumWidth(width if is_fixed else _ANY_WIDTH)

    def _set_slider(self, least: int, most: int, value: int) -> None:
        self.slider.blockSignals(True)
        self.slider.setRange(least, most)
        self.slider.setPageStep(max((most - least) // 10, 1))
        self.slider.setValue(value)
        self.slider.blockSignals(False)

    def _show_reason(self) -> None:
        model, cache = self._state.model, self._state.cache
        self._set_slider(0, 1, 0)
        if model is None or cache is None:
            self.asked.setText(self.tr("No model"))
            self._set_force("", "small")
        else:
            kind = self.tr("No expert cache") if model.is_moe else self.tr("A dense model")
            self.asked.setText(kind)
            self._set_force(
                localized(cache.reason) or self.tr("It has no experts to cache."), "small"
            )
        self.slider.setAccessibleDescription(f"{self.asked.text()}. {self.force.text()}")

    def _show_decided(self, slots: SlotRange) -> None:
        cache = self._state.cache
        if cache is None:
            return
        n_slot = slots.n_expert if cache.mode == "plain" else cache.n_slot
        self.asked.setText(self._words(slots, n_slot))
        self.asked.setToolTip(self._explain(slots, n_slot))
        if self._state.shows_off:
            self._set_force(self.tr("Demo: cache kept small on purpose"), "small")
        elif cache.mode == "plain":
            self._set_force(self.tr("all of it fits in memory"), "small")
        else:
            self._show_speed(slots, n_slot)

    def _show_labels(self, slots: SlotRange) -> None:
        cache = self._state.cache
        if cache is None:
            return
        n_slot = self.slider.value()
        self.asked.setText(self._words(slots, n_slot))
        self.asked.setToolTip(self._explain(slots, n_slot))
        in_force = slots.n_expert if cache.mode == "plain" else cache.n_slot
        size = units.size(n_slot * slots.bytes_per_slot)
        if in_force == n_slot:
            self._show_speed(slots, n_slot)
        elif self._state.waits:
            self._set_force(
                self.tr("{size}, from the next answer; now {n} experts").format(
                    size=size, n=in_force
                ),
                "warning",
            )
        elif self.slider.isSliderDown() or self._settle.isActive():
            self._show_speed(slots, n_slot)
        else:
            self._set_force(
                self.tr("{size}; in force: {n} experts").format(size=size, n=in_force), "warning"
            )
            if cache.reason:
                self.force.setToolTip(localized(cache.reason))
        self.slider.setAccessibleDescription(
            self.tr("{words} per layer, {size}").format(
                words=self.asked.text(), size=self.force.text()
            )
        )

    def _words(self, slots: SlotRange, n_slot: int) -> str:
        return self.tr("{percent} \u00b7 {n} of {most} experts").format(
            percent=units.percent(slots.rate(n_slot)), n=n_slot, most=slots.n_expert
        )

    def _explain(self, slots: SlotRange, n_slot: int) -> str:
        return self.tr(
            "{n} of the {most} experts of each layer are kept in memory, {size} altogether.\n"
            "More needs more memory and waits less for the disk."
        ).format(n=n_slot, most=slots.n_expert, size=units.size(n_slot * slots.bytes_per_slot))

    def _show_speed(self, slots: SlotRange, n_slot: int) -> None:
        """Show the bytes of a number of slots and the speed that they would give."""
        size = units.size(n_slot * slots.bytes_per_slot)
        speed = self.speed_of(n_slot)
        if speed is None:
            self._set_force(self.tr("{size} of memory").format(size=size), "small")
            return
        tokens = units.token_speed(speed.tokens_per_s)
        if speed.is_measured:
            whole = self.tr("{size}, {speed} the last time").format(size=size, speed=tokens)
            self._set_force(whole, "small", tokens)
        else:
            whole = self.tr("{size}, about {speed}").format(size=size, speed=tokens)
            self._set_force(whole, "small", self.tr("about {speed}").format(speed=tokens))

    def _set_force(self, text: str, role: str, short: str = "") -> None:
        """Show the second line. short: for a bar without room for all of it."""
        self.force.short = short
        self.force.setText(text)
        self.force.setToolTip(text)
        self.force.setVisible(bool(text))
        dress(self.force, role)

    def _moved(self) -> None:
        if not self.slider.isSliderDown():
            self._settle.start()
        if self._state.slots is not None:
            self._show_labels(self._state.slots)
            self._fix_words()

    def _choose(self) -> None:
        self._settle.stop()
        if self._state.slots is not None:
            self.chosen.emit(self._state.slots.rate(self.slider.value()))


def _width(widget: QWidget) -> int:
    """Return the width that a widget wants, or has whatever it wants."""
    return max(widget.sizeHint().width(), widget.minimumWidth())
