"""Collects what a watched engine does, pass by pass, and packs it for the client.

The engine's thread adds a moment after every pass. The writing thread (outbox.py) takes all moments
that are waiting, some times a second. Only the used and the changed cells of each map are sent: a
token of a model of 48 x 128 experts takes about 1.7 kB instead of 6.1. Packing takes next to no
time; compression would take more.
"""

from __future__ import annotations

import base64
import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from backend.methods import cells
from backend.methods.cost import COUNTERS
from backend.protocol.statistics import PassFigures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backend.methods.cost import PassCost

N_KEPT_MAX = 4096
"""Maximum of waiting moments; the oldest are dropped first."""
N_BATCH_MAX = 255
"""Maximum of moments in a batch, which limits the size of a message."""
_USED = cells.FOUND | cells.ON_HOST
_COUNTED = [name for name in PassFigures._fields if name in COUNTERS]


class Moment(NamedTuple):
    """One pass. residency: see Engine.residency(). layer_stall_us: of each MoE layer."""

    number: int
    figures: PassFigures
    layer_stall_us: tuple[int, ...]
    residency: bytes


class Watch:
    """The moments of an answer that were not taken yet. add() and take() from any thread."""

    def __init__(self) -> None:
        self._moments: collections.deque[Moment] = collections.deque(maxlen=N_KEPT_MAX)

    def clear(self) -> None:
        """Drop all waiting moments."""
        self._moments.clear()

    def add(
        self,
        number: int,
        cost: PassCost,
        layer_stall_us: tuple[int, ...],
        residency: bytes,
        *,
        is_token: bool,
    ) -> None:
        """Add the cost of a finished pass. number: its index in the answer, from 0."""
        figures = PassFigures(
            n_token=int(is_token),
            wall_us=round(1e6 * cost.wall_s),
            compute_us=round(1e6 * cost.compute_s),
            stall_us=round(1e6 * cost.stall_s),
            link_busy_us=round(1e6 * cost.link_busy_s),
            **{name: getattr(cost, name) for name in _COUNTED},
        )
        self._moments.append(Moment(number, figures, layer_stall_us, residency))

    def take(self) -> dict[str, Any] | None:
        """Return the fields of a message "moments" with all waiting moments; None: there are none.

        `first` is the number of the first pass; the others follow it. `data` is base64. It holds
        n passes of n_cell cells each, little-endian, in this order:

        - the bits RESIDENT, then the bits ARRIVING of the first map, eight cells per byte, the
          first cell in the highest bit;
        - u4 [n]: number of used cells in each pass; u4 [n]: number of cells whose state changed
          since the previous pass;
        - u4: the indices of the used cells, then of the changed cells, of all passes;
        - u1: for each used cell its bits FOUND and ON_HOST, then for each changed cell the bits of
          WHERE that changed;
        - u4 [n][n_layer]: microseconds that each layer waited.
        """
        moments: list[Moment] = []
        while self._moments and _follows(moments, self._moments[0]):
            moments.append(self._moments.popleft())
        if not moments:
            return None
        return {
            "first": moments[0].number,
            "figures": [moment.figures for moment in moments],
            "data": base64.b64encode(_packed(moments)).decode("ascii"),
        }


def _follows(moments: list[Moment], moment: Moment) -> bool:
    """Return whether a moment fits into this batch."""
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
    import numpy as np  # heavy: the worker sends its hello before

    maps = np.frombuffer(b"".join(moment.residency for moment in moments), np.uint8)
    maps = maps.reshape(len(moments), len(moments[0].residency))
    used = maps & np.uint8(_USED)
    state = maps & np.uint8(cells.WHERE)
    changed = state.copy()
    changed[1:] ^= state[:-1]
    changed[:1] = 0
    parts = [np.packbits(state[0] & 1), np.packbits(state[0] >> 1)]
    sparse = [_sparse(used), _sparse(changed)]
    for i, dtype in enumerate(("<u4", "<u4", "|u1")):
        parts += [entries[i].astype(dtype) for entries in sparse]
    parts.append(np.array([moment.layer_stall_us for moment in moments], "<u4"))
    return b"".join(part.tobytes() for part in parts)


def _sparse(maps: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the number of nonzero cells of each map, their indices and their values."""
    import numpy as np  # as in _packed

    n_cell = max(maps.shape[1], 1)
    places = np.flatnonzero(maps)
    counts = np.bincount(places // n_cell, minlength=len(maps))
    return counts, places % n_cell, maps.reshape(-1)[places]
