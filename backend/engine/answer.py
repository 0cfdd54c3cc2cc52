"""One answer: sample token after token, cut the text at stops, and split it while it streams."""

from __future__ import annotations

import codecs
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backend.engine.drafts import BY_MODEL, SURE, Lookup
from backend.engine.error import engine_errors
from backend.engine.passes import Passes
from backend.protocol.chat import AnswerText, ChatOptions, Delta, ToolCall
from backend.protocol.request import Handle
from backend.protocol.settings import Sampling

if TYPE_CHECKING:
    from backend.llama.api import Context

OnDelta = Callable[[Delta], None]

_READING_S = 0.1
"""Shortest time between two exchanges with the reader. Each wakes threads that take a core from the
computation: with 0.02 s, a model of 4.3 GB decodes 8 % slower on two cores."""
_READING_SHARE = 0.2
"""Share of the time that may go into reading a long answer."""


@dataclass(frozen=True)
class Chance:
    """A token at a place of the answer. data: its bytes. logprob: of its probability."""

    token_id: int
    data: bytes
    logprob: float


@dataclass(frozen=True)
class Piece:
    """A token and the text that it completes. The text is empty within a character.

    token_id: -1 for text that was held back, behind the last token.
    text: with control tokens only where the template's reader needs them. raw: with all control
    tokens. chances: if `Sampling.n_probs` asks for them, the token and then the most probable ones.
    """

    token_id: int
    text: str
    raw: str = ""
    chances: tuple[Chance, ...] = ()


@dataclass(frozen=True)
class PartialAnswer:
    """An answer so far, which can be continued with exactly its tokens.

    messages, options: the conversation before the answer. n_prompt: the tokens of the prompt; those
    of the answer follow. before: the part of the answer that stands in the prompt. shown: what
    clients have received of the rest. text: the rest as the reader received it. undecoded: the
    bytes of an incomplete character, of the text and of the raw text. llama: the sampler's model.

    The answer to a raw text has neither messages nor a rendered prompt, and is not continued.
    """

    messages: list[Any] | None
    options: ChatOptions
    rendered: Any
    tokens: list[int]
    n_prompt: int
    sampling: Sampling
    sampler: Any
    llama: Any
    before: AnswerText = field(default_factory=AnswerText)
    shown: AnswerText = field(default_factory=AnswerText)
    text: str = ""
    undecoded: tuple[bytes, bytes] = (b"", b"")

    def is_continued_by(self, messages: Sequence[Any], options: ChatOptions) -> bool:
        """Return whether the last message is this answer, as far as clients have received it."""
        if not messages or messages[-1]["role"] != "assistant":
            return False
        last, before, shown = message_text(messages[-1]), self.before, self.shown
        return (
            list(messages[:-1]) == self.messages
            and options == self.options
            and last.content == before.content + shown.content
            and last.reasoning == before.reasoning + shown.reasoning
            and not (last.tool_calls or shown.tool_calls)
        )


