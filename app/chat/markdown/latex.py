r"""Formulas as readable text: \frac{a}{b} becomes a/b, x_i^2 becomes xᵢ². No Qt.

Only text within $…$, $$…$$, \(…\), \[…\] or an environment such as align changes, and never code. A
formula with a mark that is not known here is drawn (app.chat.formulas), or stays as its source,
wholly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_ROWS = r"(?:align(?:ed)?|equation|gather(?:ed)?|split)\*?"  # environments that are read
_OPENING = re.compile(
    r"`+|\$\$|\$|(?<!\\)\\[\[(]"
    rf"|(?<!\\)\\begin\{{(?:{_ROWS}|cases|array|[bpvBV]?matrix|multline\*?)\}}"
)
_CLOSING = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_DOLLAR = re.compile(r"(?<!\\)\$")
_MARKS = re.compile(r"[\\^_=()]")
_SURE_MARKS = re.compile(r"[\\^_]")  # sums of money have none of them
_UNFINISHED = re.compile(r"[-+*/=<]\s*\Z")  # the end of "$40-", before another amount
_NUMBERS = re.compile(r"[\d.,;\s]+")
_WORDS = re.compile(r"[^\W\d_]{2,}\s|\s[^\W\d_]{2,}")
_INLINE_CHARS_MAX = 300  # longest formula in single dollars; they may also be amounts of money
_CHARS_MAX = 10_000  # of a formula that is read
_DEPTH_MAX = 20  # of groups within groups
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)


def _table(pairs: str) -> dict[str, str]:
    r"""Return the signs of commands, from "name sign" pairs; the keys begin with "\"."""
    words = pairs.split()
    return {f"\\{name}": sign for name, sign in zip(words[::2], words[1::2], strict=True)}


_LETTERS = _table(
    "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι "
    "kappa κ lambda λ mu μ nu ν xi ξ pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ "
    "upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π "
    "Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ emptyset ∅ varnothing ∅ "
    "ell ℓ hbar ℏ aleph ℵ Re ℜ Im ℑ top ⊤ bot ⊥ angle ∠ triangle △ square □ degree ° dagger † "
    "ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ "
    "checkmark ✓ prime ′ % % _ _ $ $ # # & &"
)
_ALONE = {**_LETTERS, r"\circ": "∘"}  # what may be an argument without braces
_BINARY = _table(
    "cdot · times × div ÷ pm ± mp ∓ cup ∪ cap ∩ setminus ∖ land ∧ lor ∨ wedge ∧ vee ∨ circ ∘ "
    "star ⋆ ast ∗ bullet • oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙"
)
_RELATIONS = _table(
    "le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ lt < gt > approx ≈ equiv ≡ sim ∼ "
    "simeq ≃ cong ≅ propto ∝ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ to → "
    "rightarrow → longrightarrow ⟶ leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ "
    "Leftrightarrow ⇔ implies ⇒ impliedby ⇐ iff ⇔ mapsto ↦ rightleftharpoons ⇌ mid | ll ≪ gg ≫ "
    "perp ⊥ parallel ∥ therefore ∴ because ∵ vdash ⊢ models ⊨"
)
_NEGATED = {"=": "≠", r"\in": "∉", r"\equiv": "≢", r"\subset": "⊄", r"\subseteq": "⊈"}
_OPERATORS = _table(
    "sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ "
    + " ".join(
        f"{name} {name}"
        for name in "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg "
        "exp lim max min sup inf det dim ker deg gcd arg Pr hom".split()
    )
)
_BRACKETS = {
    "(": "(", ")": ")", "[": "[", "]": "]", "|": "|", "/": "/", ".": "", r"\{": "{", r"\}": "}",
    r"\|": "‖",
} | _table(
    "lbrace { rbrace } langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | "
    "vert | lVert ‖ rVert ‖ Vert ‖"
)  # fmt: skip
_SPACES = {
    r"\,": " ", r"\:": " ", r"\;": " ", r"\>": " ", r"\ ": " ", "~": " ", r"\!": "",
    r"\quad": "\u2003", r"\qquad": "\u2003\u2003", r"\displaystyle": "", r"\textstyle": "",
    r"\limits": "", r"\nolimits": "", r"\nonumber": "", r"\notag": "",
}  # fmt: skip
_SETS = dict(zip("RNZQCPHE", "ℝℕℤℚℂℙℍ𝔼", strict=True))
_SCRIPTS = dict(zip("LHFEBIMR", "ℒℋℱℰℬℐℳℛ", strict=True))
_ACCENTS = {
    r"\hat": "\u0302", r"\bar": "\u0304", r"\tilde": "\u0303", r"\dot": "\u0307",
    r"\ddot": "\u0308", r"\check": "\u030c", r"\breve": "\u0306", r"\acute": "\u0301",
    r"\grave": "\u0300", r"\mathring": "\u030a",
}  # fmt: skip
_UP = dict(
    zip(
        "0123456789+-=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVWβγδθφχ⊤′†",
        "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵝᵞᵟᶿᵠᵡᵀ′†",
        strict=True,
    )
)
_DOWN = dict(
    zip(
        "0123456789+-=()aeioxhklmnpstjruvβγρφχ",
        "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢₒₓₕₖₗₘₙₚₛₜⱼᵣᵤᵥᵦᵧᵨᵩᵪ",
        strict=True,
    )
)
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_SHAPED = re.compile(r"\\(?:[dtc]?frac|sqrt|sum|prod|i*int|oint|lim|left|boxed)(?![A-Za-z])")
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_DISTANCE = re.compile(r"\[-?[0-9.]+(?:pt|em|ex|mm|cm)\]")  # to the next row
_SIZES = re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?")


