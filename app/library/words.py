"""What the library says in words."""

from __future__ import annotations

import time

from app import units
from backend.library.estimate import Kind, Speed, Verdict
from backend.library.facts import Facts
from backend.library.scan import Entry, Place


def parameters(n: int) -> str:
    """Return a number of parameters as model names have it: 30.5B, 124M."""
    for letter, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= 0.9995 * scale:
            value = n / scale
            return f"{value:.1f}{letter}" if value < 99.95 else f"{value:.0f}{letter}"
    return str(n)


def total_and_active(facts: Facts) -> str:
    """Return the parameters, and where that is fewer, those that a token uses."""
    total = parameters(facts.n_parameter)
    if facts.n_parameter_active >= facts.n_parameter:
        return total
    return f"{total}, {parameters(facts.n_parameter_active)} active"


def shape(facts: Facts) -> str:
    """Return layers, experts of each, and how many of these a token uses."""
    if not facts.n_expert:
        return f"{facts.n_layer}, dense"
    return f"{facts.n_layer} × {facts.n_expert} × {facts.n_expert_used}"


def ago(at_s: float, now_s: float | None = None) -> str:
    """Return how long ago something was; empty where it never was."""
    if at_s <= 0:
        return ""
    days = int(((time.time() if now_s is None else now_s) - at_s) // 86_400)
    if days < 1:
        return "today" if _day(at_s) == _day(now_s) else "yesterday"
    if days < 30:
        return f"{units.count(days, 'day')} ago"
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def _day(at_s: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def _speed(speed: Speed) -> str:
    about = "" if speed.is_measured else "about "
    return f"{about}{units.speed(speed.tokens_per_s)}{units.SPACE}token/s"


def short(entry: Entry, verdict: Verdict | None) -> str:
    """Return the verdict for a cell of the table."""
    if entry.facts is None or verdict is None:
        return "cannot be used"
    if verdict.kind is Kind.LARGE:
        return "too large"
    word = "fits" if verdict.kind is Kind.FITS else "cache"
    if verdict.best_speed is None:
        return "fits in memory" if verdict.kind is Kind.FITS else "through the cache"
    return f"{word}, {_speed(verdict.best_speed)}"


def sentence(entry: Entry, verdict: Verdict | None) -> str:
    """Return the verdict in full sentences."""
    facts = entry.facts
    if facts is None or verdict is None:
        return f"It cannot be used: {entry.trouble}."
    if verdict.kind is Kind.LARGE:
        return _too_large(facts, verdict)
    speed = f", at {_speed(verdict.best_speed)}" if verdict.best_speed else ""
    if not facts.is_moe:
        return f"It fits in memory{speed}. The cache is not used: {facts.needs.reason}."
    if verdict.kind is Kind.FITS:
        said = f"All its experts fit in memory{speed}."
    else:
        said = (
            f"It runs through the cache: {verdict.best.n_slot} of {facts.n_expert} experts of "
            f"each layer fit in memory{speed}."
        )
    if verdict.asked.n_slot != verdict.best.n_slot:
        share = units.percent(verdict.asked.rate)
        takes = units.size(verdict.asked.total_bytes)
        speed = f" and runs at {_speed(verdict.asked_speed)}" if verdict.asked_speed else ""
        said += f" At the cache rate that is set, {share}, it takes {takes}{speed}."
    return said


def _too_large(facts: Facts, verdict: Verdict) -> str:
    plan = verdict.best
    least = "" if not facts.is_moe else f" even with {plan.n_slot} experts of each layer"
    said = (
        f"Too large: it needs {units.size(plan.total_bytes)}{least}, beside "
        f"{units.size(plan.headroom_bytes)} that are left to other programs, and "
        f"{units.size(plan.available_bytes)} are free. "
    )
    if not facts.is_moe:
        return said + f"The cache cannot help: {facts.needs.reason}."
    return said + f"It would run with {units.size(verdict.short_bytes)} more."


def basis(verdict: Verdict | None) -> str:
    """Return what the speed rests on; empty where none is given."""
    speeds = [s for s in (verdict.best_speed, verdict.asked_speed) if s] if verdict else []
    if not speeds:
        return ""
    if any(speed.is_measured for speed in speeds) and all(
        speed.is_measured or speed.is_corrected for speed in speeds
    ):
        return "Measured in the last answer; other cache rates are forecast from it."
    if any(speed.is_corrected for speed in speeds):
        return "A forecast, corrected by what the last answer measured at another cache rate."
    if verdict is not None and verdict.best.mode == verdict.asked.mode == "plain":
        return "A forecast from this machine's measured speeds; the first answer corrects it."
    return (
        "A forecast from this machine's measured speeds and a guess of how many experts will be "
        "found in memory; the first answer corrects it."
    )


def places(found: list[Place], n_entry: int, n_bytes: int) -> str:
    """Return the line below the table: what was found, and what could not be looked through."""
    said = f"{units.count(n_entry, 'model')}, {units.size(n_bytes)}." if n_entry else "No models."
    for place in found:
        if place.trouble:
            said += f" The folder {place.path.name or place.path} {place.trouble}."
    return said.encode("utf-8", "replace").decode("utf-8")
