"""The moment of the answer that the panel shows: now, or a chosen token."""

from __future__ import annotations

from app.session.history import History
from backend.methods import cells
from backend.protocol.statistics import Batch, PassFigures, Residency, TokenCost


class Moments:
    """The history of an answer, its tokens' times, and the chosen token."""

    def __init__(self, layers: tuple[int, ...] = (), n_expert: int = 0) -> None:
        self.layers = layers
        self.history = History(len(layers), n_expert)
        self.times: list[TokenCost] = []
        self.token: int | None = None  # index of the chosen token; None: now

    @property
    def n_token(self) -> int:
        """Return the number of tokens."""
        return len(self.times)

    def clear(self) -> None:
        """Forget the answer."""
        self.history.clear()
        self.times.clear()
        self.token = None

    def add(self, batch: Batch) -> list[TokenCost]:
        """Append a batch and return its tokens' times. Raises ValueError."""
        self.history.add(batch)
        new = [time_of(figures) for figures in batch.figures if figures.n_token]
        self.times += new
        return new

    def choose(self, token: int | None) -> None:
        """Choose a token, or now (None)."""
        self.token = None if token is None else min(max(token, 0), max(self.n_token - 1, 0))

    @property
    def index(self) -> int | None:
        """Return the history's index of the shown pass; None: now, or there is no history."""
        if self.token is None or self.token >= len(self.history.tokens):
            return None
        return self.history.tokens[self.token]

    @property
    def figures(self) -> PassFigures | None:
        """Return the figures of the chosen token."""
        return None if self.index is None else self.history.figures[self.index]

    @property
    def residency(self) -> Residency | None:
        """Return the map after the chosen token; None also if it was dropped."""
        data = None if self.index is None else self.history.residency(self.index)
        return None if not data else Residency(self.layers, self.history.n_expert, data)

    @property
    def layer_stall_s(self) -> dict[int, float]:
        """Return each layer's stall in the chosen token; empty if it was dropped."""
        stalls_us = None if self.index is None else self.history.layer_stall_us(self.index)
        if stalls_us is None:
            return {}
        return {layer: us / 1e6 for layer, us in zip(self.layers, stalls_us, strict=True)}

    @property
    def layer_on_host(self) -> dict[int, int]:
        """Return the experts of each layer that the processor computed in the chosen token."""
        known, n_expert = self.residency, self.history.n_expert
        if known is None:
            return {}
        on_host = known.data.translate(_IS_ON_HOST)
        return {
            layer: sum(on_host[row * n_expert : (row + 1) * n_expert])
            for row, layer in enumerate(self.layers)
        }

    def shown(self, n_room: int) -> tuple[int, tuple[TokenCost, ...]]:
        """Return the index of the first token to show, and the times of at most `n_room`.

        They are the tokens around the chosen one, or the last.
        """
        end = self.n_token
        if self.token is not None:
            end = min(max(self.token + n_room // 2, n_room), self.n_token)
        first = max(end - n_room, 0)
        return first, tuple(self.times[first:end])


_IS_ON_HOST = bytes(1 if value & cells.ON_HOST else 0 for value in range(256))


def time_of(figures: PassFigures) -> TokenCost:
    """Return the parts of a pass's time."""
    return TokenCost(figures.compute_us / 1e6, figures.stall_us / 1e6, figures.other_us / 1e6)