Draw = Callable[[str, str, bool], str | None]
"""Returns the mark of a drawn formula, from its source, its body, and whether it stands alone."""


def replace_math(text: str, draw: Draw = lambda source, body, is_display: None) -> str:
    """Replace the formulas in a Markdown text by the marks of drawn ones, or by readable text.

    draw: is asked for those whose shape says something, and those that have no readable text.
    """
    if not any(mark in text for mark in ("$", "\\(", "\\[", "\\begin")):
        return text
    shown: list[str] = []
    end = 0  # of the text that is done
    for formula in _formulas(text):
        shown += [text[end : formula.begin], _marked_up(text, formula, draw)]
        end = formula.end
    return "".join([*shown, text[end:]])


class _Formula(NamedTuple):
    """A formula: text[begin:end] with its delimiters, `body` without."""

    begin: int
    end: int
    body: str
    is_display: bool


def _formulas(text: str) -> Iterator[_Formula]:
    """Find the formulas in linear time: a search that fails is not repeated."""
    missing: set[str] = set()  # closing delimiters that do not occur again
    ticks = _runs_of_ticks(text)
    place = 0
    amount = -1  # the last dollar that begins no formula, before a digit
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
        closing = _CLOSING.get(sign, sign.replace("\\begin", "\\end"))
        if sign == "$":
            has_amount = amount >= 0 and "\n" not in text[amount:begin]
            end = _end_of_inline(text, begin, has_amount)
            if end < 0 and text[place : place + 1].isdecimal():
                amount = begin
        elif closing not in missing:
            end = text.find(closing, place + 1)
            if end < 0:
                missing.add(closing)
            else:
                end += len(closing)
        if end >= 0:
            inner = text[place : end - len(closing)]
            is_bare = sign not in _CLOSING and sign != "$"
            body = text[begin:end] if is_bare else inner
            yield _Formula(begin, end, body, is_bare or sign in ("$$", "\\["))
            place = end


def _runs_of_ticks(text: str) -> dict[int, list[int]]:
    """Return the starts of runs of ticks by their length, the last one first."""
    runs: dict[int, list[int]] = {}
    for run in re.finditer("`+", text):
        runs.setdefault(len(run[0]), []).append(run.start())
    return {length: places[::-1] for length, places in runs.items()}


def _end_of_inline(text: str, begin: int, has_amount: bool) -> int:
    """Return the end of a formula in single dollars that begins here, or -1.

    has_amount: an amount of money stands before it in its line.
    """
    before, after = text[begin - 1 : begin], text[begin + 1 : begin + 2]
    if before in ("\\", "$") or _is_of_word(before) or not after or after.isspace():
        return -1
    closing = _DOLLAR.search(text, begin + 1, begin + _INLINE_CHARS_MAX + 2)
    if closing is None or closing.start() == begin + 1:
        return -1
    body, following = text[begin + 1 : closing.start()], text[closing.end() : closing.end() + 1]
    if body[-1].isspace() or following == "$" or following.isdecimal() or "\n" in body:
        return -1
    has_marks = _MARKS.search(body) is not None
    is_closed = has_marks and re.match(r"[\w)}\]'!]", body[-1])
    is_prose = not has_marks and sum(map(_has_no_capital, body)) > 1
    if is_prose and not any(map(_is_of_word, body)):
        return -1  # words about the sign, in a writing without spaces
    if _is_of_word(following) and len(body) > 1 and not is_closed:
        return -1  # variables of a shell, as in "$HOME:$PATH", but "$2^n$th" has a formula
    if (body[0].isdecimal() or body[0] == ".") and not _SURE_MARKS.search(body):
        is_cut = _UNFINISHED.search(body) or body.count("(") > body.count(")")
        if _WORDS.search(body) or is_cut or any(map(_has_no_capital, body)):
            return -1  # an amount of money, and words or a sign before another one
        if has_amount and " " in body and _NUMBERS.fullmatch(body):
            return -1  # "$5 and $6, 10$"; elsewhere such a list is nine times in ten a formula
    return closing.end()


