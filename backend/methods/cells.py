"""A cell: the byte that describes the state of one expert, as in Patch.snapshot().

The values are those of Cell in backend/native/core/types.h. A cell has one value of each group,
plus flags.
"""

from __future__ import annotations

ABSENT, RESIDENT, ARRIVING = 0, 1, 2
WHERE = 3
"""Mask of the values above."""
HIT, LATE, MISS = 4, 8, 12
"""The state in which the layer found the expert in its last pass, if it needed the expert."""
FOUND = 12
"""Mask of the values above; 0: not needed."""
PINNED = 16
"""The layer in progress needs the expert."""
ON_HOST = 32
"""The processor computed the expert, which the device lacked."""
