"""The strip below the top bar: the engine's settings, each beside its value in force."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt, Signal
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
from app.text.language import translate
from app.text.messages import localized
from app.text.methods import title_of
from app.widgets import theme
from app.widgets.fields import DropDown, Number
from app.widgets.icon_button import IconButton
from app.widgets.mode_switch import ModeSwitch
from app.widgets.parts import dress, filled, text_label
from backend.methods.catalogue import METHODS, RUNNABLE
from backend.protocol.settings import Rule
from backend.protocol.status import CacheFacts, ModelFacts

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_COLUMN = 144
_BY_HAND = ("method", "context_length")  # resting while the engine is automatic
_ANOTHER = ""  # the last entry of devices: one that is not in the list yet


@dataclass(frozen=True)
class InForce:
    """The settings in force, and whether the ones asked for wait for the end of this answer."""

    model: ModelFacts | None = None
    cache: CacheFacts | None = None
    waits: bool = False


class ControlsStrip(QFrame):
    """Shows an EngineChoice beside the settings in force; the cache rate is in the bar above.

    Every rule with a title has a control here. The lists of methods, contexts and devices depend on
    more than their rule.

    Signals:
        chosen: (EngineChoice) the user wants this.
        closed: the user wants the strip away.
        remote_wanted: the user wants to name another machine.
    """

    chosen = Signal(object)
    closed = Signal()
    remote_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("controlsStrip")
        self.setAccessibleName(self.tr("Engine controls"))
        self._choice, self._shown_force = EngineChoice(), InForce()
        self._rules = {name: rule for name, rule in EngineChoice.rules().items() if rule.title}
        self.force: dict[str, QLabel] = {}  # the words for the values in force, by setting
        self.mode = ModeSwitch()
        method, self._context, self._device = DropDown(), DropDown(), DropDown()
        for name in RUNNABLE:
            method.addItem(title_of(name), name)
            method.setItemData(
                method.count() - 1,
                localized(METHODS[name].sentence),
                Qt.ItemDataRole.ToolTipRole,
            )
        # While the list is open, the sentence is that of the row under the pointer.
        method.highlighted.connect(self._describe_method)
        method.list_closed.connect(lambda: self.show_choice(self._choice, self._shown_force))
        special = {
            "method": method,
            "context_length": self._context,
            "device": self._device,
        }
        self.controls: dict[str, DropDown | Number] = {
            name: special[name] if name in special else _control(rule)
            for name, rule in self._rules.items()
        }
        self._devices: list[tuple[str, str]] = []
        self._remote: list[str] = []
        self._fill_devices()
        self._sentence = text_label("small", wraps=True)
        close = IconButton("close", self.tr("Close the engine controls"), side=28)
        close.clicked.connect(self.closed)
        # The outer layouts come first: PySide wraps the items of a layout that is filled when it is
        # added, and a wrapper outlives its item when _arrange() moves a field.
        layout = QHBoxLayout(self)
        layout.setContentsMargins(24, 12, 14, 12)
        inner = QVBoxLayout()
        inner.setSpacing(8)
        layout.addLayout(inner, 1)
        layout.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        fields = QGridLayout()
        inner.addLayout(fields)
        fields.setHorizontalSpacing(22)
        fields.setVerticalSpacing(4)
        caption = text_label("small", self.tr("Settings"))
        self._fields = fields
        self._columns: dict[str, tuple[QWidget, ...]] = {"": (caption, self.mode)}
        self._arranged = (0, 0, 0)  # columns, the fields in them, and the width of each
        self._has_device = False  # one computes, so that experts may be missing there
        for name, rule in self._rules.items():
            self._add(name, rule, self.controls[name])
        fields.setColumnStretch(len(self._columns), 1)
        self._show_on_device(None)
        inner.addWidget(self._sentence)
        self._offer = QLabel()
        self._offer.setWordWrap(True)
        self._offer.setProperty("role", "small")
        self.pack = QPushButton(self.tr("Pack the experts"))
        self.pack.setAccessibleName(self.tr("Pack the experts into a second file"))
        self.stripe = QPushButton(self.tr("On two drives\u2026"))
        self.stripe.setAccessibleName(self.tr("Pack the experts onto two drives"))
        self.stripe.setToolTip(self.tr("Both drives are read at once."))
        self.unpack = QPushButton(self.tr("Stop packing"))
        self.unpack.setAccessibleName(self.tr("Stop packing the experts"))
        offer = (self._offer, 1), self.pack, self.stripe, self.unpack
        inner.addLayout(filled(QHBoxLayout(), *offer))
        self.show_offer("", can_write=False, can_stripe=False, is_writing=False)

    @property
    def sentence(self) -> str:
        """The meaning of the choice, in words."""
        return self._sentence.text()

    def show_devices(self, devices: list[tuple[str, str]]) -> None:
        """Offer these devices, by name and description, beside the processor."""
        self._devices = devices
        self._fill_devices()

    def show_remote(self, addresses: list[str]) -> None:
        """Offer other machines that the user trusts."""
        self._remote = list(addresses)
        self._fill_devices()

    def _fill_devices(self) -> None:
        self._device.clear()
        self._device.addItem(self.tr("automatic"), "auto")
        self._device.addItem(self.tr("processor"), "cpu")
        for name, description in self._devices:
            self._device.addItem(f"{name}: {description}", name)
        for address in self._remote:
            self._device.addItem(address, address)
        self._device.addItem(self.tr("another machine\u2026"), _ANOTHER)
        self._show_device()

    def _show_device(self) -> None:
        device = self._choice.device
        if self._device.findData(device) < 0:
            self._device.insertItem(self._device.count() - 1, device, device)
        self._pick(self._device, device)
        self._device.setToolTip(self._device.currentText())  # an address may be too long for it

    @property
    def offer(self) -> str:
        """The sentence about a pack."""
        return self._offer.text()

    def show_offer(
        self, words: str, *, can_write: bool, can_stripe: bool, is_writing: bool
    ) -> None:
        """Say how much a pack would gain, or how far one is written."""
        self._offer.setText(words)
        self._offer.setVisible(bool(words))
        self.pack.setVisible(can_write)
        self.stripe.setVisible(can_stripe)
        self.unpack.setVisible(is_writing)

    def _describe_method(self, row: int) -> None:
        control = self.controls["method"]
        assert isinstance(control, DropDown)
        self._sentence.setText(localized(METHODS[str(control.itemData(row))].sentence))

    def show_choice(self, choice: EngineChoice, force: InForce) -> None:
        """Show the settings asked for and those in force."""
        self._choice, self._shown_force = choice, force
        self.mode.show_choice(choice.automatic)
        for name in _BY_HAND:
            self.controls[name].setEnabled(not choice.automatic)
        model, cache = force.model, force.cache
        wanted = "auto" if choice.automatic else choice.method
        n_context = model.context_length if model is not None else 0
        by_memory = n_context if choice.automatic else 0
        shown = {**vars(choice), "method": wanted}
        shown["context_length"] = by_memory or choice.context_length
        self._fill_contexts(shown["context_length"])
        self._show_device()
        for name, control in self.controls.items():
            if isinstance(control, DropDown):
                self._pick(control, shown[name])
            elif not control.hasFocus():
                control.setValue(shown[name])
        self._show_on_device(cache)
        self._sentence.setText(self._words(choice))
        if model is None or cache is None:
            for name in self.force:
                self._say(name, "", False)
            return
        told = {name: self._in_force(name, cache) for name in self._rules}
        method = title_of(cache.method)
        # A stock method is shown by its own name; `auto` may choose stock as the faster one.
        told["method"] = method, cache.asked_method != wanted
        differs = not choice.automatic and n_context != choice.context_length
        told["context_length"] = units.count(n_context, "token"), differs
        device = self._words_of("device", "cpu") if cache.device == "cpu" else cache.device
        told["device"] = device, _is_other(choice.device, cache.device)
        # The model's own layer guesses wherever drafts are automatic.
        guesses = "auto" if cache.drafts == "mtp" else cache.drafts
        told["drafts"] = self._words_of("drafts", guesses), guesses != choice.drafts
        for name, (words, is_other) in told.items():
            self._say(name, words, is_other)
        if cache.overridden:
            self._sentence.setText(f"{self.sentence} {localized(cache.overridden)}")
        if force.waits:
            self._sentence.setText(
                self.tr("This comes into force with the next answer.") + " " + self.sentence
            )
        else:
            self._sentence.setText(f"{self.sentence} {localized(cache.runs)}")
        if self._has_device and choice.hybrid != "off":
            self._sentence.setText(f"{self.sentence} {self._words_of_hybrid()}")
        if choice.drafts != "off":
            self._sentence.setText(f"{self.sentence} {self._words_of_drafts(cache)}")

    def _words_of_drafts(self, cache: CacheFacts) -> str:
        if cache.drafts == "off":
            return self.tr("This model cannot take back wrong guesses, so it has no drafts.")
        if cache.drafts == "mtp":
            return self.tr(
                "Drafts: a layer of the model itself guesses the next tokens, which are computed "
                "together while that is faster. The answer is llama.cpp's but for rounding."
            )
        return self.tr(
            "Drafts: where the text repeats itself, several tokens are computed together while "
            "that is faster. The answer is llama.cpp's but for rounding."
        )

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

    def _add(self, name: str, rule: Rule, control: DropDown | Number) -> None:
        """Make the column of a setting: its title, its control, and its value in force."""
        title = translate("settings", rule.title)
        caption = text_label("small", title)
        caption.setBuddy(control)
        control.setAccessibleName(title)
        if rule.tooltip:
            control.setToolTip(translate("settings", rule.tooltip))
        changed = control.activated if isinstance(control, DropDown) else control.editingFinished
        changed.connect(self._choose)
        force = text_label("small")
        self.force[name] = force
        self._columns[name] = (caption, control, force)

    def _show_on_device(self, cache: CacheFacts | None) -> None:
        """Show what concerns devices if one computes. It matters if experts may be missing."""
        self._has_device = cache is not None and cache.device not in ("", "cpu")
        self._arrange()
        for name, rule in self._rules.items():
            if rule.on_device:
                for widget in self._columns[name]:
                    widget.setVisible(self._has_device)
                self.controls[name].setEnabled(cache is not None and cache.mode == "cached")

    def _arrange(self) -> None:
        """Put the fields that are shown into as many columns as there is room for."""
        shown = [
            widgets
            for name, widgets in self._columns.items()
            if self._has_device or not (name and self._rules[name].on_device)
        ]
        width = theme.wide(_COLUMN)
        n_column = min(max((self.width() - 90) // (width + 26), 1), len(shown))
        if (n_column, len(shown), width) == self._arranged:
            return
        self._arranged = n_column, len(shown), width
        for _, control, *force in self._columns.values():
            for widget in (control, *force) if force else ():
                widget.setFixedWidth(width)
        for number, widgets in enumerate(shown):
            row, column = divmod(number, n_column)
            for line, widget in enumerate(widgets):
                self._fields.addWidget(widget, 3 * row + line, column)

    def minimumSizeHint(self) -> QSize:  # noqa: D102
        # As many columns as there are now must not keep the window from becoming narrower.
        return QSize(theme.wide(_COLUMN) + 90, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._arrange()

    def _say(self, name: str, value: str, differs: bool) -> None:
        label = self.force[name]
        label.setText(self.tr("in force: {value}").format(value=value) if value else " ")
        role = "warning" if differs else "small"
        dress(label, role)
        self.controls[name].setAccessibleDescription(label.text().strip())

    def _in_force(self, name: str, cache: CacheFacts) -> tuple[str, bool]:
        """Return a setting's value in force, in words, and whether another one was asked for."""
        rule, asked = self._rules[name], getattr(self._choice, name)
        value: Any = getattr(cache, name, "")
        if value == "" or (rule.on_device and cache.mode != "cached"):
            return "", False
        if rule.kind == "count":
            decides_itself = bool(rule.words) and asked == rule.lowest
            return units.number(value), value != asked and not decides_itself
        return self._words_of(name, value), value != asked

    def _words_of(self, name: str, value: object) -> str:
        """Return the name of a value in the list of a setting."""
        listed = self.controls[name]
        assert isinstance(listed, DropDown)
        return listed.itemText(listed.findData(value)) or str(value)

    def _fill_contexts(self, shown: int) -> None:
        wanted = sorted({*CONTEXTS, shown})
        if [self._context.itemData(i) for i in range(self._context.count())] != wanted:
            self._context.clear()
            for n_token in wanted:
                self._context.addItem(units.number(n_token), n_token)

    def _pick(self, field: DropDown, value: object) -> None:
        index = field.findData(value)
        if index >= 0 and index != field.currentIndex():
            field.setCurrentIndex(index)

    def _choose(self, *_: object) -> None:
        if self._device.currentData() == _ANOTHER:
            self._show_device()
            self.remote_wanted.emit()
            return
        values: dict[str, Any] = {
            name: control.value() if isinstance(control, Number) else control.currentData()
            for name, control in self.controls.items()
            if name not in _BY_HAND or not self._choice.automatic
        }
        choice = replace(self._choice, **values)
        if choice != self._choice:
            self.chosen.emit(choice)


def _control(rule: Rule) -> DropDown | Number:
    """Return the control of a setting of kind count, choice or switch."""
    words = [translate("settings", word) for word in rule.words]
    if rule.kind == "count":
        number = Number(int(rule.lowest), int(rule.highest))
        number.setSpecialValueText("".join(words))
        return number
    listed = DropDown()
    for value, word in zip(rule.choices or (False, True), words, strict=True):
        listed.addItem(word, value)
    return listed


def _is_other(asked: str, device: str) -> bool:
    """Whether something else computes than was asked for; a remote one has a name of its own."""
    if asked == "auto":
        return False
    return device == "cpu" if remote_parts(asked) else asked.lower() != device.lower()
