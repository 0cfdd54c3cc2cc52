"""Holds JSON to schemas token by token, with llguidance.

A matcher begins where the JSON does: llama.cpp's grammar of an answer (its thought, its fence, the
marks of a call) has a gap for every schema, and backend/llama/sampler.py puts a matcher there.
"""

from __future__ import annotations

import importlib.util
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.text import text

if TYPE_CHECKING:
    import llguidance
    from numpy.typing import NDArray

_FORM = {"whitespace_flexible": False, "json_allowed_escapes": 'nrbtf\\"'}
"""Without white space models end more answers. Without "\\u" a name has one spelling."""
_REASONS: Sequence[tuple[str, str]] = (
    ("oneOf constraints", "oneOf with alternatives that may overlap"),
    ("are not disjoint", "patternProperties that overlap"),
    ("min/maxProperties", "minProperties or maxProperties beside optional properties"),
    ("circular references", "references in a circle"),
)
_TOO_COMPLEX = ("too large", "too many", "limit", "exceeded", "TooComplex", "if regex is empty")
_REASON_CHARS_MAX = 100
_STEP_FUEL = 1_000_000  # what a mask and the next token may cost, up to about 0.1 s
_N_COMPILED_MAX = 32
_COMPILED_CHARS_MAX = 1 << 18  # of all schemas that are kept compiled: some 75 MiB


class MatcherError(RuntimeError):
    """llguidance is missing or failed; the text is one plain sentence."""


def is_installed() -> bool:
    """Return whether llguidance is there. Without it no answer is held to a schema."""
    return importlib.util.find_spec("llguidance") is not None


def fault(schema: str, is_text: bool = False) -> str:
    """Return why no answer can be held to a prepared schema, or "".

    is_text: a text without quotes is held to it, and it is what json_schema.text_of() returns.
    Needs no vocabulary. May take long: call it where a deadline ends it.
    """
    try:
        made = _matcher(_library().LLTokenizer("byte"), schema, is_text)
    except MatcherError as error:
        return str(error)
    if not made.is_error():
        made.compute_bitmask()  # finds the other cases that are too complex
    return "" if not made.is_error() else _reason(made.get_error())


class Vocabulary:
    """A model's tokens, as llguidance has them. Makes matchers.

    pieces: the bytes of each token; b"" for one that is never part of JSON. ends: the tokens that
    end an answer. Raises MatcherError without llguidance. It takes about a second.
    """

    def __init__(self, pieces: Sequence[bytes], ends: Sequence[int]) -> None:
        guidance = _library()
        self._tokenizer = guidance.LLTokenizer(guidance.TokenizerWrapper(_Tokens(pieces, ends[0])))
        self._ends = list(ends)
        self._n = len(pieces)
        self._compiled: OrderedDict[tuple[str, bool], llguidance.LLMatcher] = OrderedDict()

    def matcher(self, schema: str, is_text: bool = False) -> Matcher:
        """Return a matcher at the beginning of its JSON or text. Raises MatcherError.

        Compiling takes as long as `fault` takes; the schemas that were used last are kept compiled.
        """
        key = schema, is_text

        def again() -> llguidance.LLMatcher:
            self._compiled.pop(key, None)  # its copies share what failed
            return self._native(key)

        return Matcher(self._native(key), again, self._ends, self._n)

    def _native(self, key: tuple[str, bool]) -> llguidance.LLMatcher:
        native = self._compiled.pop(key, None) or _matcher(self._tokenizer, *key)
        if not native.is_error():
            self._compiled[key] = native
        while len(self._compiled) > 1 and (
            len(self._compiled) > _N_COMPILED_MAX
            or sum(len(text) for text, _ in self._compiled) > _COMPILED_CHARS_MAX
        ):
            self._compiled.popitem(last=False)
        return native.deep_copy()


