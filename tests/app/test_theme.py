"""Both themes are readable."""

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication

from app.widgets import theme
from app.widgets.theme import DARK, LIGHT, Choice, Colours


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.1."""

    def luminance(name: str) -> float:
        colour = QColor(name)
        parts = (colour.redF(), colour.greenF(), colour.blueF())
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [DARK, LIGHT])
def test_text_can_be_read_on_every_ground(colours: Colours) -> None:
    for ground in (colours.window, colours.chrome, colours.surface, colours.field, colours.code):
        assert contrast(colours.text, ground) >= 7
        assert contrast(colours.muted, ground) >= 4.5
    assert contrast(colours.text, colours.bubble) >= 7
    assert contrast(colours.text, colours.raised) >= 7
    assert contrast(colours.warning, colours.window) >= 4.5
    assert contrast(colours.on_accent, colours.accent) >= 4.5
    assert contrast("#ffffff", colours.danger) >= 3


@pytest.mark.parametrize("colours", [DARK, LIGHT])
def test_the_colours_of_the_map_differ(colours: Colours) -> None:
    names = ("absent", "resident", "arriving", "hit", "late", "stall", "processor")
    values = [QColor(getattr(colours, name)) for name in names]
    for index, one in enumerate(values):
        for other in values[index + 1 :]:
            apart = sum(
                abs(a - b)
                for a, b in zip(one.getRgb()[:3], other.getRgb()[:3], strict=True)
            )  # fmt: skip
            assert apart > 60


def test_the_choice_is_followed(qapp: QApplication) -> None:
    theme.apply(qapp, Choice.LIGHT)
    assert theme.colours() is LIGHT and not theme.is_dark()
    assert qapp.palette().window().color() == QColor(LIGHT.window)
    theme.apply(qapp, Choice.DARK)
    assert theme.colours() is DARK and theme.is_dark()
    assert "$" not in qapp.styleSheet()
