"""Draws line charts as SVG: panels side by side with one legend, on a light or dark background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 380, 300
MARGIN_LEFT, MARGIN_TOP, MARGIN_BOTTOM, GAP = 64, 44, 56, 30
LEGEND_WIDTH, LEGEND_LINE = 178, 19
N_TICK = 5

# Colours of medium lightness are visible on white and on black. The marks differ as well, because
# not every reader can tell lines apart by colour.
_COLOURS = ("#2f7ed8", "#d9730d", "#2a9d5c", "#c9404f", "#8a63d2", "#16939c", "#a3713a", "#cf5fa5")
_MARKS = ("circle", "square", "up", "diamond", "down", "cross")
_BOUND_DASHES = ("6 4", "2 3", "9 3 2 3")

_STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
         font-size: 12px; fill: #656d76; }
  .title { font-size: 14px; font-weight: 600; }
  .grid { stroke: #8c959f; stroke-opacity: 0.25; }
  .axis { stroke: #8c959f; }
  .bound { stroke: #656d76; }
  @media (prefers-color-scheme: dark) {
    text { fill: #9da7b3; }
    .title { fill: #e6edf3; }
    .bound { stroke: #9da7b3; }
  }
"""


@dataclass(frozen=True)
class Line:
    """One line of a panel, of (x, y) points. bound: a limit, drawn dashed and grey."""

    name: str
    points: Sequence[tuple[float, float]]
    bound: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart. x_percent, y_percent: the axis shows shares as percentages. y begins at 0."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_percent: bool = False
    y_percent: bool = False


def line_charts(panels: Sequence[Panel]) -> str:
    """Return the panels side by side as one SVG. A line's name has one look in all panels.

    Points that are not finite are left out. Raises ValueError if no point remains.
    """
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    bounds = {line.name for panel in panels for line in panel.lines if line.bound}
    if not any(_finite(line.points) for panel in panels for line in panel.lines):
        raise ValueError("There is nothing to draw.")
    looks = _looks(names, bounds)
    width = len(panels) * (MARGIN_LEFT + PANEL_WIDTH + GAP) + LEGEND_WIDTH
    height = MARGIN_TOP + max(PANEL_HEIGHT, LEGEND_LINE * len(names)) + MARGIN_BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
        f"<style>{_STYLE}</style>",
    ]
    for i, panel in enumerate(panels):
        parts += _panel(panel, MARGIN_LEFT + i * (MARGIN_LEFT + PANEL_WIDTH + GAP), looks)
    parts += _legend(names, looks, width - LEGEND_WIDTH)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class _Look:
    colour: str  # empty for a bound, which is grey
    mark: str
    dash: str

    @property
    def stroke(self) -> str:
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'stroke="{self.colour}"{dash}' if self.colour else f'class="bound"{dash}'


def _looks(names: Sequence[str], bounds: set[str]) -> dict[str, _Look]:
    looks: dict[str, _Look] = {}
    n_bound = n_line = 0
    for name in names:
        if name in bounds:
            looks[name] = _Look("", "", _BOUND_DASHES[n_bound % len(_BOUND_DASHES)])
            n_bound += 1
        else:
            mark = _MARKS[(n_line + n_line // len(_COLOURS)) % len(_MARKS)]
            looks[name] = _Look(_COLOURS[n_line % len(_COLOURS)], mark, "")
            n_line += 1
    return looks


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))


