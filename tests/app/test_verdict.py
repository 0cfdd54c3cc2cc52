"""The line in words says what follows from the numbers, and nothing else."""

from dataclasses import replace

from window_samples import ANSWER, CACHE, GIB, MODEL

from app.answer_footer import footer
from app.engine import verdict
from app.facts import CacheFacts, ModelFacts, SlotRange, Statistics


def words(model: ModelFacts | None, cache: CacheFacts | None, stats: Statistics | None,
          free: int = 0) -> str:  # fmt: skip
    return verdict.sentence(model, cache, stats, free).replace("\u00a0", " ")


def test_waiting_is_named_with_what_it_cost() -> None:
    text = words(MODEL, CACHE, ANSWER)
    assert text == (
        "21 % of this answer went to waiting for the disk; "
        "without it, it would have been 1.3 times as fast."
    )


def test_free_memory_is_offered_only_where_it_is() -> None:
    assert "All experts would fit" in words(MODEL, CACHE, ANSWER, 40 * GIB)
    assert "A larger cache waits less; 9.0 GiB" in words(MODEL, CACHE, ANSWER, 9 * GIB)
    assert "larger cache" not in words(MODEL, CACHE, ANSWER, GIB // 10)


def test_an_answer_without_waiting_needs_no_advice() -> None:
    text = words(MODEL, CACHE, replace(ANSWER, stall_s=0.1), 40 * GIB)
    assert "change little" in text and "92 % of this answer was computing" in text


def test_models_without_a_cache() -> None:
    plain = replace(CACHE, mode="plain", reason="The architecture x cannot be cached.", rate=1.0)
    assert words(MODEL, plain, ANSWER) == "The architecture x cannot be cached."
    whole = replace(plain, asked_rate=1.0)
    assert words(MODEL, whole, ANSWER).startswith("Every expert is in memory")
    dense = replace(MODEL, is_moe=False)
    assert words(dense, replace(plain, reason=""), ANSWER).startswith("This model has no experts")
    assert words(None, None, None) == ""


def test_the_line_under_an_answer() -> None:
    text = footer(ANSWER).replace("\u00a0", " ")
    assert text == "19.4 token/s · first token 0.8 s · 212 tokens · stall 21 %"
    assert "262 tokens" in footer(ANSWER, 50).replace("\u00a0", " ")
    assert "token/s" not in footer(Statistics())


def test_slots_and_rates_agree_for_every_model() -> None:
    for n_expert in range(1, 600):
        slots = SlotRange(1, n_expert, 1)
        for n_slot in range(1, n_expert + 1):
            rate = slots.rate(n_slot)
            assert rate <= 1 and int(rate * n_expert) == n_slot == slots.n_slot(rate)


def test_the_smallest_choice_is_what_one_token_needs() -> None:
    slots = SlotRange.of(MODEL, CACHE)
    assert (slots.n_slot_min, slots.n_expert) == (8, 128)
    assert slots.bytes_per_slot * 128 == MODEL.expert_bytes_total
    assert slots.n_slot(0.0) == 8
