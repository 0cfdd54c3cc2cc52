"""A group of requests, which are computed jointly: every pass has tokens of all of them.

A pass reads each expert once for all tokens, so several sequences cost little more than one where
experts have to be read (Klotski, section 5). New requests join while others are decoded: a pass has
the next token of every running answer, and pieces of the prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.answer import PartialAnswer
from backend.engine.error import engine_errors
from backend.engine.passes import Passes
from backend.engine.scheduler import Limits, Scheduler
from backend.engine.sequence import Sequence
from backend.llama.row import Row
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer, Request

if TYPE_CHECKING:
    from backend.llama.api import Context


class Group:
    """Answers requests jointly. Use from the engine's thread.

    n_sequence: requests that run at once. n_ended: answers so far. keeps: the context keeps what it
    holds, for later requests that begin in the same way. attends: as of Limits. urgent: asked
    before every pass for a request that cannot wait for room. on_unfinished: receives an answer
    that precedes and can be continued.
    """

    def __init__(
        self,
        passes: Passes,
        context: Context,
        requests: Iterable[Request | None],
        open_sequence: Callable[[Request], Sequence | None],
        open_reader: Callable[[Any], Any],
        *,
        n_sequence: int,
        attends: tuple[int, int] = (0, 0),
    ) -> None:
        self.n_ended = 0
        self.n_decoded = 0
        """Tokens that the last pass gave; 0 if it also read prompts."""
        self.n_drafted = self.n_right = 0
        """Tokens of the last pass that were guessed, and those that were right."""
        self.urgent: Callable[[], Request | None] = lambda: None
        self.on_unfinished: Callable[[str, PartialAnswer], None] | None = None
        self.keeps = False
        self.on_pass: Callable[[Group], None] | None = None
        self._passes, self._context = passes, context
        self._requests: Iterator[Request | None] | None = iter(requests)
        self._open_sequence, self._open_reader = open_sequence, open_reader
        limits = Limits(
            n_sequence, context.n_context, context.n_longest, context.n_ubatch,
            context.shares, context.cuts_batches, attends, context.n_output,
        )  # fmt: skip
        self._scheduler: Scheduler[Sequence] = Scheduler(limits, context)
        self._owned: Sequence | None = None  # the last one with an owner
        self._n_cleared = 0  # Passes.n_cleared, when the context was known
        self._last_s = 0.0  # when the last pass was computed
        self._began_s = 0.0  # when the group began, or the last request that precedes joined it

    @property
    def n_running(self) -> int:
        """The requests that are being answered."""
        return len(self._scheduler.members)

    @property
    def n_token(self) -> int:
        """The tokens of all answers so far."""
        return self._passes.meter.statistics.n_token

    @property
    def _all(self) -> list[Sequence]:
        """Those who are answered or wait for room."""
        return self._scheduler.members + self._scheduler.waiting

    def answers(self) -> Iterator[GroupAnswer]:
        """Yield every answer as it ends. Raises EngineError."""
        passes, scheduler = self._passes, self._scheduler
        if self.keeps:
            scheduler.idle = passes.take_sequences()
        else:
            passes.forget_all()
        self._began_s = self._last_s = time.perf_counter()
        self._n_cleared = passes.n_cleared
        try:
            while True:
                n_known = self.n_ended + len(self._all)
                yield from self._admit_urgent()
                yield from self._admit()
                if self.n_ended + len(self._all) != n_known:
                    scheduler.precedence.disturb()
                if not scheduler.members:
                    break
                n_ended, stats = self.n_ended, passes.meter.statistics
                is_first, is_computed = stats.n_token == 0, False
                if not passes.is_stopped:
                    with engine_errors():
                        is_computed = self._compute(self._last_s)
                if not is_computed:  # all were cancelled, and others may have arrived
                    self._follow_clear()
                    yield from self._end_members()
                    if self.n_ended == n_ended:
                        break
                    continue
                if is_first:
                    stats.ttft_s = time.perf_counter() - self._began_s
                yield from self._end_members()
                stats.tokens_per_s = stats.n_token / (time.perf_counter() - self._began_s)
                if self.on_pass is not None:
                    self.on_pass(self)
            for member in self._all:
                self._release(member)
                yield self._ended(member)  # as far as it was written
        finally:
            is_open = self._context.is_open
            for member in self._all:
                if is_open:
                    self._release(member)
                self._passes.leave(member.request.handle)
                member.close()
            if is_open and self.keeps and passes.n_cleared == self._n_cleared:
                self._context.forget_from(0, scheduler.limits.n_sequence)
                passes.keep_sequences(scheduler.idle, self._kept_sequence())
            elif is_open:
                passes.forget_all()

    def _follow_clear(self) -> None:
        """Let all begin again where a pass that was not completed has emptied the context."""
        if self._passes.n_cleared != self._n_cleared:
            self._n_cleared = self._passes.n_cleared
            self._scheduler.begin_again()

    def _release(self, member: Sequence) -> None:
        """Take a request from the group, whether it waits or not."""
        if member in self._scheduler.members:
            self._scheduler.leave(member, keeps=self.keeps)
        else:
            self._scheduler.waiting.remove(member)

    def _kept_sequence(self) -> int:
        """Return the sequence whose state the drive shall keep."""
        keeping, owned = self._passes.keeping, self._owned
        if keeping is None or owned is None:
            return 0
        is_held = self._scheduler.idle.get(owned.place) == owned.computed
        keeping.begin(owned.request.owner if is_held else "")
        return owned.place if is_held else 0

    # New requests.

    def _admit_urgent(self) -> Iterator[GroupAnswer]:
        """Take requests that precede others, which make room. Yield as _admit()."""
        while self._context.shares and (request := self.urgent()) is not None:
            member = yield from self._open_one(request)
            if member is None:
                continue
            if not member.precedes:
                self._scheduler.waiting.append(member)
                continue
            self._scheduler.precede(member, keeps=self.keeps)
            self._joined(member)

    def _admit(self) -> Iterator[GroupAnswer]:
        """Take requests for which there is room. Yield answers to those that cannot be answered."""
        scheduler = self._scheduler
        if not (n := scheduler.n_wanted()):
            return
        yield from self._open(n)
        tokens, n_done = scheduler.beginning()
        if tokens and not self._compute_shared(tokens, n_done):
            self._follow_clear()
        while (member := scheduler.next()) is not None:
            self._joined(member)

    def _open(self, n: int) -> Iterator[GroupAnswer]:
        """Render and tokenise requests until n of them wait."""
        waiting = self._scheduler.waiting
        while self._requests is not None and len(waiting) < n:
            try:
                request = next(self._requests)
            except StopIteration:
                self._requests = None
                return
            if request is None:  # none for now
                return
            member = yield from self._open_one(request)
            if member is not None:
                waiting.append(member)
            if self._passes.is_stopped:
                return

    def _open_one(self, request: Request) -> Generator[GroupAnswer, None, Sequence | None]:
        """Render and tokenise a request. Return None if it cannot be answered, or was stopped."""
        member, fault = None, ""
        self._passes.join(request.handle)
        try:
            member = self._open_sequence(request)
        except UntrustedError:
            raise
        except EngineError as error:
            fault = str(error)
        finally:
            if member is None:
                self._passes.leave(request.handle)
        if member is not None:
            member.begin(self._open_reader)
            return member
        self.n_ended += 1
        yield GroupAnswer(request, finish_reason="" if fault else "cancelled", error=fault)
        return None

    def _joined(self, member: Sequence) -> None:
        """Number a request that has joined, and restore its beginning from the drive."""
        passes, keeping, owner = self._passes, self._passes.keeping, member.request.owner
        if member.precedes and member.number < 0:  # for the first time
            passes.begin_costs()
            self._began_s = time.perf_counter()
        member.number = passes.next_sequence()
        if keeping is not None:
            place = member.n_cell, member.place
            member.n_done = keeping.restore(member.tokens[:-1], member.n_done, *place)
        n_unpaid = self._scheduler.unpaid()
        if not member.n_token:
            member.n_reused = member.n_done - n_unpaid
            stats = passes.meter.statistics
            stats.n_prompt += member.n_wanted
            stats.n_reused += member.n_reused
            member.request.handle.joined(member.n_wanted, member.n_reused)
        if keeping is None:
            return
        if member.precedes and owner:
            self._owned = member
            keeping.begin(owner)
        elif not member.precedes and self._owned is None:
            keeping.begin(owner)

    # Passes.

    def _compute_shared(self, tokens: list[int], n_done: int) -> bool:
        """Compute a beginning, once for all that wait. Return False when stopped."""
        limits, number = self._scheduler.limits, self._passes.next_sequence()
        for begin in range(n_done, len(tokens), limits.n_ubatch):
            end = min(begin + limits.n_ubatch, len(tokens))
            rows = [
                Row(tokens[i], i, limits.n_sequence, has_logits=i == end - 1)
                for i in range(begin, end)
            ]
            numbers, now_s = [number] * len(rows), time.perf_counter()
            with engine_errors():
                if not self._passes.compute_rows(rows, numbers, now_s, is_token=False):
                    return False
        self._scheduler.share(tokens, n_done)
        return True

    def _compute(self, last_s: float) -> bool:
        """Compute a pass, and choose tokens. Return False when stopped."""
        scheduler = self._scheduler
        passes = self._passes
        rows, owners = scheduler.rows(self._guess if passes.may_draft else None)
        drafted = next((member for member in owners if member.drafted), None)
        self.n_drafted, self.n_right = len(drafted.drafted) if drafted is not None else 0, 0
        n_of_prompt = sum([m.n_unread > 0 for m in owners])
        is_token = not n_of_prompt
        numbers = [member.number for member in owners]
        adapts = is_token and len(rows) == 1 and owners[0].precedes
        if not passes.compute_rows(rows, numbers, last_s, is_token=is_token, adapts=adapts):
            return False
        took_s = time.perf_counter() - last_s
        self._last_s = last_s + took_s  # a token's time includes choosing it
        own = [m for m in scheduler.members if m.precedes]
        is_answered = bool(own) and not any(m.n_unread for m in own)
        last = scheduler.computed(owners)
        self._drop_middles()
        for member in dict.fromkeys(owners):
            if member.n_token:
                continue
            handle = member.request.handle
            if member.n_unread:
                handle.prefilled(member.n_done, member.n_wanted)
            else:
                handle.began(member.partial.n_prompt, member.n_reused)
        for i, member in last:
            self._choose(member, i)
        self.n_decoded = len(rows) - self.n_drafted + self.n_right if is_token else 0
        if is_token and passes.may_draft:
            width = passes.width_beside(len(owners) - self.n_drafted)
            n_equal = 0 if drafted is None else drafted.n_equal
            width.observe(n_equal, self.n_drafted, self.n_right, took_s)
        if is_answered:
            scheduler.observe(owners, n_of_prompt, took_s)
        return True

    def _guess(self, member: Sequence, n_running: int, n_most: int) -> list[int]:
        return member.guess(self._passes.width_beside(n_running), n_most)

    def _choose(self, member: Sequence, row: int) -> None:
        """Choose the next token of an answer, and those behind it that were guessed."""
        n_before, drafted = member.n_token, member.drafted
        for _ in member.add(token := member.sample(row)):
            pass
        if drafted:
            n_right = 0
            while n_right < len(drafted) and drafted[n_right] == token and not member.has_ended:
                n_right += 1
                for _ in member.add(token := member.sample(row + n_right)):
                    pass
                self._passes.meter.add_accepted()
            self.n_right = n_right
            self._passes.meter.statistics.n_drafted += len(drafted)
            self._scheduler.keep(member, n_right)
        self._passes.meter.statistics.n_token += member.n_token - n_before

    def _drop_middles(self) -> None:
        """Forget what tokens no longer see. The others keep their positions."""
        n_first, n_last = self._scheduler.limits.attends
        for member in self._scheduler.members if n_last else ():
            begin, end = n_first + member.n_gone, member.n_done - n_last
            if begin < end:
                self._context.forget(member.place, begin, end)
                member.n_gone += end - begin

    def _end_members(self) -> Iterator[GroupAnswer]:
        """Yield the answers that have ended."""
        scheduler = self._scheduler
        for member in self._all:
            if member.has_ended or member.request.handle.is_cancelled:
                self._release(member)
                yield self._ended(member)
        for member in list(scheduler.members):  # in the order in which they joined
            if member in scheduler.members and scheduler.is_full(member):
                for _ in member.end("context"):
                    pass
                scheduler.leave(member, keeps=self.keeps)
                yield self._ended(member)

    def _ended(self, member: Sequence) -> GroupAnswer:
        self._passes.leave(member.request.handle)  # before anybody hears of the end
        self.n_ended += 1
        given, unfinished = member.finish(), None
        if member.precedes and self.on_unfinished is not None and not given.error:
            unfinished = member.so_far(given.text)
        if unfinished is not None and self.on_unfinished is not None:
            self.on_unfinished(member.request.owner, unfinished)
        else:
            member.close()
        return given
