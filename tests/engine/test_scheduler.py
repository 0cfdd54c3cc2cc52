"""Who takes part in a pass, and with which cells: tables and properties, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine import scheduler as scheduler_module
from backend.engine.scheduler import (
    SHARED_TOKENS_MIN,
    Limits,
    PassPlan,
    Placed,
    Scheduler,
    n_before_image,
    n_place,
)
from backend.llama.row import Row

LIMITS = Limits(n_sequence=3, n_context=120, n_longest=120, n_ubatch=16)


class Cells:
    """The cells of a context, as llama.cpp has them: a cell may belong to several sequences."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The cells of each position of a sequence, and its token.
        self._held: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        self._saved: list[list[tuple[tuple[int, ...], int]]] = []
        self._n_rows: Counter[int] = Counter()  # of each sequence in the last pass
        self.n_computed = 0
        self.is_failing = False  # a pass was not computed as a whole: no state can go back
        self.n_checkpoint = int(limits.checkpoints)

    def clear(self) -> None:
        self._held.clear()

    def tokens(self, sequence: int) -> list[int]:
        return [token for _, token in self._held.get(sequence, [])]

    def forget_from(self, position: int, sequence: int = 0) -> bool:
        held = self._held.get(sequence, [])
        if self._limits.cuts_batches and position > 0:
            n = len(held) - position
            if self.is_failing and n > 0:
                return False
            is_guess = n <= self._limits.n_back and n < self._n_rows[sequence]
            assert n <= 0 or is_guess, "a state goes back"
        tokens = self.tokens(sequence)
        is_cut = 0 < position < len(held) and tokens[position - 1] == tokens[position] < 0
        assert not is_cut or tokens.count(tokens[position]) > PICTURES[tokens[position]].n_pos
        del held[position:]
        return True

    def save(
        self, sequence: int, n: int, *, is_step: bool = False, is_common: bool = False
    ) -> None:
        assert self._limits.checkpoints and n == len(self._held[sequence])
        self._saved.append(list(self._held[sequence]))

    def saved(self, sequence: int) -> list[int]:
        held = self._held.get(sequence, [])
        return [len(cells) for cells in self._saved if held[: len(cells)] == cells]

    def reachable(self, sequence: int, n: int) -> int:
        if not self._limits.cuts_batches:
            return n
        return max((saved for saved in self.saved(sequence) if saved <= n), default=0)

    def go_back(self, position: int, sequence: int = 0) -> bool:
        if not self._limits.cuts_batches:
            return self.forget_from(position, sequence)
        assert position in self.saved(sequence), "the state is of other cells"
        del self._held[sequence][position:]
        return True

    def take_back(self, position: int, sequence: int) -> int:
        n = max((n for n in self.saved(sequence) if n <= position), default=0)
        del self._held.setdefault(sequence, [])[n:]
        return n

    def copy_sequence(self, source: int, target: int, n: int) -> bool:
        assert not self._held.get(target), "the target is not empty"
        assert n <= len(self._held[source])
        self._held[target] = self._held[source][:n]
        assert all(cells for cells, _ in self._held[target]), "there is a hole"
        return True

    def forget(self, sequence: int, begin: int, end: int) -> None:
        """Forget positions in the middle: they keep their tokens here, and have no cells."""
        held = self._held[sequence]
        held[begin:end] = [((), token) for _, token in held[begin:end]]

    def fail(self, plan: PassPlan[Asked], n_row: int) -> None:
        """Compute the first rows of a pass that is not computed as a whole."""
        self._n_rows.clear()
        for row in plan.rows[:n_row]:
            self._add(self._held.setdefault(row.sequence, []), row.token, 1)

    def compute(self, rows: Sequence[Row]) -> None:
        assert 0 < len(rows) <= self._limits.n_ubatch and rows[-1].has_logits
        for row in rows:
            held = self._held.setdefault(row.sequence, [])
            n_logits = sum(row.has_logits for row in rows)
            assert n_logits <= (self._limits.n_output or len(rows)), "too many logits"
            assert row.position == len(held) < self._limits.n_longest, "positions follow each other"
            self._add(held, row.token, 1)
        self._check()
        counts = self._n_rows = Counter(row.sequence for row in rows)
        if n_last := self._limits.attends[1]:
            of = set(counts) - {self._limits.n_sequence}
            assert all(counts[sequence] <= n_last for sequence in of), "a piece is too long"
        if not self._limits.shares:  # equally many rows of sequences that follow each other
            first = min(counts)
            assert sorted(counts) == list(range(first, first + len(counts)))
            assert len(set(counts.values())) == 1

    def compute_image(self, sequence: int, token: int) -> None:
        held, picture = self._held.setdefault(sequence, []), PICTURES[token]
        self._add(held, token, picture.n_token - picture.n_pos + 1)
        for _ in range(picture.n_pos - 1):
            self._add(held, token, 1)
        self._check()

    def _add(self, held: list[tuple[tuple[int, ...], int]], token: int, n_cell: int) -> None:
        held.append((tuple(range(self.n_computed, self.n_computed + n_cell)), token))
        self.n_computed += n_cell

    def _check(self) -> None:
        if self._limits.shares:
            used = {cell for held in self._held.values() for cells, _ in held for cell in cells}
            assert len(used) <= self._limits.n_context, "cells are overdrawn"


