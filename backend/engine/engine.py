"""The engine's public interface: load a model, answer, stop, and report the costs."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend import _native
from backend.attachments.reading import PictureReading
from backend.engine.answer import PartialAnswer, Piece, message_text
from backend.engine.drafts import Width
from backend.engine.error import engine_errors
from backend.engine.experiment import NO_EXPERIMENT, Experiment
from backend.engine.group import Group
from backend.engine.keeping import Keeping
from backend.engine.kept_states import n_equal
from backend.engine.loaded_model import LoadedModel, Progress
from backend.engine.moments import Watch
from backend.engine.passes import Held, Passes
from backend.engine.scheduler import n_place
from backend.engine.sequence import Sequence as Answered
from backend.gguf.model_file import ModelFile, read_model
from backend.gguf.tables import ONE_SEQUENCE
from backend.llama import guard
from backend.llama.api import Context, Model
from backend.llama.chat_format import AnswerReader, ChatFormat, PlainReader, Rendered
from backend.llama.row import Row
from backend.llama.sampler import Sampler
from backend.llama.vision import Chunk, ImageChunk
from backend.methods.cost import PassCost
from backend.protocol.attachments import Picture, as_text, images_of
from backend.protocol.chat import AnswerText, ChatOptions, tool_name
from backend.protocol.errors import EngineError, RequestError
from backend.protocol.request import GroupAnswer, Handle, Prompt, Request
from backend.protocol.settings import DRAFTED_MAX, EngineConfig, Sampling
from backend.protocol.statistics import Statistics
from backend.protocol.status import CacheFacts, ModelFacts, VocabularyFacts
from backend.text import text

__all__ = ["Engine", "EngineError", "Piece", "Progress"]

Message = dict[str, Any]
_NO_OPTIONS = ChatOptions()
_BORDER_TOKENS = 16
"""Tokens at the end of a prompt that are computed in a pass of their own, at most."""
_ANSWER: Message = {"role": "assistant", "content": "a"}
N_PARTIAL = 8
"""Stopped answers that can be continued, of as many owners."""


class Engine:
    """One loaded model. Use from one thread; stop(), residency() and statistics() from any.

    file: the model's file. loaded: the model in llama.cpp. passes: its computations.
    """

    def __init__(
        self,
        file: ModelFile,
        config: EngineConfig,
        progress: Progress | None,
        experiment: Experiment,
    ) -> None:
        self.file = file
        self.last: Answered | None = None
        """The last answer of answer(); None: it was cancelled before it began."""
        self.keeps = True
        """The context keeps the conversations for later requests. Otherwise it is empty before the
        first request and after the last."""
        self._attends = (0, 0)
        self._group: Group | None = None  # of the requests that are being answered
        self._partials: dict[str, PartialAnswer] = {}  # those to be continued, by their owners
        self._opening: Handle | None = None  # of the request that is rendered or decoded
        self._reading: PictureReading | None = None  # of an image of this request
        self.loaded = LoadedModel(file, config, progress, experiment)
        self.passes = Passes(self.loaded)
        self.passes.on_cancel = self._heed
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
        group = self._group = self._group or self._new_group()
        handle = request.handle
        handle.follow.submitted()
        self.passes.join(handle)
        try:
            member = self._opened(request)
        except BaseException:
            self.passes.leave(handle)
            if group.is_empty:
                self._end_answers()
            raise
        if member is None:
            self.passes.leave(handle)
            handle.ended(GroupAnswer(request, finish_reason="cancelled"))
        else:
            group.add(member)
        return handle

    def step(self) -> bool:
        """Compute a pass of the requests that were submitted. Return False if there are none.

        Their handles receive the new text, and the answers that have ended. A cancelled request
        leaves at the end of the pass, or within it if all are cancelled. Raises EngineError where
        nothing can be computed any more; all answers then have ended.
        """
        group = self._group
        if group is None or group.is_empty:
            self._end_answers()
            return False
        try:
            group.step()
        except BaseException as error:
            self._group = None
            group.close(error)
            raise
        return True

    def answer(self, request: Request) -> Iterator[Piece]:
        """Answer a request alone: submit() and step(). Yield its pieces.

        The next request ends it, and so does closing the iterator. Raises EngineError.
        """
        self._end_answers()
        self.last = None
        self.submit(request)
        if self._group is None or self._group.is_empty:  # it was cancelled
            return iter(())
        (self.last,) = self._group.sequences
        return self._pieces(self.last)

    def _pieces(self, answer: Answered) -> Iterator[Piece]:
        group, n = self._group, 0
        try:
            while answer.given is None and self._group is group and self.step():
                for piece in answer.pieces[n:]:
                    n += 1
                    if piece.text or piece.token_id >= 0:
                        yield piece
        finally:
            if self._group is group:
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
    def group(self) -> Group | None:
        """The requests that are being answered; None: there are none."""
        return self._group

    @property
    def n_open(self) -> int:
        """The requests that are being answered or wait for room."""
        return 0 if self._group is None else len(self._group.sequences)

    @property
    def n_wanted(self) -> int:
        """The requests that could be submitted now and join the next pass."""
        return self.n_sequence if self._group is None else self._group.n_wanted

    def _new_group(self) -> Group:
        self.passes.begin()
        if self.passes.keeping is not None:
            self.passes.keeping.begin("")
        return Group(
            self.passes, self._context, self._continue_later, n_sequence=self.n_sequence,
            keeps=self.keeps, attends=self._attends,
        )  # fmt: skip

    def _end_answers(self) -> None:
        """End the answers that are being written, as far as they are."""
        group, self._group = self._group, None
        if group is not None:
            group.close()

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

    def _opened(self, request: Request) -> Answered | None:
        """Return the answer to a request; None when stopped.

        It has tokens if the request continues the answer before.
        """
        if request.handle.is_cancelled:
            return None
        if request.prompt is not None:
            rendered = Rendered("", grammar=request.options.grammar)
            tokens = self.prompt_tokens(request.prompt)
            partial: PartialAnswer | None = self._answer_to(request, tokens, rendered)
        else:
            partial = self._resumed(request) if request.goes_on else None
            with self._opens(request.handle):
                partial = partial or self._rendered_answer(request)
        if partial is None:
            return None
        stops = partial.rendered.stops if partial.rendered is not None else ()
        member = Answered(
            request,
            partial,
            self._context,
            (*request.options.stops, *stops),
            self._reader,
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

    def format(self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS) -> str:
        """Return the prompt that answer() would give to the model. Raises EngineError."""
        return guard.unmarked(self._marked(messages, options))

    def _marked(self, messages: Sequence[Message], options: ChatOptions) -> str:
        with engine_errors():
            rendered = self._chat_format.render(self._plain(messages), _with_free_choice(options))
        return "" if rendered is None else rendered.prompt

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        """Return the tokens of a text. special: control tokens in the text count as such."""
        with engine_errors():
            add_bos = add_bos and self._llama.adds_bos
            return list(self._llama.tokenize(text, special=special, add_bos=add_bos))

    def count(self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS) -> int:
        """Return the tokens of the prompt that a conversation becomes. Raises EngineError."""
        prompt, images = self._marked(messages, options), images_of(messages)
        texts = prompt.split(guard.MEDIA) if images else [prompt]
        with engine_errors():
            n_text = sum(len(self._tokens_of(t, add_bos=False)) for t in texts)
        return n_text + sum(map(self.count_image, images))

    def count_image(self, data: str) -> int:
        """Return the places of the context that an image takes. data: its file in Base64.

        Raises EngineError where it cannot be decoded or the model cannot see.
        """
        self.passes.begin()
        chunks = self._read_images([{"content": [{"type": "image", "data": data}]}], keeps=True)
        if self.loaded.weights.vision is None or not chunks:
            raise EngineError(text("engine.no_images"))
        return sum(len(c) if isinstance(c, list) else c.n_token for c in chunks[0])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with control tokens. Raises EngineError for no token."""
        return b"".join(self.token_bytes(tokens)).decode(errors="replace")

    def token_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token. Raises EngineError for no token."""
        if any(not 0 <= token < self._llama.n_vocab for token in tokens):
            raise EngineError(text("engine.no_token"))
        return [self._llama.piece(token, special=True) for token in tokens]

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
        rendered = self._rendered(messages, request.options)
        if rendered is None:
            return None
        images = self._read_images(messages)
        if images is None:
            return None
        tokens = self._prompt_tokens(rendered.prompt, is_marked=True, images=images)
        border = self._border(messages, request.options, images, tokens)
        if border is None:
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
        )

    def _border(
        self,
        messages: Sequence[Message],
        options: ChatOptions,
        images: Sequence[list[Chunk]],
        tokens: Sequence[int],
    ) -> int | None:
        """Return how many tokens of a prompt that of the next turn begins with; None when stopped.

        It is found by rendering next turns. Many templates open a thought in the prompt that they
        leave out later. The same prompt may come again, so its last token is never part of it.
        """
        border = len(tokens) - 1
        if not self._context.n_checkpoint or not messages or messages[-1]["role"] == "assistant":
            return border
        options = replace(options, json_schema=None, grammar="")
        for turn in _next_turns(options):
            try:
                rendered = self._rendered([*messages, *turn], options)
                if rendered is None:
                    return None
                later, _ = self._split(rendered.prompt, is_marked=True, images=images)
            except EngineError:  # the template refuses this turn
                continue
            n = n_equal(tokens, later)
            if len(tokens) - n <= _BORDER_TOKENS:
                border = min(border, n)
        return border

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a raw prompt. Raises EngineError if it is too long."""
        if isinstance(prompt, str):
            return self._prompt_tokens(prompt)
        pieces = (self._piece(piece, not i) for i, piece in enumerate(prompt))
        return self._fitting(list(itertools.chain.from_iterable(pieces)), {})

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
                is_forced=_needs_call(options),
                parallel=options.parallel_tool_calls,
            )
            sampler.see(prompt)
        return sampler

    def _rendered(
        self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS
    ) -> Rendered | None:
        """Return the prompt, with the marks of the guard; None when stopped while rendering."""
        with engine_errors():
            rendered = self._chat_format.render(
                self._plain(messages),
                _with_free_choice(options),
                lambda: self._is_cancelled,
            )
        if _needs_call(options) and rendered is not None and not rendered.grammar:
            raise EngineError(text("template.no_tools", model=self.file.name))
        return rendered

    def _plain(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages whose content is one text, or texts and images without their data.

        Raises EngineError for images that the model cannot see.
        """
        plain = []
        for message in messages:
            content = message.get("content")
            if not isinstance(content, str | None):
                if not any(part["type"] == "image" for part in content):
                    content = as_text(content)
                elif self.loaded.weights.vision is None:
                    raise EngineError(text("engine.no_images"))
                else:
                    content = [
                        {"type": "image", "data": ""}
                        if part["type"] == "image"
                        else {"type": "text", "text": as_text([part])}
                        for part in content
                    ]
            plain.append({**message, "content": content})
        return plain

    def _read_images(
        self, messages: Sequence[Message], keeps: bool = False
    ) -> list[list[Chunk]] | None:
        """Return the chunks of every image of a conversation; None when stopped.

        keeps: know those of the previous conversation, too. Raises EngineError for an image
        that cannot be decoded.
        """
        vision = self.loaded.weights.vision
        sent = images_of(messages)
        if vision is None or not sent:
            return []
        digests = [hashlib.sha256(data.encode()).digest() for data in sent]
        if not keeps:
            vision.keep(digests)
        found = []
        for digest, data in zip(digests, sent, strict=True):
            chunks = vision.known(digest)
            if chunks is None:
                picture = self._decoded(data)
                if picture is None:
                    return None
                with engine_errors():
                    chunks = vision.add(digest, picture.width, picture.height, picture.rgb)
            found.append(chunks)
        return found

    def _decoded(self, data: str) -> Picture | None:
        """Decode an image in a process of its own; return None when stopped."""
        self._reading = reading = PictureReading(data)
        try:
            if self._is_cancelled:
                return None
            return reading.run()
        except RequestError as error:
            if self._is_cancelled:
                return None
            raise EngineError(str(error)) from None
        finally:
            self._reading = None

    def _prompt_tokens(
        self, prompt: str, is_marked: bool = False, images: Sequence[list[Chunk]] = ()
    ) -> list[int]:
        return self._fitting(*self._split(prompt, is_marked, images))

    def _split(
        self, prompt: str, is_marked: bool, images: Sequence[list[Chunk]]
    ) -> tuple[list[int], dict[int, ImageChunk]]:
        """Return the tokens of a prompt, and its images by the number that stands for one."""
        model = self._llama
        bos = model.special_text(model.bos)
        add_bos = model.adds_bos and not (bos and prompt.startswith(bos))
        split = self._tokens_of if is_marked else model.tokenize
        first, *others = prompt.split(guard.MEDIA) if images else [prompt]
        if len(others) != len(images):
            raise EngineError(text("vision.left_out", model=self.file.name))
        with engine_errors():
            tokens = split(first, add_bos=add_bos)
            chunks_by_token = {}
            for chunks, following in zip(images, others, strict=True):
                for chunk in chunks:
                    if isinstance(chunk, ImageChunk):
                        chunks_by_token[chunk.token] = chunk
                        tokens += [chunk.token] * chunk.n_pos
                    else:
                        tokens += chunk
                tokens += split(following, add_bos=False)
        return tokens, chunks_by_token

    def _piece(self, piece: str | int, is_first: bool) -> list[int]:
        """Return the tokens of a piece of a raw prompt. Raises EngineError for no token."""
        if isinstance(piece, str):
            return self.tokenize(piece, add_bos=is_first)
        if not 0 <= piece < self._llama.n_vocab:
            raise EngineError(text("engine.no_token"))
        return [piece]

    def _fitting(self, tokens: list[int], images: Mapping[int, ImageChunk]) -> list[int]:
        """Return the tokens of a prompt, which has one at least. Raises EngineError if too long."""
        tokens = tokens or [max(self._llama.bos, 0)]
        n, n_context = n_place(tokens, images), self.n_context
        if n >= n_context:
            raise EngineError(text("engine.prompt_too_long", n=n, n_context=n_context))
        return tokens

    def _tokens_of(self, prompt: str, *, add_bos: bool) -> list[int]:
        """Return the tokens of a prompt, split at the guard's marks."""
        return guard.tokens_of(
            prompt, lambda part, bos: self._llama.tokenize(part, add_bos=bos), add_bos
        )

    def compute(self, text: str | Sequence[Message], max_tokens: int) -> int:
        """Compute the first tokens of a text or conversation. Return the number computed.

        Every layer computes every token, which recordings need; the last layer of an ordinary
        prompt computes only the last token. No answer is generated. Raises EngineError.
        """
        if not self.loaded.config.setup.keeps_outputs:
            raise EngineError("This engine was not opened to compute every output.")
        self._end_answers()
        self.passes.begin(handle := Handle())
        if isinstance(text, str):
            prompt = text
        else:
            with self._opens(handle):
                rendered = self._rendered(text)
            if rendered is None:
                return 0
            prompt = rendered.prompt
        with engine_errors():
            tokens = self._tokens_of(prompt, add_bos=self._llama.adds_bos)
        tokens = tokens[: min(max_tokens, self.n_context - 1)]
        passes, n_step = self.passes, self._context.n_ubatch
        passes.forget_all()
        for i in range(0, len(tokens), n_step):
            last_s, part = time.perf_counter(), enumerate(tokens[i : i + n_step], i)
            rows = [Row(token, position, 0, has_logits=True) for position, token in part]
            with engine_errors():
                if passes.is_stopped or not passes.compute_rows(rows, [], last_s, is_token=False):
                    return i
            passes.keep_sequences({0: tokens[: i + n_step]})
        return len(tokens)

    # Control.

    def stop(self) -> None:
        """Cancel the requests that are being answered. From any thread."""
        self.passes.stop()

    def _heed(self) -> None:
        """End the pass, or the rendering of a prompt, if it was cancelled. From any thread."""
        self.passes.heed()
        if self._is_cancelled:
            if (reading := self._reading) is not None:
                reading.stop()
            if (chat_format := self.loaded.weights.chat_format) is not None:
                chat_format.stop()

    @contextlib.contextmanager
    def _opens(self, handle: Handle) -> Iterator[None]:
        """Let a handle cancel the rendering or decoding within this block."""
        self._opening = handle
        try:
            yield
        finally:
            self._opening = None

    @property
    def _is_cancelled(self) -> bool:
        """Whether the request that is rendered was cancelled."""
        return (opening := self._opening) is not None and opening.is_cancelled

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
        context = self._context if self.loaded.has_context else None
        held: list[Held] = []
        if self.passes.keeping is not None:
            self.passes.keeping.pause()
        self.loaded.on_leaving = lambda: held.append(self.passes.held())
        try:
            self.loaded.change(config)
        finally:
            self.loaded.on_leaving = None
            self.passes.width = Width(DRAFTED_MAX)
            if context is None or not context.is_open:
                self.passes.take_sequences()
                self.passes.moved.clear()
                if held and self.loaded.has_context and self.loaded.reads_states_of(before):
                    self.passes.go_on_with(held[0])
            if self.passes.keeping is not None:
                self.passes.keeping.begin("")
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

    def keep_in(self, folder: Path) -> None:
        """Keep the state of conversations that have an owner in a folder of the drive."""
        self.passes.keeping = Keeping(self.passes, folder)
        self.passes.keeping.obey_budget()

    def keep(self) -> bool:
        """Write a piece of the conversation's state in the background, between answers.

        Takes the copies that have arrived since the last pass. Return False when all is done and
        none is in flight. A caller with time asks again after some milliseconds.
        """
        self._end_answers()
        are_copying = [patch.stock([]) for patch in self.loaded.patches]
        keeps = self.passes.keeping is not None and self.passes.keeping.step()
        return keeps or any(are_copying)

    def warm(self, owner: str) -> None:
        """Let keep() fetch the experts that an owner's conversation used, until a request comes."""
        if self.passes.keeping is not None:
            self.passes.keeping.warm(owner)

    def forget_kept(self, owner: str) -> None:
        """Delete the states that only this owner uses."""
        if self.passes.keeping is not None:
            self.passes.keeping.forget(owner)

    def forget(self) -> None:
        """Forget the conversation. The whole next prompt is then computed."""
        self._end_answers()
        self.passes.forget_all()

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
        self.passes.take_sequences()

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


def _needs_call(options: ChatOptions) -> bool:
    """Return whether the answer must call a tool."""
    return bool(options.tools) and options.tool_choice not in ("auto", "none")


def _next_turns(options: ChatOptions) -> Iterator[list[Message]]:
    """Yield messages with which a conversation may go on: a question, or a tool's result."""
    yield [_ANSWER, {"role": "user", "content": "b"}]
    for tool in options.tools[:1]:
        function = {"name": tool_name(tool), "arguments": "{}"}
        call = {"id": "call00000", "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "b"}
        yield [{"role": "assistant", "content": "", "tool_calls": [call]}, result]


def _with_free_choice(options: ChatOptions) -> ChatOptions:
    """Return the options to render where a tool must be called.

    llama.cpp's grammar for a required call allows endless text before it. The grammar for a free
    choice begins with the call, and the sampler applies it at once.
    """
    if not _needs_call(options):
        return options
    chosen = [tool for tool in options.tools if tool_name(tool) == options.tool_choice]
    return replace(options, tool_choice="auto", tools=tuple(chosen) or options.tools)
