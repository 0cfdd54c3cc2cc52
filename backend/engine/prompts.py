"""Makes prompts: renders conversations, splits texts into tokens, and decodes images."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from backend.attachments.reading import PictureReading
from backend.engine.error import engine_errors
from backend.engine.kept_states import n_equal
from backend.engine.own_answers import OwnAnswer, OwnAnswers, digest_of, is_same
from backend.engine.scheduler import COMMON_TOKENS_MIN, n_place
from backend.llama import guard
from backend.llama.chat_format import ChatFormat, Rendered
from backend.llama.vision import Chunk, ImageChunk
from backend.protocol.attachments import UNREAD_IMAGE, Picture, as_text, images_of, in_words
from backend.protocol.chat import ChatOptions, tool_name
from backend.protocol.errors import EngineError, GivenUp, RequestError
from backend.protocol.request import Handle, Prompt
from backend.text import text

if TYPE_CHECKING:
    from backend.engine.loaded_model import LoadedModel
    from backend.llama.api import Model

Message = dict[str, Any]
T = TypeVar("T")
_NO_OPTIONS = ChatOptions()
_BORDER_TOKENS = 16
"""Tokens at the end of a prompt that are computed in a pass of their own, at most."""
_OTHER: Message = {"role": "user", "content": "§"}
_ANSWER: Message = {"role": "assistant", "content": "a"}


class Words:
    """The vocabulary of a model, beside which the engine's thread computes.

    beside() may be called from any thread, also when the model is gone. The others belong into the
    work that it does. Methods raise EngineError.
    """

    def __init__(self, llama: Model) -> None:
        self._llama = llama

    def beside(self, work: Callable[[Words], T]) -> Future[T] | None:
        """Do `work(self)` in another thread. Return None if the model is gone."""
        return self._llama.splitter.beside(lambda: work(self))

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        """Return the tokens of a text. special: control tokens in the text count as such."""
        with engine_errors():
            return self._llama.splitter.split(text, special, add_bos and self._llama.adds_bos)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with control tokens."""
        return b"".join(self.token_bytes(tokens)).decode(errors="replace")

    def token_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token."""
        if any(not 0 <= token < self._llama.n_vocab for token in tokens):
            raise EngineError(text("engine.no_token"))
        return [self._llama.piece(token, special=True) for token in tokens]


class Prompts:
    """Makes the prompts of a loaded model. Use from one thread; heed() from any.

    begin: called before an image is decoded that belongs to no request. Where it is not said
    otherwise, methods raise EngineError.
    """

    def __init__(self, loaded: LoadedModel, begin: Callable[[], None]) -> None:
        self._loaded, self._begin = loaded, begin
        self._opening: Handle | None = None  # of the request that is rendered, split or decoded
        self._reading: PictureReading | None = None  # of an image of this request
        self.answers = OwnAnswers(loaded.llama.n_vocab)
        """The tokens of answers that their owners have received."""

    def heed(self) -> None:
        """End the rendering or decoding of a request that was cancelled. From any thread."""
        if self._is_cancelled:
            if (reading := self._reading) is not None:
                reading.stop()
            if (chat_format := self._loaded.weights.chat_format) is not None:
                chat_format.stop()

    def format(self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS) -> str:
        """Return the prompt that answer() would give to the model. Raises EngineError."""
        return guard.unmarked(self._marked(messages, options))

    def _marked(self, messages: Sequence[Message], options: ChatOptions) -> str:
        with engine_errors():
            rendered = self._chat_format.render(
                self._plain(messages), _with_free_choice(options), lambda: self._is_cancelled
            )
        if rendered is None:
            raise GivenUp
        return rendered.prompt

    @property
    def words(self) -> Words:
        """The vocabulary of the model that is loaded now, for any thread."""
        return Words(self._llama)

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        """Return the tokens of a text. special: control tokens in the text count as such."""
        with engine_errors():
            return self._tokens_of(text, add_bos and self._llama.adds_bos, special)

    def count(self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS) -> int:
        """Return the tokens of the prompt that a conversation becomes. Raises EngineError."""
        if images_of(messages):
            self._begin()
        seen = self.seen(messages, keeps=True)
        if seen is None:
            raise GivenUp
        messages, images = seen
        prompt = self._marked(messages, options)
        texts = prompt.split(guard.MEDIA) if images else [prompt]
        with engine_errors():
            n_text = sum(len(self.tokens_of(t, False)) for t in texts)
        return n_text + sum(map(n_token, images))

    def count_image(self, data: str) -> int:
        """Return the places of the context that an image takes. data: its file in Base64.

        Raises EngineError where it cannot be decoded or the model cannot see.
        """
        self._begin()
        if self._loaded.weights.vision is None:
            raise EngineError(text("engine.no_images"))
        if (chunks := self._chunks(data)) is None:
            raise GivenUp
        return n_token(chunks)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with control tokens. Raises EngineError for no token."""
        return self.words.detokenize(tokens)

    def token_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token. Raises EngineError for no token."""
        return self.words.token_bytes(tokens)

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a raw prompt. Raises EngineError if it is too long."""
        if isinstance(prompt, str):
            return self.tokens(prompt)
        pieces = (self._piece(piece, not i) for i, piece in enumerate(prompt))
        return self._fitting(list(itertools.chain.from_iterable(pieces)), {})

    def rendered(
        self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS
    ) -> Rendered | None:
        """Return the prompt, with the marks of the guard; None when stopped while rendering."""
        with engine_errors():
            rendered = self._chat_format.render(
                self._plain(messages),
                _with_free_choice(options),
                lambda: self._is_cancelled,
            )
        if needs_call(options) and rendered is not None and not rendered.grammar:
            raise EngineError(text("template.no_tools", model=self._loaded.file.name))
        return rendered

    def border(
        self,
        messages: Sequence[Message],
        options: ChatOptions,
        images: Sequence[list[Chunk]],
        tokens: Sequence[int],
        owner: str = "",
    ) -> int | None:
        """Return how many tokens of a prompt that of the next turn begins with; None when stopped.

        It is found by rendering next turns. Many templates open a thought in the prompt that they
        leave out later. The same prompt may come again, so its last token is never part of it.
        """
        border = len(tokens) - 1
        goes_on = not messages or messages[-1]["role"] == "assistant"
        if goes_on or not self._loaded.context.n_checkpoint:
            return border
        options = replace(options, json_schema=None, grammar="")
        for turn in _next_turns(options):
            try:
                rendered = self.rendered([*messages, *turn], options)
                if rendered is None:
                    return None
                later, _ = self._with_answers(rendered, images, owner)
            except EngineError:  # the template refuses this turn
                continue
            n = n_equal(tokens, later)
            if len(tokens) - n <= _BORDER_TOKENS:
                border = min(border, n)
        return border

    def opening(
        self, messages: Sequence[Message], options: ChatOptions, tokens: Sequence[int]
    ) -> int | None:
        """Return how many tokens of a first prompt its question does not change; None when stopped.

        They are of the system prompt and of the tools, with which other conversations may begin.
        Return 0 for a later prompt, and where no checkpoint is worth it.
        """
        own = [m for m in messages if m["role"] == "system"]
        is_first = not any(m["role"] == "assistant" for m in messages)
        n_checkpoint = self._loaded.context.n_checkpoint
        if not (is_first and n_checkpoint and len(tokens) >= COMMON_TOKENS_MIN):
            return 0
        try:
            rendered = self.rendered([*own, _OTHER], replace(options, json_schema=None, grammar=""))
            if rendered is None:
                return None
            return n_equal(tokens, self._split(rendered.prompt, True)[0])
        except EngineError:  # the template refuses this question
            return 0

    def tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a text, in which the texts of control tokens count as such."""
        return self._fitting(*self._split(prompt, is_marked=False))

    def conversation_tokens(
        self, rendered: Rendered, images: Sequence[list[Chunk]], owner: str = ""
    ) -> list[int]:
        """Return the tokens of a conversation's prompt, in which the chunks of images stand.

        An answer that its owner received has the tokens that the model wrote.
        """
        return self._fitting(*self._with_answers(rendered, images, owner))

    def remember(self, owner: str, rendered: Rendered, answer: Sequence[int]) -> None:
        """Remember the tokens of an answer that its owner has received."""
        self.answers.add(owner, rendered.prompt, answer)

    def _with_answers(
        self, rendered: Rendered, images: Sequence[list[Chunk]], owner: str
    ) -> tuple[list[int], dict[int, ImageChunk]]:
        """Split a prompt as _split() does, with own tokens where an answer of this owner stands.

        The rendering of an answer ends at the first control token that the answer does not have.
        Own tokens take its place if both have the same control tokens (but for marks of answers
        that the template never writes), and if the reader of answers finds the same thought,
        content and calls in both. So templates that drop or move a thought, number calls or change
        what is before an answer keep their own rendering.
        """
        prompt = rendered.prompt
        placed = list(self.answers.within(owner, prompt))
        tokens: list[int] = []
        chunks: dict[int, ImageChunk] = {}

        def split(begin: int, end: int) -> list[int]:
            part, n = prompt[begin:end], prompt.count(guard.MEDIA, 0, begin) if images else 0
            of_part = images[n : n + part.count(guard.MEDIA)] if end < len(prompt) else images[n:]
            found, more = self._split(part, True, of_part, is_first=not begin)
            chunks.update(more)
            return found

        def ahead(begin: int, end: int, own: OwnAnswer | None) -> list[int] | None:
            found = split(begin, end)
            if own is None:
                return found
            n = self._n_rendering(found, own.tokens, marks)
            return None if n is None else [*own.tokens, *found[n:]]

        marks = self._llama.single_tokens(rendered.preserved) if placed else frozenset()
        begin, own = 0, None
        ends = [*(at for at, _ in placed), len(prompt)]
        pending = split(0, ends[0])
        for (at, answers), end in zip(placed, ends[1:], strict=True):
            found = split(at, end)
            answer = self._agreeing(found, answers, rendered, marks)
            if answer is None:  # the text before and behind is split as one
                pending = ahead(begin, end, own) or split(begin, end)
                continue
            tokens += pending
            begin, own = at, answer
            pending = ahead(begin, end, own) or found
        return tokens + pending, chunks

    def _agreeing(
        self,
        tokens: Sequence[int],
        answers: Sequence[OwnAnswer],
        rendered: Rendered,
        marks: frozenset[int],
    ) -> OwnAnswer | None:
        """Return the answer whose rendering some tokens begin with, or None."""
        for answer in answers:
            n = self._n_rendering(tokens, answer.tokens, marks)
            if n is None:
                continue
            digest = digest_of(tokens[:n])
            if digest != answer.rendering:
                answer.rendering = digest
                answer.agrees = self._agrees(answer.tokens, tokens[:n], rendered, marks)
            if answer.agrees:
                return answer
        return None

    def _n_rendering(
        self, tokens: Sequence[int], own: Sequence[int], marks: frozenset[int]
    ) -> int | None:
        """Return how many tokens are before a control token that an answer does not have.

        Return None where the control tokens before it are not those of the answer. marks: those
        that the answer may have beyond.
        """
        is_control, written = self._llama.is_control, set(tokens)
        control = [t for t in own if is_control(t) and (t in written or t not in marks)]
        places = (i for i, token in enumerate(tokens) if is_control(token))
        *within, end = [*itertools.islice(places, len(control) + 1)] or [-1]
        return None if [tokens[i] for i in within] != control else end

    def _agrees(
        self,
        own: Sequence[int],
        rendering: Sequence[int],
        rendered: Rendered,
        marks: frozenset[int],
    ) -> bool:
        """Return whether an answer and its rendering are read as the same answer."""
        texts = [self.detokenize(tokens) for tokens in (own, rendering)]
        if texts[0] == texts[1]:
            return True
        nothing = {"reasoning": "", "content": ""}
        alone = {**rendered.parser, "ids": [], "continued": nothing, "prefill": ""}
        read = []
        for tokens in (own, rendering):
            pieces = (self._llama.piece(t, special=t in marks) for t in tokens)
            reader = self._chat_format.reader(replace(rendered, parser=alone))
            reader.feed(b"".join(pieces).decode(errors="replace"))
            reader.finish()
            read.append(reader.shown)
        if not is_same(*read):
            return False
        pairs = zip(*(answer.tool_calls for answer in read), strict=True)
        ids = [(a.id, b.id) for a, b in pairs if a.id != b.id]
        ids += [("", known) for known in rendered.parser.get("ids", ())]
        # A later result may name its call by an id, if the call has one in its text.
        return not any(
            (a and a in texts[0]) or (b and b in texts[1] and b not in texts[0]) for a, b in ids
        )

    def _split(
        self,
        prompt: str,
        is_marked: bool,
        images: Sequence[list[Chunk]] = (),
        *,
        is_first: bool = True,
    ) -> tuple[list[int], dict[int, ImageChunk]]:
        """Return the tokens of a prompt, and its images by the number that stands for one.

        is_marked: it has the marks of the guard. is_first: it is no later part of a prompt.
        """
        model = self._llama
        bos = model.special_text(model.bos)
        add_bos = is_first and model.adds_bos and not (bos and prompt.startswith(bos))
        split = self.tokens_of if is_marked else self._tokens_of
        first, *others = prompt.split(guard.MEDIA) if images else [prompt]
        if len(others) != len(images):
            raise EngineError(text("vision.left_out", model=self._loaded.file.name))
        with engine_errors():
            tokens = split(first, add_bos)
            chunks_by_token = {}
            for chunks, following in zip(images, others, strict=True):
                for chunk in chunks:
                    if isinstance(chunk, ImageChunk):
                        chunks_by_token[chunk.token] = chunk
                        tokens += [chunk.token] * chunk.n_pos
                    else:
                        tokens += chunk
                tokens += split(following, False)
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
        n, n_context = n_place(tokens, images), self._n_context
        if n >= n_context:
            raise EngineError(text("engine.prompt_too_long", n=n, n_context=n_context))
        return tokens

    def tokens_of(self, prompt: str, add_bos: bool) -> list[int]:
        """Return the tokens of a prompt, split at the guard's marks."""
        return guard.tokens_of(prompt, self._tokens_of, add_bos)

    def _tokens_of(self, text: str, add_bos: bool, special: bool = True) -> list[int]:
        """Return the tokens of a text. Raises GivenUp when stopped."""
        if self._is_cancelled:
            raise GivenUp
        return self._llama.tokenize(
            text, special=special, add_bos=add_bos, is_ended=lambda: self._is_cancelled
        )

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
                elif self._loaded.weights.vision is None:
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

    def seen(
        self, messages: Sequence[Message], keeps: bool = False
    ) -> tuple[Sequence[Message], list[list[Chunk]]] | None:
        """Return a conversation and the chunks of every image in it; None when stopped.

        An image that cannot be read becomes words, where the conversation has gone on behind it or
        a tool gave it: a refusal would end the conversation for good. keeps: know the images of the
        previous conversation, too. Raises EngineError for one of the user's last message.
        """
        vision, sent = self._loaded.weights.vision, images_of(messages)
        if vision is None or not sent:
            return messages, []
        if not keeps:
            vision.keep(list(map(_digest, sent)))
        found: list[list[Chunk]] = []
        unread: set[str] = set()
        asked = images_of(messages[-1:]) if messages[-1]["role"] == "user" else []
        for data in sent:
            try:
                chunks = self._chunks(data)
            except EngineError:
                if data in asked:
                    raise
                unread.add(data)
                continue
            if chunks is None:
                return None
            found.append(chunks)
        if not unread:
            return messages, found
        return [in_words(m, UNREAD_IMAGE, unread) for m in messages], found

    def _chunks(self, data: str) -> list[Chunk] | None:
        """Return the chunks of an image; None when stopped."""
        vision = self._loaded.weights.vision
        assert vision is not None
        digest = _digest(data)
        chunks = vision.known(digest)
        if chunks is None and (picture := self._decoded(data)) is not None:
            with engine_errors():
                return vision.add(digest, picture.width, picture.height, picture.rgb)
        return chunks

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

    @contextlib.contextmanager
    def opens(self, handle: Handle) -> Iterator[None]:
        """Let a handle cancel the rendering, splitting or decoding within this block.

        Methods without another answer then raise GivenUp.
        """
        before, self._opening = self._opening, handle
        try:
            yield
        finally:
            self._opening = before

    @contextlib.contextmanager
    def serves(self, handle: Handle) -> Iterator[None]:
        """Let a handle cancel this block, which belongs to no answer."""
        handle.attach(self.heed)
        try:
            with self.opens(handle):
                yield
        finally:
            handle.attach(None)

    @property
    def _is_cancelled(self) -> bool:
        """Whether the request that is rendered was cancelled."""
        return (opening := self._opening) is not None and opening.is_cancelled

    @property
    def _n_context(self) -> int:
        return self._loaded.context.n_longest

    @property
    def _chat_format(self) -> ChatFormat:
        assert self._loaded.weights.chat_format is not None
        return self._loaded.weights.chat_format

    @property
    def _llama(self) -> Model:
        return self._loaded.llama


def n_token(chunks: list[Chunk]) -> int:
    """Return the places of the context that an image takes."""
    return sum(len(c) if isinstance(c, list) else c.n_token for c in chunks)


def _digest(data: str) -> bytes:
    return hashlib.sha256(data.encode()).digest()


def needs_call(options: ChatOptions) -> bool:
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
    if not needs_call(options):
        return options
    chosen = [tool for tool in options.tools if tool_name(tool) == options.tool_choice]
    return replace(options, tool_choice="auto", tools=tuple(chosen) or options.tools)