@dataclass(frozen=True)
class Picture:
    """An image."""

    n_token: int
    n_pos: int


PICTURES = {-1: Picture(4, 4), -2: Picture(9, 3)}


class Asked(Placed):
    """A request. ends: a token may end it. end: why its answer ended, after n_pass passes."""

    def __init__(self, prompt: Sequence[int], max_tokens: int = -1, **more: Any) -> None:
        images = {token: PICTURES[token] for token in prompt if token < 0}
        border = len(prompt) - 1 if len(prompt) % 2 else max(len(prompt) - 5, 0)
        super().__init__(prompt, max_tokens, images=images, border=border, **more)
        self.n_prompt = len(prompt)
        self.ends = True
        self.limits = LIMITS
        self.end = ""
        self.n_pass = 0

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.n_prompt :]


def follows(tokens: Sequence[int]) -> int:
    """Return the token that follows a text, as a model would: always the same one."""
    return (sum((i + 1) * token for i, token in enumerate(tokens)) * 2654435761 >> 7) % 89 + 10


@dataclass
class Run:
    """Does what a group does, with a model that needs no computation.

    pass_s: of one row; n rows take n ** 0.7 times as long. n_right: guessed tokens that are right,
    before one that is wrong; -1: nothing is guessed.
    """

    limits: Limits
    pass_s: float = 0.05
    n_right: int = -1
    passes: list[list[Asked]] = field(default_factory=list)  # whose the rows of each are
    images: list[int] = field(default_factory=list)  # the numbers of passes with an image
    unpaid: list[int] = field(default_factory=list)  # of each request that has joined

    def __post_init__(self) -> None:
        self.cells = Cells(self.limits)
        self.scheduler: Scheduler[Asked] = Scheduler(self.limits, self.cells)
        self.queue: list[Asked] = []

    def ask(self, asked: Asked) -> None:
        if asked.precedes and self.limits.shares:
            self.scheduler.precede(asked)
        else:
            self.queue.append(asked)
        self._check()

    def cancel(self, asked: Asked) -> None:
        if not asked.end:
            self._end(asked, "cancelled")

    def close(self, limits: Limits | None = None) -> None:
        """End all requests. limits: of another context, which the last conversation moves to."""
        scheduler = self.scheduler
        for asked in scheduler.requests + self.queue:
            self._end(asked, "cancelled")
        scheduler.rest()
        scheduler.begin(self.limits)
        self._check()
        if limits is not None:
            tokens = scheduler.tokens_of(scheduler.last)
            tokens = tokens[: n_before_image(tokens)][: limits.n_longest]
            self.limits, self.cells = limits, Cells(limits)
            self.scheduler = Scheduler(limits, self.cells)
            self.cells.fail(PassPlan([Row(token, i, 0) for i, token in enumerate(tokens)]), 1 << 20)
            self.scheduler.hold(tokens, has_moved=True)
            self._check()

    def step(self, n_failing: int = -1) -> bool:
        """Compute a pass. Return False if there was nothing to compute.

        n_failing: it is not computed as a whole, but so many rows of it; -1: it is.
        """
        scheduler = self.scheduler
        if n := scheduler.n_wanted():
            while self.queue and len(scheduler.waiting) < n:
                scheduler.waiting.append(self.queue.pop(0))
            self._share(n_failing)
            while scheduler.next() is not None:
                self.unpaid.append(scheduler.unpaid())
                self._check()
        if not scheduler.members:
            assert not scheduler.waiting and not self.queue
            return False
        plan = scheduler.plan(self._guess if self.n_right >= 0 else None)
        rows, owners = plan.rows, list(plan.owners)
        if n_failing >= 0:
            self._fail(plan, n_failing)
            return True
        self.passes.append(owners)
        if plan.image is not None:
            (asked,) = owners
            self.images.append(len(self.passes) - 1)
            self.cells.compute_image(asked.place, asked.tokens[asked.n_done])
        else:
            self.cells.compute(rows)
        assert plan.n_drafted == sum(len(m.drafted) for m in scheduler.members)
        assert plan.begins == {m.place: m.n_done for m in owners}
        assert all(self.cells.tokens(m.place)[:n] == m.tokens[:n] for m, n in plan.joined)
        chosen = scheduler.computed(plan)
        if self.limits.attends[1]:
            self._drop_middles()
        if self.limits.shares:
            used = [n_place(m.computed, PICTURES) - m.n_gone - m.n_cell for m in owners]
            assert max(used) <= 0, "a row has no cell"
        if plan.is_beside:
            scheduler.observe(plan, self.pass_s * len(rows) ** 0.7)
        for i, asked in chosen:
            assert rows[i].has_logits and owners[i] is asked
            self._add(asked)
        self._check()
        return self._end_those_at_their_end()

    def _fail(self, plan: PassPlan[Asked], n_row: int) -> None:
        self.cells.fail(plan, n_row)
        self.cells.is_failing = True
        self.scheduler.take_back(plan)
        self.cells.is_failing = False
        assert not any(m.drafted for m in self.scheduler.members)
        self._check()

    def _drop_middles(self) -> None:
        n_first, n_last = self.limits.attends
        for asked in self.scheduler.members:
            begin, end = n_first + asked.n_gone, asked.n_done - n_last
            if begin < end and not asked.images:
                self.cells.forget(asked.place, begin, end)
                asked.n_gone += end - begin

    def _end_those_at_their_end(self) -> bool:
        scheduler = self.scheduler
        for asked in list(scheduler.members):
            if asked.end:
                self._end(asked, asked.end)
        for asked in list(scheduler.members):
            if asked in scheduler.members and scheduler.is_full(asked):
                self._end(asked, "context")
            self._check()
        return True

    def run(self, *asked: Asked) -> None:
        for each in asked:
            self.ask(each)
        while self.step():
            pass

    def _share(self, n_failing: int) -> None:
        tokens, n_done = self.scheduler.beginning()
        assert self.cells.tokens(self.limits.n_sequence)[:n_done] == tokens[:n_done]
        for plan in self.scheduler.pieces(tokens, n_done):
            if n_failing >= 0:
                self._fail(plan, n_failing)
                return
            self.cells.compute(plan.rows)
        if tokens:
            self.scheduler.share(tokens, n_done)
        self._check()

    def _guess(self, asked: Asked, n_running: int, n_most: int) -> list[int]:
        assert n_running <= len(self.scheduler.members)
        assert asked.max_tokens < 0 or asked.n_token + n_most < asked.max_tokens
        assert not self.limits.cuts_batches or self.limits.holds or n_most <= self.limits.n_back
        found = list(asked.tokens)
        for _ in range(self.n_right):
            found.append(follows(found))
        return [*found[len(asked.tokens) :], 999][:n_most]

    def _add(self, asked: Asked) -> None:
        """Add a token, and those behind it that were guessed."""
        drafted = list(asked.drafted)
        for n_right in range(len(drafted) + 1):
            token = follows(asked.tokens)
            if asked.ends and token % 16 == 7:
                asked.end = "stop"
                break
            asked.tokens.append(token)
            asked.n_token += 1
            if asked.n_token == asked.max_tokens:
                asked.end = "length"
            if asked.end or drafted[n_right : n_right + 1] != [token]:
                break
        self.scheduler.keep(asked, n_right)

    def _end(self, asked: Asked, reason: str) -> None:
        asked.end, asked.n_pass = reason, len(self.passes)
        if asked in self.scheduler.members:
            self.scheduler.leave(asked)
        for line in (self.scheduler.waiting, self.queue):
            if asked in line:
                line.remove(asked)
        self._check()

    def _check(self) -> None:
        """The context holds what the scheduler thinks that it holds."""
        scheduler, cells = self.scheduler, self.cells
        for member in scheduler.members:
            assert cells.tokens(member.place) == member.computed
        for sequence, tokens in scheduler.idle.items():
            assert cells.tokens(sequence) == tokens
        assert cells.tokens(self.limits.n_sequence) == scheduler.shared
        if self.limits.shares:
            n_idle = sum(n_place(tokens, PICTURES) for tokens in scheduler.idle.values())
            assert scheduler.n_taken + n_idle <= self.limits.n_context, "cells are given twice"
        places = [m.place for m in scheduler.members] + list(scheduler.idle)
        assert len(set(places)) == len(places)
        assert all(0 <= place < self.limits.n_sequence for place in places)


