"""The widgets of the engine panel and their layout."""

from __future__ import annotations

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.panel.decisions import Decisions
from app.panel.expert_map import ExpertMap, View
from app.panel.figures import Figures
from app.panel.legend import Legend
from app.panel.memory_bar import MemoryBar
from app.panel.stall_bars import StallBars
from app.panel.time_line import TimeLine
from app.panel.token_strip import TokenStrip
from app.panel.value import Value
from app.text import units
from app.text.messages import localized
from app.widgets.icon_button import IconButton
from backend.protocol.status import CacheFacts, ModelFacts


class PanelParts(QObject):
    """Has the widgets as attributes; `content` contains them all.

    Signals:
        view_chosen: (View).
        saves: (what, path) the user saves "tokens", "experts" or "picture", or "copy".
    """

    view_chosen = Signal(object)
    saves = Signal(str, str)

    def __init__(self, panel: QFrame) -> None:
        super().__init__(panel)
        self._panel = panel
        self.figures, self.map, self.stall = Figures(), ExpertMap(), StallBars()
        self.strip, self.time_line, self.memory = TokenStrip(), TimeLine(), MemoryBar()
        self.decisions = Decisions()
        self.method = label("", "small")
        right = Qt.AlignmentFlag.AlignRight
        self.longest, self.scale = Value("small", right), Value("small", right)
        self.place, self.force = label("", "small"), label("", "small")
        self.words = QLabel()
        self.words.setWordWrap(True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.use_it = QPushButton()
        self.now = QPushButton(self.tr("Now"))
        self.use_it.setAccessibleName(self.tr("Use the cache that would help"))
        self.now.setAccessibleName(self.tr("Show the present again"))
        for button, role in ((self.use_it, "little"), (self.now, "quiet")):
            button.setProperty("role", role)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.pause = IconButton("pause", self.tr("Pause the panel"), side=28)
        self.more = IconButton("more", self.tr("Save or copy"), side=28)
        self._legends = Legend(), Legend(), Legend()
        self._has_hybrid = False
        self._make_menu()
        self._make_views()
        self._lay_out(panel)
        self.show_view(View.STATE)
        self.show_place(None, 0)
        self.can_look_back(False)

    # Content

    def show_kind(self, is_loaded: bool, has_experts: bool, map_height: int) -> None:
        """Show the widgets that apply to a model."""
        for widget in (self._map_head, self._map_row):
            widget.setVisible(has_experts)
        for widget in (self._strip_head, self.strip, self.time_line):
            widget.setVisible(is_loaded)
        self._map_row.setMaximumHeight(map_height)
        self._save_experts.setEnabled(has_experts)

    def show_view(self, view: View) -> None:
        """Show the legend of a view of the map."""
        self._views[view].setChecked(True)
        items: list[tuple[str, str] | tuple[str, str, str]]
        if view is View.STATE:
            items = [
                ("resident", self.tr("resident")), ("arriving", self.tr("arriving")),
                ("hit", self.tr("hit")), ("late", self.tr("late")), ("stall", self.tr("miss")),
                ("hit", self.tr("pinned"), "\u25ad"),
            ]  # fmt: skip
            if self._has_hybrid:
                items.insert(-1, ("processor", self.tr("computed by the processor")))
        else:
            items = [
                ("resident", self.tr("in memory")),
                ("other", self.tr("not in memory")),
                ("muted", self.tr("brighter: used more often"), ""),
            ]
        self._legends[0].show_items(items)

    @property
    def state_words(self) -> str:
        """Return the legend of the map as text."""
        return self._legends[0].text()

    def show_hybrid(self, has_hybrid: bool) -> None:
        """Set whether the processor computes experts that a device lacks; update the legend."""
        if has_hybrid != self._has_hybrid:
            self._has_hybrid = has_hybrid
            self.show_view(self.map.view)

    def show_place(self, token: int | None, n_token: int) -> None:
        """Show the number of the chosen token; None: now."""
        is_now = token is None
        self.pause.show_icon("pause" if is_now else "play")
        self.pause.rename(
            self.tr("Pause the panel") if is_now else self.tr("Show the present again")
        )
        self.now.setVisible(not is_now)
        text = self.tr("token {number} of {all}").format(
            number=units.number((token or 0) + 1), all=units.number(n_token)
        )
        self.place.setText("" if is_now else text)

    def can_look_back(self, can: bool) -> None:
        """Set whether there is an answer to look back over."""
        self.pause.setEnabled(can)
        self.time_line.setEnabled(can)
        self._save_tokens.setEnabled(can)

    def show_memory(self, model: ModelFacts | None, cache: CacheFacts | None) -> None:
        """Show the requested cache beside the one in force."""
        parts = self.memory.parts()
        self._legends[2].show_items(
            [(name, f"{word} {units.size(n_byte)}") for name, word, n_byte in parts if n_byte > 0]
        )
        text = ""
        if model is not None and cache is not None and cache.mode == "cached":
            asked_bytes = cache.asked_rate * model.expert_bytes_total
            text = self.tr("asked for {asked}, in force {force}").format(
                asked=units.size(asked_bytes), force=units.size(cache.bytes)
            )
            self.force.setToolTip(localized(cache.reason))
        self.force.setText(text)

    def show_words(self, text: str, cache_bytes: int) -> None:
        """Show the verdict. If `cache_bytes` is not 0, offer a cache of this size."""
        self._words_box.setVisible(bool(text))
        if text != self.words.text():
            self.words.setText(text)
        self.use_it.setVisible(cache_bytes > 0)
        self.use_it.setText(self.tr("Use a cache of {size}").format(size=units.size(cache_bytes)))

    # Construction

    def _make_menu(self) -> None:
        self.menu = QMenu(self.more)
        csv, png = self.tr("Tables (*.csv)"), self.tr("Pictures (*.png)")
        self._save_tokens = self.menu.addAction(
            self.tr("Save the tokens as CSV\u2026"),
            lambda: self._ask("tokens", self.tr("tokens.csv"), csv),
        )
        self._save_experts = self.menu.addAction(
            self.tr("Save the experts as CSV\u2026"),
            lambda: self._ask("experts", self.tr("experts.csv"), csv),
        )
        self.menu.addAction(
            self.tr("Save the picture as PNG\u2026"),
            lambda: self._ask("picture", self.tr("engine.png"), png),
        )
        self.menu.addAction(self.tr("Copy the picture"), lambda: self.saves.emit("copy", ""))
        self.more.clicked.connect(self._show_menu)

    def _show_menu(self) -> None:
        corner = self.more.rect().bottomRight() - QPoint(self.menu.sizeHint().width(), 0)
        self.menu.popup(self.more.mapToGlobal(corner))

    def _ask(self, what: str, name: str, kinds: str) -> None:
        path, _ = QFileDialog.getSaveFileName(self._panel, self.tr("Save"), name, kinds)
        if path:
            self.saves.emit(what, path)

    def _make_views(self) -> None:
        self._views: dict[View, QPushButton] = {}
        group = QButtonGroup(self)
        for view, name, tip in (
            (View.STATE, self.tr("State"), self.tr("What is in memory and what was just used")),
            (View.USE, self.tr("Use"), self.tr("How often this answer used each expert")),
        ):
            button = QPushButton(name)
            button.setProperty("role", "segment")
            button.setCheckable(True)
            button.setToolTip(tip)
            button.setAccessibleName(self.tr("Map: {view}").format(view=name))
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.clicked.connect(lambda _=False, view=view: self.view_chosen.emit(view))
            group.addButton(button)
            self._views[view] = button

    def view_button(self, view: View) -> QPushButton:
        """Return the button of a view."""
        return self._views[view]

    def _lay_out(self, panel: QFrame) -> None:
        self.content = QWidget()
        self.content.setObjectName("engineContent")
        layout = QVBoxLayout(self.content)
        layout.setContentsMargins(20, 14, 20, 16)
        layout.setSpacing(7)
        layout.addLayout(
            row(label(self.tr("Engine"), "strong"), self.method, None, self.place, self.now,
                self.pause, self.more)
        )  # fmt: skip
        layout.addWidget(self.figures)
        layout.addSpacing(8)
        self._map_head = self._head(
            row(label(self.tr("Layers \u00d7 experts"), "strong"), *self._views.values(),
                self.longest),
            self._legends[0],
        )  # fmt: skip
        self._map_row = QWidget()
        both = QHBoxLayout(self._map_row)
        both.setContentsMargins(0, 0, 0, 0)
        both.setSpacing(8)
        both.addWidget(self.map, 1)
        both.addWidget(self.stall)
        layout.addWidget(self._map_head)
        layout.addWidget(self._map_row, 8)
        layout.addSpacing(8)
        self._legends[1].show_items(
            [("compute", self.tr("compute")), ("stall", self.tr("waiting for experts")),
             ("other", self.tr("unexplained"))]
        )  # fmt: skip
        self._strip_head = self._head(
            row(label(self.tr("Tokens"), "strong"), self.scale), self._legends[1]
        )
        layout.addWidget(self._strip_head)
        layout.addWidget(self.strip, 2)
        layout.addWidget(self.time_line)
        layout.addSpacing(8)
        layout.addLayout(row(label(self.tr("Memory"), "strong"), None, self.force))
        layout.addWidget(self.memory)
        layout.addWidget(self._legends[2])
        layout.addWidget(self.decisions)
        layout.addSpacing(4)
        self._words_box = QFrame()
        self._words_box.setObjectName("verdict")
        inside = QVBoxLayout(self._words_box)
        inside.setContentsMargins(14, 10, 14, 10)
        inside.setSpacing(6)
        inside.addWidget(self.words)
        inside.addWidget(self.use_it, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addWidget(self._words_box)
        layout.addStretch(0)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(self.content)
        outer = QVBoxLayout(panel)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(area)

    def _head(self, line: QHBoxLayout, legend: Legend) -> QWidget:
        head = QWidget()
        layout = QVBoxLayout(head)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(line)
        layout.addWidget(legend)
        return head


def label(text: str, role: str) -> QLabel:
    """Return a label in one of the style sheet's roles."""
    made = QLabel(text)
    made.setProperty("role", role)
    return made


def row(*widgets: QWidget | None) -> QHBoxLayout:
    """Return a row of widgets; None is a stretch."""
    made = QHBoxLayout()
    made.setSpacing(8)
    for widget in widgets:
        if widget is None:
            made.addStretch(1)
        else:
            made.addWidget(widget)
    return made
