"""submit() and step() of a fake engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from backend.protocol.request import GroupAnswer, Handle, Request


class Stepping:
    """Computes a piece of each answer in a step.

    n_sequence: answers at once. A subclass has answer(), whose iterator ends with its answer.
    """

    n_sequence = 1

    def __init__(self) -> None:
        self.answering: list[tuple[Request, Iterator[Any]]] = []
        self._n_piece = 0  # of the last step

    @property
    def prompts(self) -> Any:
        return self

    words = prompts

    def serves(self, _handle: Handle) -> Any:
        return contextlib.nullcontext()

    def beside(self, work: Callable[[Any], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(self))
        except Exception as error:
            done.set_exception(error)
        return done

    def answer(self, request: Request) -> Iterator[Any]:
        raise NotImplementedError

    def end_of(self, request: Request) -> GroupAnswer:
        """Return how the answer to a request has ended, whose iterator has."""
        raise NotImplementedError

    @property
    def n_open(self) -> int:
        return len(self.answering)

    @property
    def n_wanted(self) -> int:
        return max(max(self.n_sequence, 1) - len(self.answering), 0)

    @property
    def runner(self) -> Any:
        return SimpleNamespace(n_running=self._n_piece, n_drafted=0, n_right=0)

    def submit(self, request: Request) -> Handle:
        self.answering.append((request, self.answer(request)))
        return request.handle

    def step(self) -> bool:
        if not self.answering:
            return False
        self._n_piece = 0
        for request, pieces in list(self.answering):
            try:
                piece: Any = next(pieces, None)
            except Exception as error:
                self._end_all(lambda r, error=error: GroupAnswer(r, fault=error))
                raise
            self._n_piece += piece is not None
            if piece is None or request.handle.is_cancelled:
                self.answering.remove((request, pieces))
                given = self.end_of(request)
                request.handle.ended(given)
        return True

    def _end_all(self, given: Callable[[Request], GroupAnswer]) -> None:
        running, self.answering = self.answering, []
        for request, _ in running:
            request.handle.ended(given(request))