def alone(asked: Asked, limits: Limits) -> tuple[list[int], str]:
    """Return the tokens and the end of an answer beside no other."""
    fresh = Asked(asked.tokens[: asked.n_prompt], asked.max_tokens)
    Run(replace(limits, n_sequence=1)).run(fresh)
    return fresh.answer, fresh.end


@st.composite
def limits_of(draw: st.DrawFn) -> Limits:
    shares = draw(st.sampled_from([True, True, True, False]))
    n_sequence, n_context = draw(st.integers(1, 5)), draw(st.integers(40, 160))
    n_longest = draw(st.integers(30, n_context)) if shares else n_context // n_sequence
    n_ubatch = draw(st.integers(n_sequence + 1, 40))
    cuts_batches = draw(st.booleans()) and shares
    attends = (2, 6) if shares and not cuts_batches and draw(st.booleans()) else (0, 0)
    goes_back = draw(st.sampled_from(["", "by some", "held"])) if cuts_batches else ""
    return Limits(
        n_sequence, n_context, n_longest, n_ubatch, shares, cuts_batches, attends,
        n_output=draw(st.sampled_from([0, n_sequence + 1, n_sequence + 8])),
        n_back=4 if goes_back == "by some" else 0, holds=goes_back == "held",
        checkpoints=cuts_batches and draw(st.booleans()),
    )  # fmt: skip


