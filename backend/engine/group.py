"""The loop that produces tokens: a group of requests, each pass with tokens of all of them.

An answer alone is a group of one request. A pass reads each expert once for all tokens, so several
sequences cost little more than one where experts have to be read (Klotski, section 5). New requests
join while others are decoded: a pass has the next token of every running answer, and pieces of the
prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from backend.engine.answer import PartialAnswer
from backend.engine.error import engine_errors
from backend.engine.passes import Passes
from backend.engine.scheduler import Limits, Scheduler
from backend.engine.sequence import Sequence
from backend.llama.row import Row
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer

if TYPE_CHECKING:
    from backend.engine.prediction_layer import PredictionLayer
    from backend.llama.api import Context


class Group:
    """The requests that are being answered, and the loop over them. Use from the engine's thread.

    n_sequence: requests that run at once. keeps: the context keeps its tokens, for later requests
    that begin in the same way. attends: as of Limits. on_unfinished: receives an answer that can be
    continued.
    """

    def __init__(
        self,
        passes: Passes,
        context: Context,
        on_unfinished: Callable[[str, PartialAnswer], None],
        *,
        n_sequence: int,
        keeps: bool = True,
        attends: tuple[int, int] = (0, 0),
    ) -> None:
        self.n_decoded = 0
        """Tokens that the last pass gave; 0 if it also read prompts."""
        self.n_drafted = self.n_right = 0
        """Tokens of the last pass that were guessed, and those that were right."""
        self._passes, self._context, self._keeps = passes, context, keeps
        self._on_unfinished = on_unfinished
        limits = Limits(
            n_sequence, context.n_context, context.n_longest, context.n_ubatch,
            context.shares, context.cuts_batches, attends, context.n_output,
            context.n_back, context.holds and passes.loaded.config.holds,
            checkpoints=keeps and context.n_checkpoint > 0,
        )  # fmt: skip
        self._scheduler: Scheduler[Sequence] = Scheduler(limits, context)
        self._scheduler.images = passes.images
        if keeps:
            self._scheduler.idle = passes.take_sequences()
        else:
            passes.forget_all()
        self._urgent: list[Sequence] = []  # those who precede and have not joined
        self._is_disturbed = False  # somebody has come since the last pass
        self._was_alone = False  # sequence 0 was in use; the next request reuses its cells
        self._kept: Sequence | None = None  # the sequence that moves to another context
        self._led: Sequence | None = None  # the sequence for which the prediction layer guesses
        self._asked: Sequence | None = None  # the sequence that the layer guessed for in this pass
        # The sequence that is computed again after wrong guesses, and who observes their time.
        self._behind: tuple[Sequence, Callable[[float], None]] | None = None
        self._encoded: dict[int, NDArray[np.float32]] = {}  # images of several prompts
        self._n_cleared = passes.n_cleared  # when the context was known
        self._last_s = time.perf_counter()  # when the last pass was computed
        self._began_s = self._last_s  # when the group began, or who precedes joined it last
        self._first_s = 0.0  # when the first token after that was chosen

    @property
    def n_running(self) -> int:
        """The requests that are being answered."""
        return len(self._scheduler.members)

    @property
    def n_token(self) -> int:
        """The tokens of all answers so far."""
        return self._passes.meter.statistics.n_token

    @property
    def n_wanted(self) -> int:
        """The requests that would join the next pass, beside those that wait."""
        return max(self._scheduler.n_wanted() - self._n_waiting, 0)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is answered or waits."""
        return not (self._scheduler.members or self._n_waiting)

    @property
    def _n_waiting(self) -> int:
        return len(self._scheduler.waiting) + len(self._urgent)

    @property
    def sequences(self) -> list[Sequence]:
        """Those who are answered or wait for room."""
        return self._scheduler.members + self._urgent + self._scheduler.waiting

    def add(self, member: Sequence) -> None:
        """Let a request be answered, which has joined the passes."""
        if self.is_empty:
            self._last_s = time.perf_counter()
            if not self.n_token:
                self._began_s = self._last_s
        self._is_disturbed = True
        if member.precedes and self._context.shares:
            self._urgent.append(member)
        else:
            self._scheduler.waiting.append(member)

    def step(self) -> None:
        """Compute a pass with those for whom there is room. Raises EngineError."""
        passes, scheduler = self._passes, self._scheduler
        with engine_errors():
            if self._urgent or scheduler.waiting:
                self._admit()
            is_computed = False
            if scheduler.members and not passes.is_stopped:
                is_computed = self._compute(self._last_s)
            if not is_computed:  # all were cancelled, or none has joined
                self.n_decoded = self.n_drafted = self.n_right = 0
                scheduler.drop_guesses()
                self._follow_clear()
            self._end_members()

    def close(self, fault: BaseException | None = None) -> None:
        """End all answers, as far as they were written. fault: why they are not complete."""
        passes, scheduler = self._passes, self._scheduler
        passes.end_prefill()
        is_open = self._context.is_open
        self._follow_losses()
        for member in self.sequences:
            if is_open:
                self._release(member)
            self._end(member, fault)
        if is_open and self._keeps and passes.n_cleared == self._n_cleared:
            passes.keep_sequences(scheduler.idle, self._kept_sequence())
            scheduler.forget_shared()
        elif is_open:
            passes.forget_all()

    def _follow_clear(self) -> None:
        """Let those read again whose tokens were lost with a pass that was not completed."""
        self._follow_losses()
        if self._passes.n_cleared != self._n_cleared:
            self._n_cleared = self._passes.n_cleared
            self._scheduler.begin_again()

    def _follow_losses(self) -> None:
        """Note what passes that failed have left of the sequences."""
        left, self._passes.left = self._passes.left, {}
        for place, n in left.items():
            self._scheduler.lost(place, n)

    def _release(self, member: Sequence) -> None:
        """Take a request from the group, whether it waits or not."""
        if member in self._scheduler.members:
            self._scheduler.leave(member, keeps=self._keeps)
        elif member in self._urgent:
            self._urgent.remove(member)
        else:
            self._scheduler.waiting.remove(member)

    def _kept_sequence(self) -> int:
        """Return the sequence that another context would go on with."""
        return self._kept.place if self._kept is not None and self._is_held(self._kept) else 0

    def _is_held(self, member: Sequence) -> bool:
        """Return whether the context holds the tokens of a request that has left."""
        return self._scheduler.idle.get(member.place) == member.computed

    def _tokens_of(self, place: int) -> list[int]:
        """Return the tokens that a sequence holds now."""
        if (idle := self._scheduler.idle.get(place)) is not None:
            return idle
        of = (m for m in self._scheduler.members if m.place == place and not m.n_gone)
        return next((m.computed for m in of), [])

    # New requests.

    def _admit(self) -> None:
        """Let requests join for which there is room; those who precede have it made."""
        scheduler = self._scheduler
        if self._is_disturbed:
            self._is_disturbed = False
            scheduler.precedence.disturb()
        while self._urgent and not scheduler.waits_for_another(self._urgent[0]):
            first = self._urgent.pop(0)
            scheduler.precede(first, keeps=self._keeps)
            self._joined(first)
        if not scheduler.waiting or not scheduler.n_wanted():
            return
        tokens, n_done = scheduler.beginning()
        if n_done and self._passes.moved:
            self._passes.moved.add(scheduler.limits.n_sequence)
        if tokens and not self._compute_shared(tokens, n_done):
            self._context.forget_from(0, scheduler.limits.n_sequence)
            self._follow_clear()
        while (member := scheduler.next()) is not None:
            self._joined(member)

    def _joined(self, member: Sequence) -> None:
        """Number a request that has joined, and restore its beginning from the drive."""
        passes, keeping = self._passes, self._passes.keeping
        if member.precedes and member.number < 0:  # for the first time
            passes.begin_costs()
            self._began_s = time.perf_counter()
        member.number = 0 if self.n_running == 1 else passes.next_sequence()
        if not member.number:
            if self._was_alone:
                passes.request_began()
            self._was_alone = True
        if member.precedes or member is self._led:
            self._led = None
        if member.precedes or self._kept is None or not self._kept.precedes:
            self._kept = member
        if keeping is not None:
            keeping.begin(member.request.owner, member.place)
        if member.n_done and passes.moved:
            passes.moved.add(member.place)
        else:
            passes.moved.discard(member.place)
        if keeping is not None:
            place = self._scheduler.room(member), member.place
            member.n_done = keeping.restore(member.tokens[:-1], member.n_done, *place)
        n_unpaid = self._scheduler.unpaid()
        if not member.n_token:
            member.n_reused = member.n_done - n_unpaid
            stats = passes.meter.statistics
            stats.n_prompt += member.n_wanted
            stats.n_reused += member.n_reused
            follow = member.request.handle.follow
            follow.joined(member.n_wanted, member.n_reused)
            follow.prefilled(member.n_done)

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
            try:
                with engine_errors():
                    if not self._passes.compute_rows(rows, numbers, now_s, is_token=False):
                        return False
            except UntrustedError:
                raise
            except EngineError:  # each computes it with its own prompt, and then may fail
                return False
        self._scheduler.share(tokens, n_done)
        return True

    def _compute(self, last_s: float) -> bool:
        """Compute a pass, and choose tokens. Return False when stopped."""
        scheduler, passes = self._scheduler, self._passes
        may_draft, self._asked = passes.may_draft, None
        layer = passes.layer if may_draft else None
        if layer is not None and self._led not in scheduler.members:
            self._lead(layer)
        rows, owners = scheduler.rows(self._guess if may_draft else None)
        if not rows:
            return self._compute_image(owners[0], last_s)
        drafted = next((m for m in owners if m.drafted), None) if may_draft else None
        self.n_drafted, self.n_right = len(drafted.drafted) if drafted is not None else 0, 0
        n_of_prompt = sum([m.n_unread > 0 for m in owners])
        is_token = not n_of_prompt
        # Without numbers, all tokens are of the sequence 0.
        is_only = len(scheduler.members) == 1 and not owners[0].number and drafted is None
        numbers = () if is_only else [m.number for m in owners]
        n_adapting = len(rows) if is_token and drafted is None else 0
        if n_of_prompt:
            self._show_prompt(n_of_prompt)
        try:
            with engine_errors():
                if not passes.compute_rows(
                    rows, numbers, last_s, is_token=is_token, n_adapting=n_adapting
                ):
                    return False
        except EngineError as error:
            return self._has_failed(owners, error)
        took_s = time.perf_counter() - last_s
        self._last_s = last_s + took_s  # a token's time includes choosing it
        passes.end_prefill()
        if n_adapting == 1 and passes.keeping is not None:
            passes.keeping.note_token(owners[0].request.owner)
        if layer is not None:
            self._observe_layer(layer, rows, owners)
        own = [m for m in scheduler.members if m.precedes]
        is_answered = bool(own) and not any(m.n_unread for m in own)
        last = scheduler.computed(owners)
        if scheduler.limits.attends[1]:
            self._drop_middles()
        if n_of_prompt:
            self._tell_of_prompts(owners)
        for i, member in last:
            self._choose(member, i)
        self.n_decoded = len(rows) - self.n_drafted + self.n_right if is_token else 0
        if is_token and may_draft:
            self._observe_guess(drafted, len(owners) - self.n_drafted, took_s, layer)
        elif self._behind is not None and self._behind[0] is owners[0]:
            self._behind[1](took_s)
            self._behind = None
        if is_answered:
            scheduler.observe(owners, n_of_prompt, took_s)
        if passes.keeping is not None and not all(m.precedes for m in scheduler.members):
            passes.keeping.step_between(self._tokens_of)  # beside persons alone it soon idles
        return True

    def _compute_image(self, member: Sequence, last_s: float) -> bool:
        """Compute the next image of a prompt. Return False when stopped."""
        scheduler, image = self._scheduler, member.partial.images[member.tokens[member.n_done]]
        self.n_drafted = self.n_right = self.n_decoded = 0
        self._show_prompt(image.n_pos)
        try:
            with engine_errors():
                seen = self._encoded.get(image.token)
                seen = self._passes.encode(image) if seen is None else seen
                self._encoded[image.token] = seen
                place = member.n_done, member.place
                if not self._passes.compute_image(image, seen, *place, last_s):
                    return False
        except EngineError as error:
            return self._has_failed([member], error)
        self._passes.end_prefill()
        self._last_s = time.perf_counter()
        is_other = not member.precedes and any(m.precedes for m in scheduler.members)
        scheduler.computed_image(member)
        unread = {token for m in self.sequences for token in m.tokens[m.n_done :] if token < 0}
        self._encoded = {t: seen for t, seen in self._encoded.items() if t in unread}
        self._tell_of_prompts([member])
        if not member.n_unread:  # the prompt ends with an image
            self._choose(member, -1)
        if is_other:
            n = image.n_token
            scheduler.observe([member] * n, n, self._last_s - last_s)
        return True

    def _has_failed(self, owners: list[Sequence], error: EngineError) -> bool:
        """Let a pass be repeated, or where it failed before, let the requests of it fail.

        Return True. Raises errors after which nothing that was computed is to be trusted.
        """
        if isinstance(error, UntrustedError):
            raise error
        self._scheduler.drop_guesses()
        for member in dict.fromkeys(owners):
            if member.n_done <= member.failed_at:
                member.failure = error
            member.failed_at = member.n_done
        self.n_decoded = self.n_drafted = self.n_right = 0
        self._follow_clear()
        return True

    def _show_prompt(self, n: int) -> None:
        """Let others see, within the pass, how many of n tokens are computed that go first."""
        member = self._scheduler.members[0]
        is_shown = member.n_unread and not member.n_token
        if is_shown and (member.precedes or self.n_running == 1):
            self._passes.begin_prefill(member.n_done, n, member.n_wanted)

    @staticmethod
    def _tell_of_prompts(owners: list[Sequence]) -> None:
        """Tell handles how much of their prompts is computed."""
        for member in dict.fromkeys(owners):
            if not member.n_token:
                follow = member.request.handle.follow
                follow.prefilled(member.n_done)
                if not member.n_unread:
                    follow.began()

    def _choose(self, member: Sequence, row: int) -> None:
        """Choose the next token of an answer, and those behind it that were guessed."""
        drafted, n_right, meter = member.drafted, 0, self._passes.meter
        stats = meter.statistics
        stats.n_drafted += len(drafted)
        try:
            while True:
                token, n_before = self._chosen(member, row + n_right), member.n_token
                member.add(token)
                stats.n_token += member.n_token - n_before
                if n_right == len(drafted) or drafted[n_right] != token:
                    break
                if member.has_ended or member.request.handle.is_cancelled:
                    break
                n_right += 1
                meter.add_accepted()
        finally:
            if drafted:
                self.n_right = n_right
                self._scheduler.keep(member, n_right)

    def _chosen(self, member: Sequence, row: int) -> int:
        """Choose a token, and note the time that it took."""
        token, stats = member.sample(row), self._passes.meter.statistics
        now_s = time.perf_counter()
        if stats.n_token:
            stats.tokens_per_s = stats.n_token / (now_s - self._first_s)
        else:
            stats.ttft_s, self._first_s = now_s - self._began_s, now_s
        return token

    # Guesses.

    def _guess(self, member: Sequence, n_running: int, n_most: int) -> list[int]:
        passes = self._passes
        layer = passes.layer if member is self._led else None
        width = passes.width_beside(n_running)
        found = member.guess(width, n_most, layer, lambda: passes.is_stopped)
        if member.was_asked:
            self._asked = member
        return found

    def _lead(self, layer: PredictionLayer) -> None:
        """Let the layer guess the tokens of one answer: that of a person, or the first."""
        members = self._scheduler.members
        self._led = next((m for m in members if m.precedes), members[0])
        layer.begin(self._led.computed)

    def _observe_layer(
        self, layer: PredictionLayer, rows: list[Row], owners: list[Sequence]
    ) -> None:
        """Tell the prediction layer which tokens of its answer the pass has computed."""
        places = [i for i, member in enumerate(owners) if member is self._led]
        if not places or self._led is None:
            return
        states = self._context.states(len(rows))
        tokens = [rows[i].token for i in places]
        layer.observe(self._led.tokens, rows[places[0]].position, tokens, states[places])

    def _observe_guess(
        self, drafted: Sequence | None, n_running: int, took_s: float, layer: PredictionLayer | None
    ) -> None:
        """Learn from the time of a pass with these guesses, and from the number of right ones."""
        of, n_guessed = drafted, self.n_drafted
        if layer is not None and self._asked is not None:
            took_s -= layer.read_s  # of a text that was new to it
            if drafted is None:  # a guess that the layer was too unsure to make took time, too
                of, n_guessed = self._asked, 1
        n_equal, n_right = 0 if of is None else of.n_equal, self.n_right
        width = self._passes.width_beside(n_running)
        if of is None or not of.n_unread:
            width.observe(n_equal, n_guessed, n_right, took_s)
            return

        def observe(more_s: float) -> None:
            """Observe both passes: the second one gives a token, as one without guesses does."""
            both_s = took_s + more_s - width.single_s
            width.observe(n_equal, n_guessed, n_right, both_s)

        self._behind = of, observe

    def _drop_middles(self) -> None:
        """Forget what tokens no longer see. The others keep their positions."""
        n_first, n_last = self._scheduler.limits.attends
        for member in self._scheduler.members:
            if member.images:
                continue
            begin, end = n_first + member.n_gone, member.n_done - n_last
            if begin < end:
                self._context.forget(member.place, begin, end)
                member.n_gone += end - begin

    def _end_members(self) -> None:
        """Let those leave whose answers have ended, in the order in which they joined."""
        scheduler = self._scheduler
        for member in self.sequences:
            if member.has_ended or member.request.handle.is_cancelled or member.fault is not None:
                self._leave(member)
        for member in scheduler.members.copy():
            if member in scheduler.members and scheduler.is_full(member):
                member.end("context")
                self._leave(member)

    def _leave(self, member: Sequence) -> None:
        if not member.has_ended:
            member.end("cancelled")
        self._release(member)
        self._end(member)

    def _end(self, member: Sequence, fault: BaseException | None = None) -> None:
        """Tell the handle of an answer as it is, which nobody goes on with here."""
        handle = member.request.handle
        self._passes.leave(handle)  # before anybody hears of the end
        if self._passes.keeping is not None and self._keeps and self._is_held(member):
            self._passes.keeping.end(member.place, member.computed)
        try:
            given = member.finish(fault)
        except EngineError as error:  # its text could not be split
            given = member.given = GroupAnswer(member.request, fault=error)
        unfinished = member.so_far() if member.request.goes_on else None
        if unfinished is not None:
            self._on_unfinished(member.request.owner, unfinished)
        else:
            member.close()
        handle.ended(given)
