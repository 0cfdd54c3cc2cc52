r"""Equations of the LaTeX package mhchem as plain LaTeX.

Known are species such as 2Ca(OH)2(aq), with charges, isotopes, bonds and water of crystals;
amounts, arrows with what stands above and below them, and the marks of a gas and of a precipitate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ARROW = re.compile(
    r"(<=>>|<<=>|<=>|<-->|<->|->|<-)(?:\[([^\[\]]{0,60})\])?(?:\[([^\[\]]{0,60})\])?"
)
_ARROWS = {
    "->": ("longrightarrow", "xrightarrow"), "<-": ("longleftarrow", "xleftarrow"),
    "<->": ("longleftrightarrow", "xleftrightarrow"),
}  # fmt: skip
_BOTH = ("rightleftharpoons", "xrightleftharpoons")
_MARKS = {"+": "+", "^": r"\uparrow\,", "v": r"\downarrow\,", "*": r"\cdot", "·": r"\cdot"}
_AMOUNT = re.compile(r"\d{1,3}/\d{1,3}|\d{1,4}(?:\.\d{1,3})?|[a-z]|\$[a-z]\$")
_BONDS = {"-": r"\text{–}", "=": r"\text{=}", "#": r"\text{≡}"}

# The parts of a species, of which the first that fits is taken.
_PARTS = re.compile(
    r"(?P<state>\((?:aq|s|l|g)\)\Z)"
    r"|(?P<charge>\^?\d?[+-](?=\((?:aq|s|l|g)\)\Z|\Z)|\^\{\d{0,2}[+-]\})"
    r"|(?P<radical>\^\{?(?:\.|\\bullet)\}?)"
    r"|(?P<isotope>(?:\^(?:\d{1,3}|\{\d{1,3}\})|_(?:\d{1,3}|\{-?\d{1,3}\})){1,2}(?=[A-Zne]))"
    r"|(?P<atom>[A-Z][a-z]?'{0,2})(?P<n>\d{1,3}|_\{[^{}\\]{1,9}\}|_[a-z\d])?"
    r"|(?P<bracket>[()\[\]])(?P<n_bracket>\d{1,3}|_\{[^{}\\]{1,9}\}|_[a-z\d])?"
    r"|(?P<bond>[-=#])(?=[A-Z(\[])"
    r"|(?P<water>[.*·])(?P<n_water>\d{0,2})(?=[A-Z(])"
    r"|(?P<particle>[en])(?=\^|[+-]|\Z)"
)
_SCRIPT = re.compile(r"([\^_])\{?(-?\d+)\}?")
_COMMAND = re.compile(r"\\[A-Za-z]+-?")
_LEADING = re.compile(r"(\d{1,3}/\d{1,3}|\d{1,4}(?:\.\d{1,3})?)(?=[A-Z(\[e]|[\^_]\{?\d)")


def plain_latex(text: str) -> str | None:
    r"""Return the argument of \ce as plain LaTeX; None if a part of it is not known."""
    made: list[str] = []
    end = 0
    for arrow in _ARROW.finditer(text):
        made += [*map(_word, text[end : arrow.start()].split()), _arrow(*arrow.groups(""))]
        end = arrow.end()
    made += map(_word, text[end:].split())
    return " ".join(made) if made and all(made) else None


def _arrow(sign: str, above: str, below: str) -> str:
    short, long = _ARROWS.get(sign, _BOTH)
    if not above and not below:
        return rf"\;\{short}\;"
    return rf"\{long}[{_condition(below)}]{{{_condition(above)}}}"


def _condition(text: str) -> str:
    """Return what stands at an arrow: species, commands of LaTeX, or words."""
    if not text or "\\" in text:
        return text
    read = list(map(_word, text.split()))
    return " ".join(read) if all(read) else rf"\text{{{text}}}"


def _word(word: str) -> str:
    """Return what stands between spaces; "" if it is not known."""
    if word in _MARKS:
        return _MARKS[word]
    if _AMOUNT.fullmatch(word):
        return _amount(word.strip("$"))
    prefix = ""
    if command := _COMMAND.match(word):
        prefix = command[0].rstrip("-") + (r"\text{-}" if command[0][-1] == "-" else " ")
        word = word[command.end() :]
        if not word:
            return prefix
    elif leading := _LEADING.match(word):
        prefix, word = _amount(leading[1]), word[leading.end() :]
    parts = list(_species(word))
    has_pairs = word.count("(") == word.count(")") and word.count("[") == word.count("]")
    return prefix + "".join(parts) if parts and all(parts) and has_pairs else ""


def _amount(text: str) -> str:
    above, _, below = text.partition("/")
    return rf"\tfrac{{{above}}}{{{below}}}\," if below else rf"{text}\,"


def _species(word: str) -> Iterator[str]:
    """Yield the parts of a species, and "" at the first that is not known."""
    end = 0
    while end < len(word):
        part = _PARTS.match(word, end)
        if part is None:
            yield ""
            return
        end = part.end()
        if atom := part["atom"]:
            letters = atom.rstrip("'")
            yield rf"\text{{{letters}}}" + atom[len(letters) :] + _number(part["n"])
        elif bracket := part["bracket"]:
            yield bracket + _number(part["n_bracket"])
        elif state := part["state"]:
            yield rf"\text{{{state}}}"
        elif charge := part["charge"]:
            yield f"^{{{charge.strip('^{}')}}}"
        elif part["radical"]:
            yield r"^{\bullet}"
        elif isotope := part["isotope"]:
            yield "{}" + "".join(f"{sign}{{{n}}}" for sign, n in _SCRIPT.findall(isotope))
        elif bond := part["bond"]:
            yield _BONDS[bond]
        elif particle := part["particle"]:
            yield rf"\text{{{particle}}}"
        else:
            yield r"\cdot " + (rf"{part['n_water']}\," if part["n_water"] else "")


def _number(text: str | None) -> str:
    if not text:
        return ""
    return f"_{{{text.strip('_{}')}}}"