@st.composite
def asked_of(draw: st.DrawFn, limits: Limits) -> Asked:
    """Draw a request: a beginning that others may have, too, and an end."""
    begin = [draw(st.integers(1, 2))] * draw(st.integers(0, 28))
    end = draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    prompt = (begin + end)[-limits.n_longest + 1 :]
    for token in draw(st.lists(st.sampled_from(sorted(PICTURES)), max_size=2)):
        n = draw(st.sampled_from([len(begin), len(prompt)]))
        if not (0 < n < len(prompt) and prompt[n - 1] == prompt[n] < 0):
            with_image = [*prompt[:n], *[token] * PICTURES[token].n_pos, *prompt[n:]]
            if n_place(with_image, PICTURES) < limits.n_longest:
                prompt = with_image
    return Asked(prompt, draw(st.integers(-1, 20).filter(bool)), precedes=draw(st.booleans()))


SCRIPT = ["ask"] * 4 + ["step"] * 4 + ["cancel"] * 2 + ["fail", "fail", "close", "configure"]


@settings(max_examples=150)
@given(st.data())
def test_everybody_is_answered_as_alone_or_leaves(data: st.DataObject) -> None:
    """Whoever arrives, precedes or is cancelled: cells are never overdrawn, and everything ends."""
    with patch.object(scheduler_module, "COMMON_TOKENS_MIN", 8):
        check_that_everybody_is_answered(data)


def check_that_everybody_is_answered(data: st.DataObject) -> None:
    limits = data.draw(limits_of())
    run, all_asked = Run(limits, n_right=data.draw(st.integers(-1, 5))), []
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(SCRIPT))
        if what == "ask":
            all_asked.append(asked := data.draw(asked_of(limits)))
            asked.limits = limits
            run.ask(asked)
        elif what == "cancel" and all_asked:
            run.cancel(data.draw(st.sampled_from(all_asked)))
        elif what == "fail":
            run.step(n_failing=data.draw(st.integers(0, 40)))
        elif what == "close":
            run.close()
        elif what == "configure":
            limits = data.draw(limits_of())
            run.close(limits)
        else:
            for _ in range(data.draw(st.integers(1, 9))):
                run.step()
    for _ in range(4000):
        if not run.step():
            break
    assert all(asked.end for asked in all_asked), "somebody is not answered"
    for asked in all_asked:
        tokens, end = alone(asked, asked.limits)
        if asked.end == "cancelled":
            assert asked.answer == tokens[: len(asked.answer)]
        elif asked.end == end or asked.limits.shares:
            assert (asked.answer, asked.end) == (tokens, end)


