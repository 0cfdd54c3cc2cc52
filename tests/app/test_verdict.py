"""The line in words below an answer states only what its figures show."""

from dataclasses import replace

from window_samples import ANSWER, CACHE, GIB, MODEL

from app.chat.answer_footer import footer
from app.panel import verdict
from app.state.slot_range import SlotRange
from backend.protocol.statistics import Statistics
from backend.protocol.status import Advice, CacheFacts, ModelFacts, Option


def words(model: ModelFacts | None, cache: CacheFacts | None, stats: Statistics | None,
          advice: Advice | None = None) -> str:  # fmt: skip
    return verdict.sentence(model, cache, stats, advice).replace("\u00a0", " ")


def test_waiting_is_named_with_what_it_cost() -> None:
    text = words(MODEL, CACHE, ANSWER)
    assert text == (
        "21 % of this answer went to waiting for the disk; "
        "without it, it would have been 1.3 times as fast."
    )


def test_an_answer_without_waiting_needs_no_advice() -> None:
    text = words(MODEL, CACHE, replace(ANSWER, stall_s=0.1))
    assert "change little" in text and "92 % of this answer was computing" in text


def test_the_forecast_is_said_with_the_most_helpful_change_first() -> None:
    cache = Option("promoe", 48, 0.375, 6 * GIB, 2.14)
    method = Option("outrider", 32, 0.25, 4 * GIB, 1.22)
    assert words(MODEL, CACHE, ANSWER, Advice(0.87, cache)) == (
        "87 % of the time went to waiting for the disk; a cache of 6.0 GiB instead of 3.8 GiB "
        "would make this about 2.1 times as fast."
    )
    both = words(MODEL, CACHE, ANSWER, Advice(0.87, cache, method))
    assert both.endswith("about 2.1 times as fast, the method outrider about 1.2 times.")
    better = words(MODEL, CACHE, ANSWER, Advice(0.87, cache, replace(method, times=3.0)))
    assert "outrider would make this about 3.0 times as fast, a cache of 6.0 GiB" in better
    alone = words(MODEL, CACHE, ANSWER, Advice(0.5, None, method))
    assert alone.endswith("the method outrider would make this about 1.2 times as fast.")


def test_where_nothing_would_help_that_is_said() -> None:
    assert "no cache that fits" in words(MODEL, CACHE, ANSWER, Advice(0.5))
    assert words(MODEL, CACHE, ANSWER, Advice(0.01)).startswith("Only 1 % of the time")
    without = words(MODEL, CACHE, ANSWER, Advice(0.5, reason="It was too short."))
    assert without == words(MODEL, CACHE, ANSWER)


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
            assert rate <= 1 and slots.n_slot(rate) == n_slot


def test_the_smallest_choice_is_what_one_token_needs() -> None:
    slots = SlotRange.of(MODEL, CACHE)
    assert (slots.n_slot_min, slots.n_expert) == (8, 128)
    assert slots.bytes_per_slot * 128 == MODEL.expert_bytes_total
    assert slots.n_slot(0.0) == 8
