"""Numbers with units in the window's language. Every figure of the window is formatted here."""

from __future__ import annotations

import datetime

from PySide6.QtCore import QCoreApplication, QDate, QLocale, Qt

from app.text import language

SPACE = "\u00a0"  # non-breaking, between a number and its unit


def number(n: int) -> str:
    """Format a whole number with separated thousands: 1,204."""
    return language.number(f"{n:,}")


def decimal(value: float, n_digit: int) -> str:
    """Format a number with `n_digit` decimals."""
    return language.number(f"{value:,.{n_digit}f}")


def size(n_byte: float) -> str:
    """Format a number of bytes in KiB, MiB or GiB, with about three digits."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_byte >= 0.95 * scale:
            value = n_byte / scale
            return f"{decimal(value, 1 if value < 99.95 else 0)}{SPACE}{unit}"
    return f"{int(n_byte)}{SPACE}B"


def percent(share: float) -> str:
    """Format a share of 1 as a whole percentage; a small share is not rounded to zero."""
    if 0 < share < 0.01:
        return f"<{SPACE}1{SPACE}%"
    return f"{100 * share:.0f}{SPACE}%"


def seconds(value_s: float) -> str:
    """Format a duration in ms, s, minutes or hours."""
    if value_s < 0.0995:
        return f"{decimal(1000 * value_s, 0)}{SPACE}ms"
    if value_s < 99.95:
        return f"{decimal(value_s, 1)}{SPACE}s"
    if value_s < 5970:
        return f"{decimal(value_s / 60, 1)}{SPACE}min"
    return f"{decimal(value_s / 3600, 1)}{SPACE}h"


def whole_seconds(value_s: float) -> str:
    """Format a duration in whole seconds up to a minute; above it as `seconds` does."""
    return f"{value_s:.0f}{SPACE}s" if 0.95 <= value_s < 59.5 else seconds(value_s)


def short_time(value_s: float) -> str:
    """Format a duration in ms up to a second, in s above, so that durations can be compared."""
    return f"{decimal(1000 * value_s, 0)}{SPACE}ms" if value_s < 1 else seconds(value_s)


def date(at_s: float) -> str:
    """Format the day of a time in seconds since 1970."""
    return day(datetime.date.fromtimestamp(at_s).isoformat())


def clock(at_s: float) -> str:
    """Format the time of day of a time in seconds since 1970, with the day unless it is today's."""
    at = datetime.datetime.fromtimestamp(at_s)
    if at.date() == datetime.date.today():
        return at.strftime("%H:%M:%S")
    return f"{date(at.timestamp())}{SPACE}{at:%H:%M}"


def day(written: str) -> str:
    """Format a day that is written as YYYY-MM-DD."""
    #: The form of a date, in Qt's letters.
    form = language.translate("units", "d MMM yyyy")
    return QLocale().toString(QDate.fromString(written, Qt.DateFormat.ISODate), form)


def token_speed(tokens_per_s: float) -> str:
    """Return a speed with its unit: "4.2 token/s"."""
    unit = language.translate("units", "token/s")
    return f"{speed(tokens_per_s)}{SPACE}{unit}"


def speed(tokens_per_s: float) -> str:
    """Format tokens per second without the unit: 0.42, 19.4, 212."""
    n_digit = 2 if tokens_per_s < 0.995 else 1 if tokens_per_s < 99.95 else 0
    return decimal(tokens_per_s, n_digit)


def count(n: int, noun: str) -> str:
    """Format a count with its noun: `1 token`, `1,204 tokens`. `noun`: a key of _Nouns.words."""
    return _Nouns(n).words(noun).format(n=number(n)).replace(" ", SPACE)


class _Nouns:
    """The nouns. A class, because Qt's tools collect plurals only from a class's `tr`."""

    def __init__(self, n: int) -> None:
        self.n = n

    def tr(self, text: str, comment: str, n: int) -> str:
        return QCoreApplication.translate("_Nouns", text, comment, n)

    def words(self, noun: str) -> str:
        return {
            "character": lambda: self.tr("{n} character(s)", "", self.n),
            "chat": lambda: self.tr("{n} chat(s)", "", self.n),
            "day": lambda: self.tr("{n} day(s)", "", self.n),
            "expert": lambda: self.tr("{n} expert(s)", "", self.n),
            "file": lambda: self.tr("{n} file(s)", "", self.n),
            "message": lambda: self.tr("{n} message(s)", "", self.n),
            "model": lambda: self.tr("{n} model(s)", "", self.n),
            "page": lambda: self.tr("{n} page(s)", "", self.n),
            "part": lambda: self.tr("{n} part(s)", "", self.n),
            "token": lambda: self.tr("{n} token(s)", "", self.n),
        }[noun]()