def test_in_streams_nobody_chooses_while_another_has_an_image_to_read() -> None:
    limits = replace(LIMITS, n_sequence=2, n_longest=60, shares=False)
    run, asked = Run(limits), [Asked([-2] * 6 + [1], 2), Asked([1], 2)]
    run.run(*asked)
    assert run.images == [0, 1]
    for each in asked:
        assert (each.answer, each.end) == alone(each, limits)


def test_a_shared_beginning_is_computed_once_and_whole() -> None:
    """The last token of a prompt is always computed: its logits are needed."""
    run, begin = Run(LIMITS), [1] * SHARED_TOKENS_MIN
    asked = [Asked([*begin, 2, i], 1) for i in range(3)]
    run.run(*asked)
    assert all(each.end for each in asked)
    assert [len(owners) for owners in run.passes] == [3]
    assert run.cells.n_computed == SHARED_TOKENS_MIN + 1 + 3
    assert run.unpaid == [SHARED_TOKENS_MIN + 1, 0, 0]
    short = [Asked([*begin[1:], 3 + i], 1) for i in range(2)]
    run = Run(LIMITS)
    run.run(*short)
    assert sum(map(len, run.passes)) == 2 * SHARED_TOKENS_MIN


def test_a_prompt_that_was_answered_is_not_computed_again() -> None:
    run, prompt = Run(LIMITS), list(range(20))
    run.run(Asked(prompt, 3))
    n_pass = len(run.passes)
    run.run(Asked(prompt, 3))
    assert [len(owners) for owners in run.passes[n_pass:]] == [1, 1, 1]


def test_the_conversation_that_was_left_first_is_forgotten_first() -> None:
    run, asked = Run(replace(LIMITS, n_sequence=2)), [Asked([i] * 20, 1) for i in (1, 2, 3)]
    for each in asked:
        run.run(each)
    n_before = run.cells.n_computed
    run.run(Asked([2] * 20, 1))
    assert run.cells.n_computed == n_before + 1


def endless(n: int, max_tokens: int = 60) -> list[Asked]:
    """Return requests whose answers are not ended by a token."""
    found = [Asked([i + 1], max_tokens) for i in range(n)]
    for asked in found:
        asked.ends = False
    return found


def test_one_that_precedes_has_a_row_in_every_pass_from_the_next_one_on() -> None:
    """It takes the place of the last one that joined, which goes on later."""
    run, others = Run(replace(LIMITS, n_context=400, n_longest=400)), endless(3)
    own = Asked([5] * 9, 12, precedes=True)
    for asked in others:
        run.ask(asked)
    for _ in range(5):
        run.step()
    run.ask(own)
    assert run.scheduler.members == [own, *others[:2]] and run.scheduler.waiting == others[2:]
    run.run()
    hers = run.passes[5 : own.n_pass]
    assert all(own in owners for owners in hers) and len(hers) <= 12
    assert set(hers[0]) <= {own, others[0]}, "at most one row beside eight of her prompt"
    assert others[2] not in {each for owners in hers for each in owners}
    assert all(asked.end for asked in others)


def test_one_that_precedes_keeps_four_fifths_of_its_speed_and_others_go_on() -> None:
    run = Run(replace(LIMITS, n_context=1000, n_longest=1000))
    *others, own = endless(3, 200)
    own.precedes = True
    run.ask(own)
    for asked in others:
        run.ask(asked)
    run.run()
    hers = run.passes[: own.n_pass]
    took_s = sum(run.pass_s * len(owners) ** 0.7 for owners in hers)
    assert 0.8 <= len(hers) * run.pass_s / took_s < 0.95
    assert all(any(asked in owners for owners in hers) for asked in others)


def test_a_prompt_is_read_alone_where_states_only_go_on() -> None:
    run = Run(replace(LIMITS, cuts_batches=True))
    prompts = [Asked([i] * 20, 4) for i in (1, 2)]
    run.run(*prompts)
    assert [len(set(map(id, owners))) for owners in run.passes[:4]] == [1] * 4
    assert [len(owners) for owners in run.passes[:5]] == [16, 4, 16, 4, 2]


