"""The process that draws formulas. Their LaTeX is not trusted.

Standard input and output have a JSON object per line:

    {"latex": the formula without its delimiters, "display": whether it stands alone,
     "limit_s": processor time for it}
    {"svg", "width", "ascent", "depth",   its picture, in pixels where an em has SIZE
     "spoken"}                            and its words (spoken.py)
    {}                                    it cannot be drawn rightly

The process ends when its input ends. A formula that takes longer than its limit ends it, too;
whoever started it starts another.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
import unicodedata
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

from backend.formulas.mathml import Unknown, mathml
from backend.formulas.spoken import spoken
from backend.system.limits import limit_memory, time_limit
from backend.system.pipes import die_with_parent, private_pipes

SIZE = 20.0
"""Pixels of an em, in which the answers count."""
WIDTH_MAX, HEIGHT_MAX = 200 * SIZE, 60 * SIZE
SVG_CHARS_MAX = 1 << 20
_MEMORY_LIMIT_BYTES = 256 << 20
_MARGIN = 1.0
_PACKAGES = {"amssymb", "amsmath", "amsfonts"}
_KINDS = {f"math{kind}" for kind in "alpha bin close fence op open ord punct rel".split()}


def main() -> int:
    """Answer requests until the input ends."""
    logging.disable(logging.CRITICAL)
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    die_with_parent()
    draw = typesetter()
    limit_memory(_MEMORY_LIMIT_BYTES)
    with os.fdopen(in_fd, "rb") as lines, os.fdopen(out_fd, "wb") as out:
        for line in lines:
            request = json.loads(line)
            with time_limit(request["limit_s"]):
                answer = draw(request["latex"], request["display"])
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()
    return 0


def symbols() -> dict[str, str]:
    """Return the signs that commands of LaTeX and of AMS stand for, by their names.

    The table has those of other packages, too, in which a name may mean something else; and accents
    and brackets over a part, which are no signs of their own.
    """
    from latex2mathml.symbols_parser import SYMBOLS_FILE

    found: dict[str, str] = {}
    with open(SYMBOLS_FILE, encoding="utf-8") as file:
        for line in file:
            if line[0] == "#" or len(columns := line.split("^")) < 7:
                continue
            code, name, kind, packages = columns[0], columns[2], columns[5], columns[6].split()
            is_usual = all(one[0] == "-" for one in packages) or {*packages} & _PACKAGES
            if is_usual and kind in _KINDS and name[:1] == "\\":
                found.setdefault(name[1:], chr(int(code, 16)))
    return found


def typesetter() -> Callable[[str, bool], dict[str, Any]]:
    """Load the library and its font. Return what answers a request."""
    from ziamath.config import config
    from ziamath.zmath import Math, loadedfonts

    config.svg2 = False  # Qt reads SVG Tiny, which has no symbols
    _extend_library()
    font = loadedfonts["default"]
    find, glyph, symbol = font.glyphindex, font.glyph, symbols().get
    full_width = _full_width_glyph(font)

    def found(char: str) -> int:
        index: int = find(char)
        if not index and not char.isspace():
            raise Unknown  # the font would show a box
        return index

    font.glyphindex = found  # type: ignore[method-assign]
    font.glyph = lambda char: (  # type: ignore[method-assign]
        full_width(char) if _is_full_width(char) and not find(char) else glyph(char)
    )

    def draw(latex: str, is_display: bool) -> dict[str, Any]:
        try:
            tree = mathml(latex, is_display, symbol)
            made = Math(tree, size=SIZE, margin=_MARGIN)
            svg, said = made.svg(), spoken(tree)
        except (MemoryError, RecursionError):
            return {}
        except Exception:  # the library raises nearly anything for a formula that it cannot draw
            return {}
        box = made.node.bbox
        width, height = box.xmax - box.xmin, box.ymax - box.ymin
        is_shown = 0 < width < WIDTH_MAX and 0 < height < HEIGHT_MAX
        if not is_shown or len(svg) > SVG_CHARS_MAX:
            return {}
        ascent, depth = box.ymax + _MARGIN, _MARGIN - box.ymin
        sizes = {"width": width + 2 * _MARGIN, "ascent": ascent, "depth": depth}
        return {"svg": svg, **sizes, "spoken": said}

    return draw


def _is_full_width(char: str) -> bool:
    """Return whether a sign of East Asian writing is as wide as an em in every font."""
    is_writing = unicodedata.category(char)[0] in "LNP" or unicodedata.category(char) == "Sm"
    return is_writing and unicodedata.east_asian_width(char) in ("W", "F")


def _full_width_glyph(font: Any) -> Callable[[str], Any]:
    """Return what makes a glyph of such a sign. The window's font has its shape."""
    from ziafont.fonttypes import BBox
    from ziafont.glyph import SimpleGlyph

    em: int = font.info.layout.unitsperem
    box = BBox(0, em, round(-0.12 * em), round(0.86 * em))

    class FullWidth(SimpleGlyph):
        def __init__(self, char: str) -> None:
            super().__init__(0, [], box, font)
            self._char = char

        def advance(self, nextchr: object = None) -> int:
            return em

        def svgpath(self, x0: float = 0, y0: float = 0, scale_factor: float = 1) -> Element:
            size = {"font-family": "sans-serif", "font-size": f"{scale_factor * self.DFLT_SIZE_PT}"}
            made = Element("text", {"x": f"{x0:.3f}", "y": f"{y0:.3f}", **size})
            made.text = self._char
            return made

    return FullWidth


