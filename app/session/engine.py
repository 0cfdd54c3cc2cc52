"""The engine as the window sees it: its process, the model, and the settings it runs with.

What is asked for (`asked`) and what is in force (`cache`, `model`) are kept apart. All of it
survives the worker's process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.session import known_models as models
from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from app.state.engine_state import Notice, State
from app.state.slot_range import SlotRange
from backend.protocol.statistics import Residency
from backend.protocol.status import CacheFacts, ModelFacts
from backend.text import text

SHOWN_RATE = 0.25  # of the embedded model, which would fit whole and is there to show the cache


class EngineSession(QObject):
    """One engine: loads models, and changes its settings between answers.

    Signals:
        state_changed: State.
        model_changed: the model, its cache or what is asked of them is another.
        loading: (fraction, stage).
        residency_changed: Residency.
        notice: Notice to show, or None to take the present one away.
    """

    state_changed = Signal(object)
    model_changed = Signal()
    loading = Signal(float, object)
    residency_changed = Signal(object)
    notice = Signal(object)

    def __init__(
        self, link: EngineLink, choice: EngineChoice, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.link = link
        self.model: ModelFacts | None = None
        self.cache: CacheFacts | None = None
        self.asked = choice
        self.path: Path | None = None  # of the model that is loaded or being loaded
        self.state = State.EMPTY
        self._path_before: Path | None = None  # loaded when the present load began
        self._next_path: Path | None = None  # to load as soon as the engine is free
        self._sent = choice  # what the engine was told last
        self._granted = choice  # what it has taken
        self._cancelled = False
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_loaded)
        link.configured.connect(self._on_configured)
        link.cache_changed.connect(self._on_cache_changed)
        link.residency.connect(self._on_residency)
        link.error.connect(self._on_failed)
        link.died.connect(self._on_died)
        link.hangs.connect(self._on_hangs)
        link.recovered.connect(self._dismiss)

    # What is in force, and what is asked for

    @property
    def n_context(self) -> int:
        """Tokens that a conversation with this model may have."""
        trained = self.model.context_length if self.model else 0
        return trained or self.asked.context_length

    @property
    def slots(self) -> SlotRange | None:
        """What the cache may hold; None where this model cannot be cached."""
        if self.model is None or self.cache is None or not self.model.is_moe:
            return None
        if self.cache.mode == "plain" and self.cache.asked_rate < 1.0:
            return None
        return SlotRange.of(self.model, self.cache)

    @property
    def asked_rate(self) -> float:
        """The cache rate that is asked for the present model; 1: as much as memory permits."""
        return self.rate_for(self.path)

    def rate_for(self, path: Path | None) -> float:
        """The cache rate that a model would be asked to have."""
        choice = self.choice_for(path)
        return 1.0 if choice.automatic else choice.cache_rate

    @property
    def is_shown_off(self) -> bool:
        """Whether the embedded model has a small cache only to show how it works."""
        return self.asked.automatic and self.path is not None and models.is_embedded(self.path)

    def choice_for(self, path: Path | None) -> EngineChoice:
        """What the engine is told for a model."""
        if self.asked.automatic and path is not None and models.is_embedded(path):
            return replace(
                self.asked, automatic=False, method="auto", cache_rate=SHOWN_RATE,
                context_length=EngineChoice.context_length,
            )  # fmt: skip
        return self.asked

    @property
    def change_waits(self) -> bool:
        """Whether what is asked for comes into force only after this answer."""
        busy = self.state in (State.ANSWERING, State.STOPPING)
        return busy and self.model is not None and self.choice_for(self.path) != self._sent

    def choose(self, choice: EngineChoice) -> None:
        """Ask for other settings: at once when idle, otherwise from the next answer."""
        self.asked = choice
        self._settle()
        self.model_changed.emit()

    def set_rate(self, rate: float) -> None:
        """Ask for a cache rate."""
        self.choose(replace(self.asked, cache_rate=rate))

    # Loading

    def open_model(self, path: Path) -> None:
        """Load a model; an answer under way is stopped first."""
        if self.state in (State.ANSWERING, State.STOPPING, State.LOADING, State.CHANGING):
            self._next_path = path
            if self.state is State.LOADING:
                self.cancel_loading()
            elif self.state is State.ANSWERING:
                self.stop_all()
        else:
            self._load(path)

    def cancel_loading(self) -> None:
        """Give up loading."""
        if self.state is State.LOADING:
            self._cancelled = True
            self.link.stop()

    def _load(self, path: Path) -> None:
        self._path_before = self.path if self.model is not None and self.path != path else None
        self.path = path
        self.model = None
        self.cache = None
        self._cancelled = False
        self._next_path = None
        self._sent = self._granted = self.choice_for(path)
        self._dismiss()
        if not self.link.is_running:
            self.link.start()
            if not self.link.is_running:
                return  # it could not be started, and has said so
        self._set_state(State.LOADING)
        self.model_changed.emit()
        self.link.load(path, self._sent)

    def _on_loading(self, fraction: float, stage: str) -> None:
        if self.state is State.LOADING:
            self.loading.emit(fraction, stage)

    def _on_loaded(self, model: ModelFacts, cache: CacheFacts) -> None:
        self.model = model
        self.cache = cache
        self._set_state(State.IDLE)
        self.model_changed.emit()
        if cache.remark:
            self.notice.emit(Notice(cache.remark, is_trouble=False))
        self._settle()

    def _load_failed(self, sentence: str) -> None:
        failed, before = self.path, self._path_before
        self.path = None
        self._set_state(State.EMPTY)
        self.model_changed.emit()
        self._give_up_answers()
        if self._next_path is not None:  # another model was asked for meanwhile
            self._load(self._next_path)
            return
        if before is None and failed is not None and not models.is_embedded(failed):
            before = models.embedded_model()
        actions: list[tuple[str, Callable[[], None]]] = []
        if before is not None:
            target = before
            if models.is_embedded(target):
                label = self.tr("Back to the embedded model")
            else:
                label = self.tr("Back to {name}").format(name=models.title(target))
            actions.append((label, lambda: self._load(target)))
        if self._cancelled:
            self.notice.emit(Notice(self.tr("Loading was cancelled."), tuple(actions), False))
        else:
            named = failed is None or sentence.startswith(failed.name)
            if not named and failed is not None:
                sentence = text("words.about", what=failed.name, sentence=sentence)
            self.notice.emit(Notice(sentence, tuple(actions)))

    # Other settings

    def _apply_choice(self) -> None:
        self._sent = self.choice_for(self.path)
        self._set_state(State.CHANGING)
        self.link.configure(self._sent)

    def _on_configured(self, model: ModelFacts, cache: CacheFacts) -> None:
        self.model = model
        self.cache = cache
        self._granted = self._sent
        self._set_state(State.IDLE)
        self.model_changed.emit()
        self._settle()

    def _change_failed(self, sentence: str) -> None:
        self._set_state(State.IDLE)
        self._sent = self._granted
        if self.choice_for(self.path) != self._sent and not self.is_shown_off:
            self.asked = self._granted
        self.model_changed.emit()
        self.notice.emit(Notice(sentence))
        self._settle()

    def _on_cache_changed(self, cache: CacheFacts) -> None:
        """The engine gave memory back because others need it, or took it again."""
        before, self.cache = self.cache, cache
        self.model_changed.emit()
        if before is not None and cache.n_slot < before.n_slot and cache.reason:
            self.notice.emit(Notice(cache.reason, is_trouble=False))
        elif before is not None and cache.n_slot > before.n_slot:
            self.notice.emit(
                Notice(self.tr("There is memory again, and the cache has grown."), is_trouble=False)
            )

    def _on_residency(self, residency: Residency) -> None:
        self.residency_changed.emit(residency)

    # Failures

    def _on_failed(self, request: str, sentence: str) -> None:
        if request == "load":
            self._load_failed(sentence)
        elif request == "configure":
            self._change_failed(sentence)
        else:
            self.notice.emit(Notice(sentence))

    def _on_died(self, sentence: str) -> None:
        was = self.state
        go_on = self._cut_off()
        self._next_path = None
        self.model = None
        self.cache = None
        self._set_state(State.DEAD)
        self.model_changed.emit()
        actions: tuple[tuple[str, Callable[[], None]], ...]
        if go_on is not None:
            actions = ((self.tr("Start again and go on"), go_on),)
        elif was is State.LOADING:
            actions = (
                (self.tr("Try again"), self._start_again),
                (self.tr("Try with half the cache"), self._start_smaller),
            )
        else:
            actions = ((self.tr("Start again"), self._start_again),)
        self.notice.emit(Notice(sentence, actions))

    def _on_hangs(self, sentence: str) -> None:
        answering = self.state is State.ANSWERING
        label = self.tr("Start again and go on") if answering else self.tr("Start again")
        actions = ((label, self._restart_hanging), (self.tr("Keep waiting"), self._dismiss))
        self.notice.emit(Notice(sentence, actions))

    def _restart_hanging(self) -> None:
        go_on = self._cut_off()
        self.link.kill()
        self._next_path = None
        self._set_state(State.DEAD)
        if go_on is not None:
            go_on()
        else:
            self._start_again()

    def _start_again(self) -> None:
        path = self.path or models.embedded_model()
        if path is not None:
            self._load(path)
        else:
            self.link.start()
            self._dismiss()
            self._set_state(State.EMPTY)

    def _start_smaller(self) -> None:
        rate = 0.5 if self.asked.automatic else self.asked.cache_rate / 2
        self.asked = replace(self.asked, automatic=False, cache_rate=rate)
        self._start_again()

    # Small things

    def _dismiss(self) -> None:
        self.notice.emit(None)

    def _set_state(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self.state_changed.emit(state)

    def _settle(self) -> None:
        """When the engine is idle, begin what waits for it: a model, settings, an answer."""
        if self.state is not State.IDLE:
            return
        if self._next_path is not None:
            self._load(self._next_path)
        elif self.choice_for(self.path) != self._sent:
            self._apply_choice()
        else:
            self._begin_answer()

    # What the conversations do about it

    def _begin_answer(self) -> None:
        """Begin the next answer that waits, if one does."""

    def stop_all(self) -> None:
        """Stop the answer that is being written, in whatever chat."""

    def _give_up_answers(self) -> None:
        """No engine will write the answers that wait."""

    def _cut_off(self) -> Callable[[], None] | None:
        """The engine is gone: end all answers; returns what goes on with the one it was at."""
        return None