class Matcher:
    """A value in JSON that is being written.

    again: returns a matcher at the beginning that shares nothing with earlier ones. All answers to
    a schema share llguidance's tables, which have limits. If one answer reaches a limit, all of
    them fail.
    """

    def __init__(
        self,
        native: llguidance.LLMatcher,
        again: Callable[[], llguidance.LLMatcher],
        ends: Sequence[int],
        n_vocab: int,
    ) -> None:
        self._native = native
        self._again = again
        self._ends = ends
        self._n_vocab = n_vocab
        self._written: list[int] = []
        self._allowed: NDArray[np.uint8] | None = None  # at this place
        if native.is_error():
            raise MatcherError(text("schema.too_complex"))

    def fits(self, token: int) -> bool:
        """Return whether the token may come next. Raises MatcherError."""
        return bool(self.allowed()[token])

    def allowed(self) -> NDArray[np.uint8]:
        """Return for every token whether it may come next. Raises MatcherError.

        A mask also renews the effort that llguidance may spend on accepting the next token.
        """
        if self._allowed is None:
            bits = self._native.compute_bitmask()
            if self._native.is_error():
                bits = self._repeated()
            allowed = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            allowed[self._ends] = 0
            self._allowed = allowed[: self._n_vocab]
        return self._allowed

    def accept(self, token: int) -> None:
        """Go on by a token that fits. Raises MatcherError."""
        self._native.consume_token(token)
        self._written.append(token)
        self._allowed = None
        if self._native.is_error():
            self._repeated()

    @property
    def may_end(self) -> bool:
        """Whether the value is complete, though it may go on as a number does."""
        return bool(self._native.is_accepting())

    @property
    def is_complete(self) -> bool:
        """Whether the value is complete and cannot go on."""
        return bool(self._native.is_accepting() and self._native.is_stopped())

    def _repeated(self) -> bytes:
        """Write the value again with a new matcher. Return its mask. Raises MatcherError."""
        self._native = self._again()
        bits = self._native.compute_bitmask()
        for token in self._written:
            self._native.consume_token(token)
            bits = self._native.compute_bitmask()
        if self._native.is_error():
            self._again()  # the next answer begins without what failed
            raise MatcherError(text("schema.too_complex"))
        return bytes(bits)


class _Tokens:
    """A vocabulary for llguidance.TokenizerWrapper. No text is ever split into tokens."""

    bos_token_id = None

    def __init__(self, pieces: Sequence[bytes], end: int) -> None:
        self.tokens, self.eos_token_id = list(pieces), end

    def __call__(self, _: bytes) -> list[int]:
        return []


def _matcher(tokenizer: llguidance.LLTokenizer, schema: str, is_text: bool) -> llguidance.LLMatcher:
    guidance = _library()
    # Without forcing: the model may split its text into tokens in any way.
    grammar = '%llguidance {"no_forcing": true}\n'
    if is_text:
        grammar += f"start: TEXT\nTEXT: {schema}"
    else:
        grammar += f"start: %json {json.dumps({**json.loads(schema), 'x-guidance': _FORM})}"
    limits = guidance.LLParserLimits(verbose_errors=False, step_lexer_fuel=_STEP_FUEL)
    made: llguidance.LLMatcher = guidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    return made


def _library() -> Any:
    try:
        import llguidance  # heavy, and only answers under a schema need it
    except ImportError:
        raise MatcherError(text("schema.no_library")) from None
    return llguidance


def _reason(error: str) -> str:
    """Return a sentence for an error of llguidance."""
    if "nsatisfiable" in error or "NoExtension" in error:
        return str(text("schema.impossible"))
    if any(word in error for word in _TOO_COMPLEX):
        return str(text("schema.too_complex"))
    first = next((line.strip() for line in error.splitlines() if line.strip()), "")
    first = first.rpartition("failed to compile JSON schema: ")[2]
    what = next((what for mark, what in _REASONS if mark in error), first[:_REASON_CHARS_MAX])
    return str(text("schema.unsupported", what=what.rstrip(".")))
