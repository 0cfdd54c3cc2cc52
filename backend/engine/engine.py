"""The engine's public interface: load a model, answer, stop, and report the costs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend import _native
from backend.engine.answer import PartialAnswer, Piece, message_text
from backend.engine.drafts import Width
from backend.engine.error import engine_errors
from backend.engine.experiment import NO_EXPERIMENT, Experiment
from backend.engine.keeping import Keeping
from backend.engine.kept_states import HOUR, Hour
from backend.engine.loaded_model import LoadedModel, Progress
from backend.engine.moments import Watch
from backend.engine.open_answer import OpenAnswer
from backend.engine.passes import Conversation, Passes
from backend.engine.prompts import Prompts, needs_call
from backend.engine.runner import Runner
from backend.engine.scheduler import PassPlan, n_place
from backend.gguf.model_file import ModelFile, read_model
from backend.gguf.tables import ONE_SEQUENCE
from backend.llama.api import Context, Model
from backend.llama.chat_format import AnswerReader, ChatFormat, PlainReader, Rendered
from backend.llama.row import Row
from backend.llama.sampler import Sampler
from backend.llama.vision import ImageChunk
from backend.methods.cost import PassCost
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.errors import EngineError, GivenUp
from backend.protocol.request import GroupAnswer, Handle, Request
from backend.protocol.settings import DRAFTED_MAX, EngineConfig, Sampling
from backend.protocol.statistics import Statistics
from backend.protocol.status import CacheFacts, ModelFacts, VocabularyFacts
from backend.text import text

__all__ = ["Engine", "EngineError", "Piece", "Progress"]

Message = dict[str, Any]
_NO_OPTIONS = ChatOptions()
N_PARTIAL = 8
"""Stopped answers that can be continued, of as many owners."""


class Engine:
    """One loaded model. Use from one thread; stop(), residency() and statistics() from any.

    file: the model's file. loaded: the model in llama.cpp. passes: its computations.
    runner: the loop over the requests. prompts: makes the tokens of requests.
    """

    def __init__(
        self,
        file: ModelFile,
        config: EngineConfig,
        progress: Progress | None,
        experiment: Experiment,
    ) -> None:
        self.file = file
        self.last: OpenAnswer | None = None
        """The last answer of answer(); None: it was cancelled before it began."""
        self.keeps = True
        """The context keeps the conversations for later requests. Otherwise it is empty before the
        first request and after the last."""
        self._attends = (0, 0)
        self._is_busy = False  # with requests that were submitted
        self._partials: dict[str, PartialAnswer] = {}  # those to be continued, by their owners
        self.loaded = LoadedModel(file, config, progress, experiment)
        self.passes = Passes(self.loaded)
        self.passes.on_cancel = self._heed
        self.runner = Runner(self.passes, self._continue_later)
        self.prompts = Prompts(self.loaded, self.passes.begin)
        self._model: ModelFacts | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        config: EngineConfig | None = None,
        progress: Progress | None = None,
        experiment: Experiment = NO_EXPERIMENT,
    ) -> Engine:
        """Check and load a model. Without a config, cache, method and context are automatic.

        `progress(fraction, stage)` returns False to give up. `experiment`: changes for an
        experiment. Raises ModelFileError for a bad file, EngineError when loading fails.
        """
        file = read_model(path)
        if file.key("attention.causal") is False:  # llama.cpp aborts at the first token
            raise EngineError(text("engine.embeds", file=path.name))
        with engine_errors():
            return cls(file, config or EngineConfig(automatic=True), progress, experiment)

    # Answering.

    def submit(self, request: Request) -> Handle:
        """Have a request answered by the next calls of step(), beside others. Return its handle.

        Its prompt is rendered here. If its last message is the assistant's, that is continued; if
        it is the previous answer to its owner, with exactly its tokens, so that the whole answer
        equals the one without the stop. Raises EngineError where it cannot be answered, such as one
        that does not fit.
        """
        if not self._is_busy:
            self.runner.begin(self._attends, keeps=self.keeps)
            self._is_busy = True
        handle = request.handle
        handle.follow.submitted()
        self.passes.join(handle)
        try:
            member = self._opened(request)
        except BaseException:
            self.passes.leave(handle)
            if not self.n_open:
                self._end_answers()
            raise
        if member is None:
            self.passes.leave(handle)
            handle.ended(GroupAnswer(request, finish_reason="cancelled"))
        else:
            self.runner.add(member)
        return handle

    def step(self) -> bool:
        """Compute a pass of the requests that were submitted. Return False if there are none.

        Their handles receive the new text, and the answers that have ended. A cancelled request
        leaves at the end of the pass, or within it if all are cancelled. Raises EngineError where
        nothing can be computed any more; all answers then have ended.
        """
        if not self.n_open:
            self._end_answers()
            return False
        try:
            self.runner.step()
        except BaseException as error:
            self._end_answers(error)
            raise
        return True

    def answer(self, request: Request) -> Iterator[Piece]:
        """Answer a request alone: submit() and step(). Yield its pieces.

        The next request ends it, and so does closing the iterator. Raises EngineError.
        """
        self._end_answers()
        self.last = None
        self.submit(request)
        if not self.n_open:  # it was cancelled
            return iter(())
        (self.last,) = self.loaded.scheduler.requests
        return self._pieces(self.last)

    def _pieces(self, answer: OpenAnswer) -> Iterator[Piece]:
        n = 0
        try:
            while answer.given is None and self.step():
                for piece in answer.pieces[n:]:
                    n += 1
                    if piece.text or piece.token_id >= 0:
                        yield piece
        finally:
            if answer.given is None or not self.n_open:
                self._end_answers()
        assert answer.given is not None
        if answer.given.fault is not None:
            with engine_errors():
                raise answer.given.fault

    @property
    def finish_reason(self) -> str:
        """How the last answer of answer() has ended."""
        last = self.last
        if last is None or last.given is None:
            return "cancelled"
        return last.given.finish_reason or last.finish_reason

    def attend(self, n_first: int, n_last: int) -> None:
        """Let tokens of later requests attend to these numbers of first and last tokens; 0, 0: all.

        Raises EngineError for a model with recurrent states.
        """
        if n_last and self._context.cuts_batches:
            raise EngineError(text("group.not_sparse"))
        self._end_answers()
        self._attends = (n_first, n_last)

    @property
    def n_open(self) -> int:
        """The requests that are being answered or wait for room."""
        return self.loaded.scheduler.n_open if self._is_busy else 0

    @property
    def n_wanted(self) -> int:
        """The requests that could be submitted now and join the next pass."""
        if not self._is_busy:
            return self.n_sequence
        scheduler = self.loaded.scheduler
        return max(scheduler.n_wanted() - scheduler.n_open + len(scheduler.members), 0)

    def _end_answers(self, fault: BaseException | None = None) -> None:
        """End the answers that are being written, as far as they are. fault: why."""
        is_busy, self._is_busy = self._is_busy, False
        if is_busy:
            self.runner.end(fault)

    @property
    def n_sequence(self) -> int:
        """The number of answers that may be computed at once."""
        return self.loaded.config.setup.n_sequence

    def make_room(self, n_sequence: int) -> None:
        """Let at least this many answers be computed at once. Raises EngineError.

        If the context holds fewer, rebuild it; it forgets its conversations. A model of
        ONE_SEQUENCE goes on with one at a time.
        """
        if self.n_sequence < n_sequence and self.file.architecture not in ONE_SEQUENCE:
            self.change(self.loaded.config.changed(n_sequence=n_sequence))

    def _opened(self, request: Request) -> OpenAnswer | None:
        """Return the answer to a request; None when stopped.

        It has tokens if the request continues the answer before.
        """
        if request.handle.is_cancelled:
            return None
        partial: PartialAnswer | None
        try:
            with self.prompts.opens(request.handle):
                if request.prompt is not None:
                    rendered = Rendered("", grammar=request.options.grammar)
                    tokens = self.prompts.prompt_tokens(request.prompt)
                    partial = self._answer_to(request, tokens, rendered)
                else:
                    partial = self._resumed(request) if request.goes_on else None
                    partial = partial or self._rendered_answer(request)
        except GivenUp:
            return None
        if partial is None:
            return None
        stops = partial.rendered.stops if partial.rendered is not None else ()
        member = OpenAnswer(
            request,
            partial,
            self._context,
            (*request.options.stops, *stops),
            self._reader,
            self.prompts.remember,
            may_draft=self.passes.may_draft,
        )
        try:
            member.begin()
        except BaseException:
            member.close()
            raise
        return member

    def _continue_later(self, owner: str, partial: PartialAnswer) -> None:
        """Note an answer that can be continued, in place of the owner's one before."""
        self._discard([owner])
        self._partials[owner] = partial
        self._discard(list(self._partials)[:-N_PARTIAL])

    def _discard(self, owners: Iterable[str]) -> None:
        """Forget answers that would be continued."""
        for owner in owners:
            if (partial := self._partials.pop(owner, None)) is not None:
                partial.sampler.close()

    def _reader(self, rendered: Rendered | None) -> AnswerReader | PlainReader:
        """Return what splits the answer to a prompt; a raw one has none."""
        return PlainReader() if rendered is None else self._chat_format.reader(rendered)

    def _resumed(self, request: Request) -> PartialAnswer | None:
        """Return its owner's previous answer if a request continues it. Forget it otherwise."""
        messages, sampling, options = request.messages, request.sampling, request.options
        partial = self._partials.pop(request.owner, None)
        if partial is None:
            return None
        fits = n_place(partial.tokens, partial.images) < self.n_context
        is_same = partial.llama is self._llama or not partial.images  # images are of a model
        if not (fits and is_same and partial.is_continued_by(messages, options)):
            partial.sampler.close()
            return None
        if partial.sampling == sampling and partial.llama is self._llama:
            return partial
        partial.sampler.close()
        prompt = partial.tokens[: partial.n_prompt]
        sampler = self._sampler(sampling, partial.rendered, options, prompt)
        with engine_errors():
            sampler.accept(partial.tokens[partial.n_prompt :])
        return replace(partial, sampling=sampling, sampler=sampler, llama=self._llama)

    def _rendered_answer(self, request: Request) -> PartialAnswer | None:
        """Return an answer without tokens; None when stopped while rendering."""
        messages = request.messages
        if (seen := self.prompts.seen(messages)) is None:
            return None
        told, images = seen
        rendered = self.prompts.rendered(told, request.options)
        if rendered is None:
            return None
        if told is not messages:
            rendered = replace(rendered, fitted=(*rendered.fitted, "images-left-out"))
        tokens = self.prompts.conversation_tokens(rendered, images, request.owner)
        border = self.prompts.border(told, request.options, images, tokens, request.owner)
        opening = self.prompts.opening(told, request.options, tokens)
        if border is None or opening is None:
            return None
        chunks = itertools.chain.from_iterable(images)
        goes_on = bool(messages) and messages[-1]["role"] == "assistant"
        return replace(
            self._answer_to(request, tokens, rendered),
            messages=list(messages[:-1] if goes_on else messages),
            rendered=rendered,
            before=message_text(messages[-1]) if goes_on else AnswerText(),
            images={chunk.token: chunk for chunk in chunks if isinstance(chunk, ImageChunk)},
            border=border,
            opening=opening,
        )

    def _answer_to(self, request: Request, prompt: list[int], rendered: Rendered) -> PartialAnswer:
        """Return an answer without tokens to these tokens of a raw prompt."""
        sampling, options = request.sampling, request.options
        sampler = self._sampler(sampling, rendered, options, prompt)
        n = len(prompt)
        return PartialAnswer(options, prompt, n, sampling, sampler, self._llama, border=n - 1)

    def _sampler(
        self, sampling: Sampling, rendered: Rendered, options: ChatOptions, prompt: Iterable[int]
    ) -> Sampler:
        # A user's own grammar describes the answer only, the others begin in the prompt.
        with engine_errors():
            sampler = Sampler(
                sampling,
                self._llama,
                rendered,
                covers_prompt=not options.grammar,
                is_forced=needs_call(options),
                parallel=options.parallel_tool_calls,
            )
            sampler.see(prompt)
        return sampler

    def compute(self, text: str | Sequence[Message], max_tokens: int) -> int:
        """Compute the first tokens of a text or conversation. Return the number computed.

        Every layer computes every token, which recordings need; the last layer of an ordinary
        prompt computes only the last token. No answer is generated. Raises EngineError.
        """
        if not self.loaded.config.setup.keeps_outputs:
            raise EngineError("This engine was not opened to compute every output.")
        self._end_answers()
        self.passes.begin(handle := Handle())
        try:
            with self.prompts.opens(handle), engine_errors():
                prompt = text
                if not isinstance(prompt, str):
                    rendered = self.prompts.rendered(prompt)
                    prompt = "" if rendered is None else rendered.prompt
                tokens = self.prompts.tokens_of(prompt, self._llama.adds_bos)
        except GivenUp:
            return 0
        tokens = tokens[: min(max_tokens, self.n_context - 1)]
        passes, n_step = self.passes, self._context.n_ubatch
        self.loaded.scheduler.clear()
        for i in range(0, len(tokens), n_step):
            last_s, part = time.perf_counter(), enumerate(tokens[i : i + n_step], i)
            rows = [Row(token, position, 0, has_logits=True) for position, token in part]
            plan = PassPlan[OpenAnswer](rows, n_of_prompt=len(rows))
            with engine_errors():
                if passes.is_stopped or not passes.compute(plan, last_s):
                    return i
            self.loaded.scheduler.hold(tokens[: i + n_step])
        return len(tokens)

    # Control.

    def stop(self) -> None:
        """Cancel the requests that are being answered. From any thread."""
        self.passes.stop()

    def _heed(self) -> None:
        """End the pass, or the rendering of a prompt, if it was cancelled. From any thread."""
        self.passes.heed()
        self.prompts.heed()

    def set_cache_rate(self, rate: float) -> CacheFacts:
        """Change the cache rate between answers.

        Between two cached rates nothing is loaded again. At 1.0 llama.cpp runs unpatched, so a
        change from or to 1.0 loads the model again. The conversation's context is kept.
        """
        return self.change(self.loaded.config.decided(cache_rate=rate))

    def change(self, config: EngineConfig) -> CacheFacts:
        """Apply other settings between answers; see LoadedModel.change. Raises EngineError."""
        self._end_answers()
        before = self.loaded.plan
        left: list[Conversation] = []
        if self.passes.keeping is not None:
            self.passes.keeping.pause()
        self.loaded.on_leaving = lambda: left.append(self.passes.conversation())
        try:
            self.loaded.change(config)
        finally:
            self.loaded.on_leaving = None
            self.passes.width = Width(DRAFTED_MAX)
            if left and self.loaded.has_context and self.loaded.reads_states_of(before):
                self.passes.go_on_with(left[0])
            if self.passes.keeping is not None:
                self.passes.keeping.begin()
                self.passes.keeping.obey_budget()
            if self.loaded.has_context:
                self._model = None
        return self.cache

    def change_now(self, config: EngineConfig) -> bool:
        """Apply settings that change the cache only, between two passes of an answer.

        The experts that have room stay. Return False, and change nothing, where the settings change
        more: change() is for them. Raises EngineError; the settings before are then in force.
        """
        return self.passes.rebuild(config.changed(n_sequence=self.n_sequence))

    def mind_memory(self) -> None:
        """Shrink the cache where memory is short, or grow it back, between answers.

        Raises EngineError.
        """
        self.passes.mind_memory()

    def idle(self) -> None:
        """Run idle-time maintenance between answers.

        Starts the process that renders prompts, so that the next answer does not wait for it.
        Some methods change the layout of their cache. Compares a few experts with the file.
        """
        with engine_errors():
            self._chat_format.start()
            self.loaded.idle()
        self.passes.compare_experts()

    def keep_in(self, folder: Path, hour: Hour = HOUR) -> None:
        """Keep the state of conversations that have an owner in a folder of the drive.

        hour: bounds what is written; as a rule, that of this process.
        """
        self.passes.keeping = Keeping(self.passes, folder, self.prompts.answers, hour)
        self.passes.keeping.obey_budget()

    def keep(self) -> bool:
        """Write a piece of the conversation's state in the background, between answers.

        Takes the copies that have arrived since the last pass. Return False when all is done and
        none is in flight. A caller with time asks again after some milliseconds, and while
        is_late after some seconds.
        """
        self._end_answers()
        are_copying = [patch.stock([]) for patch in self.loaded.patches]
        keeps = self.passes.keeping is not None and self.passes.keeping.step()
        return keeps or any(are_copying)

    @property
    def is_late(self) -> bool:
        """Whether keep() has to wait with a state, as enough was written within an hour."""
        return self.passes.keeping is not None and self.passes.keeping.is_late

    def warm(self, owner: str) -> None:
        """Let keep() fetch the experts that an owner's conversation used, until a request comes."""
        if self.passes.keeping is not None:
            self.passes.keeping.warm(owner)

    def forget_kept(self, owner: str) -> None:
        """Delete what is remembered of an owner, and the states that only this owner uses."""
        self._discard([owner])
        self.prompts.answers.forget(owner)
        if self.passes.keeping is not None:
            self.passes.keeping.forget(owner)

    def forget(self) -> None:
        """Forget the conversation. The whole next prompt is then computed."""
        self._end_answers()
        self.loaded.scheduler.clear()

    def record(self, recorder: _native.Recorder | None) -> None:
        """Send the routing to a recorder from now on; None ends it.

        Raises EngineError where llama.cpp runs unpatched.
        """
        if self._patch is None:
            raise EngineError("Only a model that runs through the cache can be recorded.")
        self._patch.record(recorder)
        self.passes.is_recorded = recorder is not None

    def watch(self, watch: Watch | None) -> None:
        """Send every pass to a Watch from now on; None ends it. From any thread."""
        self.passes.watch = watch

    def prefilled(self) -> tuple[int, int] | None:
        """Return the number of prompt tokens computed so far and in all, also within a pass.

        Return None when no prompt is being computed. From any thread.
        """
        return self.passes.prefilled()

    def statistics(self) -> Statistics:
        """Return the statistics of the present or the last answer."""
        return self.passes.meter.statistics

    @property
    def decoded(self) -> PassCost:
        """The cost of the tokens of the present or the last answer, without its prompt."""
        return self.passes.meter.decoded

    @property
    def accuracy(self) -> float | None:
        """The share of predicted experts that were used, since the cache was last rebuilt."""
        if self._patch is None:
            return None
        counts = self._patch.counts()
        n_predicted = sum(c.predicted for c in counts)
        return sum(c.predicted_used for c in counts) / n_predicted if n_predicted else None

    def residency(self) -> bytes:
        """Return one cell (methods.cells) per MoE layer and expert; all resident if uncached."""
        return self.loaded.residency()

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        self._end_answers()
        self._discard(list(self._partials))
        if self.passes.keeping is not None:
            self.passes.keeping.close()
        self.loaded.close()
        self.passes.meter.close()
        self.loaded.end_log()

    @property
    def model(self) -> ModelFacts:
        """The model. The first use asks the chat template for its abilities."""
        if self._model is None:
            chat = self.loaded.weights.chat_facts()
            self._model = ModelFacts.of(self.file, self.n_context, chat)
        return self._model

    @property
    def vocabulary(self) -> VocabularyFacts:
        """The vocabulary and the chat template of the model."""
        model = self._llama
        return VocabularyFacts(
            n_token=model.n_vocab,
            begin=model.special_text(model.bos),
            end=model.special_text(model.eos),
            ending_tokens=model.ending_tokens,
            template=self.file.chat_template or "",
        )

    @property
    def cache(self) -> CacheFacts:
        """The settings in force and the settings asked for."""
        return self.loaded.cache

    @property
    def shape(self) -> _native.Shape | None:
        """The experts' sizes; None where llama.cpp runs unpatched."""
        return self._patch.shape if self._patch is not None else None

    @property
    def n_context(self) -> int:
        """The tokens that one conversation may have."""
        return self._context.n_longest

    @property
    def _patch(self) -> _native.Patch | None:
        return self.loaded.patch

    @property
    def _context(self) -> Context:
        return self.loaded.context

    @property
    def _chat_format(self) -> ChatFormat:
        assert self.loaded.weights.chat_format is not None
        return self.loaded.weights.chat_format

    @property
    def _llama(self) -> Model:
        return self.loaded.llama
