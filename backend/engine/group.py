"""A group of requests, which are computed jointly: every pass has tokens of all of them.

A pass reads each expert once for all tokens, so several sequences cost little more than one where
experts have to be read (Klotski, section 5). New requests join while others are decoded: a pass has
the next token of every running answer, and pieces of the prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backend.engine.answer import Answer, PartialAnswer, Piece, Reading
from backend.engine.error import engine_errors
from backend.engine.kept_states import n_equal
from backend.engine.passes import Passes
from backend.engine.precedence import Precedence
from backend.llama.api import Row
from backend.protocol.chat import AnswerText
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer, Handle, Request

if TYPE_CHECKING:
    from backend.llama.api import Context

SHARED_TOKENS_MIN = 16
"""Shorter beginnings are computed for every prompt."""


@dataclass(eq=False)
class _Member:
    """A request that is being answered, or waits for room.

    reading: splits the answer for its handle. sequence: its number in the context. number: its
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
    urgent: asked before every pass for a request that cannot wait for room. on_unfinished: receives
    an answer that precedes and can be continued.
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
        self.n_decoded = 0
        """Tokens that the last pass gave; 0 if it also read prompts."""
        self.urgent: Callable[[], Request | None] = lambda: None
        self.on_unfinished: Callable[[PartialAnswer], None] | None = None
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
        self._n_unpaid = 0  # of them, those computed that no request counts as its own yet
        self._precedence = Precedence()
        self._owned: _Member | None = None  # the last one with an owner
        self._n_cleared = 0  # Passes.n_cleared, when the context was known
        self._began_s = 0.0  # when the group began, or the last request that precedes joined it

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
        self._began_s = last_s = time.perf_counter()
        self._n_cleared = passes.n_cleared
        try:
            while True:
                n_known = self._n_known
                yield from self._admit_urgent()
                yield from self._admit()
                if self._n_known != n_known:
                    self._precedence.disturb()
                if not self._members:
                    break
                chosen, n_ended = None, self.n_ended
                if not passes.is_stopped:
                    with engine_errors():
                        chosen = self._compute(last_s)
                if chosen is None:  # all were cancelled, and others may have arrived
                    self._follow_clear()
                    yield from self._end_members(())
                    if self.n_ended == n_ended:
                        break
                    continue
                last_s = time.perf_counter()
                stats = passes.meter.statistics
                if stats.n_token == 0:
                    stats.ttft_s = last_s - self._began_s
                yield from self._end_members(chosen)
                stats.tokens_per_s = stats.n_token / (last_s - self._began_s)
                if self.on_pass is not None:
                    self.on_pass(self)
            for member in self._members + self._waiting:
                self._release(member, keeps=self.keeps)
                yield self._ended(member)  # as far as it was written
        finally:
            is_open = passes.loaded.context is self._context
            for member in self._members + self._waiting:
                if is_open:
                    self._release(member, keeps=self.keeps)
                self._close(member)
            if not is_open:
                self._members, self._waiting = [], []
            elif self.keeps and passes.n_cleared == self._n_cleared:
                self._context.forget_from(0, self.n_sequence)
                passes.keep_sequences(self._idle, self._kept_sequence())
            else:
                passes.forget_all()

    def _follow_clear(self) -> None:
        """Let all begin again where a pass that was not completed has emptied the context."""
        if self._passes.n_cleared == self._n_cleared:
            return
        self._n_cleared = self._passes.n_cleared
        self._idle, self._shared, self._n_unpaid = {}, [], 0
        for member in self._members:
            member.n_done = member.n_gone = 0
        self._waiting, self._members = self._members + self._waiting, []

    def _close(self, member: _Member) -> None:
        """Forget a request that is not answered."""
        self._passes.leave(member.request.handle)
        member.close()

    def _release(self, member: _Member, *, keeps: bool) -> None:
        """Take a request from the group, whether it waits or not."""
        if member in self._members:
            self._leave(member, keeps=keeps)
        else:
            self._waiting.remove(member)

    def _kept_sequence(self) -> int:
        """Return the sequence whose state the drive shall keep."""
        keeping, owned = self._passes.keeping, self._owned
        if keeping is None or owned is None:
            return 0
        is_held = self._idle.get(owned.sequence) == owned.computed
        keeping.begin(owned.request.owner if is_held else "")
        return owned.sequence if is_held else 0

    # New requests.

    @property
    def _n_known(self) -> int:
        """The requests so far."""
        return len(self._members) + len(self._waiting) + self.n_ended

    def _admit_urgent(self) -> Iterator[GroupAnswer]:
        """Take requests that precede others, which make room. Yield as _admit()."""
        while self._context.shares and (request := self.urgent()) is not None:
            member = yield from self._open_one(request)
            if member is None:
                continue
            if not request.precedes:
                self._waiting.append(member)
                continue
            n_cell = self._n_cell(member)
            while self._members and (
                len(self._members) >= self.n_sequence
                or self._n_taken + n_cell > self._context.n_context
            ):
                newest = self._members[-1]
                self._leave(newest, keeps=self.keeps)
                self._waiting.insert(0, newest)
            if self._n_taken + n_cell > self._context.n_context:
                self._context.forget_from(0, self.n_sequence)
                self._shared = []
            self._join(member, self._n_cell(member))

    def _admit(self) -> Iterator[GroupAnswer]:
        """Take requests for which there is room. Yield answers to those that cannot be answered.

        A new prompt needs nearly all experts, so several are taken at once.
        """
        if any(m.request.precedes and m.n_done < len(m.prompt) for m in self._members):
            return  # its prompt may begin as theirs, and is computed first
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
            member = yield from self._open_one(request)
            if member is not None:
                self._waiting.append(member)
            if self._passes.is_stopped:
                return

    def _open_one(self, request: Request) -> Generator[GroupAnswer, None, _Member | None]:
        """Render and tokenise a request. Return None if it cannot be answered, or was stopped."""
        answer, fault = None, ""
        self._passes.join(request.handle)
        try:
            answer = self._open_answer(request)
        except UntrustedError:
            raise
        except EngineError as error:
            fault = str(error)
        finally:
            if answer is None:
                self._passes.leave(request.handle)
        if answer is not None:
            return _Member(request, answer, self._reading(request.handle, answer.partial))
        self.n_ended += 1
        if fault:
            yield GroupAnswer(request, error=fault)
        else:
            yield GroupAnswer(request, finish_reason="cancelled")
        return None

    def _reading(self, handle: Handle, partial: PartialAnswer) -> Reading | None:
        if partial.rendered is None:
            return None  # a raw answer is its pieces
        if partial.rendered.fitted:
            handle.fitted(partial.rendered.fitted)
        if not handle.splits:
            return None
        with engine_errors():
            return Reading(self._open_reader(partial.rendered), handle.delta, partial)

    @property
    def _n_taken(self) -> int:
        """The cells of the context that are reserved."""
        return len(self._shared) + sum(member.n_cell for member in self._members)

    @property
    def _n_all(self) -> int:
        """The cells that one request may have."""
        return min(self._context.n_context - len(self._shared), self._context.n_longest)

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
        if member.request.precedes and member.number < 0:  # for the first time
            self._passes.begin_costs()
            self._began_s = time.perf_counter()
        self._drop_idle(n_cell, but=member.answer.tokens)
        member.prompt, member.n_cell = list(member.answer.tokens), n_cell
        member.number = self._passes.next_sequence()
        member.sequence, member.n_done = self._place(member.prompt)
        keeping, owner = self._passes.keeping, member.request.owner
        if keeping is not None:
            prompt, place = member.prompt[:-1], (n_cell, member.sequence)
            member.n_done = keeping.restore(prompt, member.n_done, *place)
        if not member.answer.n_token:
            member.n_reused = member.n_done - self._n_unpaid
            stats = self._passes.meter.statistics
            stats.n_prompt += len(member.prompt)
            stats.n_reused += member.n_reused
            member.request.handle.joined(len(member.prompt), member.n_reused)
        self._n_unpaid = 0
        if not member.request.precedes:
            if keeping is not None and self._owned is None:
                keeping.begin(owner)
            self._members.append(member)
            return
        self._members.insert(0, member)  # the last ones make room
        self._precedence.begin()
        if keeping is not None and owner:
            self._owned = member
            keeping.begin(owner)

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
                    self._follow_clear()
                    return
        self._shared, self._n_unpaid = prompts[0][:n], n - n_done

    # Passes.

    def _compute(self, last_s: float) -> list[_Member] | None:
        """Compute a pass. Return those whose next tokens were chosen, or None when stopped."""
        rows, owners = self._rows()
        is_token = all(member.n_done >= len(member.prompt) for member in owners)
        numbers = [member.number for member in owners]
        adapts = is_token and len(rows) == 1 and owners[0].request.precedes
        if not self._passes.compute_rows(rows, numbers, last_s, is_token=is_token, adapts=adapts):
            return None
        self.n_decoded = len(rows) if is_token else 0
        own = [m for m in self._members if m.request.precedes]
        is_answered = bool(own) and all(m.n_done >= len(m.prompt) for m in own)
        others = [m for m in owners if not m.request.precedes]
        n_of_prompt = sum(m.n_done < len(m.prompt) for m in others)
        for member in owners:
            member.n_done += 1
        for member in self._members:
            self._drop_middle(member)
        chosen = []
        for i, member in enumerate(owners):
            if rows[i].has_logits and member.n_done >= len(member.prompt):
                member.next = member.answer.sample(i)
                chosen.append(member)
        for member in dict.fromkeys(owners):
            handle = member.request.handle
            if member.answer.n_token:
                continue
            if member.n_done >= len(member.prompt):
                handle.began(member.answer.partial.n_prompt, member.n_reused)
            else:
                handle.prefilled(member.n_done, len(member.prompt))
        if is_answered:
            n_own, took_s = len(owners) - len(others), time.perf_counter() - last_s
            self._precedence.observe(n_own, len(others), n_of_prompt, took_s)
        return chosen

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
        running, fresh, n_most = self._present()
        if fresh and self._context.cuts_batches:
            running, fresh = [], fresh[:1]
        room = min(self._context.n_ubatch - len(running), n_most)
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

    def _present(self) -> tuple[list[_Member], list[_Member], int]:
        """Return who takes part in the next pass: running answers, prompts, tokens of prompts."""
        running = [m for m in self._members if m.n_done >= len(m.prompt)]
        fresh = [m for m in self._members if m.n_done < len(m.prompt)]
        n_most = self._context.n_ubatch
        own = [m for m in self._members if m.request.precedes]
        if not own or len(own) == len(self._members):
            return running, fresh, n_most
        others = [m for m in running if not m.request.precedes]
        if own_fresh := [m for m in fresh if m.request.precedes]:
            n_own = min(sum(len(m.prompt) - m.n_done for m in own_fresh), n_most)
            beside = others[: self._precedence.n_beside_prompt(n_own)]
            return [m for m in own if m not in own_fresh] + beside, own_fresh, n_most
        fresh = fresh[:1]
        n_piece = min([self._precedence.n_piece] + [len(m.prompt) - m.n_done for m in fresh])
        n_other = len(others) + n_piece * len(fresh)
        if n_other and self._precedence.allows(n_other):
            return own + others, fresh, n_piece
        return own, [], n_most

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

    def _end_members(self, chosen: Iterable[_Member]) -> Iterator[GroupAnswer]:
        """Add the tokens that were chosen. Yield the answers that have ended."""
        for member in chosen:
            self._add(member)
        for member in self._members + self._waiting:
            if member.answer.has_ended or member.request.handle.is_cancelled:
                self._release(member, keeps=self.keeps)
                yield self._ended(member)
        for member in list(self._members):  # in the order in which they joined
            is_full = member.n_done - member.n_gone >= member.n_cell
            is_full = is_full or member.n_done >= self._context.n_longest
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
            member.request.handle.wrote(piece)
            if member.reading is not None:
                member.reading.feed(piece.text)

    def _grow(self, member: _Member) -> bool:
        """Reserve more cells for an answer. Return False where it has the whole context.

        Where none is free, those who joined last wait until there is room again.
        """
        if member.n_done >= self._context.n_longest:
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
        self._passes.leave(member.request.handle)  # before anybody hears of the end
        given = self._given(member)
        unfinished = None
        if member.request.precedes and self.on_unfinished is not None and not given.error:
            unfinished = member.answer.so_far(given.text)
        if unfinished is not None and self.on_unfinished is not None:
            self.on_unfinished(unfinished)
        else:
            member.close()
        return given

    def _given(self, member: _Member) -> GroupAnswer:
        answer, rendered = member.answer, member.answer.partial.rendered
        self.n_ended += 1
        rest = answer.rest()
        raw = "".join(answer.raw)[sum(len(piece.raw) for piece in member.pieces) :]
        if rest or raw:  # what was held back, and the token that ended the answer
            self._pass_on(member, [Piece(-1, rest, raw)])
        if member.reading is not None:
            member.reading.close()
            text, fault = member.reading.shown, member.reading.fault
            if fault is not None:
                return GroupAnswer(member.request, error=str(fault))
        else:
            text = self._read_whole(rendered, "".join(piece.text for piece in member.pieces))
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
