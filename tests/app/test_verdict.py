"""The sentences about an answer state only what its figures show."""

from dataclasses import replace

from window_samples import ANSWER, CACHE, GIB, MODEL

from app.chat.answer_footer import footer
from app.panel import verdict
from app.state.slot_range import SlotRange
from backend.protocol.statistics import Statistics
from backend.protocol.status import Advice, CacheFacts, ModelFacts, Option
from backend.text import text


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def words(model: ModelFacts | None, cache: CacheFacts | None, stats: Statistics | None) -> str:
    return plain(verdict.sentence(model, cache, stats))


def helps(advice: Advice | None) -> str:
    return plain(verdict.what_helps(CACHE, advice))


def test_waiting_is_explained_to_a_newcomer() -> None:
    assert words(MODEL, CACHE, ANSWER) == (
        "This model is larger than the memory it may use, so parts of it are read from the disk "
        "while it answers: waiting for them takes 21 % of the time."
    )
    assert "25 % of its experts are in memory" in words(MODEL, CACHE, None)


def test_an_answer_without_waiting_needs_no_advice() -> None:
    line = words(MODEL, CACHE, replace(ANSWER, stall_s=0.1))
    assert line.startswith("Nearly all the time goes to computing") and "takes 1 %." in line


def test_a_slow_link_is_not_blamed_on_the_disk() -> None:
    cache = replace(CACHE, device="CUDA0")
    copied = replace(ANSWER, bytes_from_host=900, bytes_from_file=100)
    assert "larger than the memory of CUDA0" in words(MODEL, cache, copied)
    assert "read from the disk" in words(MODEL, cache, replace(copied, bytes_from_file=1000))


def test_a_prompt_that_is_read_is_said() -> None:
    line = plain(verdict.sentence(MODEL, CACHE, None, (512, 2048)))
    assert line == "The model reads your question first: 512 of 2,048 tokens so far."


def test_other_causes_are_named() -> None:
    def causes(cache: CacheFacts, stats: Statistics, others: float | None) -> list[str]:
        return [plain(line) for line in verdict.causes(cache, stats, others)]

    assert causes(CACHE, ANSWER, 0.1) == [] == causes(CACHE, ANSWER, None)
    assert causes(CACHE, ANSWER, 0.52) == [
        "Other programs use 52 % of the processor; the answer is faster without them."
    ]
    taken = text("memory.others_need", n=20, all=128, wanted=32)
    assert "Other programs need memory" in causes(replace(CACHE, reason=taken), ANSWER, None)[0]
    warned = replace(CACHE, warnings="no pre-tokenizer\nan odd token\na third\na fourth")
    assert causes(warned, ANSWER, None) == [
        "llama.cpp warns: no pre-tokenizer",
        "llama.cpp warns: an odd token",
        "llama.cpp has 2 more warnings.",
    ]
    token = "control-looking token: 128247 '</s>' was not control-type; this is probably a bug in"
    warned = replace(CACHE, warnings=f"{token} 1\n{token} 2\nan odd token")
    assert causes(warned, ANSWER, None) == [
        "The file does not mark some control signs of its vocabulary as such; llama.cpp does. You "
        "need not do anything.",
        "llama.cpp warns: an odd token",
    ]
    slow = replace(ANSWER, ttft_s=60.0, n_prompt=5000, n_reused=1000)
    assert causes(CACHE, slow, None) == [
        "Reading the question took 60.0 s before the first word, for 4,000 tokens."
    ]


def test_the_forecast_is_said_with_the_most_helpful_change_first() -> None:
    cache = Option("promoe", 48, 0.375, 6 * GIB, 2.14)
    method = Option("outrider", 32, 0.25, 4 * GIB, 1.22)
    assert helps(Advice(0.87, cache)) == (
        "A cache of 6.0 GiB instead of 3.8 GiB would make it about 2.1 times as fast."
    )
    both = helps(Advice(0.87, cache, method))
    assert both.endswith("about 2.1 times as fast, the method outrider about 1.2 times.")
    better = helps(Advice(0.87, cache, replace(method, times=3.0)))
    assert "outrider would make it about 3.0 times as fast, a cache of 6.0 GiB" in better
    alone = helps(Advice(0.5, None, method))
    assert alone == "The method outrider would make it about 1.2 times as fast."


def test_where_nothing_would_help_that_is_said() -> None:
    assert helps(Advice(0.5)).startswith("No cache that fits")
    assert helps(Advice(0.01)).startswith("Neither a larger cache")
    assert helps(Advice(0.5, reason="It was too short.")) == "" == helps(None)


def test_models_without_a_cache() -> None:
    reason = "The architecture x cannot be cached."
    plain = replace(CACHE, mode="plain", reason=reason, rate=1.0, min_rate=1.0)
    without = "llama.cpp runs without the expert cache. "
    assert words(MODEL, plain, ANSWER) == without + reason
    whole = replace(plain, asked_rate=1.0, min_rate=0.0625, reason="")
    assert words(MODEL, whole, ANSWER).startswith("Every expert is in memory")
    dense = replace(MODEL, is_moe=False)
    plain = replace(plain, reason="This model is dense.")
    assert words(dense, plain, ANSWER) == without + "This model is dense."
    assert words(None, None, None) == ""


def test_the_line_under_an_answer() -> None:
    line = plain(footer(ANSWER))
    assert line == "19.4 token/s · first token 0.8 s · 212 tokens · waiting 21 %"
    assert "262 tokens" in footer(ANSWER, 50).replace("\u00a0", " ")
    assert "token/s" not in footer(Statistics())
    assert plain(footer(ANSWER, is_short=True)) == "19.4 token/s · 212 tokens"


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
