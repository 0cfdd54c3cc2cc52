"""Formulas of LaTeX: what is drawn, and what stays its source."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from backend.formulas import child
from backend.formulas.mathml import Unknown, mathml
from backend.system import children

Draw = Callable[[str, bool], dict[str, Any]]


@pytest.fixture(scope="module")
def draw() -> Draw:
    return child.typesetter()


def shown(latex: str, *, is_display: bool = True) -> str:
    """Return the letters and signs of a formula in their order."""
    names = {"alpha": "α", "leq": "≤"}
    return "".join(mathml(latex, is_display, names.get).itertext())


@pytest.mark.parametrize(
    ("latex", "signs"),
    [
        (r"\frac{a}{b}", "ab"),
        (r"x^10", "x10"),
        (r"\binom{n_{1}}{k}", "(n1k)"),
        (r"|x||y|", "|x||y|"),  # and not the bars of a norm
        (r"\begin{pmatrix}a&b\\[2pt]c&d\end{pmatrix}^{-1}", "(abcd)−1"),
        (r"\mathbb{R}\mathbf{v}\mathcal{L}\mathfrak{C}\mathit{h}", "ℝ𝐯ℒℭℎ"),
        (r"\text{für 5\% of } x", "für\u00a05%\u00a0of\u00a0x"),
        (r"\text{in 5 em, <mi>}", "in\u00a05\u00a0em,\u00a0<mi>"),
        (r"\alpha \not\in B \leq c", "α∉B≤c"),
        (r"f''(x)'", "f′′(x)′"),
        (r"E=mc^2\tag{1}\label{a}", "E=mc2(1)"),
        (r"\left.\frac{a}{b}\right|_0", "ab|0"),
        (r"a=b \\ c=d", "a=bc=d"),
        (r"{n \choose k} {a \over {b \over c}}", "(nk)abc"),
        (r"\text{if $n>0$, \$5}", "if\u00a0n>0,\u00a0$5"),
        (r"\bra{a}\ket{b}\braket{c|d}", "⟨a||b⟩⟨c|d⟩"),
    ],
)
def test_a_formula_keeps_all_its_signs(latex: str, signs: str) -> None:
    assert shown(latex) == signs


def test_ten_to_the_power_is_read_as_latex_reads_it() -> None:
    whole = mathml("x^10", True, lambda name: None)
    assert [part.tag for part in whole[0]] == ["msup", "mn"]


@pytest.mark.parametrize(
    "latex",
    [
        "", r"\foo{x}", r"\ce{CH3-CH3}", r"\ce{^{14}C}", r"\ce{A B(}", r"\ce{H2O", r"\ce{}",
        r"\def\x{\x\x}\x", r"\newcommand{\a}{b}\a", r"\require{x}",
        r"\color{red}x + y", r"\textcolor{nosuch}{x}", r"\color{red}",
        r"\frac{a}", r"x^", r"x_1_2", "a_{b", "a}", r"\left(x", r"x\right)",
        "a & b", r"\begin{matrix}a", r"\begin{pmatrix}a\end{bmatrix}", r"\begin{tikz}a\end{tikz}",
        r"\begin{array}{c|c}a&b\end{array}", r"\begin{array}{c}a&b\end{array}", r"\hline",
        r"\limits", r"\tag{1}x",
        r"\text{a $b}", r"\text{a $\foo$}", r"a \over b \over c",
        r"\over b", r"\text{\foo}", r"\mathbf{ü}", r"\not x", r"\hspace{99em}x", "a % b", "#1",
        "a\u0301", "\u202ex", "\0", "{" * 500, "{" * 30 + "x" + "}" * 30, "x" * 100_000,
        "x_{" * 40 + "}" * 40,
    ],
)  # fmt: skip
def test_what_is_not_known_wholly_is_refused(latex: str) -> None:
    with pytest.raises(Unknown):
        shown(latex)


@pytest.mark.parametrize(
    ("chemical", "plain"),
    [
        ("H2O", r"\mathrm{H}_2\mathrm{O}"),
        ("2H2 + O2 -> 2 H2O(l)", None),
        ("SO4^{2-} + Fe^3+", r"\mathrm{S}\mathrm{O}_4^{2-} + \mathrm{Fe}^{3+}"),
        ("Ca(OH)2 <=> Ca^2+ + 2OH-", None),
        ("[Cu(NH3)4]^{2+}", None), ("Zn -> Zn^2+ + 2e-", None),
    ],
)  # fmt: skip
def test_chemical_equations(draw: Draw, chemical: str, plain: str | None) -> None:
    made = draw(rf"\ce{{{chemical}}}", True)
    assert made.get("svg"), chemical
    if plain is not None:
        assert made["spoken"] == draw(plain, True)["spoken"]


@pytest.mark.parametrize(
    ("latex", "colours"),
    [
        (r"\textcolor{red}{x} + \color{#0A0}{\frac{a}{b}}", {"black", "#ff0000", "#00aa00"}),
        (r"\textcolor{blue}{x^{\textcolor{Red}{2}}}", {"#0000ff", "#ff0000"}),
        (r"\textcolor{black}{x}", {"black"}),
    ],
)
def test_parts_have_their_colours(draw: Draw, latex: str, colours: set[str]) -> None:
    made = draw(latex, True)
    assert set(re.findall('(?:fill|stroke)="([^"]*)"', made["svg"])) - {"none"} == colours
    assert made["spoken"] == draw(re.sub(r"\\(text)?color\{.*?\}", "", latex), True)["spoken"]


def test_the_picture_has_the_size_of_its_letters(draw: Draw) -> None:
    made = draw(r"\frac{a}{b}", True)
    svg = fromstring(made["svg"])
    assert float(svg.get("width", "0")) == pytest.approx(made["width"], abs=0.01)
    height = made["ascent"] + made["depth"]
    assert float(svg.get("height", "0")) == pytest.approx(height, abs=0.01)
    assert 0.5 * child.SIZE < made["depth"] < made["ascent"] < 2 * child.SIZE
    assert "symbol" not in made["svg"]  # SVG Tiny has none


def test_a_command_of_another_package_is_no_sign(draw: Draw) -> None:
    """Some stand over a part; a name such as "fun" is a function that somebody has defined."""
    for latex in (r"\overparen{AB}", r"\underbracket{AB}", r"\Vec{a}", r"\fun", r"\rel", r"\prof"):
        assert draw(latex, True) == {}
    assert draw(r"\leqslant \aleph \heartsuit \coloneqq", True) != {}


def test_signs_that_the_font_lacks_are_not_boxes(draw: Draw) -> None:
    assert draw(r"\text{日本}", True) == draw("👍", True) == {}
    assert draw(r"\text{Größe}", True) != {}


def test_the_process_answers_and_a_slow_formula_ends_it() -> None:
    slow = "\\left(" * 20 + "x" + "\\right)" * 20
    requests = [
        {"latex": text, "display": False, "limit_s": 0.5}
        for text in ("\\foo", "\\sqrt{x}", slow, "x")
    ]
    process = children.start("backend.formulas.child")
    try:
        said, _ = process.communicate("".join(f"{json.dumps(r)}\n" for r in requests).encode(), 60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    answers = [json.loads(line) for line in said.splitlines()]
    assert [sorted(answer) for answer in answers] == [
        [],
        ["ascent", "depth", "spoken", "svg", "width"],
    ]
    assert process.returncode != 0