def message_text(message: Any) -> AnswerText:
    """Return a message of the assistant, split as an answer is."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content)
    reasoning = str(message.get("reasoning_content") or "")
    calls = [ToolCall.from_json(call) for call in message.get("tool_calls") or ()]
    return AnswerText(reasoning, content, calls)


class StopFilter:
    """Cuts text at the first stop string. Holds back text that may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stop = ""
        """The stop that was found, or ""."""

    def feed(self, text: str) -> str:
        """Add text. Return the text that may be shown now."""
        if self.stop or not self._stops:
            return "" if self.stop else text
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            cut, self.stop = min(found)
            shown, self._held = self._held[:cut], ""
            return shown
        cut = len(self._held) - max(self._overlap(stop) for stop in self._stops)
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def rest(self) -> str:
        """Return the text held back. Call it at the end of the answer."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """Return how many characters at the end are the beginning of `stop`."""
        for n in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:n]):
                return n
        return 0


class Reading:
    """Splits the text of an answer in a thread of its own, so that decoding never waits for it.

    reader: a backend.llama.chat_format.AnswerReader. partial: an earlier part of the answer, which
    the reader reads again. shown: what on_delta has received, with that earlier part. fault: the
    reader's error, or that of on_delta.
    """

    def __init__(self, reader: Any, on_delta: OnDelta, partial: PartialAnswer) -> None:
        self.shown = replace(partial.shown, tool_calls=list(partial.shown.tool_calls))
        self.fault: BaseException | None = None
        self._reader = reader
        self._on_delta = on_delta
        self._partial = partial
        self._changed = threading.Condition()
        self._text: list[str] = []
        self._waits_for_text = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="answer reader", daemon=True)
        self._thread.start()

    def feed(self, text: str) -> None:
        """Add text of the answer. Does not wait."""
        if text:
            with self._changed:
                self._text.append(text)
                if self._waits_for_text:  # a thread that is woken takes a computing core
                    self._changed.notify()

    def close(self) -> None:
        """Read the rest and end the thread. All deltas are delivered then."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            ahead = self._shown_ahead()
            n_read = 0
            for text, is_last in self._texts():
                n_read += len(text)
                deltas = [self._reader.feed(text)] if text else []
                if is_last:
                    deltas.append(self._reader.finish())
                for delta in deltas:
                    if gained := ahead.without(delta):
                        self.shown.add(gained)
                        self._on_delta(replace(gained, n_read=n_read))
        except BaseException as error:
            self.fault = error

    def _shown_ahead(self) -> _Ahead:
        """Read the earlier part. Return its text that was shown before the reader returned it."""
        read, shown = AnswerText(), self._partial.shown
        if self._partial.text:
            read.add(self._reader.feed(self._partial.text))
        return _Ahead(
            shown.reasoning.removeprefix(read.reasoning), shown.content.removeprefix(read.content)
        )

    def _texts(self) -> Iterator[tuple[str, bool]]:
        """Yield the text that has arrived meanwhile, and whether it is the last."""
        pause_s = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, pause_s)
                self._waits_for_text = True
                self._changed.wait_for(lambda: self._text or self._is_over)
                self._waits_for_text = False
                text, is_last = "".join(self._text), self._is_over
                self._text.clear()
            began_s = time.perf_counter()
            yield text, is_last
            if is_last:
                return
            took_s = time.perf_counter() - began_s
            pause_s = max(_READING_S, took_s * (1 / _READING_SHARE - 1))


@dataclass
class _Ahead:
    """Text shown at the end of an earlier part, which its reader had held back until then."""

    reasoning: str
    content: str

    def without(self, delta: Delta) -> Delta:
        """Return a delta without what was shown before."""
        self.reasoning, reasoning = _advance(self.reasoning, delta.reasoning)
        self.content, content = _advance(self.content, delta.content)
        return replace(delta, reasoning=reasoning, content=content)


def _advance(ahead: str, text: str) -> tuple[str, str]:
    """Return the rest of `ahead`, and the new part of `text`."""
    if ahead.startswith(text):
        return ahead[len(text) :], ""
    # Text that was the beginning of a tag was shown; it has become the tag.
    return "", text.removeprefix(ahead)


