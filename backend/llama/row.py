"""A row of a pass, without llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)  # frozen ones take three times as long to make
class Row:
    """A token of a pass of several sequences. has_logits: its logits are wanted."""

    token: int
    position: int
    sequence: int
    has_logits: bool = False
