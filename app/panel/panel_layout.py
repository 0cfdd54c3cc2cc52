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
    QSizePolicy,
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
from app.widgets import files
from app.widgets.elided_label import ElidedLabel
from app.widgets.icon_button import IconButton
from app.widgets.parts import filled, spaced, text_label
from app.widgets.scroll_column import BAR_WIDTH, ScrollColumn
from backend.protocol.status import CacheFacts, ModelFacts

HEAD_HEIGHT = 76  # most of a title and its legend, above a picture, in pixels


class PanelParts(QObject):
    """Has the widgets as attributes; `content` contains them all.

    Signals:
        view_chosen: (View).
        saves: (what, path) the user saves "tokens", "experts" or "picture", or "copy".
        hint_read: the user has read the hint about the first answer.
    """

    view_chosen = Signal(object)
    saves = Signal(str, str)
    hint_read = Signal()

    def __init__(self, panel: QFrame) -> None:
        super().__init__(panel)
        self._panel = panel
        self.figures, self.map, self.stall = Figures(), ExpertMap(), StallBars()
        self.strip, self.time_line, self.memory = TokenStrip(), TimeLine(), MemoryBar()
        self.decisions = Decisions()
        self.method, self.force = _cut("small"), _cut("small")
        right = Qt.AlignmentFlag.AlignRight
        self.longest, self.scale = Value("small", right), Value("small", right)
        self.place = text_label("small")
        self.words, self.helps, self.causes = _words("strong"), _words(""), _words("small")
        self.use_it = QPushButton()
        self.now = QPushButton(self.tr("Now"))
        self.use_it.setAccessibleName(self.tr("Use the cache that would help"))
        self.now.setAccessibleName(self.tr("Show the present again"))
        for button, role in ((self.use_it, "little"), (self.now, "quiet")):
            button.setProperty("role", role)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.pause = IconButton("pause", self.tr("Pause the panel"), side=28)
        self.wide = IconButton("wide", "", side=28)
        self.wide.setCheckable(True)
        self.window = IconButton("window", "", side=28)
        self.window.setCheckable(True)
        self.more = IconButton("more", self.tr("Save or copy"), side=28)
        self.counters = QPushButton()
        self.counters.setProperty("role", "quiet")
        self.counters.setCheckable(True)
        self.counters.setAccessibleName(self.tr("Counters"))
        self.counters.setToolTip(self.tr("Hits, misses, prefetches and the drive, in figures"))
        self.legends = Legend(), Legend(), Legend()
        self._has_hybrid = False
        self._make_menu()
        self._make_views()
        self._lay_out(panel)
        self.show_view(View.STATE)
        self.show_place(None, 0)
        self.can_look_back(False)
        self.show_counters(False)
        self.show_size(False, False)
        self.counters.clicked.connect(self.show_counters)

    # Content

    def show_counters(self, shown: bool) -> None:
        """Unfold or fold the counters."""
        self.counters.setChecked(shown)
        self.counters.setText(("\u25be " if shown else "\u25b8 ") + self.tr("Counters"))
        self.figures.setVisible(shown)

    def show_size(self, is_wide: bool, is_window: bool) -> None:
        """Show whether the panel has the whole window, or a window of its own."""
        self.wide.setChecked(is_wide)
        self.wide.rename(
            self.tr("Back beside the chat (Ctrl+Shift+E)")
            if is_wide
            else self.tr("Use the whole window (Ctrl+Shift+E)")
        )
        self.wide.setVisible(not is_window)
        self.window.setChecked(is_window)
        self.window.rename(
            self.tr("Back into the main window") if is_window else self.tr("Open as a window")
        )

    def show_hint(self, shown: bool) -> None:
        """Show or hide the explanation of the pictures."""
        self._hint.setVisible(shown)

    def show_kind(self, is_loaded: bool, has_experts: bool, map_height: int) -> None:
        """Show the widgets that apply to a model."""
        self._map_section.setVisible(has_experts)
        self._map_section.setMaximumHeight(map_height + HEAD_HEIGHT)
        self._token_section.setVisible(is_loaded)
        self._map_row.setMaximumHeight(map_height)
        self._save_experts.setEnabled(has_experts)

    def show_view(self, view: View) -> None:
        """Show the legend of a view of the map."""
        self.views[view].setChecked(True)
        items: list[tuple[str, str] | tuple[str, str, str]]
        if view is View.STATE:
            items = [
                ("resident", self.tr("in memory")), ("arriving", self.tr("being read")),
                ("hit", self.tr("used at once")), ("late", self.tr("used late")),
                ("stall", self.tr("missing")), ("hit", self.tr("held"), "\u25ad"),
            ]  # fmt: skip
            if self._has_hybrid:
                items.insert(-1, ("processor", self.tr("computed by the processor")))
        else:
            items = [
                ("resident", self.tr("in memory")),
                ("other", self.tr("not in memory")),
                ("muted", self.tr("stronger: used more often"), ""),
            ]
        self.legends[0].show_items(items)
        self.legends[0].setToolTip(self._explanation(view))

    def _explanation(self, view: View) -> str:
        if view is View.USE:
            return self.tr(
                "The stronger the colour, the more often this answer used the expert. Good use of "
                "memory: the strong ones are in memory."
            )
        return self.tr(
            "In memory: ready for use.\n"
            "Being read: on its way from the drive.\n"
            "Used at once (a hit): just used, and in memory. Many are good.\n"
            "Used late: just used, while it was still being read. A part of the wait was saved.\n"
            "Missing (a miss): just used, and not in memory. The answer waited; few are good.\n"
            "Held: stays until the layer in progress is done."
        )

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
        self.legends[2].show_items(
            [(name, f"{word} {units.size(n_byte)}") for name, word, n_byte in parts if n_byte > 0]
        )
        text = ""
        if model is not None and cache is not None and cache.mode == "cached":
            asked_bytes = cache.asked_rate * model.expert_bytes_total
            asked, force = units.size(asked_bytes), units.size(cache.bytes)
            text = self.tr("{size} for experts").format(size=force)
            if asked != force:
                text = self.tr("for experts: asked for {asked}, in use {force}")
                text = text.format(asked=asked, force=force)
            self.force.setToolTip("\n".join(filter(None, (text, localized(cache.reason)))))
        self.force.setText(text)

    def show_words(self, text: str, helps: str, causes: str) -> None:
        """Show the verdict, and where there are any, remedies and other causes."""
        self._words_box.setVisible(bool(text))
        for label_, words in ((self.words, text), (self.helps, helps), (self.causes, causes)):
            label_.setVisible(bool(words))
            if words != label_.text():
                label_.setText(words)

    def show_offer(self, cache_bytes: int, leaves_automatic: bool) -> None:
        """Offer a cache of this size; 0: offer none.

        leaves_automatic: the button also changes the mode, and says so.
        """
        self.use_it.setVisible(cache_bytes > 0)
        words = self.tr("Use a cache of {size}")
        if leaves_automatic:
            words = self.tr("Use {size} (changes to Manual)")
        self.use_it.setText(words.format(size=units.size(cache_bytes)))

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
        path, _ = QFileDialog.getSaveFileName(
            self._panel, self.tr("Save"), files.start("files", name), kinds
        )
        if path:
            files.remember("files", path)
            self.saves.emit(what, path)

    def _make_views(self) -> None:
        self.views: dict[View, QPushButton] = {}
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
            self.views[view] = button

    def _lay_out(self, panel: QFrame) -> None:
        self.content = QWidget()
        self.content.setObjectName("engineContent")
        layout = spaced(QVBoxLayout(self.content), 10, 20, 14, 20 - BAR_WIDTH, 16)
        layout.addLayout(
            row(text_label("strong", self.tr("Engine")), self.method, self.place, self.now,
                self.pause, self.wide, self.window, self.more)
        )  # fmt: skip
        self._make_boxes()
        self._map_row = QWidget()
        filled(spaced(QHBoxLayout(self._map_row), 8), (self.map, 1), self.stall)
        title = ElidedLabel(n_least=8)  # in a narrow panel the buttons need the room
        title.setProperty("role", "strong")
        title.setText(self.tr("Experts by layer"))
        title.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        title.setToolTip(
            self.tr(
                "A row for each layer of the model, a cell for each of its experts.\n"
                "The bars at the right show how long the answer waited for each layer."
            )
        )
        self.longest.setToolTip(
            self.tr(
                "The longest wait of one layer in this answer.\n"
                "Less is better. A larger cache and a faster drive lower it."
            )
        )
        self._map_section = _section(
            row(title, *self.views.values(), self.longest), self.legends[0], self._map_row
        )
        self.legends[1].show_items(
            [("compute", self.tr("compute")), ("stall", self.tr("waiting for experts")),
             ("other", self.tr("unexplained"))]
        )  # fmt: skip
        self.legends[1].setToolTip(
            self.tr(
                "Compute: the processor calculates. A smaller model lowers it.\n"
                "Waiting for experts: they were not in memory. A larger cache lowers it.\n"
                "Unexplained: neither of both, most often other programs. Closing them lowers it."
            )
        )
        self._token_section = _section(
            row(text_label("strong", self.tr("Tokens")), self.scale), self.legends[1], self.strip,
            self.time_line,
        )  # fmt: skip
        self.legends[2].setToolTip(
            self.tr(
                "Dense part: used by every token, always in memory.\n"
                "Experts: the cache. More means less waiting.\n"
                "Other programs: all that this model does not use.\n"
                "Free: what a larger cache could use."
            )
        )
        memory = _section(
            row(text_label("strong", self.tr("Memory")), self.force), self.memory, self.legends[2]
        )
        counters = _section(filled(spaced(QHBoxLayout(), 8), self.counters, 1), self.figures)
        self._columns = QHBoxLayout()
        halves = QWidget(), QWidget()
        self._left, self._right = (QVBoxLayout(half) for half in halves)
        for column in (self._left, self._right):
            filled(spaced(column, 14), 1)
        filled(self._columns, *halves)
        self._right_half = halves[1]
        layout.addLayout(self._columns, 1)
        self._sections = (
            (self._words_box, False, 0), (self._hint, False, 0), (self._map_section, True, 8),
            (self._token_section, True, 2), (memory, False, 0), (self.decisions, False, 0),
            (counters, False, 0),
        )  # fmt: skip
        self._has_columns: bool | None = None
        self.arrange(False)
        area = ScrollColumn()
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(self.content)
        outer = QVBoxLayout(panel)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(area)

    def _make_boxes(self) -> None:
        self._words_box = QFrame()
        self._words_box.setObjectName("verdict")
        left = Qt.AlignmentFlag.AlignLeft
        inside = spaced(QVBoxLayout(self._words_box), 6, 14, 10, 14, 10)
        filled(inside, self.words, self.helps, self.causes, (self.use_it, left))
        self._hint = QFrame()
        self._hint.setObjectName("hint")
        hint = _words("small")
        hint.setText(
            self.tr(
                "Your first answer. In the map, each row is a layer of the model and each cell "
                "an expert; coloured cells are in memory. The red bars beside it show how long "
                "each layer waited. Below, each bar is one token of the answer; click one to look "
                "back. Point at anything to read what it means."
            )
        )
        got_it = QPushButton(self.tr("Got it"))
        got_it.setProperty("role", "little")
        got_it.setAccessibleName(self.tr("Close the hint"))
        got_it.clicked.connect(lambda: self.show_hint(False))
        got_it.clicked.connect(self.hint_read)
        inside = QVBoxLayout(self._hint)
        inside.setContentsMargins(14, 10, 14, 10)
        filled(inside, hint, (got_it, left))
        self._hint.hide()

    def arrange(self, has_columns: bool) -> None:
        """Put the pictures beside the words, if there is room for two columns, or below them."""
        if has_columns == self._has_columns:
            return
        self._has_columns = has_columns
        # removeWidget deletes the old item; with takeAt it stays, and its cached sizes with it.
        for widget, is_picture, stretch in self._sections:
            self._left.removeWidget(widget)
            self._right.removeWidget(widget)
            column = self._right if has_columns and is_picture else self._left
            column.insertWidget(column.count() - 1, widget, stretch)
        self._right_half.setVisible(has_columns)
        self._columns.setStretch(0, 2 if has_columns else 1)
        self._columns.setStretch(1, 5 if has_columns else 0)
        self._columns.setSpacing(28 if has_columns else 0)


def _words(role: str) -> QLabel:
    made = text_label(role, wraps=True)
    made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return made


def _cut(role: str) -> ElidedLabel:
    made = ElidedLabel(n_least=4)
    made.setProperty("role", role)
    made.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return made


def _section(line: QHBoxLayout, *widgets: QWidget) -> QWidget:
    """Return a widget with a row, and widgets below it. Pictures take the remaining height."""
    made = QWidget()
    filled(spaced(QVBoxLayout(made), 6), line, *widgets, 0)
    return made


def row(*widgets: QWidget) -> QHBoxLayout:
    """Return a row of widgets. Those that take any width share what the others leave."""
    made = spaced(QHBoxLayout(), 8)
    for widget in widgets:
        fills = widget.sizePolicy().horizontalPolicy() is QSizePolicy.Policy.Ignored
        made.addWidget(widget, int(fills))
    return made
