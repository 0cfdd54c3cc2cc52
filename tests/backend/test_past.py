"""The passes that computed a sequence: kept beside a state, they give its tokens again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.llama.past import UNKNOWN, Past, joined_steps, steps_of

CONTEXT = {"n_threads": 2}
# A pass of so many tokens behind so many of those that are there; the rest is forgotten before.
OPERATIONS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=12)


def add(past: Past, sequence: int, begin: int, tokens: list[int]) -> None:
    past.add((token, begin + i, sequence) for i, token in enumerate(tokens))


def text_of(steps: object) -> list[int]:
    """Return the tokens that a context holds after these passes."""
    tokens: list[int] = []
    for step in steps:  # type: ignore[attr-defined]
        assert step.begin <= len(tokens)
        tokens[step.begin :] = step.tokens
    return tokens


@given(OPERATIONS, st.integers(1, 20))
def test_pieces_name_the_passes_that_give_their_tokens(
    operations: list[tuple[float, int]], n_piece: int
) -> None:
    past, tokens, number = Past(), list[int](), 0
    for share, n in operations:
        kept = len(tokens) if share > 0.5 else int(2 * share * len(tokens))
        if kept < len(tokens):
            past.remove(0, kept, -1)
        new = list(range(number, number + n))
        number += n
        add(past, 0, kept, new)
        tokens[kept:] = new
    begins = range(0, len(tokens), n_piece)
    parts = [
        (begin, past.made(0, begin, min(begin + n_piece, len(tokens)), CONTEXT)) for begin in begins
    ]
    parts = json.loads(json.dumps(parts))
    assert text_of(joined_steps((begin, made) for begin, made in parts))[: len(tokens)] == tokens
    # Read into another context piece by piece, the past is the same there.
    other, chain = Past(), joined_steps((begin, made) for begin, made in parts)
    for begin, _ in parts:
        end = min(begin + n_piece, len(tokens))
        assert other.restore(0, begin, [step for step in chain if step.begin < end])
    assert [other.made(0, b, min(b + n_piece, len(tokens)), CONTEXT) for b in begins] == [
        made for _, made in parts
    ]


def test_what_was_computed_beside_others_is_not_known() -> None:
    past = Past()
    add(past, 0, 0, [1, 2, 3])
    assert past.made(0, 0, 3, CONTEXT) == {"context": CONTEXT, "passes": [[0, 3, [1, 2, 3]]]}
    add(past, 1, 0, [1, 2])  # the first one is in the context
    assert past.made(1, 0, 2, CONTEXT) == UNKNOWN
    past.add([(4, 3, 0), (5, 2, 1)])
    assert past.made(0, 0, 3, CONTEXT) != UNKNOWN == past.made(0, 3, 4, CONTEXT)
    past.remove(1, 0, -1)
    add(past, 0, 4, [6])
    assert past.made(0, 4, 5, CONTEXT) == {"context": CONTEXT, "passes": [[4, 1, [6]]]}
    past.remove(0, 1, 2)  # from the middle
    assert past.made(0, 0, 1, CONTEXT) == UNKNOWN


def test_a_copy_has_the_past_of_its_beginning() -> None:
    past = Past()
    add(past, 0, 0, [1, 2, 3])
    add(past, 0, 3, [4])
    past.copy(0, 2, 3)
    assert past.made(2, 0, 3, CONTEXT) == past.made(0, 0, 3, CONTEXT) != UNKNOWN
    assert past.steps(2, 9) == past.steps(0, 3)
    add(past, 0, 4, [5])  # the copy has no cells of its own
    assert past.made(0, 4, 5, CONTEXT) == {"context": CONTEXT, "passes": [[4, 1, [5]]]}
    add(past, 2, 3, [4])
    assert past.made(2, 3, 4, CONTEXT) == UNKNOWN
    add(past, 0, 5, [6])
    assert past.made(0, 5, 6, CONTEXT) == UNKNOWN


def test_another_past_before_a_piece_makes_it_unknown() -> None:
    """Its keys and values were computed from others."""
    past, other = Past(), Past()
    add(past, 0, 0, [1, 2, 3, 4])
    chain = past.steps(0, 4)
    for begin, tokens in ((0, [1, 2]), (2, [3])):
        add(other, 0, begin, tokens)
    other.remove(0, 2, -1)
    assert not other.restore(0, 2, chain)
    assert other.made(0, 2, 4, CONTEXT) == UNKNOWN


@pytest.mark.parametrize(
    "passes", [None, 3, [], [[0]], [["x", 1, [1]]], [[0, 0, [1]]], [[0, 1, 5]]]
)
def test_damaged_passes_are_refused(passes: object) -> None:
    with pytest.raises(ValueError, match="no passes"):
        steps_of({"passes": passes}, 0)
