r"""Formulas as readable text: \frac{a}{b} becomes a⁄b, x_i^2 becomes xᵢ². No Qt.

Only what stands between $…$, $$…$$, \(…\) or \[…\] is touched, and never code.
"""

from __future__ import annotations

import re

_MATH = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)"
    r"|(?<![\\$\w])\$(?=\S)(?P<d>[^$\n]{1,300}?)(?<=[^\s\\])\$(?![\d$])",
    re.DOTALL,
)
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
N_TURN = 8  # how deep formulas may be nested


def replace_math(text: str) -> str:
    """Return Markdown with its formulas as text that means what it shows."""
    if "$" not in text and "\\(" not in text and "\\[" not in text:
        return text
    return _MATH.sub(_replace, text)


def _replace(found: re.Match[str]) -> str:
    if found["code"]:
        return found[0]
    body = found["a"] or found["b"] or found["c"] or found["d"] or ""
    shown = re.sub(r"([*_`\[\]<>~|\\])", r"\\\1", readable(body.strip()))
    return f"*{shown}*" if re.match(r"\w", shown) and re.search(r"\w$", shown) else shown


def readable(formula: str) -> str:
    """Return one formula without its markup."""
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
