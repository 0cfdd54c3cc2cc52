r"""Formulas as readable text: \frac{a}{b} becomes a⁄b, x_i^2 becomes xᵢ². No Qt.

Only text within $…$, $$…$$, \(…\) or \[…\] changes, and never code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPENING = re.compile(r"`+|\$\$|\$|\\\[|\\\(")
_CLOSING = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_INLINE_CHARS_MAX = 300  # longest formula in single dollars; they may also be amounts of money
_NAMES = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ",
    "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ",
    "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
    "cdot": "·", "times": "×", "div": "÷", "pm": "±", "mp": "∓", "le": "≤", "leq": "≤", "ge": "≥",
    "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "equiv": "≡", "sim": "∼", "propto": "∝",
    "infty": "∞", "sum": "∑", "prod": "∏", "int": "∫", "partial": "∂", "nabla": "∇", "in": "∈",
    "notin": "∉", "subset": "⊂", "subseteq": "⊆", "cup": "∪", "cap": "∩", "emptyset": "∅",
    "forall": "∀", "exists": "∃", "neg": "¬", "land": "∧", "lor": "∨", "to": "→",
    "rightarrow": "→", "leftarrow": "←", "Rightarrow": "⇒", "Leftrightarrow": "⇔", "mapsto": "↦",
    "ldots": "…", "dots": "…", "cdots": "⋯", "quad": "  ", "qquad": "    ", "langle": "⟨",
    "rangle": "⟩", "circ": "∘", "degree": "°", "prime": "′", "ell": "ℓ", "hbar": "ℏ", "star": "⋆",
    "mid": "|", "ll": "≪", "gg": "≫", "perp": "⊥", "parallel": "∥", "angle": "∠", "oplus": "⊕",
    "otimes": "⊗", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "implies": "⇒",
    "iff": "⇔", "left": "", "right": "", "displaystyle": "", "limits": "", "big": "", "Big": "",
}  # fmt: skip
_UP = dict(zip("0123456789+-=()nixyT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸᵀ", strict=True))
_DOWN = dict(zip("0123456789+-=()aeioxhklmnpstjru", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢₒₓₕₖₗₘₙₚₛₜⱼᵣᵤ", strict=True))
_SETS = {"R": "ℝ", "N": "ℕ", "Z": "ℤ", "Q": "ℚ", "C": "ℂ", "E": "𝔼", "P": "ℙ"}
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
N_TURN = 8  # deepest nesting of formulas


def replace_math(text: str) -> str:
    """Replace the formulas in a Markdown text by readable text."""
    if "$" not in text and "\\(" not in text and "\\[" not in text:
        return text
    shown: list[str] = []
    end = 0  # of the text that is done
    for formula in _formulas(text):
        shown += [text[end : formula.begin], _marked_up(formula.body)]
        end = formula.end
    return "".join([*shown, text[end:]])


class _Formula(NamedTuple):
    """A formula: text[begin:end] with its delimiters, `body` without."""

    begin: int
    end: int
    body: str


def _formulas(text: str) -> Iterator[_Formula]:
    """Find the formulas in linear time: a search that fails is not repeated."""
    missing: set[str] = set()  # closing delimiters that do not occur again
    ticks = _runs_of_ticks(text)
    place = 0
    while opening := _OPENING.search(text, place):
        sign, begin, place = opening[0], opening.start(), opening.end()
        if sign[0] == "`":  # code ends at a run of equally many ticks; without one it is text
            later = ticks[len(sign)]
            while later and later[-1] < place:
                later.pop()
            if later:
                place = later[-1] + len(sign)
            continue
        end = -1
        if (closing := _CLOSING.get(sign)) and closing not in missing:
            end = text.find(closing, place + 1)
            if end < 0:
                missing.add(closing)
            else:
                end += len(closing)
        elif sign == "$":
            end = _end_of_inline(text, begin)
        if end >= 0:
            yield _Formula(begin, end, text[place : end - len(sign)])
            place = end


def _runs_of_ticks(text: str) -> dict[int, list[int]]:
    """Return the starts of runs of ticks by their length, the last one first."""
    runs: dict[int, list[int]] = {}
    for run in re.finditer("`+", text):
        runs.setdefault(len(run[0]), []).append(run.start())
    return {length: places[::-1] for length, places in runs.items()}


def _end_of_inline(text: str, begin: int) -> int:
    """Return the end of a formula in single dollars that begins here, or -1."""
    before, after = text[begin - 1 : begin], text[begin + 1 : begin + 2]
    if re.match(r"[\\$\w]", before) or not after or after.isspace():
        return -1
    last = text.find("$", begin + 1, begin + _INLINE_CHARS_MAX + 2)
    if last <= begin + 1 or text[last - 1].isspace() or text[last - 1] == "\\":
        return -1
    following = text[last + 1 : last + 2]
    if following == "$" or following.isdecimal() or "\n" in text[begin:last]:
        return -1
    return last + 1


def _marked_up(body: str) -> str:
    """Return a formula as Markdown, in italics if it is a word."""
    shown = re.sub(r"([*_`\[\]<>~|\\])", r"\\\1", readable(body.strip()))
    return f"*{shown}*" if re.match(r"\w", shown) and re.search(r"\w$", shown) else shown


def readable(formula: str) -> str:
    """Return a formula without its markup."""
    text = " ".join(formula.split())
    text = re.sub(r"\\(?:text|mathrm|mathbf|mathit|operatorname|boldsymbol)" + _GROUP, r"\1", text)
    text = re.sub(r"\\mathbb\{?(\w)\}?", lambda m: _SETS.get(m[1], m[1]), text)
    for _ in range(N_TURN):
        before = text
        text = re.sub(r"\\[dt]?frac" + _GROUP + _GROUP, _fraction, text)
        text = re.sub(r"\\sqrt" + _GROUP, lambda m: "√" + _bracketed(m[1]), text)
        if text == before:
            break
    text = re.sub(r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}|&", " ", text)
    text = text.replace("\\\\", "; ")
    text = re.sub(r"\\([A-Za-z]+)", lambda m: _NAMES.get(m[1], m[1]), text)
    text = re.sub(r"\\[,;:! ]", " ", text)
    text = re.sub(r"\\([{}%$#_&|])", r"\1", text)
    text = re.sub(r"\^(?:" + _GROUP + r"|(\S))", lambda m: _shift(m, _UP, "^"), text)
    text = re.sub(r"_(?:" + _GROUP + r"|(\S))", lambda m: _shift(m, _DOWN, "_"), text)
    text = text.replace("{", "").replace("}", "")
    return " ".join(text.split())


def _fraction(found: re.Match[str]) -> str:
    return f"{_bracketed(found[1])}/{_bracketed(found[2])}"


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"\w+|\\[A-Za-z]+", text.strip()) else f"({text.strip()})"


def _shift(found: re.Match[str], letters: dict[str, str], sign: str) -> str:
    body = found[1] if found[1] is not None else found[2]
    if all(letter in letters for letter in body):
        return "".join(letters[letter] for letter in body)
    return sign + (body if len(body) == 1 else f"({body})")
