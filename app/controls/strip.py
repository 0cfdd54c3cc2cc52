"""The strip below the top bar: method, context, threads, and what of it is in force."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.controls.remote_device import remote_parts
from app.state.engine_choice import EngineChoice
from app.text import units
from app.text.messages import localized
from app.widgets.fields import DropDown, Number
from app.widgets.icon_button import IconButton
from app.widgets.mode_switch import ModeSwitch
from backend.methods.catalogue import METHODS, RUNNABLE
from backend.protocol.status import CacheFacts, ModelFacts

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
N_THREAD_MAX = 256
_COLUMN = 144
_ANOTHER = ""  # the last entry of the devices: one that is not in the list yet


@dataclass(frozen=True)
class InForce:
    """What the engine runs with, and whether what is asked for comes only after this answer."""

    model: ModelFacts | None = None
    cache: CacheFacts | None = None
    waits: bool = False


class ControlsStrip(QFrame):
    """Shows an EngineChoice beside what is in force; the cache rate is in the bar above.

    Signals:
        chosen: (EngineChoice) the user wants this.
        closed: the user wants the strip away.
        remote_wanted: the user wants to name another machine.
    """

    chosen = Signal(object)
    closed = Signal()
    remote_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("controlsStrip")
        self.setAccessibleName(self.tr("Engine controls"))
        self._choice = EngineChoice()
        self._force: dict[str, QLabel] = {}
        self.mode = ModeSwitch()
        self.method = DropDown()
        for name in RUNNABLE:
            self.method.addItem(name, name)
            self.method.setItemData(
                self.method.count() - 1,
                localized(METHODS[name].sentence),
                Qt.ItemDataRole.ToolTipRole,
            )
        self.context = DropDown()
        self.kv = DropDown()
        for name, words in (
            ("f16", self.tr("16 bits")),
            ("q8_0", self.tr("8 bits")),
            ("q4_0", self.tr("4 bits")),
        ):
            self.kv.addItem(words, name)
        self.kv.setToolTip(
            self.tr("How the conversation is remembered: fewer bits need less memory.")
        )
        self.device = DropDown()
        self._devices: list[tuple[str, str]] = []
        self._remote: list[str] = []
        self._fill_devices()
        self.hybrid = DropDown()
        for name, words in (
            ("off", self.tr("copy")),
            ("auto", self.tr("both")),
            ("cpu-only", self.tr("compute")),
        ):
            self.hybrid.addItem(words, name)
        self.hybrid.setToolTip(
            self.tr(
                "Experts that the device lacks are copied to its memory, or computed by the "
                "processor where they lie."
            )
        )
        self.threads = Number(0, N_THREAD_MAX)
        self.threads.setSpecialValueText(self.tr("automatic"))
        self._sentence = QLabel()
        self._sentence.setProperty("role", "small")
        self._sentence.setWordWrap(True)
        close = IconButton("close", self.tr("Close the engine controls"), side=28)
        close.clicked.connect(self.closed)
        fields = QGridLayout()
        fields.setHorizontalSpacing(22)
        fields.setVerticalSpacing(4)
        caption = QLabel(self.tr("Settings"))
        caption.setProperty("role", "small")
        self._fields = fields
        self._columns: list[tuple[QWidget, ...]] = [(caption, self.mode)]
        self._arranged = (0, 0)  # columns, and the fields in them
        self._has_device = False  # one computes, so that experts may be missing there
        self._add("method", self.tr("Method"), self.method)
        self._add("context", self.tr("Context in tokens"), self.context)
        self._add("kv", self.tr("Attention cache"), self.kv)
        self._add("device", self.tr("Device"), self.device)
        self._of_device = self._add("hybrid", self.tr("Missing experts"), self.hybrid)
        self._add("threads", self.tr("Threads"), self.threads)
        fields.setColumnStretch(len(self._columns), 1)
        for widget in self._of_device:
            widget.hide()
        self._arrange()
        inner = QVBoxLayout()
        inner.setSpacing(8)
        inner.addLayout(fields)
        inner.addWidget(self._sentence)
        self._offer = QLabel()
        self._offer.setWordWrap(True)
        self._offer.setProperty("role", "small")
        self.pack = QPushButton(self.tr("Pack the experts"))
        self.pack.setAccessibleName(self.tr("Pack the experts into a second file"))
        self.unpack = QPushButton(self.tr("Stop packing"))
        self.unpack.setAccessibleName(self.tr("Stop packing the experts"))
        offer = QHBoxLayout()
        offer.addWidget(self._offer, 1)
        offer.addWidget(self.pack)
        offer.addWidget(self.unpack)
        inner.addLayout(offer)
        self.show_offer("", False, False)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(24, 12, 14, 12)
        layout.addLayout(inner, 1)
        layout.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        self.method.activated.connect(self._choose)
        self.context.activated.connect(self._choose)
        self.kv.activated.connect(self._choose)
        self.device.activated.connect(self._choose)
        self.hybrid.activated.connect(self._choose)
        self.threads.editingFinished.connect(self._choose)

    @property
    def sentence(self) -> str:
        """What the choice means, in words."""
        return self._sentence.text()

    def in_force(self, name: str) -> str:
        """Return what is said to be in force of a field, by its name."""
        return self._force[name].text()

    def show_devices(self, devices: list[tuple[str, str]]) -> None:
        """Offer these devices, by name and description, beside the processor."""
        self._devices = devices
        self._fill_devices()

    def show_remote(self, addresses: list[str]) -> None:
        """Offer other machines that the user trusts."""
        self._remote = list(addresses)
        self._fill_devices()

    def _fill_devices(self) -> None:
        self.device.clear()
        self.device.addItem(self.tr("automatic"), "auto")
        self.device.addItem(self.tr("processor"), "cpu")
        for name, description in self._devices:
            self.device.addItem(f"{name}: {description}", name)
        for address in self._remote:
            self.device.addItem(address, address)
        self.device.addItem(self.tr("another machine\u2026"), _ANOTHER)
        self._show_device()

    def _show_device(self) -> None:
        device = self._choice.device
        if self.device.findData(device) < 0:
            self.device.insertItem(self.device.count() - 1, device, device)
        self._pick(self.device, device)
        self.device.setToolTip(self.device.currentText())  # an address may be too long for it

    @property
    def offer(self) -> str:
        """What is said about a pack."""
        return self._offer.text()

    def show_offer(self, words: str, can_write: bool, is_writing: bool) -> None:
        """Say what a pack would bring, or how far one is written."""
        self._offer.setText(words)
        self._offer.setVisible(bool(words))
        self.pack.setVisible(can_write)
        self.unpack.setVisible(is_writing)

    def show_choice(self, choice: EngineChoice, force: InForce) -> None:
        """Show what is asked for, and what is in force."""
        self._choice = choice
        manual = not choice.automatic
        self.mode.show_choice(choice.automatic)
        self.method.setEnabled(manual)
        self.context.setEnabled(manual)
        self._pick(self.method, "auto" if choice.automatic else choice.method)
        model, cache = force.model, force.cache
        n_context = model.context_length if model is not None else 0
        shown = n_context if choice.automatic and n_context else choice.context_length
        self._fill_contexts(shown)
        self._pick(self.kv, choice.kv_type)
        self._show_device()
        self._pick(self.hybrid, choice.hybrid)
        self._show_hybrid(cache)
        if not self.threads.hasFocus():
            self.threads.setValue(choice.n_thread)
        self._sentence.setText(self._words(choice))
        if model is None or cache is None:
            for name in self._force:
                self._say(name, "", False)
            return
        wanted = "auto" if choice.automatic else choice.method
        method = self.tr("stock llama.cpp") if cache.method == "stock" else cache.method
        # A stock method is in force as what it is; `auto` may find stock to be the better choice.
        same_method = cache.asked_method == wanted
        self._say("method", method, not same_method)
        asked_context = 0 if choice.automatic else choice.context_length
        differs = bool(asked_context) and n_context != asked_context
        self._say("context", units.count(n_context, "token"), differs)
        kv = self._words_of(self.kv, cache.kv_type)
        self._say("kv", kv, cache.kv_type not in ("", choice.kv_type))
        device = (
            self._words_of(self.device, cache.device) if cache.device == "cpu" else cache.device
        )
        self._say("device", device, _is_other(choice.device, cache.device))
        hybrid = self._words_of(self.hybrid, cache.hybrid) if cache.mode == "cached" else ""
        self._say("hybrid", hybrid, cache.hybrid != choice.hybrid)
        self._say("threads", str(cache.n_thread), choice.n_thread not in (0, cache.n_thread))
        if force.waits:
            self._sentence.setText(
                self.tr("This comes into force with the next answer.") + " " + self.sentence
            )
        elif cache.reason:
            self._sentence.setText(f"{self.sentence} {localized(cache.reason)}")
        if self._has_device and choice.hybrid != "off":
            self._sentence.setText(f"{self.sentence} {self._words_of_hybrid()}")

    def _words_of_hybrid(self) -> str:
        return self.tr(
            "Experts computed by the processor: the answer is llama.cpp's but for rounding, and "
            "the same question may get another one."
        )

    def _words(self, choice: EngineChoice) -> str:
        if choice.automatic:
            return self.tr(
                "The cache gets the memory that is free and the context what that permits; "
                "prefetching and eviction are chosen by what is measured while it answers."
            )
        return localized(METHODS[choice.method].sentence)

    def _add(self, name: str, title: str, field: QWidget) -> tuple[QWidget, ...]:
        """Put a field in, and return its column: what is above it, itself, and what is below."""
        caption = QLabel(title)
        caption.setProperty("role", "small")
        caption.setBuddy(field)
        field.setAccessibleName(title)
        field.setFixedWidth(_COLUMN)
        force = QLabel()
        force.setProperty("role", "small")
        force.setFixedWidth(_COLUMN)
        self._force[name] = force
        self._columns.append((caption, field, force))
        return self._columns[-1]

    def _show_hybrid(self, cache: CacheFacts | None) -> None:
        """Ask about experts that a device lacks where one computes, and may lack some."""
        self._has_device = cache is not None and cache.device not in ("", "cpu")
        self._arrange()
        for widget in self._of_device:
            widget.setVisible(self._has_device)
        self.hybrid.setEnabled(cache is not None and cache.mode == "cached")

    def _arrange(self) -> None:
        """Put the fields that are shown into as many columns as there is room for."""
        shown = [w for w in self._columns if self._has_device or w is not self._of_device]
        n_column = min(max((self.width() - 90) // (_COLUMN + 26), 1), len(shown))
        if (n_column, len(shown)) == self._arranged:
            return
        self._arranged = n_column, len(shown)
        for number, widgets in enumerate(shown):
            row, column = divmod(number, n_column)
            for line, widget in enumerate(widgets):
                self._fields.addWidget(widget, 3 * row + line, column)

    def minimumSizeHint(self) -> QSize:  # noqa: D102, N802
        # As many columns as there are now must not keep the window from becoming narrower.
        return QSize(_COLUMN + 90, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        self._arrange()

    def _say(self, name: str, value: str, differs: bool) -> None:
        label = self._force[name]
        label.setText(self.tr("in force: {value}").format(value=value) if value else " ")
        role = "warning" if differs else "small"
        if label.property("role") != role:
            label.setProperty("role", role)
            label.style().unpolish(label)
            label.style().polish(label)
        fields: dict[str, QWidget] = {
            "method": self.method, "context": self.context, "threads": self.threads, "kv": self.kv,
            "device": self.device, "hybrid": self.hybrid,
        }  # fmt: skip
        fields[name].setAccessibleDescription(label.text().strip())

    def _words_of(self, field: DropDown, value: str) -> str:
        """What a value is called in a list."""
        return field.itemText(field.findData(value)) or value

    def _fill_contexts(self, shown: int) -> None:
        wanted = sorted({*CONTEXTS, shown})
        if [self.context.itemData(i) for i in range(self.context.count())] != wanted:
            self.context.clear()
            for n_token in wanted:
                self.context.addItem(units.number(n_token), n_token)
        self._pick(self.context, shown)

    def _pick(self, field: DropDown, value: object) -> None:
        index = field.findData(value)
        if index >= 0 and index != field.currentIndex():
            field.setCurrentIndex(index)

    def _choose(self, *_: object) -> None:
        if self.device.currentData() == _ANOTHER:
            self._show_device()
            self.remote_wanted.emit()
            return
        choice = replace(
            self._choice,
            n_thread=self.threads.value(),
            kv_type=str(self.kv.currentData()),
            device=str(self.device.currentData()),
            hybrid=str(self.hybrid.currentData()),
        )
        if not choice.automatic:
            choice = replace(
                choice,
                method=str(self.method.currentData()),
                context_length=int(self.context.currentData()),
            )
        if choice != self._choice:
            self.chosen.emit(choice)


def _is_other(asked: str, device: str) -> bool:
    """Whether something else computes than was asked for; a remote one has a name of its own."""
    if asked == "auto":
        return False
    return device == "cpu" if remote_parts(asked) else asked.lower() != device.lower()
