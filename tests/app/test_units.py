"""Numbers in the form that people read."""

import pytest

from app.text import units


@pytest.mark.parametrize(
    ("n_byte", "text"),
    [
        (0, "0 B"), (1023, "1.0 KiB"), (900, "900 B"), (7.04 * 2**30, "7.0 GiB"),
        (1000 * 2**20, "1.0 GiB"), (812 * 2**20, "812 MiB"), (2**40, "1,024 GiB"),
    ],
)  # fmt: skip
def test_size(n_byte: float, text: str) -> None:
    assert units.size(n_byte).replace(units.SPACE, " ") == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.004, "< 1 %"), (0.21, "21 %"), (1, "100 %")]
)
def test_percent_never_rounds_something_to_nothing(share: float, text: str) -> None:
    assert units.percent(share).replace(units.SPACE, " ") == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(0.0004, "0 ms"), (0.082, "82 ms"), (0.81, "0.8 s"), (12.34, "12.3 s"), (600, "10.0 min")],
)
def test_seconds(value_s: float, text: str) -> None:
    assert units.seconds(value_s).replace(units.SPACE, " ") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "0.40"), (19.44, "19.4"), (99.97, "100"), (1234, "1,234")]
)
def test_speed(value: float, text: str) -> None:
    assert units.speed(value) == text
