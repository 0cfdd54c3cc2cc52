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
        (r"\textbf{结论 1} \mathrm{面积}", "结论\u00a0𝟏面积"),
        (r"\norm{x} \abs{y} \Var(X) \pounds 5", "‖x‖|y|Var(X)£5"),
        (r"\Large \set{1, \nicefrac{1}{2}, \hdots}", "{1,12,…}"),
        (r"{\bf x} {\rm sin} x \cal L", "𝐱sinxℒ"),
        (r"\require{cancel}\fbox{so} x\kern 1.5pt y\hspace*{1cm}z\mkern-3mu", "soxyz"),
        (r"\begin{array}{@{}l|c@{}}\hline a&b\\\hline\end{array}", "ab"),
    ],
)
def test_a_formula_keeps_all_its_signs(latex: str, signs: str) -> None:
    assert shown(latex) == signs


@pytest.mark.parametrize(
    ("latex", "signs"),
    [
        (r"\newcommand{\R}{\mathbb{R}} x\in\R^n", "x∈ℝn"),
        (r"\newcommand*\p[2][p]{#1_{#2}} \p{i}\p[q]{j}", "piqj"),
        (r"\def\f#1{f(#1)} \f{x}\f y", "f(x)f(y)"),
        (r"\DeclareMathOperator*{\am}{arg\,max} \am_x f", "argmaxxf"),
        (r"\renewcommand{\vec}[1]{\mathbf{#1}} \begin{aligned}\vec a&=\vec{b}\end{aligned}", "𝐚=𝐛"),
        (r"\dv{f}{x}\dv{x}\dv[2]{f}{x}", "dfdxddxd2fdx2"),
        (r"\pdv{f}{x}{y}\pdv[n]{x}", "∂2f∂x∂y∂n∂xn"),
        (r"\int f\dd x \dd{y}", "∫fdxdy"), (r"\ketbra{0}{1}\eval{f}_0^1", "|0⟩⟨1|f|01"),
        (r"\SI{9,8}{m/s^2}", "9,8m/s2"), (r"\si{\kilogram\meter\per\second\squared}", "kgm/s2"),
        (r"\qty{1.5e3}{\kilo\watt\hour}\num{-1e-5}", "1.5×103kWh−1×10−5"),
        (r"\pu{1.2e-3 mol L-1}\ang{45}", "1.2×10−3molL−145∘"),
        (r"\SI{25}{\degreeCelsius}\SI{60}{\percent}", "25°C60%"),
        (r"\tag{1} a=b", "a=b(1)"),
        (r"\begin{aligned}\tag{2} a&=b\\ c&=d\end{aligned}", "a=b(2)c=d"),
        (r"\mathbbm{1}_A \E[X] \floor{x}", "𝟙A𝔼[X]⌊x⌋"),
        (r"\cancelto{0}{x}\prescript{14}{6}{C}\vphantom{y}", "x0614C"),
    ],
)  # fmt: skip
def test_commands_that_stand_for_others(draw: Draw, latex: str, signs: str) -> None:
    """Definitions, and the packages physics, siunitx, mathtools and bbm."""
    tree = mathml(latex, True, child.symbols().get)
    assert "".join(tree.itertext()).replace(" ", "") == signs
    assert draw(latex, True).get("svg")


def test_ten_to_the_power_is_read_as_latex_reads_it() -> None:
    whole = mathml("x^10", True, lambda name: None)
    assert [part.tag for part in whole[0]] == ["msup", "mn"]


