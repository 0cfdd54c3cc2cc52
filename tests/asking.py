"""Requests as tests make them, and a handle that calls what a test gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.engine.engine import Engine
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.request import Handle, Prompt, Request
from backend.protocol.settings import Sampling

OnPrefill = Callable[[int, int], None]
OnDelta = Callable[[Delta], None]


class Calls(Handle):
    """Passes on the progress of a prompt, and what an answer gains."""

    def __init__(self, on_prefill: OnPrefill | None = None, on_delta: OnDelta | None = None):
        super().__init__()
        self.splits = on_delta is not None
        self._on_prefill, self._on_delta = on_prefill, on_delta

    def prefilled(self, done: int, total: int) -> None:
        if self._on_prefill is not None:
            self._on_prefill(done, total)

    def delta(self, delta: Delta) -> None:
        assert self._on_delta is not None
        self._on_delta(delta)


def of_text(
    prompt: Prompt,
    sampling: Sampling,
    max_tokens: int = -1,
    on_prefill: OnPrefill | None = None,
    stops: Sequence[str] = (),
    grammar: str = "",
    owner: str = "",
) -> Request:
    """Return a request to continue a raw prompt."""
    options = ChatOptions(stops=tuple(stops), grammar=grammar)
    handle = Calls(on_prefill)
    return Request(
        None, sampling, max_tokens, prompt=prompt, options=options, owner=owner, handle=handle
    )


def read(engine: Engine, tokens: Sequence[int], owner: str = "") -> int:
    """Have an engine read tokens, and nothing else. Return how many it did not compute."""
    list(engine.answer(of_text(tuple(tokens), Sampling(temperature=0), 0, owner=owner)))
    return engine.statistics().n_reused


def of_chat(
    messages: Sequence[Any],
    sampling: Sampling,
    max_tokens: int = -1,
    on_prefill: OnPrefill | None = None,
    options: ChatOptions = ChatOptions(),
    on_delta: OnDelta | None = None,
    owner: str = "",
) -> Request:
    """Return a request to answer a conversation."""
    handle = Calls(on_prefill, on_delta)
    return Request(
        None, sampling, max_tokens, messages, options=options, owner=owner, handle=handle
    )
