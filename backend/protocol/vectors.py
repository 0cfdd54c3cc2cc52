"""The results of a small model beside the engine's, for texts."""

from __future__ import annotations

from typing import NamedTuple


class Vectors(NamedTuple):
    """A row of numbers for each text. n_token: tokens of all texts."""

    rows: list[list[float]]
    n_token: int
