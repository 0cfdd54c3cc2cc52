"""The sentences about an answer state only what its figures show."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from window_samples import ANSWER, CACHE, GIB, MODEL

from app.chat.answer_footer import footer
from app.panel import verdict
from app.panel.loading_notes import WORDS, in_words
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
    warned = replace(CACHE, warnings="an odd line\na third\na fourth")
    assert causes(warned, ANSWER, None) == [
        "llama.cpp has 3 more notes on this file; see Diagnostics."
    ]
    token = "control-looking token: 128247 '</s>' was not control-type; this is probably a bug in"
    warned = replace(CACHE, warnings=f"{token} 1\n{token} 2\nan odd line")
    assert causes(warned, ANSWER, None) == [
        "The file does not mark some control signs of its vocabulary as such; llama.cpp does. You "
        "need not do anything.",
        "llama.cpp has a note on this file; see Diagnostics.",
    ]
    slow = replace(ANSWER, ttft_s=60.0, n_prompt=5000, n_reused=1000)
    assert causes(CACHE, slow, None) == [
        "Reading the question took 60.0 s before the first word, for 4,000 tokens."
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("n_ctx_seq (4096) > n_ctx_train (2048) -- possible training context overflow", "longer"),
        ("n_ctx_seq (512) < n_ctx_train (2048) -- the full capacity of the model will not be "
         "utilized", "for a longer context"),
        ("special_eos_id is not in special_eog_ids - the tokenizer config may be incorrect",
         "do not agree"),
        ("EOG token id 151645 is out of range (vocab size 151643), skipping", "corrected"),
        ("model has unused tensor blk.61.nextn.eh_proj.weight (size = 1 bytes) -- ignoring",
         "does not use"),
        ("setting token '</think>' (151668) attribute to USER_DEFINED (16), old attributes: 8",
         "small faults"),
        ("layer 3 is assigned to device CUDA0 but the Flash Attention tensor is assigned to device "
         "CPU (usually due to missing support)", "so the processor does"),
        ("warning: failed to mlock 4096-byte buffer (after previously locking 0 bytes): Cannot "
         "allocate memory", "did not keep"),
        ("Qwen-VL models require at minimum 1024 image tokens to function correctly on grounding "
         "tasks", "less exactly"),
        ("n_ctx is not divisible by n_seq_max - rounding down to 4094", ""),
        ("using full-size SWA cache (ref: https://github.com/ggml-org/llama.cpp/pull/13194)", ""),
        ("warning: posix_madvise(.., POSIX_MADV_RANDOM) failed: Invalid argument", ""),
    ],
)  # fmt: skip
def test_what_llama_cpp_warns_of_is_said_in_words(line: str, words: str) -> None:
    said = in_words([line, line])
    assert (words in said[0] and len(said) == 1) if words else said == []
    assert all(line not in sentence for sentence in said)


def test_llama_cpp_has_the_lines_that_are_explained() -> None:
    spec = find_spec("llama_cpp")
    assert spec is not None and spec.origin is not None
    files = {path.resolve() for path in (Path(spec.origin).parent / "lib").iterdir()}
    binaries = b"".join(path.read_bytes() for path in files)
    elsewhere = ("Virtual", "Prefetch", "ProcessWorkingSet", "UnmapView", "CloseHandle", "kleidi")
    named = [part for part in WORDS if not part.startswith(elsewhere)]
    assert len(named) > 50
    assert [part for part in named if part.encode() not in binaries] == []


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
