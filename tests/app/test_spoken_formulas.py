"""Formulas in words, for screen readers."""

import pytest
from PySide6.QtWidgets import QApplication

from app.chat.spoken_formulas import in_words
from app.text import language
from backend.formulas.mathml import mathml
from backend.formulas.spoken import N_WORD_MAX, spoken

SIGNS = {"alpha": "α", "in": "∈", "infty": "∞", "pm": "±", "rightarrow": "→"}


def said(latex: str) -> str:
    return in_words(spoken(mathml(latex, True, SIGNS.get)))


@pytest.mark.parametrize(
    ("latex", "words"),
    [
        (r"\frac{a}{b}", "a over b"),
        (r"\frac{a+1}{b}", "fraction a plus 1 over b end of fraction"),
        (r"x^2+y^3", "x squared plus y cubed"),
        (r"x^n", "x to the power n"),
        (r"e^{-x^2}", "e to the power minus x squared end of power"),
        (r"x_i", "x sub i"),
        (r"x_{n+1}^2", "x sub n plus 1 end of sub squared"),
        (r"\sqrt{2}", "square root of 2"),
        (r"\sqrt{a+b}", "square root of a plus b end of root"),
        (r"\sqrt[3]{8}", "root of degree 3 taken of 8"),
        (r"\sum_{i=1}^{n} i", "sum from i equals 1 to n of i"),
        (r"\int_0^\infty f", "integral from 0 to infinity of f"),
        (r"\lim_{x\to 0} f(x)", "lim from x goes to 0 of f open bracket x close bracket"),
        (r"\binom{n}{k}", "n choose k"),
        (r"{n \choose k}", "n choose k"),
        (r"\vec{F}=m\vec{a}", "F vector equals m a vector"),
        (r"\hat{y}", "y hat"),
        (r"\overline{AB}", "A B bar"),
        (r"f'(x)", "f prime open bracket x close bracket"),
        (r"\boxed{42}", "in a box 42 end"),
        (
            r"\begin{pmatrix}a&b\\c&d\end{pmatrix}",
            "open bracket table of 2 rows and 2 columns: row 1: a next column b row 2: c next "
            "column d close bracket",
        ),
        (r"\alpha\in\mathbb{R}", "α is in ℝ"),
        (r"\text{if } x\ne y", "if x does not equal y"),
        (r"x=\frac{-b\pm\sqrt{b^2-4ac}}{2a}",
         "x equals fraction minus b plus or minus square root of b squared minus 4 a c end of root "
         "over 2 a end of fraction"),
    ],
)  # fmt: skip
def test_a_formula_is_said_in_words(latex: str, words: str) -> None:
    assert said(latex) == words


def test_a_formula_is_said_in_german(qapp: QApplication) -> None:
    language.apply(qapp, "de")
    try:
        assert said(r"\frac{a+1}{\sqrt{x^2}}") == (
            "Bruch a plus 1 durch Wurzel aus x zum Quadrat Ende der Wurzel Ende des Bruchs"
        )
        assert said(r"\sum_{i=1}^{n} x_i") == "Summe von i gleich 1 bis n über x Index i"
    finally:
        language.apply(qapp, "en")


def test_a_long_formula_ends() -> None:
    words = spoken(mathml("+".join("x" * 900), True, SIGNS.get))
    assert len(words) == N_WORD_MAX + 1 and words[-1] == "…"