def _has_no_capital(char: str) -> bool:
    return char.isalpha() and char.lower() == char.upper()


def _is_of_word(char: str) -> bool:
    """Return whether a sign makes a dollar beside it one of its word, as in "US$5".

    Letters without capitals do not: Chinese, Japanese and Thai have no spaces between words, and
    Hebrew joins prepositions to a formula.
    """
    return (char.isalnum() or char == "_") and not _has_no_capital(char)


def _marked_up(text: str, formula: _Formula, draw: Draw) -> str:
    """Return the mark of a drawn formula. Return another one as Markdown.

    That is in italics if it is a word whose letters have them, and its source if it is not known.
    """
    body, source = formula.body, text[formula.begin : formula.end]
    if "\n" in source:
        before = text[text.rfind("\n", 0, formula.begin) + 1 : formula.begin]
        if re.match(r"[ \t]*>", before):  # in a quotation, further lines have the mark too
            body, source = (re.sub(r"\n[ \t]*(?:>[ \t]?)+", "\n", part) for part in (body, source))
    written = _written(body)
    if written is None or formula.is_display or _SHAPED.search(body):
        if (mark := draw(source, body.strip(), formula.is_display)) is not None:
            return mark
    shown = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", source if written is None else written)
    shown = shown.replace("\n", "\u2028")  # a new line within a paragraph
    is_word = written and re.match(r"\w", written) and re.search(r"\w$", written)
    is_slanted = is_word and written and not any(map(_has_no_capital, written))
    return f"*{shown}*" if is_slanted else shown


def readable(formula: str) -> str:
    """Return a formula without its markup; the formula itself where a mark of it is not known."""
    written = _written(formula)
    return formula if written is None else written


def _written(formula: str) -> str | None:
    """Return a formula without its markup; None where a mark of it is not known."""
    try:
        return _Reader(formula.strip()).whole() if len(formula) <= _CHARS_MAX else None
    except _Unknown:
        return None


class _Unknown(Exception):
    """A mark of a formula is not known, or its text would read as another formula."""


class _Atom(NamedTuple):
    """A part of a formula.

    kind: "letter" (also digits and closed parts), "operator" (a function, a sum), "relation",
    "binary", "open", "close", "bar", "slash", "point" (punctuation), "after" (a factorial),
    "gap" (white space), "empty", "tab" (where rows are aligned), "loose" (rows, and what a box
    holds). tight: the text where a part that binds stands beside it, "" where that is the same.
    """

    text: str
    kind: str = "letter"
    tight: str = ""


_KINDS = (
    dict.fromkeys("([⟨⌊⌈", "open") | dict.fromkeys(")]⟩⌋⌉", "close") | dict.fromkeys("|‖", "bar")
    | dict.fromkeys(",;:?.", "point") | dict.fromkeys("+-*", "binary")
    | dict.fromkeys("=<>", "relation") | {"!": "after", "/": "slash"}
)  # fmt: skip
_JOINS = ("letter", "operator", "after", "slash")
"""Kinds of parts that belong to what stands beside them."""
_FREE = ("relation", "point")
"""Kinds of parts beside which a sum needs no brackets."""


