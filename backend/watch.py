"""What a watched engine does, pass by pass, on its way to whoever shows it.

The engine's thread adds a moment after every pass; the thread that writes (outbox.py) takes what
has come together, some times a second. Maps differ little from one pass to the next, so that a
batch holds their differences, compressed: a token of a model of 48 x 128 experts takes about 700
bytes instead of 6144.
"""

from __future__ import annotations

import base64
import collections
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from backend.auto_trial import Window

FIGURES = (
    "n_token", "wall_us", "compute_us", "stall_us", "link_busy_us", "hits", "late", "misses",
    "bytes_read", "bytes_wasted", "prefetches_useful", "prefetches_wasted",
)  # fmt: skip
"""The figures of a pass, in the order in which a batch has them. n_token is 0 for a piece of the
prompt; wall_us is the time since the pass before, compute_us + stall_us + the unexplained rest."""

N_KEPT_MAX = 4096
"""Moments that wait at most, where nobody takes them; the oldest go first."""
N_BATCH_MAX = 255
"""Moments in a batch at most: so often an expert can be counted in one byte."""


class Moment(NamedTuple):
    """One pass. `residency`: see Engine.residency(); `layer_stall_us`: of each MoE layer."""

    number: int
    figures: tuple[int, ...]
    layer_stall_us: tuple[int, ...]
    residency: bytes


class Watch:
    """The moments of an answer that nobody has taken yet. add() and take() from any thread."""

    def __init__(self) -> None:
        self._moments: collections.deque[Moment] = collections.deque(maxlen=N_KEPT_MAX)

    def clear(self) -> None:
        """Forget what nobody has taken."""
        self._moments.clear()

    def add(
        self,
        number: int,
        cost: Window,
        layer_stall_us: tuple[int, ...],
        residency: bytes,
        *,
        is_token: bool,
    ) -> None:
        """Pass `number` of the answer, counted from 0, is over, and this is what it cost."""
        figures = (
            int(is_token),
            round(1e6 * cost.wall_s),
            round(1e6 * cost.compute_s),
            round(1e6 * cost.stall_s),
            round(1e6 * cost.link_busy_s),
            cost.hits,
            cost.late,
            cost.misses,
            cost.bytes_read,
            cost.bytes_wasted,
            cost.prefetches_useful,
            cost.prefetches_wasted,
        )
        self._moments.append(Moment(number, figures, layer_stall_us, residency))

    def take(self) -> dict[str, Any] | None:
        """The fields of a message "moments" with what was added since the last; None: nothing.

        `first` is the number of its first pass; the others follow it. `data` is base64 of zlib of,
        for each pass, the map, every one but the first XOR the one before; then for each pass the
        layers' stalls, as little-endian u4 microseconds.
        """
        moments: list[Moment] = []
        while self._moments and _follows(moments, self._moments[0]):
            moments.append(self._moments.popleft())
        if not moments:
            return None
        return {
            "first": moments[0].number,
            "figures": [moment.figures for moment in moments],
            "data": base64.b64encode(zlib.compress(_packed(moments), 1)).decode("ascii"),
        }


def _follows(moments: list[Moment], moment: Moment) -> bool:
    """Whether a moment belongs into a batch."""
    if not moments:
        return True
    last = moments[-1]
    return (
        len(moments) < N_BATCH_MAX
        and moment.number == last.number + 1
        and len(moment.residency) == len(last.residency)
        and len(moment.layer_stall_us) == len(last.layer_stall_us)
    )


def _packed(moments: list[Moment]) -> bytes:
    maps = np.frombuffer(b"".join(moment.residency for moment in moments), np.uint8)
    maps = maps.reshape(len(moments), len(moments[0].residency))
    changes = maps.copy()
    changes[1:] ^= maps[:-1]
    stalls = np.array([moment.layer_stall_us for moment in moments], "<u4")
    return changes.tobytes() + stalls.tobytes()