def test_several_prompts_join_at_once_and_who_has_left_is_in_no_pass() -> None:
    limits = Limits(n_sequence=8, n_context=800, n_longest=800, n_ubatch=16)
    run, asked = Run(limits), endless(10, 30)
    for each in asked:
        run.ask(each)
    run.step()
    assert len(run.scheduler.members) == 8
    run.cancel(asked[0])
    run.step()
    assert len(run.passes[-1]) == 7 and asked[0] not in run.passes[-1]
    run.cancel(asked[1])
    run.step()
    assert [each in run.passes[-1] for each in asked[:2]] == [False] * 2
    assert all(each in run.passes[-1] for each in asked[2:])


def test_an_answer_that_outgrows_its_cells_gets_those_of_the_last_one_which_goes_on_later() -> None:
    limits = Limits(n_sequence=2, n_context=60, n_longest=60, n_ubatch=16)
    run, (first, second) = Run(limits), endless(2, -1)
    run.ask(first)
    run.ask(second)
    run.run()
    assert (first.end, second.end) == ("context", "context")
    assert len(first.tokens) == len(second.tokens) == 61  # the last one needs no cell
    n_running = [len(set(map(id, owners))) for owners in run.passes]
    assert first.n_pass < second.n_pass and n_running[first.n_pass - 1] == 1
    assert n_running == sorted(n_running, reverse=True) and n_running[0] == 2


def test_one_answer_of_a_pass_is_drafted_and_it_is_the_persons() -> None:
    run, (first, second) = Run(LIMITS, n_right=3), endless(2, 9)
    run.run(first, second)
    assert [len(owners) for owners in run.passes][:2] == [2, 2 + 4]  # the prompts, then guesses
    assert run.passes[1].count(first) == 5 and first.n_pass < second.n_pass
    run, (first, second) = Run(LIMITS, n_right=3), endless(2, 9)
    second.precedes = True
    run.run(first, second)
    drafted = [owners for owners in run.passes if owners.count(first) > 1]
    assert second.n_pass == 3 and all(second not in owners for owners in drafted)


def test_the_last_answer_behind_a_shared_beginning_has_every_cell() -> None:
    limits = Limits(n_sequence=2, n_context=60, n_longest=60, n_ubatch=16)
    begin = [1] * 20
    short, long = Asked([*begin, 2], 1), Asked([*begin, 3])
    long.ends = False
    run = Run(limits)
    run.run(short, long)
    assert long.end == "context" and len(long.tokens) == 61
    run = Run(limits)  # a prompt with another beginning does not fit beside the shared one
    run.run(*(Asked([*begin, i], 1) for i in (4, 5)), whole := Asked(range(100, 155), 3))
    assert whole.end in ("length", "stop")


def test_images_and_tokens_take_turns() -> None:
    run = Run(LIMITS)
    with_images = Asked([1, *[-2] * 3, *[-1] * 4, 2, *[-1] * 4], 3)
    text = Asked([5, 6], 12)
    text.ends = False
    run.run(text, with_images)
    assert [run.passes[i] for i in run.images] == [[with_images]] * 3
    assert all(text in run.passes[i + 1] for i in run.images) and len(with_images.answer) == 3
    again = Asked([*with_images.tokens[:9], 7, 8], 1)
    run.run(again)
    assert len(run.images) == 3, "the images are found in the context"


def test_who_goes_on_in_a_full_context_keeps_what_it_has() -> None:
    """The cells of what is used again are not needed twice."""
    limits = Limits(n_sequence=2, n_context=60, n_longest=60, n_ubatch=16)
    for other, n_reused in (([], 40), ([3, 4], 40)):
        run = Run(limits)
        run.run(Asked(range(100, 140), 1))
        n_before = run.cells.n_computed
        run.run(Asked([*range(100, 140), 9, *other], 5))
        assert run.cells.n_computed - n_before <= 45 - n_reused + len(other) + 1
        run.run(Asked([*range(100, 138), 9], -1))
        assert all(asked.end for owners in run.passes for asked in owners)