class _Reader:
    """Reads a formula once, token by token. Raises _Unknown."""

    def __init__(self, source: str) -> None:
        self._tokens = _TOKEN.findall(source)
        self._at = 0

    def whole(self) -> str:
        """Return the formula as text, with a line for each row."""
        if text := self._rows("", 0):
            return text
        raise _Unknown

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        """Take a token and, behind the name of a command, the white space."""
        token = self._next()
        self._at += 1
        if re.match(r"\\[A-Za-z]", token):
            self._skip()
        return token

    def _skip(self) -> None:
        while self._next().isspace():
            self._at += 1

    def _rows(self, end: str, depth: int) -> str:
        """Read rows up to the token `end`, which is not taken."""
        rows = [_aligned(self._atoms((end, r"\\"), depth))]
        while self._next() != end:
            self._take()
            distance = _DISTANCE.match("".join(self._tokens[self._at : self._at + 10]))
            self._at += 0 if distance is None else distance.end()
            rows.append(_aligned(self._atoms((end, r"\\"), depth)))
        return "\n".join(row for row in map(_joined, rows) if row)

    def _atoms(self, ends: tuple[str, ...], depth: int) -> list[_Atom]:
        """Read parts up to one of the tokens `ends`, which is not taken."""
        if depth > _DEPTH_MAX:
            raise _Unknown
        made: list[_Atom] = []
        while (token := self._next()) not in ends:
            if token in ("^", "_", "'"):
                made.append(self._scripted(made, depth))
                continue
            parts = self._part(depth)
            if len(parts) > 1 and self._has_script():
                raise _Unknown
            made += parts
        if r"\\" not in ends and any("\n" in atom.text for atom in made):
            raise _Unknown
        return made

    def _group(self, depth: int) -> list[_Atom]:
        if self._take() != "{":
            raise _Unknown
        made = self._atoms(("}",), depth + 1)
        self._take()
        return made

    def _argument(self, depth: int, *, is_last: bool = True) -> list[_Atom]:
        """Read the argument of a command: a group or one sign."""
        self._skip()
        token = self._next()
        if token == "{":
            return self._group(depth)
        if token in _ALONE or (token.isalnum() and len(token) == 1) or token in ("+", "-"):
            self._take()
            if is_last and token.isdecimal() and self._next().isdecimal():
                raise _Unknown  # "x^10" is x¹0, and rarely meant so
            return [_Atom(_ALONE.get(token, token))]
        raise _Unknown

    def _part(self, depth: int) -> list[_Atom]:
        """Read a part without its scripts. It may be some parts, or none."""
        is_spaced = self._at > 0 and self._tokens[self._at - 1].isspace()
        is_apart = is_spaced and self._tokens[self._at + 1 : self._at + 2] == [" "]
        token = self._take()
        if token.isspace():
            is_kept = not self._next().startswith(r"\r") or self._next() not in _BRACKETS
            return [_Atom(" ", "gap")] if is_kept else []
        if token in _SPACES:
            return [_Atom(_SPACES[token], "gap")]
        if token == "{":
            self._at -= 1
            return self._group(depth) or [_Atom("", "empty")]
        if token == "&":
            return [_Atom("", "tab")]
        if token == r"\not":
            if (sign := _NEGATED.get(self._take())) is None:
                raise _Unknown
            return [_Atom(f" {sign} ", "relation")]
        for signs, kind in ((_LETTERS, "letter"), (_OPERATORS, "operator")):
            if token in signs:
                return [_Atom(signs[token], kind)]
        if token in _RELATIONS:
            return [_Atom(f" {_RELATIONS[token]} ", "relation")]
        if (sign := _BINARY.get(token)) is not None:
            kind = "slash" if sign == "÷" else "binary"
            return [_Atom(f" {sign} " if is_spaced else sign, kind)]
        if token in _BRACKETS and len(token) > 1:
            return [_bracket(_BRACKETS[token])]
        if _SIZES.fullmatch(token):
            return [_bracket(self._delimiter())]
        if len(token) == 1:
            made = _letter(token)
            is_sign = is_apart and made.kind in ("relation", "binary")
            return [made._replace(text=f" {token} ")] if is_sign else [made]
        return self._command(token, depth)

    def _command(self, name: str, depth: int) -> list[_Atom]:
        """Read the arguments of a command."""
        if re.fullmatch(r"\\[dtc]?frac", name):
            above = _operand(self._argument(depth, is_last=False))
            ratio = f"{above}/{_operand(self._argument(depth))}"
            return [_Atom(ratio, tight=f"({ratio})")]
        if name == r"\sqrt":
            return [self._root(depth)]
        if name == r"\left":
            return [self._bracketed(depth)]
        if name == r"\middle":
            return [_Atom(f" {self._delimiter()} ", "relation")]
        if name in (r"\text", r"\textrm", r"\textnormal", r"\mbox"):
            return self._words()
        if name in (r"\mathrm", r"\mathit", r"\operatorname"):
            if name == r"\operatorname" and self._next() == "*":
                self._at += 1
            atoms = self._group(depth)
            if any(atom.kind != "letter" or atom.tight for atom in atoms):
                return atoms if name != r"\operatorname" else _fail()
            kind = "operator" if name == r"\operatorname" else "letter"
            return [_Atom("".join(atom.text for atom in atoms) or _fail(), kind)]
        if name in (r"\mathbb", r"\mathcal", r"\mathscr"):
            letters = _SETS if name == r"\mathbb" else _SCRIPTS
            return [_Atom(letters.get(_joined(self._argument(depth))) or _fail())]
        if name in _ACCENTS:
            # Few fonts place an accent on a letter that Unicode does not have with it.
            base = _joined(self._argument(depth))
            letter = unicodedata.normalize("NFC", base + _ACCENTS[name])
            return [_Atom(letter if len(letter) == 1 else _fail())]
        if name == r"\boxed":
            atoms = self._group(depth)
            is_closed = len(atoms) == 1 and atoms[0].kind == "letter" and not atoms[0].tight
            return atoms if is_closed else [_Atom(_joined(atoms), "loose")]
        if name in (r"\bmod", r"\mod"):
            return [_Atom(" mod ", "binary")]
        if name == r"\pmod":
            return [_Atom(f" (mod {_joined(self._group(depth))})", "point")]
        if name == r"\begin":
            return [self._environment(depth)]
        raise _Unknown

    def _root(self, depth: int) -> _Atom:
        degree = ""
        if self._next() == "[":
            self._at += 1
            degree = _joined(self._atoms(("]",), depth + 1))
            self._take()
        if degree not in _ROOTS:
            raise _Unknown
        sign, text = _ROOTS[degree], _joined(self._argument(depth))
        if not text:
            raise _Unknown
        full = f"{sign}({text})"
        return _Atom(f"{sign}{text}" if _is_short(text) else full, tight=full)

    def _bracketed(self, depth: int) -> _Atom:
        r"""Read what stands between \left and \right."""
        opening = self._delimiter()
        inner = self._atoms((r"\right",), depth + 1)
        self._take()
        closing = self._delimiter()
        if not closing:
            raise _Unknown
        text = _joined(inner) if opening else _operand(inner)
        return _Atom(f"{opening}{text}{closing}")

    def _delimiter(self) -> str:
        self._skip()
        token = self._take()
        token = {"<": r"\langle", ">": r"\rangle"}.get(token, token)
        if token not in _BRACKETS:
            raise _Unknown
        return _BRACKETS[token]

    def _words(self) -> list[_Atom]:
        """Read a text, in which only escaped signs are marks."""
        self._skip()
        if self._take() != "{":
            raise _Unknown
        text = ""
        while (token := self._next()) != "}":
            self._at += 1
            if token in (r"\%", r"\_", r"\$", r"\#", r"\&", r"\ "):
                text += token[1]
            elif not token or token in "\\{$%#&^_" or len(token.strip()) > 1:
                raise _Unknown
            else:
                text += " " if token.isspace() or token == "~" else token
        self._take()
        around = [_Atom(" ", "gap") if edge.isspace() else None for edge in (text[:1], text[-1:])]
        parts = [around[0], _Atom(text.strip()) if text.strip() else None, around[1]]
        return [part for part in parts if part is not None]

    def _environment(self, depth: int) -> _Atom:
        begun = self._name()
        if not re.fullmatch(_ROWS, begun):
            raise _Unknown
        text = self._rows(r"\end", depth + 1)
        self._take()
        if self._name() != begun:
            raise _Unknown
        return _Atom(text, "loose")

    def _name(self) -> str:
        """Read the name of an environment."""
        made = ""
        if self._take() == "{":
            while (token := self._take()) not in ("}", ""):
                made += token
        return made

    def _has_script(self) -> bool:
        after = next((one for one in self._tokens[self._at : self._at + 2] if one.strip()), "")
        return after in ("^", "_", "'")

    def _scripted(self, made: list[_Atom], depth: int) -> _Atom:
        """Read scripts. Take the part that has them from the end of `made`."""
        while made and made[-1].kind == "gap":
            made.pop()
        base = made.pop() if made else _Atom("", "empty")
        is_first = all(atom.kind in ("relation", "binary", "open", "point") for atom in made[-1:])
        if base.kind not in ("letter", "operator", "close", "bar") and not (
            base.kind == "empty" and is_first and self._next() != "'"
        ):
            raise _Unknown
        up = down = primes = ""
        while self._has_script():
            self._skip()
            token = self._take()
            if token == "'":
                primes += "′"
                continue
            script = self._script(token == "^", depth)
            if up if token == "^" else down:
                raise _Unknown
            up, down = (script, down) if token == "^" else (up, script)
        text = f"({base.text})" if base.tight else base.text
        kind = "letter" if base.kind == "empty" else base.kind
        return _Atom(text + down + (primes + up).replace("′′", "″"), kind)

    def _script(self, is_up: bool, depth: int) -> str:
        """Read a script. Return its letters of Unicode."""
        atoms = [atom for atom in self._argument(depth) if atom.kind != "gap"]
        text, letters = "".join(atom.text.strip() for atom in atoms), _UP if is_up else _DOWN
        if is_up and text == "∘":
            return "°"
        if not text or not letters.keys() >= {*text} or any(atom.kind == "tab" for atom in atoms):
            raise _Unknown
        return "".join(letters[letter] for letter in text)


