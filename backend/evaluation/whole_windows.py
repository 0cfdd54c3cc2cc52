"""Judges contexts whose layers with a sliding window keep its cells only, in a ring.

Stock llama.cpp repeats what a log did, a window with a hole included: it removes and copies
positions although it has used cells of the window before them again. So a second context keeps all
cells. Both differ by the order in which attention adds up its sums.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np

_NEAR = 0.02
"""Share of the distance from the mean logit to the greatest one within which both may choose other
tokens: rounding may send a token to other experts."""
_PARTIAL: int = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


def state_of(context: Any, sequence: int, flags: int = 0) -> bytes:
    """Return the state of a sequence. flags: for what cannot be cut of it."""
    n = llama_cpp.llama_state_seq_get_size_ext(context, sequence, flags)
    buffer = (ctypes.c_uint8 * n)()
    n_got = llama_cpp.llama_state_seq_get_data_ext(context, buffer, n, sequence, flags)
    return bytes(buffer) if n_got == n else b""


def set_state(context: Any, sequence: int, state: bytes, flags: int = 0) -> bool:
    """Give a sequence a state. Return False if llama.cpp refuses it."""
    buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    n_got = llama_cpp.llama_state_seq_set_data_ext(context, buffer, len(state), sequence, flags)
    return int(n_got) == len(state)


class WholeWindows:
    """A context with cells for all, beside one with a ring. Every change is made to both.

    context: is freed by close().
    """

    def __init__(self, context: Any, n_vocab: int) -> None:
        self._context, self._n_vocab = context, n_vocab
        self._memory = llama_cpp.llama_get_memory(context)
        self._saved: dict[int, bytes] = {}

    def close(self) -> None:
        """Free the context."""
        llama_cpp.llama_free(self._context)

    def remember(self, name: str, *arguments: Any) -> None:
        """Change what the context holds, by a function of llama_memory."""
        getattr(llama_cpp, f"llama_memory_{name}")(self._memory, *arguments)

    def save(self, number: int, sequence: int) -> None:
        """Keep what cannot be cut of a sequence, under a number."""
        self._saved[number] = state_of(self._context, sequence, _PARTIAL)

    def restore(self, number: int, sequence: int, otherwise: bytes) -> None:
        """Restore what was kept. otherwise: what another context has kept."""
        set_state(self._context, sequence, self._saved.get(number, otherwise), _PARTIAL)

    def drop(self, number: int) -> None:
        """Forget what was kept."""
        self._saved.pop(number, None)

    def set(self, sequence: int, state: bytes) -> None:
        """Give a sequence a state that was read."""
        set_state(self._context, sequence, state)

    def complete(self, sequence: int, first: int, window: Callable[[], bytes]) -> None:
        """Give a sequence the window of the context with a ring if this one lacks a part of it.

        llama.cpp uses cells behind a window again in this context, too, where it comes across them.
        first: the first position of the window. window: returns what cannot be cut.
        """
        held = llama_cpp.llama_memory_seq_pos_min(self._memory, sequence)
        if not 0 <= held <= first:
            set_state(self._context, sequence, window(), _PARTIAL)

    def is_causal(self, flag: bool) -> None:
        """Choose whether a token sees those behind it in its pass, as within some images."""
        llama_cpp.llama_set_causal_attn(self._context, flag)

    def decode(self, batch: Any) -> bool:
        """Compute a pass. Return whether llama.cpp did."""
        return int(llama_cpp.llama_decode(self._context, batch)) == 0

    def agrees(self, row: int, logits: Any) -> bool:
        """Return whether the most probable token of a row is that of a context with a ring."""
        address = llama_cpp.llama_get_logits_ith(self._context, row)
        values: Any = (ctypes.c_float * self._n_vocab).from_address(
            ctypes.cast(address, ctypes.c_void_p).value or 0
        )
        own = np.frombuffer(values, np.float32)
        greatest = float(own.max())
        return greatest - float(own[logits.argmax()]) <= _NEAR * (greatest - float(own.mean()))
