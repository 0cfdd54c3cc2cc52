"""Decides who takes part in the next pass, with which tokens, and who has which cells.

It alone knows what the context holds, and lives as long as it. It computes nothing and knows no
llama.cpp: requests and measured times go in, rows come out. The cells of the context are changed
through Memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from backend.engine.kept_states import n_equal
from backend.engine.precedence import Precedence
from backend.llama.row import Row

SHARED_TOKENS_MIN = 16
"""Shorter beginnings are computed for every prompt, unless they have an image."""

COMMON_TOKENS_MIN = 512
"""A beginning of this length that comes twice gets a checkpoint, which takes a pass of its own."""


class Memory(Protocol):
    """The cells of a context. A sequence has positions from 0 on.

    n_checkpoint: the checkpoints that it keeps; 0: none.
    """

    n_checkpoint: int

    def clear(self) -> None:
        """Forget all sequences."""

    def forget_from(self, position: int, sequence: int = 0) -> bool:
        """Forget positions from this one on."""

    def copy_sequence(self, source: int, target: int, n: int) -> bool:
        """Let an empty sequence begin with the first n positions of another one. May fail."""

    def save(
        self, sequence: int, n: int, *, is_step: bool = False, is_common: bool = False
    ) -> None:
        """Save a checkpoint of the first n positions: what cannot be cut of them. May fail.

        is_step: it takes the place of another such one of the sequence. is_common: other
        conversations begin so; it leaves last.
        """

    def saved(self, sequence: int) -> Sequence[int]:
        """Return the numbers of positions of a sequence that have a checkpoint."""

    def reachable(self, sequence: int, n: int) -> int:
        """Return the most of the first n positions of a sequence that it can go back to."""

    def go_back(self, position: int, sequence: int = 0) -> bool:
        """Forget positions from a reachable() one on. Where that fails, the sequence is empty."""

    def take_back(self, position: int, sequence: int) -> int:
        """Go back to a saved position, this one at most. Return the positions that are left."""


@dataclass(frozen=True)
class Limits:
    """The limits of a context.

    n_sequence: requests at once; the sequence of this number may hold a shared beginning.
    n_context: its cells. n_longest: positions of one request. n_ubatch: rows of a pass. shares:
    sequences share cells, and a pass may have any rows; otherwise equally many of some that follow
    each other. cuts_batches: a state can only go on, and a pass has one prompt. attends: sparse
    attention, the numbers of first and of last tokens that a token sees; (0, 0): all. n_output:
    rows of a pass that may have logits; 0: all. n_back: the guesses of a pass that a state
    can go back. holds: the sequence n_sequence may hold such a state while guesses are tried.
    checkpoints: such a state may be saved at the end of a pass, to go back to it. keeps: the
    context keeps the tokens of those who have left. Otherwise it is empty before the first request
    and after the last.
    """

    n_sequence: int
    n_context: int
    n_longest: int
    n_ubatch: int
    shares: bool = True
    cuts_batches: bool = False
    attends: tuple[int, int] = (0, 0)
    n_output: int = 0
    n_back: int = 0
    holds: bool = False
    checkpoints: bool = False
    keeps: bool = True


class Image(Protocol):
    """An image in a prompt: n_token rows of a pass and cells, n_pos positions and tokens."""

    @property
    def n_token(self) -> int:
        """Its rows of a pass, each of which takes a cell."""

    @property
    def n_pos(self) -> int:
        """Its positions, for each of which its number stands in the prompt."""


def n_place(tokens: Sequence[int], images: Mapping[int, Image]) -> int:
    """Return how many cells of a context these tokens take."""
    if not images:
        return len(tokens)
    seen = Counter(token for token in tokens if token < 0)
    chunks = [(images[token], n) for token, n in seen.items()]
    return len(tokens) + sum((c.n_token - c.n_pos) * (n // c.n_pos) for c, n in chunks)


class Placed:
    """The scheduler's view of a request.

    log_number: of its answer in the batch log; 0: there is no log. tokens: of the prompt and of the
    answer so far; a negative number stands for a position of the
    image in `images`. n_extra: cells that images take beside their positions. max_tokens: of the
    answer, -1: any. precedes: it joins at once, and others make room. owner: of its conversation;
    "": nobody. n_joined: how often it has joined. number: of its sequence for the core; 0: it was
    alone then. place: its sequence in the context; -1: none. n_cell: cells that are reserved for
    it. n_wanted: tokens to compute before the next one is chosen. n_done: positions that are
    computed. n_gone: of them, positions that sparse attention has dropped. n_token: tokens of the
    answer that were chosen here. n_reused: tokens of the prompt that were computed for others.
    drafted: guessed tokens behind its next one, in this pass. border: tokens of the prompt that
    later prompts are likely to begin with; a pass ends there, for a checkpoint. common: such tokens
    that another conversation has, or may have. opening: those before its first question, or 0.
    is_step: the prompt ends with a tool's result, not with a question.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        max_tokens: int = -1,
        *,
        precedes: bool = False,
        images: Mapping[int, Image] | None = None,
        border: int = 0,
        is_step: bool = False,
        opening: int = 0,
        owner: str = "",
    ):
        self.is_step, self.common, self.owner = is_step, 0, owner
        self.opening = opening
        self.tokens, self.images, self.border = list(tokens), images or {}, border
        self.n_extra = n_place(self.tokens, self.images) - len(self.tokens)
        self.max_tokens, self.precedes = max_tokens, precedes
        self.place = self.number = -1
        self.n_joined = self.log_number = 0
        self.drafted: list[int] = []
        self.n_cell = self.n_wanted = self.n_done = self.n_gone = self.n_token = self.n_reused = 0

    @property
    def n_unread(self) -> int:
        """The tokens of the prompt that are not computed; 0: tokens of the answer follow."""
        n = self.n_wanted - self.n_done
        return n if n > 0 else 0

    @property
    def computed(self) -> list[int]:
        """The tokens that the context holds of it."""
        return self.tokens[: self.n_done]


