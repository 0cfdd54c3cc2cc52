"""Remembers the tokens of answers. A later prompt has them in place of a new rendering.

A model writes other white space, another order of keys or other tokens than its template does. What
the context holds of an answer would then be of no use to the next turn.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backend.protocol.chat import AnswerText

N_ANSWER_MAX = 512
TOKENS_BYTES_MAX = 4 << 20
"""The most bytes of the tokens of all remembered answers."""


@dataclass
class OwnAnswer:
    """An answer's tokens, without the one that ended it.

    rendering: the SHA-256 of the tokens in their place that were compared with it last. agrees:
    whether they may be replaced.
    """

    tokens: array[int]
    rendering: bytes = b""
    agrees: bool = False


_Key = tuple[str, int, bytes, bytes]
"""The owner, the characters of the prompt before the answer, their SHA-256, that of its tokens."""


class OwnAnswers:
    """Answers by their owner and by the whole prompt before them.

    An owner finds its own ones only. Where there is no room, the owner with most of them loses the
    one that was not used for the longest time. n_vocab: tokens of the vocabulary.
    """

    def __init__(self, n_vocab: int) -> None:
        self.read: Callable[[str], bytes] = lambda _owner: b""
        """Return packed() of an owner, as it was written before; b"" if there is none."""
        self.unwritten: set[str] = set()
        """The owners whose answers have changed since they were written."""
        self._n_vocab = n_vocab
        self._answers: OrderedDict[_Key, OwnAnswer] = OrderedDict()
        self._n_bytes = 0
        self._known: set[str] = set()  # owners whose answers were read
        self._gone: set[str] = set()  # owners that were forgotten, until their next prompt

    def add(self, owner: str, prompt: str, tokens: Sequence[int]) -> None:
        """Remember an answer to a prompt."""
        digest = _digest(prompt).digest()
        if owner not in self._gone and self._add(owner, len(prompt), digest, tokens) and owner:
            self.unwritten.add(owner)

    def _add(self, owner: str, n_char: int, digest: bytes, tokens: Sequence[int]) -> bool:
        """Return whether the answer is a new one, for which there is room."""
        kept = array("i", tokens)
        key = (owner, n_char, digest, digest_of(tokens))
        if not kept or key in self._answers:
            return False
        self._answers[key] = OwnAnswer(kept)
        self._n_bytes += len(kept) * kept.itemsize
        while len(self._answers) > N_ANSWER_MAX or self._n_bytes > TOKENS_BYTES_MAX:
            self._drop_one()
        return key in self._answers

    def packed(self, owner: str) -> bytes:
        """Return all answers of an owner as JSON: characters and SHA-256 of the prompt, tokens."""
        rows = [
            [key[1], key[2].hex(), own.tokens.tolist()]
            for key, own in self._answers.items()
            if key[0] == owner
        ]
        return json.dumps(rows, separators=(",", ":")).encode()

    def _open(self, owner: str) -> None:
        """Read an owner's answers, once."""
        self._gone.discard(owner)
        if not owner or owner in self._known:
            return
        self._known.add(owner)
        try:
            rows = json.loads(self.read(owner) or "[]")
            found = [(int(n), bytes.fromhex(digest), array("i", ids)) for n, digest, ids in rows]
        except (ValueError, TypeError, OverflowError, RecursionError):
            return  # it is of another version
        for n_char, digest, tokens in found:
            if all(0 <= token < self._n_vocab for token in tokens):
                self._add(owner, n_char, digest, tokens)

    def forget(self, owner: str) -> None:
        """Forget the answers of an owner. Remember no new ones until its next prompt."""
        for key in [key for key in self._answers if key[0] == owner]:
            self._drop(key)
        self.unwritten.discard(owner)
        self._gone.add(owner)

    def within(self, owner: str, prompt: str) -> Iterator[tuple[int, list[OwnAnswer]]]:
        """Yield where answers may stand in a prompt, in order, and those that were given there.

        The latest one comes first.
        """
        self._open(owner)
        found: dict[int, list[_Key]] = {}
        for key in reversed(self._answers):
            if key[0] == owner and key[1] < len(prompt):
                found.setdefault(key[1], []).append(key)
        digest, n = _digest(""), 0
        for at in sorted(found):
            digest.update(_bytes(prompt[n:at]))
            n, here = at, digest.digest()
            if keys := [key for key in found[at] if key[2] == here]:
                for key in reversed(keys):
                    self._answers.move_to_end(key)
                yield at, [self._answers[key] for key in keys]

    def _drop_one(self) -> None:
        counts = Counter(key[0] for key in self._answers)
        self._drop(next(key for key in self._answers if counts[key[0]] == max(counts.values())))

    def _drop(self, key: _Key) -> None:
        tokens = self._answers.pop(key).tokens
        self._known.discard(key[0])
        self._n_bytes -= len(tokens) * tokens.itemsize


def is_same(own: AnswerText, rendered: AnswerText) -> bool:
    """Return whether two answers are equal up to white space around them and to their JSON's form.

    JSON may have other white space and another order of keys, but not the same key twice. Answers
    in which nothing was read are not known to be equal.
    """
    return (
        bool(own.reasoning or own.content or own.tool_calls)
        and own.reasoning.strip() == rendered.reasoning.strip()
        and own.content.strip() == rendered.content.strip()
        and len(own.tool_calls) == len(rendered.tool_calls)
        and all(
            a.name == b.name and _canonical(a.arguments) == _canonical(b.arguments)
            for a, b in zip(own.tool_calls, rendered.tool_calls, strict=True)
        )
    )


def digest_of(tokens: Sequence[int]) -> bytes:
    """Return the SHA-256 of tokens."""
    return hashlib.sha256(array("i", tokens).tobytes()).digest()


def _canonical(arguments: str) -> str:
    """Return JSON in one form; a text that is none, or names a key twice, as it is."""
    try:
        value = json.loads(arguments, object_pairs_hook=_unique)
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _digest(text: str) -> Any:
    return hashlib.sha256(_bytes(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
