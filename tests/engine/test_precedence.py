"""The share of its speed that a person's answer keeps beside others, with made-up times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backend.engine.precedence import SPEED_KEPT, Precedence

ALONE_S = 0.05


def run(
    time_s: Callable[[int], float], n_running: int, n_prompt: int = 0, n_token: int = 400
) -> tuple[float, int, int]:
    """Return the speed kept, and the tokens of others' answers and prompts.

    time_s: of a pass with one token of the person's answer and so many of others.
    """
    precedence = Precedence()
    took_s, n_answer, n_read = 0.0, 0, 0
    for _ in range(n_token):
        n_piece = min(precedence.n_piece, n_prompt - n_read)
        n = n_running + n_piece
        if not n or not precedence.allows(n):
            n = n_piece = 0
        precedence.observe(1, n, n_piece, time_s(n))
        took_s += time_s(n)
        n_read += n_piece
        n_answer += n_running if n else 0
    return n_token * time_s(0) / took_s, n_answer, n_read


@pytest.mark.parametrize("exponent", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("n_running", [1, 3, 7])
def test_an_answer_keeps_its_share(exponent: float, n_running: int) -> None:
    """Passes share experts more or less: n tokens take n ** exponent times as long."""
    kept, n_answer, _ = run(lambda n: ALONE_S * (1 + n) ** exponent, n_running)
    assert SPEED_KEPT <= kept < 0.9
    assert n_answer > 20


def test_free_company_is_always_welcome() -> None:
    kept, n_answer, _ = run(lambda _: ALONE_S, 3)
    assert kept == pytest.approx(1.0) and n_answer > 3 * 0.85 * 400


def test_prompts_are_read_in_pieces_that_grow() -> None:
    def time_s(n: int) -> float:
        return ALONE_S * (1 + n) ** 0.5

    kept, _, n_read = run(time_s, 0, n_prompt=100_000, n_token=2000)
    assert kept >= SPEED_KEPT
    assert n_read > 8 * 2000 * (1 / SPEED_KEPT - 1) / (9**0.5 - 1)  # more than with the first size


def test_a_long_prompt_stops_the_text_for_a_moment_only() -> None:
    longest_s = 0.0

    def time_s(n: int) -> float:
        nonlocal longest_s
        took_s = ALONE_S * (1 + n / 2)
        longest_s = max(longest_s, took_s)
        return took_s

    run(time_s, 2, n_prompt=100_000, n_token=4000)
    assert longest_s < 1.0


def test_nothing_is_granted_before_it_is_known_what_a_token_takes() -> None:
    precedence = Precedence()
    allowed = []
    for _ in range(20):
        allowed.append(precedence.allows(1))
        precedence.observe(1, 0, 0, ALONE_S)
    assert not any(allowed[:5]) and allowed[-1]
    precedence.begin()
    assert not precedence.allows(1)


def test_what_others_slow_down_later_is_charged_to_them() -> None:
    """The pass behind theirs is slower, too: they have evicted experts, or text to split."""
    precedence, took_s, behind = Precedence(), 0.0, False
    for _ in range(1000):
        joins = precedence.allows(2)
        pass_s = ALONE_S * (2 if joins else 1.5 if behind else 1)
        precedence.observe(1, 2 if joins else 0, 0, pass_s)
        took_s, behind = took_s + pass_s, joins
    assert SPEED_KEPT <= 1000 * ALONE_S / took_s < 0.9


def joins(
    precedence: Precedence, n: int, n_other: int = 1, pass_s: Callable[[bool], float] | None = None
) -> list[bool]:
    """Compute `n` tokens of an answer. Return for each if others' tokens went beside it."""
    found = []
    for _ in range(n):
        found.append(precedence.allows(n_other))
        took_s = pass_s(found[-1]) if pass_s else ALONE_S
        precedence.observe(1, n_other if found[-1] else 0, 0, took_s)
    return found


