"""The loop that produces tokens: each pass has tokens of all requests that are answered.

A pass reads each expert once for all tokens, so several sequences cost little more than one where
experts have to be read (Klotski, section 5). New requests join while others are decoded: a pass has
the next token of every running answer, and pieces of the prompts that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.engine.answer import PartialAnswer
from backend.engine.drafts import Trial
from backend.engine.error import engine_errors
from backend.engine.loaded_model import limits_of
from backend.engine.open_answer import OpenAnswer
from backend.engine.passes import Passes
from backend.engine.scheduler import PassPlan, Scheduler
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer

if TYPE_CHECKING:
    from backend.engine.prediction_layer import PredictionLayer


class Runner:
    """Computes the passes of the requests that are answered, and chooses their tokens.

    Use from the engine's thread. Who is answered, and what the context holds, is the scheduler's.
    Of a pass this keeps figures and the time of its end, and of requests nothing. on_unfinished:
    receives an answer that can be continued.
    """

    def __init__(self, passes: Passes, on_unfinished: Callable[[str, PartialAnswer], None]) -> None:
        self.n_decoded = 0
        """Tokens that the last pass gave; 0 if it also read prompts."""
        self.n_drafted = self.n_right = 0
        """Tokens of the last pass that were guessed, and those that were right."""
        self._passes, self._on_unfinished = passes, on_unfinished
        self._last_s = 0.0  # when the last pass was computed

    def begin(self, attends: tuple[int, int], *, keeps: bool) -> None:
        """Begin with requests, after those before have left. attends, keeps: as of Limits."""
        passes, loaded = self._passes, self._passes.loaded
        passes.begin()
        if passes.keeping is not None:
            passes.keeping.begin()
        loaded.scheduler.begin(limits_of(loaded.context, loaded.config, attends, keeps=keeps))

    @property
    def _scheduler(self) -> Scheduler[OpenAnswer]:
        return self._passes.loaded.scheduler

    @property
    def n_running(self) -> int:
        """The requests that are being answered."""
        return len(self._scheduler.members)

    @property
    def n_token(self) -> int:
        """The tokens of all answers so far."""
        return self._passes.meter.statistics.n_token

    def add(self, member: OpenAnswer) -> None:
        """Let a request be answered, which has joined the passes."""
        if not self._scheduler.n_open:
            self._last_s = time.perf_counter()
            if not self.n_token:
                self._passes.meter.began_s = self._last_s
        self._scheduler.add(member)

    def step(self) -> None:
        """Compute a pass with those for whom there is room. Raises EngineError."""
        passes, scheduler = self._passes, self._scheduler
        with engine_errors():
            if scheduler.urgent or scheduler.waiting:
                self._admit()
            if not scheduler.members or passes.is_stopped or not self._compute(self._last_s):
                self.n_decoded = self.n_drafted = self.n_right = 0
            self._end_members()

    def end(self, fault: BaseException | None = None) -> None:
        """End all answers, as far as they were written. fault: why they are not complete."""
        scheduler = self._scheduler
        self._passes.end_prefill()
        for member in scheduler.requests:
            scheduler.leave(member)
            self._end(member, fault)
        scheduler.rest()

    # New requests.

    def _admit(self) -> None:
        """Let requests join for which there is room; those who precede have it made."""
        scheduler = self._scheduler
        while scheduler.urgent and not scheduler.waits_for_another(scheduler.urgent[0]):
            first = scheduler.urgent.pop(0)
            scheduler.precede(first)
            self._joined(first)
        if not scheduler.waiting or not scheduler.n_wanted():
            return
        tokens, n_done = scheduler.beginning()
        if tokens:
            self._compute_shared(tokens, n_done)
        while (member := scheduler.next()) is not None:
            self._joined(member)

    def _joined(self, member: OpenAnswer) -> None:
        """Restore the beginning of a request that has joined from the drive, and tell others."""
        passes, scheduler, keeping = self._passes, self._scheduler, self._passes.keeping
        if member.precedes and member.n_joined == 1:
            passes.begin_costs()
        if not member.number and scheduler.n_alone > 1:
            passes.request_began()
        if keeping is not None:
            keeping.begin()
            place = scheduler.room(member), member.place
            member.n_done = keeping.restore(member.tokens[:-1], member.n_done, *place)
        n_unpaid = scheduler.unpaid()
        if not member.n_token:
            member.n_reused = member.n_done - n_unpaid
            stats = passes.meter.statistics
            stats.n_prompt += member.n_wanted
            stats.n_reused += member.n_reused
            follow = member.request.handle.follow
            follow.joined(member.n_wanted, member.n_reused)
            follow.prefilled(member.n_done)

    # Passes.

    def _compute_shared(self, tokens: list[int], n_done: int) -> None:
        """Compute a beginning, once for all that wait, unless that fails or is stopped."""
        try:
            with engine_errors():
                for plan in self._scheduler.pieces(tokens, n_done):
                    if not self._passes.compute(plan, time.perf_counter()):
                        return
        except UntrustedError:
            raise
        except EngineError:  # each computes it with its own prompt, and then may fail
            return
        self._scheduler.share(tokens, n_done)

    def _compute(self, last_s: float) -> bool:
        """Compute a pass, and choose tokens. Return False when it was stopped or failed."""
        scheduler, passes, keeping = self._scheduler, self._passes, self._passes.keeping
        may_draft = passes.may_draft
        layer = passes.layer if may_draft else None
        if layer is not None:
            self._lead(layer)
        plan = scheduler.plan(self._guess if may_draft else None)
        is_token = plan.is_token
        self.n_drafted, self.n_right, self.n_decoded = plan.n_drafted, 0, 0
        if not is_token:
            self._show_prompt(plan)
        try:
            with engine_errors():
                if not passes.compute(plan, last_s):
                    return False
        except EngineError as error:
            return self._has_failed(plan, error)
        self._last_s = time.perf_counter()  # a token's time includes choosing it
        took_s = self._last_s - last_s
        passes.end_prefill()
        if layer is not None:
            self._observe_layer(layer, plan)
        chosen = scheduler.computed(plan)
        if scheduler.limits.attends[1]:
            self._drop_middles()
        if not is_token:
            self._tell_of_prompts(plan)
        for row, member in chosen:
            self._choose(member, row)
        if is_token:
            self.n_decoded = len(plan.rows) - plan.n_drafted + self.n_right
        if is_token and may_draft:
            self._observe_guess(plan, took_s, layer)
        elif (trial := plan.owners[0].trial) is not None:
            trial.end(took_s)
            plan.owners[0].trial = None
        if plan.is_beside:
            scheduler.observe(plan, took_s)
        if keeping is not None and plan.image is None:
            if plan.n_learning == 1:
                keeping.note_token(plan.owners[0].owner)
            if not all([m.precedes for m in scheduler.members]):
                keeping.step_between()  # beside persons alone it soon idles
        return True

    def _has_failed(self, plan: PassPlan[OpenAnswer], error: EngineError) -> bool:
        """Let a pass be repeated, or where it failed before, let the requests of it fail.

        Return False. Raises errors after which nothing that was computed is to be trusted.
        """
        if isinstance(error, UntrustedError):
            raise error
        owners = zip(plan.owners, plan.rows, strict=True)
        for member, n in {m: row.position for m, row in reversed(list(owners))}.items():
            if n <= member.failed_at:
                member.failure = error
            member.failed_at = n
        return False

    def _show_prompt(self, plan: PassPlan[OpenAnswer]) -> None:
        """Let others see, within the pass, how much of the prompt is computed that goes first."""
        member = self._scheduler.members[0]
        is_shown = member.n_unread and not member.n_token
        if is_shown and (member.precedes or self.n_running == 1):
            n = plan.n_of_prompt if plan.image is None else plan.image.n_pos
            self._passes.begin_prefill(member.n_done, n, member.n_wanted)

    def _tell_of_prompts(self, plan: PassPlan[OpenAnswer]) -> None:
        """Tell handles how much of their prompts is computed. Forget images that all have read."""
        if plan.image is not None:
            requests = self._scheduler.requests
            unread = {token for m in requests for token in m.tokens[m.n_done :] if token < 0}
            self._passes.keep_encoded(unread)
        for member in dict.fromkeys(plan.owners):
            if not member.n_token:
                follow = member.request.handle.follow
                follow.prefilled(member.n_done)
                if not member.n_unread:
                    follow.began()

    def _choose(self, member: OpenAnswer, row: int) -> None:
        """Choose the next token of an answer, and those behind it that were guessed."""
        drafted, n_right, meter = member.drafted, 0, self._passes.meter
        stats = meter.statistics
        stats.n_drafted += len(drafted)
        try:
            while True:
                token, n_before = member.sample(row + n_right), member.n_token
                meter.note_choice()
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

    # Guesses.

    def _guess(self, member: OpenAnswer, n_running: int, n_most: int) -> list[int]:
        passes = self._passes
        layer = passes.layer if member is self._scheduler.leader else None
        width = passes.width_beside(n_running)
        return member.guess(width, n_most, layer, lambda: passes.is_stopped)

    def _lead(self, layer: PredictionLayer) -> None:
        """Choose the answer that the layer guesses in this pass, and ask it for none yet."""
        if (new := self._scheduler.lead()) is not None:
            layer.begin(new.computed, new.place)
        if (leader := self._scheduler.leader) is not None:
            leader.was_asked = False

    def _observe_layer(self, layer: PredictionLayer, plan: PassPlan[OpenAnswer]) -> None:
        """Tell the prediction layer which tokens of its answer the pass has computed."""
        leader, rows = self._scheduler.leader, plan.rows
        places = [i for i, member in enumerate(plan.owners) if member is leader]
        if leader is not None and places and plan.image is None:
            states = self._passes.loaded.context.states(len(rows))
            tokens = [rows[i].token for i in places]
            layer.observe(leader.tokens, rows[places[0]].position, tokens, states[places])

    def _observe_guess(
        self, plan: PassPlan[OpenAnswer], took_s: float, layer: PredictionLayer | None
    ) -> None:
        """Learn from the time of a pass with these guesses, and from the number of right ones."""
        guessed, n_guessed, leader = plan.drafting, plan.n_drafted, self._scheduler.leader
        if layer is not None and leader is not None and leader.was_asked:
            took_s -= layer.read_s  # of a text that was new to it
            if guessed is None:  # a guess that the layer was too unsure to make took time, too
                guessed, n_guessed = leader, 1
        n_equal = 0 if guessed is None else guessed.n_equal
        width = self._passes.width_beside(len(plan.rows) - plan.n_drafted)
        trial = Trial(width, n_equal, n_guessed, self.n_right, took_s)
        if guessed is not None and guessed.n_unread:
            guessed.trial = trial
        else:
            trial.end()

    def _drop_middles(self) -> None:
        """Forget what tokens no longer see. The others keep their positions."""
        n_first, n_last = self._scheduler.limits.attends
        for member in self._scheduler.members:
            if member.images:
                continue
            begin, end = n_first + member.n_gone, member.n_done - n_last
            if begin < end:
                self._passes.loaded.context.forget(member.place, begin, end)
                member.n_gone += end - begin

    def _end_members(self) -> None:
        """Let those leave whose answers have ended, in the order in which they joined."""
        scheduler = self._scheduler
        for member in scheduler.requests:
            if member.has_ended or member.request.handle.is_cancelled or member.fault is not None:
                self._leave(member)
        for member in scheduler.members.copy():
            if member in scheduler.members and scheduler.is_full(member):
                member.end("context")
                self._leave(member)

    def _leave(self, member: OpenAnswer) -> None:
        if not member.has_ended:
            member.end("cancelled")
        self._scheduler.leave(member)
        self._end(member)

    def _end(self, member: OpenAnswer, fault: BaseException | None = None) -> None:
        """Tell the handle of an answer as it is, which nobody goes on with here."""
        handle = member.request.handle
        self._passes.leave(handle)  # before anybody hears of the end
        is_kept = self._scheduler.idle.get(member.place) == member.computed
        if is_kept and (keeping := self._passes.keeping) is not None:
            keeping.end(member.place, member.computed)
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
