"""Numbers as people read them: every figure that the window shows gets its unit here."""

from __future__ import annotations

import datetime

from PySide6.QtCore import QCoreApplication, QDate, QLocale

from app.text import language

SPACE = "\u00a0"  # between a number and its unit, so that no line breaks there


def number(n: int) -> str:
    """Return a whole number with its thousands apart: 1,204."""
    return language.number(f"{n:,}")


def decimal(value: float, n_digit: int) -> str:
    """Return a number with so many digits behind the mark."""
    return language.number(f"{value:,.{n_digit}f}")


def size(n_byte: float) -> str:
    """Return a number of bytes in KiB, MiB or GiB, with about three digits."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_byte >= 0.95 * scale:
            value = n_byte / scale
            return f"{decimal(value, 1 if value < 99.95 else 0)}{SPACE}{unit}"
    return f"{int(n_byte)}{SPACE}B"


def percent(share: float) -> str:
    """Return a share of 1, as a whole percentage; small ones are not rounded to nothing."""
    if 0 < share < 0.01:
        return f"<{SPACE}1{SPACE}%"
    return f"{100 * share:.0f}{SPACE}%"


def seconds(value_s: float) -> str:
    """Return a duration in ms, s, minutes or hours."""
    if value_s < 0.0995:
        return f"{decimal(1000 * value_s, 0)}{SPACE}ms"
    if value_s < 99.95:
        return f"{decimal(value_s, 1)}{SPACE}s"
    if value_s < 5970:
        return f"{decimal(value_s / 60, 1)}{SPACE}min"
    return f"{decimal(value_s / 3600, 1)}{SPACE}h"


def short_time(value_s: float) -> str:
    """Return a duration that is compared with others of its kind: in ms up to a second."""
    return f"{decimal(1000 * value_s, 0)}{SPACE}ms" if value_s < 1 else seconds(value_s)


def date(at_s: float) -> str:
    """Return the day of a time in seconds since 1970."""
    day = datetime.date.fromtimestamp(at_s)
    #: The form of a date, in Qt's letters.
    form = language.translate("units", "d MMM yyyy")
    return QLocale().toString(QDate(day.year, day.month, day.day), form)


def speed(tokens_per_s: float) -> str:
    """Tokens per second without the unit: 0.42, 19.4, 212."""
    n_digit = 2 if tokens_per_s < 0.995 else 1 if tokens_per_s < 99.95 else 0
    return decimal(tokens_per_s, n_digit)


def count(n: int, noun: str) -> str:
    """Return `1 token`, `1,204 tokens`; the nouns are those of the table."""
    return _Nouns(n).words(noun).format(n=number(n)).replace(" ", SPACE)


class _Nouns:
    """Whatever is counted. A class, because Qt's tools know plurals only of a class's `tr`."""

    def __init__(self, n: int) -> None:
        self.n = n

    def tr(self, text: str, comment: str, n: int) -> str:
        return QCoreApplication.translate("_Nouns", text, comment, n)

    def words(self, noun: str) -> str:
        return {
            "chat": lambda: self.tr("{n} chat(s)", "", self.n),
            "day": lambda: self.tr("{n} day(s)", "", self.n),
            "expert": lambda: self.tr("{n} expert(s)", "", self.n),
            "file": lambda: self.tr("{n} file(s)", "", self.n),
            "message": lambda: self.tr("{n} message(s)", "", self.n),
            "model": lambda: self.tr("{n} model(s)", "", self.n),
            "part": lambda: self.tr("{n} part(s)", "", self.n),
            "token": lambda: self.tr("{n} token(s)", "", self.n),
        }[noun]()