T = TypeVar("T", bound=Placed)


class PassPlan(NamedTuple, Generic[T]):
    """All of a pass, as it was decided before it.

    rows: those with logits come last, at least one; of an image, one row that stands for all.
    owners: the request of each row; none where the rows are of a beginning that prompts share.
    image: it is computed in place of its row, or None. numbers: of each row's sequence for the core
    (Placed.number); none where all are of the only request. n_of_prompt: rows of prompts. drafting:
    the request with n_drafted guessed tokens behind its next one, or None. n_learning: the answers
    with a token in the pass, if an adaptive method may learn from it; otherwise 0. is_beside: its
    time shows what a person's answer takes, alone or beside others. joined: requests that have
    joined since the pass before, each with its tokens that the context has by then: left, copied,
    gone back to, or restored from the drive.
    """

    rows: Sequence[Row]
    owners: Sequence[T] = ()
    image: Image | None = None
    numbers: Sequence[int] = ()
    n_of_prompt: int = 0
    drafting: T | None = None
    n_drafted: int = 0
    n_learning: int = 0
    is_beside: bool = False
    joined: Sequence[tuple[T, int]] = ()

    @property
    def is_token(self) -> bool:
        """Whether all rows are tokens of answers."""
        return not self.n_of_prompt

    @property
    def logged(self) -> tuple[Any, ...]:
        """The plan as the batch log has it (docs/formats.md)."""
        of = itertools.groupby(self.owners, key=lambda owner: owner.log_number)
        runs = [[number, len(list(rows))] for number, rows in of]
        joined = [[member.log_number, n] for member, n in self.joined]
        return runs, self.n_of_prompt, self.n_drafted, self.n_learning, joined

    @property
    def begins(self) -> dict[int, int]:
        """The first position of each sequence."""
        return {row.sequence: row.position for row in reversed(self.rows)}


Guess = Callable[[T, int, int], list[int]]
"""Guesses the tokens after an answer, from (number of answers in the pass, most tokens)."""


