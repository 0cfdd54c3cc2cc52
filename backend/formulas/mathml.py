r"""LaTeX as MathML, for ziamath.

Only what a person would see rightly is taken. A command that is not known here or a missing bracket
raises Unknown, because half a formula is a false one. ziamath's own reader would write the letters
of such a command instead. A definition holds to the end of its formula.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from xml.etree.ElementTree import Element

from backend.formulas.chemistry import plain_latex
from backend.formulas.macros import DEEPEST, MACROS, QUANTITIES, Forms, filled

CHARS_MAX = 4000
DEPTH_MAX = 24  # of groups within groups
N_PART_MAX = 3000
_RAW_CHARS_MAX = 500  # of an argument that is read as text

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\s+|.", re.DOTALL)
_DISTANCE = re.compile(r"\[\s*-?[0-9.]+\s*(?:pt|em|ex|mm|cm)\s*\]")
_LENGTH = re.compile(r"(-?[0-9]{0,3}\.?[0-9]+)(em|ex|pt|mm|cm|mu)")
_EMS = {"em": 1.0, "ex": 0.43, "pt": 0.1, "mm": 0.2845, "cm": 2.845, "mu": 1 / 18}
_EMS_MAX = 20.0
_SCRIPT_EMS = 0.32
"""About the width of a sign above an arrow."""
_OF_REST = re.compile(r"\s*\{[^{}]*\}\s*(?![\s{])")  # a colour for the rest of the group
_NAME = re.compile(r"[A-Za-z]+\*?")

_FUNCTIONS = set(
    "arccos arcsin arctan arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh tan "
    "tanh "
    # Authors define these for themselves, always with this meaning.
    "arccot arccsc arcosh arcsec arsinh artanh Corr cosec Cov csch diag erf grad lcm rank sech sgn "
    "sign sinc supp Tr tr Var vol".split()
)  # fmt: skip
_LIMITS = {
    **{name: name for name in "lim max min sup inf det gcd Pr".split()},
    "limsup": "lim\u2009sup", "liminf": "lim\u2009inf", "argmax": "arg\u2009max",
    "argmin": "arg\u2009min",
}  # fmt: skip
_LARGE = dict(
    zip(
        "sum prod coprod bigcup bigcap bigvee bigwedge bigoplus bigotimes bigodot bigsqcup biguplus"
        .split(),
        "∑∏∐⋃⋂⋁⋀⨁⨂⨀⨆⨄",
        strict=True,
    )
)  # fmt: skip
_INTEGRALS = dict(zip("int iint iiint oint oiint".split(), "∫∬∭∮∯", strict=True))
_ACCENTS = {
    "hat": "ˆ", "bar": "¯", "tilde": "~", "dot": "˙", "ddot": "¨", "check": "ˇ",
    "breve": "˘", "acute": "´", "grave": "`", "mathring": "˚", "dddot": "\u20db",
}  # fmt: skip
_WIDE = {
    "widehat": "\u0302", "widetilde": "\u0303", "overline": "―", "overbrace": "⏞",
    "overparen": "⏜", "overarc": "⏜", "wideparen": "⏜",
    "overrightarrow": "→", "vec": "→", "overleftarrow": "←", "overleftrightarrow": "↔",
}  # fmt: skip
_BELOW = {"underline": "―", "underbrace": "⏟", "underrightarrow": "→", "underleftarrow": "←"}
_ARROWS = {
    "xrightarrow": "→", "xleftarrow": "←", "xleftrightarrow": "↔", "xRightarrow": "⇒",
    "xLeftarrow": "⇐", "xLeftrightarrow": "⇔", "xmapsto": "↦", "xrightleftharpoons": "⇌",
    "xhookrightarrow": "↪", "xhookleftarrow": "↩", "xlongequal": "=", "xleftharpoonup": "↼",
    "xrightharpoonup": "⇀",
}  # fmt: skip
_SPACES = {
    "\\,": "0.167em", "\\:": "0.222em", "\\>": "0.222em", "\\;": "0.278em", "\\ ": "0.25em",
    "~": "0.25em", "\\!": "-0.167em", "\\quad": "1em", "\\qquad": "2em", "\\enspace": "0.5em",
    "\\thinspace": "0.167em", "\\medspace": "0.222em", "\\thickspace": "0.278em",
    "\\negthinspace": "-0.167em", "\\enskip": "0.5em", "\\space": "0.25em",
}  # fmt: skip
_VARIANTS = {
    "mathrm": "", "mathup": "", "mathbf": "BOLD", "mathit": "ITALIC", "mathbb": "DOUBLE-STRUCK",
    "mathcal": "SCRIPT", "mathscr": "SCRIPT", "mathfrak": "FRAKTUR", "mathsf": "SANS-SERIF",
    "mathtt": "MONOSPACE", "boldsymbol": "BOLD ITALIC", "bm": "BOLD ITALIC",
    "mathnormal": "ITALIC", "Bbb": "DOUBLE-STRUCK", "frak": "FRAKTUR", "bold": "BOLD",
    "pmb": "BOLD ITALIC",
}  # fmt: skip
_SWITCHES = {
    "rm": "", "bf": "BOLD", "it": "ITALIC", "cal": "SCRIPT", "sf": "SANS-SERIF", "tt": "MONOSPACE",
}  # fmt: skip
_TEXTS = {
    "text": "", "textrm": "", "textnormal": "", "mbox": "", "textup": "", "hbox": "",
    "textbf": "BOLD", "textit": "ITALIC", "emph": "ITALIC", "textsf": "SANS-SERIF",
    "texttt": "MONOSPACE",
}  # fmt: skip
_STYLES = {
    "displaystyle": ("true", "0"), "textstyle": ("false", "0"), "scriptstyle": ("false", "1"),
    "scriptscriptstyle": ("false", "2"),
}  # fmt: skip
_AROUND = {"abs": "||", "norm": "‖‖", "set": "{}", "bra": "⟨|", "ket": "|⟩", "braket": "⟨⟩"}
_CLASSES = {f"math{kind}" for kind in "op bin rel ord open close punct inner".split()}
_SIZES = {"big": "1.2em", "Big": "1.8em", "bigg": "2.4em", "Bigg": "3em"}
_BIG = re.compile(r"\\(big|Big|bigg|Bigg)[lrm]?")
_AFTER_TAG = {"", "\\\\", r"\cr", r"\end", r"\label", r"\nonumber"}
_NOTHING = set(
    "nonumber notag hfill relax mathstrut strut "
    # Sizes of letters, without which a formula is still right.
    "tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge".split()
)
_DEFINING = {"newcommand", "renewcommand", "providecommand", "def", "DeclareMathOperator"}
_DELIMITERS = {
    **{sign: sign for sign in "()[]|/"}, ".": "", "<": "⟨", ">": "⟩", "\\{": "{", "\\}": "}",
    "\\|": "‖", "\\lbrace": "{", "\\rbrace": "}", "\\langle": "⟨", "\\rangle": "⟩",
    "\\lfloor": "⌊", "\\rfloor": "⌋", "\\lceil": "⌈", "\\rceil": "⌉", "\\lvert": "|",
    "\\rvert": "|", "\\vert": "|", "\\lVert": "‖", "\\rVert": "‖", "\\Vert": "‖", "\\lbrack": "[",
    "\\rbrack": "]", "\\backslash": "\\", "\\uparrow": "↑", "\\downarrow": "↓",
}  # fmt: skip
_NEGATED = {
    "=": "≠", "<": "≮", ">": "≯", "in": "∉", "ni": "∌", "equiv": "≢", "sim": "≁", "approx": "≉",
    "subset": "⊄", "supset": "⊅", "subseteq": "⊈", "supseteq": "⊉", "leq": "≰", "le": "≰",
    "geq": "≱", "ge": "≱", "mid": "∤", "parallel": "∦", "exists": "∄", "cong": "≇",
    "rightarrow": "↛", "to": "↛", "Rightarrow": "⇏", "vdash": "⊬", "models": "⊭",
}  # fmt: skip
_OWN = {
    "lt": "<", "gt": ">", "le": "≤", "ge": "≥", "ne": "≠", "to": "→", "gets": "←", "land": "∧",
    "lor": "∨", "lnot": "¬", "neg": "¬", "iff": "⟺", "implies": "⟹", "impliedby": "⟸", "dots": "…",
    "ldots": "…", "hdots": "…", "cdots": "⋯", "dotsc": "…", "dotsb": "⋯", "dotsm": "⋯",
    "dotso": "…", "mid": "∣",
    "epsilon": "ϵ", "varepsilon": "ε", "phi": "ϕ", "varphi": "φ", "hbar": "ℏ", "ell": "ℓ",
    "emptyset": "∅", "varnothing": "∅", "degree": "°", "prime": "′", "star": "⋆", "ast": "∗",
    "colon": ":", "R": "ℝ", "N": "ℕ", "Z": "ℤ", "blacksquare": "■", "square": "□", "Box": "□",
    "owns": "∋", "restriction": "↾", "dagger": "†", "ddagger": "‡", "S": "§",
    "bot": "⊥", "perp": "⟂", "top": "⊤", "triangle": "△", "cdotp": "·", "cdot": "⋅", "imath": "ı",
    "jmath": "ȷ", "lhd": "⊲", "rhd": "⊳", "Re": "ℜ", "Im": "ℑ", "wp": "℘", "checkmark": "✓",
    "leadsto": "⇝", "coloneqq": "≔", "bigcirc": "◯", "triangleleft": "◁", "triangleright": "▷",
    "surd": "√", "pounds": "£", "euro": "€",
    "Bbbk": "𝕜", "varsubsetneq": "⊊", "varsupsetneq": "⊋", "bullet": "•",
}  # fmt: skip
_UPRIGHT = set("∞∅∂∇⊤⊥∠∡△□■…⋯⋮⋱ℏℓ℘ℵℶℜℑ°′ıȷ†‡§✓♠♡♢♣£€¥")
_WHITE = "\u2009\u00a0"
_PLAIN_SIGNS = set("±×÷·¬+-*/=<>:,;!?.")
_ROWS = {
    "align", "align*", "aligned", "alignat", "alignat*", "alignedat", "split", "eqnarray",
    "eqnarray*", "flalign", "flalign*",
}  # fmt: skip
_CENTRED = {"gather", "gather*", "gathered", "multline", "multline*"}
_MATRICES = {
    "matrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "Bmatrix": ("{", "}"),
    "vmatrix": ("|", "|"), "Vmatrix": ("‖", "‖"), "smallmatrix": ("", ""), "array": ("", ""),
    "cases": ("{", ""), "dcases": ("{", ""), "rcases": ("", "}"),
}  # fmt: skip


class Unknown(Exception):
    """The formula has something that is not known here, or a part is missing."""


_COLOURS = {
    "black": "black", "red": "#ff0000", "green": "#00a000", "blue": "#0000ff", "cyan": "#00a0c0",
    "magenta": "#d000d0", "yellow": "#c0a000", "orange": "#e07000", "purple": "#a000a0",
    "brown": "#a06030", "gray": "#808080", "grey": "#808080", "teal": "#008080",
    "violet": "#8000c0", "pink": "#e060a0", "lime": "#60b000", "olive": "#808000",
    "darkgray": "#606060", "lightgray": "#a0a0a0", "darkgreen": "#006000", "darkred": "#a00000",
    "darkblue": "#0000a0", "navy": "#000080", "maroon": "#800000", "crimson": "#dc143c",
    "forestgreen": "#228b22", "royalblue": "#4169e1", "gold": "#c09000", "tomato": "#ff6347",
}  # fmt: skip
"""Colours by their names in LaTeX and HTML, dark enough for white paper."""


def mathml(source: str, is_display: bool, symbol: Callable[[str], str | None]) -> Element:
    """Return a formula without its delimiters as MathML. Raises Unknown.

    symbol: returns the sign that a command such as "alpha" stands for, or None.
    """
    if len(source) > CHARS_MAX or not source.strip():
        raise Unknown
    reader = _Reader(source.strip(), is_display, symbol)
    whole = _made("math", reader.whole(), display="block" if is_display else "inline")
    for part in whole.iter():
        if any(not sign.isprintable() and sign not in _WHITE for sign in part.text or ""):
            raise Unknown
    return whole


def _made(tag: str, *children: Element, text: str | None = None, **attributes: str) -> Element:
    made = Element(tag, attributes)
    made.text = text
    made.extend(children)
    return made


def _row(parts: list[Element]) -> Element:
    return parts[0] if len(parts) == 1 else _made("mrow", *parts)


def _space(width: str) -> Element:
    return _made("mspace", width=width)


def _mark(sign: str, stretchy: str) -> Element:
    return _made("mo", text=sign, stretchy=stretchy, lspace="0em", rspace="0em")


def _fence(sign: str, form: str) -> Element:
    return _made("mo", text=sign, stretchy="true", fence="true", form=form)


class _Reader:
    """Reads a formula once, token by token. Raises Unknown."""

    def __init__(self, source: str, is_display: bool, symbol: Callable[[str], str | None]) -> None:
        self._tokens = _TOKEN.findall(source)
        self._symbol = symbol
        self._is_display = is_display
        self._at = 0
        self._depth = 0
        self._n_part = 0
        self._variant: str | None = None  # of letters: a word of Unicode's names, within \mathbf
        self._defined: dict[str, Forms] = {}
        self._n_expanded = 0

    def whole(self) -> Element:
        rows = self._rows("")
        if len(rows) == 1 and len(rows[0]) == 1:
            return _row(rows[0][0])
        if any(len(row) > 1 for row in rows):
            raise Unknown  # a tab outside an environment
        return _table(rows, "center", is_display=True)

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        if not token:
            raise Unknown
        return token

    def _skip(self) -> None:
        while self._next().isspace():
            self._at += 1

    def _rows(self, end: str, lines: set[int] | None = None) -> list[list[list[Element]]]:
        r"""Read rows of cells up to the token `end`, which is not taken. "" is the end of all.

        lines: gets the rows above which a line was drawn; None: there may be none.
        """
        rows: list[list[list[Element]]] = [[]]
        while True:
            self._skip()
            while lines is not None and not rows[-1] and self._next() == r"\hline":
                lines.add(len(rows) - 1)
                self._at += 1
                self._skip()
            rows[-1].append(self._parts((end, "&", r"\\", r"\cr")))
            token = self._next()
            if token == end:
                break
            self._at += 1
            if token != "&":
                following = "".join(self._tokens[self._at : self._at + 12])
                if distance := _DISTANCE.match(following.lstrip()):
                    self._skip()
                    self._drop(distance[0])
                rows.append([])
        if len(rows) > 1 and rows[-1] == [[]]:
            rows.pop()
        return rows

    def _drop(self, text: str) -> None:
        """Take the tokens that make up a text."""
        while text:
            token = self._take()
            if not text.startswith(token):
                raise Unknown
            text = text[len(token) :]

    def _parts(self, ends: tuple[str, ...], *, is_below: bool = False) -> list[Element]:
        r"""Read parts up to one of the tokens `ends`, which is not taken.

        is_below: they stand behind \over, which may not come again.
        """
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Unknown
        made: list[Element] = []
        while (token := self._next()) not in ends:
            if not token:
                raise Unknown
            if token.isspace():
                self._at += 1
            elif token[1:] in _STYLES and token[0] == "\\":
                self._at += 1
                display, level = _STYLES[token[1:]]
                styled = self._parts(ends)
                made.append(_made("mstyle", *styled, displaystyle=display, scriptlevel=level))
            elif token[1:] in _SWITCHES and token[0] == "\\":
                self._at += 1
                made.append(self._in_variant(_SWITCHES[token[1:]], lambda: _row(self._parts(ends))))
            elif token == r"\color" and _OF_REST.match("".join(self._tokens[self._at + 1 :][:40])):
                self._at += 1
                colour = _colour(self._raw_group())
                made.append(_made("mstyle", *self._parts(ends), mathcolor=colour))
            elif token in (r"\over", r"\choose", r"\atop"):
                if is_below or not made:
                    raise Unknown
                self._at += 1
                below = self._parts(ends, is_below=True)
                line = {} if token == r"\over" else {"linethickness": "0"}
                ratio = _made("mfrac", _row(made), _row(below), **line)
                is_bare = token != r"\choose"
                brackets = _fence("(", "prefix"), _fence(")", "postfix")
                made = [ratio] if is_bare else [brackets[0], ratio, brackets[1]]
            else:
                made += self._with_scripts(made)
                self._n_part += 1
                if self._n_part > N_PART_MAX:
                    raise Unknown
        self._depth -= 1
        return made

    def _group(self) -> list[Element]:
        self._skip()
        if self._take() != "{":
            raise Unknown
        made = self._parts(("}",))
        self._at += 1
        return made

    def _argument(self) -> Element:
        """Read the argument of a command: a group, or one sign."""
        self._skip()
        token = self._next()
        if token == "{":
            return _row(self._group())
        if len(token) > 1 and token[0].isdigit():  # only the first digit belongs to it
            self._tokens[self._at : self._at + 1] = [token[0], token[1:]]
        if token in ("^", "_", "'", "&", "}", "") or (token[:1] == "." and len(token) > 1):
            raise Unknown
        return _row(self._part()[0])

    def _optional(self) -> Element | None:
        """Read an argument in square brackets, if there is one."""
        self._skip()
        if self._next() != "[":
            return None
        self._at += 1
        made = self._parts(("]",))
        self._at += 1
        return _row(made)

    def _with_scripts(self, before: list[Element]) -> list[Element]:
        """Read a part and its scripts. Return it, with the spaces around it."""
        is_script = self._next() in ("^", "_", "'")
        parts, kind = ([_made("mrow")], "") if is_script else self._part()
        placed = (
            "under" if kind == "brace" or (self._is_display and kind in ("large", "limits")) else ""
        )
        self._skip()
        while self._next() in (r"\limits", r"\nolimits"):
            if kind not in ("large", "limits", "integral"):
                raise Unknown
            placed = "always" if self._take() == r"\limits" else ""
            self._skip()
        up: list[Element] = []
        down: Element | None = None
        n_prime, has_up = 0, False
        while self._next() in ("^", "_", "'"):
            token = self._take()
            if token == "'":
                n_prime += 1
            elif token == "^":
                if has_up:
                    raise Unknown
                has_up = True
                up.append(self._argument())
            else:
                if down is not None:
                    raise Unknown
                down = self._argument()
            self._skip()
        if n_prime:
            up.insert(0, _made("mo", text="′" * n_prime))
        if len(parts) != 1 and (up or down is not None):
            raise Unknown
        if up or down is not None:
            parts = [_scripted(parts[0], down, _row(up) if up else None, placed)]
        if kind in ("function", "limits"):
            if before and before[-1].tag in ("mi", "mn", "msup", "msub", "msubsup", "mrow"):
                parts.insert(0, _space("0.167em"))
        if parts and parts[0].tag == "mo" and parts[0].text in ("+", "−", "±", "∓"):
            is_first = not before or (
                before[-1].tag == "mo" and before[-1].text not in tuple(")]}|!")
            )
            parts[0].set("form", "prefix" if is_first else "infix")
        return parts

    def _part(self) -> tuple[list[Element], str]:
        """Read a part without its scripts. Return it with its kind, which says what goes around."""
        token = self._take()
        if token == "{":
            self._at -= 1
            return [_row(self._group())], ""
        if token in _SPACES:
            return [_space(_SPACES[token])], ""
        if token == r"\left":
            return [self._bracketed()], ""
        if big := _BIG.fullmatch(token):
            size = _SIZES[big[1]]
            sign = self._delimiter()
            if not sign:
                raise Unknown
            made = _made("mo", text=sign, stretchy="true", fence="true", minsize=size, maxsize=size)
            return [made], ""
        if token in _DELIMITERS and token not in (".", "<", ">"):
            return [_made("mo", text=_DELIMITERS[token], stretchy="false")], ""
        if len(token) > 1 and token[0] == "\\":
            if token[1].isalpha():
                return self._command(token[1:])
            if token[1] in "%$#&_":
                return [_made("mi", text=token[1], mathvariant="normal")], ""
            raise Unknown
        return [self._letter(token)], ""

    def _letter(self, token: str) -> Element:
        """Return the element of a number or of a single sign."""
        if token[0].isdigit() or (len(token) > 1 and token[0] == "."):
            return self._styled("mn", token)
        if token in _PLAIN_SIGNS:
            return _made("mo", text={"-": "−", "*": "∗"}.get(token, token))
        is_mark = unicodedata.category(token)[0] == "M"  # it belongs to the letter before it
        if token in "#$%&\\^_{}~\"@`'" or not token.isprintable() or is_mark:
            raise Unknown
        return self._sign(token)

    def _sign(self, sign: str) -> Element:
        code = ord(sign)
        if sign in _UPRIGHT:
            return _made("mi", text=sign, mathvariant="normal")
        if sign.isalpha():
            if self._variant is not None:
                return self._styled("mi", sign)
            is_slanted = code < 0x80 or 0x3B1 <= code < 0x400
            return _made("mi", text=sign, **({} if is_slanted else {"mathvariant": "normal"}))
        return _made("mo", text=sign)

    def _styled(self, tag: str, text: str) -> Element:
        if self._variant is None:
            return _made(tag, text=text)
        return _made(tag, text=_in_letters(text, self._variant), mathvariant="normal")

    def _delimiter(self) -> str:
        self._skip()
        token = self._take()
        if token not in _DELIMITERS:
            raise Unknown
        return _DELIMITERS[token]

    def _bracketed(self) -> Element:
        r"""Read what stands between \left and \right."""
        opening = self._delimiter()
        made = [_fence(opening, "prefix")] if opening else []
        while True:
            made += self._parts((r"\right", r"\middle"))
            is_last = self._take() == r"\right"
            sign = self._delimiter()
            if not is_last:
                made.append(_fence(sign, "infix"))
                continue
            if sign:
                made.append(_fence(sign, "postfix"))
            return _made("mrow", *made)

    def _command(self, name: str) -> tuple[list[Element], str]:
        """Read the arguments of a command."""
        if name in self._defined or name in MACROS or name in QUANTITIES:
            return self._expanded(name)
        if name in _DEFINING:
            self._define(name)
            return [], ""
        if name in _FUNCTIONS:
            return [_made("mi", text=name, mathvariant="normal")], "function"
        if name in _LIMITS:
            return [_made("mo", text=_LIMITS[name], movablelimits="true")], "limits"
        if name in _LARGE:
            return [_made("mo", text=_LARGE[name], movablelimits="true")], "large"
        if name in _INTEGRALS:
            return [_made("mo", text=_INTEGRALS[name])], "integral"
        if name in ("underbrace", "overbrace"):
            return self._marked(name), "brace"
        if name == "operatorname":
            has_limits = self._next() == "*"
            self._at += has_limits
            words = re.sub(r"\s+", "", self._raw_group().replace("\\,", "\u2009"))
            if not re.fullmatch("[A-Za-z0-9\u2009-]+", words):
                raise Unknown
            made = _made("mi", text=words, mathvariant="normal")
            return [made], "limits" if has_limits else "function"
        if name in _TEXTS:
            return [self._text(name)], ""
        if name == "tag":
            text = self._raw_group()
            number = self._words(text)
            self._skip()
            if self._next() not in _AFTER_TAG:  # it stands at the end of its line, all the same
                end = self._line_end()
                self._tokens[end:end] = _TOKEN.findall(rf"\tag{{{text}}}")
                return [], ""
            return [_space("2em"), _made("mtext", text=f"({number})")], ""
        if name in ("label", "require"):
            self._raw_group()
            return [], ""
        if name in _NOTHING:
            return [], ""
        if name in ("pmod", "bmod", "mod"):
            word = _made("mi", text="mod", mathvariant="normal")
            if name == "bmod":
                return [_space("0.222em"), word, _space("0.222em")], ""
            inner = [word, _space("0.333em"), self._argument()]
            brackets = [_made("mo", text=sign, stretchy="false") for sign in "()"]
            inner = [brackets[0], *inner, brackets[1]] if name == "pmod" else inner
            return [_space("0.6em"), *inner], ""
        if name in ("hspace", "kern", "mkern", "hskip", "mskip"):
            return [_space(self._length(is_group=name == "hspace"))], ""
        if name == "not":
            self._skip()
            sign = _NEGATED.get(self._take().removeprefix("\\"))
            if sign is None:
                raise Unknown
            return [_made("mo", text=sign)], ""
        if name in _VARIANTS:
            return [self._in_variant(_VARIANTS[name], self._argument)], ""
        if name == "begin":
            return [self._environment()], ""
        if (built := self._built(name)) is not None:
            return [built], ""
        if name in _ACCENTS or name in _WIDE or name in _BELOW:
            return self._marked(name), ""
        sign = _OWN.get(name) or self._symbol(name)
        if sign is None or len(sign) != 1 or unicodedata.category(sign) in ("Mn", "Me"):
            raise Unknown
        return [self._sign(sign)], ""

    def _line_end(self) -> int:
        """Return where the present line ends."""
        depth = 0
        for at, token in enumerate(self._tokens[self._at :], self._at):
            if not depth and token in ("\\\\", r"\end", "}"):
                return at
            depth += (token in ("{", r"\begin", r"\left")) - (token in ("}", r"\end", r"\right"))
        return len(self._tokens)

    def _expanded(self, name: str) -> tuple[list[Element], str]:
        """Read what a command stands for in its place."""
        self._n_expanded += 1
        if self._n_expanded > DEEPEST:
            raise Unknown
        if name in QUANTITIES and name not in self._defined:
            n, write = QUANTITIES[name]
            body = write(*[self._raw_group(is_nested=True) for _ in range(n)])
            if body is None:
                raise Unknown
        else:
            body = self._filled(self._defined.get(name) or MACROS[name])
        is_sign = body.startswith(r"\operatorname")
        self._tokens[self._at : self._at] = _TOKEN.findall(body if is_sign else f"{{{body}}}")
        return self._part()

    def _filled(self, forms: Forms) -> str:
        """Read the arguments of a macro. Return its body with them."""
        self._skip()
        has_first = self._next() == "[" and any(form[0] == "[" for form in forms)
        arguments = [self._in_brackets()] if has_first else []
        mark = "[" * has_first
        counts = [int(form.removeprefix("[")) for form in forms if ("[" in form) == has_first]
        n = 0
        while n < max(counts):
            self._skip()
            if len(counts) > 1 and self._next() != "{":
                break  # as many groups as there are
            arguments.append(self._raw_argument())
            n += 1
        if f"{mark}{n}" not in forms:
            raise Unknown
        return filled(forms[f"{mark}{n}"], arguments)

    def _define(self, command: str) -> None:
        r"""Read a definition. It holds to the end of the formula."""
        has_limits = self._next() == "*"
        self._at += has_limits
        target, n, default = self._raw_argument().strip(), 0, None
        if not re.fullmatch(r"\\[A-Za-z]+", target):
            raise Unknown
        if command == "def":
            while self._next() == "#":
                self._at += 2
                n += 1
        elif command != "DeclareMathOperator" and self._next() == "[":
            number = self._in_brackets()
            n = int(number) if re.fullmatch("[1-9]", number) else 0
            default = self._in_brackets() if n and self._next() == "[" else None
        body = self._raw_group(is_nested=True)
        if any(int(used) > n for used in re.findall("#([1-9])", body)):
            raise Unknown
        if command == "DeclareMathOperator":
            body = rf"\operatorname{'*' * has_limits}{{{body}}}"
        forms = {str(n): body}
        if default is not None:
            rest = [default, *(f"#{later}" for later in range(1, n))]
            forms = {str(n - 1): filled(body, rest), f"[{n - 1}": body}
        self._defined[target[1:]] = forms

    def _raw_argument(self) -> str:
        """Return the text of an argument: of a group, or one sign."""
        self._skip()
        if self._next() == "{":
            return self._raw_group(is_nested=True)
        if self._next() in ("^", "_", "'", "&", "}", "\\\\"):
            raise Unknown
        return self._take()

    def _in_brackets(self) -> str:
        """Return the text of an argument in square brackets, the next token."""
        text, depth = "", 0
        self._at += 1
        while (token := self._take()) != "]" or depth:
            depth += (token == "{") - (token == "}")
            text += token
            if len(text) > _RAW_CHARS_MAX:
                raise Unknown
        return text

    def _built(self, name: str) -> Element | None:
        """Read a fraction, a root, an arrow with words, or what stands above or below a part."""
        if name in ("frac", "dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"):
            ratio = _made("mfrac", self._argument(), self._argument())
            if name == "frac":
                return ratio
            large = "true" if name in ("dfrac", "cfrac") else "false"
            return _made("mstyle", ratio, displaystyle=large, scriptlevel="0")
        if name in ("binom", "dbinom", "tbinom"):
            inner = _made("mfrac", self._argument(), self._argument(), linethickness="0")
            return _made("mrow", _fence("(", "prefix"), inner, _fence(")", "postfix"))
        if name == "sqrt":
            degree = self._optional()
            root = self._argument()
            return _made("msqrt", root) if degree is None else _made("mroot", root, degree)
        if name in _ARROWS:
            below = self._optional()
            above = self._argument()
            n_sign = max(
                len("".join(part.itertext())) for part in (above, above if below is None else below)
            )
            arrow = _made("mo", text=_ARROWS[name], width=f"{1 + _SCRIPT_EMS * n_sign:.2f}em")
            if below is None:
                return _made("mover", arrow, _padded(above))
            return _made("munderover", arrow, _padded(below), _padded(above))
        if name in ("overset", "stackrel", "underset"):
            first, base = self._argument(), self._argument()
            return _made("munder" if name == "underset" else "mover", base, first)
        if name in _AROUND:
            inner = self._argument()
            signs = [_made("mo", text=sign, stretchy="false") for sign in _AROUND[name]]
            return _made("mrow", signs[0], inner, signs[1])
        if name == "ce":
            equation = plain_latex(self._raw_group(is_nested=True))
            if equation is None:
                raise Unknown
            return _Reader(equation, False, self._symbol).whole()
        if name in ("color", "textcolor"):  # both are meant for the braces behind them
            colour = _colour(self._raw_group())
            return _made("mstyle", self._argument(), mathcolor=colour)
        if name == "boxed":
            return _made("menclose", self._argument(), notation="box")
        if name == "fbox":
            return _made("menclose", self._text("text"), notation="box")
        if name == "substack":
            self._skip()
            if self._take() != "{":
                raise Unknown
            rows = self._rows("}")
            self._at += 1
            return _made("mstyle", _table(rows, "center"), scriptlevel="1")
        if name in ("cancel", "bcancel", "xcancel"):
            up, down = "updiagonalstrike", "downdiagonalstrike"
            notation = {"cancel": up, "bcancel": down}.get(name, f"{up} {down}")
            return _made("menclose", self._argument(), notation=notation)
        if name in ("phantom", "hphantom", "vphantom"):
            return _made("mphantom", self._argument()) if name == "phantom" else None
        if name in _CLASSES:
            return self._argument()
        return None

    def _marked(self, name: str) -> list[Element]:
        """Read a part with an accent, a line, a brace or an arrow above or below it."""
        base = self._argument()
        if name in _BELOW:
            mark = _mark(_BELOW[name], "true")
            return [_made("munder", base, mark)]
        if name in _WIDE:
            mark = _mark(_WIDE[name], "true")
            return [_made("mover", base, mark)]
        mark = _mark(_ACCENTS[name], "false")
        return [_made("mover", base, mark, accent="true")]

    def _length(self, *, is_group: bool) -> str:
        """Read a length in braces, or without them, and return it in em."""
        if is_group:
            self._at += self._next() == "*"
            text = self._raw_group()
        else:
            following = "".join(self._tokens[self._at : self._at + 12]).lstrip()
            text = found[0] if (found := _LENGTH.match(following)) else ""
            self._skip()
            self._drop(text)
        length = _LENGTH.fullmatch(text)
        ems = float(length[1]) * _EMS[length[2]] if length else _EMS_MAX
        if not -1 <= ems < _EMS_MAX:
            raise Unknown
        return f"{ems:.3f}em"

    def _in_variant(self, variant: str, read: Callable[[], Element]) -> Element:
        r"""Read what \mathbf or \bf applies to. Letters side by side are one word."""
        before, self._variant = self._variant, variant
        made = read()
        self._variant = before
        letters = list(made) if made.tag == "mrow" else [made]
        if letters and all(part.tag == "mi" and not len(part) for part in letters):
            word = "".join(part.text or "" for part in letters)
            return _made("mi", text=word, mathvariant="normal")
        return made

    def _raw_group(self, *, is_nested: bool = False) -> str:
        """Return the text of a group. is_nested: there may be groups in it."""
        self._skip()
        if self._take() != "{":
            raise Unknown
        text, depth = "", 1
        while True:
            token = self._take()
            depth += (token == "{") - (token == "}")
            if not depth:
                return text
            if (token == "{" and not is_nested) or not token or len(text) > _RAW_CHARS_MAX:
                raise Unknown
            text += token

    def _text(self, name: str) -> Element:
        """Read words, and formulas in dollars between them."""
        made = []
        for index, part in enumerate(re.split(r"(?<!\\)\$", self._raw_group())):
            if index % 2:
                made.append(_Reader(part, False, self._symbol).whole())
            elif part or not index:
                text = _in_letters(self._words(part), _TEXTS[name])
                made.append(_made("mtext", text=text, mathvariant="normal"))
        if index % 2:
            raise Unknown
        return _row(made)

    @staticmethod
    def _words(text: str) -> str:
        """Return text as it is shown; formulas and commands in it are not known."""
        text = re.sub(r"\\([%_$#& ])", lambda found: chr(0xE000 + ord(found[1])), text)
        if re.search(r"[\\$%#&^_]", text):
            raise Unknown
        text = re.sub(r"\s+|~", " ", text)
        text = re.sub("[\ue020-\ue07e]", lambda found: chr(ord(found[0]) - 0xE000), text)
        return text.replace(" ", "\u00a0").replace("'", "’").replace("`", "‘")

    def _environment(self) -> Element:
        name = self._raw_group()
        if not _NAME.fullmatch(name):
            raise Unknown
        columns = ""
        if name in ("array", "alignat", "alignat*", "alignedat"):
            columns = re.sub(r"\s|@\{\}", "", self._raw_group(is_nested=True))
            if name == "array" and not re.fullmatch(r"(?:\|{0,2}[lcr]){1,40}\|{0,2}", columns):
                raise Unknown
            if name != "array" and not columns.isdecimal():
                raise Unknown
        elif name in ("aligned", "gathered", "split") and self._next() == "[":
            self._drop("[" + self._tokens[self._at + 1] + "]")
        lines: set[int] | None = set() if name == "array" else None
        rows = self._rows(r"\end", lines)
        self._at += 1
        if self._raw_group() != name:
            raise Unknown
        if name in ("equation", "equation*", "displaymath", "math"):
            if len(rows) != 1 or len(rows[0]) != 1:
                raise Unknown
            return _row(rows[0][0])
        if name in _ROWS:
            table = _table(rows, "right left", is_display=True)
            if name.startswith("alignat") or name == "alignedat":
                table.set("columnspacing", "0em")  # its columns are set apart in the formula
            return table
        if name in _CENTRED:
            if any(len(row) > 1 for row in rows):
                raise Unknown
            return _table(rows, "center", is_display=True)
        if name not in _MATRICES:
            raise Unknown
        if name == "smallmatrix":
            return _made("mstyle", _table(rows, "center"), scriptlevel="1")
        align = {"cases": "left", "dcases": "left", "rcases": "left"}.get(name, "center")
        bars: set[int] = set()
        if columns:
            names = {"l": "left", "c": "center", "r": "right"}
            letters = columns.replace("|", "")
            align = " ".join(names[letter] for letter in letters)
            bars = {len(columns[:i].replace("|", "")) for i, c in enumerate(columns) if c == "|"}
            if any(len(row) > len(letters) for row in rows):
                raise Unknown
        table = _table(rows, align, is_display=name == "dcases")
        if lines or bars:
            table.set("rowlines", " ".join(map(str, sorted(lines or ()))))
            table.set("columnlines", " ".join(map(str, sorted(bars))))
            table.attrib.update(columnspacing="0.9em", rowspacing="0.5em")
        if name.endswith("cases"):
            table.set("columnspacing", "1em")
        opening, closing = _MATRICES[name]
        made = [_fence(opening, "prefix")] if opening else []
        made.append(table)
        made += [_fence(closing, "postfix")] if closing else []
        return _made("mrow", *made)


def _colour(name: str) -> str:
    """Return a colour as "#rrggbb", or "black" for that of the text."""
    name = name.strip().lower()
    if found := re.fullmatch("#?([0-9a-f]{6})", name):
        return f"#{found[1]}"
    if found := re.fullmatch("#([0-9a-f])([0-9a-f])([0-9a-f])", name):
        return "#" + "".join(2 * digit for digit in found.groups())
    if name not in _COLOURS:
        raise Unknown
    return _COLOURS[name]


def _in_letters(text: str, style: str) -> str:
    """Return text in the letters that Unicode has for mathematics. style: of their names, or ""."""
    if not style:
        return text
    return "".join(_letter_of(sign, style) for sign in text)


def _letter_of(sign: str, style: str) -> str:
    name = unicodedata.name(sign, "")
    short = re.sub(r"LATIN |GREEK |LETTER ", "", name)
    old = style.replace("FRAKTUR", "BLACK-LETTER")
    planck = ["PLANCK CONSTANT"] if style == "ITALIC" and sign == "h" else []
    for wanted in (f"MATHEMATICAL {style} {short}", f"{old} {short}", *planck):
        try:
            return unicodedata.lookup(wanted)
        except KeyError:
            continue
    is_cased = sign.lower() != sign.upper()
    if is_cased and not 0x370 <= ord(sign) < 0x400:
        raise Unknown  # Greek has no such letters in LaTeX either
    return sign  # also a letter without capitals, such as a Chinese one


def _padded(part: Element) -> Element:
    return _made("mrow", _space("0.4em"), part, _space("0.4em"))


def _table(rows: list[list[list[Element]]], align: str, *, is_display: bool = False) -> Element:
    """Return a table. align: of the columns, which repeats."""
    aligns = align.split()
    made = []
    for row in rows:
        cells = []
        for index, parts in enumerate(row):
            if not any(row):
                parts = [_made("mspace", width="0em", height="0.7em")]
            elif align == "right left" and index % 2:
                parts = [_made("mi"), *parts]  # so that a sign before it is one between two
            cells.append(_made("mtd", *parts, columnalign=aligns[index % len(aligns)]))
        made.append(_made("mtr", *cells))
    table = _made("mtable", *made)
    if is_display:
        table.attrib.update(displaystyle="true", rowspacing="0.45em")
    if align == "right left":
        table.set("columnspacing", "0em 2em" if max(map(len, rows)) > 2 else "0em 0.3em")
    return table


def _scripted(base: Element, down: Element | None, up: Element | None, placed: str) -> Element:
    """Return a part with its scripts. placed: "under" where its limits stand below and above."""
    if placed == "always":
        base.set("movablelimits", "false")
    tag = "munderover" if placed else "msubsup"
    if down is None:
        assert up is not None
        return _made("mover" if placed else "msup", base, up)
    if up is None:
        return _made("munder" if placed else "msub", base, down)
    return _made(tag, base, down, up)
