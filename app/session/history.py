"""The last answer pass by pass, for the time line and the export.

Batches come from the worker (backend/engine/moments.py) and are kept packed. Only the uses of each
expert are summed as they arrive. A map is unpacked when it is shown.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from array import array
from collections.abc import Iterator, Sequence

from backend.protocol.statistics import Batch, PassFigures

KEPT_BYTES = 32 << 20
"""Limit of the packed maps. Beyond it the oldest maps are dropped; their figures stay."""
CHECKPOINT = 32
"""Batches between two stored sums of uses."""
N_UNPACKED = 8
"""Unpacked batches to keep: the next moment to show is likely to be near the last."""
_BITS = [bytes(value >> (7 - i) & 1 for i in range(8)) for value in range(256)]


class _Parts:
    """The parts of a batch's data, in the format of backend/engine/moments.py, Watch.take.

    Raises ValueError if the data are malformed.
    """

    def __init__(self, blob: bytes, n_pass: int, n_layer: int, n_expert: int) -> None:
        self._blob, self._at = blob, 0
        self.n_layer, self.n_cell = n_layer, n_layer * n_expert
        n_plane = (self.n_cell + 7) // 8
        self.planes = self._take(n_plane), self._take(n_plane)
        n_used, n_changed = self._u4(n_pass), self._u4(n_pass)
        used_at, changed_at = self._u4(sum(n_used)), self._u4(sum(n_changed))
        if max(max(used_at, default=0), max(changed_at, default=0)) >= max(self.n_cell, 1):
            raise ValueError("the moments name experts that do not exist")
        self.used = _Rows(n_used, used_at, self._take(len(used_at)))
        self.changed = _Rows(n_changed, changed_at, self._take(len(changed_at)))
        # Without a patch the layers' stalls are not measured.
        rest = len(blob) - self._at
        self.stall_us = self._u4(n_pass * n_layer) if rest else array("I", [0]) * (n_pass * n_layer)
        if self._at != len(blob):
            raise ValueError("the moments are too long")

    def _take(self, n_byte: int) -> bytes:
        data = self._blob[self._at : self._at + n_byte]
        if len(data) != n_byte:
            raise ValueError("the moments are cut off")
        self._at += n_byte
        return data

    def _u4(self, n: int) -> array[int]:
        values = array("I", self._take(4 * n))
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def maps(self) -> list[bytes]:
        """Return the map after each pass."""
        low, high = (b"".join(_BITS[byte] for byte in plane) for plane in self.planes)
        state = bytearray(a | b << 1 for a, b in zip(low, high, strict=True))[: self.n_cell]
        maps = []
        for i in range(len(self.used)):
            for place, bits in self.changed.row(i):
                state[place] ^= bits
            now = bytearray(state)
            for place, bits in self.used.row(i):
                now[place] |= bits
            maps.append(bytes(now))
        return maps


class _Rows:
    """The non-zero cells of each pass."""

    def __init__(self, counts: array[int], places: array[int], values: bytes) -> None:
        self._ends = list(itertools.accumulate(counts, initial=0))
        self._places, self._values = places, values

    def __len__(self) -> int:
        return len(self._ends) - 1

    def places(self, i: int) -> array[int]:
        return self._places[self._ends[i] : self._ends[i + 1]]

    def row(self, i: int) -> Iterator[tuple[int, int]]:
        values = self._values[self._ends[i] : self._ends[i + 1]]
        return zip(self.places(i), values, strict=True)


class History:
    """The passes of one answer, of a model with `n_layer` MoE layers of `n_expert` experts.

    A pass is identified by its index here. `tokens` are the indices of the passes that decoded a
    token; the others processed the prompt.
    """

    def __init__(self, n_layer: int = 0, n_expert: int = 0) -> None:
        self.n_layer, self.n_expert = n_layer, n_expert
        self.clear()

    def clear(self) -> None:
        """Forget the answer."""
        self.figures: list[PassFigures] = []
        self.tokens: list[int] = []
        self._numbers: list[int] = []  # [batch]: the worker's number of the first pass
        self._begins: list[int] = []  # [batch]: index of the first pass
        self._blobs: list[bytes | None] = []  # [batch]
        self._n_byte = 0
        self._n_dropped = 0  # batches without maps
        self._uses = array("I", [0]) * (self.n_layer * self.n_expert)
        self._checkpoints: list[array[int]] = []  # [batch / CHECKPOINT]: _uses before it
        self._unpacked: dict[int, tuple[list[bytes], array[int]]] = {}

    def __len__(self) -> int:
        """Return the number of passes."""
        return len(self.figures)

    def add(self, batch: Batch) -> None:
        """Append a batch. A pass number that does not grow begins another answer.

        Raises ValueError if the batch is malformed.
        """
        parts = self._parts(batch.blob, len(batch.figures))  # may raise, so before any change
        if self._numbers and batch.first <= self._numbers[-1]:
            self.clear()
        if len(self._blobs) % CHECKPOINT == 0:
            self._checkpoints.append(self._uses[:])
        _count(self._uses, parts, batch.figures)
        at = len(self.figures)
        self._numbers.append(batch.first)
        self._begins.append(at)
        self._blobs.append(batch.blob)
        self._n_byte += len(batch.blob)
        self.figures += batch.figures
        self.tokens += [at + i for i, figures in enumerate(batch.figures) if figures.n_token]
        while self._n_byte > KEPT_BYTES and self._n_dropped < len(self._blobs) - 1:
            self._n_byte -= len(self._blobs[self._n_dropped] or b"")
            self._blobs[self._n_dropped] = None
            self._n_dropped += 1

    def residency(self, index: int) -> bytes | None:
        """Return the map after a pass; None if it was dropped."""
        batch = self._batch(index)
        found = self._unpack(batch)
        return None if found is None else found[0][index - self._begins[batch]]

    def layer_stall_us(self, index: int) -> array[int] | None:
        """Return the stall of each layer in a pass, in µs; None if it was dropped."""
        batch = self._batch(index)
        found = self._unpack(batch)
        at = (index - self._begins[batch]) * self.n_layer
        return None if found is None else found[1][at : at + self.n_layer]

    def uses(self, index: int | None = None) -> array[int]:
        """Count the tokens that used each expert, up to and including a pass; None: all passes.

        Dropped batches count as far as a checkpoint contains them.
        """
        if index is None:
            return self._uses[:]
        batch = self._batch(index)
        start = batch // CHECKPOINT
        total = self._checkpoints[start][:]
        for earlier in range(start * CHECKPOINT, batch + 1):
            blob = self._blobs[earlier]
            if blob is not None:
                begin = self._begins[earlier]
                figures = self.figures[begin : begin + self._n_pass(earlier)]
                n_pass = index - begin + 1 if earlier == batch else len(figures)
                _count(total, self._parts(blob, len(figures)), figures[:n_pass])
        return total

    def _parts(self, blob: bytes, n_pass: int) -> _Parts:
        return _Parts(blob, n_pass, self.n_layer, self.n_expert)

    def _batch(self, index: int) -> int:
        """Return the batch of a pass. Raises IndexError."""
        if not 0 <= index < len(self.figures):
            raise IndexError(index)
        return bisect.bisect_right(self._begins, index) - 1

    def _n_pass(self, batch: int) -> int:
        end = self._begins[batch + 1] if batch + 1 < len(self._begins) else len(self.figures)
        return end - self._begins[batch]

    def _unpack(self, batch: int) -> tuple[list[bytes], array[int]] | None:
        """Return a batch's maps and stalls; None if they were dropped."""
        found = self._unpacked.pop(batch, None)
        blob = self._blobs[batch]
        if found is None and blob is not None:
            parts = self._parts(blob, self._n_pass(batch))
            found = parts.maps(), parts.stall_us
        if found is not None:
            self._unpacked[batch] = found
            if len(self._unpacked) > N_UNPACKED:
                del self._unpacked[next(iter(self._unpacked))]
        return found


def _count(uses: array[int], parts: _Parts, figures: Sequence[PassFigures]) -> None:
    """Add the uses of decoded tokens. A piece of the prompt uses nearly every expert: skip it."""
    for i, figure in enumerate(figures):
        if figure.n_token:
            for place in parts.used.places(i):
                uses[place] += 1
