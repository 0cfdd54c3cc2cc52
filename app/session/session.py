"""The conversations with one engine: when a message can be sent, and how answers proceed.

The window shows one conversation and passes the user's wishes to the session. An answer continues
while the user looks at another chat; a question asked there waits for its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, Signal

from app.session.engine import EngineSession
from app.state import context_fit
from app.state.conversation import Conversation, Ending, Message, question
from app.state.engine_state import Notice, State
from app.state.preset import Preset
from app.text import units
from app.text.messages import localized
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ChatOptions, Delta, Json
from backend.protocol.messages import MAX_BYTES, ProtocolError
from backend.protocol.statistics import Statistics
from backend.text import text

_ENDINGS = {
    "stop": Ending.FINISHED,
    "tool_calls": Ending.FINISHED,
    "length": Ending.LENGTH,
    "context": Ending.CONTEXT,
}


TakePrompt = Callable[[str, str], None]
"""Takes a rendered prompt, or "" and a sentence that says why there is none."""


@dataclass(eq=False)
class _Turn:
    """An answer in progress or in the queue: the last message of a conversation.

    others: branches whose last messages are answered beside it. is_new: it has a new question,
    which goes back into the composer if the answer never begins.
    """

    conversation: Conversation
    goes_on: bool = False  # continue the text of the last answer; otherwise begin a new one
    others: list[Conversation] = field(default_factory=list)
    is_new: bool = False

    @property
    def branches(self) -> list[Conversation]:
        """Return the conversations whose last messages are answered."""
        return [self.conversation, *self.others]

    def has(self, conversation: Conversation) -> bool:
        """Return whether this is one of its branches."""
        return any(branch is conversation for branch in self.branches)


class Session(QObject):
    """The conversation that is shown, and those with an answer in progress or in the queue.

    Signals:
        notice: (Notice) to show, also from the engine; None removes the present one.
        added: (Conversation, int) index of a new message of a conversation, shown or not.
        message_added: (int) index of a new message of the shown conversation.
        changed: (Conversation, Message) whose text, ending or figures changed, shown or not.
        message_changed: (int) index of a message of the shown conversation that changed.
        conversation_replaced: another conversation is shown.
        branch_begun: (int) index of the first message that left the path; a new branch begins here.
        spliced: (index, n, n_new) n messages of the shown conversation were replaced by n_new.
        withdrawn: (list of Message) failed messages that were removed from the conversation.
        busy_changed: the set of chats with answers in progress or in the queue changed.
        can_send_changed: `can_send` or `is_answering` may have changed.
        left_out_changed: the model sees another part of the shown conversation.
        statistics_changed: (Statistics).
        draft: (str) text to put back into the composer.
        draft_files: (list of Attachment) files to put back into the composer, before the text.
        send_again: the text in the composer has to be sent.
        calls_made: (Conversation, Message) an answer that ended with tool calls.
        stopped: (Conversation) the user stopped its answer or tool calls.
    """

    notice = Signal(object)
    added = Signal(object, int)
    message_added = Signal(int)
    changed = Signal(object, object)
    message_changed = Signal(int)
    conversation_replaced = Signal()
    branch_begun = Signal(int)
    spliced = Signal(int, int, int)
    withdrawn = Signal(object)
    busy_changed = Signal()
    can_send_changed = Signal()
    left_out_changed = Signal()
    statistics_changed = Signal(object)
    draft = Signal(str)
    draft_files = Signal(object)
    send_again = Signal()
    calls_made = Signal(object, object)
    stopped = Signal(object)

    def __init__(self, engine: EngineSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.engine = engine
        self.conversation = Conversation()
        self.model_preset = Preset()  # for chats without their own
        self.why_not_kept: Callable[[Message], str] = lambda _: ""
        """Return why a new message is not on disk, in a sentence; "" if it is there."""
        self.owner_of: Callable[[int], str] = lambda _: ""
        """Return the owner of a chat's state on the drive, by the chat's id; "": none is kept."""
        self.tools: Callable[[], Sequence[Json]] = lambda: ()
        """Return the tools that are on, in OpenAI's form."""
        self.tools_awaited: Callable[[], str] = lambda: ""
        """Return the servers of tools whose start an answer waits for, in words; "" without one."""
        self.tools_missing: Callable[[], str] = lambda: ""
        """Return which servers that are on give no tools, in sentences. Tell each failure once."""
        self.calling: Callable[[], Sequence[tuple[Conversation, bool]]] = lambda: ()
        """Return the conversations whose tool calls wait or run, and whether they run."""
        self._accepts_unkept = False  # the user agreed to send messages that are not kept
        self._live: _Turn | None = None  # the answer in progress
        self._live_message: Message | None = None
        self._waiting_turns: list[_Turn] = []
        self._thinks_since_s = 0.0
        self._prompt_takers: list[TakePrompt] = []  # of the requests without an answer
        engine.notice.connect(self.notice)
        engine.ready.connect(self._begin_answer)
        engine.stop_wanted.connect(self.stop_all)
        engine.load_failed.connect(self._give_up_answers)
        engine.lost.connect(self._cut_off)
        link = engine.link
        link.prefill.connect(self._on_prefill)
        link.text.connect(self._on_text)
        link.other_text.connect(self._on_other_text)
        link.other_done.connect(self._on_other_done)
        link.waits.connect(self._on_waits)
        link.loading.connect(self._on_loading)
        link.stats.connect(self._on_statistics)
        link.done.connect(self._on_done)
        link.error.connect(self._on_failed)
        link.formatted.connect(lambda prompt: self._give_prompt(prompt, ""))

    # Actions of the user

    @property
    def can_send(self) -> bool:
        """Return whether a message would be answered, now, in its turn, or by a loading model."""
        return self.engine.state not in (State.EMPTY, State.DEAD) and not self.is_answering

    @property
    def is_answering(self) -> bool:
        """Return whether the shown conversation has an answer in progress or in the queue."""
        if any(found is self.conversation and runs for found, runs in self.calling()):
            return True
        if self.engine.state in (State.DEAD, State.EMPTY):
            return False
        if self.engine.state is State.LOADING:
            return self._is_queued(self.conversation)
        return _unfinished(self.conversation) is not None or self._is_queued(self.conversation)

    @property
    def growing(self) -> list[Message]:
        """Return the answers, shown or not, that are in progress or in the queue."""
        found = [_unfinished(branch) for turn in self._turns for branch in turn.branches]
        return [message for message in found if message is not None]

    @property
    def _turns(self) -> list[_Turn]:
        """The answer in progress and those in the queue."""
        return [*([self._live] if self._live is not None else []), *self._waiting_turns]

    @property
    def busy_chats(self) -> set[int]:
        """Return the ids of the chats with an answer in progress or in the queue."""
        return {
            branch.chat_id
            for turn in self._turns
            for branch in turn.branches
            if _unfinished(branch) is not None
        } | {conversation.chat_id for conversation, _ in self.calling()}

    @property
    def preset(self) -> Preset:
        """Return the system prompt, sampling and thinking of the shown conversation."""
        return self._preset_of(self.conversation)

    def _preset_of(self, conversation: Conversation) -> Preset:
        return conversation.preset or self.model_preset

    def under_way(self, chat_id: int) -> Conversation | None:
        """Return the conversation of a chat if it has an answer or tool calls in progress."""
        for conversation, _ in self.calling():
            if conversation.chat_id == chat_id:
                return conversation
        for turn in self._turns:
            for branch in turn.branches:
                if branch.chat_id == chat_id and _unfinished(branch) is not None:
                    return branch
        return None

    def written_jointly(self, chat_id: int, number: int) -> Conversation | None:
        """Return the branch with this number of a chat's answers that are written jointly.

        number 0: any.
        """
        for turn in self._turns:
            if turn.others and turn.conversation.chat_id == chat_id:
                if any(map(_unfinished, turn.branches)):
                    for branch in turn.branches:
                        if branch.last is not None and number in (0, branch.last.branch[0]):
                            return branch
        return None

    def send(self, text: str, attachments: Sequence[Attachment] = ()) -> bool:
        """Send a message. Return False if that is not possible now."""
        text = text.strip()
        is_any = bool(text or attachments)
        return is_any and self.can_send and self._ask(question(text, attachments))

    def regenerate(self, index: int) -> None:
        """Ask for another answer to the same question. The present one stays as a branch."""
        if self._may_queue() and self._cut_path(index, "assistant"):
            self._ask(None)

    def more_answers(self, index: int, n: int) -> None:
        """Ask for n other answers to the same question, which are written jointly as branches."""
        if not self._may_queue():
            return
        if self.preset.sampling.get("temperature") == 0:
            same = self.tr("At temperature 0 all answers would be the same.")
            self.notice.emit(Notice(same, is_trouble=False))
        elif self._cut_path(index, "assistant"):
            self.engine.dismiss()
            first = self.conversation
            before = list(first.messages)
            others = [replace(first, messages=list(before)) for _ in range(n - 1)]
            for branch in (*others, first):  # the one that is shown comes last
                self._add(Message("assistant", "", Ending.WAITING, is_joint=True), branch)
            self._number_branches([first, *others])
            self._queue(_Turn(first, others=others))

    def _number_branches(self, branches: list[Conversation]) -> None:
        """Number new branches in the order of the store, which has numbered each as it came."""
        answers = [branch.last for branch in branches if branch.last is not None]
        count = max(answer.branch[1] for answer in answers)
        for answer in answers:
            answer.branch = (answer.branch[0], count)
        for branch in branches:
            if branch.last is not None:
                self.report_change(branch, branch.last)

    def edit(self, index: int, text: str) -> None:
        """Replace a question by another with the same files. The present one stays as a branch."""
        text, before = text.strip(), list(self.conversation.messages)
        files = before[index].attachments if 0 <= index < len(before) else []
        if not (text or files):
            return
        if not self._may_queue():
            self._put_back(question(text, files))
        elif self._cut_path(index, "user") and not self._ask(question(text, files)):
            self.conversation.messages[:] = before
            self.conversation_replaced.emit()

    def take_results(
        self, conversation: Conversation, results: list[Message], goes_on: bool = True
    ) -> None:
        """Add the results of the last answer's tool calls. goes_on: ask for the answer to them.

        results: messages with the role "tool". They are dropped if the conversation has gone on.
        """
        last = conversation.last
        if last is None or last.is_live or not last.tool_calls:
            return
        for message in results:
            self._add(message, conversation)
        if goes_on:
            self._add(Message("assistant", "", Ending.WAITING), conversation)
            self._queue(_Turn(conversation))

    def report_calls(self, conversation: Conversation, answer: Message) -> None:
        """Show the states of an answer's tool calls."""
        for index, message in enumerate(conversation.messages):
            if message is answer and conversation is self.conversation:
                self.message_changed.emit(index)
        self.busy_changed.emit()
        self.can_send_changed.emit()

    def stop(self) -> None:
        """Stop the answer of the shown conversation. One more token may still arrive."""
        self._stop_in(self.conversation)

    def stop_chat(self, chat_id: int) -> None:
        """Stop the answer of a chat, shown or not."""
        conversation = self.under_way(chat_id)
        if conversation is not None:
            self._stop_in(conversation)

    def go_on(self) -> None:
        """Continue the last answer from its text. Restart the engine if necessary."""
        last = self.conversation.last
        self.engine.dismiss()
        waits = self.is_answering or self._is_queued(self.conversation)
        if last is not None and last.can_go_on and not waits and self._may_queue():
            self._queue(_Turn(self.conversation, goes_on=True))

    def ask_prompt(self, index: int, take: TakePrompt) -> None:
        """Render the prompt of an answer again, with the present model and settings."""
        if self.engine.state in (State.DEAD, State.EMPTY, State.LOADING):
            take("", self.tr("The prompt can be shown when a model is loaded."))
            return
        shown = self.conversation
        before = replace(shown, messages=shown.messages[:index])
        self._prompt_takers.append(take)
        self.engine.link.format(self.turns_of(before), self.options_of(shown))

    def _give_prompt(self, prompt: str, why_not: str) -> None:
        if self._prompt_takers:
            self._prompt_takers.pop(0)(prompt, why_not)

    def apply_now(self) -> None:
        """Stop the shown answer, let the engine change its settings, and continue the answer."""
        self.stop()
        self.go_on()

    def slide(self) -> None:
        """Continue with a full context: keep its beginning, leave out its middle."""
        self.conversation.slides = True
        self.go_on()

    def new_chat(self) -> None:
        """Start with an empty conversation."""
        if self.conversation.messages:
            self.show(Conversation())

    def show(self, conversation: Conversation) -> None:
        """Show another conversation or branch. Answers in progress continue."""
        self.conversation = conversation
        self.engine.dismiss()
        self.conversation_replaced.emit()
        self.can_send_changed.emit()
        last = conversation.last
        if last is not None and last.ending is Ending.CONTEXT and not self._is_queued(conversation):
            self._offer_to_slide(last)

    def splice(self, index: int, n: int, new: Sequence[Message]) -> None:
        """Replace n messages of the shown conversation, which has no answer in progress."""
        conversation = self.conversation
        conversation.messages[index : index + n] = new
        conversation.n_char_besides = None  # the engine's last prompt was another
        self.engine.dismiss()
        self.spliced.emit(index, n, len(new))
        self.can_send_changed.emit()

    # Asking

    def _may_queue(self) -> bool:
        """Return whether an answer can be queued. If there is no model, say so."""
        if self.engine.path is not None:
            return True
        self.notice.emit(Notice(self.tr("Open a model first."), is_trouble=False))
        return False

    def _add(self, message: Message, conversation: Conversation | None = None) -> None:
        conversation = conversation or self.conversation
        conversation.messages.append(message)
        index = len(conversation.messages) - 1
        self.added.emit(conversation, index)
        if conversation is self.conversation:
            self.message_added.emit(index)

    def _cut_path(self, index: int, role: str) -> bool:
        """Remove a message and its successors from the path. Return False if that is impossible."""
        messages = self.conversation.messages
        if not (0 <= index < len(messages) and messages[index].role == role):
            return False
        self.stop()
        del messages[index:]
        self.branch_begun.emit(index)
        return True

    def _ask(self, question: Message | None) -> bool:
        """Queue an answer to a new question, or another answer to the last one (None).

        Return False if the question cannot be written to disk; it is then taken back, unless the
        user has agreed to send it anyway.
        """
        self.engine.dismiss()
        self.conversation.was_shortened = False
        if question is not None:
            self._add(question)
            why = self.why_not_kept(question)
            if why and not self._accepts_unkept:
                self._take_back(question, why)
                return False
        self._add(Message("assistant", "", Ending.WAITING))
        self._queue(_Turn(self.conversation, is_new=question is not None))
        return True

    def _take_back(self, question: Message, why: str) -> None:
        def send_anyway() -> None:
            self._accepts_unkept = True
            self.send_again.emit()

        self.conversation.messages.remove(question)
        self.conversation_replaced.emit()
        self._put_back(question)
        actions = (
            (self.tr("Try again"), self.send_again.emit),
            (self.tr("Send it anyway"), send_anyway),
        )
        self.notice.emit(Notice(why + " " + self.tr("So it was not sent."), actions))

    def _put_back(self, question: Message) -> None:
        """Put a question that was not answered back into the composer."""
        self.draft_files.emit(question.attachments)
        self.draft.emit(question.content)

    def _queue(self, turn: _Turn) -> None:
        """Queue an answer. Restart the engine if it is not running."""
        self._waiting_turns.append(turn)
        if self.engine.state in (State.DEAD, State.EMPTY) and self.engine.path is not None:
            self.engine.open_model(self.engine.path)
        self.engine.settle()
        answer = _unfinished(turn.conversation)
        if (
            turn in self._waiting_turns
            and self.engine.state is State.LOADING
            and answer is not None
        ):
            answer.progress = self.tr("Waits until the model is loaded")
            self.report_change(turn.conversation, answer)
        elif turn in self._waiting_turns and self._live is not None and answer is not None:
            if not self._live.has(turn.conversation):
                answer.progress = self.tr("Waits for the answer in another chat")
                self.report_change(turn.conversation, answer)
        self.can_send_changed.emit()
        self.busy_changed.emit()

    def _is_queued(self, conversation: Conversation) -> bool:
        return any(turn.has(conversation) for turn in self._waiting_turns)

    def _begin_answer(self) -> None:
        awaited = self.tools_awaited()
        for turn in list(self._waiting_turns):
            if self.engine.state is not State.IDLE or turn not in self._waiting_turns:
                return  # it, or what it led to, has begun
            conversation, last = turn.conversation, turn.conversation.last
            if turn.goes_on and (last is None or not last.can_go_on):
                self._waiting_turns.remove(turn)
                continue
            if turn.goes_on:
                self._prepare_to_go_on(conversation)
                turn.goes_on = False  # it is prepared, and begins when the tools are there
            waits = bool(awaited) and self._takes_tools(conversation)
            self._show_awaited(conversation, awaited if waits else "")
            if not waits:
                self._waiting_turns.remove(turn)
                self._generate(turn)

    def _show_awaited(self, conversation: Conversation, servers: str) -> None:
        """Show that an answer waits for servers of tools; "": not, or no longer."""
        answer = conversation.last
        if answer is not None and (servers or answer.awaits_tools):
            words = self.tr("Waits for the tools to start: {servers}").format(servers=servers)
            answer.progress = words if servers else ""
            answer.awaits_tools = bool(servers)
            self.report_change(conversation, answer)

    def tools_changed(self) -> None:
        """Begin an answer that has waited for servers of tools, or show what it still waits for."""
        if not self.tools_awaited():
            for turn in self._waiting_turns:
                self._show_awaited(turn.conversation, "")
        if self._waiting_turns:
            self.engine.settle()

    def _generate(self, turn: _Turn) -> None:
        conversation = turn.conversation
        preset = self._preset_of(conversation)
        turns = self.turns_of(conversation)
        self._note_left_out(turn)
        self._live = turn
        self._live_message = conversation.last
        self._thinks_since_s = 0.0
        self.engine.set_state(State.ANSWERING)
        options = self.options_of(conversation)
        if self._takes_tools(conversation) and (missing := self.tools_missing()):
            self.notice.emit(Notice(missing, is_trouble=False))
        try:
            longest = preset.max_tokens or -1
            n, owner = len(turn.branches), self.owner_of(conversation.chat_id)
            self.engine.link.generate(turns, dict(preset.sampling), options, longest, n, owner)
        except ProtocolError:  # many images
            sentence = localized(text("engine.too_much_sent", most=MAX_BYTES))
            self._on_failed("generate", sentence)

    def _note_left_out(self, turn: _Turn) -> None:
        """Keep with the answers from where on the model sees their chat."""
        conversation = turn.conversation
        first = conversation.messages[conversation.seen_from].id if conversation.seen_from else 0
        for answer in (branch.last for branch in turn.branches):
            if answer is not None and first != answer.details.get("seen_from", 0):
                answer.details["seen_from"] = first
        if conversation is self.conversation:
            self.left_out_changed.emit()

    def turns_of(self, conversation: Conversation) -> list[Json]:
        """Return the messages for the engine, shortened as the user agreed to.

        A chat that certainly does not fit is shortened without asking, so that it is not refused.
        """
        begins: list[int] = []
        turns = self._for_engine(conversation, begins)
        conversation.seen_from = 0
        n_context = self.engine.n_context
        if not conversation.n_char_max and context_fit.cannot_fit(turns, n_context):
            conversation.n_char_max = context_fit.half_of(turns, n_context)
            if not conversation.slides:
                conversation.slides = True
                self.notice.emit(Notice(self._left_out_words(), is_trouble=False))
        if conversation.slides and conversation.n_char_max:
            turns, begin = context_fit.fit(turns, conversation.n_char_max)
            conversation.seen_from = begins[begin] if 0 < begin < len(begins) else 0
        n_char_last = len(conversation.last.content) if conversation.last is not None else 0
        conversation.n_char_besides = context_fit.size(turns) - n_char_last
        return turns

    def _for_engine(
        self, conversation: Conversation, begins: list[int] | None = None
    ) -> list[Json]:
        model = self.engine.model
        sees_images = model is None or model.chat.images
        return conversation.for_engine(self._preset_of(conversation).system, sees_images, begins)

    def _left_out_words(self) -> str:
        return self.tr(
            "This chat is longer than the context of {tokens}. Its middle is left out: the model "
            "sees its beginning and its end."
        ).format(tokens=units.count(self.engine.n_context, "token"))

    def options_of(self, conversation: Conversation) -> ChatOptions:
        """Return how a conversation is rendered and its answer is read."""
        model = self.engine.model
        if model is None:
            return ChatOptions()
        return self._preset_of(conversation).options(model.chat, tuple(self.tools()))

    def _takes_tools(self, conversation: Conversation) -> bool:
        """Return whether the tools that are on are offered to the model in a conversation."""
        model = self.engine.model
        return model is not None and model.chat.tools and self._preset_of(conversation).tools

    def _prepare_to_go_on(self, conversation: Conversation) -> None:
        last = conversation.last
        assert last is not None
        is_full = last.ending is Ending.CONTEXT and conversation.slides
        if is_full and last.statistics is not None:
            conversation.n_char_max = self._chars_of_half_context(conversation, last.statistics)
        last.tool_calls.clear()  # one that was cut off cannot be continued
        if last.is_empty:  # a new answer begins
            last.raw = None
        if last.statistics is not None:
            last.n_token_before += last.statistics.n_token
        last.statistics = None
        last.note = ""
        last.ending = Ending.WAITING
        self.report_change(conversation, last)

    def _chars_of_half_context(self, conversation: Conversation, statistics: Statistics) -> int:
        """Estimate the characters that fill half the context, from a context that is full."""
        n_token = max(statistics.n_prompt + statistics.n_token, 1)
        return max(self._n_char(conversation) * self.engine.n_context // (2 * n_token), 200)

    def _n_char(self, conversation: Conversation) -> int:
        """Return the characters that the engine has: of the prompt, and of its answer to it."""
        last = conversation.last
        if conversation.n_char_besides is None or last is None:
            return context_fit.size(self._for_engine(conversation))
        return conversation.n_char_besides + len(last.content)

    # Progress of the answer

    def report_change(self, conversation: Conversation, message: Message) -> None:
        """Emit that a message changed: first for the store, then for the window."""
        self.changed.emit(conversation, message)
        if conversation is self.conversation:
            self.message_changed.emit(len(conversation.messages) - 1)

    def _live_answer(self) -> Message | None:
        """Return the answer in progress; None if it was removed from its conversation."""
        last = self._live.conversation.last if self._live is not None else None
        return last if last is not None and last is self._live_message else None

    def _on_waits(self, n_before: int) -> None:
        self._progress(self.tr("A program on this machine is answered first"))

    def _on_loading(self, fraction: float, _stage: object) -> None:
        """Show that the model, which the local server had freed or replaced, is loaded again."""
        share = units.percent(fraction)
        self._progress(self.tr("Loading the model: {share}").format(share=share))

    def _on_prefill(self, done: int, total: int) -> None:
        self._progress(
            self.tr("Reading the prompt: {done} of {total}").format(
                done=units.number(done), total=units.count(total, "token")
            )
        )

    def _progress(self, words: str) -> None:
        answer = self._live_answer()
        if self._live is not None and answer is not None and answer.ending is Ending.WAITING:
            answer.progress = words
            self.report_change(self._live.conversation, answer)

    def _on_text(self, delta: Delta, raw: str) -> None:
        answer = self._live_answer()
        if self._live is not None and answer is not None and (delta or raw):
            answer.gain(delta, raw)
            if answer.ending is Ending.WAITING:
                answer.ending = Ending.STREAMING
                answer.progress = ""
            self._time_thought(answer, delta)
            self.report_change(self._live.conversation, answer)

    def _branch(self, number: int) -> tuple[Conversation, Message] | None:
        """Return a branch of the answers in progress, with its answer if that is live."""
        branches = self._live.branches if self._live is not None else []
        conversation = branches[number] if 0 <= number < len(branches) else None
        answer = _unfinished(conversation) if conversation is not None else None
        return None if conversation is None or answer is None else (conversation, answer)

    def _on_other_text(self, number: int, delta: Delta, raw: str) -> None:
        if (found := self._branch(number)) is not None and (delta or raw):
            conversation, answer = found
            answer.gain(delta, raw)
            answer.ending = Ending.STREAMING
            self.report_change(conversation, answer)

    def _on_other_done(self, number: int, reason: str, statistics: Statistics) -> None:
        if (found := self._branch(number)) is not None:
            conversation, answer = found
            answer.statistics = statistics
            self._end_answer(conversation, _ENDINGS.get(reason, Ending.STOPPED))
            self.can_send_changed.emit()

    def _time_thought(self, answer: Message, delta: Delta) -> None:
        """Measure the duration of the reasoning, from its first piece to the piece behind it."""
        now_s = time.monotonic()
        if delta.reasoning and not self._thinks_since_s:
            self._thinks_since_s = now_s - answer.thought_s
        if self._thinks_since_s:
            answer.thought_s = round(now_s - self._thinks_since_s, 3)  # as it is kept
        if delta.content or delta.tool_calls:
            self._thinks_since_s = 0.0

    def _on_statistics(self, statistics: Statistics) -> None:
        answer = self._live_answer()
        if answer is not None and self._live is not None and not self._live.others:
            answer.statistics = statistics
        self.statistics_changed.emit(statistics)

    def _end_answer(self, conversation: Conversation, ending: Ending, note: str = "") -> None:
        """End the answer of a conversation that is in progress or in the queue, if there is one.

        note: the sentence below it; of one that was stopped, it says that.
        """
        answer = _unfinished(conversation)
        if answer is not None:
            answer.ending = ending
            answer.note = note or (text("chats.stopped") if ending is Ending.STOPPED else "")
            answer.progress, answer.awaits_tools = "", False
            self.report_change(conversation, answer)
            self.busy_changed.emit()

    def _on_done(self, reason: str, statistics: Statistics) -> None:
        turn, answer = self._live, self._live_answer()
        ending = _ENDINGS.get(reason, Ending.STOPPED)
        if turn is not None and answer is not None:
            answer.statistics = statistics
            for branch in turn.others:
                self._end_answer(branch, ending, text("chats.stopped"))
            if answer.is_live:
                self._end_answer(turn.conversation, ending)
            else:
                self.report_change(turn.conversation, answer)
        self._live = self._live_message = None
        self.engine.set_state(State.IDLE)
        self.busy_changed.emit()
        self.statistics_changed.emit(statistics)
        if turn is not None and answer is not None and answer.ending is Ending.CONTEXT:
            self._context_is_full(turn.conversation, answer)
        if turn is not None and answer is not None and answer.ending is Ending.FINISHED:
            if answer.tool_calls:
                self.calls_made.emit(turn.conversation, answer)
        self.engine.settle()

    def _context_is_full(self, conversation: Conversation, answer: Message) -> None:
        """Continue as the user chose before, or let the user choose.

        The user chooses again when the answer alone is longer than the context: a model that does
        not come to an end would otherwise write for ever.
        """
        if self._is_queued(conversation) or self.engine.model_waits:
            return
        if conversation.slides and not self._outgrew_context(answer):
            if answer.statistics is None or answer.statistics.n_token > 0:
                self._waiting_turns.append(_Turn(conversation, goes_on=True))
            return
        answer.note = text("chats.context_full")
        self.report_change(conversation, answer)
        if conversation is self.conversation:
            self._offer_to_slide(answer)

    def _outgrew_context(self, answer: Message) -> bool:
        n_token = answer.statistics.n_token if answer.statistics is not None else 0
        return answer.n_token_before + n_token >= self.engine.n_context > 0

    def _offer_to_slide(self, answer: Message) -> None:
        if self._outgrew_context(answer):
            full = self.tr(
                "This answer is longer than the context of {tokens}, and the model may never come "
                "to an end. It can go on without the middle of this chat."
            )
        else:
            full = self.tr(
                "The context of {tokens} is full. The answer can go on without the middle of this "
                "chat: its beginning and its end are kept."
            )
        self._offer_room(full.format(tokens=units.count(self.engine.n_context, "token")))

    def _offer_room(self, sentence: str) -> None:
        """Offer a longer context, where the model knows one, or to leave out the middle."""
        actions: list[tuple[str, Callable[[], None]]] = [
            (self.tr("Leave out the middle and continue"), self.slide),
            (self.tr("Stop here"), self.engine.dismiss),
        ]
        if longer := self.engine.longer_context:
            words = self.tr("Use a context of {tokens} and continue")
            words = words.format(tokens=units.count(longer, "token"))
            actions.insert(0, (words, self.lengthen))
        self.notice.emit(Notice(sentence, tuple(actions), is_trouble=False))

    def lengthen(self) -> None:
        """Continue with a context of twice the length, which takes memory from the cache."""
        self.conversation.n_char_max = 0
        self.engine.set_context(self.engine.longer_context)
        self.go_on()

    # Stopping, and failures

    def _stop_in(self, conversation: Conversation) -> None:
        self.stopped.emit(conversation)
        live = self._live if self._live is not None and self._live.has(conversation) else None
        if (
            live is not None
            and self.engine.state is State.ANSWERING
            and _unfinished(conversation) is not None
        ):
            self.engine.link.stop()
            for branch in live.branches:
                self._end_answer(branch, Ending.STOPPED)
            self.engine.set_state(State.STOPPING)
        elif self._is_queued(conversation):
            stopped = [turn for turn in self._waiting_turns if turn.has(conversation)]
            self._waiting_turns = [t for t in self._waiting_turns if not t.has(conversation)]
            if self.engine.state is State.LOADING:
                stopped = [turn for turn in stopped if not self._withdraw(turn)]
            for branch in [branch for turn in stopped for branch in turn.branches]:
                self._end_answer(branch, Ending.STOPPED)
            self.can_send_changed.emit()
        self.busy_changed.emit()

    def stop_all(self) -> None:
        """Stop all answers, in whatever chat."""
        for turn in self._turns[::-1]:
            for branch in turn.branches:
                self._stop_in(branch)

    def _give_up_answers(self) -> None:
        """End the answers in the queue, because no model is loaded."""
        turns, self._waiting_turns = self._waiting_turns, []
        turns = [turn for turn in turns if not self._withdraw(turn)]
        for branch in [branch for turn in turns for branch in turn.branches]:
            self._end_answer(branch, Ending.CUT_OFF, text("chats.cut_off"))
        self.can_send_changed.emit()

    def _withdraw(self, turn: _Turn) -> bool:
        """Put a new question without an answer back into the composer, if its chat is shown."""
        if turn.conversation is not self.conversation or not turn.is_new:
            return False
        self._unask(turn.conversation)
        self.busy_changed.emit()
        return True

    def _unask(self, conversation: Conversation) -> None:
        """Put the last question, which has no answer, back into the composer."""
        withdrawn = conversation.messages[-2:]
        del conversation.messages[-2:]
        self._put_back(withdrawn[0])  # it is a draft before it is no message
        self.withdrawn.emit(withdrawn)
        self.conversation_replaced.emit()

    def _cut_off(self) -> None:
        """End all answers, because the engine is lost."""
        while self._prompt_takers:
            self._give_prompt("", self.tr("The prompt can be shown when a model is loaded."))
        turns = self._turns
        self._live = self._live_message = None
        self._waiting_turns = []
        cut = [turn for turn in turns if any(map(_unfinished, turn.branches)) or turn.goes_on]
        for branch in [branch for turn in cut for branch in turn.branches]:
            self._end_answer(branch, Ending.CUT_OFF, text("chats.cut_off"))
        self.engine.resume = None
        if not cut:
            return
        conversation = cut[0].conversation

        def go_on() -> None:
            if conversation is not self.conversation:
                self.show(conversation)
            self.go_on()

        self.engine.resume = go_on

    def _on_failed(self, request: str, sentence: str) -> None:
        if request == "format":
            self._give_prompt("", localized(sentence))
        if request != "generate":
            return
        self._answer_failed(sentence)
        self.engine.set_state(State.IDLE)
        self.busy_changed.emit()
        self.engine.settle()

    def _answer_failed(self, sentence: str) -> None:
        turn, answer = self._live, self._live_answer()
        self._live = self._live_message = None
        if turn is None or answer is None:
            self.notice.emit(Notice(sentence))
            return
        conversation = turn.conversation
        for branch in turn.others:
            self._end_answer(branch, Ending.CUT_OFF, sentence)
        shown = conversation is self.conversation
        n_token = context_fit.tokens_refused(sentence) if not turn.others else 0
        if n_token > 0 and len(conversation.messages) > 2:
            self._shorten(turn, sentence, n_token)
        elif (
            shown
            and answer.is_empty
            and not turn.others
            and answer.ending is not Ending.STOPPED
            and [message.role for message in conversation.messages[-2:-1]] == ["user"]
        ):
            self._unask(conversation)
            self.notice.emit(Notice(sentence))
        else:
            self._end_answer(conversation, Ending.CUT_OFF, sentence)
            if shown:
                self.notice.emit(Notice(sentence))

    def _shorten(self, turn: _Turn, sentence: str, n_token: int) -> None:
        """Shorten a prompt that is longer than the context, or offer to."""
        conversation = turn.conversation
        n_char = self._n_char(conversation) * self.engine.n_context
        conversation.n_char_max = n_char // (2 * max(n_token, 1))
        if conversation.slides and not conversation.was_shortened:
            conversation.was_shortened = True
            self._waiting_turns.insert(0, _Turn(conversation))
            return
        self._end_answer(conversation, Ending.CUT_OFF, self.tr("The context has no room for this."))
        if conversation is self.conversation:
            self._offer_room(sentence)


def _unfinished(conversation: Conversation) -> Message | None:
    """Return the answer of a conversation that is in progress or in the queue."""
    last = conversation.last
    return last if last is not None and last.role == "assistant" and last.is_live else None