@pytest.mark.parametrize(
    "latex",
    [
        "", r"\foo{x}", r"\ce{A ->[x}", r"\ce{^{14}}", r"\ce{A & B}", r"\ce{A B(}",
        r"\ce{H2O", r"\ce{}",
        r"\def\x{\x\x}\x", r"\newcommand{\a}{b\a}\a", r"\newcommand{\a}[1]{#1}\a", r"\def a{b}",
        r"\newcommand{\a}{\foo}\a", r"\newcommand{\a", r"\newcommand{\a}[x]{#1}\a",
        r"\newcommand{\a}{#2}\a", r"\SI{1}{\foo}", r"\SI{a}{m}", r"\num{}", r"\ang{x}", r"\dv[2]",
        r"\vb", r"\kern x", r"\hskip 99cm x",
        r"\color{nosuch}x + y", r"\textcolor{nosuch}{x}", r"\color", r"\textcolor{red}",
        r"\frac{a}", r"x^", r"x_1_2", "a_{b", "a}", r"\left(x", r"x\right)",
        "a & b", r"\begin{matrix}a", r"\begin{pmatrix}a\end{bmatrix}", r"\begin{tikz}a\end{tikz}",
        r"\begin{array}{c|}a&b\end{array}", r"\begin{array}{c}a&b\end{array}", r"\hline",
        r"\begin{array}{p{1em}}a\end{array}", r"\begin{array}{c}a\hline\end{array}",
        r"\begin{array}{cc}a&b\\\cline{1-1}c&d\end{array}", r"\begin{matrix}\hline a\end{matrix}",
        r"\limits",
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
    ("chemical", "signs"),
    [
        ("H2O", "H2O"), ("2H2 + O2 -> 2 H2O(l)", "2H2+O2⟶2H2O(l)"),
        ("SO4^{2-} + Fe^3+", "SO42−+Fe3+"), ("Ca(OH)2 <=> Ca^2+ + 2OH-", "Ca(OH)2⇌Ca2++2OH−"),
        ("[Cu(NH3)4]^{2+}", "[Cu(NH3)4]2+"), ("Zn -> Zn^2+ + 2e-", "Zn⟶Zn2++2e−"),
        ("CH3-CH=CH-C#CH", "CH3–CH=CH–C≡CH"), ("C6H5-(CH2)2-OH", "C6H5–(CH2)2–OH"),
        ("CuSO4.5H2O", "CuSO4⋅5H2O"), ("Na2CO3 * 10H2O", "Na2CO3⋅10H2O"),
        ("CaCO3(s) -> CO2 ^ + CaO v", "CaCO3(s)⟶CO2↑+CaO↓"),
        ("^{14}_{6}C -> ^14N + e-", "614C⟶14N+e−"), ("3^1_0n", "301n"), ("A v + B", "A↓+B"),
        ("1/2 O2 + x Na + 0.5Cl2", "12O2+xNa+0.5Cl2"),
        ("A ->[MnO2][450 °C] B", "A→450 °CMnO2B"), ("A->[\\Delta]B", "A→ΔB"),
        ("RCOOH + R'OH", "RCOOH+R′OH"), ("Cl^.", "Cl•"), ("C_nH_{2n+2}", "CnH2n+2"),
        ("\\alpha-Fe", "α-Fe"), ("CH3COO-(aq)", "CH3COO−(aq)"),
    ],
)  # fmt: skip
def test_chemical_equations(draw: Draw, chemical: str, signs: str) -> None:
    tree = mathml(rf"\ce{{{chemical}}}", True, child.symbols().get)
    assert "".join(tree.itertext()).replace("\u00a0", " ") == signs
    assert draw(rf"\ce{{{chemical}}}", True).get("svg")


@pytest.mark.parametrize(
    ("latex", "colours"),
    [
        (r"\textcolor{red}{x} + \color{#0A0}{\frac{a}{b}}", {"black", "#ff0000", "#00aa00"}),
        (r"\textcolor{blue}{x^{\textcolor{Red}{2}}}", {"#0000ff", "#ff0000"}),
        (r"\textcolor{black}{x}", {"black"}),
        (r"{\color{red} x+y} + \color{blue}{z}^2 + 1", {"black", "#ff0000", "#0000ff"}),
        (r"1 + \color{green} x^2", {"black", "#00a000"}),
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


@pytest.mark.parametrize(
    ("latex", "n_line"),
    [
        (r"\left[\begin{array}{cc|c}1&2&3\\4&5&6\end{array}\right]", 1),
        (r"\begin{array}{c|c|c}p&q&r\\\hline T&T&F\end{array}", 3),
        (r"\begin{array}{|l|r|}\hline a&b\\\hline c&\\\hline\end{array}", 6),
        (r"\begin{array}{r}12\\+34\\\hline 46\end{array}", 1),
        (r"\begin{array}{|c}\\\hline \\x\end{array}", 2),
        (r"\begin{array}{cc}a&b\\c&d\end{array}", 0),
    ],
)
def test_the_lines_of_a_table_are_within_it(draw: Draw, latex: str, n_line: int) -> None:
    made = draw(latex, True)
    left, top, width, height = map(float, fromstring(made["svg"]).get("viewBox", "").split())
    lines = [part for part in fromstring(made["svg"]).iter() if part.tag.endswith("rect")]
    assert len(lines) == n_line
    for line in lines:
        x, y, wide, high = (float(line.get(name, "")) for name in ("x", "y", "width", "height"))
        assert left <= x and x + wide <= left + width and top <= y and y + high <= top + height
        assert max(wide, high) > child.SIZE > 10 * min(wide, high)


def test_an_arrow_is_as_long_as_its_words(draw: Draw) -> None:
    words = draw(r"\scriptstyle\text{by the second lemma}", True)["width"]
    for latex in (r"\xrightarrow{%s}", r"\xLeftarrow[%s]{}"):
        made = draw(latex.replace("%s", r"\text{by the second lemma}"), True)
        points = re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", made["svg"])
        at_the_axis = [float(x) for x, y in points if -6.5 < float(y) < -3.5]
        assert words < max(at_the_axis) - min(at_the_axis) < words * 1.6, latex


@pytest.mark.parametrize("latex", [r"a=b\\\\c=d", r"\begin{aligned}a&=b\\&\\\\c&=d\end{aligned}"])
def test_an_empty_row_is_as_high_as_a_letter(draw: Draw, latex: str) -> None:
    made, usual = draw(latex, True), draw(r"a=b\\c=d", True)
    assert usual["ascent"] + 10 < made["ascent"] < 3 * usual["ascent"]


def test_a_command_of_another_package_is_no_sign(draw: Draw) -> None:
    """Some stand over a part; a name such as "fun" is a function that somebody has defined."""
    for latex in (r"\underbracket{AB}", r"\Vec{a}", r"\fun", r"\rel", r"\prof"):
        assert draw(latex, True) == {}
    assert draw(r"\leqslant \aleph \heartsuit \coloneqq", True) != {}


def test_east_asian_signs_are_left_to_the_fonts_of_the_window(draw: Draw) -> None:
    made = draw(r"v=\frac{\text{距离}}{\text{시간}} \textcolor{red}{面積}，\text{（キロ）}", True)
    tree = fromstring(made["svg"])
    signs = [part for part in tree.iter() if part.tag.endswith("text")]
    assert "".join(str(sign.text) for sign in signs) == "距离시간面積，（キロ）"
    first, second = (float(sign.get("x", "")) for sign in signs[:2])
    assert second - first == pytest.approx(child.SIZE, abs=0.1)
    assert {sign.get("fill") for sign in signs} == {"black", "#ff0000"}
    last = float(signs[-1].get("x", ""))
    assert last + child.SIZE <= made["width"]
    assert "距离" in "".join(made["spoken"])


def test_signs_that_the_font_lacks_are_not_boxes(draw: Draw) -> None:
    assert draw(r"\text{שטח}", True) == draw("👍", True) == {}  # nor has it another script's joints
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
