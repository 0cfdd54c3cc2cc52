"""The text of an answer: cut at stops, split while it streams, continued where it was stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backend.protocol.chat import AnswerText, ChatOptions, Delta, ToolCall
from backend.protocol.settings import Sampling
from backend.system import faults

if TYPE_CHECKING:
    from backend.llama.vision import ImageChunk

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
    of the answer follow. before: the part of the answer that stands in the prompt. shown: the part
    of the rest that clients have received. text: the rest as the reader received it. undecoded: the
    bytes of an incomplete character, of the text and of the raw text. llama: the sampler's model.
    images: by the number that stands for one in the tokens. border: tokens of the prompt that the
    prompts of later turns begin with. opening: those with which other conversations may begin.

    The answer to a raw text has neither messages nor a rendered prompt, and is not continued.
    """

    options: ChatOptions
    tokens: list[int]
    n_prompt: int
    sampling: Sampling
    sampler: Any
    llama: Any
    messages: list[Any] | None = None
    rendered: Any = None
    before: AnswerText = field(default_factory=AnswerText)
    shown: AnswerText = field(default_factory=AnswerText)
    text: str = ""
    undecoded: tuple[bytes, bytes] = (b"", b"")
    images: Mapping[int, ImageChunk] = field(default_factory=dict)
    border: int = 0
    opening: int = 0

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
    the reader reads again. shown: the text that on_delta has received, with that earlier part.
    fault: the reader's error, or that of on_delta.
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
        # _run passes its own errors on in `fault`.
        self._thread = faults.Thread("answer reader", self._run, failed=faults.no_place)
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
        """Return a delta without its part that was shown before."""
        self.reasoning, reasoning = _advance(self.reasoning, delta.reasoning)
        self.content, content = _advance(self.content, delta.content)
        return replace(delta, reasoning=reasoning, content=content)


def _advance(ahead: str, text: str) -> tuple[str, str]:
    """Return the rest of `ahead`, and the new part of `text`."""
    if ahead.startswith(text):
        return ahead[len(text) :], ""
    # Text that was the beginning of a tag was shown; it has become the tag.
    return "", text.removeprefix(ahead)
