"""System prompt, sampling and thinking of a chat, or of all chats with a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from PySide6.QtCore import QT_TRANSLATE_NOOP, Qt
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QButtonGroup,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QRadioButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.chat.think_switch import effort_words
from app.state.preset import RULES, SYSTEM_CHARS, Preset
from app.text.language import translate
from app.widgets.fields import FIELD_HEIGHT, Decimal, DropDown
from backend.protocol.chat import ChatFacts
from backend.protocol.settings import Rule, Sampling

NAMED: dict[str, dict[str, float]] = {
    str(QT_TRANSLATE_NOOP("sampling", "Balanced")): {},
    str(QT_TRANSLATE_NOOP("sampling", "Precise")): {"temperature": 0.2, "top_k": 20, "top_p": 0.9},
    str(QT_TRANSLATE_NOOP("sampling", "Creative")): {
        "temperature": 1.1,
        "top_k": 100,
        "top_p": 0.98,
        "min_p": 0.02,
    },
}


class _Thoughts(QWidget):
    """The choice of thinking and of its effort; hidden where a template has neither."""

    def __init__(self, preset: Preset, chat: ChatFacts) -> None:
        super().__init__()
        self._fields: dict[str, QComboBox] = {}
        self._form = QFormLayout()
        self._form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(10)
        layout.addWidget(_strong(self.tr("Thoughts")))
        layout.addLayout(self._form)
        usual = self.tr("As the model does: off")
        if chat.thinks_by_default:
            usual = self.tr("As the model does: on")
        switch = {usual: None, self.tr("On"): True, self.tr("Off"): False}
        efforts = {effort_words(effort): effort for effort in ("", *chat.efforts)}
        if chat.thinking == "switch":
            self._add("thinking", self.tr("Thinking"), switch, preset.thinking)
        if chat.efforts:
            self._add("effort", self.tr("Effort"), efforts, preset.effort)
        self.setVisible(bool(self._fields))

    def _add(self, name: str, label: str, values: Mapping[str, object], chosen: object) -> None:
        field = self._fields[name] = DropDown()
        field.setAccessibleName(label)
        for words, value in values.items():
            field.addItem(words, value)
        known = list(values.values())
        field.setCurrentIndex(known.index(chosen) if chosen in known else 0)
        caption = QLabel(label)
        caption.setBuddy(field)
        caption.setMinimumHeight(FIELD_HEIGHT)
        self._form.addRow(caption, field)

    def choose(self, preset: Preset) -> Preset:
        """Return a preset with what was chosen."""
        return replace(preset, **{name: f.currentData() for name, f in self._fields.items()})


class PresetDialog(QDialog):
    """Edits a Preset. `preset` and `for_model` are the result once the dialog was accepted.

    chat: what the model's template has; without a switch there is no choice of thinking.
    """

    def __init__(
        self,
        preset: Preset,
        model: str,
        for_model: bool,
        parent: QWidget | None = None,
        chat: ChatFacts | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("System prompt and sampling"))
        self.setMinimumWidth(460)
        self._before = preset
        self._seed = preset.sampling.get("seed")
        self._system = QPlainTextEdit(preset.system)
        self._system.setObjectName("system")
        self._system.setAccessibleName(self.tr("System prompt"))
        self._system.setPlaceholderText(
            self.tr("What the model should know or how it should answer")
        )
        self._system.setTabChangesFocus(True)
        self._system.setFixedHeight(120)
        self._fields: dict[str, QSpinBox | QDoubleSpinBox] = {}
        form = QFormLayout()
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        for name, rule in RULES.items():
            if not rule.title:
                continue
            self._fields[name] = field = _field(rule)
            caption = QLabel(translate("settings", rule.title))
            caption.setBuddy(field)
            caption.setMinimumHeight(FIELD_HEIGHT)  # aligned with the field
            form.addRow(caption, field)
        self._show_sampling(preset.sampling)
        self._thoughts = _Thoughts(preset, chat or ChatFacts())
        named = QHBoxLayout()
        for title, sampling in NAMED.items():
            title = translate("sampling", title)
            button = QPushButton(title)
            button.setAccessibleName(self.tr("Sampling: {name}").format(name=title))
            button.setAutoDefault(False)
            button.clicked.connect(lambda _=False, values=sampling: self._show_sampling(values))
            named.addWidget(button)
        named.addStretch(1)
        self._chat = QRadioButton(self.tr("This chat"))
        self._model = QRadioButton(
            self.tr("All chats with {model}").format(model=model) if model else self.tr("All chats")
        )
        self._group = QButtonGroup(self)
        for choice in (self._chat, self._model):
            choice.setAccessibleName(choice.text())
            self._group.addButton(choice)
        self._model.setEnabled(bool(model))
        (self._model if for_model and model else self._chat).setChecked(True)
        kinds = QDialogButtonBox.StandardButton
        buttons = QDialogButtonBox(kinds.Save | kinds.Cancel)
        for kind in (kinds.Save, kinds.Cancel):
            buttons.button(kind).setAccessibleName(buttons.button(kind).text().replace("&", ""))
        buttons.button(kinds.Save).setProperty("role", "primary")
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 18, 20, 16)
        layout.setSpacing(10)
        layout.addWidget(_strong(self.tr("System prompt")))
        layout.addWidget(self._system)
        layout.addWidget(_strong(self.tr("Sampling")))
        layout.addLayout(named)
        layout.addLayout(form)
        layout.addWidget(self._thoughts)
        self._for = _strong(self.tr("For"))
        layout.addWidget(self._for)
        layout.addWidget(self._chat)
        layout.addWidget(self._model)
        layout.addSpacing(6)
        layout.addWidget(buttons)

    @property
    def preset(self) -> Preset:
        """Return the edited preset, without values that equal the engine's defaults."""
        sampling: dict[str, float] = {}
        for name, field in self._fields.items():
            value = round(field.value(), 3)
            if value != getattr(Sampling(), name):
                sampling[name] = value
        if self._seed is not None:
            sampling["seed"] = self._seed
        system = self._system.toPlainText().strip()[:SYSTEM_CHARS]
        return self._thoughts.choose(replace(self._before, system=system, sampling=sampling))

    def hide_choice(self) -> None:
        """Hide the choice between this chat and all chats."""
        for widget in (self._for, self._chat, self._model):
            widget.hide()

    @property
    def for_model(self) -> bool:
        """Return whether the preset is for all chats with the model."""
        return self._model.isChecked()

    def _show_sampling(self, sampling: dict[str, float]) -> None:
        for name, field in self._fields.items():
            value = sampling.get(name, getattr(Sampling(), name))
            if isinstance(field, QSpinBox):
                field.setValue(int(value))
            else:
                field.setValue(value)


def name_of(preset: Preset) -> str:
    """Return the name of a preset's sampling."""
    values = {name: value for name, value in preset.sampling.items() if name != "seed"}
    for title, sampling in NAMED.items():
        if values == sampling:
            return translate("sampling", title)
    return translate("sampling", "Own sampling")


def _field(rule: Rule) -> QSpinBox | QDoubleSpinBox:
    low, high = rule.window or (rule.lowest, rule.highest)
    field: QSpinBox | QDoubleSpinBox
    if rule.kind == "count":
        field = QSpinBox()
        field.setRange(int(low), int(high))
    else:
        field = Decimal()
        field.setRange(low, high)
        field.setSingleStep(0.05)
        field.setDecimals(2)
    field.setAccessibleName(translate("settings", rule.title))
    field.setToolTip(translate("settings", rule.tooltip))
    field.setFixedWidth(110)
    field.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
    field.lineEdit().setTextMargins(8, 0, 8, 0)
    return field


def _strong(text: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", "strong")
    return label