def _fail() -> Any:
    raise _Unknown


def _bracket(sign: str) -> _Atom:
    return _Atom(sign, {"{": "open", "}": "close"}.get(sign) or _KINDS.get(sign) or _fail())


def _letter(token: str) -> _Atom:
    """Return the part that a single sign is."""
    if token in _KINDS:
        return _Atom(token, _KINDS[token])
    if token.isalnum() or (not token.isascii() and token.isprintable()):
        return _Atom(token)
    raise _Unknown


def _is_short(text: str) -> bool:
    return len(text) == 1 or _NUMBER.fullmatch(text) is not None


def _aligned(row: list[_Atom]) -> list[_Atom]:
    """Return a row without the mark where rows are aligned, beside a sign such as "="."""
    solid = [atom for atom in row if atom.kind not in ("gap", "empty")]
    places = [i for i, atom in enumerate(solid) if atom.kind == "tab"]
    for at in places:
        beside = [*solid[max(at - 1, 0) : at], *solid[at + 1 : at + 2]]
        is_at_sign = any(atom.kind in ("relation", "binary") for atom in beside)
        if len(places) > 1 or not (is_at_sign or len(beside) < 2):
            raise _Unknown
    return [atom for atom in row if atom.kind != "tab"]


def _operand(atoms: list[_Atom]) -> str:
    """Return the text above or below the stroke of a fraction, in brackets if it needs them."""
    solid = [atom for atom in atoms if atom.kind not in ("gap", "empty")]
    text = _joined(atoms)
    if not text:
        raise _Unknown
    kinds = [atom.kind for atom in solid]
    is_root = text[0] in "√∛∜"
    if kinds == ["letter"] and " " not in text and (is_root or not solid[0].tight):
        return text
    if kinds == ["letter", "letter"] and text[0] in "d∂" and not solid[1].tight:
        return "".join(atom.text for atom in solid)  # of a derivative
    inner = kinds[1:-1]
    if kinds[0] == "open" and kinds[-1] == "close" and not {"open", "close"} & {*inner}:
        return text
    return text if _NUMBER.fullmatch(text) else f"({text})"


