"""Both themes are readable."""

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLabel, QSlider, QWidget

from app.panel import map_picture
from app.widgets import theme
from app.widgets.fields import Tick
from app.widgets.theme import DARK, DARK_HIGH, LIGHT, LIGHT_HIGH, Choice, Colours


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


SETS = [DARK, LIGHT, DARK_HIGH, LIGHT_HIGH]
GROUNDS = ("window", "chrome", "surface", "field", "raised", "code", "bubble", "hover")
TEXT, MARK = 4.5, 3.0  # WCAG 2.1, 1.4.3 and 1.4.11


@pytest.mark.parametrize("colours", SETS)
def test_text_can_be_read_on_every_ground(colours: Colours) -> None:
    def of(name: str) -> str:
        return str(getattr(colours, name))

    for ground in GROUNDS:
        assert contrast(colours.text, of(ground)) >= 7
        assert contrast(colours.muted, of(ground)) >= TEXT
    for ground in ("window", "chrome", "surface", "field", "raised"):
        for name in ("warning", "accent", "faint"):  # placeholders are faint
            assert contrast(of(name), of(ground)) >= TEXT, (name, ground)
        for name in ("danger", "focus"):
            assert contrast(of(name), of(ground)) >= MARK, (name, ground)
    for name in ("keyword", "string", "comment", "number", "name"):
        assert contrast(of(f"code_{name}"), colours.code) >= TEXT, name
    assert contrast(colours.on_accent, colours.accent) >= TEXT
    assert contrast(colours.on_danger, colours.danger) >= MARK


@pytest.mark.parametrize("colours", SETS)
def test_marks_can_be_seen(colours: Colours) -> None:
    """States of the map beside absent experts, bars, and the borders of what can be used."""
    for name in ("resident", "arriving", "hit", "late", "stall", "processor"):
        assert contrast(getattr(colours, name), colours.absent) >= MARK, name
    for name in ("compute", "stall", "other", "dense", "resident", "kv"):
        assert contrast(getattr(colours, name), colours.surface) >= MARK, name
    for ground in ("window", "chrome", "surface", "field", "raised"):
        assert contrast(colours.edge, getattr(colours, ground)) >= MARK, ground
    for ground in ("raised", "surface"):  # the chosen segment
        assert contrast(colours.accent, getattr(colours, ground)) >= MARK


@pytest.mark.parametrize("colours", [DARK_HIGH, LIGHT_HIGH])
def test_high_contrast_is_higher(colours: Colours) -> None:
    for ground in ("window", "surface", "field"):
        assert contrast(colours.text, getattr(colours, ground)) > 20
        assert contrast(colours.muted, getattr(colours, ground)) >= 10
        assert contrast(colours.faint, getattr(colours, ground)) >= 7


@pytest.mark.parametrize("colours", SETS)
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
    assert theme.colours() is LIGHT
    assert qapp.palette().window().color() == QColor(LIGHT.window)
    theme.apply(qapp, Choice.DARK)
    assert theme.colours() is DARK
    assert "$" not in qapp.styleSheet()


def test_contrast_and_size_of_text_can_be_chosen(qapp: QApplication) -> None:
    theme.apply(qapp, Choice.LIGHT)
    usual = theme.pixels()
    theme.apply(qapp, Choice.LIGHT, True, 150)
    assert theme.colours() is LIGHT_HIGH and theme.pixels() == round(1.5 * usual)
    assert f"font-size: {theme.pixels()}px" in qapp.styleSheet()
    theme.apply(qapp, Choice.DARK, True, 90)
    assert theme.colours() is theme.DARK_HIGH and theme.pixels() < usual
    theme.apply(qapp, Choice.DARK)


@pytest.mark.parametrize("choice", [Choice.LIGHT, Choice.DARK])
def test_a_ticked_box_has_a_tick(qtbot: Any, qapp: QApplication, choice: Choice) -> None:
    theme.apply(qapp, choice)
    box = Tick("On")
    qtbot.addWidget(box)
    box.show()
    box.setChecked(True)
    shown = box.grab().toImage()
    found = {shown.pixelColor(x, y).name() for x in range(18) for y in range(shown.height())}
    assert theme.colour("on_accent").name() in found and theme.colour("accent").name() in found


def test_the_stronger_shade_is_the_more_used_one(qapp: QApplication) -> None:
    """As the legend says, in both themes: away from the colour of an absent, unused expert."""
    for choice in (Choice.LIGHT, Choice.DARK):
        theme.apply(qapp, choice)
        palette = [QColor(value).name() for value in map_picture.use_palette()]
        for base in (0, map_picture.N_LEVEL):
            shades = palette[base : base + map_picture.N_LEVEL]
            strengths = [contrast(shade, theme.colours().absent) for shade in shades]
            assert strengths == sorted(strengths)


def test_a_window_that_is_being_built_has_the_font_at_once(qapp: QApplication) -> None:
    window = QWidget()
    theme.choose(qapp, Choice.LIGHT, text_percent=150)
    part = QLabel(parent=window)
    try:
        assert part.font().toString() == window.font().toString() == qapp.font().toString()
    finally:
        theme.choose(qapp, Choice.LIGHT)


def test_the_handle_of_a_slider_is_whole(qtbot: Any, qapp: QApplication) -> None:
    theme.apply(qapp, Choice.LIGHT)
    slider = QSlider(Qt.Orientation.Horizontal)
    qtbot.addWidget(slider)
    slider.setRange(0, 2)
    slider.setValue(1)
    slider.resize(101, slider.sizeHint().height())
    picture = slider.grab().toImage()
    column = [picture.pixelColor(50, y) for y in range(picture.height())]
    handle = theme.colour("text")
    assert column.count(handle) >= 14
    assert handle not in (column[0], column[-1])