def test_a_state_goes_back_to_a_checkpoint_if_the_answer_may_take_every_cell_or_not() -> None:
    limits = Limits(1, 60, 60, 16, cuts_batches=True, n_back=4, checkpoints=True)
    for max_tokens in (-1, 5):
        for n_gone, n_computed in ((0, 2), (4, 3), (5, 2), (6, 20)):
            run = Run(limits)
            run.run(first := Asked(range(100, 124), 1))
            assert run.scheduler.idle == {0: list(range(100, 124))} and first.border == 19
            n_before = run.cells.n_computed
            run.ask(Asked([*range(100, 124 - n_gone), 7, 8], max_tokens))
            while not run.scheduler.members or run.scheduler.members[0].n_unread:
                run.step()
            assert run.cells.n_computed - n_before == n_computed


def test_a_beginning_that_comes_twice_gets_a_checkpoint() -> None:
    """The third conversation begins with it, and those before keep what they have."""
    limits = Limits(4, 9000, 3000, 512, cuts_batches=True, checkpoints=True)
    run, system = Run(limits), [5] * 1000
    n_computed = []
    for i in range(4):
        before = run.cells.n_computed
        run.run(asked := Asked([*system, *range(10 * i, 10 * i + 40)], 1))
        n_computed.append(run.cells.n_computed - before)
        assert asked.common == (1000 if i == 1 else 0)
    assert n_computed == [1040, 1040, 40, 40]
    assert sorted(map(len, run.scheduler.idle.values())) == [1040] * 4


def test_one_that_outgrows_those_before_it_goes_on_later() -> None:
    limits = Limits(n_sequence=2, n_context=60, n_longest=60, n_ubatch=16)
    run, first, second = Run(limits), *endless(2, -1)
    second.tokens = [2] * 20
    second.n_prompt = 20
    run.run(first, second)
    assert [len(asked.tokens) for asked in (first, second)] == [61, 61]


def test_others_join_when_the_prompt_of_one_that_precedes_is_read() -> None:
    """One of their prompts is read at a time, beside its tokens."""
    run = Run(replace(LIMITS, n_context=400, n_longest=400, n_sequence=4))
    own, others = Asked([5] * 40, 200, precedes=True), [Asked([i] * 12, 2) for i in (6, 7)]
    own.ends = False
    run.ask(own)
    for asked in others:
        run.ask(asked)
    while own.n_unread:
        run.step()
        assert run.scheduler.members == [own]
    run.run()
    assert all(set(owners) == {own} for owners in run.passes[:3])
    first, second = ([asked in owners for owners in run.passes] for asked in others)
    n_before = second.index(True)
    assert sum(owners.count(others[0]) for owners in run.passes[:n_before]) >= 12 and any(first)


def test_those_who_make_room_go_on_in_their_order_before_others() -> None:
    run = Run(replace(LIMITS, n_sequence=4))
    others, own = endless(4, 29), Asked([5] * 50, 9, precedes=True)
    for asked in others:
        run.ask(asked)
    run.step()
    later = Asked([7], 29)
    run.ask(own)
    assert run.scheduler.members == [own, others[0], others[1]]
    run.ask(later)
    assert run.scheduler.waiting == others[2:] and run.queue == [later]


def test_who_goes_on_later_needs_no_more_cells_than_before() -> None:
    limits = Limits(n_sequence=3, n_context=60, n_longest=60, n_ubatch=16)
    run, (first, second) = Run(limits), endless(2, 29)
    run.ask(first)
    run.ask(second)
    for _ in range(10):
        run.step()
    run.ask(own := Asked([5] * 20, 10, precedes=True))
    assert run.scheduler.members == [own, first]
    while not own.end:
        run.step()
    run.step()
    assert run.scheduler.members == [first, second]
    assert second.n_cell == 30
    run.run()
    assert (len(first.answer), len(second.answer)) == (29, 29)


def test_wrong_guesses_of_one_that_precedes_grant_others_nothing() -> None:
    run = Run(replace(LIMITS, n_context=1000, n_longest=1000), n_right=0)
    *others, own = endless(3, 200)
    own.precedes = True
    run.ask(own)
    for asked in others:
        run.ask(asked)
    run.run()
    hers = run.passes[: own.n_pass]
    took_s = sum(len(owners) ** 0.7 for owners in hers)
    alone_s = len(hers) * 2**0.7
    assert 0.8 <= alone_s / took_s < 0.95


