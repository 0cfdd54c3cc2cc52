"""System prompt, sampling and thinking of a chat, or of all chats with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, Qt
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QButtonGroup,
    QComboBox,
    QDialog,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QInputDialog,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.chat.think_switch import effort_words
from app.state.engine_choice import EngineChoice
from app.state.preset import (
    N_STOP_MAX,
    NAME_CHARS,
    RULES,
    STOP_CHARS,
    SYSTEM_CHARS,
    TOKENS_MAX,
    NamedPreset,
    Preset,
)
from app.text.language import translate
from app.widgets.fields import (
    Decimal,
    DropDown,
    TextField,
    Tick,
    caption,
    in_paragraphs,
    say_full,
    whole_paragraphs,
)
from app.widgets.on_screen import OnScreen
from app.widgets.parts import filled, saves_or_cancels, spaced, text_label
from backend.protocol.chat import ChatFacts
from backend.protocol.settings import Rule, Sampling

_N_LEFT = 4  # sampling settings in the left column
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
        title = text_label("strong", self.tr("Thoughts"))
        filled(spaced(QVBoxLayout(self), 10), title, self._form)
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
        self._form.addRow(caption(label, field), field)

    def choose(self, preset: Preset) -> Preset:
        """Return the preset with the chosen values."""
        return replace(preset, **{name: f.currentData() for name, f in self._fields.items()})


class PresetDialog(QDialog):
    """Edits a Preset. `preset` and `for_model` are the result once the dialog was accepted.

    chat: the abilities of the model's template; without a switch there is no choice of thinking.
    own: the saved presets; after the dialog, `self.own` has the user's changes. choice: the
    engine's settings, which a saved preset may hold, too.
    """

    def __init__(
        self,
        preset: Preset,
        model: str,
        for_model: bool,
        parent: QWidget | None = None,
        chat: ChatFacts | None = None,
        own: Sequence[NamedPreset] = (),
        choice: EngineChoice | None = None,
    ) -> None:
        super().__init__(parent)
        OnScreen(self, 460)
        self.own = list(own)
        self.engine: dict[str, Any] = {}
        """The engine's settings of the chosen preset of the user, or empty."""
        self._choice = choice
        self.setWindowTitle(self.tr("System prompt and sampling"))
        self._before = preset
        self._system = TextField(SYSTEM_CHARS)
        self._system.setPlainText(in_paragraphs(preset.system))
        self._system.refused.connect(lambda: say_full(self._system))
        self._system.setObjectName("system")
        self._system.setAccessibleName(self.tr("System prompt"))
        self._system.setPlaceholderText(
            self.tr("What the model should know or how it should answer")
        )
        self._system.setFixedHeight(120)
        self._fields: dict[str, QSpinBox | QDoubleSpinBox] = {}
        self._numbers: dict[str, QSpinBox | QDoubleSpinBox] = {}  # -1: not set
        columns, below = (QFormLayout(), QFormLayout()), QFormLayout()
        for form in (*columns, below):
            form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
            form.setVerticalSpacing(8)  # by default that of the row around it
        for name, rule in RULES.items():
            if not rule.title:
                continue
            self._fields[name] = field = _field(rule)
            form = columns[len(self._fields) > _N_LEFT]
            form.addRow(caption(translate("settings", rule.title), field), field)
        for name, title, most, words, tooltip in (
            (
                "seed", self.tr("Seed"), (1 << 31) - 1, self.tr("random"),
                self.tr("The same seed, question and settings give the same answer; random: "
                        "another each time."),
            ),
            (
                "max_tokens", self.tr("Longest answer"), TOKENS_MAX, self.tr("any"),
                self.tr("Tokens after which an answer ends; any: when the model ends it."),
            ),
        ):  # fmt: skip
            number = _field(Rule("count", title=title, tooltip=tooltip, window=(-1, most)))
            number.setSpecialValueText(words)
            self._numbers[name] = number
            columns[1].addRow(caption(title, number), number)
        self._stops = QLineEdit()
        self._stops.setAccessibleName(self.tr("Stops"))
        self._stops.setToolTip(
            self.tr("Texts that end an answer, separated by commas; \\n is a new line.")
        )
        below.addRow(caption(self.tr("Stops"), self._stops), self._stops)
        self._thoughts = _Thoughts(preset, chat or ChatFacts())
        self._named: list[tuple[QPushButton, dict[str, float]]] = []
        self._own_box, own_row = self._make_own(model)
        named = QHBoxLayout()
        for title, sampling in NAMED.items():
            title = translate("sampling", title)
            button = QPushButton(title)
            button.setAccessibleName(self.tr("Sampling: {name}").format(name=title))
            button.setAutoDefault(False)
            button.setCheckable(True)
            button.setProperty("role", "toggle")
            button.clicked.connect(lambda _=False, values=sampling: self._show_sampling(values))
            self._named.append((button, sampling))
            named.addWidget(button)
        named.addStretch(1)
        for field in self._fields.values():
            field.valueChanged.connect(self._mark)
        self._show_preset(preset)
        self._list_own(own_name(preset, self.own))
        self._chat = QRadioButton(self.tr("This chat"))
        self._model = QRadioButton(
            self.tr("All chats with {model}").format(model=model) if model else self.tr("All chats")
        )
        self._group = QButtonGroup(self)
        for scope in (self._chat, self._model):
            scope.setAccessibleName(scope.text())
            self._group.addButton(scope)
        self._model.setEnabled(bool(model))
        (self._model if for_model and model else self._chat).setChecked(True)
        self._for = text_label("strong", self.tr("For"))
        layout = filled(
            spaced(QVBoxLayout(self), 10, 20, 18, 20, 16),
            text_label("strong", self.tr("Own presets")), own_row, self._with_engine,
            text_label("strong", self.tr("System prompt")), self._system,
            text_label("strong", self.tr("Sampling")), named,
            filled(spaced(QHBoxLayout(), 24), *columns), below, self._thoughts,
            self._for, self._chat, self._model,
        )  # fmt: skip
        layout.addSpacing(6)
        layout.addWidget(saves_or_cancels(self))

    @property
    def preset(self) -> Preset:
        """Return the edited preset, without values that equal the engine's defaults."""
        sampling: dict[str, float] = {}
        for name, field in self._fields.items():
            value = round(field.value(), 3)
            if value != getattr(Sampling(), name):
                sampling[name] = value
        if self._numbers["seed"].value() >= 0:
            sampling["seed"] = int(self._numbers["seed"].value())
        stops = [part.replace("\\n", "\n") for part in self._stops.text().split(",")]
        stops = [part[:STOP_CHARS] for part in stops if part][:N_STOP_MAX]
        edited = replace(
            self._before,
            system=whole_paragraphs(self._system.whole_text).strip()[:SYSTEM_CHARS],
            sampling=sampling,
            stops=tuple(stops),
            max_tokens=max(int(self._numbers["max_tokens"].value()), 0),
        )
        return self._thoughts.choose(edited)

    def hide_choice(self) -> None:
        """Hide the choice between this chat and all chats."""
        for widget in (self._for, self._chat, self._model):
            widget.hide()

    @property
    def for_model(self) -> bool:
        """Return whether the preset is for all chats with the model."""
        return self._model.isChecked()

    # The user's own presets

    def _make_own(self, model: str) -> tuple[QComboBox, QHBoxLayout]:
        box = DropDown()
        box.setAccessibleName(self.tr("Own presets"))
        box.activated.connect(self._take_own)
        save, self._delete = QPushButton(self.tr("Save as\u2026")), QPushButton(self.tr("Delete"))
        save.setAccessibleName(self.tr("Save the preset as"))
        self._delete.setAccessibleName(self.tr("Delete the preset"))
        for button in (save, self._delete):
            button.setAutoDefault(False)
        save.clicked.connect(self._ask_name)
        self._delete.clicked.connect(self._delete_own)
        self._with_engine = Tick(
            self.tr("With the context, the cache and the method of {model}").format(model=model)
        )
        self._with_engine.setVisible(bool(model) and self._choice is not None)
        return box, filled(QHBoxLayout(), (box, 1), save, self._delete)

    def _list_own(self, chosen: str) -> None:
        """Fill the list, and mark the active preset."""
        box = self._own_box
        box.clear()
        box.addItem(self.tr("Choose a preset of your own"), "")
        for named in self.own:
            box.addItem(named.name, named.name)
        box.setCurrentIndex(max(box.findData(chosen), 0))
        self._delete.setEnabled(bool(box.currentData()))

    def _take_own(self, *_: object) -> None:
        name = self._own_box.currentData()
        for named in self.own:
            if named.name == name:
                self._show_preset(named.preset)
                self.engine = dict(named.engine)
                self._with_engine.setChecked(bool(named.engine))
        self._delete.setEnabled(bool(name))

    def _ask_name(self) -> None:
        name, is_given = QInputDialog.getText(
            self,
            self.tr("Save the preset as"),
            self.tr("Name of the preset"),
            text=self._own_box.currentData() or "",
        )
        if is_given and name.strip():
            self.save_as(name.strip()[:NAME_CHARS])

    def save_as(self, name: str) -> None:
        """Save the shown values as a preset of the user. Replace a preset with this name."""
        with_engine = self._with_engine.isChecked() and self._choice is not None
        engine = self._choice.of_model() if with_engine and self._choice is not None else {}
        kept = [named for named in self.own if named.name != name]
        self.own = [*kept, NamedPreset(name, self.preset, engine)]
        self._list_own(name)

    def _delete_own(self) -> None:
        self.own = [named for named in self.own if named.name != self._own_box.currentData()]
        self._list_own("")

    def _show_preset(self, preset: Preset) -> None:
        """Show the values of a preset. Leave the choice of thinking."""
        self._system.setPlainText(in_paragraphs(preset.system))
        self._show_sampling(preset.sampling)
        self._numbers["seed"].setValue(int(preset.sampling.get("seed", -1)))
        self._numbers["max_tokens"].setValue(preset.max_tokens or -1)
        self._stops.setText(",".join(stop.replace("\n", "\\n") for stop in preset.stops))
        self._mark()

    def _mark(self, *_: object) -> None:
        """Mark the sampling whose values are shown."""
        shown = self.preset.sampling
        values = {name: value for name, value in shown.items() if name != "seed"}
        for button, sampling in self._named:
            button.setChecked(values == sampling)

    def _show_sampling(self, sampling: dict[str, float]) -> None:
        for name, field in self._fields.items():
            value = sampling.get(name, getattr(Sampling(), name))
            if isinstance(field, QSpinBox):
                field.setValue(int(value))
            else:
                field.setValue(value)
        self._mark()


def own_name(preset: Preset, own: Sequence[NamedPreset]) -> str:
    """Return the name of the user's preset that is the same, or ""."""
    return next((named.name for named in own if named.preset == preset), "")


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
