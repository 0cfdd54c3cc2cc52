"""The engine as the window sees it: its process, the model, and the settings it runs with.

The user's settings (`asked`) and those in force (`cache`, `model`) are kept apart. Both outlive the
worker's process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.session import known_models as models
from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from app.state.engine_state import Notice, State
from app.state.slot_range import SlotRange
from backend.library.places import ollama_vision
from backend.protocol.status import CacheFacts, ModelFacts
from backend.text import text


@dataclass(frozen=True)
class _Loaded:
    """A loaded model, to go on with if the engine refuses the next one."""

    path: Path
    model: ModelFacts
    cache: CacheFacts
    choice: EngineChoice


SHOWN_RATE = 0.25  # for the embedded model: it would fit whole, but it has to show the cache


class EngineSession(QObject):
    """One engine: loads models, and changes its settings between answers.

    Signals:
        state_changed: (State).
        model_changed: the model, its cache or the user's settings changed.
        loading: (fraction, stage).
        notice: (Notice) to show; None removes the present one.
        ready: the engine is idle, and neither a model nor settings wait for it.
        stop_wanted: another model waits; all answers have to stop.
        load_failed: the engine will not write the answers that wait.
        lost: the process is gone or is about to be killed; a receiver that can continue its answer
            sets `resume`.
    """

    state_changed = Signal(object)
    model_changed = Signal()
    loading = Signal(float, object)
    notice = Signal(object)
    ready = Signal()
    stop_wanted = Signal()
    load_failed = Signal()
    lost = Signal()

    def __init__(
        self,
        link: EngineLink,
        choice: EngineChoice,
        parent: QObject | None = None,
        own: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(parent)
        self.link = link
        self.model: ModelFacts | None = None
        self.cache: CacheFacts | None = None
        self.usual = choice
        """The settings of the machine, and those of models without their own."""
        self.own: dict[str, dict[str, Any]] = {} if own is None else own
        """The settings of models that have their own, by path; see OF_MODEL."""
        self._asked = choice
        self.path: Path | None = None  # of the model that is loaded or being loaded
        self.state = State.EMPTY
        self.resume: Callable[[], None] | None = None  # continues the answer that `lost` cut off
        self._path_before: Path | None = None  # loaded when the present load began
        self._before: _Loaded | None = None  # the whole of it
        self._next_path: Path | None = None  # to load as soon as the engine is free
        self._sent = choice  # sent to the engine last
        self._accepted = choice  # accepted by the engine last
        self._n_changing = 0  # changes of settings that the engine has not accepted yet
        self._cancelled = False
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_loaded)
        link.configured.connect(self._on_configured)
        link.reloaded.connect(self._on_reloaded)
        link.cache_changed.connect(self._on_cache_changed)
        link.error.connect(self._on_failed)
        link.refused.connect(self._on_refused)
        link.died.connect(self._on_died)
        link.hangs.connect(self._on_hangs)
        link.recovered.connect(self.dismiss)

    # The settings

    @property
    def asked(self) -> EngineChoice:
        """The user's settings for the present model. Assigned settings are kept for this model."""
        return self._asked

    @asked.setter
    def asked(self, choice: EngineChoice) -> None:
        self._asked = choice
        if self.path is None:
            self.usual = choice
            return
        self.usual = replace(choice, **self.usual.of_model())
        self.own.pop(str(self.path), None)
        if choice != self.usual:
            self.own[str(self.path)] = choice.of_model()

    def asked_for(self, path: Path | None) -> EngineChoice:
        """Return the user's settings for a model: its own, or the usual ones."""
        if path == self.path:
            return self._asked
        return replace(self.usual, **self.own.get(str(path), {}))

    def forget_settings(self, choice: EngineChoice) -> None:
        """Return to `choice` for all models."""
        self.own.clear()
        self.usual = choice
        self.choose(choice)

    @property
    def n_context(self) -> int:
        """Return the context length of this model, in tokens."""
        trained = self.model.context_length if self.model else 0
        return trained or self.asked.context_length

    @property
    def slots(self) -> SlotRange | None:
        """Return the possible cache sizes; None if this model cannot be cached."""
        if self.model is None or self.cache is None or not self.model.is_moe:
            return None
        if self.cache.mode == "plain" and self.cache.asked_rate < 1.0:
            return None
        return SlotRange.of(self.model, self.cache)

    @property
    def asked_rate(self) -> float:
        """Return the requested cache rate of the present model; 1: as much as memory permits."""
        return self.rate_for(self.path)

    def rate_for(self, path: Path | None) -> float:
        """Return the cache rate that would be requested for a model."""
        choice = self.choice_for(path)
        is_free = choice.automatic and "cache_rate" not in choice.by_hand
        return 1.0 if is_free else choice.cache_rate

    @property
    def is_shown_off(self) -> bool:
        """Return whether the embedded model has a small cache only to show how it works."""
        return self.asked.automatic and self.path is not None and models.is_embedded(self.path)

    def choice_for(self, path: Path | None) -> EngineChoice:
        """Return the settings to send to the engine for a model."""
        asked = self.asked_for(path)
        if asked.automatic and path is not None and models.is_embedded(path):
            return replace(
                asked, automatic=False, method="auto", cache_rate=SHOWN_RATE,
                context_length=EngineChoice.context_length,
            )  # fmt: skip
        vision = ollama_vision(path) if path is not None and not asked.setup.mmproj else None
        return asked.changed(mmproj=str(vision)) if vision is not None else asked

    @property
    def change_waits(self) -> bool:
        """Return whether changed settings are not in force yet, within an answer."""
        if self.model is None or self.state not in (State.ANSWERING, State.STOPPING):
            return False
        return self._n_changing > 0 or self.choice_for(self.path) != self._sent

    def choose(self, choice: EngineChoice) -> None:
        """Request other settings: at once when idle, otherwise from the next answer.

        Another cache rate alone takes effect within the answer, where only the cache changes.
        """
        self.asked = choice
        self.settle()
        self.model_changed.emit()

    def set_rate(self, rate: float) -> None:
        """Request a cache rate."""
        self.choose(replace(self.asked, cache_rate=rate))

    @property
    def longer_context(self) -> int:
        """Return twice the context, or the longest that the model knows; 0: it has that already."""
        n_context, most = self.n_context, self.model.trained_length if self.model else 0
        return min(2 * n_context, most) if n_context < most else 0

    def set_context(self, n_token: int) -> None:
        """Request a context; the other settings stay automatic if they are."""
        if self.is_shown_off:  # its settings are not the user's
            self.asked = replace(self.choice_for(self.path), automatic=False)
        self.choose(self.asked.decided(context_length=n_token))

    # Loading

    def open_model(self, path: Path) -> None:
        """Load a model. Stop a running answer first."""
        if self.state in (State.ANSWERING, State.STOPPING, State.LOADING, State.CHANGING):
            self._next_path = path
            if self.state is State.LOADING:
                self.cancel_loading()
            elif self.state is State.ANSWERING:
                self.stop_wanted.emit()
        else:
            self._load(path)

    @property
    def model_waits(self) -> bool:
        """Return whether another model will be loaded as soon as the engine is free."""
        return self._next_path is not None

    def free(self) -> None:
        """Free the model; `link.unloaded` follows. REQUIRES: the engine is idle."""
        self.path, self._asked, self.model, self.cache = None, self.usual, None, None
        self.dismiss()
        self.set_state(State.EMPTY)
        self.model_changed.emit()
        self.link.unload()

    def cancel_loading(self) -> None:
        """Cancel loading."""
        if self.state is State.LOADING:
            self._cancelled = True
            self.link.stop()

    def _load(self, path: Path) -> None:
        self._path_before = self.path if self.model is not None and self.path != path else None
        if self.path is not None and self.model is not None and self.cache is not None:
            self._before = _Loaded(self.path, self.model, self.cache, self._accepted)
        self._asked, self.path = self.asked_for(path), path
        self.model = None
        self.cache = None
        self._cancelled = False
        self._next_path = None
        self._sent = self._accepted = self.choice_for(path)
        self.dismiss()
        if not self.link.is_running:
            self.link.start()
            if not self.link.is_running:
                return  # it could not be started; `died` has told the user
        self.set_state(State.LOADING)
        self.model_changed.emit()
        self.link.load(path, self._sent)

    def _on_loading(self, fraction: float, stage: str) -> None:
        if self.state is State.LOADING:
            self.loading.emit(fraction, stage)

    def _on_loaded(self, model: ModelFacts, cache: CacheFacts) -> None:
        self.model = model
        self.cache = cache
        self._before = None
        self.set_state(State.IDLE)
        self.model_changed.emit()
        if cache.remark:
            self.notice.emit(Notice(cache.remark, is_trouble=False))
        self.settle()

    def _on_refused(self, sentence: str) -> None:
        """Go on with the model before, which the engine has kept."""
        before, refused = self._before, self.path
        if before is None or refused is None:
            self._on_load_failed(sentence)
            return
        self._asked, self.path = self.asked_for(before.path), before.path
        self.model, self.cache = before.model, before.cache
        self._sent = self._accepted = before.choice
        self.set_state(State.IDLE)
        self.model_changed.emit()
        if not sentence.startswith(refused.name):
            sentence = text("words.about", what=refused.name, sentence=sentence)
        self.notice.emit(Notice(sentence))
        self.settle()

    def _on_load_failed(self, sentence: str) -> None:
        failed, before = self.path, self._path_before
        self.path, self._asked = None, self.usual
        self.set_state(State.EMPTY)
        self.model_changed.emit()
        if self._next_path is not None:  # the user picked another model meanwhile
            self._load(self._next_path)
            return
        self.load_failed.emit()
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

    # Changing settings

    def _apply_choice(self) -> None:
        self._sent = self.choice_for(self.path)
        self._n_changing += 1
        if self.state is State.IDLE:
            self.set_state(State.CHANGING)
        self.link.configure(self._sent)

    def _on_configured(self, model: ModelFacts, cache: CacheFacts) -> None:
        self.model = model
        self.cache = cache
        self._accepted = self._sent
        self._end_change()

    def _end_change(self) -> None:
        self._n_changing = max(self._n_changing - 1, 0)
        if self.state is State.CHANGING and self._n_changing == 0:
            self.set_state(State.IDLE)
        self.model_changed.emit()
        self.settle()

    def _on_reloaded(self, model: ModelFacts, cache: CacheFacts) -> None:
        """Take the facts of the model, which the local server had freed or replaced."""
        self.model, self.cache = model, cache
        self.model_changed.emit()

    def _on_change_failed(self, sentence: str) -> None:
        self._sent = self._accepted
        if self.choice_for(self.path) != self._sent and not self.is_shown_off:
            self.asked = self._accepted
        self.notice.emit(Notice(sentence))
        self._end_change()

    def _on_cache_changed(self, cache: CacheFacts) -> None:
        """Report that the engine shrank its cache for other programs, or grew it again."""
        before, self.cache = self.cache, cache
        self.model_changed.emit()
        if before is not None and cache.n_slot < before.n_slot and cache.reason:
            self.notice.emit(Notice(cache.reason, is_trouble=False))
        elif before is not None and cache.n_slot > before.n_slot:
            self.notice.emit(
                Notice(self.tr("Memory is free again, so the cache has grown."), is_trouble=False)
            )

    # Failures

    def _on_failed(self, request: str, sentence: str) -> None:
        if request == "load":
            self._on_load_failed(sentence)
        elif request == "configure":
            self._on_change_failed(sentence)
        elif request not in ("count", "format", "generate"):
            self.notice.emit(Notice(sentence))

    def _on_died(self, sentence: str) -> None:
        was_loading = self.state is State.LOADING
        self.lost.emit()
        self._next_path = self._before = None
        self._n_changing = 0
        self.model = None
        self.cache = None
        self.set_state(State.DEAD)
        self.model_changed.emit()
        actions: tuple[tuple[str, Callable[[], None]], ...]
        if self.resume is not None:
            actions = ((self.tr("Start again and continue"), self.resume),)
        elif was_loading:
            actions = (
                (self.tr("Try again"), self._start_again),
                (self.tr("Try with half the cache"), self._start_smaller),
            )
        else:
            actions = ((self.tr("Start again"), self._start_again),)
        self.notice.emit(Notice(sentence, actions))

    def _on_hangs(self, sentence: str) -> None:
        answering = self.state is State.ANSWERING
        label = self.tr("Start again and continue") if answering else self.tr("Start again")
        actions = ((label, self._restart_hanging), (self.tr("Keep waiting"), self.dismiss))
        self.notice.emit(Notice(sentence, actions))

    def _restart_hanging(self) -> None:
        self.lost.emit()
        self.link.kill()
        self._next_path, self._n_changing = None, 0
        self.set_state(State.DEAD)
        if self.resume is not None:
            self.resume()
        else:
            self._start_again()

    def _start_again(self) -> None:
        path = self.path or models.embedded_model()
        if path is not None:
            self._load(path)
        else:
            self.link.start()
            self.dismiss()
            self.set_state(State.EMPTY)

    def _start_smaller(self) -> None:
        rate = 0.5 if self.asked.automatic else self.asked.cache_rate / 2
        self.asked = replace(self.asked, automatic=False, cache_rate=rate)
        self._start_again()

    # State

    def dismiss(self) -> None:
        """Remove the present notice."""
        self.notice.emit(None)

    def set_state(self, state: State) -> None:
        """Enter a state. An answer begins and ends outside this class."""
        if state is not self.state:
            self.state = state
            self.state_changed.emit(state)

    def settle(self) -> None:
        """Begin the next task of an idle engine: load a model, change settings, or be ready."""
        choice = self.choice_for(self.path)
        if self.state is State.ANSWERING and self.model is not None:
            if choice == replace(self._sent, cache_rate=choice.cache_rate) != self._sent:
                self._apply_choice()
            return
        if self.state is not State.IDLE:
            return
        if self._next_path is not None:
            self._load(self._next_path)
        elif choice != self._sent:
            self._apply_choice()
        elif self._n_changing:
            self.set_state(State.CHANGING)  # changes that the answer was too short for
        else:
            self.ready.emit()
