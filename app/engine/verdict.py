"""The line in words under the engine's figures: what an answer's time went to, what would help.

Only what follows from the measured numbers is said. Waiting is counted by the engine, so its share
and the most that could be won by ending it are arithmetic; how much of that a larger cache would
win is not known here, and no figure is given for it.
"""

from app import units
from app.facts import CacheFacts, ModelFacts, Statistics

WORTH_SAYING = 0.05  # shares below this are not worth the reader's time
HEADROOM = 0.8  # of the free memory, the share that may be suggested for a larger cache


def sentence(
    model: ModelFacts | None, cache: CacheFacts | None, stats: Statistics | None, free_bytes: int
) -> str:
    """One or two sentences; empty without a model."""
    if model is None or cache is None:
        return ""
    if not model.is_moe:
        return cache.reason or "This model has no experts, so nothing is cached."
    if cache.mode == "plain":
        if cache.rate >= 1.0 and cache.asked_rate >= 1.0:
            return "Every expert is in memory, so no answer waits for the disk."
        return cache.reason or "This model runs without the expert cache."
    if stats is None or stats.n_token == 0 or stats.total_s <= 0:
        share = units.percent(cache.rate)
        return f"{share} of the experts are kept in memory; the others are read when needed."
    if stats.stall_share < WORTH_SAYING:
        return (
            f"{units.percent(stats.compute_s / stats.total_s)} of this answer was computing and "
            f"{units.percent(stats.stall_share)} waiting for the disk: a larger cache would "
            "change little."
        )
    words = [
        f"{units.percent(stats.stall_share)} of this answer went to waiting for the disk; "
        f"without it, it would have been {_times(stats)} times as fast."
    ]
    rest_bytes = model.expert_bytes_total - cache.bytes
    if 0 < rest_bytes <= HEADROOM * free_bytes:
        words.append(
            f"All experts would fit: {units.size(rest_bytes)} more, and "
            f"{units.size(free_bytes)} are free."
        )
    elif HEADROOM * free_bytes > model.expert_bytes * len(model.moe_layers):
        words.append(f"A larger cache waits less; {units.size(free_bytes)} of memory are free.")
    elif stats.bytes_read and stats.bytes_wasted > 0.25 * stats.bytes_read:
        words.append(
            f"{units.percent(stats.bytes_wasted / stats.bytes_read)} of what was read was "
            "fetched ahead and not used."
        )
    return " ".join(words)


def _times(stats: Statistics) -> str:
    return f"{stats.total_s / max(stats.total_s - stats.stall_s, 1e-9):.1f}"
