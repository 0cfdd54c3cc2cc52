"""The verdict: where the time of an answer went, and what would help most.

The engine measures the time. The simulator replays the answer to find what would help
(backend/simulation/advice.py); without its result, the verdict has no forecast.
"""

from __future__ import annotations

from app.text import units
from app.text.language import translate
from app.text.messages import localized
from backend.protocol.statistics import Statistics
from backend.protocol.status import Advice, CacheFacts, ModelFacts

WORTH_SAYING = 0.05  # smaller shares are not mentioned


def sentence(
    model: ModelFacts | None,
    cache: CacheFacts | None,
    stats: Statistics | None,
    advice: Advice | None = None,
) -> str:
    """Return the verdict in one or two sentences; empty without a model."""
    if model is None or cache is None:
        return ""
    if not model.is_moe:
        return localized(cache.reason) or translate(
            "verdict", "This model has no experts, so nothing is cached."
        )
    if cache.mode == "plain":
        if cache.rate >= 1.0 and cache.asked_rate >= 1.0:
            return translate(
                "verdict", "Every expert is in memory, so no answer waits for the disk."
            )
        return localized(cache.reason) or translate(
            "verdict", "This model runs without the expert cache."
        )
    if stats is None or stats.n_token == 0 or stats.total_s <= 0:
        return translate(
            "verdict",
            "{share} of the experts are kept in memory; the others are read when needed.",
        ).format(share=units.percent(cache.rate))
    if advice is not None and not advice.reason:
        return _forecast(cache, advice)
    return _shares(stats)


def _shares(stats: Statistics) -> str:
    """Describe where the time went, without a forecast."""
    if stats.stall_share < WORTH_SAYING:
        return translate(
            "verdict",
            "{compute} of this answer was computing and {stall} waiting for the disk: a larger "
            "cache would change little.",
        ).format(
            compute=units.percent(stats.compute_s / stats.total_s),
            stall=units.percent(stats.stall_share),
        )
    times = stats.total_s / max(stats.total_s - stats.stall_s, 1e-9)
    return translate(
        "verdict",
        "{stall} of this answer went to waiting for the disk; without it, it would have been "
        "{times} times as fast.",
    ).format(stall=units.percent(stats.stall_share), times=units.decimal(times, 1))


def _forecast(cache: CacheFacts, advice: Advice) -> str:
    """Describe where the time went, then the best improvement, then the second."""
    waits = units.percent(advice.stall_share)
    larger, other = advice.cache, advice.method
    if larger is None and other is None:
        if advice.stall_share < WORTH_SAYING:
            text = translate(
                "verdict",
                "Only {share} of the time went to waiting for the disk; neither a larger cache nor "
                "another method would help.",
            )
        else:
            text = translate(
                "verdict",
                "{share} of the time went to waiting for the disk; no cache that fits into the "
                "free memory and no other method would make it noticeably faster.",
            )
        return text.format(share=waits)
    if larger is None:
        text = translate(
            "verdict",
            "{share} of the time went to waiting for the disk; the method {method} would make this "
            "about {gain} times as fast.",
        )
    elif other is None:
        text = translate(
            "verdict",
            "{share} of the time went to waiting for the disk; a cache of {size} instead of {now} "
            "would make this about {times} times as fast.",
        )
    elif other.times > larger.times:
        text = translate(
            "verdict",
            "{share} of the time went to waiting for the disk; the method {method} would make this "
            "about {gain} times as fast, a cache of {size} instead of {now} about {times} times.",
        )
    else:
        text = translate(
            "verdict",
            "{share} of the time went to waiting for the disk; a cache of {size} instead of {now} "
            "would make this about {times} times as fast, the method {method} about {gain} times.",
        )
    return text.format(
        share=waits,
        now=units.size(cache.bytes),
        size=units.size(larger.cache_bytes if larger else 0),
        times=units.decimal(larger.times if larger else 0, 1),
        method=other.method if other else "",
        gain=units.decimal(other.times if other else 0, 1),
    )
