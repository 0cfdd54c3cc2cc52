"""Requests as tests make them, and a handle that calls what a test gives it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from backend.engine.engine import Engine
from backend.engine.runner import Runner
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer, Handle, Prompt, Request
from backend.protocol.settings import Sampling

OnPrefill = Callable[[int, int], None]
OnDelta = Callable[[Delta], None]


class Calls(Handle):
    """Passes on the progress of a prompt, and what an answer gains."""

    def __init__(self, on_prefill: OnPrefill | None = None, on_delta: OnDelta | None = None):
        super().__init__()
        self.splits = "live" if on_delta is not None else ""
        self._on_prefill, self._on_delta = on_prefill, on_delta

    def prefilled(self) -> None:
        if self._on_prefill is not None:
            self._on_prefill(self.follow.n_done, self.follow.n_prompt)

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


def keep_all(engine: Engine) -> None:
    """Let an engine do what it does between requests, to the end."""
    while engine.keep():
        time.sleep(0.001)  # a digest or a piece is under way in another thread


def of_chat(
    messages: Sequence[Any],
    sampling: Sampling,
    max_tokens: int = -1,
    on_prefill: OnPrefill | None = None,
    options: ChatOptions = ChatOptions(),
    on_delta: OnDelta | None = None,
    owner: str = "",
) -> Request:
    """Return a person's request to answer a conversation."""
    handle = Calls(on_prefill, on_delta)
    return Request(
        None, sampling, max_tokens, messages, options=options, priority="person", owner=owner,
        handle=handle,
    )  # fmt: skip


def jointly(
    engine: Engine,
    requests: Iterable[Request | None],
    on_pass: Callable[[Runner], None] = lambda _: None,
    *,
    keeps: bool = False,
    attends: tuple[int, int] = (0, 0),
    urgent: Callable[[], Request | None] = lambda: None,
) -> Iterator[GroupAnswer]:
    """Have requests answered beside each other. Yield each answer as it ends.

    requests: asked when there is room; None: none at present. urgent: asked before every pass.
    """
    given: list[GroupAnswer] = []
    source: Iterator[Request | None] = iter(requests)

    def submit(request: Request) -> None:
        setattr(request.handle, "ended", given.append)
        try:
            engine.submit(request)
        except UntrustedError:
            raise
        except EngineError as error:
            given.append(GroupAnswer(request, fault=error))

    engine.attend(*attends)
    engine.keeps = keeps
    try:
        is_open = True
        while is_open:
            while (request := urgent()) is not None:
                submit(request)
            while engine.n_wanted and (request := next(source, None)) is not None:
                submit(request)
            is_open = engine.step()
            yield from iter(lambda: given.pop(0) if given else None, None)
            if is_open:
                on_pass(engine.runner)
    finally:
        engine.stop()
        while engine.step():
            pass
        engine.attend(0, 0)
        engine.keeps = True