def _joined(atoms: list[_Atom]) -> str:
    """Return the text of parts, with the brackets and spaces that it needs to be read rightly."""
    none = _Atom("", "")
    solid = [atom for atom in atoms if atom.kind not in ("gap", "empty")]
    neighbours = zip([none, *solid], [*solid[1:], none], strict=False)
    text = ""
    for atom in atoms:
        if atom.kind in ("gap", "empty"):
            text += atom.text
            continue
        before, after = next(neighbours)
        own, kinds = atom.text, {before.kind, after.kind}
        if atom.kind == "tab" or (atom.kind == "loose" and not kinds <= {"", *_FREE}):
            raise _Unknown
        if "\n" in own and kinds != {""}:
            raise _Unknown
        is_joined = before.kind in (*_JOINS, "close") and own[:1] not in ("√", "∛", "∜")
        if atom.tight and (is_joined or after.kind in (*_JOINS, "open", "bar")):
            own = atom.tight
        if atom.kind == "operator" and before.kind in (*_JOINS, "close"):
            own = f" {own}"
        if atom.kind == "operator" and (
            after.kind in ("operator", "binary")
            or (after.kind == "letter" and after.text[:1] not in _KINDS)
        ):
            own += " "
        text += own
    return re.sub(" +", " ", text).strip(" ")
