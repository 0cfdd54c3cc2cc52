"""The live panel beside the chat: the engine's work in pictures, figures and words."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QTimer, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QHideEvent,
    QImage,
    QImageWriter,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QFrame

from app.panel import export, verdict
from app.panel.expert_map import ROW_HIGHEST, View
from app.panel.memory_bar import Memory
from app.panel.moment import Moments
from app.panel.panel_layout import PanelParts
from app.text import units
from app.text.messages import localized
from app.text.methods import title_of
from backend.methods.catalogue import METHODS
from backend.protocol.statistics import Batch, Residency, Statistics
from backend.protocol.status import Advice, CacheFacts, ModelFacts

MEMORY_MS = 2000
LIVE_S = 0.35
"""Time between two updates of figures and bars during an answer; the map shows every snapshot.
Labels and bars are expensive: five updates a second took 3 % of a core."""
WORDS_S = 2.0
"""Time between two updates of the sentence: a new text lays out the whole panel again."""
LINE_S = 1.0
"""Time between two updates of the time line, which paints the whole answer."""
MAP_HEIGHT_MIN = 60
COLUMNS_FROM = 860
"""Width from which the pictures stand beside the words, in pixels."""


class EnginePanel(QFrame):
    """Shows a model, its cache and an answer, as they are now or were at a chosen token.

    EnginePage feeds it. While a chosen token is shown, new data are kept and shown afterwards.

    Signals:
        shown: (bool) the panel was shown or hidden.
        trouble: (str) one sentence about a file that could not be written.
        rate_wanted: (slots of each layer) the user wants the recommended cache.
        refreshed: it is time to measure what other programs use.
    """

    shown = Signal(bool)
    trouble = Signal(object)
    rate_wanted = Signal(int)
    refreshed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("enginePanel")
        self.setAccessibleName(self.tr("Engine"))
        self._model: ModelFacts | None = None
        self._cache: CacheFacts | None = None
        self._statistics: Statistics | None = None
        self._is_live = False
        self._residency: Residency | None = None  # the newest snapshot
        self._advice: Advice | None = None
        self._prompt: tuple[int, int] | None = None  # tokens that are read, done and total
        self._others_share: float | None = None  # of the processor
        self._is_automatic = False
        self._wants_hint = False
        self._shown_s = 0.0  # time of the last update of figures and bars
        self._sentence_s = 0.0  # time of the last update of the sentence
        self._line_s = 0.0  # the same for the time line
        self.moments = Moments()
        self.parts = parts = PanelParts(self)
        self.figures, self.map, self.stall = parts.figures, parts.map, parts.stall
        self.strip, self.time_line, self.memory = parts.strip, parts.time_line, parts.memory
        self.decisions, self.words = parts.decisions, parts.words
        parts.pause.clicked.connect(self.toggle_pause)
        parts.now.clicked.connect(lambda: self.choose(None))
        parts.use_it.clicked.connect(self._want_rate)
        parts.view_chosen.connect(self.show_view)
        parts.saves.connect(self._save)
        self.strip.picked.connect(self.choose)
        self.time_line.valueChanged.connect(self.choose)
        self._timer = QTimer(self, interval=MEMORY_MS)
        self._timer.timeout.connect(self._refresh_memory)
        self.show_model(None, None)

    # Data from the engine

    def show_model(self, model: ModelFacts | None, cache: CacheFacts | None) -> None:
        """Show a model and its cache in force; forget the answer of another model."""
        if model != self._model:
            self._forget(model)
        elif _setting(cache) != _setting(self._cache):
            self._advice = None  # it was followed, or is out of date
        self._model, self._cache = model, cache
        has_experts = model is not None and model.is_moe
        height = max(len(model.moe_layers) * ROW_HIGHEST if model else 0, MAP_HEIGHT_MIN)
        self.parts.show_kind(model is not None, has_experts, height)
        method = cache.method if cache is not None and cache.mode == "cached" else ""
        self.parts.show_hybrid(cache is not None and cache.hybrid != "off")
        self.parts.method.setText(title_of(method))
        about = localized(METHODS[method].sentence) if method in METHODS else ""
        if cache is not None and cache.predictor:
            forecast = self.tr("Forecasts by: {predictor}.").format(predictor=cache.predictor)
            about = f"{about} {forecast}"
        self.parts.method.setToolTip(about)
        self._refresh_memory()
        self._show_verdict()

    def show_mode(self, is_automatic: bool) -> None:
        """Set whether the engine's settings are automatic."""
        self._is_automatic = is_automatic
        self._show_verdict()

    def want_hint(self) -> None:
        """Explain the pictures after the next answer."""
        self._wants_hint = True

    def show_prompt(self, done: int, total: int) -> None:
        """Show how many tokens of a prompt were read."""
        self._prompt = done, total
        if time.monotonic() - self._shown_s >= LIVE_S:
            self._shown_s = time.monotonic()
            self._show_verdict()

    def show_others(self, share: float | None) -> None:
        """Set the share of the processor that other programs use; shown while an answer runs."""
        if self._is_live and share is not None:
            self._others_share = max(share, self._others_share or 0.0)

    def show_statistics(self, statistics: Statistics, is_live: bool) -> None:
        """Show the figures of an answer, running or ended."""
        if is_live and not self._is_live:
            self._advice, self._shown_s, self._sentence_s = None, 0.0, 0.0  # another answer begins
            self._others_share = None
        if statistics.n_token or not is_live:
            self._prompt = None
        self._statistics, self._is_live = statistics, is_live
        if not is_live and statistics.n_token and self._wants_hint:
            self._wants_hint = False
            self.parts.show_hint(self._model is not None and self._model.is_moe)
        if is_live and time.monotonic() - self._shown_s < LIVE_S:
            return
        self._shown_s = time.monotonic()
        if self.moments.token is None:
            self._show_now()
            if self.moments.n_token:
                self._show_tokens()
                self.map.show_uses(self.moments.history.uses(), self.moments.n_token)
        else:
            self._show_place()
        self.decisions.show_lines(statistics.decisions)
        if not is_live or time.monotonic() - self._sentence_s >= WORDS_S:
            self._sentence_s = time.monotonic()
            self._show_verdict()

    def show_residency(self, residency: Residency) -> None:
        """Show a snapshot of the cache."""
        self._residency = residency
        if self.moments.token is None:
            self.map.show_residency(residency)

    def add_moments(self, batch: Batch) -> None:
        """Keep passes of the answer; they are shown with the next statistics.

        Raises ValueError.
        """
        n_before = self.moments.n_token
        if len(self.moments.history) and batch.first == 0:
            self._forget_answer()
            n_before = 0
        new = self.moments.add(batch)
        assert self.moments.n_token == n_before + len(new)
        self.time_line.add(new)
        self.parts.can_look_back(self.moments.n_token > 0)

    def show_advice(self, advice: Advice) -> None:
        """Show the simulator's advice on the shown answer; ignore advice on an earlier one."""
        if self._statistics is None or self._is_live:
            return
        self._advice = advice
        self._show_verdict()

    def show_limit(self, link_gb_per_s: float | None) -> None:
        """Show the drive's measured bandwidth."""
        self.figures.show_limit(link_gb_per_s)

    # Actions of the user

    def toggle_pause(self) -> None:
        """Pause at the last token, or show the present again."""
        is_now = self.moments.token is None
        self.choose(max(self.moments.n_token - 1, 0) if is_now else None)

    def choose(self, token: int | None) -> None:
        """Show the moment of a token, by its index; None: now."""
        if token is not None and not self.moments.n_token:
            return
        self.moments.choose(token)
        if self.moments.token is None:
            self._show_now()
            self._show_tokens()
            self.map.show_residency(self._residency)
            self.map.show_uses(self.moments.history.uses(), self.moments.n_token)
        else:
            self._show_moment()
        self.parts.show_place(self.moments.token, self.moments.n_token)

    def show_view(self, view: View) -> None:
        """Let the map show states or uses."""
        self.map.show_view(view)
        self.parts.show_view(view)

    def save_tokens(self, path: Path) -> None:
        """Write the tokens of the answer as CSV."""
        text = export.tokens_csv(self.moments.history, self.moments.layers)
        self._write(path, text.encode("utf-8"))

    def save_experts(self, path: Path) -> None:
        """Write the experts of the shown moment as CSV."""
        if self._model is not None and self.map.residency is not None:
            n_token = self.moments.n_token if self.moments.token is None else self.moments.token + 1
            data = self.map.residency.data
            text = export.experts_csv(self._model, data, self.map.uses, n_token)
            self._write(path, text.encode("utf-8"))

    def save_picture(self, path: Path) -> None:
        """Write the whole content of the panel as PNG, also the part out of view."""
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        writer = QImageWriter(buffer, QByteArray(b"png"))
        writer.setCompression(10)  # of 100; the usual one takes 0.1 s
        writer.write(self.picture())
        self._write(path, bytes(buffer.data().data()))

    def picture(self) -> QImage:
        """Return an image of the panel's content, in the screen's resolution."""
        return self.parts.content.grab().toImage()

    # Showing

    def _forget(self, model: ModelFacts | None) -> None:
        self._statistics = self._residency = self._prompt = self._others_share = None
        layers = model.moe_layers if model else ()
        self.moments = Moments(layers, model.n_expert if model else 0)
        self.map.expert_bytes = model.expert_bytes if model else 0
        self.map.show_residency(None)
        self.figures.clear()
        self.stall.show_stall((), {}, {})
        self.parts.longest.setText("")
        self._forget_answer()

    def _forget_answer(self) -> None:
        """Forget the answer, and show the next one as it arrives."""
        self._advice = None
        self.moments.clear()
        self.time_line.clear()
        self.strip.show_tokens(())
        self.time_line.hide()
        self.parts.scale.setText("")
        self.parts.show_place(None, 0)
        self.parts.can_look_back(False)

    def _show_now(self) -> None:
        statistics = self._statistics
        if statistics is None:
            return
        is_cached = self._cache is not None and self._cache.mode == "cached"
        self.figures.show_statistics(statistics, self._is_live, is_cached)
        self._show_stall(statistics.layer_stall_s, statistics.layer_on_host)
        if not self.moments.n_token:  # the panel was hidden: only the last tokens are known
            self.strip.show_tokens(statistics.tokens)
            self.parts.scale.setText(self.strip.scale_words)

    def _show_moment(self) -> None:
        moments = self.moments
        if moments.figures is not None:
            self.figures.show_token(moments.figures)
        self._show_stall(moments.layer_stall_s, moments.layer_on_host)
        self.map.show_residency(moments.residency)
        if moments.index is not None:
            self.map.show_uses(moments.history.uses(moments.index), (moments.token or 0) + 1)
        self._show_tokens()

    def _show_tokens(self) -> None:
        first, times = self.moments.shown(self.strip.n_room)
        self.strip.show_tokens(times, first, self.moments.token)
        self.parts.scale.setText(self.strip.scale_words)
        # An overview of the same tokens would tell nothing more.
        self.time_line.setVisible(self.moments.n_token > self.strip.n_room)
        self._show_place()

    def _show_place(self) -> None:
        is_due = time.monotonic() - self._line_s >= LINE_S
        if self._is_live and self.moments.token is None and not is_due:
            return
        self._line_s = time.monotonic()
        self.time_line.show_place(self.strip.numbers, self.moments.token)

    def _show_stall(self, stall_s: dict[int, float], on_host: dict[int, int]) -> None:
        layers = self._model.moe_layers if self._model else ()
        self.stall.show_stall(layers, stall_s, on_host)
        longest = self.stall.longest_s
        text = self.tr("waiting \u2264 {time}").format(time=units.short_time(max(longest, 0.001)))
        if self.parts.longest.width_of(text) > self.parts.longest.width():
            text = f"\u2264 {units.short_time(max(longest, 0.001))}"  # its title is in the tool tip
        self.parts.longest.setText(text if longest > 0 else self.tr("waiting"))

    def _refresh_memory(self) -> None:
        self.refreshed.emit()
        self.memory.show_memory(Memory.measure(self._model, self._cache))
        self.parts.show_memory(self._model, self._cache)

    def _show_verdict(self) -> None:
        cache, statistics = self._cache, self._statistics
        text = verdict.sentence(self._model, cache, statistics, self._prompt)
        causes = verdict.causes(cache, statistics, self._others_share)
        helps = verdict.what_helps(cache, self._advice)
        self.parts.show_words(text, helps, "\n".join(causes) if text else "")
        larger = self._advice.cache if self._advice is not None else None
        self.parts.show_offer(larger.cache_bytes if larger is not None else 0, self._is_automatic)

    def _want_rate(self) -> None:
        if self._advice is not None and self._advice.cache is not None:
            self.rate_wanted.emit(self._advice.cache.n_slot)

    def _save(self, what: str, path: str) -> None:
        if what == "copy":
            QGuiApplication.clipboard().setImage(self.picture())
        else:
            save = {
                "tokens": self.save_tokens,
                "experts": self.save_experts,
                "picture": self.save_picture,
            }
            save[what](Path(path))

    def _write(self, path: Path, data: bytes) -> None:
        if sentence := export.write(path, data):
            self.trouble.emit(sentence)

    # Events

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self._refresh_memory()
        self._timer.start()
        self.shown.emit(True)

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102
        super().hideEvent(event)
        self._timer.stop()
        self.shown.emit(False)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self.parts.arrange(self.width() >= COLUMNS_FROM)
        if self.moments.n_token:
            self._show_tokens()


def _setting(cache: CacheFacts | None) -> tuple[object, ...] | None:
    """Return what a forecast depends on."""
    return None if cache is None else (cache.mode, cache.n_slot, cache.method, cache.device)
