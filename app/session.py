"""One chat with one engine: what may happen when, and what happens after a failure.

The window shows a session and tells it what the user wants; the session talks to the worker. It
holds everything that must survive the worker: the conversation, the model that was asked for and
the cache rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app import context_fit, models, reasoning, units
from app.conversation import Conversation, Ending, Message
from app.engine_link import EngineLink
from app.facts import CacheFacts, ModelFacts, Residency, SlotRange, Statistics
from app.store.presets import Preset
from backend.config import EngineConfig

DEFAULTS = EngineConfig()
_ENDINGS = {"stop": Ending.FINISHED, "length": Ending.LENGTH, "context": Ending.CONTEXT}


class State(Enum):
    """What the engine is doing, as far as the user is concerned."""

    EMPTY = "empty"  # no model
    LOADING = "loading"
    IDLE = "idle"  # ready for a question
    CHANGING = "changing"  # the cache takes another size
    ANSWERING = "answering"
    STOPPING = "stopping"  # Stop was pressed; the last token is still under way
    DEAD = "dead"  # the process is gone


@dataclass(frozen=True)
class Notice:
    """A sentence for the user, with what can be done about it."""

    sentence: str
    actions: tuple[tuple[str, Callable[[], None]], ...] = ()
    is_trouble: bool = True


class Session(QObject):
    """A conversation and its engine.

    Signals:
        state_changed: State.
        model_changed: the model or its cache was loaded, changed or lost.
        loading: (fraction, stage).
        message_added: index of a new message.
        message_changed: index of a message whose text, ending or figures changed.
        conversation_replaced: all messages are others.
        branch_begun: index of the message after which all is new: what follows left the path.
        withdrawn: messages that came to nothing, which have left the conversation.
        statistics_changed, residency_changed: Statistics, Residency.
        notice: Notice to show, or None to take the present one away.
        draft: text to put back into the composer.
    """

    state_changed = Signal(object)
    model_changed = Signal()
    loading = Signal(float, str)
    message_added = Signal(int)
    message_changed = Signal(int)
    conversation_replaced = Signal()
    branch_begun = Signal(int)
    withdrawn = Signal(object)
    statistics_changed = Signal(object)
    residency_changed = Signal(object)
    notice = Signal(object)
    draft = Signal(str)

    def __init__(self, link: EngineLink, cache_rate: float, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.link = link
        self.conversation = Conversation()
        self.model: ModelFacts | None = None
        self.cache: CacheFacts | None = None
        self.asked_rate = cache_rate
        self.path: Path | None = None  # of the model that is loaded or being loaded
        self.state = State.EMPTY
        self._path_before: Path | None = None  # loaded when the present load began
        self._next_path: Path | None = None  # to load as soon as the engine is free
        self._next_answer: Callable[[], None] | None = None  # to begin as soon as it is idle
        self._sent_rate = cache_rate
        self._cancelled = False
        self.model_preset = Preset()  # of chats that have none of their own
        self._live: Message | None = None  # the answer that the engine is writing
        self._thinks_since_s = 0.0
        self._n_char_max = 0  # of a prompt that must be shortened; 0: whole
        self._tried_shorter = False
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_loaded)
        link.cache.connect(self._on_cache)
        link.prefill.connect(self._on_prefill)
        link.text.connect(self._on_text)
        link.statistics.connect(self._on_statistics)
        link.residency.connect(self._on_residency)
        link.done.connect(self._on_done)
        link.failed.connect(self._on_failed)
        link.died.connect(self._on_died)
        link.hangs.connect(self._on_hangs)
        link.recovered.connect(lambda: self.notice.emit(None))

    # What the user can ask for

    @property
    def can_send(self) -> bool:
        """Whether a message would be answered now."""
        return self.state in (State.IDLE, State.CHANGING) and self._next_answer is None

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being written, or waits for the engine to be free."""
        busy = self.state in (State.CHANGING, State.STOPPING)
        return self.state is State.ANSWERING or (busy and self._next_answer is not None)

    @property
    def n_context(self) -> int:
        """Tokens that a conversation with this model may have."""
        trained = self.model.context_length if self.model else 0
        return min(DEFAULTS.context_length, trained) if trained else DEFAULTS.context_length

    @property
    def slots(self) -> SlotRange | None:
        """What the cache may hold; None where this model cannot be cached."""
        if self.model is None or self.cache is None or not self.model.is_moe:
            return None
        if self.cache.mode == "plain" and self.cache.asked_rate < 1.0:
            return None
        return SlotRange.of(self.model, self.cache)

    @property
    def rate_waits(self) -> bool:
        """Whether the cache rate that was asked for comes into force only after this answer."""
        busy = self.state in (State.ANSWERING, State.STOPPING)
        return busy and self.slots is not None and self.asked_rate != self._sent_rate

    def open_model(self, path: Path) -> None:
        """Load a model; an answer under way is stopped first."""
        if self.state in (State.ANSWERING, State.STOPPING, State.LOADING, State.CHANGING):
            self._next_path = path
            if self.state is State.LOADING:
                self.cancel_loading()
            elif self.state is State.ANSWERING:
                self.stop()
        else:
            self._load(path)

    def cancel_loading(self) -> None:
        """Give up loading."""
        if self.state is State.LOADING:
            self._cancelled = True
            self.link.stop()

    def send(self, text: str) -> bool:
        """Say something; False where that is not possible now."""
        text = text.strip()
        if not text or not self.can_send:
            return False
        self._ask(Message("user", text))
        return True

    def regenerate(self, index: int) -> None:
        """Ask for another answer in the place of this one, which stays as a branch."""
        if self._make_room(index, "assistant"):
            self._ask(None)

    def edit(self, index: int, text: str) -> None:
        """Ask another question in the place of this one, which stays as a branch."""
        text = text.strip()
        if text and self._make_room(index, "user"):
            self._ask(Message("user", text))

    def stop(self) -> None:
        """Stop the answer. It is shown as stopped at once; a last token may still arrive."""
        if self.state is State.ANSWERING:
            self.link.stop()
            self._end(self._waiting(), Ending.STOPPED, "Stopped.")
            self._set_state(State.STOPPING)
        elif self.is_answering:
            self._end(self._waiting(), Ending.STOPPED, "Stopped.")
            self._next_answer = None
            self.state_changed.emit(self.state)

    def go_on(self) -> None:
        """Continue the last answer from what was said, starting the engine again if need be."""
        last = self.conversation.last
        self.notice.emit(None)
        if self.state in (State.DEAD, State.EMPTY):
            if self.path is None:
                self.notice.emit(Notice("Open a model first.", is_trouble=False))
                return
            self._next_answer = self._continue
            self._load(self.path)
        elif (
            last is not None and last.can_go_on and (self.can_send or self.state is State.STOPPING)
        ):
            self._next_answer = self._continue
            self._settle()

    def slide(self) -> None:
        """Go on with a full context: its beginning is kept, the middle is left out."""
        self.conversation.slides = True
        self.go_on()

    def new_chat(self) -> None:
        """Start with an empty conversation."""
        if self.conversation.messages:
            self.show(Conversation())

    def show(self, conversation: Conversation) -> None:
        """Go to another conversation, or another branch; an answer under way is stopped."""
        self.stop()
        self.conversation = conversation
        self._n_char_max = 0
        self.notice.emit(None)
        self.conversation_replaced.emit()

    def set_rate(self, rate: float) -> None:
        """Ask for a cache rate: at once when idle, otherwise from the next answer."""
        self.asked_rate = rate
        self._settle()
        self.model_changed.emit()

    # Loading

    def _load(self, path: Path) -> None:
        self._path_before = self.path if self.model is not None and self.path != path else None
        self.path = path
        self.model = None
        self.cache = None
        self._cancelled = False
        self._next_path = None
        self._sent_rate = self.asked_rate
        self.notice.emit(None)
        if not self.link.is_running:
            self.link.start()
            if not self.link.is_running:
                return  # it could not be started, and has said so
        self._set_state(State.LOADING)
        self.model_changed.emit()
        self.link.load(path, self.asked_rate, DEFAULTS)

    def _on_loading(self, fraction: float, stage: str) -> None:
        if self.state is State.LOADING:
            self.loading.emit(fraction, stage)

    def _on_loaded(self, model: ModelFacts, cache: CacheFacts) -> None:
        self.model = model
        self.cache = cache
        self._set_state(State.IDLE)
        self.model_changed.emit()
        self._settle()

    def _load_failed(self, sentence: str) -> None:
        failed, before = self.path, self._path_before
        self.path = None
        self._set_state(State.EMPTY)
        self.model_changed.emit()
        self._next_answer = None
        if self._next_path is not None:  # another model was asked for meanwhile
            self._load(self._next_path)
            return
        if before is None and failed is not None and not models.is_embedded(failed):
            before = models.embedded_model()
        actions: list[tuple[str, Callable[[], None]]] = []
        if before is not None:
            target = before
            name = "the embedded model" if models.is_embedded(target) else models.title(target)
            label = f"Back to {name}"
            actions.append((label, lambda: self._load(target)))
        if self._cancelled:
            self.notice.emit(Notice("Loading was cancelled.", tuple(actions), False))
        else:
            name = f"{failed.name}: " if failed else ""
            self.notice.emit(Notice(name + sentence, tuple(actions)))

    # The cache

    def _apply_rate(self) -> None:
        self._sent_rate = self.asked_rate
        self._set_state(State.CHANGING)
        self.link.set_cache_rate(self.asked_rate)

    def _on_cache(self, cache: CacheFacts) -> None:
        self.cache = cache
        self._set_state(State.IDLE)
        self.model_changed.emit()
        self._settle()

    # Answering

    def _add(self, message: Message) -> None:
        self.conversation.messages.append(message)
        self.message_added.emit(len(self.conversation.messages) - 1)

    @property
    def preset(self) -> Preset:
        """The system prompt and sampling in force."""
        return self.conversation.preset or self.model_preset

    def _make_room(self, index: int, role: str) -> bool:
        """Take a message and what follows it off the path; False where that is not possible."""
        messages = self.conversation.messages
        if not (0 <= index < len(messages) and messages[index].role == role):
            return False
        if not (self.can_send or self.is_answering or self.state is State.STOPPING):
            return False
        self.stop()
        del messages[index:]
        self.branch_begun.emit(index)
        return True

    def _ask(self, question: Message | None) -> None:
        """Say something, or ask again for an answer, as soon as the engine is free."""
        self.notice.emit(None)
        self._tried_shorter = False
        if question is not None:
            self._add(question)
        self._add(Message("assistant", "", Ending.WAITING))
        self._next_answer = self._generate
        self._settle()
        self.state_changed.emit(self.state)

    def _generate(self) -> None:
        preset = self.preset
        turns = self.conversation.for_engine(preset.system)
        if self.conversation.slides and self._n_char_max:
            turns = context_fit.fit(turns, self._n_char_max)
        self._live = self.conversation.last
        self._set_state(State.ANSWERING)
        self.link.generate(turns, dict(preset.sampling))

    def _continue(self) -> None:
        last = self.conversation.last
        if last is None or not last.can_go_on:
            return
        if last.ending is Ending.CONTEXT and last.statistics is not None:
            self._n_char_max = self._half_full(last.statistics)
        last.content = last.content.rstrip()  # the template would cut it; the text must agree
        if last.statistics is not None:
            last.n_token_before += last.statistics.n_token
        last.statistics = None
        last.note = ""
        last.ending = Ending.WAITING
        self._changed()
        self._generate()

    def _half_full(self, statistics: Statistics) -> int:
        """Return how many characters fill half of a context that is full now."""
        n_token = max(statistics.n_prompt + statistics.n_token, 1)
        sent = self.conversation.for_engine(self.preset.system)
        n_char = sum(len(turn["content"]) for turn in sent)
        if self._n_char_max:  # only so much of it was sent
            n_char = min(n_char, self._n_char_max + len(self.conversation.messages[-1].content))
        return max(n_char * self.n_context // (2 * n_token), 200)

    def _changed(self) -> None:
        self.message_changed.emit(len(self.conversation.messages) - 1)

    def _answer(self) -> Message | None:
        """Return the answer that arriving text belongs to; None where it left the conversation."""
        last = self.conversation.last
        return last if last is not None and last is self._live else None

    def _waiting(self) -> Message | None:
        """Return the answer that is being written or waited for."""
        last = self.conversation.last
        return last if last is not None and last.role == "assistant" and last.is_live else None

    def _on_prefill(self, done: int, total: int) -> None:
        answer = self._answer()
        if answer is not None and answer.ending is Ending.WAITING:
            answer.progress = f"Reading the prompt: {done:,} of {units.count(total, 'token')}"
            self._changed()

    def _on_text(self, text: str) -> None:
        answer = self._answer()
        if answer is not None and text:
            answer.content += text
            if answer.ending is Ending.WAITING:
                answer.ending = Ending.STREAMING
                answer.progress = ""
                self._thinks_since_s = time.monotonic() - answer.thought_s
            self._time_thought(answer)
            self._changed()

    def _time_thought(self, answer: Message) -> None:
        """Measure how long the reasoning takes, from its first token to the end of it."""
        now_s = time.monotonic()
        if self._thinks_since_s == 0.0:
            return
        parts = reasoning.find(answer.content)
        if parts.has_thought:
            answer.thought_s = now_s - self._thinks_since_s
        if parts.has_thought and not parts.is_open:
            self._thinks_since_s = 0.0

    def _on_statistics(self, statistics: Statistics) -> None:
        answer = self._answer()
        if answer is not None:
            answer.statistics = statistics
        self.statistics_changed.emit(statistics)

    def _on_residency(self, residency: Residency) -> None:
        self.residency_changed.emit(residency)

    def _end(self, answer: Message | None, ending: Ending, note: str = "") -> None:
        if answer is not None and answer.ending is not Ending.STOPPED:
            answer.ending = ending
            answer.note = note
            answer.progress = ""
            self._changed()

    def _on_done(self, reason: str, statistics: Statistics) -> None:
        answer = self._answer()
        if answer is not None:
            answer.statistics = statistics
            self._changed()
        ending = _ENDINGS.get(reason, Ending.STOPPED)
        self._end(answer, ending, "Stopped." if ending is Ending.STOPPED else "")
        self._live = None
        self._set_state(State.IDLE)
        self.statistics_changed.emit(statistics)
        if answer is not None and answer.ending is Ending.CONTEXT:
            self._context_is_full(answer)
        self._settle()

    def _context_is_full(self, answer: Message) -> None:
        """Go on as was chosen before, or let the user choose."""
        if self._next_answer is not None or self._next_path is not None:
            return
        if self.conversation.slides:
            if answer.statistics is None or answer.statistics.n_token > 0:
                self._next_answer = self._continue
            return
        answer.note = "The context is full."
        self._changed()
        self.notice.emit(
            Notice(
                f"The context of {units.count(self.n_context, 'token')} is full. The answer can go "
                "on without the middle of this chat: its beginning and its end are kept.",
                (("Leave out the middle and go on", self.slide), ("Stop here", self._dismiss)),
                is_trouble=False,
            )
        )

    def _dismiss(self) -> None:
        self.notice.emit(None)

    # Failures

    def _on_failed(self, request: str, sentence: str) -> None:
        if request == "load":
            self._load_failed(sentence)
        elif request == "generate":
            self._answer_failed(sentence)
            self._set_state(State.IDLE)
            self._settle()
        elif request == "set_cache_rate":
            self._set_state(State.IDLE)
            if self.cache is not None:
                self.asked_rate = self._sent_rate = self.cache.asked_rate
            self.model_changed.emit()
            self.notice.emit(Notice(sentence))
            self._settle()
        else:
            self.notice.emit(Notice(sentence))

    def _answer_failed(self, sentence: str) -> None:
        answer, messages = self._answer(), self.conversation.messages
        self._live = None
        counts = context_fit.counts(sentence)
        if answer is not None and counts is not None and len(messages) > 2:
            sent = self.conversation.for_engine(self.preset.system)
            n_char = sum(len(turn["content"]) for turn in sent)
            self._n_char_max = n_char * self.n_context // (2 * max(counts[0], 1))
            if self.conversation.slides and not self._tried_shorter:
                self._tried_shorter = True
                self._next_answer = self._generate
                return
            self._end(answer, Ending.CUT_OFF, "The context has no room for this.")
            actions = (
                ("Leave out the middle and go on", self.slide), ("Stop here", self._dismiss),
            )  # fmt: skip
            self.notice.emit(Notice(sentence, actions, is_trouble=False))
            return
        if answer is not None and not answer.content and answer.ending is not Ending.STOPPED:
            # Nothing came: what the user wrote goes back to where it can be changed.
            withdrawn = messages[-2:]
            del messages[-2:]
            self.withdrawn.emit(withdrawn)
            self.conversation_replaced.emit()
            self.draft.emit(withdrawn[0].content)
        else:
            self._end(answer, Ending.CUT_OFF, sentence)
        self.notice.emit(Notice(sentence))

    def _on_died(self, sentence: str) -> None:
        was, was_answering = self.state, self.is_answering
        self._end(self._waiting(), Ending.CUT_OFF, "Cut off here.")
        self._live = None
        self._next_path = None
        self._next_answer = None
        self.model = None
        self.cache = None
        self._set_state(State.DEAD)
        self.model_changed.emit()
        actions: tuple[tuple[str, Callable[[], None]], ...]
        if was_answering:
            actions = (("Start again and go on", self.go_on),)
        elif was is State.LOADING:
            actions = (
                ("Try again", self._start_again),
                ("Try with half the cache", self._start_smaller),
            )
        else:
            actions = (("Start again", self._start_again),)
        self.notice.emit(Notice(sentence, actions))

    def _on_hangs(self, sentence: str) -> None:
        label = "Start again and go on" if self.state is State.ANSWERING else "Start again"
        actions = ((label, self._restart_hanging), ("Keep waiting", lambda: self.notice.emit(None)))
        self.notice.emit(Notice(sentence, actions))

    def _restart_hanging(self) -> None:
        was_answering = self.state is State.ANSWERING
        self._end(self._waiting(), Ending.CUT_OFF, "Cut off here.")
        self._live = None
        self.link.kill()
        self._next_path = None
        self._next_answer = None
        self._set_state(State.DEAD)
        if was_answering:
            self.go_on()
        else:
            self._start_again()

    def _start_again(self) -> None:
        path = self.path or models.embedded_model()
        if path is not None:
            self._load(path)
        else:
            self.link.start()
            self.notice.emit(None)
            self._set_state(State.EMPTY)

    def _start_smaller(self) -> None:
        self.asked_rate /= 2
        self._start_again()

    # Small things

    def _set_state(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self.state_changed.emit(state)

    def _settle(self) -> None:
        """When the engine is idle, begin what waits for it: a model, a cache rate, an answer."""
        if self.state is not State.IDLE:
            return
        if self._next_path is not None:
            self._load(self._next_path)
        elif self.slots is not None and self.asked_rate != self._sent_rate:
            self._apply_rate()
        elif self._next_answer is not None:
            begin, self._next_answer = self._next_answer, None
            begin()