class Answer:
    """Computes the tokens of one answer and cuts its text at `stops`.

    raw: its text with all control tokens, in pieces. finish_reason: "stop", "length", "context" or
    "cancelled". n_token: tokens so far, without one that ends the answer.
    """

    def __init__(
        self, passes: Passes, partial: PartialAnswer, context: Context, stops: Sequence[str]
    ) -> None:
        self.partial = partial
        self.finish_reason = "cancelled"
        self.raw: list[str] = []
        self.n_token = 0
        self._row = -1  # of the last pass: its logits choose the next token
        self._passes, self._llama, self._context = passes, partial.llama, context
        self._tokens = list(partial.tokens)
        self._lookup = Lookup() if passes.may_draft else None
        self._n_drafted, self._n_equal = 0, 0  # of the last pass; tokens equal before the next one
        self._was_asked = False  # whether the drafter was asked for the last pass
        self._read_s = 0.0  # that it then took to read a new text
        self._text: list[str] = []
        self._stop_filter = StopFilter(stops)
        rendered = partial.rendered
        preserved = () if rendered is None else rendered.preserved
        self._preserved = self._llama.single_tokens(preserved)
        self._decoder, self._raw_decoder = map(_utf8_decoder, partial.undecoded)
        self._log, self._number = context.log, 0
        if self._log is not None:
            is_greedy = partial.sampling.is_greedy and partial.sampler.is_free
            self._number = self._log.begin_answer(
                self._tokens, partial.n_prompt, is_greedy=is_greedy
            )

    @property
    def tokens(self) -> list[int]:
        """The tokens of the prompt and of the answer so far."""
        return self._tokens

    @property
    def stop_text(self) -> str:
        """The stop that ended the answer, or ""."""
        return self._stop_filter.stop

    def so_far(self, shown: AnswerText | None) -> PartialAnswer | None:
        """Return the answer, to be continued; None if it has no token or has ended.

        shown: what clients have received; None if they receive its text as it is.
        """
        partial = self.partial
        has_no_token = len(self._tokens) == partial.n_prompt
        if self.finish_reason == "stop" or has_no_token or partial.messages is None:
            return None
        text = partial.text + "".join(self._text)
        return replace(
            partial,
            tokens=self._tokens,
            text=text,
            shown=AnswerText(content=text) if shown is None else shown,
            undecoded=(self._decoder.getstate()[0], self._raw_decoder.getstate()[0]),
        )

    def rest(self) -> str:
        """Return text that was held back as the possible beginning of a stop."""
        held = self._stop_filter.rest()
        self._text.append(held)
        return held

    def pieces(self, max_tokens: int, handle: Handle) -> Iterator[Piece]:
        """Yield the pieces of the answer. Tell the handle of its prompt. Raises EngineError."""
        passes = self._passes
        began_s = time.perf_counter()
        stats = passes.meter.statistics
        stats.n_prompt = len(self._tokens)
        stats.n_reused = passes.keep_prefix(self._tokens)
        handle.joined(stats.n_prompt, stats.n_reused)
        with engine_errors():
            if not passes.prefill(self._tokens, handle.prefilled):
                return
            token = self.sample()
        handle.began(stats.n_prompt, stats.n_reused)
        stats.ttft_s = time.perf_counter() - began_s
        first_s = last_s = time.perf_counter()
        while True:
            for piece in self.add(token, max_tokens):
                stats.n_token = self.n_token
                yield piece
            if self.has_ended:
                return
            if passes.is_stopped:
                break
            if passes.n_place >= self._context.n_longest:
                self.finish_reason = "context"
                break
            with engine_errors():
                if passes.accept(token):
                    token = self.sample(self._row + 1)
                else:
                    draft = self._draft(max_tokens)
                    if not passes.compute([token], last_s, is_token=True, draft=draft):
                        break
                    last_s = time.perf_counter()  # a token's time includes sampling it
                    token = self.sample(0 if draft else -1)
            stats.tokens_per_s = stats.n_token / (time.perf_counter() - first_s)
        yield from self.end(token)

    def _draft(self, max_tokens: int) -> list[int]:
        """Return tokens that may follow, to be computed in the next pass. May be empty."""
        passes, width, stats = self._passes, self._passes.width, self._passes.meter.statistics
        if self._lookup is None:
            return []
        if stats.n_token > 1:  # the last pass decoded a token
            n_right = self._n_drafted - len(passes.drafted)
            # A guess that the model was too unsure to make took time, as a wrong one.
            n_guessed = max(self._n_drafted, int(self._was_asked))
            took_s = passes.meter.token.wall_s - self._read_s
            width.observe(self._n_equal, n_guessed, n_right, took_s)
        n_free = self._context.n_longest - passes.n_place - 1
        n_left = n_free if max_tokens < 0 else max_tokens - self.n_token - 1
        n_most = min(n_free, n_left, self._context.n_ubatch - 1)
        found, self._n_equal = self._lookup.find(self._tokens, width.n_most)
        drafter = passes.drafter if self._n_equal < SURE else None
        if drafter is not None:
            self._n_equal = BY_MODEL
        n = max(min(width.choose(self._n_equal), n_most), 0)
        self._was_asked, self._read_s = drafter is not None and n > 0, 0.0
        if drafter is not None and n > 0:
            least = width.cost(BY_MODEL, n)
            found = drafter.guess(self._tokens, n, least, lambda: passes.is_stopped)
            self._read_s = drafter.read_s
        draft = list(itertools.takewhile(lambda t: not self._llama.ends_answer(t), found[:n]))
        self._n_drafted = len(draft)
        return draft

    @property
    def has_ended(self) -> bool:
        """Whether the answer has reached its end, its limit or a stop."""
        return self.finish_reason != "cancelled"

    def sample(self, row: int = -1) -> int:
        """Choose the next token from the logits of a row of the last pass. Raises LlamaError."""
        self._row = row
        token = int(self.partial.sampler.sample(self._context, row))
        if self._log is not None:
            self._log.write("chose", self._number, row, token)
        return token

    def add(self, token: int, max_tokens: int) -> Iterator[Piece]:
        """Add a token and yield its pieces; with the last token, the rest of the text."""
        if self._log is not None:
            self._log.write("sent", self._number, token)
        if self._llama.ends_answer(token):
            self.finish_reason = "stop"
            yield from self.end(token)
            return
        if max_tokens == 0:  # the prompt was to be read, and nothing else
            self.finish_reason = "length"
            return
        self.n_token += 1
        self._tokens.append(token)
        yield self._piece(token)
        if self.stop_text:
            self.finish_reason = "stop"
        elif 0 <= max_tokens <= self.n_token:
            self.finish_reason = "length"
            yield from self.end(token)

    def _piece(self, token: int) -> Piece:
        model = self._llama
        raw = model.piece(token, special=True)
        visible = raw if token in self._preserved else model.piece(token)
        piece = Piece(
            token,
            self._show(self._decoder.decode(visible)),
            self._raw_decoder.decode(raw),
            self._chances(token),
        )
        self.raw.append(piece.raw)
        return piece

    def _chances(self, token: int) -> tuple[Chance, ...]:
        n = self.partial.sampling.n_probs
        if n == 0:
            return ()
        after = self.partial.sampler.probabilities(n)
        if after is not None:
            found = [(i, math.log(p)) for i, p in after]
        else:
            found = self._context.log_probabilities(token, n, self._row)
        return tuple(Chance(i, self._llama.piece(i, special=True), p) for i, p in found)

    def _show(self, text: str) -> str:
        shown = self._stop_filter.feed(text)
        self._text.append(shown)
        return shown

    def end(self, token: int) -> Iterator[Piece]:
        """Yield the rest of the text: of a token that ends the answer, and what was held back."""
        has_ended, rest = self.finish_reason == "stop", b""
        if has_ended:
            ending = self._llama.piece(token, special=True)
            self.raw.append(self._raw_decoder.decode(ending, final=True))
            rest = ending if token in self._preserved else b""
        text = ""
        if has_ended or self.partial.messages is None:  # otherwise the character can be continued
            text = self._show(self._decoder.decode(rest, final=True))
        if text := text + self.rest():
            yield Piece(-1, text)


def _utf8_decoder(undecoded: bytes) -> codecs.IncrementalDecoder:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.setstate((undecoded, 0))
    return decoder
