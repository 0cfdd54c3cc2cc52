"""A request to the engine, the handle that cancels and follows it, and its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from backend.protocol.chat import AnswerText, ChatOptions, Delta, Json
from backend.protocol.errors import RequestError
from backend.protocol.settings import Sampling

Priority = Literal["person", "program", "background"]
"""Who waits for an answer: a person who reads it as it is written, a program, or nobody."""
Prompt = str | tuple[str | int, ...]
"""A raw prompt: a text, or tokens and texts in their order."""


class Follow:
    """The book of one request: how much of its prompt is computed, its tokens, and their times.

    The engine's thread calls submitted() to wrote(), which write the book and then tell the handle.
    Any thread may read it. Times are those of time.perf_counter(), in seconds; 0.0: not yet.

    n_prompt: tokens of the prompt; the context had n_reused of them, and n_done are computed or
    reused. n_token, n_char: tokens of the answer, and characters as the model wrote them.
    submitted_s: the engine has taken the request. joined_s: its prompt begins to be computed.
    began_s: its prompt is computed. wrote_s: its last text came.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.n_prompt = self.n_reused = self.n_done = self.n_token = self.n_char = 0
        self.submitted_s = self.joined_s = self.began_s = self.wrote_s = 0.0

    def submitted(self) -> None:
        """Note that the engine has taken the request."""
        self.submitted_s = time.perf_counter()

    def joined(self, n_prompt: int, n_reused: int) -> None:
        """Note the lengths of the prompt and of its part in the context, before it is computed."""
        self.joined_s = time.perf_counter()
        self.n_prompt, self.n_reused, self.n_done = n_prompt, n_reused, n_reused
        self._handle.joined()

    def prefilled(self, n_done: int) -> None:
        """Note how many tokens of the prompt are computed or reused."""
        self.n_done = n_done
        self._handle.prefilled()

    def began(self) -> None:
        """Note that the prompt is computed. A second call changes nothing."""
        if not self.began_s:
            self.began_s = time.perf_counter()
            self.n_done = self.n_prompt
            self._handle.began()

    def wrote(self, piece: Any) -> None:
        """Note a backend.engine.answer.Piece of the answer."""
        self.n_token += piece.token_id >= 0  # the rest of the text comes without a token
        self.n_char += len(piece.text)
        self.wrote_s = time.perf_counter()
        self._handle.wrote(piece)

    @property
    def ttft_s(self) -> float:
        """Seconds from the request until its prompt was computed; 0.0 before."""
        return self.began_s - self.submitted_s if self.began_s else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the answer in a second, without the time of its prompt."""
        took_s = self.wrote_s - self.began_s
        return self.n_token / took_s if took_s > 0 else 0.0


class Handle:
    """A caller's hold on a request: it cancels the request, and a subclass takes its answer.

    cancel() may be called from any thread, also from a signal handler: before the engine takes the
    request, while it answers, and afterwards. The engine's thread calls everything else. follow:
    the request's figures, which are up to date when a method is called. whole: cancels this one,
    too, such as a request with several answers. splits: whether the text of the whole answer is
    split into thought, content and tool calls ("end"), and delta() also receives it so while it is
    written ("live"); "": it is taken as it is.
    """

    splits: Literal["", "end", "live"] = ""

    def __init__(self, whole: Handle | None = None) -> None:
        self.follow = Follow(self)
        self._heed: Callable[[], None] | None = None
        self._parts: list[Handle] = []
        if whole is not None:
            whole._parts.append(self)  # before it is asked, so that its cancel() misses nothing
        self._is_cancelled = whole is not None and whole.is_cancelled

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._is_cancelled

    def cancel(self) -> None:
        """End the answer. It stays cancelled; a second call does nothing more."""
        self._is_cancelled = True  # before the engine is told, so that attach() misses nothing
        if (heed := self._heed) is not None:
            heed()
        for part in list(self._parts):
            part.cancel()

    def attach(self, heed: Callable[[], None] | None) -> None:
        """Have cancel() call `heed` from now on, at once if it came before. None: nobody."""
        self._heed = heed
        if heed is not None and self._is_cancelled:
            heed()

    def fitted(self, changes: Sequence[str]) -> None:
        """Receive the changes of the conversation for its template (Rendered.fitted)."""

    def joined(self) -> None:
        """Learn that the prompt is going to be computed."""

    def prefilled(self) -> None:
        """Learn that more of the prompt is computed."""

    def began(self) -> None:
        """Learn that the prompt is computed. It is called once."""

    def wrote(self, piece: Any) -> None:
        """Take a backend.engine.answer.Piece of the answer."""

    def delta(self, delta: Delta) -> None:
        """Take what the answer gained, in another thread. All is taken before the answer ends.

        It is called if the handle splits "live", and not for a raw prompt.
        """

    def ended(self, given: GroupAnswer) -> None:
        """Take the answer, as far as it was written. Nothing follows."""


@dataclass(frozen=True)
class Request:
    """A request for one answer to a conversation, or to a raw prompt if there is one.

    key: returned with its answer. prompt: may contain control tokens; one in pieces is taken as it
    is, and only a first piece of text begins with the token that begins a sequence. max_tokens: -1
    until the context is full. owner: who keeps its conversation (Engine.keep_in); "": nobody.
    is_further: it is one more answer to its owner's question, whose conversation is not kept.
    handle: cancels and follows it.
    """

    key: Any
    sampling: Sampling
    max_tokens: int = -1
    messages: Sequence[Any] = ()
    prompt: Prompt | None = None
    options: ChatOptions = ChatOptions()
    priority: Priority = "program"
    owner: str = ""
    is_further: bool = False
    handle: Handle = field(default_factory=Handle, compare=False)

    @property
    def precedes(self) -> bool:
        """Whether it joins at once, also in the place of another, which goes on later.

        The others slow it down by a fifth at most (backend.engine.precedence).
        """
        return self.priority == "person"

    @property
    def goes_on(self) -> bool:
        """Whether it may go on with its owner's answer before, and be continued itself."""
        return (bool(self.owner) or self.precedes) and not self.is_further

    @classmethod
    def from_message(cls, message: Json, handle: Handle) -> Self:
        """Read the request "generate" of the pipe. Raises RequestError."""
        sampling, max_tokens = Sampling.from_message(message["sampling"]), message["max_tokens"]
        if max_tokens < 1 and max_tokens != -1:
            raise RequestError(
                f"max_tokens must be at least 1, or -1 for no limit, not {max_tokens}."
            )
        return cls(
            None,
            sampling,
            max_tokens,
            message.get("messages", ()),
            message.get("prompt"),
            ChatOptions.from_message(message.get("options") or {}),
            priority="background" if message.get("aside") else "person",
            owner=message.get("owner", ""),
            handle=handle,
        )


@dataclass(frozen=True)
class GroupAnswer:
    """An answer. finish_reason, stop: as of Sequence; "" after a fault.

    fault: why there is none, or why it ends here; or None. It has begun if n_prompt is not 0.
    """

    request: Request
    text: AnswerText = field(default_factory=AnswerText)
    pieces: tuple[Any, ...] = ()
    finish_reason: str = ""
    stop: str = ""
    n_prompt: int = 0
    n_token: int = 0
    n_reused: int = 0
    fault: BaseException | None = None

    @property
    def error(self) -> str:
        """The sentence of its fault, or ""."""
        return "" if self.fault is None else str(self.fault)
