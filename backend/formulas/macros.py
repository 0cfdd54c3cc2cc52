r"""Commands that stand for other LaTeX: of the packages physics, siunitx and mathtools, and others.

A body has #1, #2 for the arguments. The key of a form is the number of groups behind the command,
with "[" before it where an argument in square brackets, the first, is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Forms = dict[str, str]


def _derivative(d: str) -> Forms:
    return {
        "1": rf"\frac{{{d}}}{{{d} #1}}", "2": rf"\frac{{{d} #1}}{{{d} #2}}",
        "[1": rf"\frac{{{d}^{{#1}}}}{{{d} #2^{{#1}}}}",
        "[2": rf"\frac{{{d}^{{#1}} #2}}{{{d} #3^{{#1}}}}",
        "3": rf"\frac{{{d}^2 #1}}{{{d} #2\, {d} #3}}",
    }  # fmt: skip


_SAME = {
    "va": r"\vec{\mathbf{#1}}", "vb": r"\mathbf{#1}", "ketbra": r"|#1\rangle\langle #2|",
    "expval": r"\langle #1\rangle", "dd": r"\mathrm{d} #1", "eval": r"\left.#1\right|",
    "mathds": r"\mathbb{#1}", "mathbbm": r"\mathbb{#1}", "floor": r"\lfloor #1\rfloor",
    "ceil": r"\lceil #1\rceil", "Set": r"\left\{#1\right\}", "pod": r"\quad(#1)",
    "cancelto": r"\cancel{#2}^{#1}", "prescript": r"{}^{#1}_{#2}{#3}", "smash": "{#1}",
    "hphantom": r"\phantom{#1}", "eqref": r"\text{(#1)}", "ref": r"\text{#1}",
    "underbar": r"\underline{#1}", "textsc": r"\text{#1}", "mathclap": "{#1}",
    "curl": r"\nabla\times", "laplacian": r"\nabla^2", "Q": r"\mathbb{Q}", "C": r"\mathbb{C}",
    "E": r"\mathbb{E}", "P": r"\mathbb{P}", "RR": r"\mathbb{R}", "NN": r"\mathbb{N}",
    "ZZ": r"\mathbb{Z}", "QQ": r"\mathbb{Q}", "CC": r"\mathbb{C}", "celsius": r"\text{°C}",
    "textdegree": "°", "vcentcolon": ":", "varpropto": r"\propto", "dag": r"\dagger",
    "varlimsup": r"\overline{\lim}", "varliminf": r"\underline{\lim}",
    "idotsint": r"\int\cdots\int", "copyright": r"\text{©}", "qed": r"\square",
    "LaTeX": r"\text{LaTeX}", "TeX": r"\text{TeX}",
}  # fmt: skip
MACROS: dict[str, Forms] = {
    **{name: {str(len({*re.findall("#[0-9]", body)})): body} for name, body in _SAME.items()},
    "dv": _derivative(r"\mathrm{d}"), "pdv": _derivative(r"\partial"),
}  # fmt: skip
MACROS["dd"]["0"] = r"\mathrm{d}"
MACROS["vphantom"] = {"1": r"\relax"}
DEEPEST = 200
"""Macros that a formula may use. One that is defined by itself needs more."""

_PREFIXES = dict(
    zip(
        "femto pico nano micro milli centi deci deca hecto kilo mega giga tera peta".split(),
        "f p n μ m c d da h k M G T P".split(),
        strict=True,
    )
)
_UNITS = dict(
    zip(
        "meter metre second gram kilogram ampere kelvin mole candela hertz newton pascal joule "
        "watt volt ohm farad coulomb tesla henry weber siemens liter litre hour minute day bar "
        "electronvolt becquerel sievert gray lux lumen radian degreeCelsius celsius percent degree "
        "angstrom".split(),
        "m m s g kg A K mol cd Hz N Pa J W V Ω F C T H Wb S L L h min d bar eV Bq Sv Gy lx lm rad "
        "°C °C % ° Å".split(),
        strict=True,
    )
)
_NUMBER = re.compile(r"\s*([-+]?[0-9][0-9.,]*|)(?:[eE]([-+]?[0-9]+))?\s*")
_UNIT = re.compile(
    r"\\([A-Za-z]+)|\^?\{?(-?[0-9]+)\}?|([A-Za-z\u00b5\u03bc\u03a9\u00b0%\u00c5]+)|([./~*\s()-]|\\,)"
)
_POWERS = {"squared": "^2", "cubed": "^3"}
_BEFORE = {"square": "^2", "cubic": "^3"}


def number(text: str) -> str | None:
    """Return a number as siunitx writes it; None for another text."""
    found = _NUMBER.fullmatch(text)
    if found is None or not text.strip():
        return None
    digits, power = found[1].replace(",", r"\text{,}"), found[2]
    times = rf"{digits}\times " if digits and power else digits
    return times + (f"10^{{{int(power)}}}" if power else "")


def unit(text: str) -> str | None:
    r"""Return a unit, of siunitx's names or of signs such as m/s^2; None if it is not known."""
    made, power, at = "", "", 0
    while at < len(text):
        found = _UNIT.match(text, at)
        if found is None:
            return None
        at = found.end()
        name, raised, signs, between = found.groups()
        if name == "per":
            made += "/"
        elif name in _BEFORE:
            power = _BEFORE[name]
        elif name in _POWERS or raised:
            made += _POWERS.get(name or "", f"^{{{raised}}}")
        elif name in _PREFIXES:
            made += rf"\mathrm{{{_PREFIXES[name]}}}"
        elif name in _UNITS or signs:
            is_next = made and made[-1] not in "/," and not _is_prefix(made)
            sign = signs or _UNITS[name]
            text_of = rf"\text{{{sign}}}".replace("%", r"\%")
            made += (r"\," if is_next and name else "") + text_of + power
            power = ""
        elif name:
            return None
        elif between.strip() in ("/", "(", ")", "-"):
            made += between.strip()
        else:
            made += r"\,"
    return made


def _is_prefix(made: str) -> bool:
    return made.endswith("}") and made.rpartition("{")[0].endswith(r"\mathrm")


def quantity(value: str, of: str) -> str | None:
    """Return a number with its unit."""
    told, named = number(value), unit(of)
    return None if told is None or named is None else rf"{told}\,{named}"


def _plain_quantity(text: str) -> str | None:
    found = _NUMBER.match(text)
    assert found is not None
    told = number(found[0])
    named = unit(text[found.end() :])
    return named if told is None or named is None else rf"{told}\,{named}"


QUANTITIES: dict[str, tuple[int, Callable[..., str | None]]] = {
    "SI": (2, quantity), "qty": (2, quantity), "si": (1, unit), "unit": (1, unit),
    "num": (1, number), "pu": (1, _plain_quantity),
    "ang": (1, lambda text: None if (told := number(text)) is None else rf"{told}^\circ"),
}  # fmt: skip
"""Commands whose arguments are numbers and units: how many, and what writes them as LaTeX."""


def filled(body: str, arguments: list[str]) -> str:
    """Return a body with its arguments."""
    return re.sub("#([1-9])", lambda found: arguments[int(found[1]) - 1], body)
