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