def test_others_begin_after_two_slow_passes_and_as_soon_as_one_token_is_granted() -> None:
    """A token unknown so far may take a pass; 0.15 / 0.85 of a pass is granted by each."""
    assert joins(Precedence(), 12).index(True) == 2 + 6


def test_what_slows_passes_down_that_is_expected_is_no_pass_alone() -> None:
    """It is charged to others. An unexpected delay is not."""
    firsts = []
    for is_expected in (True, False):
        precedence = Precedence()
        joins(precedence, 7)
        if is_expected:
            precedence.disturb()
        joins(precedence, 2, n_other=10**6, pass_s=lambda _: 10 * ALONE_S)
        firsts.append(joins(precedence, 200).index(True))
    assert firsts[0] > 100 and firsts[1] < 3


def test_a_pass_alone_is_measured_again_after_32_tokens() -> None:
    """The two passes behind others' are slower, so the third is measured."""
    text = "".join(" x"[j] for j in joins(Precedence(), 8 + 2 * 35))
    assert text == " " * 8 + 2 * ("x" * 32 + " " * 3)


def test_a_long_time_alone_grants_one_pass_to_others() -> None:
    precedence = Precedence()
    for _ in range(1000):
        precedence.observe(1, 0, 0, ALONE_S)
    found = joins(precedence, 12, pass_s=lambda is_joined: ALONE_S * (1 + is_joined))
    assert found[0] and not any(found[1:6])


def test_what_more_tokens_take_is_guessed_from_fewer() -> None:
    """Twice as many tokens take at most twice as long, or a pass each."""
    precedence = Precedence()
    joins(precedence, 200, pass_s=lambda is_joined: ALONE_S * (1.1 if is_joined else 1))
    assert precedence.allows(4)  # 0.4 of a pass; unknown, it would be four
    fresh = Precedence()
    joins(fresh, 7)
    assert not fresh.allows(4)


def test_an_eighth_of_a_persons_prompt_is_for_others() -> None:
    assert [Precedence.n_beside_prompt(n) for n in (7, 8, 15, 64)] == [0, 1, 1, 8]


def test_text_of_others_is_sent_on_the_same_cores_and_prompts_are_not() -> None:
    quick_s = 0.002
    _, n_answer, _ = run(lambda _: quick_s, 7)
    _, _, n_read = run(lambda _: quick_s, 0, n_prompt=10**6)
    assert 0 < n_answer < 400 < n_read


def test_what_a_pass_alone_takes_is_a_mean_of_what_was_measured() -> None:
    """The first pass of the second answer is much quicker than those that follow."""
    precedence = Precedence()
    joins(precedence, 200, pass_s=lambda is_joined: ALONE_S * (1 + is_joined))
    precedence.begin()
    times_s = iter([ALONE_S / 100] * 3 + [10 * ALONE_S] * 7)
    assert joins(precedence, 8, pass_s=lambda _: next(times_s)).index(True) == 2 + 4


def test_one_slow_pass_with_others_counts_a_fifth_for_the_next() -> None:
    """Nine passes are taken back at 0.15 / 0.85 of a pass each, and 1.8 more are then expected."""
    precedence = Precedence()
    joins(precedence, 30)
    assert joins(precedence, 1, pass_s=lambda _: 10 * ALONE_S) == [True]
    n_pass = joins(precedence, 200).index(True)
    assert 9 / (0.15 / 0.85) < n_pass < 12 / (0.15 / 0.85)


def test_a_piece_of_a_prompt_grows_and_shrinks_by_what_it_takes() -> None:
    precedence, sizes = Precedence(), []
    took_s = {8: 0.2, 16: 0.2, 31: 0.1, 32: 0.3}
    for n, each_s in (*took_s.items(), (32, 0.25), (32, 0.5), (32, 0.6), (16, 0.6), (8, 0.6)):
        precedence.observe(1, n, n, each_s)
        sizes.append(precedence.n_piece)
    assert sizes == [16, 32, 32, 32, 32, 32, 16, 8, 8]
