"""A group of requests, which are computed jointly: every pass has tokens of all of them.

A pass reads each expert once for all tokens, so several sequences cost little more than one where
experts have to be read (Klotski, section 5). New requests join while others are decoded: a pass has
the next token of every running answer, and pieces of the prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backend.engine.answer import Answer, PartialAnswer, Piece, Reading
from backend.engine.error import engine_errors
from backend.engine.kept_states import n_equal
from backend.engine.passes import Passes
from backend.llama.api import Row
from backend.protocol.chat import AnswerText
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.group import GroupAnswer, Request

if TYPE_CHECKING:
    from backend.llama.api import Context

SHARED_TOKENS_MIN = 16
"""Shorter beginnings are computed for every prompt."""


@dataclass
class _Member:
    """A request that is being answered, or waits for room.

    reading: splits the answer for a listener. sequence: its number in the context. number: its
    number for the core. n_cell: cells of the context that are reserved for it. prompt: the tokens
    to compute before the next one is chosen. n_done: positions that are computed. n_gone: of them,
    positions that sparse attention has dropped. next: the token to compute next, once the prompt
    is.
    """

    request: Request
    answer: Answer
    reading: Reading | None = None
    sequence: int = -1
    number: int = -1
    n_cell: int = 0
    prompt: list[int] = field(default_factory=list)
    n_done: int = 0
    n_gone: int = 0
    n_reused: int = 0
    next: int = -1
    pieces: list[Piece] = field(default_factory=list)

    @property
    def computed(self) -> list[int]:
        """The tokens that the context holds of it."""
        return self.answer.tokens[: self.n_done]

    def close(self) -> None:
        """Free the sampler, and end the reading."""
        self.answer.partial.sampler.close()
        if self.reading is not None:
            self.reading.close()


class Group:
    """Answers requests jointly. Use from the engine's thread.

    n_sequence: requests that run at once. n_ended: answers so far. keeps: the context keeps what it
    holds, for later requests that begin in the same way. attends: the numbers of first and of last
    tokens that a token sees (sparse attention: Klotski, section 8); without last ones it sees all.
    """

    def __init__(
        self,
        passes: Passes,
        context: Context,
        requests: Iterable[Request | None],
        open_answer: Callable[[Request], Answer | None],
        open_reader: Callable[[Any], Any],
    ) -> None:
        self.n_sequence = 1
        self.n_ended = 0
        self.keeps = False
        self.attends = (0, 0)
        self.on_pass: Callable[[Group], None] | None = None
        self._passes, self._context = passes, context
        self._requests: Iterator[Request | None] | None = iter(requests)
        self._open_answer, self._open_reader = open_answer, open_reader
        self._waiting: list[_Member] = []  # opened, and without room until now
        self._members: list[_Member] = []  # in the order in which they joined
        self._idle: dict[int, list[int]] = {}  # tokens of the sequences that nobody uses
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
        if self.keeps:
            self._idle = passes.take_sequences()
        else:
            passes.forget_all()
        began_s = last_s = time.perf_counter()
        stats = passes.meter.statistics
        is_whole = False
        try:
            while True:
                yield from self._admit()
                if not self._members or passes.is_stopped:
                    break
                with engine_errors():
                    if not self._compute(last_s):
                        break
                last_s = time.perf_counter()
                if stats.n_token == 0:
                    stats.ttft_s = last_s - began_s
                yield from self._end_members()
                stats.tokens_per_s = stats.n_token / (last_s - began_s)
                if self.on_pass is not None:
                    self.on_pass(self)
            is_whole = not passes.is_stopped
            for member in [m for m in self._members + self._waiting if m.reading is not None]:
                yield self._ended(member)  # as far as it was written
        finally:
            for member in self._members + self._waiting:
                member.close()
            self._members.clear()
            self._waiting.clear()
            if self.keeps and is_whole:
                passes.keep_sequences(self._idle)
                if self._shared:
                    self._context.forget_from(0, self.n_sequence)
            else:
                passes.forget_all()

    # New requests.

    def _admit(self) -> Iterator[GroupAnswer]:
        """Take requests for which there is room. Yield answers to those that cannot be answered.

        A new prompt needs nearly all experts, so several are taken at once.
        """
        n_free = self.n_sequence - len(self._members)
        is_closed = not self._context.shares  # a pass has no pieces of prompts beside tokens
        if self._members and (is_closed or n_free < max(self.n_sequence // 4, 1)):
            return
        yield from self._open(n_free)
        if self._waiting and not self._members:
            self._share_beginning()
        while self._waiting and len(self._members) < self.n_sequence:
            n_cell = self._n_cell(self._waiting[0])
            if self._members and self._n_taken + n_cell > self._context.n_context:
                return
            self._join(self._waiting.pop(0), n_cell)

    def _open(self, n: int) -> Iterator[GroupAnswer]:
        """Render and tokenise requests until n of them wait."""
        while self._requests is not None and len(self._waiting) < n:
            try:
                request = next(self._requests)
            except StopIteration:
                self._requests = None
                return
            if request is None:  # none for now
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
            self._waiting.append(_Member(request, answer, self._reading(request, answer.partial)))

    def _reading(self, request: Request, partial: PartialAnswer) -> Reading | None:
        if request.listener is None:
            return None
        with engine_errors():
            return Reading(self._open_reader(partial.rendered), request.listener.delta, partial)

    @property
    def _n_taken(self) -> int:
        """The cells of the context that are reserved."""
        return len(self._shared) + sum(member.n_cell for member in self._members)

    @property
    def _n_all(self) -> int:
        """The cells that one request may have."""
        return self._context.n_context - len(self._shared)

    def _n_cell(self, member: _Member) -> int:
        """Return the cells that a request needs at first. Every one may have the whole context."""
        n_all, n_prompt = self._n_all, len(member.answer.tokens)
        if (most := n_seen(self.attends)) is not None:
            n_all = min(n_all, most)
        if member.request.max_tokens < 0:
            return min(max(n_all // self.n_sequence, n_prompt + 1), n_all)
        left = member.request.max_tokens - member.answer.n_token
        return min(n_prompt + left, n_all)

    def _join(self, member: _Member, n_cell: int) -> None:
        self._drop_idle(n_cell, but=member.answer.tokens)
        member.prompt, member.n_cell = list(member.answer.tokens), n_cell
        member.number = self._passes.next_sequence()
        member.sequence, member.n_done = self._place(member.prompt)
        if (keeping := self._passes.keeping) is not None:
            prompt, place = member.prompt[:-1], (n_cell, member.sequence)
            member.n_done = keeping.restore(prompt, member.n_done, *place)
        if not member.answer.n_token:
            member.n_reused = member.n_done
            stats = self._passes.meter.statistics
            stats.n_prompt += len(member.prompt)
            stats.n_reused += member.n_done
        self._members.append(member)

    def _drop_idle(self, n_cell: int, but: Sequence[int] = ()) -> None:
        """Forget idle sequences until there are free cells; last the one that begins like `but`."""
        room = self._context.n_context - self._n_taken - n_cell
        like = max(self._idle, key=lambda s: n_equal(self._idle[s], but), default=-1)
        for sequence in sorted(self._idle, key=lambda s: s == like):
            if sum(map(len, self._idle.values())) <= room:
                return
            self._context.forget_from(0, sequence)
            del self._idle[sequence]

    def _place(self, prompt: list[int]) -> tuple[int, int]:
        """Return a sequence for a prompt, and how many of its tokens it already holds."""
        whole = [member for member in self._members if not member.n_gone]
        held = {member.sequence: member.computed for member in whole} | self._idle
        if self._shared:
            held[self.n_sequence] = self._shared
        equal = {s: n_equal(tokens, prompt[:-1]) for s, tokens in held.items()}
        if not self._context.shares:
            equal = {}
        elif self._context.cuts_batches:  # a state cannot go back, only on
            equal = {s: n for s, n in equal.items() if s in self._idle and n == len(held[s])}
        source = max(equal, key=lambda s: equal[s], default=-1)
        n = equal.get(source, 0)
        if source in self._idle and n == len(self._idle[source]):
            del self._idle[source]
            return source, n
        taken = {member.sequence for member in self._members}
        unused = (s for s in range(self.n_sequence) if s not in taken and s not in self._idle)
        target = next(unused, -1)
        if target < 0:
            target = next(iter(self._idle))
            del self._idle[target]
        if target == source:
            self._context.forget_from(n, target)
            return target, n
        self._context.forget_from(0, target)
        if n < SHARED_TOKENS_MIN:
            return target, 0
        self._context.copy_sequence(source, target, n)
        return target, n

    def _share_beginning(self) -> None:
        """Compute the beginning that the waiting prompts share, once for all of them."""
        if not self._context.shares:
            return
        prompts = [member.answer.tokens for member in self._waiting]
        n = min(n_equal(prompts[0], prompt[:-1]) for prompt in prompts)
        kept = n_equal(self._shared, prompts[0])
        if kept == len(self._shared) >= SHARED_TOKENS_MIN:
            return  # it serves these, too
        self._context.forget_from(0, self.n_sequence)
        self._shared = []
        if len(prompts) < 2 or n < SHARED_TOKENS_MIN or self._context.cuts_batches:
            return
        self._drop_idle(n, but=prompts[0])
        found = {s: min(n_equal(tokens, prompts[0]), n) for s, tokens in self._idle.items()}
        source = max(found, key=lambda s: found[s], default=-1)
        n_done = found.get(source, 0)
        if n_done:
            self._context.copy_sequence(source, self.n_sequence, n_done)
        number, step = self._passes.next_sequence(), self._context.n_ubatch
        for begin in range(n_done, n, step):
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
        for member in self._members:
            self._drop_middle(member)
        for i, member in enumerate(owners):
            if rows[i].has_logits and member.n_done >= len(member.prompt):
                member.next = member.answer.sample(i)
        for member in self._members:
            if (listener := member.request.listener) is not None and not member.answer.n_token:
                if member.n_done >= len(member.prompt):
                    listener.began(member.answer.partial.n_prompt, member.n_reused)
                else:
                    listener.prefilled(member.n_done, len(member.prompt))
        return True

    def _drop_middle(self, member: _Member) -> None:
        """Forget what a token of this member no longer sees. The others keep their positions."""
        n_first, n_last = self.attends
        begin, end = n_first + member.n_gone, member.n_done - n_last
        if n_last and begin < end:
            self._context.forget(member.sequence, begin, end)
            member.n_gone += end - begin

    def _rows(self) -> tuple[list[Row], list[_Member]]:
        """Return the rows of the next pass and the member of each. Those with logits come last."""
        if not self._context.shares:
            return self._rows_of_streams()
        running = [m for m in self._members if m.n_done >= len(m.prompt)]
        fresh = [m for m in self._members if m.n_done < len(m.prompt)]
        if fresh and self._context.cuts_batches:
            running, fresh = [], fresh[:1]
        room = self._context.n_ubatch - len(running)
        rows: list[tuple[Row, _Member]] = []
        last: list[tuple[Row, _Member]] = []
        for member in fresh:
            n = min(len(member.prompt) - member.n_done, room, self.attends[1] or room)
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

    def _rows_of_streams(self) -> tuple[list[Row], list[_Member]]:
        """Return as many rows of each of some sequences that follow each other.

        First pieces of the prompts but for their last tokens, then a row of every member.
        """
        members = sorted(self._members, key=lambda m: m.sequence)
        left = [max(len(m.prompt) - 1 - m.n_done, 0) for m in members]
        begin = next((i for i, n in enumerate(left) if n), 0)
        end = next((i for i in range(begin, len(left)) if not left[i]), len(left))
        if begin < end:
            members = members[begin:end][: self._context.n_ubatch]
            n = min(self._context.n_ubatch // len(members), *left[begin : begin + len(members)])
            owners = [m for m in members for _ in range(n)]
            places = [(m, i) for m in members for i in range(m.n_done, m.n_done + n)]
            rows = [Row(m.prompt[i], i, m.sequence, has_logits=False) for m, i in places]
            rows[-1] = replace(rows[-1], has_logits=True)  # a pass has logits; nobody reads these
            return rows, owners
        tokens = [m.prompt[-1] if m.n_done < len(m.prompt) else m.next for m in members]
        return [
            Row(t, m.n_done, m.sequence, True) for t, m in zip(tokens, members, strict=True)
        ], members

    def _end_members(self) -> Iterator[GroupAnswer]:
        """Add the tokens that were chosen. Yield the answers that have ended."""
        for member in list(self._members):
            if member.n_done >= len(member.prompt):
                self._add(member)
            listener = member.request.listener
            if member.answer.has_ended or (listener is not None and listener.is_gone):
                self._leave(member, keeps=self.keeps)
                yield self._ended(member)
        for member in list(self._members):  # in the order in which they joined
            is_full = member.n_done - member.n_gone >= member.n_cell
            is_full = is_full or member.n_done >= self._context.n_context
            if member in self._members and is_full and not self._grow(member):
                member.answer.finish_reason = "context"
                self._pass_on(member, member.answer.end(member.next))
                self._leave(member, keeps=self.keeps)
                yield self._ended(member)

    def _add(self, member: _Member) -> None:
        """Add the token that was chosen to an answer."""
        answer, stats = member.answer, self._passes.meter.statistics
        before = answer.n_token
        with engine_errors():
            self._pass_on(member, answer.add(member.next, member.request.max_tokens))
        stats.n_token += answer.n_token - before

    def _pass_on(self, member: _Member, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            member.pieces.append(piece)
            if (listener := member.request.listener) is not None:
                listener.wrote(piece)
            if member.reading is not None:
                member.reading.feed(piece.text)

    def _grow(self, member: _Member) -> bool:
        """Reserve more cells for an answer. Return False where it has the whole context.

        Where none is free, those who joined last wait until there is room again.
        """
        if member.n_done >= self._context.n_context:
            return False
        if member.n_cell >= self._n_all and len(self._members) == 1:
            return False
        while (n_free := self._context.n_context - self._n_taken) < 1:
            newest = self._members[-1]
            self._leave(newest, keeps=False)
            self._waiting.insert(0, newest)
            if newest is member:
                return True
        n = min(max(self._context.n_context // self.n_sequence, 1), n_free)
        self._drop_idle(n)
        member.n_cell += n
        return True

    def _leave(self, member: _Member, *, keeps: bool) -> None:
        """Take a member from the group; its tokens stay in the context if `keeps`."""
        self._members.remove(member)
        if not self._context.shares:
            self._close_gap(member)
            return
        member.n_gone, n_gone = 0, member.n_gone
        if keeps and not n_gone:
            self._idle[member.sequence] = member.computed
        else:
            self._context.forget_from(0, member.sequence)

    def _close_gap(self, member: _Member) -> None:
        """Let the last stream take the place of one that has left: streams follow each other."""
        last = max(self._members, key=lambda m: m.sequence, default=member)
        gone = member.sequence
        if last.sequence > gone:
            self._context.forget_from(0, gone)
            self._context.copy_sequence(last.sequence, gone, last.n_done)
            last.sequence, gone = gone, last.sequence
        self._context.forget_from(0, gone)

    def _ended(self, member: _Member) -> GroupAnswer:
        answer, rendered = member.answer, member.answer.partial.rendered
        self.n_ended += 1
        rest = answer.rest()
        raw = "".join(answer.raw)[sum(len(piece.raw) for piece in member.pieces) :]
        if rest or raw:  # what was held back, and the token that ended the answer
            self._pass_on(member, [Piece(-1, rest, raw)])
        if member.reading is not None:
            member.close()
            text, fault = member.reading.shown, member.reading.fault
            if fault is not None:
                return GroupAnswer(member.request, error=str(fault))
        else:
            text = self._read_whole(rendered, "".join(piece.text for piece in member.pieces))
        member.close()
        reason = answer.finish_reason
        return GroupAnswer(
            member.request,
            text,
            tuple(member.pieces),
            "tool_calls" if reason == "stop" and text.tool_calls else reason,
            answer.stop_text,
            answer.partial.n_prompt,
            answer.n_token,
            member.n_reused,
        )

    def _read_whole(self, rendered: Any, written: str) -> AnswerText:
        """Split the text of a whole answer."""
        with engine_errors():
            reader = self._open_reader(rendered)
            reader.feed(written)
            reader.finish()
        shown: AnswerText = reader.shown
        return shown


def n_seen(attends: tuple[int, int]) -> int | None:
    """Return the cells that a request with sparse attention needs at most; None if it sees all.

    A piece of a prompt is no longer than what is seen behind it.
    """
    n_first, n_last = attends
    return n_first + 2 * n_last if n_last else None
