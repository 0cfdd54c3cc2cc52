"""How the tokens in a context were computed: by which passes.

The last bits of keys and values depend on the passes that computed them, and a state on the drive
outlives the context. So a state has the passes of its tokens beside it, and stock llama.cpp can
compute it again.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Made = Mapping[str, Any]
"""The passes that computed a part of a sequence, as JSON: `passes` is a list of [begin, width,
tokens], passes of `width` tokens each that follow each other from position `begin` on; the last one
may have fewer. `context` has the parameters of the context. Empty where this is not known."""
UNKNOWN: Made = {}


@dataclass(frozen=True)
class Step:
    """A pass over tokens of one sequence. Without tokens: it was computed beside other sequences.

    Later steps may begin before its end: its last tokens were forgotten then.
    """

    begin: int
    tokens: tuple[int, ...] = ()


class Past:
    """The passes of each sequence of a context, without those that were forgotten as a whole."""

    def __init__(self) -> None:
        self._steps: dict[int, list[Step]] = {}

    def add(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add a pass with rows of (token, position, sequence). A token -1 is not known."""
        begins: dict[int, int] = {}
        tokens: dict[int, list[int]] = {}
        for token, position, sequence in rows:
            begins.setdefault(sequence, position)
            tokens.setdefault(sequence, []).append(token)
        for sequence, begin in begins.items():
            is_known = len(begins) == 1 and self._is_alone(sequence) and -1 not in tokens[sequence]
            step = Step(begin, tuple(tokens[sequence]) if is_known else ())
            self._steps.setdefault(sequence, []).append(step)

    def _is_alone(self, sequence: int) -> bool:
        """Return whether the context has no cells but those of a sequence.

        A copy of its beginning shares them: sequences that were computed beside each other have
        steps without tokens.
        """
        own = self._steps.get(sequence, [])
        others = (steps for number, steps in self._steps.items() if number != sequence)
        return all(
            own[: len(steps)] == steps and all(step.tokens for step in steps) for steps in others
        )

    def remove(self, sequence: int, begin: int, end: int) -> None:
        """Remove positions, as llama_memory_seq_rm."""
        for number in list(self._steps) if sequence < 0 else [sequence]:
            steps = self._steps.get(number, [])
            if end >= 0 and steps:
                steps = [Step(0)]  # the rest has a gap
            elif end < 0:
                steps = before_of(steps, begin)
            self._set(number, steps)

    def copy(self, source: int, target: int, end: int) -> None:
        """Let a sequence have the past of another one up to a position; negative: the whole.

        A sequence without a past has only the parts that restore() adds.
        """
        if steps := self._steps.get(source, []):
            self._set(target, before_of(steps, end) if end >= 0 else list(steps))

    def clear(self) -> None:
        """Forget all sequences."""
        self._steps.clear()

    def restore(self, sequence: int, begin: int, steps: Sequence[Step]) -> bool:
        """Add a part that was read, from a position on. Return whether its past is known.

        steps: the passes up to its end. They must include the passes of the part before it.
        """
        before = self.steps(sequence, begin)
        is_known = bool(steps) and all(step.tokens for step in steps)
        is_known = is_known and before == before_of(steps, begin)
        self._set(sequence, list(steps) if is_known else [*before, Step(begin)])
        return is_known

    def steps(self, sequence: int, end: int) -> list[Step]:
        """Return the passes that computed the positions of a sequence before `end`."""
        return before_of(self._steps.get(sequence, []), end)

    def made(self, sequence: int, begin: int, end: int, context: Mapping[str, Any]) -> Made:
        """Return how these positions were computed. context: its parameters."""
        steps = self.steps(sequence, end)
        ends = [step.begin for step in steps[1:]] + [end]
        part = [step for step, last in zip(steps, ends, strict=True) if last > begin]
        if not part or part[0].begin > begin or not all(step.tokens for step in part):
            return UNKNOWN
        return {"context": context, "passes": _packed(part)}

    def _set(self, sequence: int, steps: list[Step]) -> None:
        if steps:
            self._steps[sequence] = steps
        else:
            self._steps.pop(sequence, None)


def _packed(steps: Sequence[Step]) -> list[list[Any]]:
    """Return steps as Made has them."""
    found: list[list[Any]] = []
    for step in steps:
        if found:
            begin, width, tokens = found[-1]
            is_full = len(tokens) % width == 0
            if is_full and step.begin == begin + len(tokens) and len(step.tokens) <= width:
                tokens += step.tokens
                continue
        found.append([step.begin, len(step.tokens), list(step.tokens)])
    return found


def steps_of(made: Made, begin: int) -> list[Step]:
    """Return the passes of a part that begins at a position. Raises ValueError if it is damaged."""
    if not made:
        return [Step(begin)]
    try:
        steps = [
            Step(first + i, tuple(tokens[i : i + width]))
            for first, width, tokens in made["passes"]
            for i in range(0, len(tokens), width)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("no passes") from error
    if not steps:
        raise ValueError("no passes")
    return steps


def before_of(steps: Sequence[Step], position: int) -> list[Step]:
    """Return those of some passes, in order, that begin before a position."""
    return list(steps[: bisect.bisect_left(steps, position, key=lambda step: step.begin)])


def joined_steps(parts: Iterable[tuple[int, Made]]) -> list[Step]:
    """Return the passes of parts that follow each other, given as (begin, made)."""
    found: list[Step] = []
    for begin, made in parts:
        steps = steps_of(made, begin)
        del found[len(before_of(found, steps[0].begin)) :]
        found += steps
    return found