def _extend_library() -> None:
    """Let the library draw what it ignores: the lines of a table, and the width of an operator.

    The attributes rowlines and columnlines are the numbers of the rows and columns before which a
    line stands; the number of all rows is that of a line below the last one.
    """
    from ziafont.fonttypes import BBox
    from ziamath.drawable import HLine, VLine
    from ziamath.nodes.moperator import Moperator
    from ziamath.nodes.mtable import Mtable

    class Operator(Moperator, tag="mo"):
        def __init__(self, element: Any, parent: Any, **options: Any) -> None:
            if width := element.get("width"):
                options["width"] = parent.size_px(width)
            super().__init__(element, parent, **options)

    class Table(Mtable, tag="mtable"):
        def _setup(self, **options: Any) -> None:
            super()._setup(**options)
            marked = [self.element.get(f"{kind}lines", "").split() for kind in ("column", "row")]
            if not any(marked):
                return
            width = self.units_to_points(self.font.math.consts.radicalRuleThickness)
            gap = self.size_px("0.45em")
            places = [
                (column, row)
                for row, cells in enumerate(self.element)
                for column in range(len(cells))
            ]
            columns: dict[int, tuple[float, float]] = {}
            rows: dict[int, tuple[float, float]] = {}
            for (column, row), node, (x, y) in zip(places, self.nodes, self.nodexy, strict=True):
                for spans, number, span in (
                    (columns, column, (x, x + node.bbox.xmax)),
                    (rows, row, (y - node.bbox.ymax, y - node.bbox.ymin)),
                ):
                    old = spans.get(number, span)
                    spans[number] = min(old[0], span[0]), max(old[1], span[1])
            edges = []
            for spans in (columns, rows):
                ends = [spans[number] for number in range(len(spans))]
                inner = [(a[1] + b[0]) / 2 for a, b in itertools.pairwise(ends)]
                edges.append([ends[0][0] - gap, *inner, ends[-1][1] + gap])
            (left, *_, right), (top, *_, bottom) = edges
            for number in map(int, marked[0]):
                self.nodes.append(VLine(bottom - top, width, style=self.style, **options))
                self.nodexy.append((edges[0][number] - left, top))
            for number in map(int, marked[1]):
                self.nodes.append(HLine(right - left + width, width, style=self.style, **options))
                self.nodexy.append((0, edges[1][number]))
            n_cell = len(places)
            self.nodexy[:n_cell] = [(x - left, y) for x, y in self.nodexy[:n_cell]]
            self.bbox = BBox(0, right - left + width, -bottom - width, -top)


if __name__ == "__main__":
    sys.exit(main())
