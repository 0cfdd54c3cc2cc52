"""Formulas in words of the window's language, for screen readers."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QT_TRANSLATE_NOOP

from app.text.language import translate

_NAMES = {
    "\\fraction": QT_TRANSLATE_NOOP("spoken", "fraction"),
    "\\over": QT_TRANSLATE_NOOP("spoken", "over"),
    "\\end_fraction": QT_TRANSLATE_NOOP("spoken", "end of fraction"),
    "\\choose": QT_TRANSLATE_NOOP("spoken", "choose"),
    "\\root": QT_TRANSLATE_NOOP("spoken", "square root of"),
    "\\root_of": QT_TRANSLATE_NOOP("spoken", "root of degree"),
    "\\end_root": QT_TRANSLATE_NOOP("spoken", "end of root"),
    "\\taken": QT_TRANSLATE_NOOP("spoken", "taken of"),
    "\\of": QT_TRANSLATE_NOOP("spoken", "of"),
    "\\squared": QT_TRANSLATE_NOOP("spoken", "squared"),
    "\\cubed": QT_TRANSLATE_NOOP("spoken", "cubed"),
    "\\power": QT_TRANSLATE_NOOP("spoken", "to the power"),
    "\\end_power": QT_TRANSLATE_NOOP("spoken", "end of power"),
    "\\sub": QT_TRANSLATE_NOOP("spoken", "sub"),
    "\\end_sub": QT_TRANSLATE_NOOP("spoken", "end of sub"),
    "\\above": QT_TRANSLATE_NOOP("spoken", "with above it"),
    "\\below": QT_TRANSLATE_NOOP("spoken", "with below it"),
    "\\prime": QT_TRANSLATE_NOOP("spoken", "prime"),
    "\\prime2": QT_TRANSLATE_NOOP("spoken", "double prime"),
    "\\prime3": QT_TRANSLATE_NOOP("spoken", "triple prime"),
    "\\hat": QT_TRANSLATE_NOOP("spoken", "hat"),
    "\\bar": QT_TRANSLATE_NOOP("spoken", "bar"),
    "\\tilde": QT_TRANSLATE_NOOP("spoken", "tilde"),
    "\\dot": QT_TRANSLATE_NOOP("spoken", "dot"),
    "\\dot2": QT_TRANSLATE_NOOP("spoken", "two dots"),
    "\\dot3": QT_TRANSLATE_NOOP("spoken", "three dots"),
    "\\vector": QT_TRANSLATE_NOOP("spoken", "vector"),
    "\\check": QT_TRANSLATE_NOOP("spoken", "check"),
    "\\breve": QT_TRANSLATE_NOOP("spoken", "breve"),
    "\\acute": QT_TRANSLATE_NOOP("spoken", "acute"),
    "\\grave": QT_TRANSLATE_NOOP("spoken", "grave"),
    "\\ring": QT_TRANSLATE_NOOP("spoken", "ring"),
    "\\sum": QT_TRANSLATE_NOOP("spoken", "sum"),
    "\\product": QT_TRANSLATE_NOOP("spoken", "product"),
    "\\integral": QT_TRANSLATE_NOOP("spoken", "integral"),
    "\\integral2": QT_TRANSLATE_NOOP("spoken", "double integral"),
    "\\integral3": QT_TRANSLATE_NOOP("spoken", "triple integral"),
    "\\contour": QT_TRANSLATE_NOOP("spoken", "contour integral"),
    "\\union": QT_TRANSLATE_NOOP("spoken", "union"),
    "\\intersection": QT_TRANSLATE_NOOP("spoken", "intersection"),
    "\\from": QT_TRANSLATE_NOOP("spoken", "from"),
    "\\to": QT_TRANSLATE_NOOP("spoken", "to"),
    "\\boxed": QT_TRANSLATE_NOOP("spoken", "in a box"),
    "\\crossed": QT_TRANSLATE_NOOP("spoken", "crossed out"),
    "\\end": QT_TRANSLATE_NOOP("spoken", "end"),
    "\\table": QT_TRANSLATE_NOOP("spoken", "table of {0} rows and {1} columns:"),
    "\\row": QT_TRANSLATE_NOOP("spoken", "row {0}:"),
    "\\next": QT_TRANSLATE_NOOP("spoken", "next column"),
    "+": QT_TRANSLATE_NOOP("spoken", "plus"),
    "−": QT_TRANSLATE_NOOP("spoken", "minus"),
    "±": QT_TRANSLATE_NOOP("spoken", "plus or minus"),
    "=": QT_TRANSLATE_NOOP("spoken", "equals"),
    "≠": QT_TRANSLATE_NOOP("spoken", "does not equal"),
    "≈": QT_TRANSLATE_NOOP("spoken", "is about"),
    "<": QT_TRANSLATE_NOOP("spoken", "is less than"),
    ">": QT_TRANSLATE_NOOP("spoken", "is greater than"),
    "≤": QT_TRANSLATE_NOOP("spoken", "is at most"),
    "≥": QT_TRANSLATE_NOOP("spoken", "is at least"),
    "⋅": QT_TRANSLATE_NOOP("spoken", "times"),
    "×": QT_TRANSLATE_NOOP("spoken", "times"),
    "∗": QT_TRANSLATE_NOOP("spoken", "times"),
    "/": QT_TRANSLATE_NOOP("spoken", "divided by"),
    "÷": QT_TRANSLATE_NOOP("spoken", "divided by"),
    "→": QT_TRANSLATE_NOOP("spoken", "goes to"),
    "⟹": QT_TRANSLATE_NOOP("spoken", "implies"),
    "⇒": QT_TRANSLATE_NOOP("spoken", "implies"),
    "⟺": QT_TRANSLATE_NOOP("spoken", "if and only if"),
    "∈": QT_TRANSLATE_NOOP("spoken", "is in"),
    "∉": QT_TRANSLATE_NOOP("spoken", "is not in"),
    "∞": QT_TRANSLATE_NOOP("spoken", "infinity"),
    "∂": QT_TRANSLATE_NOOP("spoken", "partial"),
    "∇": QT_TRANSLATE_NOOP("spoken", "nabla"),
    "∀": QT_TRANSLATE_NOOP("spoken", "for all"),
    "∃": QT_TRANSLATE_NOOP("spoken", "there is"),
    "(": QT_TRANSLATE_NOOP("spoken", "open bracket"),
    ")": QT_TRANSLATE_NOOP("spoken", "close bracket"),
    "|": QT_TRANSLATE_NOOP("spoken", "bar"),
    "!": QT_TRANSLATE_NOOP("spoken", "factorial"),
}


def in_words(spoken: Sequence[str]) -> str:
    """Return the words of a formula that backend/formulas/spoken.py has named."""
    said = []
    for word in spoken:
        name, *numbers = word.split(" ") if word[:1] == "\\" else [word]
        words = _NAMES.get(name)
        said.append(word if words is None else translate("spoken", str(words)).format(*numbers))
    return " ".join(said)
