"""The library's facts and verdicts in words."""

from __future__ import annotations

import time

from app.text import units
from app.text.language import translate
from app.text.messages import localized
from backend.library.checksum import Checksum
from backend.library.estimate import Kind, Speed, Verdict
from backend.library.facts import Facts
from backend.library.scan import Entry, Place


def parameters(n: int) -> str:
    """Format a number of parameters as in model names: 30.5B, 124M."""
    for letter, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= 0.9995 * scale:
            value = n / scale
            return units.decimal(value, 1 if value < 99.95 else 0) + letter
    return str(n)


def total_and_active(facts: Facts) -> str:
    """Format the total parameters, and the active ones if they are fewer."""
    total = parameters(facts.n_parameter)
    if facts.n_parameter_active >= facts.n_parameter:
        return total
    return translate("library", "{total}, {active} active").format(
        total=total, active=parameters(facts.n_parameter_active)
    )


def shape(facts: Facts) -> str:
    """Format layers × experts of each × experts used by a token."""
    if not facts.n_expert:
        return translate("library", "{layers}, dense").format(layers=facts.n_layer)
    return f"{facts.n_layer} × {facts.n_expert} × {facts.n_expert_used}"


def ago(at_s: float, now_s: float | None = None) -> str:
    """Format the time since `at_s`; empty if that is 0."""
    if at_s <= 0:
        return ""
    days = int(((time.time() if now_s is None else now_s) - at_s) // 86_400)
    if days < 1:
        if _day(at_s) == _day(now_s):
            return translate("library", "today")
        return translate("library", "yesterday")
    if days < 30:
        return translate("library", "{days} ago").format(days=units.count(days, "day"))
    return units.date(at_s)


def _day(at_s: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def _speed(speed: Speed) -> str:
    text = units.token_speed(speed.tokens_per_s)
    if speed.is_measured:
        return text
    return translate("library", "about {speed}").format(speed=text)


def short(entry: Entry, verdict: Verdict | None) -> str:
    """Return the verdict for a cell of the table."""
    if entry.facts is None or verdict is None:
        return translate("library", "cannot be used")
    if verdict.kind is Kind.LARGE:
        return translate("library", "too large")
    fits = verdict.kind is Kind.FITS
    if verdict.best_speed is None:
        if fits:
            return translate("library", "fits in memory")
        return translate("library", "through the cache")
    speed = _speed(verdict.best_speed)
    if fits:
        return translate("library", "fits, {speed}").format(speed=speed)
    return translate("library", "cache, {speed}").format(speed=speed)


def sentence(entry: Entry, verdict: Verdict | None) -> str:
    """Return the verdict in full sentences."""
    facts = entry.facts
    if facts is None or verdict is None:
        return translate("library", "It cannot be used: {reason}.").format(
            reason=localized(entry.trouble)
        )
    if verdict.kind is Kind.LARGE:
        return _too_large(facts, verdict)
    if not facts.is_moe:
        first = _fill_in(
            translate("library", "It fits in memory."),
            translate("library", "It fits in memory, at {speed}."),
            verdict.best_speed,
        )
        unused = translate("library", "The cache is not used: {reason}.")
        return f"{first} {unused.format(reason=localized(facts.needs.reason))}"
    if verdict.kind is Kind.FITS:
        text = _fill_in(
            translate("library", "All its experts fit in memory."),
            translate("library", "All its experts fit in memory, at {speed}."),
            verdict.best_speed,
        )
    else:
        text = _fill_in(
            translate(
                "library",
                "It runs through the cache: {n} of {all} experts of each layer fit in memory.",
            ),
            translate(
                "library",
                "It runs through the cache: {n} of {all} experts of each layer fit in memory, at "
                "{speed}.",
            ),
            verdict.best_speed,
            n=verdict.best.n_slot,
            all=facts.n_expert,
        )
    if verdict.asked.n_slot == verdict.best.n_slot:
        return text
    asked = _fill_in(
        translate("library", "At the cache rate that is set, {share}, it takes {size}."),
        translate(
            "library",
            "At the cache rate that is set, {share}, it takes {size} and runs at {speed}.",
        ),
        verdict.asked_speed,
        share=units.percent(verdict.asked.rate),
        size=units.size(verdict.asked.total_bytes),
    )
    return f"{text} {asked}"


def _fill_in(without: str, with_speed: str, speed: Speed | None, **words: object) -> str:
    """Fill in `with_speed` if the speed is known, otherwise `without`."""
    if speed is None:
        return without.format(**words)
    return with_speed.format(speed=_speed(speed), **words)


def _too_large(facts: Facts, verdict: Verdict) -> str:
    plan = verdict.best
    if facts.is_moe:
        text = translate(
            "library",
            "Too large: even with {n} experts of each layer it needs {size}, and {headroom} for "
            "other programs, but only {free} are free.",
        )
        more = translate("library", "It would run with {size} more.").format(
            size=units.size(verdict.short_bytes)
        )
    else:
        text = translate(
            "library",
            "Too large: it needs {size}, and {headroom} for other programs, but only {free} are "
            "free.",
        )
        more = translate("library", "The cache cannot help: {reason}.").format(
            reason=localized(facts.needs.reason)
        )
    text = text.format(
        size=units.size(plan.total_bytes),
        n=plan.n_slot,
        headroom=units.size(plan.headroom_bytes),
        free=units.size(plan.available_bytes),
    )
    return f"{text} {more}"


def basis(verdict: Verdict | None) -> str:
    """Return the basis of the shown speeds; empty without speeds."""
    speeds = [s for s in (verdict.best_speed, verdict.asked_speed) if s] if verdict else []
    if not speeds:
        return ""
    if any(speed.is_measured for speed in speeds) and all(
        speed.is_measured or speed.is_corrected for speed in speeds
    ):
        return translate(
            "library", "Measured in the last answer; other cache rates are forecast from it."
        )
    if any(speed.is_corrected for speed in speeds):
        return translate(
            "library",
            "A forecast, corrected by what the last answer measured at another cache rate.",
        )
    if verdict is not None and verdict.best.mode == verdict.asked.mode == "plain":
        return translate(
            "library",
            "A forecast from this machine's measured speeds; the first answer corrects it.",
        )
    return translate(
        "library",
        "A forecast from this machine's measured speeds and a guess of how many experts will be "
        "found in memory; the first answer corrects it.",
    )


def checked(found: Checksum) -> str:
    """Return the result of the last check of a file, with its date and up to four checksums."""
    said = translate("library", "Checked ({when}): {result}").format(
        when=ago(found.at_s), result=localized(found.sentence)
    )
    sums = [f"{part.file}: {part.sha256}" for part in found.parts]
    return "\n".join([said, *sums[:4]])


def places(found: list[Place], n_entry: int, n_bytes: int) -> str:
    """Return the line below the table: the models found, and folders that could not be read."""
    text = translate("library", "No models.")
    if n_entry:
        text = f"{units.count(n_entry, 'model')}, {units.size(n_bytes)}."
    for place in found:
        if place.trouble:
            where = translate("library", "The folder {folder} {trouble}.")
            text += " " + where.format(
                folder=place.path.name or place.path, trouble=localized(place.trouble)
            )
    return text.encode("utf-8", "replace").decode("utf-8")