def _panel(panel: Panel, left: float, looks: dict[str, _Look]) -> list[str]:
    points = [point for line in panel.lines for point in _finite(line.points)]
    if not points:
        points = [(0.0, 0.0), (1.0, 1.0)]
    x_ticks = ticks(max(x for x, _ in points))
    y_ticks = ticks(max(y for _, y in points))
    right, bottom = left + PANEL_WIDTH, MARGIN_TOP + PANEL_HEIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + PANEL_WIDTH * (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]),
            bottom - PANEL_HEIGHT * (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]),
        )

    parts = [
        f'<text class="title" x="{left}" y="{MARGIN_TOP - 18}">{escape(panel.title)}</text>',
        f'<text text-anchor="middle" x="{left + PANEL_WIDTH / 2}" y="{bottom + 42}">'
        f"{escape(panel.x_label)}</text>",
        f'<text text-anchor="middle" transform="translate({left - 48} '
        f'{MARGIN_TOP + PANEL_HEIGHT / 2}) rotate(-90)">{escape(panel.y_label)}</text>',
    ]
    for value, text in zip(y_ticks, _labels(y_ticks, panel.y_percent), strict=True):
        y = place(x_ticks[0], value)[1]
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text text-anchor="end" x="{left - 8}" y="{y + 4:.1f}">{text}</text>')
    for value, text in zip(x_ticks, _labels(x_ticks, panel.x_percent), strict=True):
        x = place(value, y_ticks[0])[0]
        parts.append(
            f'<line class="axis" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}"/>'
        )
        parts.append(f'<text text-anchor="middle" x="{x:.1f}" y="{bottom + 20}">{text}</text>')
    parts.append(f'<line class="axis" x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
    for line in panel.lines:
        parts += _line([place(x, y) for x, y in _finite(line.points)], looks[line.name])
    return parts


def _line(places: Sequence[tuple[float, float]], look: _Look) -> list[str]:
    if not places:
        return []
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = f'fill="none" stroke-width="2" stroke-linejoin="round" {look.stroke}'
    drawn = [f'<polyline {style} points="{path}"/>']
    return drawn + ([_marks(places, look)] if look.mark else [])


def _marks(places: Sequence[tuple[float, float]], look: _Look) -> str:
    """Return the marks of a line as one path."""
    if look.mark == "circle":  # a very short stroke with round caps
        path = "".join(f"M{x:.1f},{y:.1f}h.1" for x, y in places)
        style = f'fill="none" stroke="{look.colour}" stroke-width="7.6" stroke-linecap="round"'
        return f'<path {style} d="{path}"/>'
    dx, dy, outline = {
        "square": (-3.5, -3.5, "h7v7h-7z"),
        "up": (0.0, -4.5, "l4.5,8h-9z"),
        "down": (0.0, 4.5, "l4.5,-8h-9z"),
        "diamond": (0.0, -5.0, "l5,5l-5,5l-5,-5z"),
        "cross": (-4.0, -1.2, "h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z"),
    }[look.mark]
    path = "".join(f"M{x + dx:.1f},{y + dy:.1f}{outline}" for x, y in places)
    return f'<path fill="{look.colour}" d="{path}"/>'


def _legend(names: Sequence[str], looks: dict[str, _Look], left: float) -> list[str]:
    parts = []
    for i, name in enumerate(names):
        y = MARGIN_TOP + 6 + i * LEGEND_LINE
        look = looks[name]
        parts.append(
            f'<line stroke-width="2" {look.stroke} x1="{left}" y1="{y}" x2="{left + 26}" y2="{y}"/>'
        )
        if look.mark:
            parts.append(_marks([(left + 13, y)], look))
        parts.append(f'<text x="{left + 34}" y="{y + 4}">{escape(name)}</text>')
    return parts


def ticks(high: float) -> list[float]:
    """Return about N_TICK evenly spaced round numbers, from 0 to at least `high`."""
    if not high > 1e-9:
        high = 1.0
    rough = high / N_TICK
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]


def _labels(values: Sequence[float], percent: bool) -> list[str]:
    scale = 100 if percent else 1
    step = (values[1] - values[0]) * scale
    n_digit = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**n_digit - round(step * 10**n_digit)) > 1e-6:
        n_digit += 1  # a step such as 2.5
    return [f"{value * scale:,.{n_digit}f}{' %' if percent else ''}" for value in values]
