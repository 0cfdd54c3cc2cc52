"""Splits texts into tokens. A caller may give up at any moment: no call holds it for long."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from backend import check_llama_cpp
from backend.protocol.errors import GivenUp
from backend.text import text

check_llama_cpp()

import llama_cpp  # noqa: E402  (after the check)

T = TypeVar("T")


class LlamaError(RuntimeError):
    """llama.cpp failed; the text is one plain sentence."""


def never() -> bool:
    """Return False: the caller waits to the end."""
    return False


_LONG_CHARS = 4096
"""A shorter text is split at once; it has few marks, too."""
_LOOK_S = 0.01
"""Time between two looks whether the caller still waits."""
_N_THREAD = 2
"""The texts that are split beside their callers. One of them may be given up already."""


class Splitter:
    """Splits texts into the tokens of a vocabulary. Use from any thread.

    llama.cpp splits a text without marks in one call, which only its end ends: about a second of
    processor time for each MiB. It reads the vocabulary and changes nothing, so such a call runs in
    a thread of its own. It is left there when its caller gives up. close() waits for it.
    """

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self._threads = ThreadPoolExecutor(_N_THREAD, "splitter")

    def close(self) -> None:
        """Wait for the calls under way; refuse others. Call it before the vocabulary is freed."""
        self._threads.shutdown(cancel_futures=True)

    def beside(self, work: Callable[[], T]) -> Future[T] | None:
        """Do work with the vocabulary in another thread. Return None if it is closed."""
        try:
            return self._threads.submit(work)
        except RuntimeError:
            return None

    def tokens(
        self,
        text: str,
        *,
        special: bool = True,
        add_bos: bool = False,
        is_ended: Callable[[], bool] = never,
    ) -> list[int]:
        """Return the token ids of a text. special: parse control tokens in the text.

        Raises LlamaError, and GivenUp soon after is_ended() is true.
        """
        if len(text) < _LONG_CHARS:
            return self.call(text, special, add_bos)
        is_left = False
        future = self.beside(lambda: self.split(text, special, add_bos, lambda: is_left))
        assert future is not None
        while not wait([future], _LOOK_S).done:
            if is_ended():
                is_left = True
                future.cancel()
                raise GivenUp
        return future.result()

    def split(
        self, text: str, special: bool, add_bos: bool, is_ended: Callable[[], bool] = never
    ) -> list[int]:
        """Return the tokens as tokens() does, in this thread. is_ended: looked at between calls."""
        pieces = iter((text,)) if len(text) < _LONG_CHARS else self._marks[special].pieces(text)
        tokens: list[int] = []
        parts = (part for piece in pieces for part in _parts(piece))
        for index, part in enumerate(parts):
            if is_ended():
                raise GivenUp
            tokens += self.call(part, special, add_bos and index == 0)
        return tokens

    def plain(self, text: str, *, special: bool = False, is_whole: bool = False) -> list[int]:
        """Return the tokens as one call of llama.cpp does. Raises LlamaError.

        is_whole: with the tokens that begin and end a text. Only long runs of characters are cut,
        for vocabularies whose texts may be split with std::regex.
        """
        recurses = llama_cpp.llama_vocab_type(self._vocab) == llama_cpp.LLAMA_VOCAB_TYPE_BPE
        if not recurses or len(text) < _RUN_CHARS:
            return self.call(text, special, is_whole)
        around = self.call("", special, True) if is_whole else []
        n_begin = int(llama_cpp.llama_vocab_get_add_bos(self._vocab))
        tokens = [token for part in _parts(text) for token in self.call(part, special, False)]
        return [*around[:n_begin], *tokens, *around[n_begin:]]

    def call(self, given: str, special: bool, add_bos: bool) -> list[int]:
        """Return the tokens of a text by one call, which nothing ends. Raises LlamaError."""
        data = given.encode("utf-8", errors="replace")
        n_max = len(data) + 8
        buffer = (llama_cpp.llama_token * n_max)()
        n = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, n_max, add_bos, special)
        if n < 0:
            n_max = -n
            buffer = (llama_cpp.llama_token * n_max)()
            n = llama_cpp.llama_tokenize(
                self._vocab, data, len(data), buffer, n_max, add_bos, special
            )
        tokens = list(buffer[: max(n, 0)])
        if n < 0 or min(tokens, default=0) < 0:  # -1: the vocabulary lacks a piece
            raise LlamaError(text("engine.no_tokens"))
        return tokens

    @functools.cached_property
    def _marks(self) -> tuple[Marks, Marks]:
        """The tokens that llama.cpp splits a text at: with control tokens in it, and without."""
        defined, control = llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED, 0
        control |= llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
        texts: tuple[dict[str, bool], dict[str, bool]] = {}, {}
        for token in range(llama_cpp.llama_vocab_n_tokens(self._vocab)):
            attr = llama_cpp.llama_vocab_get_attr(self._vocab, token)
            if attr & (control | defined):
                mark = llama_cpp.llama_vocab_get_text(self._vocab, token).decode(errors="replace")
                strips = bool(attr & llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP)
                if mark:
                    texts[True][mark] = strips
                if mark and not attr & control:
                    texts[False][mark] = strips
        return Marks(texts[False]), Marks(texts[True])


# llama.cpp splits the texts of many vocabularies with std::regex, which recurses for each character
# that one part of its pattern takes, and overflows a stack of 8 MB after about 15,000 of them. A
# Python of Windows has a stack of 2 MB; 500 leave room, since MSVC's use was never measured.
_RUN_CHARS = 500 if sys.platform == "win32" else 5000
_RUN = re.compile(
    "|".join(
        f"(?:{kind}){{{_RUN_CHARS}}}"
        for kind in (
            # Letters with their marks: neither space, digit nor the usual punctuation.
            r"[^\s\d!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f\uff00-\uff20]",
            r"\d",
            r"\s",
            r"[^\w\s]|_",
        )
    )
)
_WINDOW_CHARS = 1 << 16


def _parts(text: str) -> Iterator[str]:
    """Yield a text in one part, or cut within runs of letters, digits, spaces or other signs.

    Other threads wait for a search, so each is within a window. A run in two windows may be twice
    as long.
    """
    start = 0
    for begin in range(0, len(text), _WINDOW_CHARS) if len(text) >= _RUN_CHARS else ():
        for run in _RUN.finditer(text, begin, begin + _WINDOW_CHARS):
            yield text[start : run.end()]
            start = run.end()
    if start < len(text) or not text:
        yield text[start:]


_N_MARKS = 128
_SPACE = re.compile(r"[ \t\n\v\f\r]*")


class Marks:
    """Control tokens and others that llama.cpp finds in a text before it splits the rest.

    Its time grows with the square of their number. So a text is cut behind some of them, where the
    pieces have the same tokens as the whole. marks: whether a token takes the white space behind
    it, by its text.
    """

    def __init__(self, marks: Mapping[str, bool]) -> None:
        self._strips = marks
        self._n_longest = max(map(len, marks), default=0)
        tree: _Tree = {}
        for mark in marks:
            node = tree
            for letter in mark:
                node = node.setdefault(letter, {})
            node[""] = {}
        self._longest = re.compile(_expression(tree) if marks else "(?!)")

    def pieces(self, text: str) -> Iterator[str]:
        """Yield a text in pieces with at most about 128 marks each."""
        start = n_mark = 0
        for found in self._longest.finditer(text):
            n_mark += 1
            if n_mark >= _N_MARKS and found.end() < len(text) and self._is_alone(text, found):
                yield text[start : found.end()]
                start, n_mark = found.end(), 0
                if self._strips[found[0]]:
                    start = next(_SPACE.finditer(text, start)).end()
        if start < len(text) or not text:
            yield text[start:]

    def _is_alone(self, text: str, found: re.Match[str]) -> bool:
        """Return whether no other mark begins before this one or ends behind it, and overlaps."""
        begin, end = found.span()
        first = max(begin - self._n_longest + 1, 0)
        return not any(
            (other := self._longest.match(text, at))
            and other.end() > (begin if at < begin else end)
            for at in range(first, end)
        )


_Tree = dict[str, "_Tree"]
"""Texts by their letters; "" ends one."""


def _expression(tree: _Tree) -> str:
    """Return a regular expression of the longest text of a tree, which tries few letters."""
    ways = [re.escape(letter) + _expression(node) for letter, node in tree.items() if letter]
    within = ways[0] if len(ways) == 1 and "" not in tree else f"(?:{'|'.join(ways)})"
    return within + ("?" if "" in tree else "") if ways else ""
