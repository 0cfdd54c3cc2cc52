"""The small line under an answer."""

from app.text import units
from app.text.language import translate
from backend.protocol.statistics import Statistics


def footer(stats: Statistics, n_token_before: int = 0, *, is_short: bool = False) -> str:
    """Return the small line under an answer; the short one has its speed and length only."""
    parts = []
    if is_short:
        speed = [units.token_speed(stats.tokens_per_s)] if stats.n_token else []
        return " · ".join([*speed, units.count(stats.n_token + n_token_before, "token")])
    if stats.n_token:
        parts.append(units.token_speed(stats.tokens_per_s))
        parts.append(
            translate("answer", "first token {time}").format(time=units.seconds(stats.ttft_s))
        )
    parts.append(units.count(stats.n_token + n_token_before, "token"))
    if stats.total_s > 0:
        parts.append(
            translate("answer", "waiting {share}").format(share=units.percent(stats.stall_share))
        )
    return " · ".join(parts)
