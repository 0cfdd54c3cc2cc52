"""Charts: the places of points and names, and values that must not break the file."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.simulation.charts import (
    MARGIN_LEFT,
    MARGIN_TOP,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Line,
    Panel,
    line_charts,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def parsed(panels: list[Panel]) -> ElementTree.Element:
    return ElementTree.fromstring(line_charts(panels))


def polylines(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in line.get("points", "").split())]
        for line in root.iter(f"{SVG}polyline")
    ]


def test_points_lie_where_the_axes_say() -> None:
    lines = [Line("a", [(0.0, 0.0), (0.5, 1.0), (0.25, 0.5)])]
    root = parsed([Panel("t", "x", "y", lines, x_percent=True, y_percent=True)])
    bottom = MARGIN_TOP + PANEL_HEIGHT
    assert polylines(root) == [
        [
            (MARGIN_LEFT, bottom),
            (MARGIN_LEFT + PANEL_WIDTH / 2, bottom - PANEL_HEIGHT / 2),
            (MARGIN_LEFT + PANEL_WIDTH, MARGIN_TOP),
        ]
    ]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"t", "x", "y", "a", "0 %", "10 %", "50 %", "100 %"} <= set(texts)


def test_bounds_are_dashed_and_the_others_are_not() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]
    root = parsed([Panel("t", "x", "y", [Line("a", points), Line("b", points, bound=True)])])
    plain, bound = root.iter(f"{SVG}polyline")
    assert plain.get("stroke", "").startswith("#") and plain.get("stroke-dasharray") is None
    assert bound.get("class") == "bound" and bound.get("stroke-dasharray")


def test_a_name_looks_the_same_in_every_panel_and_no_two_look_alike() -> None:
    lines = [Line(f"m{i}", [(0.0, i), (1.0, i)]) for i in range(20)]
    root = parsed([Panel("a", "x", "y", lines), Panel("b", "x", "y", lines[::-1])])
    strokes = [line.get("stroke") for line in root.iter(f"{SVG}polyline")]
    assert strokes[:20] == strokes[:19:-1]
    legend = [t.text for t in root.iter(f"{SVG}text") if (t.text or "").startswith("m")]
    assert legend == [f"m{i}" for i in range(20)]


def test_names_cannot_break_the_file() -> None:
    root = parsed([Panel("<&>", "x", "y", [Line('"<script>', [(0.0, 1.0)])])])
    assert '"<script>' in [text.text for text in root.iter(f"{SVG}text")]


def test_what_is_not_finite_is_left_out() -> None:
    nan = [(math.nan, 1.0), (1.0, math.inf)]
    root = parsed([Panel("t", "x", "y", [Line("a", [(0.0, 1.0), *nan]), Line("b", nan)])])
    assert [len(points) for points in polylines(root)] == [1]
    with pytest.raises(ValueError, match="nothing to draw"):
        line_charts([Panel("t", "x", "y", [Line("b", nan)])])


@given(st.one_of(st.just(0.0), st.floats(1e-6, 1e12)))
def test_ticks_are_round_and_enclose(high: float) -> None:
    values = ticks(high)
    assert 2 <= len(values) <= 8
    assert values[0] == 0
    assert values[-1] >= high * (1 - 1e-9)
    assert values[-2] < high or high == 0
    step = f"{values[1]:.3e}"
    assert step[:4] in ("1.00", "2.00", "2.50", "5.00")