class Scheduler(Generic[T]):
    """Gives requests places, cells and rows. Times are in seconds.

    urgent: requests without a place that precede others. waiting: the others without one, the next
    one first. members: those with one, in the order in which they joined; one that precedes comes
    first. idle: the tokens of the sequences that nobody uses, the one that was left first comes
    first. owners: of the conversation in each sequence; "": nobody's. moved: the sequences that may
    have tokens that another context computed. shared: the tokens of a beginning of several prompts.
    images: those of all sequences. n_alone: requests that had the number 0 since begin(). leader:
    the request whose tokens the prediction layer guesses, or None.
    """

    def __init__(self, limits: Limits, memory: Memory) -> None:
        self.urgent: list[T] = []
        self.waiting: list[T] = []
        self.members: list[T] = []
        self.idle: dict[int, list[int]] = {}
        self.owners: dict[int, str] = {}
        self.moved: set[int] = set()
        self.shared: list[int] = []
        self.images: dict[int, Image] = {}
        self._was_image = False  # the last pass was of an image
        self._memory = memory
        self._n_unpaid = 0  # shared tokens that no request counts as its own yet
        self._last = 0  # the sequence of the conversation that was computed last
        self._n_number = 0  # the numbers that sequences were given
        self.begin(limits)

    # Since when, and for whom.

    def begin(self, limits: Limits) -> None:
        """Begin with requests, after those before have left."""
        self.limits, self.precedence = limits, Precedence()
        self.n_alone = 0
        self.leader: T | None = None
        self._newest: T | None = None  # has joined last, or of those who precede
        self._joined: list[T] = []  # since the last plan
        if not limits.keeps:
            self.clear()

    def rest(self) -> None:
        """Note that all requests have left. The context keeps what later ones may begin with."""
        self._last, self._newest = self.last, None
        if not self.limits.keeps:
            self.clear()
        self.forget_shared()
        if self.images:
            used = set().union(*self.idle.values())
            self.images = {token: image for token, image in self.images.items() if token in used}

    @property
    def requests(self) -> list[T]:
        """Those who are answered or wait."""
        return self.members + self.urgent + self.waiting

    @property
    def n_open(self) -> int:
        """The number of those who are answered or wait."""
        return len(self.members) + len(self.urgent) + len(self.waiting)

    @property
    def last(self) -> int:
        """The sequence of the conversation that was computed last, a person's before others."""
        if (newest := self._newest) is None:
            return self._last
        return newest.place if self.idle.get(newest.place) == newest.computed else 0

    def tokens_of(self, sequence: int) -> list[int]:
        """Return the tokens that a sequence holds now, one for each position.

        An image's are the negative number by which `images` has it.
        """
        if (idle := self.idle.get(sequence)) is not None:
            return idle
        of = (m for m in self.members if m.place == sequence and not m.n_gone)
        return next((m.computed for m in of), [])

    def hold(self, tokens: list[int], *, owner: str = "", has_moved: bool = False) -> None:
        """Note that the sequence 0 holds these tokens, and that no other one holds any."""
        self.idle, self.owners, self._last = {0: tokens}, {0: owner}, 0
        self.moved = {0} if has_moved else set()

    def disown(self, owner: str) -> None:
        """Note that the conversations of an owner are nobody's."""
        self.owners = {s: "" if one == owner else one for s, one in self.owners.items()}

    def clear(self) -> None:
        """Forget all that the context holds. Those who are answered wait, and begin again."""
        self._memory.clear()
        self._last, self.moved = 0, set()
        self.begin_again()

    def next_number(self) -> int:
        """Return a number for the core that no other sequence has."""
        self._n_number += 1
        return self._n_number

    # Who joins.

    def add(self, asked: T) -> None:
        """Let a request wait for the next pass. One that precedes has room made."""
        self.precedence.disturb()
        (self.urgent if asked.precedes and self.limits.shares else self.waiting).append(asked)

    def n_wanted(self) -> int:
        """Return how many requests should wait, because they may join now.

        A new prompt needs nearly all experts, so several are taken at once.
        """
        limits = self.limits
        if any(m.precedes and m.n_unread for m in self.members):
            return 0  # its prompt may begin as theirs, and is computed first
        n_free = limits.n_sequence - len(self.members)
        is_closed = not limits.shares  # a pass has no pieces of prompts beside tokens
        if self.members and (is_closed or n_free < max(limits.n_sequence // 4, 1)):
            return 0
        return n_free

    def next(self) -> T | None:
        """Let the next request that waits join if there is room. Return it."""
        if not self.waiting or len(self.members) >= self.limits.n_sequence:
            return None
        if self.waits_for_another(self.waiting[0]):
            return None
        n_cell = self._n_cell(self.waiting[0])
        if self.n_taken + n_cell > self.limits.n_context:
            if self.members:
                return None
            self.forget_shared()
        return self._join(self.waiting.pop(0), n_cell)

    def waits_for_another(self, asked: T) -> bool:
        """Return whether another one reads the beginning of a prompt now, up to a checkpoint."""
        return any(
            m.n_done < m.border <= n_equal(m.tokens, asked.tokens[:-1])
            for m in self.members
            if m.border in self._ends(m)
        )

    def precede(self, member: T) -> None:
        """Let a request join that precedes others. They make room, and go on later."""
        limits, n_cell = self.limits, self._n_cell(member)
        while self.members and (
            len(self.members) >= limits.n_sequence or self.n_taken + n_cell > limits.n_context
        ):
            self.waiting.insert(0, newest := self.members[-1])
            self.leave(newest)
        if self.n_taken + n_cell > limits.n_context:
            self.forget_shared()
        self._join(member, self._n_cell(member))

    def _join(self, member: T, n_cell: int) -> T:
        source, n, n_equal_most = self._source(member.tokens)
        is_new = n == 0 and n_equal_most >= COMMON_TOKENS_MIN
        member.common = n_equal_most if is_new else 0
        self._drop_idle(n_cell, source, n)
        member.n_wanted, member.n_cell, member.n_gone = len(member.tokens), n_cell, 0
        has_image = bool(member.images) and n_before_image(member.tokens[:n]) < n
        member.place, member.n_done = self._place(source, n, has_image=has_image)
        if not is_new and self.limits.checkpoints:
            member.common = self._free_end(member)
        self.images.update(member.images)
        if member.precedes:
            self.members.insert(0, member)  # the last ones make room
            self.precedence.begin()
        else:
            self.members.append(member)
        if member.precedes or self._newest is None or not self._newest.precedes:
            self._newest = member
        if member.precedes or member is self.leader:
            self.leader = None
        member.n_joined += 1
        self._joined.append(member)
        member.number = 0 if len(self.members) == 1 else self.next_number()
        self.n_alone += not member.number
        self.owners[member.place] = member.owner
        if member.n_done and self.moved:
            self.moved.add(member.place)
        else:
            self.moved.discard(member.place)
        return member

    def unpaid(self) -> int:
        """Return the tokens that were computed for the request that has just joined, and others."""
        n, self._n_unpaid = self._n_unpaid, 0
        return n

    def leave(self, member: T, *, frees: bool = False) -> None:
        """Take a request from those who are answered or wait. frees: its cells are needed."""
        if member not in self.members:
            (self.urgent if member in self.urgent else self.waiting).remove(member)
            return
        self.members.remove(member)
        if not self.limits.shares:
            self._close_gap(member)
            return
        if self.limits.keeps and not (frees or member.n_gone):
            self.idle[member.place] = member.computed
        else:
            self._memory.forget_from(0, member.place)
        member.n_gone = 0

    def lead(self) -> T | None:
        """Choose the leader: a person's answer, or the first. Return it if it is another one."""
        if self.leader in self.members:
            return None
        self.leader = next((m for m in self.members if m.precedes), self.members[0])
        return self.leader

    def room(self, member: T) -> int:
        """Return the cells that a request that has joined could have now."""
        return self.limits.n_context - (self.n_taken - member.n_cell + self._n_idle)

    def _close_gap(self, member: T) -> None:
        """Let the last stream take the place of one that has left: streams follow each other."""
        last = max(self.members, key=lambda m: m.place, default=member)
        gone = member.place
        if last.place > gone:
            self._memory.forget_from(0, gone)
            if last.n_done:
                self._memory.copy_sequence(last.place, gone, last.n_done)
            last.place, gone = gone, last.place
            self.owners[last.place] = last.owner
        self._memory.forget_from(0, gone)

    def begin_again(self) -> None:
        """Let all requests wait: the context is empty."""
        self.idle, self.shared, self._n_unpaid = {}, [], 0
        self.drop_guesses()
        for member in self.members:
            member.n_done = member.n_gone = 0
        self.waiting, self.members = self.members + self.waiting, []

    def take_back(self, plan: PassPlan[T]) -> None:
        """Go back behind a pass that was not computed as a whole.

        Recurrent states go back to a checkpoint, and the tokens behind it are read again. Where
        nothing can go back, all is read again. Nothing is left of a beginning to be shared.
        """
        shared = self.limits.n_sequence
        places = {s: 0 if s == shared else n for s, n in plan.begins.items()}
        if not self._memory.n_checkpoint:
            if not all([self._memory.forget_from(n, s) for s, n in places.items()]):
                self.clear()
        else:
            for sequence, position in places.items():
                n = self._memory.take_back(position, sequence)
                if sequence in self.idle:
                    self.idle[sequence] = self.idle[sequence][:n]
                for member in self.members:
                    if member.place == sequence:
                        member.n_done, member.n_wanted = n, len(member.tokens)
        self.drop_guesses()

    # Cells.

    @property
    def n_taken(self) -> int:
        """The cells of the context that are reserved."""
        return len(self.shared) + sum(member.n_cell for member in self.members)

    @property
    def _n_idle(self) -> int:
        """The cells that idle sequences take."""
        return sum([n_place(tokens, self.images) for tokens in self.idle.values()])

    @property
    def _n_all(self) -> int:
        """The cells that one request may have."""
        return min(self.limits.n_context - len(self.shared), self.limits.n_longest)

    def _n_cell(self, member: T) -> int:
        """Return the cells that a request needs at first. Every one may have the whole context."""
        n_now = len(member.tokens) + member.n_extra
        n_all, n_least = self._n_all, min(n_now + 1, self.limits.n_longest)
        if (most := n_seen(self.limits.attends)) is not None and not member.images:
            n_all, n_least = min(n_all, most), min(n_least, most)
        if member.max_tokens < 0:
            return max(n_all // self.limits.n_sequence, n_least)
        return max(min(n_now + member.max_tokens - member.n_token, n_all), n_least)

    def is_full(self, member: T) -> bool:
        """Return whether a request has no cell or position for another token, and gets none.

        Where no cell is free, those who joined last wait until there is room again.
        """
        n_longest, n_done = self.limits.n_longest, member.n_done + member.n_extra
        if n_done - member.n_gone < member.n_cell and n_done < n_longest:
            return False
        is_alone = len(self.members) == 1
        if is_alone and member.n_cell >= self._n_all:
            self.forget_shared()
        if n_done >= n_longest or (member.n_cell >= self._n_all and is_alone):
            return True
        while (n_free := self.limits.n_context - self.n_taken) < 1:
            self.waiting.insert(0, newest := self.members[-1])
            self.leave(newest, frees=True)
            if newest is member:
                return False
        n = min(max(self.limits.n_context // self.limits.n_sequence, 1), n_free)
        self._drop_idle(n)
        member.n_cell += n
        return False

    def _drop_idle(self, n_cell: int, source: int = -1, n: int = 0) -> None:
        """Forget idle sequences until there are free cells.

        source: the last one to go; its first n tokens are used again, in cells that are among
        these.
        """
        room = self.limits.n_context - self.n_taken - n_cell
        if n and len(self.idle.get(source, ())) == n:  # the cells are taken with it
            room += n_place(self.idle[source], self.images)
        for sequence in sorted(self.idle, key=lambda s: s == source):
            if self._n_idle <= room:
                return
            if sequence == source and n and self._cut(sequence, n):
                self.idle[sequence] = self.idle[sequence][:n]
            else:
                self._memory.forget_from(0, sequence)
                del self.idle[sequence]

    def forget_shared(self) -> None:
        """Forget the beginning that prompts shared."""
        if self.shared:
            self._memory.forget_from(0, self.limits.n_sequence)
        self.shared = []

    # The contents of the context.

    def _source(self, prompt: Sequence[int]) -> tuple[int, int, int]:
        """Return the sequence that holds most of a prompt, and how many tokens; -1 if none does.

        The last number is that of the tokens up to which a checkpoint would reach.
        """
        limits, idle = self.limits, self.idle
        if not limits.shares:
            return -1, 0, 0
        tokens_of = {m.place: m.computed for m in self.members if not m.n_gone} | idle
        if self.shared:
            tokens_of[limits.n_sequence] = self.shared
        equal = {s: _n_whole(prompt, n_equal(t, prompt[:-1])) for s, t in tokens_of.items()}
        n_most = max(equal.values(), default=0)
        equal = {s: self._n_reachable(s, n) for s, n in equal.items() if n}
        equal = {s: n for s, n in equal.items() if n}
        source = max(equal, key=lambda s: equal[s], default=-1)
        return source, equal.get(source, 0), n_most

    def _n_reachable(self, sequence: int, n: int) -> int:
        """Return the most of its first n tokens that a sequence can go back to."""
        if n == len(self.idle.get(sequence, ())):
            return n
        return self._memory.reachable(sequence, n)

    def _is_branch(self, source: int, n: int) -> bool:
        """Return whether a sequence stays for its later checkpoints, as there is another one."""
        has_room = len(self.members) + len(self.idle) < self.limits.n_sequence
        return has_room and n < max(self._memory.saved(source), default=0)

    def _cut(self, sequence: int, n: int) -> bool:
        """Let an idle sequence have its first n tokens only. Where that fails, it has none."""
        if n < len(self.idle[sequence]):
            return self._memory.go_back(n, sequence)
        return self._memory.forget_from(n, sequence)

    def _place(self, source: int, n: int, *, has_image: bool) -> tuple[int, int]:
        """Return a sequence for a prompt, and how many of its tokens it holds.

        source, n: the sequence with the beginning of the prompt, which has an image or not.
        """
        limits, idle = self.limits, self.idle
        goes_back = n > 0 and limits.cuts_batches and not self._is_branch(source, n)
        if source in idle and (n == len(idle[source]) or goes_back):
            is_held = n == len(idle[source]) or self._cut(source, n)
            del idle[source]
            return source, n if is_held else 0
        taken = {member.place for member in self.members}
        unused = (s for s in range(limits.n_sequence) if s not in taken and s not in idle)
        target = next(unused, -1)
        if target < 0:
            target = next(iter(idle))
            del idle[target]
            if target == source and n:
                return target, n if self._memory.go_back(n, target) else 0
        self._memory.forget_from(0, target)
        is_held = source in taken or source in idle or source == limits.n_sequence
        is_long = n >= SHARED_TOKENS_MIN or has_image
        if not is_held or not is_long:
            return target, 0
        is_copied = self._memory.copy_sequence(source, target, n)
        if not is_copied or (limits.cuts_batches and not self._memory.go_back(n, target)):
            return target, 0
        return target, n

    def beginning(self) -> tuple[list[int], int]:
        """Return the beginning to be shared by the prompts that wait, and how much of it is held.

        Compute the rest of it in the sequence n_sequence, then call share(). It is empty where
        there is none, or where the one before serves these prompts, too.
        """
        prompts, limits = [member.tokens for member in self.waiting], self.limits
        if not limits.shares or not prompts or self.members:
            return [], 0
        n = min(n_equal(prompts[0], prompt[:-1]) for prompt in prompts)
        n = n_before_image(prompts[0][:n])
        if n_equal(self.shared, prompts[0]) == len(self.shared) >= SHARED_TOKENS_MIN:
            return [], 0
        self.forget_shared()
        if len(prompts) < 2 or n < SHARED_TOKENS_MIN or limits.cuts_batches:
            return [], 0
        equal = {s: min(n_equal(tokens, prompts[0]), n) for s, tokens in self.idle.items()}
        reachable = {s: self._n_reachable(s, n) for s, n in equal.items()}
        source = max(reachable, key=lambda s: reachable[s], default=-1)
        self._drop_idle(n, source)
        n_done = reachable[source] if source in self.idle else 0
        if n_done and not self._memory.copy_sequence(source, limits.n_sequence, n_done):
            n_done = 0
        if n_done and self.moved:
            self.moved.add(limits.n_sequence)
        return prompts[0][:n], n_done

    def share(self, tokens: list[int], n_done: int) -> None:
        """Note that a beginning is computed, n_done of its tokens for another request."""
        self.shared, self._n_unpaid = tokens, len(tokens) - n_done

    # Passes.

    def plan(self, guess: Guess[T] | None = None) -> PassPlan[T]:
        """Return the plan of the next pass. REQUIRES: there are members.

        guess: of tokens that are computed behind those of one answer, where no prompt is read.
        """
        joined: Sequence[tuple[T, int]] = ()
        if self._joined:
            joined = [(m, m.n_done) for m in self._joined if m in self.members]
            self._joined = []
        if guess is None and len(self.members) == 1 and not self.members[0].n_unread:
            only = self.members[0]
            rows = [Row(only.tokens[only.n_done], only.n_done, only.place, True)]
            numbers = (only.number,) if only.number else ()
            return PassPlan(rows, [only], None, numbers, 0, None, 0, 1, only.precedes, joined)
        own = [m for m in self.members if m.precedes]
        is_beside = bool(own) and not any([m.n_unread for m in own])
        rows, owners = self._rows(guess)
        first, n_row = owners[0], len(rows)
        if not rows:
            n, token = first.n_done, first.tokens[first.n_done]
            rows, image = [Row(token, n, first.place, True)], first.images[token]
            n_row = image.n_token
            return PassPlan(rows, owners, image, (), n_row, None, 0, 0, is_beside, joined)
        n_of_prompt = sum([m.n_unread > 0 for m in owners])
        drafting = next((m for m in owners if m.drafted), None) if n_row > 1 else None
        is_only = len(self.members) == 1 and not first.number and drafting is None
        return PassPlan(
            rows, owners, None, () if is_only else [m.number for m in owners], n_of_prompt,
            drafting, len(drafting.drafted) if drafting is not None else 0,
            0 if n_of_prompt or drafting is not None else n_row, is_beside, joined,
        )  # fmt: skip

    def pieces(self, tokens: list[int], n_done: int) -> Iterator[PassPlan[T]]:
        """Yield the plans that compute a beginning() to be shared."""
        n_step, number = self.limits.n_ubatch, self.next_number()
        for begin in range(n_done, len(tokens), n_step):
            places = range(begin, min(begin + n_step, len(tokens)))
            rows = [Row(tokens[i], i, self.limits.n_sequence, i == places[-1]) for i in places]
            yield PassPlan(rows, (), None, [number] * len(rows), len(rows))

    def _rows(self, guess: Guess[T] | None = None) -> tuple[list[Row], list[T]]:
        """Return the rows of the next pass and the member of each. Those with logits come last.

        Without rows, the next image of the only member is to be computed.
        """
        if not self.limits.shares:
            return self._rows_of_streams()
        limits = self.limits
        running, fresh, n_most = self._present()
        if fresh and limits.cuts_batches:
            running, fresh = [], fresh[:1]
        goes_back = limits.n_back or limits.holds or not limits.cuts_batches
        can_go_back = goes_back and not limits.attends[1]
        has_tokens = bool(running) or any(m.tokens[m.n_done] >= 0 for m in fresh)
        if fresh and (member := self._at_image(fresh, has_tokens=has_tokens)) is not None:
            return [], [member]
        if guess is not None and not fresh and can_go_back:
            self._draft(running, guess)
        room = min(limits.n_ubatch - len(running), n_most)
        rows: list[tuple[Row, T]] = []
        last: list[tuple[Row, T]] = []
        for member in fresh:
            n = min(member.n_unread, room, limits.attends[1] or room)
            if member.images:
                n = n_before_image(member.tokens[member.n_done : member.n_done + n])
            n = min([n, *(end - member.n_done for end in self._ends(member))])
            room -= n
            for i in range(member.n_done, member.n_done + n):
                is_last = i == member.n_wanted - 1
                of = last if is_last else rows
                of.append((Row(member.tokens[i], i, member.place, is_last), member))
        for member in running:
            n, place = member.n_done, member.place
            last.append((Row(member.tokens[n], n, place, True), member))
            for i, token in enumerate(member.drafted, n + 1):
                last.append((Row(token, i, place, True), member))
        if not last:  # a pass has logits; nobody reads these
            row, member = rows.pop()
            last.append((replace(row, has_logits=True), member))
        rows += last
        return [row for row, _ in rows], [member for _, member in rows]

    def _at_image(self, fresh: Sequence[T], *, has_tokens: bool) -> T | None:
        """Return a member whose image is computed next, or None if a pass with tokens is.

        has_tokens: there is such a pass. The two take turns, so that nobody waits for more than one
        image.
        """
        at_image = [m for m in fresh if m.tokens[m.n_done] < 0]
        self._was_image = bool(at_image) and not (has_tokens and self._was_image)
        return at_image[0] if self._was_image else None

    def _ends(self, member: T) -> list[int]:
        """Return the positions of a prompt at which a pass has yet to end, for a checkpoint.

        A window that is still there needs none.
        """
        if not (self.limits.checkpoints and self.limits.cuts_batches):
            return []
        least = max(member.n_done + 1, SHARED_TOKENS_MIN)
        return [end for end in (member.common, member.border) if end >= least]

    def _free_end(self, member: T) -> int:
        """Return where a pass may end for other conversations without one more; 0: nowhere.

        That is behind the opening of a prompt, or at the last end of a full pass before it.
        """
        begin, end, n_most = member.n_done, member.opening, self.limits.n_ubatch
        n_before, n_behind = (-(-n // n_most) for n in (end - begin, member.border - end))
        if n_before + n_behind > -(-(member.border - begin) // n_most):
            end -= (end - begin) % n_most
        return end if end - begin >= COMMON_TOKENS_MIN and end < member.border else 0

    def _save(self, member: T) -> None:
        """Save checkpoints of what later prompts may begin with, if the context holds just that.

        Windows are saved of a whole prompt.
        """
        if not self.limits.checkpoints:
            return
        for n in (member.common, member.border):
            at = n if self.limits.cuts_batches else member.n_wanted
            if n >= SHARED_TOKENS_MIN and member.n_done == at:
                is_step, is_common = member.is_step and n == member.border, n == member.common
                self._memory.save(member.place, n, is_step=is_step, is_common=is_common)

    def _draft(self, running: Sequence[T], guess: Guess[T]) -> None:
        """Have tokens of one answer guessed, of one that precedes if there is any.

        With one of them in a pass its time says what guesses cost.
        """
        limits = self.limits
        n_row = min(limits.n_output or limits.n_ubatch, limits.n_ubatch) - len(running)
        if limits.cuts_batches and not limits.holds:
            n_row = min(n_row, limits.n_back)
        for member in [m for m in running if m.precedes] or running:
            n_free = min(member.n_cell, limits.n_longest) - member.n_done - member.n_extra
            n_most = min(n_row, n_free - 1)
            if member.max_tokens >= 0:
                n_most = min(n_most, member.max_tokens - member.n_token - 1)
            if n_most > 0 and (drafted := guess(member, len(running), n_most)):
                member.drafted = drafted
                if limits.holds:
                    self._memory.copy_sequence(member.place, limits.n_sequence, member.n_done)
                return

    def drop_guesses(self) -> None:
        """Forget the guesses for a pass that was not completed."""
        for member in self.members:
            member.drafted = []
        if self.limits.holds:
            self._memory.forget_from(0, self.limits.n_sequence)

    def _present(self) -> tuple[list[T], list[T], int]:
        """Return who takes part in the next pass: running answers, prompts, tokens of prompts."""
        running = [m for m in self.members if not m.n_unread]
        fresh = [m for m in self.members if m.n_unread]
        n_most, precedence = self.limits.n_ubatch, self.precedence
        own = [m for m in self.members if m.precedes]
        if not own or len(own) == len(self.members):
            return running, fresh, n_most
        others = [m for m in running if not m.precedes]
        if own_fresh := [m for m in fresh if m.precedes]:
            n_own = min(sum(m.n_unread for m in own_fresh), n_most)
            beside = others[: precedence.n_beside_prompt(n_own)]
            return [m for m in own if m not in own_fresh] + beside, own_fresh, n_most
        fresh = fresh[:1]
        n_piece = min([precedence.n_piece] + [m.n_unread for m in fresh])
        n_other = len(others) + n_piece * len(fresh)
        if n_other and precedence.allows(n_other):
            return own + others, fresh, n_piece
        return own, [], n_most

    def _rows_of_streams(self) -> tuple[list[Row], list[T]]:
        """Return as many rows of each of some sequences that follow each other.

        First images and pieces of prompts, but for their last tokens; then a row of every member.
        """
        n_ubatch = self.limits.n_ubatch
        members = sorted(self.members, key=lambda m: m.place)
        fresh = [m for m in members if m.n_unread]
        left = [n_before_image(m.tokens[m.n_done : m.n_wanted - 1]) for m in members]
        begin = next((i for i, n in enumerate(left) if n), 0)
        end = next((i for i in range(begin, len(left)) if not left[i]), len(left))
        if (member := self._at_image(fresh, has_tokens=any(left))) is not None:
            return [], [member]
        if begin < end:
            members = members[begin:end][:n_ubatch]
            n = min(n_ubatch // len(members), *left[begin : begin + len(members)])
            places = [(m, i) for m in members for i in range(m.n_done, m.n_done + n)]
            rows = [Row(m.tokens[i], i, m.place) for m, i in places]
            rows[-1] = replace(rows[-1], has_logits=True)  # a pass has logits; nobody reads these
            return rows, [m for m, _ in places]
        return [Row(m.tokens[m.n_done], m.n_done, m.place, True) for m in members], members

    def computed(self, plan: PassPlan[T]) -> list[tuple[int, T]]:
        """Note that a pass is computed.

        Return the rows whose logits choose next tokens, and their members; -1: the last one. The
        rows of guessed tokens follow; call keep() when tokens are chosen.
        """
        owners = plan.owners
        if plan.image is not None:
            owners[0].n_done += plan.image.n_pos
            self._save(owners[0])
            return [] if owners[0].n_unread else [(-1, owners[0])]
        for member in owners:
            member.n_done += 1
        for member in dict.fromkeys(owners) if self.limits.checkpoints else ():
            self._save(member)
        if len(owners) == 1:
            return [] if owners[0].n_unread else [(0, owners[0])]
        last = {id(member): i for i, member in enumerate(owners)}
        members = ((i, owners[i]) for i in sorted(last.values()))
        return [(i - len(m.drafted), m) for i, m in members if not m.n_unread]

    def keep(self, member: T, n_right: int) -> None:
        """Forget guessed tokens that were wrong. n_right: those before them.

        Where a state from before the guesses is held, the right ones are to be computed again.
        """
        n_guessed, member.drafted = len(member.drafted), []
        holds = self.limits.holds
        if n_right < n_guessed and holds:
            member.n_done -= 1 + n_guessed
            member.n_wanted = len(member.tokens)
            self._memory.forget_from(0, member.place)
            self._memory.copy_sequence(self.limits.n_sequence, member.place, member.n_done)
        elif n_right < n_guessed:
            member.n_done -= n_guessed - n_right
            self._memory.forget_from(member.n_done, member.place)
        if n_guessed and holds:
            self._memory.forget_from(0, self.limits.n_sequence)

    def observe(self, plan: PassPlan[T], took_s: float) -> None:
        """Observe the time of a pass that `is_beside`."""
        n_own = len({id(m) for m in plan.owners if m.precedes})
        n_other = sum(not m.precedes for m in plan.owners)
        if plan.image is not None:
            n_other *= plan.image.n_token
        self.precedence.observe(n_own, n_other, plan.n_of_prompt, took_s)


def n_before_image(tokens: Sequence[int]) -> int:
    """Return the number of tokens before the first image."""
    return next((i for i, token in enumerate(tokens) if token < 0), len(tokens))


def _n_whole(tokens: Sequence[int], n: int) -> int:
    """Return at most n tokens of a prompt, of which the last is not within an image."""
    while 0 < n < len(tokens) and tokens[n - 1] == tokens[n] < 0:
        n -= 1
    return n


def n_seen(attends: tuple[int, int]) -> int | None:
    """Return the cells that a request with sparse attention needs at most; None if it sees all.

    A piece of a prompt is no longer than the span that later tokens attend to.
    """
    n_first, n_last = attends
    return n_first + 2 * n_last if n_last else None
