"""The verdict: where the time of an answer went, why, and what would help most.

The engine measures the time. The simulator replays the answer to find what would help
(backend/simulation/advice.py); without its result, the verdict has no forecast.
"""

from __future__ import annotations

from app.panel.loading_notes import in_words
from app.text import units
from app.text.language import translate
from app.text.messages import localized
from app.text.methods import title_of
from backend.protocol.statistics import Statistics
from backend.protocol.status import Advice, CacheFacts, ModelFacts
from backend.text import Text

WORTH_SAYING = 0.05  # smaller shares are not mentioned
BUSY = 0.2  # share of the processor that others may use before they are named
LONG_PROMPT = 0.4  # share of the time until the answer's end


def sentence(
    model: ModelFacts | None,
    cache: CacheFacts | None,
    stats: Statistics | None,
    prompt: tuple[int, int] | None = None,
) -> str:
    """Return where the time goes, in one sentence; empty without a model.

    prompt: tokens of a prompt that is being read, done and total; None if none is.
    """
    if model is None or cache is None:
        return ""
    if prompt is not None:
        return translate(
            "verdict", "The model reads your question first: {done} of {total} so far."
        ).format(done=units.number(prompt[0]), total=units.count(prompt[1], "token"))
    if cache.mode == "plain":
        return localized(cache.runs)
    if stats is None or stats.n_token == 0 or stats.total_s <= 0:
        return translate(
            "verdict",
            "This model is larger than the memory it may use: {share} of its experts are in "
            "memory, and the others are read when they are needed.",
        ).format(share=units.percent(cache.rate))
    waits = units.percent(stats.stall_share)
    if stats.stall_share < WORTH_SAYING:
        return translate(
            "verdict",
            "Nearly all the time goes to computing: waiting for parts of the model takes {share}.",
        ).format(share=waits)
    if is_copied(cache, stats):
        return translate(
            "verdict",
            "This model is larger than the memory of {device}, so parts of it are copied there "
            "while it answers: waiting for them takes {share} of the time.",
        ).format(device=cache.device, share=waits)
    return translate(
        "verdict",
        "This model is larger than the memory it may use, so parts of it are read from the disk "
        "while it answers: waiting for them takes {share} of the time.",
    ).format(share=waits)


def is_copied(cache: CacheFacts, stats: Statistics) -> bool:
    """Return whether most missing experts came from RAM over the link to a device."""
    has_device = cache.device not in ("", "cpu")
    return has_device and stats.bytes_from_host > stats.drive_bytes


def causes(
    cache: CacheFacts | None, stats: Statistics | None, others_share: float | None
) -> list[str]:
    """Return other reasons for a slow answer, and llama.cpp's warnings, each a sentence.

    others_share: share of the processor that other programs use, 0 to 1; None if it is unknown.
    """
    found = []
    if others_share is not None and others_share >= BUSY:
        text = translate(
            "verdict",
            "Other programs use {share} of the processor; the answer is faster without them.",
        )
        found.append(text.format(share=units.percent(others_share)))
    if cache is not None and isinstance(cache.reason, Text):
        if cache.reason.id.startswith("memory.others_need"):
            found.append(localized(cache.reason))
    if cache is not None:
        found += in_words(cache.warnings.splitlines())
    if stats is not None and stats.n_token:
        n_read = max(stats.n_prompt - stats.n_reused, 0)
        if stats.ttft_s > LONG_PROMPT * (stats.ttft_s + stats.n_token / max(_speed(stats), 1e-9)):
            text = translate(
                "verdict", "Reading the question took {time} before the first word, for {tokens}."
            )
            found.append(
                text.format(time=units.seconds(stats.ttft_s), tokens=units.count(n_read, "token"))
            )
    return found


def _speed(stats: Statistics) -> float:
    return stats.tokens_per_s or stats.n_token / max(stats.total_s, 1e-9)


def what_helps(cache: CacheFacts | None, advice: Advice | None) -> str:
    """Return the best improvement, then the second, in one sentence; empty without a forecast."""
    if advice is not None and advice.fault:
        return localized(advice.fault)
    if cache is None or advice is None or advice.reason:
        return ""
    larger, other = advice.cache, advice.method
    if larger is None and other is None:
        if advice.stall_share < WORTH_SAYING:
            return translate("verdict", "Neither a larger cache nor another method would help.")
        return translate(
            "verdict",
            "No cache that fits into the free memory and no other method would make it "
            "noticeably faster.",
        )
    if larger is None:
        text = translate("verdict", "The method {method} would make it about {gain} times as fast.")
    elif other is None:
        text = translate(
            "verdict",
            "A cache of {size} instead of {now} would make it about {times} times as fast.",
        )
    elif other.times > larger.times:
        text = translate(
            "verdict",
            "The method {method} would make it about {gain} times as fast, a cache of {size} "
            "instead of {now} about {times} times.",
        )
    else:
        text = translate(
            "verdict",
            "A cache of {size} instead of {now} would make it about {times} times as fast, the "
            "method {method} about {gain} times.",
        )
    return text.format(
        now=units.size(cache.bytes),
        size=units.size(larger.cache_bytes if larger else 0),
        times=units.decimal(larger.times if larger else 0, 1),
        method=title_of(other.method) if other else "",
        gain=units.decimal(other.times if other else 0, 1),
    )