def test_the_room_of_a_request_is_what_neither_others_nor_idle_sequences_have() -> None:
    run = Run(LIMITS)
    run.run(Asked([1] * 20, 1))
    first, second = Asked([2] * 10, 5), Asked([3] * 30, 10)
    run.ask(first)
    run.ask(second)
    run.step()
    scheduler = run.scheduler
    assert (first.n_cell, second.n_cell, sum(map(len, scheduler.idle.values()))) == (15, 40, 20)
    assert [scheduler.room(each) for each in (first, second)] == [120 - 40 - 20, 120 - 15 - 20]


def test_guesses_end_before_the_answer_does_and_a_state_can_go_back_behind_them() -> None:
    for n_back in (0, 4):
        run = Run(replace(LIMITS, cuts_batches=n_back > 0, n_back=n_back), n_right=9)
        (asked,) = endless(1, 20)
        run.run(asked)
        n_row = [len(owners) for owners in run.passes]
        assert max(n_row) == 1 + (n_back or 10) and sum(n_row) >= 20 == len(asked.answer)


def test_a_state_that_cannot_go_back_is_held_and_right_guesses_are_computed_again() -> None:
    """Beside others, which guess in their turn. Answers are those without guesses."""
    limits = replace(LIMITS, n_context=400, n_longest=400, cuts_batches=True, holds=True)
    for n_right in (0, 2, 9):
        run, asked = Run(limits, n_right=n_right), endless(3, 20)
        run.run(*asked)
        for each in asked:
            tokens, _ = alone(each, limits)
            assert each.answer[: len(tokens)] == tokens
        n_guess = sum(len(owners) > len(set(map(id, owners))) for owners in run.passes)
        assert n_guess > 4
        if n_right == 2:  # of three guessed tokens the last is wrong: two are right, and a new one
            drafted = next(i for i, owners in enumerate(run.passes) if len(owners) == 3 + 3)
            again = run.passes[drafted + 1]
            assert len(again) == 1 + 2 + 1 and len(set(map(id, again))) == 1


def test_a_state_that_a_failed_pass_has_left_is_dropped() -> None:
    limits = replace(LIMITS, cuts_batches=True, holds=True)
    run, asked = Run(limits, n_right=3), endless(2, 20)
    for each in asked:
        run.ask(each)
    while not any(each.drafted for each in asked):
        held = run.cells.tokens(limits.n_sequence)
        assert not held
        if all(each.tokens[each.n_prompt :] for each in asked):
            run.scheduler.plan(run._guess)  # its pass fails before it has begun
        else:
            run.step()
    assert run.cells.tokens(limits.n_sequence)
    run.scheduler.drop_guesses()
    run.run()
    for each in asked:
        tokens, _ = alone(each, limits)
        assert each.answer[: len(tokens)] == tokens


def test_all_begin_again_in_their_order_if_the_context_was_emptied() -> None:
    run = Run(replace(LIMITS, n_sequence=2))
    begin = [1] * SHARED_TOKENS_MIN
    asked = [Asked([*begin, i, 9], 12) for i in (2, 3, 4, 5)]
    for each in asked:
        run.ask(each)
    run.step()
    scheduler = run.scheduler
    scheduler.waiting += run.queue
    run.queue.clear()
    assert scheduler.members == asked[:2] and scheduler.shared == begin
    for sequence in range(3):
        run.cells.forget_from(0, sequence)
    scheduler.begin_again()
    assert scheduler.waiting == asked and not scheduler.shared and not scheduler.members
    run.run()
    for each in asked:
        assert (each.answer, each.end) == alone(each, LIMITS)


def test_nothing_is_left_of_a_pass_or_of_cells_if_the_context_was_emptied() -> None:
    sparse, drafting = Run(replace(LIMITS, attends=(2, 6))), Run(LIMITS, n_right=3)
    for run in (sparse, drafting):
        (asked,) = endless(1, 30)
        run.ask(asked)
        for _ in range(4 if run is drafting else 12):
            run.step()
        run.scheduler.plan(run._guess if run is drafting else None)
        assert asked.drafted if run is drafting else asked.n_gone
        run.cells.forget_from(0, asked.place)
        run.scheduler.begin_again()
        assert (asked.drafted, asked.n_gone, asked.n_done) == ([], 0, 0)
        run.run()
        assert len(asked.answer) == 30
