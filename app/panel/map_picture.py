"""The image of the map: a palette, and rows stretched to the pixels of a widget."""

from __future__ import annotations

import functools
import math
import operator
from array import array
from collections.abc import Callable

from PySide6.QtGui import QColor, QImage

from app.widgets import theme
from backend.methods import cells

GAP = 63  # value of the lines between cells; no expert has it
GAP_FROM = 4  # smallest size of cells with lines between them, in pixels
N_LEVEL = 16  # shades of use of absent experts; 16 more of resident ones

_STATES = {cells.RESIDENT: "resident", cells.ARRIVING: "arriving"}
_USES = {cells.HIT: "hit", cells.LATE: "late", cells.MISS: "stall"}
_SHADE_LOWEST = 0.16  # shade of a single use, so that it differs from none


def state_palette() -> list[int]:
    """Return a colour for each value of a cell, pinned or not."""
    table = [0] * 64
    for value in range(64):
        name = _USES.get(value & cells.FOUND) or _STATES.get(value & cells.WHERE, "absent")
        name = "processor" if value & cells.ON_HOST else name
        table[value] = theme.colour(name).rgb()
    table[GAP] = theme.colour("surface").rgb()
    return table


def use_palette() -> list[int]:
    """Return a colour for each value of use_bytes."""
    table = [0] * 64
    for name, base in (("other", 0), ("resident", N_LEVEL)):
        for level in range(N_LEVEL):
            share = _SHADE_LOWEST + (1 - _SHADE_LOWEST) * level / (N_LEVEL - 1) if level else 0.0
            table[base + level] = _mixed(theme.colour("absent"), theme.colour(name), share).rgb()
    table[GAP] = theme.colour("surface").rgb()
    return table


def use_bytes(residency: bytes, uses: array[int]) -> bytes:
    """Return shades of use: below N_LEVEL for absent experts, from N_LEVEL on for resident ones.

    The shade is the square root of the use, because a few experts are used far more than most.
    """
    most = max(uses, default=0)
    shades = [
        math.ceil((N_LEVEL - 1) * math.sqrt(count / most)) if most else 0
        for count in range(most + 1)
    ]
    is_in = residency.translate(_IS_RESIDENT)
    return bytes(map(operator.add, map(shades.__getitem__, uses), is_in))


_IS_RESIDENT = bytes(
    N_LEVEL if value & cells.WHERE == cells.RESIDENT else 0 for value in range(256)
)


def _mixed(low: QColor, high: QColor, share: float) -> QColor:
    def between(a: int, b: int) -> int:
        return round(a + (b - a) * share)

    return QColor(
        between(low.red(), high.red()),
        between(low.green(), high.green()),
        between(low.blue(), high.blue()),
    )


def picture(data: bytes, n_expert: int, width: int, height: int, palette: list[int]) -> QImage:
    """Return an image with a row for each layer and lines between the rows.

    If there are more experts than pixels, the image has a pixel for each expert, and the painter
    scales it: no expert is dropped.
    """
    n_row = len(data) // n_expert
    if n_expert > width:
        width = n_expert
    else:
        data = _stretched(data, n_expert, width)
    lines = []
    gap = bytes([GAP]) * width
    for row in range(n_row):
        n_line = row_top(row + 1, n_row, height) - row_top(row, n_row, height)
        line = data[row * width : (row + 1) * width]
        lines.append(line * (n_line - 1) + gap if n_line >= GAP_FROM else line * n_line)
    image = QImage(b"".join(lines), width, height, width, QImage.Format.Format_Indexed8)
    image.setColorTable(palette)
    return image.convertToFormat(QImage.Format.Format_RGB32)  # a copy that does not need the bytes


def first_pixel(expert: int, n_expert: int, n_pixel: int) -> int:
    """Return the first pixel of an expert's cell."""
    return -(-expert * n_pixel // n_expert)


def row_top(row: int, n_row: int, height: int) -> int:
    """Return the top of a layer's row. Heights may differ by a pixel to fill the widget."""
    return row * height // n_row


def row_at(y: int, n_row: int, height: int) -> int:
    """Return the row that contains a line of pixels; the inverse of row_top."""
    return -(-(y + 1) * n_row // height) - 1


@functools.lru_cache(maxsize=4)
def _columns(n_expert: int, n_pixel: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return a function that maps a row of experts, with GAP appended, to its pixels."""
    cells = [pixel * n_expert // n_pixel for pixel in range(n_pixel)]
    if n_pixel >= GAP_FROM * n_expert:
        for pixel in range(n_pixel - 1):
            if cells[pixel] != cells[pixel + 1]:
                cells[pixel] = n_expert
    return operator.itemgetter(*cells, n_expert)  # one more, so that the result is always a tuple


def _stretched(data: bytes, n_expert: int, n_pixel: int) -> bytes:
    """Stretch each row of experts to `n_pixel` values."""
    pick = _columns(n_expert, n_pixel)
    gap = bytes([GAP])
    rows = (
        bytes(pick(data[start : start + n_expert] + gap)[:n_pixel])
        for start in range(0, len(data), n_expert)
    )
    return b"".join(rows)
