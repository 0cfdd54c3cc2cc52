"""Numbers as people read them: every figure that the window shows gets its unit here."""

SPACE = "\u00a0"  # between a number and its unit, so that no line breaks there


def size(n_byte: float) -> str:
    """Return a number of bytes in KiB, MiB or GiB, with about three digits."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_byte >= 0.95 * scale:
            value = n_byte / scale
            return f"{value:.1f}{SPACE}{unit}" if value < 99.95 else f"{value:,.0f}{SPACE}{unit}"
    return f"{int(n_byte)}{SPACE}B"


def percent(share: float) -> str:
    """Return a share of 1, as a whole percentage; small ones are not rounded to nothing."""
    if 0 < share < 0.01:
        return f"<{SPACE}1{SPACE}%"
    return f"{100 * share:.0f}{SPACE}%"


def seconds(value_s: float) -> str:
    """Return a duration in ms, s or minutes."""
    if value_s < 0.0995:
        return f"{1000 * value_s:.0f}{SPACE}ms"
    if value_s < 99.95:
        return f"{value_s:.1f}{SPACE}s"
    return f"{value_s / 60:.1f}{SPACE}min"


def short_time(value_s: float) -> str:
    """Return a duration that is compared with others of its kind: in ms up to a second."""
    return f"{1000 * value_s:.0f}{SPACE}ms" if value_s < 1 else seconds(value_s)


def speed(tokens_per_s: float) -> str:
    """Tokens per second without the unit: 0.42, 19.4, 212."""
    if tokens_per_s < 0.995:
        return f"{tokens_per_s:.2f}"
    return f"{tokens_per_s:.1f}" if tokens_per_s < 99.95 else f"{tokens_per_s:,.0f}"


def count(n: int, noun: str) -> str:
    """Return `1 token`, `1,204 tokens`."""
    return f"{n:,}{SPACE}{noun}" if n == 1 else f"{n:,}{SPACE}{noun}s"
