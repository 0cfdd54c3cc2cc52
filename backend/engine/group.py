"""A group of requests, which are computed jointly: every pass has tokens of all of them.

A pass reads each expert once for all tokens, so several sequences cost little more than one where
experts have to be read (Klotski, section 5). New requests join while others are decoded: a pass has
the next token of every running answer, and pieces of the prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backend.engine.answer import Answer, Piece
from backend.engine.error import engine_errors
from backend.engine.kept_states import n_equal
from backend.engine.passes import Passes
from backend.llama.api import Row
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.settings import Sampling

if TYPE_CHECKING:
    from backend.llama.api import Context

_SHARED_TOKENS_MIN = 16
"""Shorter beginnings are computed for every prompt."""


@dataclass(frozen=True)
class Request:
    """A request of a group. key: returned with its answer. prompt: a raw text, or None.

    max_tokens: -1 until its share of the context is full.
    """

    key: Any
    sampling: Sampling
    max_tokens: int = -1
    messages: Sequence[Any] = ()
    prompt: str | None = None
    options: ChatOptions = ChatOptions()


@dataclass(frozen=True)
class GroupAnswer:
    """A whole answer. finish_reason, stop: as of Engine. error: why there is none, or ""."""

    request: Request
    text: AnswerText = field(default_factory=AnswerText)
    pieces: tuple[Piece, ...] = ()
    finish_reason: str = ""
    stop: str = ""
    n_prompt: int = 0
    n_token: int = 0
    error: str = ""


@dataclass
class _Member:
    """A request that is being answered.

    sequence: its number in the context. number: its number for the core. n_cell: cells of the
    context that are reserved for it. n_done: positions that are computed. next: the token to
    compute next, once the prompt is.
    """

    request: Request
    answer: Answer
    sequence: int
    number: int
    n_cell: int
    prompt: list[int]
    n_done: int = 0
    next: int = -1
    pieces: list[Piece] = field(default_factory=list)


class Group:
    """Answers requests jointly. Use from the engine's thread.

    n_sequence: requests that run at once. n_ended: answers so far.
    """

    def __init__(
        self,
        passes: Passes,
        context: Context,
        requests: Iterable[Request],
        open_answer: Callable[[Request], Answer | None],
        read_whole: Callable[[Any, str], AnswerText],
    ) -> None:
        self.n_sequence = 1
        self.n_ended = 0
        self.on_pass: Callable[[Group], None] | None = None
        self._passes, self._context = passes, context
        self._requests: Iterator[Request] | None = iter(requests)
        self._open_answer, self._read_whole = open_answer, read_whole
        self._waiting: list[tuple[Request, Answer]] = []  # opened, and without room until now
        self._members: list[_Member] = []
        self._shared: list[int] = []  # the tokens of the sequence that holds a shared beginning

    @property
    def n_running(self) -> int:
        """The requests that are being answered."""
        return len(self._members)

    @property
    def n_token(self) -> int:
        """The tokens of all answers so far."""
        return self._passes.meter.statistics.n_token

    def answers(self) -> Iterator[GroupAnswer]:
        """Yield every answer as it ends. Raises EngineError."""
        passes = self._passes
        passes.forget_all()
        began_s = last_s = time.perf_counter()
        stats = passes.meter.statistics
        try:
            while True:
                yield from self._admit()
                if not self._members or passes.is_stopped:
                    return
                with engine_errors():
                    if not self._compute(last_s):
                        return
                last_s = time.perf_counter()
                yield from self._end_members()
                stats.tokens_per_s = stats.n_token / (last_s - began_s)
                if self.on_pass is not None:
                    self.on_pass(self)
        finally:
            for member in self._members:
                member.answer.partial.sampler.close()
            for _, answer in self._waiting:
                answer.partial.sampler.close()
            self._members.clear()
            self._waiting.clear()
            passes.forget_all()

    # New requests.

    def _admit(self) -> Iterator[GroupAnswer]:
        """Take requests for which there is room. Yield answers to those that cannot be answered.

        A new prompt needs nearly all experts, so several are taken at once.
        """
        n_free = self.n_sequence - len(self._members)
        if self._members and n_free < max(self.n_sequence // 4, 1):
            return
        yield from self._open(n_free)
        if self._waiting and not self._members:
            self._share_beginning()
        while self._waiting and len(self._members) < self.n_sequence:
            request, answer = self._waiting[0]
            n_cell = self._n_cell(request, answer)
            if self._members and self._n_taken + n_cell > self._context.n_context:
                return
            del self._waiting[0]
            self._join(request, answer, n_cell)

    def _open(self, n: int) -> Iterator[GroupAnswer]:
        """Render and tokenise requests until n of them wait."""
        while self._requests is not None and len(self._waiting) < n:
            request = next(self._requests, None)
            if request is None:
                self._requests = None
                return
            try:
                answer = self._open_answer(request)
            except UntrustedError:
                raise
            except EngineError as error:
                self.n_ended += 1
                yield GroupAnswer(request, error=str(error))
                continue
            if answer is None:  # stopped
                return
            self._waiting.append((request, answer))

    @property
    def _n_taken(self) -> int:
        """The cells of the context that are reserved."""
        return len(self._shared) + sum(member.n_cell for member in self._members)

    def _n_cell(self, request: Request, answer: Answer) -> int:
        """Return the cells that a request may need. Every one may have the whole context."""
        n_all = self._context.n_context - len(self._shared)
        n_prompt = answer.partial.n_prompt
        if request.max_tokens < 0:
            return min(max(n_all // self.n_sequence, n_prompt + 1), n_all)
        return min(n_prompt + request.max_tokens, n_all)

    def _join(self, request: Request, answer: Answer, n_cell: int) -> None:
        taken = {member.sequence for member in self._members}
        sequence = next(i for i in range(self.n_sequence) if i not in taken)
        number = self._passes.next_sequence()
        prompt = list(answer.partial.tokens)
        member = _Member(request, answer, sequence, number, n_cell, prompt)
        n_shared = n_equal(self._shared, prompt[:-1])
        if n_shared >= _SHARED_TOKENS_MIN and n_shared == len(self._shared):
            self._context.copy_sequence(self.n_sequence, sequence, n_shared)
            member.n_done = n_shared
        stats = self._passes.meter.statistics
        stats.n_prompt += len(prompt)
        stats.n_reused += member.n_done
        self._members.append(member)

    def _share_beginning(self) -> None:
        """Compute the beginning that the waiting prompts share, once for all of them."""
        prompts = [answer.partial.tokens for _, answer in self._waiting]
        n = min(n_equal(prompts[0], prompt[:-1]) for prompt in prompts)
        kept = n_equal(self._shared, prompts[0])
        if kept == len(self._shared) >= _SHARED_TOKENS_MIN:
            return  # it serves these, too
        self._context.forget_from(0, self.n_sequence)
        self._shared = []
        if len(prompts) < 2 or n < _SHARED_TOKENS_MIN or self._context.cuts_batches:
            return
        number, step = self._passes.next_sequence(), self._context.n_ubatch
        for begin in range(0, n, step):
            end = min(begin + step, n)
            rows = [
                Row(prompts[0][i], i, self.n_sequence, has_logits=i == end - 1)
                for i in range(begin, end)
            ]
            numbers = [number] * len(rows)
            now_s = time.perf_counter()
            with engine_errors():
                if not self._passes.compute_rows(rows, numbers, now_s, is_token=False):
                    return
        self._shared = prompts[0][:n]

    # Passes.

    def _compute(self, last_s: float) -> bool:
        """Compute a pass and choose the next tokens. Return False when stopped."""
        rows, owners = self._rows()
        is_token = all(member.n_done >= len(member.prompt) for member in owners)
        numbers = [member.number for member in owners]
        if not self._passes.compute_rows(rows, numbers, last_s, is_token=is_token):
            return False
        for member in owners:
            member.n_done += 1
        for i, member in enumerate(owners):
            if rows[i].has_logits and member.n_done >= len(member.prompt):
                member.next = member.answer.sample(i)
        return True

    def _rows(self) -> tuple[list[Row], list[_Member]]:
        """Return the rows of the next pass and the member of each. Those with logits come last."""
        running = [m for m in self._members if m.n_done >= len(m.prompt)]
        fresh = [m for m in self._members if m.n_done < len(m.prompt)]
        if fresh and self._context.cuts_batches:
            running, fresh = [], fresh[:1]
        room = self._context.n_ubatch - len(running)
        rows: list[tuple[Row, _Member]] = []
        last: list[tuple[Row, _Member]] = []
        for member in fresh:
            n = min(len(member.prompt) - member.n_done, room)
            room -= n
            for i in range(member.n_done, member.n_done + n):
                is_last = i == len(member.prompt) - 1
                of = last if is_last else rows
                of.append((Row(member.prompt[i], i, member.sequence, is_last), member))
        last += [(Row(m.next, m.n_done, m.sequence, has_logits=True), m) for m in running]
        if not last:  # a pass has logits; nobody reads these
            row, member = rows.pop()
            last.append((Row(row.token, row.position, row.sequence, has_logits=True), member))
        rows += last
        return [row for row, _ in rows], [member for _, member in rows]

    def _end_members(self) -> Iterator[GroupAnswer]:
        """Add the tokens that were chosen. Yield the answers that have ended."""
        stats = self._passes.meter.statistics
        for member in list(self._members):
            if member.n_done < len(member.prompt):
                continue
            answer, request = member.answer, member.request
            before = answer.n_token
            with engine_errors():
                member.pieces += answer.add(member.next, request.max_tokens)
                if not answer.has_ended and member.n_done >= member.n_cell:
                    answer.finish_reason = "context"
                    member.pieces += answer.end(member.next)
            stats.n_token += answer.n_token - before
            if answer.has_ended:
                self._members.remove(member)
                self._context.forget_from(0, member.sequence)
                yield self._ended(member)

    def _ended(self, member: _Member) -> GroupAnswer:
        answer = member.answer
        answer.partial.sampler.close()
        self.n_ended += 1
        rest = answer.rest()
        if rest:
            member.pieces.append(Piece(-1, rest))
        written = "".join(piece.text for piece in member.pieces)
        text = self._read_whole(answer.partial.rendered, written)
        reason = answer.finish_reason
        return GroupAnswer(
            member.request,
            text,
            tuple(member.pieces),
            "tool_calls" if reason == "stop" and text.tool_calls else reason,
            answer.stop_text,
            len(member.prompt),
            answer.n_token,
        )
